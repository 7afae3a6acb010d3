//! How much can be written, and promising it to writers.
//!
//! What is offered is what garbage collection can always deliver: each data zone takes its worst-case
//! payload, whatever lives in it, so that what is offered depends on how much was written and not on
//! how: exactly that much can be written, and stays writable in any order. Of all zones those kept for
//! metadata and for garbage collection are left out, and one more, because compacted data end somewhere
//! in the middle of a zone.
//! Left out are also the zones that the object map will need once data is everywhere, each block an
//! extent of its own, as far as metadata has not taken them already: so the promise does not shrink
//! while metadata grows.
//!
//! Names and small files make trees grow too, and pay from the same sum: a transaction reserves the nodes that it is about
//! to make. Where metadata already takes more than the object map could, what it takes now counts, and
//! an eighth of that which cleaning needs to be dead. So neither data nor names ever take what was promised to
//! the other, and what only changes or frees metadata needs no reservation.
//!
//! The available space is not stored. It is computed from the sums of the zone table and from the reserved blocks. Each
//! reservation computes it under the lock of the table. A transaction that inserts reserved blocks spends its reservation
//! under the same lock, in the moment in which it takes effect. So each block counts exactly once: a block that counted
//! twice would cause a refusal although there is space, and a block that did not count would be promised twice. Blocks
//! that garbage collection moves count once too.
//!
//! Writing over what is there takes no more space in the end, but for a moment both are there. Where the
//! space does not cover that, the part that is written over comes from the *slack*, which is left out
//! of what is offered and goes round among writers: who finds too little waits for others, who hold no
//! lock that it has and give it back when they have inserted. More than all of it is refused; the caller
//! writes in smaller pieces.

use std::sync::Arc;

use rt::sync::atomic::{AtomicI64, Ordering};
use rt::sync::{Condvar, Mutex};
use tree::{Growth, Moment, Reserved, StoreError, Tx};
use zone::{Blocks, Role, ZoneId};

use crate::format::{Extent, UNWRITTEN_BLOCKS};
use crate::gc::{Aim, Progress};
use crate::map::View;
use crate::patience::Patience;
use crate::reserve::{Found, Shape};
use crate::{ExtentError, Extents, Object, Result};

/// What `statfs` and `polder stats` show, in bytes.
///
/// Of `total` each byte is `kept`, or is `live`, `pending` or `unwritten`, or is `available`. What has died is in none of
/// these by itself: garbage collection wins it back, so it is part of what is available and of what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of all zones, as far as data can ever use them.
    pub total: u64,
    /// The largest single file that can be written now.
    pub available: u64,
    /// Bytes of extents.
    pub live: u64,
    /// Bytes promised to writers or written and not yet inserted.
    pub pending: u64,
    /// Bytes that files keep and have not written.
    pub unwritten: u64,
    /// Bytes that files cannot have, whatever they give up: zones of the log and of metadata, what these may come to need
    /// when all that is offered is written, what garbage collection needs, the reserve, and zones that cannot be written any
    /// more.
    /// Where nothing is available, more may have been promised than they leave.
    pub kept: u64,
    /// Bytes that live metadata takes.
    pub metadata: u64,
    /// Zones that can be opened at once.
    pub free_zones: u32,
}

/// Zones that must be left over where a promise may be kept for long.
const PLENTY: i64 = 2;
/// Zones of metadata that a writer in need has cleaned before it gives up.
const CLEANED_MAX: usize = 64;

/// What is promised to writers.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Reserved blocks that are neither inserted nor returned. They increase only under the lock of the zone table. A leaf
    /// lock.
    reserved: Mutex<i64>,
    /// Blocks of slack in use.
    overdrawn: Mutex<i64>,
    /// Some slack was given back.
    returned: Condvar,
}

/// What is left of a promise.
#[derive(Debug)]
struct Promised {
    promises: Arc<Promises>,
    /// Changed under the lock of what is reserved.
    left: AtomicI64,
}

