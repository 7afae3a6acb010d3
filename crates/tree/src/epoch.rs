//! How long an epoch may be, and how much of it may be dirty.
//!
//! Three things bound it:
//!
//! * **Memory.** A dirty node stays in the cache until it is written; after a crash replay has in memory all nodes
//!   that two epochs have changed. Bounds on *nodes*.
//! * **Room.** What is dirty has to be written, also when no zone is free any more but those kept for it
//!   ([`pool::MetadataReserve`]), and after a crash what was written early is dirty again. A bound on *pages that will be
//!   written*: a node that is written whole takes one, and a leaf that is written as its changes (`delta`) what they
//!   take and a fifth more.
//! * **Replay.** A bound on the records' bytes.
//!
//! What a node weighs is known when it is changed and does not depend on the mount. Replay finds the same, or less, but
//! for leaves that it merges because more is in memory.
//! While a quarter of all zones is free an epoch may be longer than the reserve has room for. It ends as soon as they
//! are fewer, and that quarter takes what it has dirtied: a 64th of the volume at most.
//!
//! Only counts and answers; who writes what is in `checkpoint`.

use std::ops::{Add, Sub};

use pool::MetadataReserve;
use rt::sync::atomic::{AtomicUsize, Ordering};
use zone::Geometry;

use crate::cache::NodeState;
use crate::checkpoint::entries_per_page;
use crate::core::Core;
use crate::delta::{self, Changes};
use crate::format::{DirectoryEntry, ZitEntry};
use crate::mat::Place;

/// Pages that an epoch writes, at most, while zones are few: the reserve has room for two epochs, and longer ones would
/// save less than the space is worth. Where one zone has that room anyway it may be twice as many.
const PAGES_MAX: usize = 512;
const PAGES_MAX_IN_ZONE: usize = 1024;
/// The same while zones abound, and nodes at any time.
const LONG_MAX: usize = 4096;
const PAGES_MIN: usize = 32;
/// With no more pages than this an epoch may have twice the share of the volume: tables are a large part of what it writes.
const PAGES_FEW: usize = 64;
/// Nodes that may differ from the last checkpoint, however small the cache.
const NODES_MIN: usize = 1024;
/// The part of an epoch's pages that chunks of the MAT may take beside them.
const CHUNKS_SHARE: usize = 4;
/// The part of an epoch's pages that the table of zones has of those, at most: what it takes beyond that is kept beside
/// them.
const ZONE_TABLE_SHARE: usize = 2 * CHUNKS_SHARE;
/// Nodes that may become dirty, at least, between the call for a checkpoint and its cut, without anybody's waiting.
const UNTIL_THE_CUT: usize = 256;

/// Bytes that writing nodes takes, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weight(usize);

impl Weight {
    /// Of a node with these changes.
    fn of_changes(changes: &Changes, has_deltas: bool, page_size: usize) -> Weight {
        match changes.encoded_bytes().filter(|_| has_deltas) {
            Some(bytes) => Weight::packed(bytes),
            None => Weight(page_size),
        }
    }

    /// Of a node that lies there, if it is to be written once more.
    pub(crate) fn of_place(place: Place, page_size: usize) -> Weight {
        match (place.is_nowhere(), place.is_delta()) {
            (true, _) => Weight(0),
            (_, true) => Weight::packed(page_size / delta::SHARE),
            (_, false) => Weight(page_size),
        }
    }

    /// Of changes that share pages with others. A page is full to seven eighths less its header, because none takes more
    /// than an eighth.
    fn packed(bytes: usize) -> Weight {
        Weight((bytes * 6).div_ceil(5))
    }

    /// Pages that it takes: the last of those with changes may have few.
    pub(crate) fn pages(self, page_size: usize) -> usize {
        self.0.div_ceil(page_size) + usize::from(self.0 > 0)
    }

    pub(crate) fn of_bytes(bytes: usize) -> Weight {
        Weight(bytes)
    }

    pub(crate) fn bytes(self) -> usize {
        self.0
    }
}

impl Add for Weight {
    type Output = Weight;

    fn add(self, other: Weight) -> Weight {
        Weight(self.0 + other.0)
    }
}

impl Sub for Weight {
    type Output = Weight;

    fn sub(self, other: Weight) -> Weight {
        Weight(self.0 - other.0)
    }
}

/// What the running epoch has made dirty and nobody has written yet. Changed under the lock of the node's group.
#[derive(Default)]
pub(crate) struct Dirty {
    nodes: AtomicUsize,
    weight: AtomicUsize,
}

impl Dirty {
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(crate) fn weight(&self) -> Weight {
        Weight(self.weight.load(Ordering::Relaxed))
    }

