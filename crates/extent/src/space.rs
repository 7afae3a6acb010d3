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
//! Names and small files make trees grow too, and pay from the same sum: trees may grow by an *allowance*
//! of nodes, which is taken out of what is offered like a promise and given back when somebody finds too
//! little. Where metadata already takes more than the object map could, what it takes now counts, and
//! an eighth of that which cleaning needs to be dead. So neither data nor names ever take what was promised to
//! the other, and what only changes or frees metadata never needs an allowance.
//!
//! A writer takes blocks from a budget that was counted at some moment and only goes down; who finds it
//! empty counts anew, over all zones, one at a time. So the hot path is one lock for a moment, and
//! whoever is refused was refused by a fresh count.
//!
//! Writing over what is there takes no more space in the end, but for a moment both are there. Where the
//! budget does not cover that, the part that is written over comes from the *slack*, which is left out
//! of what is offered and goes round among writers: who finds too little waits for others, who hold no
//! lock that it has and give it back when they have inserted. More than all of it is refused; the caller
//! writes in smaller pieces.
//!
//! A count sees one moment, in which each block is in one place. What is promised becomes live (or
//! unwritten) at the moment at which the transaction takes effect that inserts it: the transaction keeps the
//! promise. All zones and counters are looked at under the lock under which that happens, so blocks
//! that garbage collection moves meanwhile are neither counted twice (which would refuse what there is)
//! nor not at all (which would promise what there is not). While somebody counts, the budget is empty:
//! what is promised can only become less.

use std::sync::Arc;

use rt::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use rt::sync::{Condvar, Mutex};
use tree::{Growth, Promise, StoreError, Tx, ZoneNow};
use zone::{Blocks, Role, ZoneId, ZoneState};

use crate::format::{Extent, Packing, UNWRITTEN_BLOCKS};
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

/// Nodes that trees may grow by before it is counted again.
const ALLOWANCE: i64 = 64;
/// Zones that must be left over where a promise may be kept for long.
const PLENTY: i64 = 2;
/// Zones of metadata that a writer in need has cleaned before it gives up.
const CLEANED_MAX: usize = 64;

/// The budget and what is promised.
#[derive(Debug, Default)]
pub(crate) struct SpaceCounters {
    /// A leaf lock.
    promises: Mutex<Promises>,
    /// Held while somebody counts anew. Before the leaves.
    counting: Mutex<()>,
    /// Blocks of slack in use.
    overdrawn: Mutex<i64>,
    /// Some slack was given back.
    returned: Condvar,
    /// Blocks of a zone on the average when they were counted last; 0 before that.
    zone_blocks_mean: AtomicU32,
}

#[derive(Debug, Default)]
struct Promises {
    /// Blocks that may be promised without counting anew.
    budget: i64,
    /// Blocks promised and not yet inserted or given back.
    reserved: i64,
    /// How often the budget was said to be outdated.
    outdated: u64,
}

impl SpaceCounters {
    /// The count is no longer to be relied on, nor is one that is being made.
    pub(crate) fn outdated(&self) {
        let mut promises = self.promises.lock();
        promises.budget = 0;
        promises.outdated += 1;
    }

    /// Promises blocks from the budget, if it has `left` more than that.
    fn promise(self: &Arc<Self>, blocks: i64, left: i64) -> Option<Reservation> {
        let mut promises = self.promises.lock();
        if promises.budget - blocks < left {
            return None;
        }
        promises.budget -= blocks;
        promises.reserved += blocks;
        Some(Reservation::of(self, blocks))
    }
}

/// What is left of a promise.
#[derive(Debug)]
struct Promised {
    counters: Arc<SpaceCounters>,
    /// Changed under the lock of the promises.
    left: AtomicI64,
}

impl Promised {
    fn give_back(&self, most: i64) {
        let mut promises = self.counters.promises.lock();
        let left = self.left.load(Ordering::Relaxed);
        let blocks = most.min(left);
        self.left.store(left - blocks, Ordering::Relaxed);
        promises.reserved -= blocks;
        assert!(promises.reserved >= 0, "a reservation is returned once");
    }
}

/// A part of a promise that a transaction keeps.
#[derive(Debug)]
struct Part {
    promised: Arc<Promised>,
    blocks: i64,
}

