//! How much space is available, and reservations of it.
//!
//! The available space is what garbage collection (GC) can always deliver. Each data zone counts with its worst-case
//! payload, whatever its live blocks are. So the available space depends on how much was written, and not on how.
//! Exactly this much can be written, and it can be overwritten in any order. The reserve is left out: the zones of
//! metadata and of GC, and one more, because GC's open zone is partly filled. The reserve includes the zones that the
//! object map will need when each block is an extent of its own, less those that metadata has already. So the available
//! space does not shrink while metadata grows.
//!
//! Names and small files make trees grow too, and take from the same sum. A transaction reserves the nodes that it may
//! make. If metadata takes more than the object map ever could, its present size counts, and one dead block for every
//! eight live ones, which GC of metadata needs. So neither data nor names take what is reserved for the other. A
//! transaction that only changes or frees metadata needs no reservation.
//!
//! The available space is not stored. It is computed from the sums of the zone table and from the reserved blocks. Each
//! reservation computes it under the lock of the table. A transaction that inserts reserved blocks spends its
//! reservation under the same lock, in the moment in which it takes effect. So each block counts exactly once: a block
//! that counted twice would cause a refusal although there is space, and a block that did not count would be reserved
//! twice. Blocks that GC moves count once too.
//!
//! An overwrite takes no more space in the end, but the old and the new blocks exist together for a moment. If the
//! available space does not cover that, the overwritten part comes from the *overwrite reserve*, which is not part of
//! the available space. A writer that finds too little in it waits for other writers. They hold no lock that the
//! waiting writer has, and return their part when they have inserted. An overwrite of more than the whole overwrite
//! reserve is refused, and the caller writes in smaller pieces.

use std::sync::Arc;

use tree::{Growth, Moment, StoreError};
use zone::Blocks;

use crate::format::{Extent, UNWRITTEN_BLOCKS};
use crate::maps::ObjectMaps;
use crate::reservations::{Reservation, Reservations};
use crate::reserve::{BlockCounts, Shape};
use crate::{ExtentError, Object, Result};

/// The space that `statfs` and `polder stats` report, in bytes.
///
/// `total` is the sum of `reserved`, `live`, `pending`, `unwritten` and `available`. Dead blocks are not listed: GC can
/// reclaim them, so they are part of `available` and of `reserved`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of all zones that data can use.
    pub total: u64,
    /// The largest single file that can be written now.
    pub available: u64,
    /// Bytes of extents.
    pub live: u64,
    /// Bytes that are reserved for writers, or written and not yet inserted.
    pub pending: u64,
    /// Bytes that files have preallocated and not written.
    pub unwritten: u64,
    /// Bytes that files can never have: zones of the log and of metadata, what these may need when all available space
    /// is written, what GC needs, the reserve of `mkfs`, and zones that cannot be written any more. If nothing is
    /// available, more may be reserved for files than these bytes leave.
    pub reserved: u64,
    /// Bytes of live metadata.
    pub metadata: u64,
    /// Zones that can be opened now.
    pub free_zones: u32,
}

/// A reservation that may last long leaves this number of zones available.
const LONG_RESERVATION_ZONES: i64 = 2;

/// How space is used at one moment, in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    /// The payload of all zones in use, of any role.
    total: i64,
    /// The part of this in data zones and free zones.
    payload: i64,
    /// Live blocks in data zones.
    live: i64,
    /// Blocks of data zones, written or not.
    capacity: i64,
    /// The part of the payload that is not for user data.
    reserve: i64,
    /// Blocks that are reserved for writers, or preallocated and unwritten.
    reserved: i64,
    /// The unwritten part of these.
    unwritten: i64,
    /// The blocks of the nodes that transactions have reserved, and their garbage.
    for_nodes: i64,
}

impl Census {
    /// Blocks that can be reserved if no tree grows. It is negative if more blocks are reserved than there are.
    fn unreserved(&self) -> i64 {
        self.payload - self.reserve - self.live - self.reserved
    }

    /// Blocks that can be reserved beside the reserved nodes.
    fn available(&self) -> i64 {
        self.unreserved() - self.for_nodes
    }
}

/// A census, and the reserve if there were a few more names.
struct Reported {
    census: Census,
    reserve_with_more_names: i64,
}

impl Reported {
    /// The reserve that is reported. It includes what more names may take, as far as writers have left it.
    fn reserve_reported(&self) -> i64 {
        let Census { reserve, .. } = self.census;
        self.reserve_with_more_names.min(reserve + self.census.unreserved()).max(reserve)
    }

