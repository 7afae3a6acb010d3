//! Where the blocks of a superzone are on its members: arithmetic without I/O.
//!
//! Block 0 of a superzone is block 0 of every member zone. A stripe distributes the other blocks in chunks. The last
//! row has shorter chunks, so that every block of the members is used:
//!
//! ```text
//! chunk 2, 3 members, 4 blocks each      member 0   member 1   member 2
//! block 0                                     0          0          0
//! blocks 1 to 6                              1 2        3 4        5 6
//! blocks 7 to 9, the last row                 7          8          9
//! ```

use crate::{Address, Blocks, Geometry};

use super::error::SetError;

/// The most members of a set.
pub const MEMBERS_MAX: usize = 24;

/// The first zones of a member, which hold its label.
pub(super) const LABEL_ZONES: u32 = 3;

/// The fewest zones of a set that can be open at once.
const OPEN_MIN: u32 = 6;

/// What a set uses of each member. The label has it, so it does not depend on which members are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// Bytes of a block.
    pub(crate) block_size: u32,
    /// Zones of the set.
    pub(crate) zones: u32,
    /// Blocks of a zone of each member, at most.
    pub(crate) member_blocks: Blocks,
    /// Open zones of the set.
    pub(crate) max_open: u32,
    /// Active zones of the set.
    pub(crate) max_active: u32,
    /// The largest append, in blocks.
    pub(crate) max_append: Blocks,
}

/// How a set distributes blocks over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each block except block 0 is on one member.
    Stripe {
        /// The number of consecutive blocks on one member.
        chunk: Blocks,
    },
    /// Each block is on every member.
    Mirror,
}

/// The shape of one superzone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    layout: Layout,
    /// The number of members.
    width: u32,
    /// The blocks of each member zone that are used.
    member_blocks: Blocks,
}

/// Consecutive blocks of a superzone that are consecutive on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The member.
    pub(super) member: usize,
    /// The first block in the member's zone.
    pub(super) at: Blocks,
    /// The number of blocks.
    pub(super) blocks: Blocks,
}

impl Layout {
    /// The default chunk of a stripe. The largest append of the layers above has 256 blocks. It is 32 chunks, so three
    /// members get 11 of them at most: with chunks of 16 blocks it would be 6 of 16.
    pub const STRIPE: Layout = Layout::Stripe { chunk: 8 };

    /// How many members of `width` may be missing.
    pub(super) fn tolerated(self, width: usize) -> usize {
        match self {
            Layout::Stripe { .. } => 0,
            Layout::Mirror => width - 1,
        }
    }

    /// The shape of a superzone whose smallest member zone has this capacity.
    pub(super) fn shape(self, width: usize, member_blocks: Blocks) -> Shape {
        Shape { layout: self, width: width as u32, member_blocks }
    }

    /// The shape of a superzone of this capacity.
    pub(super) fn shape_of(self, width: usize, capacity: Blocks) -> Shape {
        let member_blocks = match self {
            Layout::Stripe { .. } => capacity.saturating_sub(1) / width as u32 + 1,
            Layout::Mirror => capacity,
        };
        self.shape(width, member_blocks)
    }

