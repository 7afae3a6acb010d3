//! The metadata store: transactional ordered tables on zones that are only ever appended to.
//!
//! Keys and values are byte strings in numbered tables. A [`Tx`] changes many of them atomically, in one [`Group`] or
//! several. Nodes name each other by id, and the Metadata Allocation Table (MAT) has the address of each, so a changed
//! node changes nothing above it. Changes go to a journal at once and to nodes in memory. Checkpoints write the
//! changed nodes. The store also writes the Zone Information Table (ZIT) and opens zones by role.
//!
//! The promises:
//!
//! * I-TREE-1 Recovery restores the state after some prefix of the transactions. The prefix contains every
//!   transaction acknowledged as durable, over any number of crashes in a row.
//! * I-TREE-2 A node, chunk or record is used only after its checksum, volume, identity, life and LSN
//!   were verified. A decoder accepts any bytes without harm.
//! * I-TREE-3 Each node describes itself, so that the MAT can be rebuilt by scanning.
//!
//! The store owns no threads: [`Store::step`] does one piece of background work and returns whether there is more. It
//! knows nothing of inodes or data. `docs/design.md`, section 3, names the modules and their order.
#![forbid(unsafe_code)]

mod cache;
mod check;
mod checkpoint;
mod checkpoint_lock;
mod commit;
mod core;
pub mod decode;
mod delta;
mod epoch;
mod format;
mod headroom;
pub mod hostile;
mod inspect;
mod key_range;
mod limits;
mod log;
mod lookup;
mod mat;
mod metadata_gc;
mod metadata_share;
mod metadata_zone;
mod mkfs;
mod nodes;
mod page;
mod patch;
mod prefetch;
mod readahead;
mod record;
mod recover;
mod saving;
mod scan;
mod scrub;
mod store;
mod tables;
mod trees;
mod types;
mod volume;
mod weight;
mod zones;

pub use check::{CheckProgress, Finding, FindingKind, Visit};
pub use checkpoint::Client;
pub use format::KEY_MAX;
pub use headroom::GAIN_PAGES;
pub use inspect::{BatchContents, BatchView, NodeEntry, NodeView, PageView};
pub use key_range::{KeyRange, KeyRanges};
pub use mkfs::FormatOptions;
pub use patch::Patch;
pub use pool::{COUNTERS, LOG_ZONES, Lsn, Moment, Pool, Reserved, Sums, Usage, Uses, ZoneEntry, ZoneNow};
pub use recover::{Config, Recovery, Replay};
pub use scan::read_header;
pub use scrub::{NodeScrub, Scrubbed};
pub use store::{Store, StoreStats};
pub use trees::Growth;
pub use types::{
    Bytes, Draw, Entry, Group, Key, Label, Op, PREPAID, Reserve, Result, Step, StoreError, Table, Tx,
    VolumeInfo,
};
pub use zones::ZoneRef;

#[cfg(test)]
mod tests;
