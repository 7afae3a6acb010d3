//! The zone pool: which zone a role may have now, and when a zone is reset.
//!
//! The pool keeps a row for each zone (the Zone Information Table, ZIT) and what is known of zones only while the volume is
//! mounted: their usage, pending blocks, readers, and pages that running epochs name. It knows roles, lives, capacities and
//! counts of live blocks. It knows no node, no object and no byte on the device: `tree` encodes the rows.
//!
//! One mutex guards everything. Under it, no I/O is done, and only leaf locks are taken: those of reservations
//! ([`Reserved`]), and of a caller that looks at the whole table. All changes of a transaction, and the reservations that it spends, take effect under one
//! hold of this mutex. So a reader of the whole table ([`Moment`]) never sees half of a transaction.
//!
//! The rules for resets are I-ZONE-4 in `docs/design.md`, section 6. `docs/internals/space.md` has the diagram of the
//! states. The modules, from the bottom: `types`, then `rows`, `free`, `holds`, `victims`, `metadata`, `resets`, `sums` and
//! `shares` (a part of the table each, without locks), then `state` (their common changes), then `pool`.
#![forbid(unsafe_code)]

mod free;
mod holds;
mod metadata;
mod pool;
mod resets;
mod rows;
mod shares;
mod state;
mod sums;
mod types;
mod victims;

pub use metadata::MetadataZone;
pub use pool::{OwnedPool, Pool, Shape};
pub use rows::UserCounters;
pub use shares::{GC_MINIMUM, MetadataReserve};
pub use state::{Moment, Usage};
pub use sums::{Sums, Uses};
pub use types::{
    COUNTERS, Change, LOG_ZONES, LOG_ZONES_WITHIN, Lsn, NodeCopy, Reserved, ZONE_BLOCKS_MIN, ZoneEntry,
    ZoneNow, smallest_of_use,
};
