//! The bounds of an epoch and of the caches, from the sizes of the volume and of the memory.

use pool::MetadataReserve;
use zone::Geometry;

use crate::format::{DirectoryEntry, ZitEntry, entries_per_page};

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
