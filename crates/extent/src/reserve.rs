//! The reserve: the blocks that user data cannot have. It is as small as correctness allows, or as large as `mkfs
//! --reserve` says.
//!
//! `docs/internals/space.md`, section 4, has the formula and the purpose of each zone. The reserve only reduces the
//! *available* space. The pool decides which role may open which zone, from the zones that are free.
//!
//! Beside live metadata, only the open metadata zone is counted. So GC of metadata may have to copy fifteen live blocks
//! for each block that it frees, if the volume is full and dead nodes are spread evenly.

use tree::Reserve;
use zone::{Blocks, Geometry};

use crate::ExtentError;
use crate::format::Packing;

/// Bytes of metadata for a block of data at worst: key, value and slot of its extent, in leaves that are two thirds
/// full.
const METADATA_PER_BLOCK: u64 = 75;
/// Metadata zones beside those of live nodes: the open one.
const METADATA_ZONES_OPEN: i64 = 1;
/// One dead block is counted for this number of live blocks of names, so that GC of metadata is cheap.
const GARBAGE_SHARE: i64 = 8;
/// One dead block is counted for this number of live blocks of the map. With fewer dead blocks, GC gains nothing in any
/// zone.
const GARBAGE_SHARE_AT_LEAST: i64 = 15;
/// Nodes, and chunks of tables, that the reserve includes for names. With no more than these, files can have the
/// reported available space to the block, however they are written. The table of zones may take some of them. A volume
/// with many groups needs more: each group has a root, an inner node above the map, and a leaf where map and names
/// meet.
const NODES_OF_FEW_NAMES: i64 = 64;
const NODES_OF_A_GROUP: i64 = 3;
/// The nodes of this number of groups are among them.
const FEW_GROUPS: i64 = 8;
/// Nodes that do not belong to the map, and that a few files add when they are written.
const NODES_OF_WRITTEN_FILES: i64 = 24;
/// Pages of the table of zones that are among them.
const ZONE_TABLE_PAGES: u64 = 16;
/// GC's open zone is partly filled.
const ZONES_PARTLY_FILLED: i64 = 1;

/// Bytes of the overwrite reserve …
const OVERWRITE_BYTES: u64 = 1 << 20;
/// … or a share of a zone, if that is less.
const OVERWRITE_SHARE: u64 = 4;

/// The properties of a volume that the reserve depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) packing: Packing,
    /// Blocks of the largest zone.
    pub(crate) zone_blocks: Blocks,
    /// Blocks of an average zone.
    pub(crate) zone_blocks_mean: Blocks,
    /// Blocks of a node.
    pub(crate) node_blocks: Blocks,
    /// The most free zones that are reserved from data at any time.
    pub(crate) reserved_zones: u32,
    /// Blocks of the table of zones beyond a few pages.
    pub(crate) zone_table: u64,
    pub(crate) groups: u16,
}

/// Sums over all zones, in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockCounts {
    /// Of all zones, of any role.
    pub(crate) raw: i64,
    /// Payload of data zones and free zones.
    pub(crate) payload: i64,
    /// Live blocks in data zones.
    pub(crate) live: i64,
    /// Live metadata. Nodes only, where nodes are counted.
    pub(crate) metadata: i64,
    /// Nodes of tables other than the object map. 0 where nodes are not counted.
    pub(crate) names: i64,
    /// The payload that metadata zones would have as data zones.
    pub(crate) metadata_payload: i64,
}

/// `blocks`, and one more for each `share` of them.
fn and_one_of(blocks: i64, share: i64) -> i64 {
    blocks + (blocks + share - 1) / share
}

impl Shape {
    /// Of a volume with this number of groups, in which at most `reserved_zones` free zones are reserved from data.
    pub(crate) fn new(geometry: &Geometry, page_size: u32, groups: u16, reserved_zones: u32) -> Shape {
        let node_blocks = page_size.div_ceil(geometry.block_size);
        let beyond = tree::Store::zone_table_pages(geometry, page_size).saturating_sub(ZONE_TABLE_PAGES);
        Shape {
            packing: Packing { block_size: geometry.block_size },
            zone_blocks: geometry.zone_blocks,
            zone_blocks_mean: geometry.zone_blocks,
            node_blocks,
            reserved_zones,
            zone_table: beyond * u64::from(node_blocks),
            groups,
        }
    }

