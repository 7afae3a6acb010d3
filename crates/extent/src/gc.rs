//! Garbage collection (GC) of data: moving live blocks out of zones that are mostly dead.
//!
//! Victims are closed data zones without pending blocks: first those without a footer and read-only ones, then the best by
//! learned lifetimes (`learn.rs`) or, for manual GC and a writer without a zone, those with the fewest live blocks. The
//! entries of their reverse maps are compared with the object map. Live extents are sorted by object and
//! offset, read, verified, appended to the target, and committed in pieces. The target is an open zone that takes
//! nothing else. During the I/O, GC holds only its own lock, which no reader and no fsync needs. So each commit
//! re-checks under the object's map lock, block by block, that the map still names the block that was read
//! (`break-gc-recheck` removes this).
//!
//! Checksums are copied and never recomputed: a block that was damaged before the move is damaged after it. A block
//! that two reads cannot deliver stays where it is, and its zone becomes *unreadable*: it comes after all other
//! victims, until a writer finds no zone at all, or GC has no zone to continue with. Then GC reads the block once more.
//! If it still cannot be read, it becomes a lost extent. So it occupies its zone no longer than the zone is not needed.
//! Blocks of an offline zone are lost at once.
//!
//! GC needs one lease and, beyond the headroom in its target, one free zone: a single victim has fewer live blocks than
//! a zone takes, so they fit there, and its reset returns a free zone. Several victims are taken together only if there
//! is headroom for all of them.
//!
//! While zones are plentiful, only zones without a footer are victims. A victim whose moves have failed waits until
//! zones are short, and then comes after all others.
//!
//! A zone may still count live blocks after all blocks that its reverse map and the object map name have been moved.
//! That is a finding, and the zone is *stuck*: GC leaves it alone (I-EXT-2).

mod chunk;
mod collector;
pub(crate) mod debt;
mod manual;
mod mover;
mod reading;
mod state;

pub(crate) use chunk::{Chunk, Move};
pub use collector::Collector;
pub use manual::{Outlook, free_zones_max};
pub(crate) use mover::DataMover;
pub(crate) use reading::Readability;
pub use state::GcStats;
pub(crate) use state::{GcState, Goal, Progress};

#[cfg(test)]
pub(crate) mod tests;
