//! The bounds of an epoch, and of its dirty nodes.
//!
//! Three resources bound an epoch:
//!
//! * **Memory.** A dirty node stays in the cache until it is written. After a crash, replay has all nodes in memory
//!   that two epochs have changed. This bounds the number of *nodes*.
//! * **Space.** Dirty nodes have to be written even if no zone is free except those of the reserve
//!   ([`pool::MetadataReserve`]). After a crash, nodes that were written early are dirty again. This bounds the *pages
//!   that will be written*. A node that is written whole takes one page. A leaf that is written as delta records
//!   (`delta`) takes their bytes and a fifth more.
//! * **Replay.** This bounds the bytes of records.
//!
//! The weight of a node is known when it is changed and does not depend on the mount. Replay finds the same weight or
//! less, except for leaves that it merges because more nodes are in memory. While a quarter of all zones is free, an
//! epoch may be longer than the reserve has space for. It ends as soon as fewer are free, and that quarter has space
//! for its dirty nodes: they take a 64th of the volume at most.
//!
//! This module only counts and decides. `checkpoint` writes the nodes.

use pool::MetadataReserve;
use rt::sync::atomic::Ordering;
use zone::Geometry;

use crate::cache::NodeState;
use crate::core::Core;
use crate::format::{DirectoryEntry, ZitEntry, entries_per_page};
use crate::weight::Weight;

/// Pages that an epoch writes, at most, while few zones are free. The reserve has space for two epochs, and longer
/// epochs would save less than that space is worth. If one zone is large enough for two longer epochs, an epoch may be
/// twice as long.
const PAGES_MAX: usize = 512;
const PAGES_MAX_IN_ZONE: usize = 1024;
/// The same while many zones are free. Also the bound on nodes at any time.
const LONG_MAX: usize = 4096;
const PAGES_MIN: usize = 32;
/// An epoch of at most this number of pages may have twice the share of the volume, because the tables are a large
/// part of its writes.
const PAGES_FEW: usize = 64;
/// Nodes that may differ from the last checkpoint, even with a small cache.
const NODES_MIN: usize = 1024;
/// The fraction of an epoch's pages that chunks of the MAT may take beside them.
const CHUNKS_SHARE: usize = 4;
/// The fraction of an epoch's pages that the zone table takes of the pages for chunks, at most. The reserve has
/// separate pages for the rest of the zone table.
const ZONE_TABLE_SHARE: usize = 2 * CHUNKS_SHARE;
/// Nodes that may become dirty between the request for a checkpoint and its cut before a thread has to wait, at least.
const NODES_UNTIL_CUT: usize = 256;

/// Bounds derived from the sizes of the volume and the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Dirty nodes in memory before some are written.
    pub(crate) dirty: usize,
    /// Nodes that may differ from the last checkpoint before the next is due.
    pub(crate) epoch_nodes: usize,
    /// Pages that writing these nodes may take.
    pub(crate) epoch_pages: usize,
    /// The same while many zones are free.
    pub(crate) long_epoch: usize,
    /// The pages for chunks that are available to chunks of the MAT.
    pub(crate) mat_pages: usize,
    /// Pages of the zone table that a checkpoint may write beyond its fraction of the pages for chunks.
    pub(crate) zone_table_beyond: usize,
    /// Bytes of records before the next checkpoint is due.
    pub(crate) replay_bytes: u64,
}

/// Pages in memory for nodes and for chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachePages {
    pub(crate) nodes: usize,
    pub(crate) chunks: usize,
}

/// Pages of the zone table for this number of zones, and of its directory.
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
        // A page takes a little more than its size in memory: the node around it, and the heads of its keys. A smaller
        // cache would consist of dirty nodes and of nodes that transactions pin.
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

    /// The space that only metadata may take: for the writes of two epochs, including chunks, and for a zone as the
    /// target of GC.
    pub(crate) fn metadata_reserve_of(&self, geometry: &Geometry, page_size: usize) -> MetadataReserve {
        let blocks = blocks_of_two_epochs(self.epoch_pages, self.zone_table_beyond, geometry, page_size);
        MetadataReserve { blocks, of_zone: blocks_of_zone(geometry, page_size) }
    }
}

