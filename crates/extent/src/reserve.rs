//! The reserve: the blocks that user data cannot have. It is as small as correctness allows, or as large as
//! `mkfs --reserve` says.
//!
//! `docs/design.md`, section 7, has the formula and the purpose of each zone. The reserve only reduces the *available*
//! space. Which role may open which zone is decided elsewhere (`tree`), from the zones that are free.
//!
//! Beside live metadata, only the open metadata zone is counted. So GC of metadata may have to copy fifteen live blocks for
//! each block that it frees, if the volume is full and dead nodes are spread evenly.

use tree::Reserve;
use zone::{Blocks, Geometry};

use crate::ExtentError;
use crate::format::Packing;

/// Bytes of metadata for a block of data at worst: key, value and slot of its extent, in leaves that are
/// two thirds full.
const METADATA_PER_BLOCK: u64 = 75;
/// Metadata zones beside those of live nodes: the open one.
const METADATA_ZONES_OPEN: i64 = 1;
/// For this number of live blocks of names, one dead block is counted, so that GC of metadata costs little.
const GARBAGE_SHARE: i64 = 8;
/// With less than that, GC gains nothing in any zone.
const GARBAGE_SHARE_AT_LEAST: i64 = 15;
/// Nodes, and chunks of tables, that a volume has with few names: with no more than these, what is offered is what
/// files can have, to the block, however they are written; less where the table of zones takes some of them. There are more
/// where there are many groups: each has a root, an inner node above the map, and a leaf where map and names meet.
const NODES_OF_FEW_NAMES: i64 = 64;
const NODES_OF_A_GROUP: i64 = 3;
/// So many groups have their nodes among those.
const FEW_GROUPS: i64 = 8;
/// Nodes that are no part of the map, and that a few files add to when they are written.
const NODES_OF_WRITTEN_FILES: i64 = 24;
/// Pages of the table of zones that these are enough for.
const ZONE_TABLE_PAGES: u64 = 16;
/// The end of what garbage collection has put together lies somewhere in a zone.
const ZONES_TO_COMPACT: i64 = 1;

/// Bytes of slack …
const SLACK_BYTES: u64 = 1 << 20;
/// … or a share of a zone, if that is less.
const SLACK_SHARE: u64 = 4;

/// What of a volume's shape decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) packing: Packing,
    /// Blocks of the largest zone.
    pub(crate) zone_blocks: Blocks,
    /// Blocks of a zone on the average, where they are not alike.
    pub(crate) zone_blocks_mean: Blocks,
    /// Blocks of a node.
    pub(crate) node_blocks: Blocks,
    /// The most free zones that data ever leaves to others.
    pub(crate) left_free: u32,
    /// Blocks that the table of zones takes beyond a few pages.
    pub(crate) zone_table: u64,
    pub(crate) groups: u16,
}

/// What a count over all zones has found, in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// What all zones hold, whatever they are for.
    pub(crate) raw: i64,
    /// What data and free zones take.
    pub(crate) payload: i64,
    /// What lives in data zones.
    pub(crate) live: i64,
    /// Live metadata; where nodes are counted, nodes alone.
    pub(crate) metadata: i64,
    /// Nodes of other tables than the object map; 0 where these are not counted.
    pub(crate) names: i64,
    /// What zones with metadata in them would take of data.
    pub(crate) metadata_payload: i64,
}

/// `blocks`, and of so many of them one more.
fn and_one_of(blocks: i64, share: i64) -> i64 {
    blocks + (blocks + share - 1) / share
}

impl Shape {
    /// Of a volume of so many groups on such a device, where data leaves so many free zones to others at most.
    pub(crate) fn new(geometry: &Geometry, page_size: u32, groups: u16, left_free: u32) -> Shape {
        let node_blocks = page_size.div_ceil(geometry.block_size);
        let beyond = tree::Store::zone_table_pages(geometry, page_size).saturating_sub(ZONE_TABLE_PAGES);
        Shape {
            packing: Packing { block_size: geometry.block_size },
            zone_blocks: geometry.zone_blocks,
            zone_blocks_mean: geometry.zone_blocks,
            node_blocks,
            left_free,
            zone_table: beyond * u64::from(node_blocks),
            groups,
        }
    }

    /// The reserve, in blocks of what data zones and free zones hold.
    pub(crate) fn kept(&self, found: &Found, reserve: Reserve) -> i64 {
        let offered_at_most = found.raw - share(found.raw, reserve);
        self.kept_at_least(found).max(found.payload - offered_at_most)
    }

    /// So many blocks of metadata other than the object map, and what is dead beside them.
    pub(crate) fn with_garbage(&self, blocks: i64) -> i64 {
        and_one_of(blocks, self.garbage_share(GARBAGE_SHARE))
    }

    /// Blocks that writers over what is there may have beside it for a moment.
    pub(crate) fn slack(&self) -> u64 {
        let blocks = SLACK_BYTES / u64::from(self.packing.block_size);
        blocks.min(u64::from(self.zone_blocks) / SLACK_SHARE).max(1)
    }

    fn kept_at_least(&self, found: &Found) -> i64 {
        let data = self.data_at_most(found) - self.left_free();
        let zones = METADATA_ZONES_OPEN * i64::from(self.zone_blocks);
        let metadata = self.needed(data, self.names(found)) + zones;
        // Negative when metadata has more zones than it needs: cleaning them gives the rest to data.
        let growth = self.in_zones(metadata) - found.metadata_payload;
        self.left_free() + growth + self.slack() as i64
    }

    /// What data could have if metadata had but one zone, however many it has now: it gives them back when it is
    /// cleaned, and no more may be kept then, since what was offered before may have been promised.
    fn data_at_most(&self, found: &Found) -> i64 {
        found.payload.max(found.payload + found.metadata_payload - self.largest())
    }

