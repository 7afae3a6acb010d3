//! The pool as `tree` and `extent` see it: the table behind its mutex.

mod blocks;
mod saved;

use std::ops::Deref;

use rt::sync::{Condvar, Mutex};
use zone::{Blocks, Life, Role, ZoneId, ZoneInfo};

use crate::rows::Rows;
use crate::shares::{GC_MINIMUM, MetadataReserve, Shares};
use crate::state::{Moment, State, Usage};
use crate::types::{Lsn, ZoneEntry};

/// What the pool has to know of the volume.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows in a chunk of the ZIT.
    pub rows_per_chunk: u64,
    /// Blocks of a page of metadata.
    pub page_blocks: Blocks,
    /// Delta records that a page holds at least.
    pub deltas_per_page: u64,
    /// Zones from this one on are conventional.
    pub sequential: u32,
}

/// The zones of a volume, for all that use them: questions, and the few changes that every writer makes.
pub struct Pool {
    state: Mutex<State>,
    /// With `state`: a reset is over.
    reset_over: Condvar,
    shape: Shape,
    reserve: MetadataReserve,
}

/// The zones of a volume in the hands of the store, which alone takes zones, resets them, and changes their rows.
pub struct OwnedPool(Pool);

impl Deref for OwnedPool {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.0
    }
}

impl Pool {
    /// The number of zones.
    pub fn count(&self) -> u32 {
        self.state.lock().rows.count()
    }

    /// Blocks of a page of metadata.
    pub fn page_blocks(&self) -> Blocks {
        self.shape.page_blocks
    }

    /// The row of a zone.
    pub fn entry(&self, zone: ZoneId) -> ZoneEntry {
        *self.state.lock().rows.get(zone)
    }

    /// What a zone is doing in this mount.
    pub fn usage(&self, zone: ZoneId) -> Usage {
        self.state.lock().usage(zone)
    }

    /// What the device reported of a zone at the mount, or after the last reset.
    pub fn info(&self, zone: ZoneId) -> ZoneInfo {
        self.state.lock().info(zone)
    }

    /// Blocks that a zone holds, header included.
    pub fn capacity(&self, zone: ZoneId) -> Blocks {
        self.info(zone).capacity
    }

    /// Whether a zone has room for a header and a page. Others are never opened, and hold nothing.
    pub fn is_of_use(&self, zone: ZoneId) -> bool {
        self.state.lock().is_of_use(zone)
    }

    /// Whether a zone is being opened or written.
    pub fn is_open(&self, zone: ZoneId) -> bool {
        self.usage(zone) == Usage::Open
    }

    /// The last record that changed the live blocks of a zone.
    pub fn changed_by(&self, zone: ZoneId) -> Lsn {
        self.state.lock().changed_by(zone)
    }

    /// Whether a zone could be taken.
    pub fn is_free(&self, zone: ZoneId) -> bool {
        self.state.lock().is_free(zone)
    }

    /// The number of zones that could be taken.
    pub fn free(&self) -> u32 {
        self.state.lock().free().count()
    }

    /// Blocks of pages that free zones hold.
    pub fn free_headroom(&self) -> u64 {
        self.state.lock().free().headroom()
    }

    /// Zones that are free, dead zones of data, and zones that are being reset: all at one moment.
    pub fn free_soon(&self) -> u32 {
        let state = self.state.lock();
        state.free().count() + state.victims.dead_count() + state.resets.running()
    }

    /// How often a zone was opened for data or taken to be reset after it, or the target of metadata was lowered.
    pub fn turnover(&self) -> u64 {
        self.state.lock().turnover()
    }

    /// Live blocks in all zones of data.
    pub fn live_data(&self) -> u64 {
        self.at_one_moment(|moment| moment.sums().live)
    }

    /// Zones of a role.
    pub fn in_role(&self, role: Role) -> Vec<ZoneId> {
        let state = self.state.lock();
        state.rows.all().filter(|(_, row)| row.role == role).map(|(zone, _)| zone).collect()
    }