impl Promise for Part {
    fn kept(&self) {
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
    fn of(counters: &Arc<SpaceCounters>, blocks: i64) -> Self {
        let promised = Promised { counters: Arc::clone(counters), left: AtomicI64::new(blocks) };
        Reservation { promised: Arc::new(promised), slack: 0 }
    }

    /// The transaction inserts all that was promised.
    pub(crate) fn kept_by(&self, tx: &mut Tx) {
        self.part_kept_by(tx, i64::MAX as u64);
    }

    /// The transaction inserts so many of the blocks.
    pub(crate) fn part_kept_by(&self, tx: &mut Tx, blocks: u64) {
        tx.keeps(Arc::new(Part { promised: Arc::clone(&self.promised), blocks: blocks as i64 }));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.promised.give_back(i64::MAX);
        if self.slack > 0 {
            let counters = &self.promised.counters;
            *counters.overdrawn.lock() -= self.slack;
            if !rt::is_planted("break-returned") {
                counters.returned.notify_all();
            }
        }
    }
}

/// A count over all zones, in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    /// What all zones take, whatever they are for.
    total: i64,
    /// Of this, what data and free zones take.
    payload: i64,
    /// What lives in data zones.
    live: i64,
    /// What was or can be written in data zones.
    capacity: i64,
    /// Of what data and free zones take, what is left out.
    kept: i64,
    /// The same if names come to take a little more.
    kept_for_more: i64,
    /// What is promised: to writers, and to files for what is unwritten.
    reserved: i64,
    /// Of these, what is unwritten.
    unwritten: i64,
    /// What trees may grow by.
    allowed: i64,
}

impl Census {
    /// Blocks that can be promised when trees are not to grow beside that; negative when too much is.
    fn offered(&self) -> i64 {
        self.payload - self.kept - self.live - self.reserved
    }

    /// Blocks that can be promised beside what trees may grow by.
    fn available(&self) -> i64 {
        self.offered() - self.allowed
    }

    /// Blocks that are kept from what is shown: as many as names may come to take, as far as writers have left them.
    fn left_out(&self) -> i64 {
        self.kept_for_more.min(self.kept + self.offered()).max(self.kept)
    }

    /// Blocks that a file can have, whatever nodes writing it takes for its name.
    fn shown(&self) -> i64 {
        self.offered() - (self.left_out() - self.kept)
    }

    /// Blocks that are not shown and hold no data; less than none only where more than that is lost with its zones.
    fn kept_of_total(&self) -> i64 {
        self.total - self.payload + self.left_out()
    }

    /// Adds what a zone takes and holds.
    fn add(&mut self, zone: &ZoneNow, is_free: bool, payload: Blocks) {
        let entry = zone.entry;
        if zone.is_of_use {
            self.total += i64::from(payload);
        }
        match entry.role {
            Role::Data | Role::Gc => {
                self.payload += match zone.info.state {
                    // What was there is gone, and takes nothing from the others.
                    ZoneState::Offline => i64::from(entry.live),
                    // What lives in a zone that is not written again goes elsewhere before long.
                    _ if !can_be_used_again(zone) => 0,
                    _ => i64::from(payload),
                };
                self.live += i64::from(entry.live);
                self.capacity += i64::from(zone.info.capacity);
            }
            Role::Free if is_free && can_be_used_again(zone) => self.payload += i64::from(payload),
            _ => {}
        }
    }
}

/// What zones take of data, for whoever walks over all of them: nearly all are as large as the one before.
struct Payloads {
    packing: Packing,
    capacity: Blocks,
    payload: Blocks,
}

impl Payloads {
    fn of(packing: Packing) -> Self {
        Payloads { packing, capacity: 0, payload: packing.payload(0) }
    }

    fn get(&mut self, capacity: Blocks) -> Blocks {
        if capacity != self.capacity {
            (self.capacity, self.payload) = (capacity, self.packing.payload(capacity));
        }
        self.payload
    }
}

impl Extents {
    /// Promises blocks to a writer.
    pub(crate) fn reserve(&self, blocks: u64) -> Result<Reservation> {
        let counters = &self.space;
        let blocks = i64::try_from(blocks).map_err(|_| ExtentError::NoSpace)?;
        if let Some(reservation) = counters.promise(blocks, 0) {
            return Ok(reservation);
        }
        let _counting = counters.counting.lock();
        // Whoever counted meanwhile may have left enough.
        if let Some(reservation) = counters.promise(blocks, 0) {
            return Ok(reservation);
        }
        // Before what is available: what is taken of it meanwhile counts as nodes there, or hides among few names.
        let allowed = self.store.zones().allowed_nodes() as i64;
        let available = self.count_anew(blocks);
        let with_allowed = available + self.blocks_to_grow_by(allowed);
        // Where that is not enough either it would be taken from the trees for nothing.
        if available < blocks && (with_allowed < blocks || !self.count_without_growth(blocks)) {
            return Err(ExtentError::NoSpace);
        }
        self.space.promises.lock().reserved += blocks;
        Ok(Reservation::of(counters, blocks))
    }