    /// Blocks that a file can have, whatever nodes its name takes.
    fn available(&self) -> i64 {
        self.census.unreserved() - (self.reserve_reported() - self.census.reserve)
    }

    /// Blocks of the total that are neither available nor data. It is negative only if more blocks are lost with their
    /// zones.
    fn reserve_of_total(&self) -> i64 {
        self.census.total - self.census.payload + self.reserve_reported()
    }
}

/// Counts the space of a volume.
pub struct Budget {
    maps: Arc<ObjectMaps>,
    reservations: Arc<Reservations>,
}

impl Budget {
    pub(crate) fn new(maps: &Arc<ObjectMaps>) -> Budget {
        Budget { maps: Arc::clone(maps), reservations: Arc::default() }
    }

    /// Reserves blocks for a writer.
    pub(crate) fn reserve(&self, blocks: u64) -> Result<Reservation> {
        self.reserve_leaving(blocks, 0).ok_or(ExtentError::NoSpace)
    }

    /// Reserves blocks for a writer that may hold them for long without inserting, while other threads hold a lock that
    /// it waits for. So a few zones must remain available.
    pub(crate) fn reserve_for_long(&self, blocks: u64) -> Option<Reservation> {
        self.reserve_leaving(
            blocks,
            LONG_RESERVATION_ZONES * i64::from(self.maps.device().geometry().zone_blocks),
        )
    }

    /// Reserves blocks if at least `left` more are available.
    fn reserve_leaving(&self, blocks: u64, left: i64) -> Option<Reservation> {
        let blocks = i64::try_from(blocks).ok()?;
        let is_reserved = self.at_one_moment(|moment, asked| {
            // Even if more is reserved than there is: a writer that needs no more space is not refused.
            let fits = blocks == 0 || self.census(moment, asked).available() - left >= blocks;
            self.reservations.add(if fits { blocks } else { 0 });
            fits
        });
        is_reserved.then(|| Reservation::of(&self.reservations, blocks))
    }

    /// Whether there is space for one more node.
    pub(crate) fn may_trees_grow(&self) -> bool {
        self.at_one_moment(|moment, asked| self.census(moment, asked + 1).available() >= 0)
    }