    /// Shows the whole table at one moment: no transaction is half applied, no zone is between two usages. `see` runs under
    /// the mutex: it takes only leaf locks and never calls the pool. The first call walks over the table.
    pub fn at_one_moment<T>(&self, see: impl FnOnce(Moment<'_>) -> T) -> T {
        see(self.state.lock().moment())
    }

    /// Whether [`OwnedPool::take`] would find a zone for this role now.
    pub fn may_take(&self, role: Role) -> bool {
        let state = self.state.lock();
        state.free().count() > state.reserved_from(role)
    }

    /// Free zones that this role has to leave to others.
    pub fn reserved_from(&self, role: Role) -> u32 {
        self.state.lock().reserved_from(role)
    }

    /// Free zones that only metadata may take now. If zones are not alike, these are the largest.
    pub fn metadata_reserve(&self) -> u32 {
        self.state.lock().metadata_reserve()
    }

    /// The most free zones that user writes ever have to leave to others, whatever else they can have.
    pub fn reserved_from_data_max(&self) -> u32 {
        self.metadata_reserve_max() + GC_MINIMUM
    }

    /// The most zones that [`Pool::metadata_reserve`] ever is.
    pub fn metadata_reserve_max(&self) -> u32 {
        self.reserve.zones(0)
    }

    /// Whether all zones of the metadata reserve are free.
    pub fn reserve_is_complete(&self) -> bool {
        let state = self.state.lock();
        state.free().count() >= state.metadata_reserve()
    }

    /// Blocks that two epochs of metadata write.
    pub fn two_epochs(&self) -> u64 {
        self.reserve.blocks
    }

    /// Blocks that metadata can write before one more free zone is reserved for it.
    pub fn headroom_until_reserve_grows(&self) -> u64 {
        self.reserve.until_more(u64::from(self.open_headroom()))
    }

    /// Blocks that the open metadata zone still takes.
    pub fn open_headroom(&self) -> Blocks {
        self.state.lock().shares.open_headroom()
    }

    /// Whether GC of metadata, or a checkpoint, counts on zones that are free.
    pub fn is_announced(&self) -> bool {
        self.state.lock().shares.is_announced()
    }

    /// Zones that user writes leave to metadata beside the reserve.
    pub fn metadata_target(&self) -> u32 {
        self.state.lock().shares.target()
    }

    /// Lowers the target of metadata by a zone, which data may take then; false if it is 0. It counts as a reset that is
    /// over: a thread that has found no zone looks again.
    pub fn lower_metadata_target(&self) -> bool {
        let is_lowered = self.state.lock().lower_target();
        self.reset_over.notify_all();
        is_lowered
    }

    /// Zones that could be taken, and the one that GC took from the metadata reserve and will return.
    pub fn free_or_taken(&self) -> u32 {
        let state = self.state.lock();
        state.free().count() + u32::from(state.shares.is_one_taken())
    }

    /// The same, but GC's zone counts only until any zone has been freed since: that may be the one that GC returned.
    pub fn free_or_outstanding(&self) -> u32 {
        let state = self.state.lock();
        state.free().count() + u32::from(state.shares.is_one_outstanding())
    }

    /// Whether GC has a zone from the metadata reserve open.
    pub fn is_one_taken(&self) -> bool {
        self.state.lock().shares.is_one_taken()
    }

    /// Nobody writes an open zone any more: it may become a victim, and it is reset when it is dead.
    pub fn close(&self, zone: ZoneId) {
        let mut state = self.state.lock();
        if state.usage(zone) == Usage::Open {
            state.close(zone);
        }
    }

    /// Closed data zones without pending blocks, each with its live blocks; the one with most dead blocks first. Dead zones
    /// are not among them.
    pub fn victims(&self, limit: usize) -> Vec<(ZoneId, Blocks)> {
        let state = self.state.lock();
        let is_idle = |&(_, zone): &(Blocks, ZoneId)| state.holds.of(zone).pending == 0;
        let victims = state.victims.live().filter(is_idle).take(limit);
        victims.map(|(rank, zone)| (zone, state.live_of_rank(rank, zone))).collect()
    }

    /// The number of dead data zones: they are free once they have been reset.
    pub fn dead_count(&self) -> u32 {
        self.state.lock().victims.dead_count()
    }

    /// The number of resets that are over.
    pub fn resets_over(&self) -> u64 {
        self.state.lock().resets.over()
    }
}

impl OwnedPool {
    /// All zones are closed at first. `report` is what the device reports of them.
    pub fn new(
        rows: Vec<ZoneEntry>,
        report: &[ZoneInfo],
        shape: Shape,
        reserve: MetadataReserve,
    ) -> OwnedPool {
        let rows = Rows::new(rows, shape.rows_per_chunk);
        let state = State::new(rows, report, shape.sequential, shape.page_blocks, Shares::new(reserve));
        OwnedPool(Pool { state: Mutex::new(state), reset_over: Condvar::new(), shape, reserve })
    }

    // ---- roles -------------------------------------------------------------------------------

    /// Takes a free zone for this role, if the role may have one; also says whether the zone is empty.
    pub fn take(&self, role: Role) -> Option<(ZoneId, bool)> {
        self.state.lock().take(role)
    }

    /// Takes the free zone with this number; false if it is not free.
    pub fn take_zone(&self, zone: ZoneId) -> bool {
        self.state.lock().take_zone(zone)
    }

    /// Sets the blocks that the open metadata zone still takes. They are a part of the reserve.
    pub fn set_open_headroom(&self, blocks: Blocks) {
        self.state.lock().shares.set_open_headroom(blocks);
    }

    /// Announces that metadata will write this number of blocks; false, and nothing changes, if they are not free. The
    /// announcement ends when metadata has opened zones for it, or with the next one.
    pub fn announce(&self, blocks: u64) -> bool {
        self.state.lock().announce(blocks)
    }

