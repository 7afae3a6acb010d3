//! The metadata store: transactional ordered tables on zones that are only ever appended to.
//!
//! Keys and values are byte strings in numbered tables; a [`Tx`] changes many of them, in one
//! [`Group`] or several, together or not at all. Nodes name each other by id, and the Metadata
//! Allocation Table (MAT) says where each lies, so a changed node changes nothing above it. Changes
//! go to a journal at once and to nodes in memory; checkpoints write what changed. The store also
//! keeps the Zone Information Table (ZIT) and hands out zones by role.
//!
//! The promises:
//!
//! * I-TREE-1 What is recovered is the state after some prefix of the transactions, and the prefix
//!   contains every transaction acknowledged as durable, over any number of crashes in a row.
//! * I-TREE-2 A node, chunk or record is used only after its checksum, volume, identity, life and LSN
//!   were verified; any bytes may be offered to a decoder.
//! * I-TREE-3 Each node describes itself, so that the MAT can be rebuilt by scanning.
//!
//! It owns no threads: [`Store::step`] does one piece of background work and says whether there is
//! more. It knows nothing of inodes or data. How the pieces fit is in `docs/design.md`; from the bottom:
//! `format` and `record` (bytes), `page` (a node's inside), `zones` (the ZIT), `mat`, `cache`, `log`
//! and `scan` (the journal's two sides), `lookup`, `ahead`, `commit`, `epoch`, `checkpoint`, `reclaim`, `recover`, `check`, `inspect`.
#![forbid(unsafe_code)]

mod ahead;
mod balance;
mod cache;
mod check;
mod checkpoint;
mod commit;
mod core;
pub mod decode;
mod delta;
mod epoch;
mod follow;
mod format;
pub mod hostile;
mod inspect;
mod key_range;
mod log;
mod lookup;
mod mat;
mod memory;
mod mkfs;
mod page;
mod reclaim;
mod record;
mod recover;
mod scan;
mod scrub;
mod store;
mod turn;
mod types;

pub use check::{Finding, FindingKind, Told, Visit};
pub use core::{Client, Growth, VolumeInfo};
pub use format::KEY_MAX;
pub use inspect::{BatchContents, BatchView, NodeEntry, NodeView, PageView};
pub use key_range::{KeyRange, KeyRanges};
pub use lookup::ZoneRef;
pub use mkfs::FormatOptions;
pub use pool::{COUNTERS, LOG_ZONES, Lsn, Moment, Pool, Reserved, Sums, Usage, Uses, ZoneEntry, ZoneNow};
pub use reclaim::GAIN_PAGES;
pub use recover::{Config, Recovery, Replay};
pub use scan::read_header;
pub use scrub::{NodeScrub, Scrubbed};
pub use store::{Store, StoreStats};
pub use types::{Bytes, Draw, Entry, Group, Op, PREPAID, Reserve, Result, Step, StoreError, Table, Tx};

#[cfg(test)]
mod tests;