impl Promised {
    fn give_back(&self, most: i64) {
        let mut reserved = self.promises.reserved.lock();
        let left = self.left.load(Ordering::Relaxed);
        let blocks = most.min(left);
        self.left.store(left - blocks, Ordering::Relaxed);
        *reserved -= blocks;
        assert!(*reserved >= 0, "a reservation is returned once");
    }
}

/// A part of a promise that a transaction keeps.
#[derive(Debug)]
struct Part {
    promised: Arc<Promised>,
    blocks: i64,
}

impl Reserved for Part {
    fn spend(&self) {
        self.promised.give_back(self.blocks);
    }
}

/// Blocks promised to a writer. Those that a transaction inserts are promised no more from the moment at
/// which it takes effect; the rest is given back when this is dropped.
pub(crate) struct Reservation {
    promised: Arc<Promised>,
    /// Blocks from the slack.
    slack: i64,
}

impl Reservation {
    /// These blocks are counted as reserved already.
    fn of(promises: &Arc<Promises>, blocks: i64) -> Self {
        let promised = Promised { promises: Arc::clone(promises), left: AtomicI64::new(blocks) };
        Reservation { promised: Arc::new(promised), slack: 0 }
    }

    /// The transaction inserts all that was promised.
    pub(crate) fn kept_by(&self, tx: &mut Tx) {
        self.part_kept_by(tx, i64::MAX as u64);
    }

    /// The transaction inserts so many of the blocks.
    pub(crate) fn part_kept_by(&self, tx: &mut Tx, blocks: u64) {
        tx.spends(Arc::new(Part { promised: Arc::clone(&self.promised), blocks: blocks as i64 }));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.promised.give_back(i64::MAX);
        if self.slack > 0 {
            let promises = &self.promised.promises;
            *promises.overdrawn.lock() -= self.slack;
            if !rt::is_planted("break-returned") {
                promises.returned.notify_all();
            }
        }
    }
}

/// How space is used at one moment, in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    /// What all zones take, whatever they are for.
    total: i64,
    /// Of this, what data and free zones take.
    payload: i64,
    /// Live blocks in data zones.
    live: i64,
    /// What was or can be written in data zones.
    capacity: i64,
    /// Of what data and free zones take, what is left out.
    kept: i64,
    /// What is promised: to writers, and to files for what is unwritten.
    reserved: i64,
    /// Of these, what is unwritten.
    unwritten: i64,
    /// The blocks of the nodes that transactions have reserved, and their garbage.
    allowed: i64,
}

impl Census {
    /// Blocks that can be promised if no tree grows; negative if more is promised than there is.
    fn offered(&self) -> i64 {
        self.payload - self.kept - self.live - self.reserved
    }

    /// Blocks that can be promised beside the reserved nodes.
    fn available(&self) -> i64 {
        self.offered() - self.allowed
    }
}

/// A census, and the blocks that would be kept if names took a little more.
struct Shown {
    census: Census,
    kept_for_more: i64,
}

impl Shown {
    /// Blocks that are kept from what is shown: as many as names may come to take, as far as writers have left them.
    fn left_out(&self) -> i64 {
        let Census { kept, .. } = self.census;
        self.kept_for_more.min(kept + self.census.offered()).max(kept)
    }

    /// Blocks that a file can have, whatever nodes writing it takes for its name.
    fn shown(&self) -> i64 {
        self.census.offered() - (self.left_out() - self.census.kept)
    }

    /// Blocks that are not shown and hold no data; less than none only where more than that is lost with its zones.
    fn kept_of_total(&self) -> i64 {
        self.census.total - self.census.payload + self.left_out()
    }
}

impl Extents {
    /// Promises blocks to a writer.
    pub(crate) fn reserve(&self, blocks: u64) -> Result<Reservation> {
        self.reserve_leaving(blocks, 0).ok_or(ExtentError::NoSpace)
    }