    /// Raises the target of metadata until it has this number of zones in all, but by `more` at most, and not at all if data
    /// has no zone left to open; returns by how many.
    pub fn raise_metadata_target(&self, zones: u32, more: u32) -> u32 {
        self.state.lock().raise_target(zones, more)
    }

    /// A metadata or log zone begins a life: a part of the checkpoint that is being written, if there is one.
    pub fn open_for_store(&self, zone: ZoneId, life: Life, role: Role, capacity: Blocks) {
        self.state.lock().open_for_store(zone, life, role, capacity);
    }

    // ---- usage -------------------------------------------------------------------------------
    // Each change of usage is a method of its own, which asserts the usage that it ends. See also `take`, `take_zone`,
    // `close`, `begin_reset` and `freed`.

    /// Recovery, or mkfs, has found out the usage of a zone.
    pub fn recovered(&self, zone: ZoneId, usage: Usage) {
        self.state.lock().recovered(zone, usage);
    }

    /// A zone that was taken is free again: it could not be opened, or it holds nothing of use.
    pub fn give_back(&self, zone: ZoneId, is_empty: bool) {
        self.state.lock().give_back(zone, is_empty);
    }

    /// A zone that recovery found partly written is continued.
    pub fn resume(&self, zone: ZoneId) {
        self.state.lock().resume(zone);
    }

    /// A zone cannot be written any more. It is not free again in this mount.
    pub fn retire(&self, zone: ZoneId) {
        self.state.lock().retire(zone);
    }

    /// The device reports a zone anew. Its usage stays the same.
    pub fn set_info(&self, zone: ZoneId, info: ZoneInfo) {
        let mut state = self.state.lock();
        let usage = state.usage(zone);
        state.set_info(zone, info, usage);
    }

    /// The capacity of a zone that is not free may have changed when the zone was reset.
    pub fn set_capacity(&self, zone: ZoneId, capacity: Blocks) {
        self.state.lock().set_capacity(zone, capacity);
    }

    /// The zone is dead and has been reset.
    pub fn freed(&self, zone: ZoneId, info: ZoneInfo) {
        self.state.lock().freed(zone, info);
    }

    // ---- resets ------------------------------------------------------------------------------
    // A thread that needs a zone and finds none reads how many resets are over, takes a dead zone or finds none, and then
    // waits for the next reset that was not over. So it misses no reset that ends in between.

    /// Dead data zones without pending blocks and readers, each with the record that emptied it: those that `may` allows by
    /// their record, `limit` at most. Also returns the newest record among those passed on the way that it does not allow.
    pub fn dead_data(&self, limit: usize, may: impl Fn(Lsn) -> bool) -> (Vec<(ZoneId, Lsn)>, Option<Lsn>) {
        let state = self.state.lock();
        let (mut ready, mut waiting) = (Vec::new(), None);
        for zone in state.victims.dead().filter(|&zone| !state.holds.of(zone).prevents_reset()) {
            let emptied_by = state.changed_by(zone);
            if !may(emptied_by) {
                waiting = waiting.max(Some(emptied_by));
                continue;
            }
            ready.push((zone, emptied_by));
            if ready.len() == limit {
                break;
            }
        }
        (ready, waiting)
    }

    /// Begins the reset of a data zone that this record has emptied; false if another record changed it since, though it
    /// may be dead again, or if it has a reader or pending blocks.
    pub fn begin_reset(&self, zone: ZoneId, emptied_by: Lsn) -> bool {
        let mut state = self.state.lock();
        let may = state.may_reset(zone, emptied_by);
        if may {
            state.begin_reset(zone);
        }
        may
    }

    /// Begins the resets of all closed metadata zones that nothing names and nobody reads.
    pub fn begin_resets_of_metadata(&self) -> Vec<ZoneId> {
        let mut state = self.state.lock();
        let is_dead = |zone: &ZoneId| {
            let (row, hold) = (state.rows.get(*zone), state.holds.of(*zone));
            assert_eq!(row.role, Role::Metadata, "zone {} is no zone of metadata", zone.0);
            let is_named = row.holds_anything() || hold.named() > 0;
            state.usage(*zone) == Usage::Closed && !is_named && hold.readers == 0
        };
        let dead: Vec<ZoneId> = state.metadata.all().filter(is_dead).collect();
        dead.iter().for_each(|&zone| state.begin_reset(zone));
        dead
    }

    /// The reset of a zone is over, however it went.
    pub fn end_reset(&self) {
        self.state.lock().resets.end();
        self.reset_over.notify_all();
    }

    /// Waits until more resets are over than `since`; false if none is running, and none has ended since.
    pub fn wait_for_reset(&self, since: u64) -> bool {
        let mut state = self.state.lock();
        while state.resets.running() > 0 && state.resets.over() == since {
            self.reset_over.wait(&mut state);
        }
        state.resets.over() != since
    }
}

#[cfg(test)]
mod tests;
