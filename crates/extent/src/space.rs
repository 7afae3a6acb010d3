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

use rt::sync::atomic::{AtomicI64, Ordering};
use rt::sync::{Condvar, Mutex};
use tree::{Growth, Moment, Reserved, StoreError, Tx};
use zone::{Blocks, Role, ZoneId};

use crate::format::{Extent, UNWRITTEN_BLOCKS};
use crate::gc::{Goal, Progress};
use crate::map::View;
use crate::reserve::{BlockCounts, Shape};
use crate::retry_limit::RetryLimit;
use crate::{ExtentError, Extents, Object, Result};

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
/// GC of metadata victims that a writer without a zone asks for before it gives up.
const METADATA_GC_MAX: usize = 64;

/// Counts the blocks that are reserved for writers.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Reserved blocks that are neither inserted nor returned. They increase only under the lock of the zone table. A leaf
    /// lock.
    reserved: Mutex<i64>,
    /// Blocks of the overwrite reserve that are in use.
    overwriting: Mutex<i64>,
    /// Blocks of the overwrite reserve were returned.
    returned: Condvar,
}

/// The part of a reservation that is neither spent nor returned.
#[derive(Debug)]
struct Unspent {
    reservations: Arc<Reservations>,
    /// In blocks. Changed under the lock of `reserved`.
    left: AtomicI64,
}

impl Unspent {
    fn release(&self, most: i64) {
        let mut reserved = self.reservations.reserved.lock();
        let left = self.left.load(Ordering::Relaxed);
        let blocks = most.min(left);
        self.left.store(left - blocks, Ordering::Relaxed);
        *reserved -= blocks;
        assert!(*reserved >= 0, "a reservation is returned once");
    }
}

/// The part of a reservation that a transaction spends.
#[derive(Debug)]
struct ReservedPart {
    unspent: Arc<Unspent>,
    blocks: i64,
}

impl Reserved for ReservedPart {
    fn spend(&self) {
        self.unspent.release(self.blocks);
    }
}

/// Blocks that are reserved for a writer. A transaction that inserts some of them spends them in the moment in which it
/// takes effect. Drop returns the rest.
pub(crate) struct Reservation {
    unspent: Arc<Unspent>,
    /// Blocks of the overwrite reserve.
    of_overwrite_reserve: i64,
}

impl Reservation {
    /// Of blocks that are already counted as reserved.
    fn of(reservations: &Arc<Reservations>, blocks: i64) -> Self {
        let unspent = Unspent { reservations: Arc::clone(reservations), left: AtomicI64::new(blocks) };
        Reservation { unspent: Arc::new(unspent), of_overwrite_reserve: 0 }
    }

    /// The transaction inserts all reserved blocks.
    pub(crate) fn spend_in(&self, tx: &mut Tx) {
        self.spend_part_in(tx, i64::MAX as u64);
    }

    /// The transaction inserts this number of the reserved blocks.
    pub(crate) fn spend_part_in(&self, tx: &mut Tx, blocks: u64) {
        tx.spends(Arc::new(ReservedPart { unspent: Arc::clone(&self.unspent), blocks: blocks as i64 }));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.unspent.release(i64::MAX);
        if self.of_overwrite_reserve > 0 {
            let reservations = &self.unspent.reservations;
            *reservations.overwriting.lock() -= self.of_overwrite_reserve;
            if !rt::is_planted("break-returned") {
                reservations.returned.notify_all();
            }
        }
    }
}

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

impl Extents {
    /// Reserves blocks for a writer.
    pub(crate) fn reserve(&self, blocks: u64) -> Result<Reservation> {
        self.reserve_leaving(blocks, 0).ok_or(ExtentError::NoSpace)
    }

    /// Reserves blocks for a writer that may hold them for long without inserting, while other threads hold a lock that
    /// it waits for. So a few zones must remain available.
    pub(crate) fn reserve_for_long(&self, blocks: u64) -> Option<Reservation> {
        self.reserve_leaving(blocks, LONG_RESERVATION_ZONES * i64::from(self.device.geometry().zone_blocks))
    }

