//! The shares: how many free zones each role has to leave to the others.
//!
//! What is *reserved* for metadata, and what is *announced*, is a matter of correctness. The *target* of metadata is a wish
//! that saves moves: user writes heed it, and lower it when they find no zone.
//!
//! Shares are blocks, counted in free zones, the largest first. If zones are not alike, user data takes the smallest, so the
//! reserve takes no more zones than if all were as large as the largest.

use zone::{Blocks, Role, ZoneId};

use crate::free::FreeList;

/// Free zones that only GC may take.
pub const GC_MINIMUM: u32 = 1;

/// The free zones that metadata needs so that it can always be written: space for what two epochs write, and one zone as
/// the target of its GC.
#[derive(Clone, Copy, Debug)]
pub struct MetadataReserve {
    /// Blocks that two epochs write.
    pub blocks: u64,
    /// Blocks that a zone holds in whole pages behind its header.
    pub of_zone: u64,
}

impl MetadataReserve {
    /// Free zones that are needed beside the headroom of the open metadata zone, if zones are alike.
    pub fn zones(self, open_headroom: u64) -> u32 {
        1 + self.blocks.saturating_sub(open_headroom).div_ceil(self.of_zone) as u32
    }

    /// Blocks that these zones have to hold, if zones are not alike.
    fn free_blocks(self, open_headroom: u64) -> u64 {
        self.blocks.saturating_sub(open_headroom) + self.of_zone
    }

    /// Blocks that metadata can write before it needs one more free zone. That happens once in the life of its open zone,
    /// where the number of zones above rises. When metadata opens the next zone, that number falls again, and so does the
    /// number of free zones.
    pub fn until_more(self, open_headroom: u64) -> u64 {
        let rises_at = self.blocks % self.of_zone;
        match open_headroom > rises_at {
            true => open_headroom - rises_at,
            false => open_headroom + self.of_zone - rises_at,
        }
    }
}

/// The table of shares.
pub(crate) struct Shares {
    reserve: MetadataReserve,
    /// Blocks that the open metadata zone still takes: they count as a part of the reserve.
    open_headroom: Blocks,
    /// Blocks of free zones on which GC of metadata, with the checkpoint after it, counts.
    announced: u64,
    /// Free zones that user writes leave to metadata beside the reserve, so that its GC is not needed yet.
    target: u32,
    /// GC's open zone, if GC took it from the reserve of metadata: GC will return one.
    taken: Option<ZoneId>,
    /// The same, until any zone has been freed since: that may have been the one that GC returned.
    outstanding: Option<ZoneId>,
}

impl Shares {
    pub(crate) fn new(reserve: MetadataReserve) -> Shares {
        Shares { reserve, open_headroom: 0, announced: 0, target: 0, taken: None, outstanding: None }
    }

    pub(crate) fn open_headroom(&self) -> Blocks {
        self.open_headroom
    }

    pub(crate) fn set_open_headroom(&mut self, blocks: Blocks) {
        self.open_headroom = blocks;
    }

    /// The most free zones that are ever reserved for metadata.
    pub(crate) fn of_metadata_max(&self) -> u32 {
        self.reserve.zones(0)
    }

    /// Free zones that only metadata may take now.
    pub(crate) fn of_metadata(&self, free: &FreeList, are_alike: bool) -> u32 {
        self.holding(free, are_alike, self.reserve.free_blocks(u64::from(self.open_headroom)))
    }

    /// Free zones that this role has to leave to others. GC may take from the reserve of metadata, except the last zone and
    /// what was announced: it returns more than it takes, and what it commits meanwhile is less than an epoch.
    pub(crate) fn reserved_from(&self, role: Role, free: &FreeList, are_alike: bool) -> u32 {
        let announced = || self.holding(free, are_alike, self.announced);
        match role {
            Role::Data => announced().max(self.of_metadata(free, are_alike) + GC_MINIMUM + self.target),
            Role::Gc => announced().max(self.of_metadata(free, are_alike).saturating_sub(1)).max(1),
            _ => 0,
        }
    }

    /// How many free zones hold this number of blocks. If all zones are alike, it does not matter which of them are free.
    fn holding(&self, free: &FreeList, are_alike: bool, blocks: u64) -> u32 {
        match are_alike {
            true => blocks.div_ceil(self.reserve.of_zone) as u32,
            false => free.holding(blocks, self.reserve.of_zone),
        }
    }

    /// Announces that metadata will write this number of blocks; false, and nothing changes, if they are not free.
    pub(crate) fn announce(&mut self, blocks: u64, free: &FreeList, are_alike: bool) -> bool {
        let blocks = blocks.saturating_sub(u64::from(self.open_headroom));
        let are_free = free.count() >= self.holding(free, are_alike, blocks);
        if are_free {
            self.announced = blocks;
        }
        are_free
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced > 0
    }

    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    pub(crate) fn set_target(&mut self, zones: u32) {
        self.target = zones;
    }

    /// Metadata has opened a zone of this capacity.
    pub(crate) fn metadata_opened(&mut self, capacity: Blocks) {
        self.announced = self.announced.saturating_sub(u64::from(capacity - 1));
        self.target = self.target.saturating_sub(1);
    }

    /// GC has taken a zone, and fewer are free than are reserved for metadata.
    pub(crate) fn gc_took(&mut self, zone: ZoneId) {
        (self.taken, self.outstanding) = (Some(zone), Some(zone));
    }

    /// The usage of a zone changes: if GC had it open, that has ended.
    pub(crate) fn usage_changes(&mut self, zone: ZoneId) {
        for held in [&mut self.taken, &mut self.outstanding] {
            held.take_if(|held| *held == zone);
        }
    }

    /// A zone was freed.
    pub(crate) fn zone_freed(&mut self) {
        self.outstanding = None;
    }

    pub(crate) fn is_one_taken(&self) -> bool {
        self.taken.is_some()
    }

    pub(crate) fn is_one_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }
}