    /// Promises blocks to a writer who may keep them for long without inserting, while others hold what he waits
    /// for: only where zones are left over.
    pub(crate) fn reserve_of_plenty(&self, blocks: u64) -> Option<Reservation> {
        let left = PLENTY * i64::from(self.device.geometry().zone_blocks);
        self.space.promise(i64::try_from(blocks).ok()?, left)
    }

    /// Whether so many blocks were taken when trees may no longer grow: what they have not grown by is there as well then.
    fn count_without_growth(&self, blocks: i64) -> bool {
        self.store.zones().allow_no_nodes();
        self.count_anew(blocks) >= blocks
    }

    /// Counts what is available and takes so many blocks out of it, or nothing where there are fewer. The caller counts
    /// alone.
    fn count_anew(&self, blocks: i64) -> i64 {
        let mut found = 0;
        self.count_and_take(|available| {
            found = available;
            if available >= blocks { blocks } else { 0 }
        });
        found
    }

    /// Counts what is available and takes out of it what `part` says. The caller counts alone.
    fn count_and_take(&self, part: impl FnOnce(i64) -> i64) -> i64 {
        let outdated = {
            let mut promises = self.space.promises.lock();
            promises.budget = 0;
            promises.outdated
        };
        let available = self.census().available();
        let taken = part(available);
        let mut promises = self.space.promises.lock();
        promises.budget = if promises.outdated == outdated { (available - taken).max(0) } else { 0 };
        taken
    }

    /// Whether there is room for a node more.
    pub(crate) fn may_trees_grow(&self) -> bool {
        let zones = self.store.zones();
        if zones.allowed_nodes() == 0 {
            self.allow(1);
        }
        zones.allowed_nodes() > 0
    }

    /// What is taken out of what is offered when trees are allowed to grow by so many nodes.
    fn blocks_to_grow_by(&self, nodes: i64) -> i64 {
        self.shape().with_garbage(nodes * i64::from(self.store.zones().blocks_of_a_node()))
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
        let mut overdrawn = self.space.overdrawn.lock();
        while *overdrawn + held > slack {
            self.space.returned.wait(&mut overdrawn);
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
        let left_free = self.store.zones().kept_from_data_at_most();
        let info = self.store.info();
        let shape = Shape::new(self.device.geometry(), info.page_size, info.groups, left_free);
        match self.space.zone_blocks_mean.load(Ordering::Relaxed) {
            0 => shape,
            zone_blocks_mean => Shape { zone_blocks_mean, ..shape },
        }
    }

    fn census(&self) -> Census {
        let zones = self.store.zones();
        // Who only reads opens no zone; what is told is what a writer would find.
        let opens_zones = !matches!(zones.writable(), Err(StoreError::ReadOnly));
        let logs = zones.kept_for_log() as usize;
        // First: what trees grow by meanwhile is then counted twice rather than not at all.
        let allowed = zones.allowed_or_growing_nodes() as i64;
        let (metadata, names) = zones.blocks_of_nodes().unwrap_or_else(|| (zones.metadata_blocks(), 0));
        let (mut census, found) = zones.at_one_moment(|moment| {
            let unwritten = moment.counter(UNWRITTEN_BLOCKS) as i64;
            let reserved = self.space.promises.lock().reserved + unwritten;
            let mut census = Census { reserved, unwritten, ..Census::default() };
            let mut found = Found { metadata: metadata as i64, names: names as i64, ..Found::default() };
            let mut payloads = Payloads::of(self.packing);
            for (number, zone) in moment.zones().enumerate() {
                let is_free = if opens_zones { zone.is_free } else { number >= logs };
                found.raw += i64::from(zone.info.capacity);
                let payload = payloads.get(zone.info.capacity);
                // Zones need not be alike, and metadata may be in the small ones.
                if zone.entry.role == Role::Metadata && can_be_used_again(&zone) {
                    found.metadata_payload += i64::from(payload);
                }
                census.add(&zone, is_free, payload);
            }
            (census, found)
        });
        let found = Found { payload: census.payload, live: census.live, ..found };
        let count = i64::from(zones.count());
        let mean = (found.raw + count / 2) / count;
        self.space.zone_blocks_mean.store(mean as Blocks, Ordering::Relaxed);
        let (shape, reserve) = (self.shape(), self.store.info().reserve);
        census.kept = shape.kept(&found, reserve);
        census.kept_for_more = shape.kept(&shape.with_more_names(&found), reserve);
        census.allowed = self.blocks_to_grow_by(allowed);
        census
    }

    /// How many zones of fresh data should be open. Walks over all zones.
    pub(crate) fn count_open_wanted(&self) -> usize {
        let census = self.census();
        self.open_zones_wanted(census.payload - census.live - census.reserved)
    }

    /// What is used and what is left. Walks over all zones.
    pub fn space(&self) -> Space {
        let zones = self.store.zones();
        let census = self.census();
        let metadata = zones.metadata_blocks() as i64;
        let pending = census.reserved - census.unwritten;
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.block_size());
        Space {
            block_size: self.block_size(),
            total: bytes(census.total),
            available: bytes(census.shown()),
            live: bytes(census.live),
            pending: bytes(pending),
            unwritten: bytes(census.unwritten),
            kept: bytes(census.kept_of_total()),
            metadata: bytes(metadata),
            free_zones: zones.free(),
        }
    }