    /// Promises blocks to a writer who may keep them for long without inserting, while others hold what he waits
    /// for: only where zones are left over.
    pub(crate) fn reserve_of_plenty(&self, blocks: u64) -> Option<Reservation> {
        self.reserve_leaving(blocks, PLENTY * i64::from(self.device.geometry().zone_blocks))
    }

    /// Promises blocks where at least `left` more are available.
    fn reserve_leaving(&self, blocks: u64, left: i64) -> Option<Reservation> {
        let blocks = i64::try_from(blocks).ok()?;
        let is_promised = self.at_one_moment(|moment, asked| {
            // Also where more was promised than there is: a writer that has its space already needs none.
            let fits = blocks == 0 || self.census(moment, asked).available() - left >= blocks;
            *self.promises.reserved.lock() += if fits { blocks } else { 0 };
            fits
        });
        is_promised.then(|| Reservation::of(&self.promises, blocks))
    }

    /// Whether there is room for a node more.
    pub(crate) fn may_trees_grow(&self) -> bool {
        self.at_one_moment(|moment, asked| self.census(moment, asked + 1).available() >= 0)
    }

    /// Shows the zone table at one moment, and the number of nodes that transactions have reserved at that moment. No
    /// transaction reserves more while `see` runs.
    fn at_one_moment<T>(&self, see: impl FnOnce(&Moment<'_>, u64) -> T) -> T {
        let pool = self.store.pool();
        pool.at_one_moment(|moment| see(&moment, self.store.nodes_reserved()))
    }

    /// Blocks that are not available while transactions make this number of nodes.
    fn blocks_to_grow_by(&self, shape: &Shape, nodes: i64) -> i64 {
        shape.with_garbage(nodes * i64::from(self.store.pool().page_blocks()))
    }

    /// Promises blocks to a writer who writes over some of an object: what it has there already need not
    /// be had twice. Call with no map lock.
    pub(crate) fn reserve_over(&self, object: Object, start: u64, blocks: u64) -> Result<Reservation> {
        match self.reserve(blocks) {
            Err(ExtentError::NoSpace) => {}
            reserved => return reserved,
        }
        let held = self.blocks_held(object, start, blocks)?;
        let slack = self.shape().slack();
        if held == 0 || held > slack {
            return Err(ExtentError::NoSpace);
        }
        let mut reservation = self.reserve(blocks - held)?;
        let (held, slack) = (held as i64, slack as i64);
        let mut overdrawn = self.promises.overdrawn.lock();
        while *overdrawn + held > slack {
            self.promises.returned.wait(&mut overdrawn);
        }
        *overdrawn += held;
        reservation.slack = held;
        Ok(reservation)
    }

    /// How many of these blocks the object has in zones, or has space kept for: what comes in their place gives as
    /// many back. Blocks of others to which nobody else refers go with the reference.
    pub(crate) fn blocks_held(&self, object: Object, start: u64, blocks: u64) -> Result<u64> {
        let held = self.count_blocks(object, start, blocks, Extent::holds_space)?;
        // Between the two a block may have become another's: it counts once.
        Ok((held + self.blocks_of_others_alone(object, (start, start + blocks))?).min(blocks))
    }

    /// How many of these blocks the object has in such extents.
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

    /// What decides how much is kept from data.
    fn shape(&self) -> Shape {
        self.at_one_moment(|moment, _| self.shape_at(moment))
    }

    fn shape_at(&self, moment: &Moment<'_>) -> Shape {
        let pool = self.store.pool();
        let (count, info) = (u64::from(moment.count()), self.store.info());
        let zone_blocks_mean = ((moment.sums().raw + count / 2) / count) as Blocks;
        let left_free = pool.reserved_from_data_max();
        let shape = Shape::new(self.device.geometry(), info.page_size, info.groups, left_free);
        Shape { zone_blocks_mean, ..shape }
    }

    /// How space is used while transactions have reserved this number of nodes.
    fn census(&self, moment: &Moment<'_>, nodes: u64) -> Census {
        self.find(moment, nodes).2
    }

    fn shown(&self, moment: &Moment<'_>, nodes: u64) -> Shown {
        let (shape, found, census) = self.find(moment, nodes);
        let kept_for_more = shape.kept(&shape.with_more_names(&found), self.store.info().reserve);
        Shown { census, kept_for_more }
    }

    /// The census, and what it follows from.
    fn find(&self, moment: &Moment<'_>, nodes: u64) -> (Shape, Found, Census) {
        // Who only reads opens no zone; what is told is what a writer would find.
        let opens_zones = !matches!(self.store.writable(), Err(StoreError::ReadOnly));
        let sums = moment.sums();
        let (live, capacity) = (sums.live as i64, sums.data_capacity as i64);
        // The blocks of a zone that went offline are lost, and take no space from others.
        let mut census = Census { live, capacity, payload: sums.live_offline as i64, ..Census::default() };
        let mut found = Found { raw: sums.raw as i64, live, ..Found::default() };
        for (&capacity, uses) in &sums.by_capacity {
            let of = |zones: u32| i64::from(self.packing.payload(capacity)) * i64::from(zones);
            census.total += of(uses.of_use);
            census.payload += of(uses.data) + of(if opens_zones { uses.free } else { uses.unused });
            // Zones need not be alike, and metadata may be in the small ones.
            found.metadata_payload += of(uses.metadata);
        }
        census.unwritten = moment.counter(UNWRITTEN_BLOCKS) as i64;
        census.reserved = *self.promises.reserved.lock() + census.unwritten;
        let (metadata, names) =
            self.store.blocks_of_nodes().unwrap_or_else(|| (self.store.metadata_blocks_at(moment), 0));
        (found.metadata, found.names, found.payload) = (metadata as i64, names as i64, census.payload);
        let shape = self.shape_at(moment);
        census.kept = shape.kept(&found, self.store.info().reserve);
        census.allowed = self.blocks_to_grow_by(&shape, nodes as i64);
        (shape, found, census)
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
        let shown = self.at_one_moment(|moment, asked| self.shown(moment, asked));
        let census = &shown.census;
        let metadata = self.store.metadata_blocks() as i64;
        let pending = census.reserved - census.unwritten;
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.block_size());
        Space {
            block_size: self.block_size(),
            total: bytes(census.total),
            available: bytes(shown.shown()),
            live: bytes(census.live),
            pending: bytes(pending),
            unwritten: bytes(census.unwritten),
            kept: bytes(shown.kept_of_total()),
            metadata: bytes(metadata),
            free_zones: pool.free(),
        }
    }