    /// The reserve, in blocks of the payload of data zones and free zones.
    pub(crate) fn reserve_in_blocks(&self, counts: &BlockCounts, reserve: Reserve) -> i64 {
        let payload_max = counts.raw - share(counts.raw, reserve);
        self.least_reserve_in_blocks(counts).max(counts.payload - payload_max)
    }

    /// Blocks of metadata other than the object map, and the dead blocks beside them.
    pub(crate) fn with_garbage(&self, blocks: i64) -> i64 {
        and_one_of(blocks, self.garbage_share(GARBAGE_SHARE))
    }

    /// Blocks that overwrites may have for a moment beside the blocks that they replace.
    pub(crate) fn overwrite_reserve(&self) -> u64 {
        let blocks = OVERWRITE_BYTES / u64::from(self.packing.block_size);
        blocks.min(u64::from(self.zone_blocks) / OVERWRITE_SHARE).max(1)
    }

    fn least_reserve_in_blocks(&self, counts: &BlockCounts) -> i64 {
        let data = self.data_max(counts) - self.reserved_zones();
        let zones = METADATA_ZONES_OPEN * i64::from(self.zone_blocks);
        let metadata = self.metadata_max(data, self.names(counts)) + zones;
        // It is negative if metadata has more zones than it needs. GC of metadata returns the rest to data.
        let growth = self.in_zones(metadata) - counts.metadata_payload;
        self.reserved_zones() + growth + self.overwrite_reserve() as i64
    }

    /// The payload of data if metadata had only one zone, however many it has now. GC of metadata returns the others,
    /// and the reserve must not grow then, because the space that was available before may be reserved.
    fn data_max(&self, counts: &BlockCounts) -> i64 {
        counts.payload.max(counts.payload + counts.metadata_payload - self.zone_payload())
    }

    /// The size of metadata at worst with this number of blocks of data and of names, each with its dead blocks.
    ///
    /// It does not depend on the present size of the map. So space that is reserved for data stays reserved while each
    /// of its blocks becomes an extent of its own.
    fn metadata_max(&self, data: i64, names: i64) -> i64 {
        let map = self.map_blocks_max(data) as i64;
        let table = (self.zone_table as i64 - NODES_OF_FEW_NAMES * i64::from(self.node_blocks)).max(0);
        let share = self.garbage_share(GARBAGE_SHARE_AT_LEAST);
        and_one_of(map, share) + self.with_garbage(names + table)
    }

    fn names_min(&self) -> i64 {
        let more = (i64::from(self.groups) - FEW_GROUPS).max(0) * NODES_OF_A_GROUP;
        (NODES_OF_FEW_NAMES + more) * i64::from(self.node_blocks)
    }

    /// The counts after files have taken the available space: their inodes have grown, and the leaves where map and
    /// names meet are split. The reported available space is less by these nodes, so that files can have it however
    /// many names there are.
    pub(crate) fn with_more_names(&self, counts: &BlockCounts) -> BlockCounts {
        let more = NODES_OF_WRITTEN_FILES * i64::from(self.node_blocks);
        BlockCounts { names: counts.names + more, metadata: counts.metadata + more, ..*counts }
    }

    /// Blocks of names: a minimum, or the counted ones, or the metadata beyond the largest map that the live blocks can
    /// have. The part of the table of zones that the minimum has place for is added. If names are not counted, a small
    /// map hides a part of them.
    fn names(&self, counts: &BlockCounts) -> i64 {
        let beyond_map = counts.metadata - self.map_blocks_max(counts.live) as i64;
        let table = (self.zone_table as i64).min(NODES_OF_FEW_NAMES * i64::from(self.node_blocks));
        (beyond_map.max(counts.names) + table).max(self.names_min())
    }