    /// What a set uses of each member. Refuses members that do not fit together.
    pub(super) fn used(self, members: &[&Geometry]) -> Result<Used, SetError> {
        let unsuitable = |why: String| Err(SetError::Unsuitable(why));
        let least = match self {
            Layout::Mirror => 2,
            Layout::Stripe { .. } => 1,
        };
        if !(least..=MEMBERS_MAX).contains(&members.len()) {
            return unsuitable(format!("it has {} members, not {least} to {MEMBERS_MAX}", members.len()));
        }
        if self == (Layout::Stripe { chunk: 0 }) {
            return unsuitable("a chunk has one block at least".to_owned());
        }
        let min = |of: &dyn Fn(&Geometry) -> u32| members.iter().map(|one| of(one)).min().unwrap_or(0);
        let block_size = members[0].block_size;
        if let Some(other) = members.iter().find(|one| one.block_size != block_size) {
            return unsuitable(format!(
                "its members have blocks of {block_size} and of {} bytes",
                other.block_size
            ));
        }
        let zones = min(&|one| one.sequential()).saturating_sub(LABEL_ZONES);
        if zones == 0 {
            return unsuitable("a member has no zone beside those of its label".to_owned());
        }
        // One slot of each member is for its label.
        let slots = |of: &dyn Fn(&Geometry) -> u32| min(of).saturating_sub(1);
        let (max_open, max_active) = (slots(&|one| one.max_open), slots(&|one| one.max_active));
        if max_open < OPEN_MIN {
            return unsuitable(format!("a member can have {} zones open, and 7 are needed", max_open + 1));
        }
        let (member_blocks, max_append) = (min(&|one| one.zone_blocks), min(&|one| one.max_append));
        let used = Used { block_size, zones, member_blocks, max_open, max_active, max_append };
        if !used.is_possible(self, members.len()) {
            let capacity = u64::from(member_blocks) * members.len() as u64;
            return unsuitable(format!("its zones would have {capacity} blocks, too many for an address"));
        }
        Ok(used)
    }
}

impl Used {
    /// Whether a set can have these numbers.
    pub(super) fn is_possible(&self, layout: Layout, width: usize) -> bool {
        let capacity = match layout {
            Layout::Stripe { .. } => u64::from(self.member_blocks) * width as u64,
            Layout::Mirror => u64::from(self.member_blocks),
        };
        let is_block = self.block_size.is_power_of_two() && (512..=65536).contains(&self.block_size);
        let has_slots = OPEN_MIN <= self.max_open && self.max_open <= self.max_active;
        let is_address = capacity < u64::from(Address::BLOCKS_MAX) || layout == Layout::Mirror;
        is_block && has_slots && is_address && self.zones > 0 && self.member_blocks > 0 && self.max_append > 0
    }

    /// Why a device has less than the set uses; `None` if it has enough.
    pub(super) fn missing_in(&self, device: &Geometry) -> Option<String> {
        let wanted = [
            ("zones", self.zones.saturating_add(LABEL_ZONES), device.sequential()),
            ("blocks in a zone", self.member_blocks, device.zone_blocks),
            ("open zones", self.max_open.saturating_add(1), device.max_open),
            ("active zones", self.max_active.saturating_add(1), device.max_active),
        ];
        if device.block_size != self.block_size {
            return Some(format!("blocks of {} bytes instead of {}", device.block_size, self.block_size));
        }
        let missing = wanted.into_iter().find(|(_, wanted, has)| has < wanted);
        missing.map(|(what, wanted, has)| format!("{has} {what} instead of {wanted}"))
    }

    /// The least that a member needs.
    pub(super) fn member_geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size,
            zones: self.zones.saturating_add(LABEL_ZONES),
            zone_blocks: self.member_blocks,
            max_open: self.max_open.saturating_add(1),
            max_active: self.max_active.saturating_add(1),
            max_append: self.max_append,
            conventional: 0,
            seek_bytes: Geometry::SEEK_BYTES,
        }
    }

    /// The geometry of the set. It does not depend on which members are present, except for what a command may
    /// transfer at once.
    pub(super) fn geometry(&self, layout: Layout, width: usize, present: &[&Geometry]) -> Geometry {
        let appends = present.iter().map(|one| one.max_append);
        Geometry {
            block_size: self.block_size,
            zones: self.zones,
            zone_blocks: layout.shape(width, self.member_blocks).capacity(),
            max_open: self.max_open,
            max_active: self.max_active,
            max_append: appends.min().unwrap_or(self.max_append).min(self.max_append),
            conventional: 0,
            seek_bytes: present.iter().map(|one| one.seek_bytes).max().unwrap_or(Geometry::SEEK_BYTES),
        }
    }
}