    /// Bytes that writers can have as names are now. What is shown as available leaves out what these may take.
    pub fn bytes_left(&self) -> u64 {
        self.census_now().offered().max(0) as u64 * u64::from(self.block_size())
    }

    /// Blocks of zones of data in which nothing lives and nothing will be written before they are reset: what has died,
    /// what the zones have of their own, and the rest of those that were closed before they were full. Not what open
    /// zones can still take. Waits for a piece of garbage collection: call with no map lock.
    pub fn dead_blocks(&self) -> u64 {
        let mut room = self.gc.lock().target().map_or(0, |open| i64::from(open.lease.free_blocks()));
        room += self.placement.room();
        let census = self.census_now();
        let taken = census.live + census.reserved - census.unwritten;
        u64::try_from(census.capacity - taken - room).unwrap_or(0)
    }

    /// Whether data can have no zone now.
    pub(crate) fn is_out_of_zones(&self) -> bool {
        self.store.pool().free() <= self.store.pool().reserved_from(Role::Data)
    }

    /// Wins back a zone when metadata has taken one of those that are kept for it, and garbage collection gives none
    /// back. Call before taking the locks of any operation that may make metadata grow.
    pub fn admit(&self) -> Result<()> {
        let pool = self.store.pool();
        self.win_back_while(|| pool.free_or_outstanding() < self.store.zones_needed_to_grow())
    }