    /// One more, which has not been weighed.
    pub(crate) fn add_node(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    /// One less, which weighed so much.
    pub(crate) fn remove_node(&self, counted: &mut Weight) {
        self.nodes.fetch_sub(1, Ordering::Relaxed);
        self.weight.fetch_sub(std::mem::take(counted).0, Ordering::Relaxed);
    }

    /// One weighs something else now.
    fn weigh(&self, counted: &mut Weight, now: Weight) {
        let before = std::mem::replace(counted, now);
        // The sum is not less than what any of them weighs.
        self.weight.fetch_add(now.0.wrapping_sub(before.0), Ordering::Relaxed);
    }

    /// The cut: none is left.
    pub(crate) fn take_all(&self) {
        self.nodes.store(0, Ordering::Relaxed);
        self.weight.store(0, Ordering::Relaxed);
    }
}

/// Bounds that follow from the volume's size and the cache's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Dirty nodes in memory before some are written.
    pub(crate) dirty: usize,
    /// Nodes that may differ from the last checkpoint before the next is due.
    pub(crate) epoch_nodes: usize,
    /// Pages that writing these may take.
    pub(crate) epoch_pages: usize,
    /// The same while zones are free in plenty.
    pub(crate) long_epoch: usize,
    /// Of the fourth part for chunks, what is there for those of the MAT.
    pub(crate) mat_pages: usize,
    /// Pages of the table of zones that a checkpoint may write beyond that part.
    pub(crate) zone_table_beyond: usize,
    /// Records' bytes before the next checkpoint is due.
    pub(crate) replay_bytes: u64,
}

/// Pages that memory may be used for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachePages {
    pub(crate) nodes: usize,
    pub(crate) chunks: usize,
}

/// Pages that say of so many zones what they hold, and where those pages are.
pub(crate) fn zone_table_pages(zones: u32, page_size: usize) -> usize {
    let chunks = (zones as usize).div_ceil(entries_per_page(page_size, size_of::<ZitEntry>()));
    chunks + chunks.div_ceil(entries_per_page(page_size, size_of::<DirectoryEntry>()))
}

impl Limits {
    /// Bounds for a volume of this size with this cache.
    pub(crate) fn new(geometry: &Geometry, page_size: usize, cache_bytes: u64) -> (Limits, CachePages) {
        let volume_bytes =
            u64::from(geometry.zones) * u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
        let volume_pages = (volume_bytes / page_size as u64) as usize;
        let page_blocks = (page_size / geometry.block_size as usize).max(1);
        let zone_pages = (geometry.zone_blocks as usize - 1) / page_blocks;
        let most = (zone_pages * 2 / 5).clamp(PAGES_MAX, PAGES_MAX_IN_ZONE);
        // A page takes a little more than its size in memory: the node around it, and the heads of its keys.
        // Below that, what may be dirty and what a transaction pins would be all there is.
        let cache_pages = (cache_bytes as usize / (page_size + page_size / 32 + 256)).max(32);
        let chunks = (cache_pages / 8).max(8);
        let epoch_pages = (volume_pages / 128).max((volume_pages / 64).min(PAGES_FEW)).clamp(PAGES_MIN, most);
        let zone_table = zone_table_pages(geometry.zones, page_size);
        let its_share = epoch_pages / ZONE_TABLE_SHARE;
        let limits = Limits {
            dirty: (cache_pages / 2).clamp(16, LONG_MAX),
            epoch_nodes: (cache_pages / 2).clamp(NODES_MIN, LONG_MAX),
            epoch_pages,
            long_epoch: (volume_pages / 64).clamp(PAGES_MIN, LONG_MAX),
            mat_pages: epoch_pages / CHUNKS_SHARE - zone_table.min(its_share),
            zone_table_beyond: zone_table.saturating_sub(its_share),
            replay_bytes: (volume_bytes / 64).clamp(256 << 10, 32 << 20),
        };
        (limits, CachePages { nodes: cache_pages - chunks, chunks })
    }

    /// What only metadata may take: room for what two epochs write, chunks too, and a zone to clean into.
    pub(crate) fn kept_for_metadata(&self, geometry: &Geometry, page_size: usize) -> MetadataReserve {
        let blocks = blocks_of_two_epochs(self.epoch_pages, self.zone_table_beyond, geometry, page_size);
        MetadataReserve { blocks, of_zone: blocks_of_zone(geometry, page_size) }
    }
}

/// What two epochs write: their pages, a fourth part of these for chunks, and the table of zones where it takes more than
/// its part. Random deletions and overwrites may change the whole table in each epoch.
fn blocks_of_two_epochs(
    epoch_pages: usize,
    zone_table_beyond: usize,
    geometry: &Geometry,
    page_size: usize,
) -> u64 {
    let pages = epoch_pages * 2 * (CHUNKS_SHARE + 1) / CHUNKS_SHARE + 2 * zone_table_beyond;
    (pages as u64 * page_size as u64).div_ceil(u64::from(geometry.block_size))
}

/// Blocks that metadata can write to a zone: whole pages behind the header.
fn blocks_of_zone(geometry: &Geometry, page_size: usize) -> u64 {
    let page_blocks = (page_size as u32).div_ceil(geometry.block_size);
    u64::from((geometry.zone_blocks - 1) / page_blocks * page_blocks)
}

impl Core {
    /// A dirty node has changed: counts what writing it will take.
    pub(crate) fn count_dirty(&self, state: &mut NodeState) {
        let now = Weight::of_changes(&state.changes, self.mat.has_deltas(), self.page_size());
        self.count.dirty.weigh(&mut state.counted, now);
    }

