//! The state that all parts of the store share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use pool::{Lsn, Moment, OwnedPool};
use rt::order::Ordered;
use rt::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use rt::sync::{Mutex, RwLock};
use zone::{Address, Device, FsId, Lease, Leases, PageBuffer, PageReservation, Pages};

use crate::cache::{Cache, Node, UnusedPages};
use crate::checkpoint_lock::CheckpointLock;
use crate::epoch::Limits;
use crate::log::Log;
use crate::mat::{ChunkPlace, Mat};
use crate::metadata_share::MetadataShare;
use crate::readahead::Readahead;
use crate::types::{Bytes, Group, NodeId, Reserve, Result, StoreError};
use crate::weight::Dirty;

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

/// Properties that `mkfs` decided and that never change.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// The volume's identity.
    pub fs_id: FsId,
    /// Its label.
    pub label: String,
    /// Shards of the key space.
    pub groups: u16,
    /// Bytes of a node.
    pub page_size: u32,
    /// When it was made, in nanoseconds since 1970.
    pub created_ns: i64,
    /// Its incompatible features ([`zone::format::FEATURES`]).
    pub features: u64,
    /// The space that the store's user reserves and data cannot take.
    pub reserve: Reserve,
    /// Keys the hashes of names.
    pub secret: [u8; 16],
}

/// One tree: its nodes that changed since the last cut and are not written. They are written in the order of their
/// ids, so the same run writes the same device.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) dirty: BTreeMap<NodeId, Arc<Node>>,
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
    pub(crate) log: Log,
    pub(crate) mat: Mat,
    pub(crate) cache: Cache,
    /// Memory for pages.
    pub(crate) pages: Arc<Pages>,
    /// Pages reserved for the holder of `saving`: a checkpoint cannot stop because memory is short.
    pub(crate) _pages_to_save: PageReservation,
    pub(crate) unused_pages: UnusedPages,
    pub(crate) chunks: ChunkCache,
    pub(crate) readahead: Readahead,
    pub(crate) groups: Vec<Ordered<RwLock<Tree>>>,
    pub(crate) saving: CheckpointLock<Saving>,
    pub(crate) client: RwLock<Option<Arc<dyn Client>>>,
    pub(crate) growth: RwLock<Option<Weak<dyn Growth>>>,
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) shutdown_reason: Mutex<Option<Arc<str>>>,
    pub(crate) is_shut_down: AtomicBool,
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
    /// Nodes that were read, on demand or ahead.
    pub(crate) node_reads: AtomicU64,
    /// How much recent checkpoints have written, in thousandths of the pages that they had to write.
    pub(crate) written_permille: AtomicU64,
    /// Nodes of all trees.
    pub(crate) nodes: AtomicI64,
    /// Nodes of all trees that are marked as prepaid. Changed under the lock of a group.
    pub(crate) prepaid: AtomicI64,
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

impl VolumeInfo {
    /// The first id of a node that is not a root.
    pub(crate) fn first_node(&self) -> u64 {
        u64::from(self.groups) + 1
    }
}

impl Core {
    pub(crate) fn page_size(&self) -> usize {
        self.info.page_size as usize
    }

    /// The root of a group's tree, which is always the same node.
    pub(crate) fn root(&self, group: Group) -> NodeId {
        NodeId(u64::from(group.0) + 1)
    }

    /// An error if the volume is read-only or shut down.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only {
            return Err(StoreError::ReadOnly);
        }
        if self.is_shut_down.load(Ordering::Acquire)
            && let Some(why) = self.shutdown_reason.lock().clone()
        {
            return Err(StoreError::ShutDown(why));
        }
        Ok(())
    }

    /// Shuts the volume down: no changes until the next mount. The first reason is kept.
    pub(crate) fn shut_down(&self, why: &str) {
        let mut shutdown_reason = self.shutdown_reason.lock();
        if shutdown_reason.is_none() {
            tracing::error!(why, "the volume is shut down: read-only until it is mounted again");
            *shutdown_reason = Some(Arc::from(why));
            self.is_shut_down.store(true, Ordering::Release);
        }
    }

    /// Returns the result. An unexpected error shuts the volume down.
    pub(crate) fn shut_down_on_error<T>(&self, what: &str, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            StoreError::NoSpace | StoreError::NoMemory(_) | StoreError::ReadOnly => error,
            StoreError::ShutDown(why) => {
                self.shut_down(&why);
                StoreError::ShutDown(why)
            }
            error => {
                self.shut_down(&format!("{what}: {error}"));
                error
            }
        })
    }
}

/// MAT chunks in memory. The number is bounded, except for chunks in use.
pub(crate) struct ChunkCache {
    limit: usize,
    chunks: Mutex<ChunkMap>,
}

#[derive(Default)]
struct ChunkMap {
    map: HashMap<u64, CachedChunk>,
    now: u64,
}

struct CachedChunk {
    address: Address,
    bytes: Arc<PageBuffer>,
    used: u64,
}

impl ChunkCache {
    pub(crate) fn new(limit: usize) -> Self {
        ChunkCache { limit, chunks: Mutex::new(ChunkMap::default()) }
    }

    pub(crate) fn pages(&self) -> usize {
        self.chunks.lock().map.len()
    }

    /// Drops the chunks that are not in use. Returns whether there were any.
    pub(crate) fn shrink(&self) -> bool {
        let map = &mut self.chunks.lock().map;
        let before = map.len();
        map.retain(|_, chunk| Arc::strong_count(&chunk.bytes) > 1);
        map.len() < before
    }

    /// The chunk as it is at `address`.
    pub(crate) fn get(&self, number: u64, address: Address) -> Option<Arc<PageBuffer>> {
        let mut chunks = self.chunks.lock();
        chunks.now += 1;
        let now = chunks.now;
        let chunk = chunks.map.get_mut(&number).filter(|chunk| chunk.address == address)?;
        chunk.used = now;
        Some(Arc::clone(&chunk.bytes))
    }

    pub(crate) fn put(&self, number: u64, address: Address, bytes: Arc<PageBuffer>) {
        let mut chunks = self.chunks.lock();
        chunks.now += 1;
        let used = chunks.now;
        chunks.map.insert(number, CachedChunk { address, bytes, used });
        while chunks.map.len() > self.limit {
            let unheld = chunks.map.iter().filter(|(_, chunk)| Arc::strong_count(&chunk.bytes) == 1);
            let Some(oldest) = unheld.min_by_key(|(_, chunk)| chunk.used).map(|(number, _)| *number) else {
                break;
            };
            chunks.map.remove(&oldest);
        }
    }
}
