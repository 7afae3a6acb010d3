//! Numbered objects, their data and its placement on zones.
//!
//! An **object** is a numbered byte address space. Its meaning is up to the user of the crate. Its map is a table of
//! the metadata store: (object, block) → **extent**, a run of blocks in one zone with a checksum for each block. Small
//! writes are **inline blocks**, values of another table, until they fill blocks of a zone.
//!
//! ```text
//! write ── reserve ── place ── append ──┐            budget  place  append
//!                                       ▼
//!                          insert: one transaction   extents/write  map
//!                                       │
//!   read ── look up, hold ── read, verify            read
//!                                       │
//!         reverse map, footer ── GC ── commit again  reverse  gc
//! ```
//!
//! Each floor uses only those above it in this table:
//!
//! | type | what it owns |
//! |---|---|
//! | `ObjectMaps` (`maps`, `read`, `refcount`) | the locks of the object maps; reading; shared blocks |
//! | `Budget` (`budget`) | the count of space, and reservations |
//! | `Placer` (`place`, `recover`) | the open zones of user writes; opening and closing zones |
//! | `Appender` (`append`) | appends to an open zone |
//! | `Headroom` (`headroom`) | what can be written before a zone is needed |
//! | `DataMover` (`gc/mover`, `gc/reading`) | moving the live blocks of a zone |
//! | `Collector` (`gc/collector`, `gc/debt`, `gc/manual`) | victims, and the loop of GC |
//! | `ZoneSupply` (`supply`), `Throttle` (`throttle`) | zones for writers without one; the wait of writers for GC |
//! | `Extents` (`extents`) | writing, preallocation, removal, writeback of inline blocks, background work |
//!
//! `check`, `check_references`, `scrub`, `inspect` and `defrag` are functions beside them, which nothing here uses.
//!
//! * I-EXT-1 Each stored extent has exactly one owner key.
//! * I-EXT-2 The ZIT's live counts are a function of the object map.
//! * I-EXT-3 A read never returns bytes that are not the object's: not stale, not another's, not unverified.
//!
//! # Locks
//! In this order: GC; opening a zone; map locks (shards, in their order); the locks of the store; leaf locks:
//! placement, each zone's reverse map, counters. I/O happens under the first two and under no leaf lock. The store may
//! call [`tree::Client`] at any time, which takes leaf locks only.
//!
//! # What this does not do
//! It has no names, sizes or permissions. It owns no thread: call [`Extents::step`]. It never resets a zone: it reports
//! dead blocks to the store, which knows what recovery may still need.
#![forbid(unsafe_code)]

mod amortized;
mod append;
mod appended;
mod budget;
mod charges;
mod check;
mod check_references;
mod copies;
mod deferred_appends;
mod defrag;
mod extents;
mod finding;
pub mod format;
mod gc;
mod headroom;
pub mod hostile;
mod inline_counts;
mod inspect;
mod learn;
mod lifetime;
mod map;
mod maps;
mod open_zone;
mod place;
mod read;
mod readahead;
mod recover;
mod refcount;
mod reservations;
mod reserve;
mod retry_limit;
mod reverse;
mod scrub;
mod supply;
mod throttle;
mod tx_limits;
mod types;

pub use budget::{Budget, Space};
pub use check::{check, check_data, check_with_progress, lost, repair_counts};
pub use check_references::{SharedBlocks, check_references};
pub use defrag::{Defragmented, Layout, defragment, layout, rewrite};
pub use extents::{BlockRuns, DelayedSpace, Extents, WriteCall, Written};
pub use finding::{Finding, FindingKind};
pub use gc::{Collector, GcStats, Outlook, free_zones_max};
pub use inspect::{MapRow, view_object};
pub use learn::{FileClass, LEARNED, Learned, StreamStats, Switches, stream_names};
pub use map::blocks_in;
pub use maps::{MapLock, ObjectMaps};
pub use readahead::{ReadPosition, Readahead, ReadaheadCounts};
pub use recover::Recovering;
pub use reserve::{check_reserve, least_reserve};
pub use reverse::{ReverseMaps, read_summary};
pub use scrub::{DamagedCopy, DataScrub, Scrubbed, is_intact, scrub_step};
pub use throttle::{Pressure, Throttle};
pub use types::{ExtentError, Hint, Lifetime, Object, Result};