    /// Calls `see` with the zone table at one moment, and with the number of nodes that transactions have reserved at
    /// that moment. No transaction reserves more while `see` runs.
    fn at_one_moment<T>(&self, see: impl FnOnce(&Moment<'_>, u64) -> T) -> T {
        let pool = self.maps.pool();
        pool.at_one_moment(|moment| see(&moment, self.maps.store().nodes_reserved()))
    }

    /// Blocks that are not available while transactions make this number of nodes.
    fn blocks_to_grow_by(&self, shape: &Shape, nodes: i64) -> i64 {
        shape.with_garbage(nodes * i64::from(self.maps.pool().page_blocks()))
    }

    /// Reserves blocks for a writer that overwrites a part of an object. Blocks that the object has there need not be
    /// available twice. Call with no map lock.
    pub(crate) fn reserve_over(&self, object: Object, start: u64, blocks: u64) -> Result<Reservation> {
        match self.reserve(blocks) {
            Err(ExtentError::NoSpace) => {}
            reserved => return reserved,
        }
        let owned = self.blocks_occupied(object, start, blocks)?;
        let limit = self.shape().overwrite_reserve();
        if owned == 0 || owned > limit {
            return Err(ExtentError::NoSpace);
        }
        assert!(owned <= blocks, "no more blocks are overwritten than written");
        let mut reservation = self.reserve(blocks - owned)?;
        reservation.take_overwrite_reserve(owned as i64, limit as i64);
        Ok(reservation)
    }

    /// How many of these blocks the object has in zones or has preallocated. An overwrite frees this number of blocks.
    /// Blocks of another object that only this object refers to count too.
    pub(crate) fn blocks_occupied(&self, object: Object, start: u64, blocks: u64) -> Result<u64> {
        let own = self.maps.count_blocks(object, start, blocks, Extent::holds_space)?;
        // The object may have lost a block to another object between the two calls. The block counts once.
        Ok((own + self.maps.blocks_of_others_alone(object, (start, start + blocks))?).min(blocks))
    }

    /// The values that the reserve depends on.
    fn shape(&self) -> Shape {
        self.at_one_moment(|moment, _| self.shape_at(moment))
    }

    fn shape_at(&self, moment: &Moment<'_>) -> Shape {
        let pool = self.maps.pool();
        let (count, info) = (u64::from(moment.count()), self.maps.store().info());
        let zone_blocks_mean = ((moment.sums().raw + count / 2) / count) as Blocks;
        let reserved_zones = pool.reserved_from_data_max();
        let shape = Shape::new(self.maps.device().geometry(), info.page_size, info.groups, reserved_zones);
        Shape { zone_blocks_mean, ..shape }
    }

    /// How space is used while transactions have reserved this number of nodes.
    fn census(&self, moment: &Moment<'_>, nodes: u64) -> Census {
        self.count_space(moment, nodes).2
    }

    fn reported(&self, moment: &Moment<'_>, nodes: u64) -> Reported {
        let (shape, counts, census) = self.count_space(moment, nodes);
        let reserve_with_more_names =
            shape.reserve_in_blocks(&shape.with_more_names(&counts), self.maps.store().info().reserve);
        Reported { census, reserve_with_more_names }
    }

    /// The census, and the values from which it is computed.
    fn count_space(&self, moment: &Moment<'_>, nodes: u64) -> (Shape, BlockCounts, Census) {
        // A read-only mount opens no zone. It reports what a writable mount would report.
        let opens_zones = !matches!(self.maps.store().writable(), Err(StoreError::ReadOnly));
        let sums = moment.sums();
        let (live, capacity) = (sums.live as i64, sums.data_capacity as i64);
        // The blocks of a zone that went offline are lost, and take no space from others.
        let mut census = Census { live, capacity, payload: sums.live_offline as i64, ..Census::default() };
        let mut counts = BlockCounts { raw: sums.raw as i64, live, ..BlockCounts::default() };
        for (&capacity, uses) in &sums.by_capacity {
            let of = |zones: u32| i64::from(self.maps.packing().payload(capacity)) * i64::from(zones);
            census.total += of(uses.of_use);
            census.payload += of(uses.data) + of(if opens_zones { uses.free } else { uses.unused });
            // Zones may differ in size, and metadata may be in the small ones.
            counts.metadata_payload += of(uses.metadata);
        }
        census.unwritten = moment.counter(UNWRITTEN_BLOCKS) as i64;
        census.reserved = self.reservations.reserved() + census.unwritten;
        let (metadata, names) = self
            .maps
            .store()
            .blocks_of_nodes()
            .unwrap_or_else(|| (self.maps.store().metadata_blocks_at(moment), 0));
        (counts.metadata, counts.names, counts.payload) = (metadata as i64, names as i64, census.payload);
        let shape = self.shape_at(moment);
        census.reserve = shape.reserve_in_blocks(&counts, self.maps.store().info().reserve);
        census.for_nodes = self.blocks_to_grow_by(&shape, nodes as i64);
        (shape, counts, census)
    }

    fn census_now(&self) -> Census {
        self.at_one_moment(|moment, asked| self.census(moment, asked))
    }

    /// The used and the available space.
    pub fn space(&self) -> Space {
        let pool = self.maps.pool();
        let reported = self.at_one_moment(|moment, asked| self.reported(moment, asked));
        let census = &reported.census;
        let metadata = self.maps.store().metadata_blocks() as i64;
        let pending = census.reserved - census.unwritten;
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.maps.block_size());
        Space {
            block_size: self.maps.block_size(),
            total: bytes(census.total),
            available: bytes(reported.available()),
            live: bytes(census.live),
            pending: bytes(pending),
            unwritten: bytes(census.unwritten),
            reserved: bytes(reported.reserve_of_total()),
            metadata: bytes(metadata),
            free_zones: pool.free(),
        }
    }

    /// Bytes that can be reserved now. The reported available space is less: it leaves out what more names may take.
    pub fn bytes_left(&self) -> u64 {
        self.census_now().unreserved().max(0) as u64 * u64::from(self.maps.block_size())
    }

    /// Blocks of data zones and free zones that are neither live nor reserved.
    pub(crate) fn blocks_unused(&self) -> i64 {
        let census = self.census_now();
        census.payload - census.live - census.reserved
    }

    /// Blocks of data zones that are neither live nor reserved by writers, written or not.
    pub(crate) fn blocks_not_live(&self) -> i64 {
        let census = self.census_now();
        census.capacity - census.live - (census.reserved - census.unwritten)
    }

    #[cfg(test)]
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }
}

impl Growth for Budget {
    fn may_grow(&self, moment: &Moment<'_>, asked: u64) -> bool {
        self.census(moment, asked).available() >= 0
    }
}

#[cfg(test)]
mod tests;