/// The blocks that two epochs write: their pages, a fourth part of these for chunks, and the part of the zone table
/// that this fourth does not cover. Random deletions and overwrites may change the whole zone table in each epoch.
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
    /// Counts the pages for a dirty node after a change.
    pub(crate) fn count_dirty(&self, state: &mut NodeState) {
        let now = Weight::of_changes(&state.changes, self.mat.has_deltas(), self.page_size());
        self.count.dirty.weigh(&mut state.counted, now);
    }

    /// Pages that writing the dirty nodes takes, at most.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.count.dirty.weight().pages(self.page_size())
    }

    /// Whether a checkpoint is due, because a recovery would have much to replay, or because the epoch takes its whole
    /// headroom.
    pub(crate) fn epoch_is_long(&self) -> bool {
        self.log.wants_checkpoint() || self.bounds_of_epoch().into_iter().any(|(is, most)| is >= most)
    }

    /// The bounds of an epoch: the present value and the limit of each.
    fn bounds_of_epoch(&self) -> [(u64, u64); 4] {
        let most = self.pages_now();
        [
            (self.changed_nodes() as u64, self.limits.epoch_nodes as u64),
            (self.changed_pages() as u64, most as u64),
            (self.count.pages_since_cut.load(Ordering::Relaxed) as u64, 2 * most as u64),
            (self.log.replay_cost().1, self.limits.replay_bytes),
        ]
    }

    /// How much of an epoch has passed. This is the largest share of any bound at which a background checkpoint
    /// begins. 1 while a checkpoint is taken, or is due because GC has emptied a zone. A requested checkpoint comes
    /// earlier.
    pub(crate) fn epoch_share(&self) -> f64 {
        if self.pages_being_saved() > 0 || self.count.gc_awaits_checkpoint.load(Ordering::Relaxed) {
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

    /// Whether more nodes are dirty after a crash than one epoch may leave. Another epoch on top of it would need more
    /// space or memory than there is, after another crash too.
    pub(crate) fn epoch_is_longer_than_one(&self) -> bool {
        self.changed_pages() > self.limits.epoch_pages || self.changed_nodes() > self.limits.epoch_nodes
    }

    /// Nodes that may differ from the last checkpoint, written or not.
    pub(crate) fn changed_nodes(&self) -> usize {
        self.mat.running_len() + self.count.dirty.nodes()
    }

    /// Pages that writing them would take, with the chunks for which the reserve has no separate space.
    fn changed_pages(&self) -> usize {
        let (changed, chunks) = (self.changed_nodes(), self.mat.chunks_len() as usize);
        // A directory page names this number of chunks. One directory page is written in any case.
        let directories = chunks / entries_per_page(self.page_size(), size_of::<DirectoryEntry>());
        let tables = chunks.min(changed) + directories.min(changed);
        let beyond = tables.saturating_sub(self.limits.mat_pages);
        (self.mat.running_weight() + self.count.dirty.weight()).pages(self.page_size()) + beyond
    }

    /// Whether a checkpoint is to write the dirty nodes, which ends the epoch. This is so if the epoch cannot take as
    /// many dirty nodes again. It is also so if less than a quarter of the zones is free, because the dead blocks of
    /// an epoch become visible only at its end. Otherwise, if the cache allows few dirty nodes, they are written
    /// alone. Then many such writes share one write of the tables by a checkpoint, which writes nearly every chunk of
    /// the MAT after random changes.
    pub(crate) fn epoch_is_ending(&self) -> bool {
        !self.many_zones_are_free()
            || self.changed_nodes() + self.count.dirty.nodes() >= self.limits.epoch_nodes
            || self.changed_pages() + self.dirty_pages().max(self.pages_now() / 8) >= self.pages_now()
    }

    /// Whether many nodes differ from the last checkpoint, which a replay would have to read. This state should not
    /// last for ever.
    pub(crate) fn epoch_is_large(&self) -> bool {
        self.changed_nodes() >= self.limits.dirty.min(self.limits.epoch_pages)
    }

    fn many_zones_are_free(&self) -> bool {
        self.pool.free() >= self.device.geometry().zones / 4
    }

    /// Whether enough nodes are dirty that a background checkpoint should begin, or dirty nodes should be written. The
    /// rest of the bound is for transactions that go on until the cut. After the cut they have the whole bound again.
    /// A later checkpoint writes fewer leaves for the same changes.
    pub(crate) fn is_pressed(&self) -> bool {
        let pages = self.pages_now();
        self.count.dirty.nodes() >= self.nodes_until_pressed() || self.changed_pages() + pages / 8 >= pages
    }

    fn nodes_until_pressed(&self) -> usize {
        let nodes = self.limits.dirty;
        nodes - (nodes / 8).max(NODES_UNTIL_CUT.min(nodes / 2))
    }

    /// Whether nodes must be written before more are changed.
    pub(crate) fn dirty_limit_is_reached(&self) -> bool {
        self.count.dirty.nodes() >= self.limits.dirty || self.changed_pages() >= self.pages_now()
    }

    /// Pages that an epoch may write at present.
    fn pages_now(&self) -> usize {
        if self.many_zones_are_free() { self.limits.long_epoch } else { self.limits.epoch_pages }
    }
}

#[cfg(test)]
mod tests;