    /// Bytes that writers can have as names are now. What is shown as available leaves out what these may take.
    pub fn bytes_left(&self) -> u64 {
        self.census().offered().max(0) as u64 * u64::from(self.block_size())
    }

    /// Blocks of zones of data in which nothing lives and nothing will be written before they are reset: what has died,
    /// what the zones have of their own, and the rest of those that were closed before they were full. Not what open
    /// zones can still take. Walks over all zones, and waits for a piece of garbage collection: call with no map lock.
    pub fn dead_blocks(&self) -> u64 {
        let mut room = self.gc.lock().target().map_or(0, |open| i64::from(open.lease.room()));
        room += self.placement.room();
        let census = self.census();
        let taken = census.live + census.reserved - census.unwritten;
        u64::try_from(census.capacity - taken - room).unwrap_or(0)
    }

    /// Whether data can have no zone now.
    pub(crate) fn is_out_of_zones(&self) -> bool {
        self.store.zones().free() <= self.store.zones().kept_from_data()
    }

    /// Wins back a zone when metadata has taken one of those that are kept for it, and garbage collection gives none
    /// back. Call before taking the locks of any operation that may make metadata grow.
    pub fn admit(&self) -> Result<()> {
        let zones = self.store.zones();
        self.win_back_while(|| zones.free_or_lent() < zones.needed_to_grow())
    }

    /// Wins back all of them, for an operation that has found no space without; whether any were lacking, and none is.
    pub fn win_back(&self) -> Result<bool> {
        let zones = self.store.zones();
        let lacks = || zones.free() < zones.needed_to_grow();
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
        if self.store.reclaim_one(over)? || self.store.zones().take_what_is_left_to_metadata() {
            return Ok(true);
        }
        let mut gc = self.gc.lock();
        if !self.is_out_of_zones() {
            return Ok(true);
        }
        let were_held = self.store.zones().are_held();
        let worked = self.evacuate(&mut gc)?;
        if worked {
            // Though what was emptied may still be read, or hold a block that cannot be.
            *patience = Patience::default();
        }
        self.pace.rest();
        self.space.outdated();
        drop(gc);
        let won = self.store.reclaim_one(over)? || worked || self.clean_metadata()?;
        // What a checkpoint needed has been given back when it was waited for; and somebody else may have won a zone.
        let is_over = self.store.resets_over() != over;
        Ok(won || is_over || were_held && !self.store.zones().are_held() || !self.is_out_of_zones())
    }

    /// Has the store clean its own zones, which may have taken the one that garbage collection needs;
    /// false when that frees none.
    fn clean_metadata(&self) -> Result<bool> {
        let before = self.store.zones().free();
        for _ in 0..CLEANED_MAX {
            if !self.store.clean()? || self.store.zones().free() > before {
                break;
            }
        }
        // Somebody else may have won them.
        Ok(self.store.zones().free() > before)
    }

    /// Blocks of fresh data that a zone takes at worst.
    pub(crate) fn payload_of(&self, zone: ZoneId) -> Blocks {
        self.packing.payload(self.store.zones().capacity(zone))
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
    fn allow(&self, nodes: u64) -> bool {
        let (zones, nodes) = (self.store.zones(), nodes as i64);
        let _counting = self.space.counting.lock();
        let lacking = nodes - zones.allowed_nodes() as i64;
        if lacking <= 0 {
            return true;
        }
        let mut allowed = 0;
        self.count_and_take(|available| {
            let cost = self.blocks_to_grow_by(1);
            let most = (available / cost).min(lacking.max(ALLOWANCE));
            allowed = if most >= lacking { most } else { 0 };
            allowed * cost
        });
        zones.allow_nodes(allowed as u64);
        allowed >= lacking
    }
}

/// Whether a zone is written again once nothing lives in it. Of one that turned read-only since the mount only its reset
/// tells.
fn can_be_used_again(zone: &ZoneNow) -> bool {
    !matches!(zone.info.state, ZoneState::ReadOnly | ZoneState::Offline) && !zone.is_bad
}

#[cfg(test)]
mod tests;
