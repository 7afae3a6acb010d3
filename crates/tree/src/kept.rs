//! How many free zones metadata needs so that it can always be written: two epochs, and one zone to clean into.

/// What only metadata may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptForMetadata {
    /// Blocks for what two epochs write.
    pub(crate) blocks: u64,
    /// Blocks that a zone takes.
    pub(crate) of_zone: u64,
}

impl KeptForMetadata {
    /// Free zones that are needed beside so many blocks of the open metadata zone, one to clean into
    /// among them.
    pub(crate) fn zones(self, open_room: u64) -> u32 {
        1 + self.blocks.saturating_sub(open_room).div_ceil(self.of_zone) as u32
    }

    /// What these have to hold, where zones are not alike.
    pub(crate) fn free_blocks(self, open_room: u64) -> u64 {
        self.blocks.saturating_sub(open_room) + self.of_zone
    }

    /// How much metadata can write before one more free zone is needed. Once in the life of its open zone that is
    /// so: where the number above rises; when it opens the next one, that falls again, and so do the free ones.
    pub(crate) fn until_more(self, open_room: u64) -> u64 {
        let rises_at = self.blocks % self.of_zone;
        if open_room > rises_at { open_room - rises_at } else { open_room + self.of_zone - rises_at }
    }
}