impl Shape {
    /// How many blocks the superzone has.
    pub(super) fn capacity(&self) -> Blocks {
        match self.layout {
            Layout::Stripe { .. } if self.member_blocks > 0 => 1 + self.width * (self.member_blocks - 1),
            _ => self.member_blocks,
        }
    }

    /// How many blocks of each member zone are used.
    pub(super) fn member_blocks(&self) -> Blocks {
        self.member_blocks
    }

    /// How many members have this block.
    pub(super) fn copies(&self, block: Blocks) -> u32 {
        if self.layout == Layout::Mirror || block == 0 { self.width } else { 1 }
    }

    /// The pointer of a member when the superzone has this one.
    pub(super) fn member_pointer(&self, member: usize, pointer: Blocks) -> Blocks {
        let Some((row, chunk)) = self.row(pointer.saturating_sub(1)) else { return pointer };
        if pointer == 0 {
            return 0;
        }
        let within = pointer - 1 - row * self.width;
        1 + row + within.saturating_sub(member as u32 * chunk).min(chunk)
    }

    /// The smallest pointer of the superzone for which each member has at least the given one.
    pub(super) fn pointer_covering(&self, members: &[Blocks]) -> Blocks {
        let of = |(member, &pointer): (usize, &Blocks)| match (self.layout, pointer) {
            (Layout::Mirror, _) | (_, 0 | 1) => pointer,
            _ => self.block_on(member, pointer - 1) + 1,
        };
        members.iter().enumerate().map(of).max().unwrap_or(0)
    }

    /// The pieces of `blocks` blocks from `block` on, in order. Block 0 is taken from member 0.
    pub(super) fn pieces(&self, block: Blocks, blocks: Blocks) -> Vec<Piece> {
        let (mut pieces, mut at, end) = (Vec::new(), block, block + blocks);
        while at < end {
            let piece = self.piece(at, end - at);
            at += piece.blocks;
            pieces.push(piece);
        }
        pieces
    }

    fn piece(&self, block: Blocks, most: Blocks) -> Piece {
        let Some((row, chunk)) = self.row(block.saturating_sub(1)) else {
            return Piece { member: 0, at: block, blocks: most };
        };
        if block == 0 {
            return Piece { member: 0, at: 0, blocks: 1 };
        }
        let within = block - 1 - row * self.width;
        let (member, place) = (within / chunk, within % chunk);
        Piece { member: member as usize, at: 1 + row + place, blocks: most.min(chunk - place) }
    }

    /// The block of the superzone that is at this block of a member, which is not block 0.
    fn block_on(&self, member: usize, at: Blocks) -> Blocks {
        let Layout::Stripe { chunk } = self.layout else { return at };
        let row = (at - 1) / chunk * chunk;
        let chunk = chunk.min(self.member_blocks - 1 - row);
        1 + row * self.width + member as u32 * chunk + (at - 1 - row)
    }

    /// The row with this block, block 0 not counted: the first block of the row on each member, and the length of
    /// its chunks. `None` if there are no rows.
    fn row(&self, index: Blocks) -> Option<(Blocks, Blocks)> {
        let Layout::Stripe { chunk } = self.layout else { return None };
        let rows = self.member_blocks.saturating_sub(1);
        // In 64 bits: a row may be longer than the largest zone.
        let row = u64::from(index) / (u64::from(chunk) * u64::from(self.width)) * u64::from(chunk);
        let full = rows / chunk * chunk;
        let row = (row as Blocks).min(full);
        // Behind the last block there is no row; its pointer belongs to the row before.
        match rows - row {
            // Only block 0, and the pointer behind it.
            0 if rows == 0 => Some((0, 1)),
            0 => Some((row - chunk, chunk)),
            rest => Some((row, chunk.min(rest))),
        }
    }
}

#[cfg(test)]
mod tests;
