//! Damage that the checker or a scrub has found.

use std::fmt;
use std::ops::Range;

use crate::Object;

/// The kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A key or value of the object map cannot be decoded.
    Record,
    /// Two extents of one object have a block in common, or a block is an inline block as well.
    Overlap,
    /// An extent lies outside of its zone, or in a zone of another life or role.
    Place,
    /// Two extents name the same block of a zone.
    Shared,
    /// The number of live blocks in the ZIT is not the number of blocks of extents in the zone.
    LiveCount,
    /// The counter of unwritten blocks is not the number of blocks of unwritten extents.
    Unwritten,
    /// A reference to blocks that their owner does not have.
    Reference,
    /// Shared blocks without a reference.
    Unreferenced,
    /// A reference count is not the number of references.
    Refcount,
    /// A block cannot be read or has a wrong checksum. Only a scrub finds this.
    Data,
    /// A block could not be read when GC moved it. It is lost.
    Lost,
}

impl FindingKind {
    /// Whether this is a wrong count. The object map has the right one.
    pub fn is_count(self) -> bool {
        matches!(self, FindingKind::LiveCount | FindingKind::Unwritten)
    }
}

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of damage.
    pub kind: FindingKind,
    /// A description of the place.
    pub what: String,
    /// The object, and its damaged blocks.
    pub of: Option<(Object, Range<u64>)>,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, of: Option<(Object, Range<u64>)>, what: String) -> Finding {
        Finding { kind, what, of }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