    /// Reserves blocks if at least `left` more are available.
    fn reserve_leaving(&self, blocks: u64, left: i64) -> Option<Reservation> {
        let blocks = i64::try_from(blocks).ok()?;
        let is_reserved = self.at_one_moment(|moment, asked| {
            // Even if more is reserved than there is: a writer that needs no more space is not refused.
            let fits = blocks == 0 || self.census(moment, asked).available() - left >= blocks;
            *self.reservations.reserved.lock() += if fits { blocks } else { 0 };
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
        let pool = self.store.pool();
        pool.at_one_moment(|moment| see(&moment, self.store.nodes_reserved()))
    }

    /// Blocks that are not available while transactions make this number of nodes.
    fn blocks_to_grow_by(&self, shape: &Shape, nodes: i64) -> i64 {
        shape.with_garbage(nodes * i64::from(self.store.pool().page_blocks()))
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
        let mut reservation = self.reserve(blocks - owned)?;
        let (owned, limit) = (owned as i64, limit as i64);
        let mut overwriting = self.reservations.overwriting.lock();
        while *overwriting + owned > limit {
            self.reservations.returned.wait(&mut overwriting);
        }
        *overwriting += owned;
        reservation.of_overwrite_reserve = owned;
        Ok(reservation)
    }

    /// How many of these blocks the object has in zones or has preallocated. An overwrite frees this number of blocks.
    /// Blocks of another object that only this object refers to count too.
    pub(crate) fn blocks_occupied(&self, object: Object, start: u64, blocks: u64) -> Result<u64> {
        let own = self.count_blocks(object, start, blocks, Extent::holds_space)?;
        // The object may have lost a block to another object between the two calls. The block counts once.
        Ok((own + self.blocks_of_others_alone(object, (start, start + blocks))?).min(blocks))
    }

    /// How many of these blocks the object has in extents for which `is_counted` returns true.
    pub(crate) fn count_blocks(
        &self,
        object: Object,
        start: u64,
        blocks: u64,
        is_counted: impl Fn(&Extent) -> bool,
    ) -> Result<u64> {
        let _shared = self.map_of(object).read();
        let view = View::load(&self.store, object, (start, start + blocks), usize::MAX)?;
        let within = |at: u64, length: u64| (at + length).min(start + blocks).saturating_sub(at.max(start));
        let taken = view.extents().filter(|(_, extent)| is_counted(extent));
        Ok(taken.map(|(at, extent)| within(at, u64::from(extent.blocks))).sum())
    }

    /// The values that the reserve depends on.
    fn shape(&self) -> Shape {
        self.at_one_moment(|moment, _| self.shape_at(moment))
    }

    fn shape_at(&self, moment: &Moment<'_>) -> Shape {
        let pool = self.store.pool();
        let (count, info) = (u64::from(moment.count()), self.store.info());
        let zone_blocks_mean = ((moment.sums().raw + count / 2) / count) as Blocks;
        let reserved_zones = pool.reserved_from_data_max();
        let shape = Shape::new(self.device.geometry(), info.page_size, info.groups, reserved_zones);
        Shape { zone_blocks_mean, ..shape }
    }

    /// How space is used while transactions have reserved this number of nodes.
    fn census(&self, moment: &Moment<'_>, nodes: u64) -> Census {
        self.count_space(moment, nodes).2
    }

    fn reported(&self, moment: &Moment<'_>, nodes: u64) -> Reported {
        let (shape, counts, census) = self.count_space(moment, nodes);
        let reserve_with_more_names =
            shape.reserve_in_blocks(&shape.with_more_names(&counts), self.store.info().reserve);
        Reported { census, reserve_with_more_names }
    }

    /// The census, and the values from which it is computed.
    fn count_space(&self, moment: &Moment<'_>, nodes: u64) -> (Shape, BlockCounts, Census) {
        // A read-only mount opens no zone. It reports what a writable mount would report.
        let opens_zones = !matches!(self.store.writable(), Err(StoreError::ReadOnly));
        let sums = moment.sums();
        let (live, capacity) = (sums.live as i64, sums.data_capacity as i64);
        // The blocks of a zone that went offline are lost, and take no space from others.
        let mut census = Census { live, capacity, payload: sums.live_offline as i64, ..Census::default() };
        let mut counts = BlockCounts { raw: sums.raw as i64, live, ..BlockCounts::default() };
        for (&capacity, uses) in &sums.by_capacity {
            let of = |zones: u32| i64::from(self.packing.payload(capacity)) * i64::from(zones);
            census.total += of(uses.of_use);
            census.payload += of(uses.data) + of(if opens_zones { uses.free } else { uses.unused });
            // Zones may differ in size, and metadata may be in the small ones.
            counts.metadata_payload += of(uses.metadata);
        }
        census.unwritten = moment.counter(UNWRITTEN_BLOCKS) as i64;
        census.reserved = *self.reservations.reserved.lock() + census.unwritten;
        let (metadata, names) =
            self.store.blocks_of_nodes().unwrap_or_else(|| (self.store.metadata_blocks_at(moment), 0));
        (counts.metadata, counts.names, counts.payload) = (metadata as i64, names as i64, census.payload);
        let shape = self.shape_at(moment);
        census.reserve = shape.reserve_in_blocks(&counts, self.store.info().reserve);
        census.for_nodes = self.blocks_to_grow_by(&shape, nodes as i64);
        (shape, counts, census)
    }

    /// The number of zones that should be open for user writes.
    pub(crate) fn count_open_wanted(&self) -> usize {
        let census = self.census_now();
        self.open_zones_wanted(census.payload - census.live - census.reserved)
    }

    /// Whether user writes will soon wait for zones that need only be reset.
    pub(crate) fn are_resets_urgent(&self) -> bool {
        self.store.pool().dead_count() > 0 && (self.is_out_of_zones() || self.is_headroom_low())
    }

    fn census_now(&self) -> Census {
        self.at_one_moment(|moment, asked| self.census(moment, asked))
    }

    /// The used and the available space.
    pub fn space(&self) -> Space {
        let pool = self.store.pool();
        let reported = self.at_one_moment(|moment, asked| self.reported(moment, asked));
        let census = &reported.census;
        let metadata = self.store.metadata_blocks() as i64;
        let pending = census.reserved - census.unwritten;
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.block_size());
        Space {
            block_size: self.block_size(),
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
        self.census_now().unreserved().max(0) as u64 * u64::from(self.block_size())
    }

    /// Blocks of data zones that are neither live nor writable before the next reset: dead blocks, headers and
    /// summaries of zones, and the rest of zones that were closed before they were full. Free blocks of open zones do
    /// not count. Waits for a piece of GC: call with no map lock.
    pub fn dead_blocks(&self) -> u64 {
        let mut free_blocks = self.gc.lock().target().map_or(0, |open| i64::from(open.lease.free_blocks()));
        free_blocks += self.placement.free_blocks();
        let census = self.census_now();
        let taken = census.live + census.reserved - census.unwritten;
        u64::try_from(census.capacity - taken - free_blocks).unwrap_or(0)
    }

    /// Whether there is no zone that data may open now.
    pub(crate) fn is_out_of_zones(&self) -> bool {
        self.store.pool().free() <= self.store.pool().reserved_from(Role::Data)
    }

    /// Reclaims zones if metadata has taken one from its reserve and GC will not return it. Call before taking the
    /// locks of any operation that may make metadata grow.
    pub fn admit(&self) -> Result<()> {
        let pool = self.store.pool();
        self.reclaim_while(|| pool.free_or_outstanding() < self.store.zones_needed_to_grow())
    }

    /// Reclaims all of these zones, for an operation that has found no space. Returns true if zones were lacking, and
    /// none is lacking now.
    pub fn reclaim_for_growth(&self) -> Result<bool> {
        let pool = self.store.pool();
        let lacks = || pool.free() < self.store.zones_needed_to_grow();
        if !lacks() {
            return Ok(false);
        }
        self.reclaim_while(lacks)?;
        Ok(!lacks())
    }

    fn reclaim_while(&self, lacks: impl Fn() -> bool) -> Result<()> {
        if !lacks() {
            return Ok(());
        }
        // There may be zones without live blocks that only need a reset.
        self.reset_while(&lacks, self.store.resets_over())?;
        if !lacks() {
            return Ok(());
        }
        let mut gc = self.gc.lock();
        while lacks() {
            let over = self.store.resets_over();
            let progress = self.collect(&mut gc, Goal::OneZone)?;
            if progress == Progress::Moved {
                continue;
            }
            // More than one zone may be lacking. If GC has no target, it goes on after a reset.
            if !self.reset_while(&lacks, over)? && progress == Progress::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Resets as many zones as are lacking, or as can be reset. Returns whether a reset has ended after the `over`th.
    fn reset_while(&self, lacks: impl Fn() -> bool, mut over: u64) -> Result<bool> {
        let mut is_reset = false;
        while lacks() && self.store.reclaim_one(over)? {
            (is_reset, over) = (true, self.store.resets_over());
        }
        Ok(is_reset)
    }

    /// Frees a zone for data, by resets or by GC. Returns false if no zone can be reclaimed and no reset has ended
    /// after the `over`th, or if the retry limit is reached.
    pub(crate) fn free_a_zone(&self, retry_limit: &mut RetryLimit, over: u64) -> Result<bool> {
        let over = retry_limit.resets_to_exceed(&self.store, over);
        Ok(self.try_to_free_a_zone(retry_limit, over)? && retry_limit.allows_retry(&self.store))
    }

    /// Whether the caller should try again: a zone was freed, or an event may have freed one.
    fn try_to_free_a_zone(&self, retry_limit: &mut RetryLimit, over: u64) -> Result<bool> {
        // Metadata can do with fewer zones at the cost of more moves: a writer waits.
        if self.store.reclaim_one(over)? || self.store.pool().lower_metadata_target() {
            return Ok(true);
        }
        let mut gc = self.gc.lock();
        if !self.is_out_of_zones() {
            return Ok(true);
        }
        let was_announced = self.store.pool().is_announced();
        let worked = self.reclaim_victims(&mut gc)?;
        if worked {
            // The victim itself may not be free yet: it may be in use by a reader, or have an unreadable block.
            *retry_limit = RetryLimit::default();
        }
        self.throttle.forgive();
        drop(gc);
        let is_freed = self.store.reclaim_one(over)? || worked || self.collect_metadata()?;
        // Another thread may have waited for the checkpoint that had announced its need, or have freed a zone.
        let is_over = self.store.resets_over() != over;
        Ok(is_freed
            || is_over
            || was_announced && !self.store.pool().is_announced()
            || !self.is_out_of_zones())
    }

    /// Runs GC of metadata, which may have taken the zone that GC of data needs. Returns false if this frees no zone.
    fn collect_metadata(&self) -> Result<bool> {
        let before = self.store.pool().free();
        for _ in 0..METADATA_GC_MAX {
            if !self.store.collect_garbage()? || self.store.pool().free() > before {
                break;
            }
        }
        // Another thread may have freed them.
        Ok(self.store.pool().free() > before)
    }

    /// Blocks of user data that fit in the zone at worst.
    pub(crate) fn payload_of(&self, zone: ZoneId) -> Blocks {
        self.packing.payload(self.store.pool().capacity(zone))
    }

    /// Commits the changes of GC or of writeback, if there are any.
    pub(crate) fn commit_if_any(&self, tx: Tx) -> Result<()> {
        if !tx.is_empty() {
            self.store.commit(tx)?;
        }
        Ok(())
    }
}

impl Growth for Extents {
    fn may_grow(&self, moment: &Moment<'_>, asked: u64) -> bool {
        self.census(moment, asked).available() >= 0
    }
}

#[cfg(test)]
mod tests;