    /// GC leaves one dead block for this number of live blocks of metadata. The share is larger in zones so small that
    /// a few nodes are a large part of them.
    fn garbage_share(&self, share: i64) -> i64 {
        let zone = i64::from(self.zone_blocks_mean);
        // GC does not write the zone's header, nor a rest at its end that is shorter than a node.
        let dead = (i64::from(tree::GAIN_PAGES) + 1) * i64::from(self.node_blocks);
        share.min((zone - dead) / dead).max(1)
    }

    fn reserved_zones(&self) -> i64 {
        (i64::from(self.reserved_zones) + ZONES_PARTLY_FILLED) * self.zone_payload()
    }

    /// The payload of the largest zone.
    fn zone_payload(&self) -> i64 {
        i64::from(self.packing.payload(self.zone_blocks))
    }

    /// The payload of the zones, or parts of zones, that this number of metadata blocks takes.
    fn in_zones(&self, metadata: i64) -> i64 {
        let blocks = metadata as u128 * self.zone_payload() as u128;
        blocks.div_ceil(u128::from(self.zone_blocks)) as i64
    }

    /// Blocks of the object map at worst, with this number of blocks of data.
    fn map_blocks_max(&self, blocks: i64) -> u64 {
        let bytes = blocks.max(0) as u64 * METADATA_PER_BLOCK;
        bytes.div_ceil(u64::from(self.packing.block_size))
    }
}

/// This share of all blocks.
fn share(raw: i64, reserve: Reserve) -> i64 {
    let blocks = i128::from(raw) * i128::from(reserve.0);
    (blocks / i128::from(Reserve::ALL.0)) as i64
}

/// A new volume on a device of this shape.
fn new_volume(geometry: &Geometry, page_size: u32, groups: u16) -> (Shape, BlockCounts) {
    let (log, reserved_zones) = tree::Store::zones_kept(geometry, page_size);
    let shape = Shape::new(geometry, page_size, groups, reserved_zones);
    let zones = i64::from(geometry.zones);
    let counts = BlockCounts {
        raw: zones * i64::from(geometry.zone_blocks),
        payload: (zones - i64::from(log)) * shape.zone_payload(),
        ..BlockCounts::default()
    };
    (shape, counts)
}

/// The smallest reserve that is possible with this number of groups on a device of this shape.
pub fn least_reserve(geometry: &Geometry, page_size: u32, groups: u16) -> Reserve {
    let (shape, counts) = new_volume(geometry, page_size, groups);
    let available = (counts.payload - shape.reserve_in_blocks(&counts, Reserve::default())).max(0);
    let taken = i128::from(counts.raw - available) * i128::from(Reserve::ALL.0);
    Reserve(((taken + i128::from(counts.raw) - 1) / i128::from(counts.raw)) as u32)
}

/// Refuses a reserve that is too small, or that leaves next to nothing to data. Refuses a device on which nothing is
/// left for data.
pub fn check_reserve(
    geometry: &Geometry,
    page_size: u32,
    groups: u16,
    reserve: Reserve,
) -> Result<(), ExtentError> {
    let (shape, counts) = new_volume(geometry, page_size, groups);
    if counts.payload <= shape.reserve_in_blocks(&counts, Reserve::default()) {
        let reason =
            "the device is too small: the reserve of a volume leaves nothing for files; use a larger one";
        return Err(tree::StoreError::NoVolume(reason.into()).into());
    }
    if reserve == Reserve::default() {
        return Ok(());
    }
    let least = least_reserve(geometry, page_size, groups);
    let possible = least..=least.max(RESERVE_MAX);
    if possible.contains(&reserve) {
        return Ok(());
    }
    let reason = format!(
        "a reserve of {reserve} is impossible: on this device choose from {} to {}",
        possible.start(),
        possible.end()
    );
    Err(tree::StoreError::NoVolume(reason).into())
}

/// A larger reserve is refused as a mistake.
const RESERVE_MAX: Reserve = Reserve(9_000);

#[cfg(test)]
mod tests;
