//! Numbered objects, their data and its placement on zones.
//!
//! An **object** is a numbered byte address space. Its meaning is up to the user of the crate. Its map is a table of
//! the metadata store: (object, block) → **extent**, a run of blocks in one zone with a checksum for each block. Small
//! writes are **inline blocks**, values of another table, until they fill blocks of a zone.
//!
//! ```text
//! write ── reserve ── place ── append ──┐            space.rs  place.rs  write.rs
//!                                       ▼
//!                          insert: one transaction   write.rs  map.rs
//!                                       │
//!   read ── look up, hold ── read, verify            read.rs
//!                                       │
//!         reverse map, footer ── GC ── commit again  reverse.rs  gc.rs
//! ```
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
mod check;
mod debt;
mod deferred_appends;
mod defrag;
mod finding;
mod forecast;
pub mod format;
mod gc;
pub mod hostile;
mod inline_blocks;
mod inspect;
mod learn;
mod lifetime;
mod manual_gc;
mod map;
mod place;
mod read;
mod recover;
mod refcount;
mod reserve;
mod retry_limit;
mod reverse;
mod scrub;
mod space;
mod throttle;
mod tx_limits;
mod write;

use std::sync::Arc;

use rt::order::{LockOrder, Ordered};
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Mutex, RwLock};
use tree::{Client, Step, Store, StoreError};
use zone::{Blocks, Device, ZoneId, ZoneState};

use crate::amortized::Amortized;
use crate::deferred_appends::DeferredAppends;
use crate::forecast::EpochWrites;
use crate::format::Packing;
use crate::gc::{GcState, Goal, Progress};
use crate::inline_blocks::InlineCounts;
use crate::learn::Learned;
use crate::place::Placement;
use crate::reverse::ReverseMaps;
use crate::space::Reservations;
use crate::throttle::Throttle;

pub use defrag::{Defragmented, Layout};
pub use finding::{Finding, FindingKind};
pub use gc::GcStats;
pub use inspect::MapRow;
pub use learn::{FileClass, LEARNED, StreamStats, Switches, stream_names};
pub use manual_gc::Outlook;
pub use map::blocks_in;
pub use recover::Recovering;
pub use refcount::SharedBlocks;
pub use reserve::{check_reserve, least_reserve};
pub use reverse::read_summary;
pub use scrub::{DataScrub, Scrubbed};
pub use space::Space;
pub use throttle::Pressure;
pub use write::{MapLock, WriteCall, Written};

/// Shards of the map locks.
const MAP_LOCKS: usize = 256;

/// An object: a numbered byte address space; the file system uses the inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub u64);

/// Why data could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExtentError {
    /// There is no space, even after all dead blocks are reclaimed.
    #[error("no space left")]
    NoSpace,
    /// A block cannot be read or has wrong contents. Nothing else is affected.
    #[error("object {object} block {block} cannot be read: {why}")]
    Lost {
        /// The object of the block.
        object: u64,
        /// The first such block of the range.
        block: u64,
        /// What happened.
        why: String,
    },
    /// The store or the device failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ExtentError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSpace => ExtentError::NoSpace,
            error => ExtentError::Store(error),
        }
    }
}

/// The result of an operation on objects.
pub type Result<T> = std::result::Result<T, ExtentError>;

/// The expected lifetime of data. Data that is written together should die together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Seconds to minutes.
    Short,
    /// Hours.
    Medium,
    /// Days to months.
    Long,
    /// Forever.
    Extreme,
}

/// The properties of a write that placement uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The lifetime that the user has stated.
    pub lifetime: Lifetime,
    /// The file class. Without a stated lifetime, the learned lifetime of the class counts.
    pub file_class: FileClass,
}

impl Hint {
    /// With a lifetime that the user has stated.
    pub fn of_lifetime(lifetime: Lifetime) -> Hint {
        Hint { lifetime, file_class: FileClass::default() }
    }
}

/// All objects of a volume.
pub struct Extents {
    store: Arc<Store>,
    device: Arc<dyn Device>,
    packing: Packing,
    /// The most blocks of one append and one extent.
    piece_blocks_max: Blocks,
    /// The smallest payload of the zones that could be written at the mount.
    payload_min: Blocks,
    /// Zones that were read-only at the mount.
    read_only_zones: Vec<ZoneId>,
    /// Each guards the maps of the objects of its shard.
    maps: Vec<Ordered<RwLock<()>>>,
    placement: Placement,
    reverse: Arc<ReverseMaps>,
    reservations: Arc<Reservations>,
    inline_counts: InlineCounts,
    throttle: Throttle,
    epoch_writes: EpochWrites,
    learned: Learned,
    /// Spreads counts of space over openings of zones.
    openings: Amortized,
    gc: Ordered<Mutex<GcState>>,
    /// Zones may need a reset, and this has not been reported.
    may_need_resets: AtomicBool,
    deferred: DeferredAppends,
}