    /// Wins back all of them, for an operation that has found no space without; whether any were lacking, and none is.
    pub fn win_back(&self) -> Result<bool> {
        let pool = self.store.pool();
        let lacks = || pool.free() < self.store.zones_needed_to_grow();
        if !lacks() {
            return Ok(false);
        }
        self.win_back_while(lacks)?;
        Ok(!lacks())
    }

    fn win_back_while(&self, lacks: impl Fn() -> bool) -> Result<()> {
        if !lacks() {
            return Ok(());
        }
        // What has died may only lack its reset.
        self.reset_while(&lacks, self.store.resets_over())?;
        if !lacks() {
            return Ok(());
        }
        let mut gc = self.gc.lock();
        while lacks() {
            let over = self.store.resets_over();
            let progress = self.collect(&mut gc, Aim::Zone)?;
            if progress == Progress::Moved {
                continue;
            }
            // One zone may not be all that is lacking; and one that was won may be what there was none to move to.
            if !self.reset_while(&lacks, over)? && progress == Progress::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Resets as many zones as are lacking, or as can be; whether one was since so many were over.
    fn reset_while(&self, lacks: impl Fn() -> bool, mut over: u64) -> Result<bool> {
        let mut won = false;
        while lacks() && self.store.reclaim_one(over)? {
            (won, over) = (true, self.store.resets_over());
        }
        Ok(won)
    }

    /// Makes a zone free for data, by resets or by collecting garbage; false when there is nothing to
    /// be won any more, and none was reset since so many were over, or when patience is at an end.
    pub(crate) fn make_room(&self, patience: &mut Patience, over: u64) -> Result<bool> {
        let over = patience.since(&self.store, over);
        Ok(self.try_to_make_room(patience, over)? && patience.lasts(&self.store))
    }

    /// Whether to look again: room was made, or something has happened by which there may be some.
    fn try_to_make_room(&self, patience: &mut Patience, over: u64) -> Result<bool> {
        // Metadata can do without what it was left so that less is moved: the writer waits.
        if self.store.reclaim_one(over)? || self.store.pool().lower_metadata_target() {
            return Ok(true);
        }
        let mut gc = self.gc.lock();
        if !self.is_out_of_zones() {
            return Ok(true);
        }
        let were_held = self.store.pool().is_announced();
        let worked = self.evacuate(&mut gc)?;
        if worked {
            // Though what was emptied may still be read, or hold a block that cannot be.
            *patience = Patience::default();
        }
        self.throttle.forgive();
        drop(gc);
        let won = self.store.reclaim_one(over)? || worked || self.clean_metadata()?;
        // What a checkpoint needed has been given back when it was waited for; and somebody else may have won a zone.
        let is_over = self.store.resets_over() != over;
        Ok(won || is_over || were_held && !self.store.pool().is_announced() || !self.is_out_of_zones())
    }

    /// Has the store clean its own zones, which may have taken the one that garbage collection needs;
    /// false when that frees none.
    fn clean_metadata(&self) -> Result<bool> {
        let before = self.store.pool().free();
        for _ in 0..CLEANED_MAX {
            if !self.store.collect_garbage()? || self.store.pool().free() > before {
                break;
            }
        }
        // Somebody else may have won them.
        Ok(self.store.pool().free() > before)
    }

    /// Blocks of fresh data that a zone takes at worst.
    pub(crate) fn payload_of(&self, zone: ZoneId) -> Blocks {
        self.packing.payload(self.store.pool().capacity(zone))
    }

    /// Commits what garbage collection or writeback changed, if anything.
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
