//! The nouns of the pool: rows, changes of rows, places of nodes.

use zone::{Address, Blocks, Life, Role, ZoneId, ZoneInfo};

/// Counters that the pool keeps for its user.
pub const COUNTERS: usize = 16;

/// The zones that a log may have: the first ones.
pub const LOG_ZONES_WITHIN: u32 = 4;

/// The first zones, which nothing but the log ever uses.
pub const LOG_ZONES: u32 = 3;

/// Blocks of the largest zone, at least.
pub const ZONE_BLOCKS_MIN: Blocks = 16;

/// Blocks of the smallest zone that is used. Devices leave out zones of less than half the others, and user data has little
/// space in fewer than half of the least number of blocks. A page has to fit behind the header.
pub fn smallest_of_use(page_blocks: Blocks) -> Blocks {
    (ZONE_BLOCKS_MIN / 2).max(1 + page_blocks)
}

/// The place of a transaction in the order of all; counts up from 1, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// The row of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneEntry {
    /// How often it was reset.
    pub life: Life,
    /// What it is used for.
    pub role: Role,
    /// Live blocks: of extents, or of whole pages.
    pub live: Blocks,
    /// Leaves whose newest delta records are here.
    pub deltas: u32,
    /// The user's bytes.
    pub user: [u8; 16],
}

/// A zone at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ZoneNow {
    /// Its row.
    pub entry: ZoneEntry,
    /// The device's report at the mount, or after the last reset.
    pub info: ZoneInfo,
    /// Whether a page fits.
    pub is_of_use: bool,
    /// Whether it is empty and can be opened for data or metadata, or is being opened.
    pub is_free: bool,
    /// Whether it is never written again in this mount.
    pub is_retired: bool,
}

impl ZoneEntry {
    /// Whether a checkpoint names anything in the zone.
    pub fn holds_anything(&self) -> bool {
        self.live > 0 || self.deltas > 0
    }
}

/// A change of the table that a transaction makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A zone begins a life in a role.
    Opened {
        /// The zone.
        zone: ZoneId,
        /// The life that begins.
        life: Life,
        /// What it is for.
        role: Role,
    },
    /// The live blocks of a data zone change.
    Live {
        /// The zone.
        zone: ZoneId,
        /// The life that this is about.
        life: Life,
        /// How many become live (or dead).
        change: i32,
    },
    /// The user's bytes of a zone.
    User {
        /// The zone.
        zone: ZoneId,
        /// The life that this is about.
        life: Life,
        /// The bytes.
        bytes: [u8; 16],
    },
    /// One of the user's counters changes.
    Counter {
        /// Which, below [`COUNTERS`].
        counter: u8,
        /// By how much.
        change: i64,
    },
}

/// Where a copy of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCopy {
    /// A whole page.
    Page(Address),
    /// Delta records in a page, and the base page to which they apply.
    Deltas {
        /// The delta records.
        at: Address,
        /// The base page.
        base: Address,
    },
}

impl NodeCopy {
    /// The whole page of the node.
    pub(crate) fn whole_page(self) -> Address {
        match self {
            NodeCopy::Page(page) => page,
            NodeCopy::Deltas { base, .. } => base,
        }
    }
}

/// What was reserved for a transaction before it began: space, for example.
pub trait Reserved: Send + Sync + std::fmt::Debug {
    /// The transaction takes effect. The pool calls this under its mutex, in the moment in which the changes of zones and
    /// counters take effect. So it takes only leaf locks of its own and never calls the pool.
    fn spend(&self);
}