    /// What the map takes at worst when there are so many blocks of data, and names beside it, each with garbage.
    ///
    /// So it is the same whatever the map takes by now: what was promised to data stays promised while each of its blocks
    /// becomes an extent of its own.
    fn needed(&self, data: i64, names: i64) -> i64 {
        let map = self.metadata_at_worst(data) as i64;
        let table = (self.zone_table as i64 - NODES_OF_FEW_NAMES * i64::from(self.node_blocks)).max(0);
        let share = self.garbage_share(GARBAGE_SHARE_AT_LEAST);
        and_one_of(map, share) + self.with_garbage(names + table)
    }

    fn few_names(&self) -> i64 {
        let more = (i64::from(self.groups) - FEW_GROUPS).max(0) * NODES_OF_A_GROUP;
        (NODES_OF_FEW_NAMES + more) * i64::from(self.node_blocks)
    }

    /// What is found when files have taken what is offered: their inodes have grown, and the leaves in which map and names
    /// meet are split. Less is shown than there is by as much, so that it fits however many names there are.
    pub(crate) fn with_more_names(&self, found: &Found) -> Found {
        let more = NODES_OF_WRITTEN_FILES * i64::from(self.node_blocks);
        Found { names: found.names + more, metadata: found.metadata + more, ..*found }
    }

    /// A few, or as many as there are, or as much as is more than the map of what is written can take, and with that the
    /// part of the table of zones for which few leave room. Where names are not counted they hide behind a map that takes
    /// less than it may.
    fn names(&self, found: &Found) -> i64 {
        let beside = found.metadata - self.metadata_at_worst(found.live) as i64;
        let table = (self.zone_table as i64).min(NODES_OF_FEW_NAMES * i64::from(self.node_blocks));
        (beside.max(found.names) + table).max(self.few_names())
    }

    /// Of so many blocks of live metadata one more may be dead for good: that share, or more in zones so small that a
    /// few nodes are a large part of them.
    fn garbage_share(&self, share: i64) -> i64 {
        let zone = i64::from(self.zone_blocks_mean);
        // The zone's header and what is less than a node at its end are never written by cleaning either.
        let dead = (i64::from(tree::GAIN_PAGES) + 1) * i64::from(self.node_blocks);
        share.min((zone - dead) / dead).max(1)
    }

    fn left_free(&self) -> i64 {
        (i64::from(self.left_free) + ZONES_TO_COMPACT) * self.largest()
    }

    /// What a zone takes of data.
    fn largest(&self) -> i64 {
        i64::from(self.packing.payload(self.zone_blocks))
    }

    /// Blocks of data that would fit in the zones, or parts of zones, that so many blocks of metadata take.
    fn in_zones(&self, metadata: i64) -> i64 {
        let blocks = metadata as u128 * self.largest() as u128;
        blocks.div_ceil(u128::from(self.zone_blocks)) as i64
    }

    /// Blocks that the object map takes when so many blocks of data are written.
    fn metadata_at_worst(&self, blocks: i64) -> u64 {
        let bytes = blocks.max(0) as u64 * METADATA_PER_BLOCK;
        bytes.div_ceil(u64::from(self.packing.block_size))
    }
}

/// The part of all blocks.
fn share(raw: i64, reserve: Reserve) -> i64 {
    let blocks = i128::from(raw) * i128::from(reserve.0);
    (blocks / i128::from(Reserve::ALL.0)) as i64
}

/// A new volume on a device of this shape.
fn new_volume(geometry: &Geometry, page_size: u32, groups: u16) -> (Shape, Found) {
    let (log, left_free) = tree::Store::zones_kept(geometry, page_size);
    let shape = Shape::new(geometry, page_size, groups, left_free);
    let zones = i64::from(geometry.zones);
    let found = Found {
        raw: zones * i64::from(geometry.zone_blocks),
        payload: (zones - i64::from(log)) * shape.largest(),
        ..Found::default()
    };
    (shape, found)
}

/// The least reserve that is possible for so many groups on a device of this shape.
pub fn least_reserve(geometry: &Geometry, page_size: u32, groups: u16) -> Reserve {
    let (shape, found) = new_volume(geometry, page_size, groups);
    let offered = (found.payload - shape.kept(&found, Reserve::default())).max(0);
    let taken = i128::from(found.raw - offered) * i128::from(Reserve::ALL.0);
    Reserve(((taken + i128::from(found.raw) - 1) / i128::from(found.raw)) as u32)
}

/// Refuses a reserve that is less than the least, or leaves next to nothing to data, and a device on which none is left.
pub fn check_reserve(
    geometry: &Geometry,
    page_size: u32,
    groups: u16,
    reserve: Reserve,
) -> Result<(), ExtentError> {
    let (shape, found) = new_volume(geometry, page_size, groups);
    if found.payload <= shape.kept(&found, Reserve::default()) {
        let what = "the device is too small: what a volume needs for itself leaves nothing for files; use a larger one";
        return Err(tree::StoreError::NoVolume(what.into()).into());
    }
    if reserve == Reserve::default() {
        return Ok(());
    }
    let least = least_reserve(geometry, page_size, groups);
    let possible = least..=least.max(MOST);
    if possible.contains(&reserve) {
        return Ok(());
    }
    let what = format!(
        "a reserve of {reserve} is impossible: on this device choose from {} to {}",
        possible.start(),
        possible.end()
    );
    Err(tree::StoreError::NoVolume(what).into())
}

/// More is a mistake.
const MOST: Reserve = Reserve(9_000);

#[cfg(test)]
mod tests;
