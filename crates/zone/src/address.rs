//! Where a block is: zone, block, and the low bits of the zone's life.

use std::fmt;

/// The number of a zone in its volume. At most 2^24 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u32);

/// How often a zone was reset. Counts up; an address contains its 12 low bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u32);

impl Life {
    /// The life that begins at the next reset.
    pub fn next(self) -> Life {
        Life(self.0.wrapping_add(1))
    }

    /// The bits that an address contains.
    pub fn low_bits(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

/// A number of logical blocks.
pub type Blocks = u32;

/// The place of a block on the volume, as it is stored: zone (24 bits), block within the zone (28
/// bits), low bits of the zone's life (12 bits). Zero is no address: block 0 of a zone is its header.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// The address that refers to no block.
    pub const NONE: Address = Address(0);
    /// The largest number of zones that can be addressed.
    pub const ZONES_MAX: u32 = (1 << 24) - 1;
    /// The largest number of blocks of one zone that can be addressed.
    pub const BLOCKS_MAX: Blocks = 1 << 28;

    /// The address of `block` in `zone` during `life`.
    pub fn new(zone: ZoneId, block: Blocks, life: Life) -> Self {
        assert!(
            zone.0 <= Self::ZONES_MAX && block < Self::BLOCKS_MAX,
            "{zone:?} block {block} has no address"
        );
        Address(u64::from(zone.0) << 40 | u64::from(block) << 12 | u64::from(life.low_bits()))
    }

    /// The address with these stored bits; any bits are an address.
    pub fn from_bits(bits: u64) -> Self {
        Address(bits)
    }

    /// The bits to store.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether this refers to no block.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The zone.
    pub fn zone(self) -> ZoneId {
        ZoneId((self.0 >> 40) as u32)
    }

    /// The block within the zone.
    pub fn block(self) -> Blocks {
        (self.0 >> 12) as u32 & (Self::BLOCKS_MAX - 1)
    }

    /// The low bits of the zone's life when this was written.
    pub fn life_low_bits(self) -> u16 {
        (self.0 & 0xfff) as u16
    }

    /// Whether this was written in `life`, as far as 12 bits can distinguish lives.
    pub fn is_of(self, life: Life) -> bool {
        self.life_low_bits() == life.low_bits()
    }

    /// The address `blocks` behind this one in the same zone.
    pub fn offset(self, blocks: Blocks) -> Self {
        assert!(self.block() + blocks < Self::BLOCKS_MAX, "{self:?} + {blocks} leaves its zone");
        Address(self.0 + (u64::from(blocks) << 12))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}~{}", self.zone().0, self.block(), self.life_low_bits())
    }
}
