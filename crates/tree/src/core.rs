//! The state that all parts of the store share.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use pool::{Lsn, Moment, OwnedPool, Shape, ZoneEntry};
use rt::sync::RwLock;
use rt::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use zone::{Address, Device, Lease, Leases, Traffic, ZoneInfo};

use crate::checkpoint_lock::CheckpointLock;
use crate::delta::IN_PAGE_AT_LEAST;
use crate::format::{ZitEntry, entries_per_page};
use crate::limits::Limits;
use crate::log::Log;
use crate::mat::ChunkPlace;
use crate::metadata_share::MetadataShare;
use crate::nodes::Nodes;
use crate::status::Status;
use crate::trees::Trees;
use crate::types::{Bytes, Result, VolumeInfo};
use crate::weight::Dirty;
use crate::zones::Zones;

/// The user of the store. It supplies the bytes that checkpoints carry for it.
///
/// Called while a checkpoint is taken. An implementation takes only its own locks and never calls the store.
pub trait Client: Send + Sync {
    /// Bytes for the record of a checkpoint whose cut is at this transaction. They may cover transactions after the
    /// cut, but must cover all before it. All data appended before this call is durable before the record is. So are
    /// the tables as they are at the cut, so the bytes need not repeat what the tables contain.
    fn checkpoint_bytes(&self, cut: Lsn) -> Bytes;
}

/// Decides whether there is space for trees to grow.
pub trait Growth: Send + Sync {
    /// Whether there is space at this moment for the nodes that transactions have reserved and not made yet. Called
    /// under the lock of the zone table. An implementation takes only leaf locks and never calls the store.
    fn may_grow(&self, moment: &Moment<'_>, asked: u64) -> bool;
}

/// The state for checkpoints, writing nodes out, and GC. Its lock is the checkpoint lock.
pub(crate) struct Saving {
    /// The open metadata zone.
    pub(crate) lease: Option<Lease>,
    /// Checkpoints so far.
    pub(crate) number: u64,
    pub(crate) zit_chunks: Vec<ChunkPlace>,
    pub(crate) mat_directories: Vec<Address>,
    pub(crate) zit_directories: Vec<Address>,
    /// MAT chunks that the next checkpoint writes although nothing in them changed.
    pub(crate) move_mat_chunks: std::collections::BTreeSet<u64>,
    /// The same for directory pages.
    pub(crate) move_directories: bool,
    /// The life of each zone in which GC last moved its live blocks.
    pub(crate) last_gc: HashMap<zone::ZoneId, zone::Life>,
    /// GC has emptied a zone, and the next checkpoint frees it.
    pub(crate) has_emptied_zone: bool,
    /// The write rates of data and metadata.
    pub(crate) metadata_share: MetadataShare,
}

/// The state of the store.
pub(crate) struct Core {
    pub(crate) info: VolumeInfo,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) pool: Arc<OwnedPool>,
    pub(crate) log: Arc<Log>,
    pub(crate) status: Arc<Status>,
    pub(crate) zones: Arc<Zones>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) saving: CheckpointLock<Saving>,
    pub(crate) client: RwLock<Option<Arc<dyn Client>>>,
    pub(crate) growth: RwLock<Option<Weak<dyn Growth>>>,
    pub(crate) limits: Limits,
    pub(crate) count: Counters,
}

/// Counters since the mount.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) checkpoints: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) nodes_written: AtomicU64,
    pub(crate) deltas_written: AtomicU64,
    pub(crate) deltas_moved: AtomicU64,
    pub(crate) nodes_moved: AtomicU64,
    /// Nodes that the running epoch has made dirty and that are not written.
    pub(crate) dirty: Dirty,
    /// Pages appended since the last cut.
    pub(crate) pages_since_cut: AtomicUsize,
    /// Bytes of data that are named by records since the last flush.
    pub(crate) unflushed_data: AtomicU64,
    /// How much recent checkpoints have written, in thousandths of the pages that they had to write.
    pub(crate) written_permille: AtomicU64,
    /// Nodes that transactions have reserved and may not have made yet. Increased under the lock of the zone table.
    pub(crate) asked: AtomicU64,
    /// With this number of blocks for metadata no thread needs to run GC before the next checkpoint, because GC would
    /// gain little. 0: unknown.
    pub(crate) headroom_enough: AtomicU64,
    /// Free zones that metadata lacks, beside its reserve, so that GC never moves many blocks for a small gain. As of
    /// the last checkpoint.
    pub(crate) zones_lacking: AtomicU32,
    /// Free zones did not make up for the lacking ones at the last checkpoint. Then changed leaves are written whole,
    /// because delta records beside a base page take some of the space that is lacking.
    pub(crate) is_short_of_zones: AtomicBool,
    /// With this number of blocks for metadata, beside those for dirty pages, a zone of the reserve may be missing
    /// until background GC has collected one. As of the last checkpoint. 0: background GC has no victim.
    pub(crate) headroom_to_wait: AtomicU64,
    /// Pages that the running checkpoint has still to write, at most.
    pub(crate) being_saved: AtomicUsize,
    /// GC is emptying or has emptied a zone, which only a checkpoint frees.
    pub(crate) gc_awaits_checkpoint: AtomicBool,
    /// Blocks that may be dead in metadata zones before GC begins, as of the last checkpoint.
    pub(crate) dead_blocks_max: AtomicU64,
}

/// A store with these tables in memory.
pub(crate) fn assemble(
    device: Arc<dyn Device>,
    info: VolumeInfo,
    (cache_bytes, read_only): (u64, bool),
    entries: Vec<ZoneEntry>,
    report: &[ZoneInfo],
    next_node: u64,
) -> Result<Arc<Core>> {
    let page_size = info.page_size as usize;
    let (limits, pages) = Limits::new(device.geometry(), page_size, cache_bytes);
    let kept = limits.metadata_reserve_of(device.geometry(), page_size);
    let shape = Shape {
        rows_per_chunk: entries_per_page(page_size, size_of::<ZitEntry>()) as u64,
        page_blocks: info.page_size / device.geometry().block_size,
        deltas_per_page: IN_PAGE_AT_LEAST,
        sequential: device.geometry().sequential(),
    };
    let pool = Arc::new(OwnedPool::new(entries, report, shape, kept));
    let leases = Leases::new(Arc::clone(&device), info.fs_id, Arc::new(Traffic::default()));
    let saving = Saving {
        lease: None,
        number: 0,
        zit_chunks: Vec::new(),
        mat_directories: Vec::new(),
        zit_directories: Vec::new(),
        move_mat_chunks: BTreeSet::new(),
        move_directories: false,
        last_gc: HashMap::new(),
        has_emptied_zone: false,
        metadata_share: MetadataShare::default(),
    };
    let log = Arc::new(Log::new(info.fs_id, Arc::clone(&leases), Arc::clone(&pool)));
    let status = Arc::new(Status::new(read_only));
    let zones = Arc::new(Zones::new(info.fs_id, &leases, &pool, &log, &status));
    let nodes = Arc::new(Nodes::new(&info, pages, next_node, &pool, &log, &status)?);
    let trees = Arc::new(Trees::new(&info, &pool, &nodes));
    Ok(Arc::new(Core {
        status,
        log,
        zones,
        nodes,
        trees,
        saving: CheckpointLock::new(saving),
        client: RwLock::new(None),
        growth: RwLock::new(None),
        count: Counters::default(),
        info,
        device,
        leases,
        pool,
        limits,
    }))
}