impl Extents {
    /// Takes over the state that recovery found, continues the open zones, and becomes the store's client. Call it
    /// once, right after `Store::open`. It appends nothing.
    pub fn open(store: Arc<Store>, recovering: Recovering) -> Result<Arc<Extents>> {
        let reverse = ReverseMaps::new();
        store.set_client(Arc::clone(&reverse) as Arc<dyn Client>);
        let device = Arc::clone(store.device());
        let packing = Packing { block_size: device.geometry().block_size };
        let extents = Extents {
            packing,
            payload_min: payload_min(&store, packing),
            piece_blocks_max: piece_blocks_max(&store),
            read_only_zones: read_only_zones(&store),
            maps: (0..MAP_LOCKS).map(|_| Ordered::rwlock(LockOrder::ObjectMap, ())).collect(),
            placement: Placement::new(payload_min(&store, packing)),
            reverse,
            reservations: Arc::default(),
            inline_counts: InlineCounts::default(),
            throttle: Throttle::default(),
            epoch_writes: EpochWrites::default(),
            learned: Learned::new(device.geometry().zones, device.geometry().zone_blocks),
            openings: Amortized::new(device.geometry().zones),
            gc: Ordered::mutex(LockOrder::Gc, GcState::default()),
            may_need_resets: AtomicBool::new(false),
            deferred: DeferredAppends::default(),
            store,
            device,
        };
        extents.load_ages();
        extents.continue_zones(recovering)?;
        extents.placement.set_open_max(extents.count_open_wanted());
        let extents = Arc::new(extents);
        let growth = Arc::downgrade(&extents);
        extents.store.set_growth(growth);
        Ok(extents)
    }

    /// The metadata store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.packing.block_size
    }

    /// The seek cost of the device in bytes: see [`zone::Geometry::seek_bytes`].
    pub fn seek_bytes(&self) -> u32 {
        self.device.geometry().seek_bytes
    }

    /// Does one piece of any background work.
    pub fn step(&self) -> Result<Step> {
        let reset = self.step_resets()?;
        Ok(if self.step_space()? == Step::Worked { Step::Worked } else { reset })
    }

    /// Resets zones without live blocks, so that writers need not wait for them. While there is enough headroom, zones
    /// that wait for another event are left alone.
    pub fn step_resets(&self) -> Result<Step> {
        Ok(if self.store.reclaim(self.are_resets_urgent())? > 0 { Step::Worked } else { Step::Idle })
    }

    /// Whether zones that may need a reset were found since the last call.
    pub fn take_may_need_resets(&self) -> bool {
        self.may_need_resets.load(Ordering::Relaxed) && self.may_need_resets.swap(false, Ordering::Relaxed)
    }

    /// Whether the background task has to be woken because it has work now. It is reported once.
    pub fn take_call(&self) -> bool {
        self.throttle.take_call()
    }

    /// Does one piece of the other background work: GC in step with user writes, and writeback of inline blocks.
    pub fn step_space(&self) -> Result<Step> {
        self.load_learned();
        self.reverse.prune(&self.store);
        let has_collected = self.collect_in_background()?;
        if has_collected && self.throttle.charged() > 0 {
            return Ok(Step::Worked);
        }
        let has_live_blocks = |&zone: &ZoneId| {
            let entry = self.store.pool().entry(zone);
            entry.role.holds_data() && entry.live > 0
        };
        if (self.read_only_zones.iter().any(has_live_blocks) || !self.reverse.without_footer().is_empty())
            && let Some(mut gc) = self.gc.try_lock()
            && self.collect(&mut gc, Goal::Repair)? != Progress::Nothing
        {
            return Ok(Step::Worked);
        }
        let worked = self.write_back()? || self.save_learned(false)? || has_collected;
        Ok(if worked { Step::Worked } else { Step::Idle })
    }

    /// The lock of an object's map.
    fn map_of(&self, object: Object) -> &Ordered<RwLock<()>> {
        &self.maps[self.shard_of(object)]
    }

    /// The shard of an object.
    fn shard_of(&self, object: Object) -> usize {
        let hash = object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 56) as usize % MAP_LOCKS
    }
}

/// The smallest payload of the zones that can be written.
fn payload_min(store: &Store, packing: Packing) -> Blocks {
    let zones = (0..store.pool().count()).map(ZoneId).filter(|&zone| store.pool().is_of_use(zone));
    let reported = zones.map(|zone| store.pool().info(zone));
    let writable = reported.filter(|info| !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline));
    writable.map(|info| packing.payload(info.capacity)).min().unwrap_or(0)
}

/// Read-only zones. Their live blocks are moved before they go offline.
fn read_only_zones(store: &Store) -> Vec<ZoneId> {
    let zones = (0..store.pool().count()).map(ZoneId);
    zones.filter(|&zone| store.pool().info(zone).state == ZoneState::ReadOnly).collect()
}

/// The most blocks of an extent: 256, a mebibyte, the largest append, and the number of checksums that fit in a value.
fn piece_blocks_max(store: &Store) -> Blocks {
    let geometry = store.device().geometry();
    let by_bytes = format::EXTENT_BYTES_MAX / u64::from(geometry.block_size);
    let by_value = (store.value_max() - size_of::<format::ExtentRecord>()) / size_of::<u32>();
    let blocks =
        u64::from(format::EXTENT_BLOCKS_MAX.min(geometry.max_append)).min(by_bytes).min(by_value as u64);
    assert!(blocks > 0, "a value holds at least one checksum");
    blocks as Blocks
}