    /// Pages that writing what is dirty takes, at most.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.count.dirty.weight().pages(self.page_size())
    }

    /// Whether a checkpoint is due: a recovery now would have much to replay, or the next epoch needs the room.
    pub(crate) fn epoch_is_long(&self) -> bool {
        self.log.wants_checkpoint() || self.bounds_of_epoch().into_iter().any(|(is, most)| is >= most)
    }

    /// What ends an epoch: how much there is of it, and the most.
    fn bounds_of_epoch(&self) -> [(u64, u64); 4] {
        let most = self.pages_now();
        [
            (self.changed_nodes() as u64, self.limits.epoch_nodes as u64),
            (self.changed_pages() as u64, most as u64),
            (self.count.pages_since_cut.load(Ordering::Relaxed) as u64, 2 * most as u64),
            (self.log.replay_cost().1, self.limits.replay_bytes),
        ]
    }

    /// How much of an epoch has passed, by what comes first to where a checkpoint begins in the background; 1 while one is
    /// taken, or is due because a zone was cleaned. One that is asked for comes before.
    pub(crate) fn epoch_share(&self) -> f64 {
        if self.pages_being_saved() > 0 || self.count.is_cleaned.load(Ordering::Relaxed) {
            return 1.0;
        }
        let pages = self.pages_now() as u64;
        let pressed = [
            (self.count.dirty.nodes() as u64, self.nodes_until_pressed() as u64),
            (self.changed_pages() as u64, pages - pages / 8),
        ];
        let bounds = self.bounds_of_epoch().into_iter().chain(pressed);
        let shares = bounds.map(|(is, most)| is as f64 / most.max(1) as f64);
        shares.fold(self.log.share_of_zone(), f64::max)
    }

    /// Whether more is dirty than one epoch may leave, after a crash: another on top of it would be more than there is room
    /// for, or memory, after another crash too.
    pub(crate) fn epoch_is_longer_than_one(&self) -> bool {
        self.changed_pages() > self.limits.epoch_pages || self.changed_nodes() > self.limits.epoch_nodes
    }

    /// Nodes that may differ from the last checkpoint, written or not.
    pub(crate) fn changed_nodes(&self) -> usize {
        self.mat.running_len() + self.count.dirty.nodes()
    }

    /// Pages that writing them would take, with the chunks that have no part of their own in what is kept.
    fn changed_pages(&self) -> usize {
        let (changed, chunks) = (self.changed_nodes(), self.mat.chunks_len() as usize);
        // Of so many chunks there are so many pages of directories beside one that is always written.
        let directories = chunks / entries_per_page(self.page_size(), size_of::<DirectoryEntry>());
        let tables = chunks.min(changed) + directories.min(changed);
        let beyond = tables.saturating_sub(self.limits.mat_pages);
        (self.mat.running_weight() + self.count.dirty.weight()).pages(self.page_size()) + beyond
    }

    /// Whether a checkpoint is to write what is dirty, which makes the epoch's end: where the epoch has no room for as
    /// many dirty nodes again, and where less than a quarter of the zones is free, because what an epoch leaves dead
    /// is seen at its end only. Otherwise, where the cache allows few, they are written by themselves, and the tables
    /// that a checkpoint writes (of the MAT nearly every chunk, where changes are at random) only once for many of them.
    pub(crate) fn epoch_is_ending(&self) -> bool {
        !self.zones_abound()
            || self.changed_nodes() + self.count.dirty.nodes() >= self.limits.epoch_nodes
            || self.changed_pages() + self.dirty_pages().max(self.pages_now() / 8) >= self.pages_now()
    }

    /// Whether so many nodes may differ from the last checkpoint that a replay, if one came, would read many: not to be
    /// left so for ever.
    pub(crate) fn epoch_holds_much(&self) -> bool {
        self.changed_nodes() >= self.limits.dirty.min(self.limits.epoch_pages)
    }

    fn zones_abound(&self) -> bool {
        self.pool.free() >= self.device.geometry().zones / 4
    }

    /// Whether so much is dirty that a checkpoint in the background should begin, or dirty nodes be written. What may
    /// still become dirty is for those who go on until it makes its cut; then all of the bound is theirs again. A later
    /// one writes fewer leaves for the same changes.
    pub(crate) fn is_pressed(&self) -> bool {
        let pages = self.pages_now();
        self.count.dirty.nodes() >= self.nodes_until_pressed() || self.changed_pages() + pages / 8 >= pages
    }

    fn nodes_until_pressed(&self) -> usize {
        let nodes = self.limits.dirty;
        nodes - (nodes / 8).max(UNTIL_THE_CUT.min(nodes / 2))
    }

    /// Whether so much is dirty that nodes must be written before more are changed.
    pub(crate) fn too_much_is_dirty(&self) -> bool {
        self.count.dirty.nodes() >= self.limits.dirty || self.changed_pages() >= self.pages_now()
    }

    /// Pages that an epoch may write as things are.
    fn pages_now(&self) -> usize {
        if self.zones_abound() { self.limits.long_epoch } else { self.limits.epoch_pages }
    }
}

#[cfg(test)]
mod tests;
