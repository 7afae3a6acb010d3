//! Resetting zones that hold nothing needed, opening zones for a new life, and garbage collection (GC) of metadata
//! zones.
//!
//! I-ZONE-4 says when a zone may be reset. `docs/design.md`, section 6, explains the rule for each role. It also tells
//! the story of the zone that was reset one batch too early.
//!
//! GC skips a page that cannot be read or has wrong contents, because most such pages are dead. Memory has all
//! contents of ZIT chunks and directories, so these are rewritten from memory. A live node or a live chunk of the MAT
//! in such a page keeps its old address. Its zone still counts it, so the zone is never reset, and GC does not try the
//! zone again in this mount. The next reader that needs the page gets the error, and only this error shuts the volume
//! down. A device that answers no request shuts it down too.

mod delta_count;

use pool::{GC_MINIMUM, LOG_ZONES, Lsn, MetadataZone};
use rt::sync::atomic::Ordering;
use zone::{Address, Blocks, Cause, Device, DeviceError, Lease, Role, ZoneId};

use crate::checkpoint::of_full_host;
use crate::core::{Core, Saving};
use crate::delta::{self, Packed};
use crate::format::{self, PageHeader, PageKind};
use crate::mat::{Place, Replaced};
use crate::nodes::PinnedChunks;
use crate::types::{Bytes, Draw, NodeId, Op, Result, StoreError, Tx};

/// Bytes of a metadata zone that GC reads at once.
const GC_READ_BYTES: usize = 1 << 20;
/// Many zones are free if their number exceeds this fraction of all zones.
const MANY_FREE_ZONES: u32 = 4;

/// If a zone has fewer dead pages than this, GC of the zone gains no more than its checkpoint writes.
pub const GAIN_PAGES: Blocks = 4;
/// About how many directory pages a checkpoint writes in a volume that has few of them.
const DIRECTORY_PAGES: u64 = 4;
/// Closed metadata zones should have one dead or free block for this number of live blocks.
const GARBAGE_SHARE: u64 = 8;

/// How urgent GC of metadata is. The more urgent it is, the fewer dead blocks a victim needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// There is enough headroom.
    May,
    /// A caller asked for GC.
    Should,
    /// A transaction waits, and is refused if GC gains nothing.
    Must,
}

/// A page of a victim.
struct ReadPage {
    at: Address,
    /// None if the page cannot be read.
    bytes: Option<Vec<u8>>,
    /// None if the page has no valid header.
    header: Option<PageHeader>,
}

/// Reads a page. Returns false if its contents cannot be read, and an error if the device does not answer.
fn read_if_readable(device: &dyn Device, at: Address, into: &mut [u8]) -> Result<bool> {
    match device.read(at.zone(), at.block(), into) {
        Ok(()) => Ok(true),
        Err(error) if error.ends_zone() || matches!(error, DeviceError::Unwritten { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Core {
    /// Opens a zone for data. `None`: this role may take no free zone.
    pub(crate) fn open_data_zone(&self, role: Role) -> Result<Option<Lease>> {
        assert!(role.holds_data(), "the store opens its own zones");
        self.status.writable()?;
        let mut has_returned_space = false;
        loop {
            while !self.pool.may_take(role) && self.zones.reclaim(1)?.0 > 0 {}
            if !self.pool.may_take(role) {
                return Ok(None);
            }
            let Some((zone, empty)) = self.pool.take(role) else { return Ok(None) };
            match self.zones.begin(zone, empty, role) {
                Ok(lease) => {
                    self.pool.set_capacity(zone, lease.capacity());
                    return self.journal_opening(lease).map(Some);
                }
                Err(error @ DeviceError::TooManyOpen { .. }) => {
                    self.pool.give_back(zone, empty);
                    return Err(error.into());
                }
                Err(error) if error.ends_zone() => {
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be opened");
                    self.pool.retire(zone);
                }
                // A full host makes the device full. Other zones may hold the space that the host lacks.
                Err(DeviceError::HostFull { .. }) => {
                    self.pool.give_back(zone, false);
                    if std::mem::replace(&mut has_returned_space, true) {
                        return Err(StoreError::NoSpace);
                    }
                    self.zones.return_host_space()?;
                }
                Err(error) => {
                    self.pool.give_back(zone, false);
                    return Err(error.into());
                }
            }
        }
    }

    /// Journals that a zone has begun a life.
    fn journal_opening(&self, lease: Lease) -> Result<Lease> {
        let (zone, role) = (lease.zone(), lease.role());
        let mut tx = Tx::reclaiming();
        tx.ops.push(Op::ZoneOpened { zone, life: lease.life(), role });
        if let Err(error) = self.commit(tx) {
            if let Err(error) = lease.finish() {
                tracing::warn!(zone = zone.0, %error, "a zone cannot be finished");
            }
            self.pool.give_back(zone, false);
            return Err(error);
        }
        Ok(lease)
    }

    // ---- dead zones --------------------------------------------------------------------------

    /// Resets at most `most` dead data zones. If none may be reset yet, `force` first makes the log record what is
    /// durable, or takes a checkpoint for dead metadata zones.
    pub(crate) fn reclaim(&self, most: u32, force: bool) -> Result<u32> {
        let (freed, waiting) = self.zones.reclaim(most)?;
        let Some(newest) = waiting.filter(|_| freed == 0 && force) else {
            return Ok(freed);
        };
        if !self.zones.make_known(newest)? {
            self.checkpoint()?;
            self.zones.make_known(newest)?;
        }
        Ok(self.zones.reclaim(most)?.0)
    }

    /// Resets one zone, or waits until another thread has reset one. Returns false if there is no such zone and no
    /// reset has ended since the count was `over`. The caller reads the count, then looks for a free zone, and then calls this.
    pub(crate) fn reclaim_one(&self, over: u64) -> Result<bool> {
        Ok(self.reclaim(1, true)? > 0 || self.pool.wait_for_reset(over))
    }

    // ---- space for metadata ------------------------------------------------------------------

    /// Makes sure that a transaction's nodes can be written. Helps with GC if free zones are short.
    ///
    /// The reserve is what remains when this function has done all it can, so it is never used up. Transactions that
    /// free space do not use it up either, although they rewrite nodes before they free blocks.
    ///
    /// A part of the reserve may be used while GC gains little. Transactions meanwhile leave dead nodes behind, which
    /// makes GC cheap. If the headroom is little more than an epoch and the target of a GC, zones are collected as
    /// soon as that gains more than the tables it writes. If the headroom is only an epoch and a zone, zones are
    /// collected for any gain. With more headroom than that, GC runs only in the background, if it has a victim,
    /// unless `at_once` is set.
    pub(crate) fn space_for_metadata(&self, draw: Draw, at_once: bool) -> Result<()> {
        if self.reserve_is_whole() || self.gc_gains_little() || !at_once && self.gc_can_wait() {
            return Ok(());
        }
        loop {
            let over = self.pool.resets_over();
            if self.reserve_is_whole() {
                return Ok(());
            }
            if !self.reclaim_one(over)? {
                break;
            }
        }
        let mut saving = self.saving.lock();
        self.gain_headroom(&mut saving)?;
        let is_enough = |saving: &Saving| self.reserve_is_whole() || self.has_headroom_for(saving, draw);
        // While few pages are dirty, GC can use more of the headroom. So the checkpoint is taken before headroom is
        // too short.
        let is_due = self.dirty_pages() >= self.dirty_until_cut() && !self.has_headroom_to_go_on(&saving);
        if (is_due || !is_enough(&saving)) && self.end_epoch(&mut saving)? {
            self.gain_headroom(&mut saving)?;
        }
        if !is_enough(&saving) && self.count_deltas_exactly()? {
            self.gain_headroom(&mut saving)?;
        }
        if is_enough(&saving) { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// Takes a checkpoint if nodes have been written since the last one and the headroom suffices. The checkpoint
    /// makes the dead blocks of these nodes visible. Returns false if no checkpoint was taken.
    pub(crate) fn end_epoch(&self, saving: &mut Saving) -> Result<bool> {
        let dirty = self.dirty_pages();
        let is_of_use =
            self.changed_nodes() > 0 && self.headroom(saving) >= self.blocks_for_gc(saving, 0, dirty);
        if is_of_use {
            self.checkpoint_with(saving)?;
        }
        Ok(is_of_use)
    }

    pub(crate) fn reserve_is_whole(&self) -> bool {
        self.pool.reserve_is_complete()
    }

    /// Whether a thread has found since the last checkpoint that GC gains little, and the headroom is still as large
    /// as it was required to be. Each transaction calls this while the reserve is incomplete. It takes no lock that
    /// writers hold.
    fn gc_gains_little(&self) -> bool {
        let enough = self.count.headroom_enough.load(Ordering::Relaxed);
        enough > 0 && self.headroom_now() >= enough
    }

    /// Whether a transaction can go on without waiting for GC. This needs headroom for the dirty pages, for all that
    /// another epoch can write, and for a zone as the target of GC. Then the live blocks of any victim still fit after
    /// the running epoch has been written. The missing zone must also come back: GC of data returns it, or the
    /// background collects one.
    fn gc_can_wait(&self) -> bool {
        let enough = self.count.headroom_to_wait.load(Ordering::Relaxed);
        let dirty = self.dirty_pages() as u64 * u64::from(self.pool.page_blocks());
        enough > 0 && self.headroom_now() >= enough + dirty
    }

    /// Computes the headroom with which GC can wait. Called after a checkpoint.
    pub(crate) fn note_headroom_to_wait(&self, saving: &Saving) {
        let zone = u64::from(self.device.geometry().zone_blocks);
        let epoch = self.epoch_blocks() + self.table_blocks_for(saving, self.limits.epoch_nodes, zone);
        let comes_back = self.pool.is_one_taken() || self.gc_gains_much(saving);
        // The margin is for transactions that were admitted and have not changed anything yet.
        let enough = zone + epoch + epoch / 8;
        self.count.headroom_to_wait.store(if comes_back { enough } else { 0 }, Ordering::Relaxed);
    }

    /// Whether background GC of the best victim would gain more than four times what the checkpoint after it writes.
    fn gc_gains_much(&self, saving: &Saving) -> bool {
        let best = self.victims(saving, Need::May).into_iter().min_by_key(|victim| victim.live);
        best.is_some_and(|victim| {
            u64::from(victim.dead()) > 4 * self.table_blocks(saving, victim.live.into())
        })
    }

    /// Whether a zone of the reserve is missing, no thread returns it, and background GC is to collect one.
    pub(crate) fn background_gc_is_due(&self) -> bool {
        self.count.headroom_to_wait.load(Ordering::Relaxed) > 0
            && self.pool.free_or_taken() < self.pool.metadata_reserve()
    }

    /// Collects one zone in the background if a zone of the reserve is missing.
    pub(crate) fn refill_reserve(&self) -> Result<bool> {
        if !self.background_gc_is_due() {
            return Ok(false);
        }
        let saving = &mut self.saving.lock();
        let was_collected = self.gc_gains_much(saving) && self.collect_one_zone(saving, Need::May)?;
        if !was_collected {
            self.count.headroom_to_wait.store(0, Ordering::Relaxed);
        }
        Ok(was_collected)
    }

    /// Runs GC in three stages. With enough headroom it collects only zones that gain much. With little headroom it
    /// collects zones that gain more than the tables it writes. In an emergency it collects zones that gain anything,
    /// because rewritten tables leave dead blocks behind.
    fn gain_headroom(&self, saving: &mut Saving) -> Result<()> {
        let zone = u64::from(self.device.geometry().zone_blocks);
        self.gc_until(saving, 4, |_| self.reserve_is_whole())?;
        self.gc_until(saving, 1, |saving| self.has_headroom_to_go_on(saving))?;
        self.gc_until(saving, 0, |saving| self.has_headroom_to_go_on_with(saving, zone))?;
        let enough = self.headroom_to_go_on(saving, self.gc_target_blocks(saving));
        if self.headroom(saving) >= enough {
            self.count.headroom_enough.store(enough, Ordering::Relaxed);
        }
        Ok(())
    }

    fn has_headroom_to_go_on(&self, saving: &Saving) -> bool {
        self.has_headroom_to_go_on_with(saving, self.gc_target_blocks(saving))
    }

    fn has_headroom_to_go_on_with(&self, saving: &Saving, gc_target: u64) -> bool {
        self.reserve_is_whole() || self.headroom(saving) >= self.headroom_to_go_on(saving, gc_target)
    }

    /// Headroom with which GC can wait until it gains more. It suffices for an epoch and a half and the target of a
    /// GC. It also suffices for GC of full zones after the epoch has reached its limit and the transactions under way
    /// have finished.
    fn headroom_to_go_on(&self, saving: &Saving, gc_target: u64) -> u64 {
        let changed = self.nodes.mat.running_len().max(self.limits.epoch_nodes);
        let dirty_until_cut = self.dirty_until_cut() as u64 * u64::from(self.pool.page_blocks());
        let tables = self.table_blocks_for(saving, changed, gc_target);
        let last_chance = self.epoch_blocks() + dirty_until_cut + tables;
        gc_target + last_chance.max(self.epoch_blocks() * 3 / 2)
    }

    /// Blocks that GC needs as its target. This is a zone, or the live blocks of the number of zones whose joint GC
    /// gains more than the checkpoint after it writes, for any choice of zones. The tables are written once for all of
    /// them.
    fn gc_target_blocks(&self, saving: &Saving) -> u64 {
        let zone = u64::from(self.device.geometry().zone_blocks);
        let (zones, _, dead) = self.closed_garbage();
        if zones == 0 {
            return zone;
        }
        // No zone with fewer dead blocks is collected.
        let dead = (dead / zones).max(u64::from(self.dead_at_least(zone as Blocks, Need::Must)));
        let live = zone.saturating_sub(dead);
        let gains =
            |count: &u64| count * dead > self.table_blocks_for(saving, self.limits.epoch_nodes, count * live);
        (1..=zones).find(gains).map_or(zone, |count| (count * live).max(zone))
    }

    /// The number of closed metadata zones, and their live and dead blocks.
    fn closed_garbage(&self) -> (u64, u64, u64) {
        let zones = self.pool.closed_metadata();
        let live = zones.iter().map(|zone| u64::from(zone.live)).sum();
        let dead = zones.iter().map(|zone| u64::from(zone.dead())).sum();
        (zones.len() as u64, live, dead)
    }

    /// Whether a transaction with this draw can go on although the reserve is incomplete. It needs headroom for what
    /// an epoch writes and for a zone as the target of GC. A transaction that frees space needs no target, because it
    /// leaves garbage for GC.
    fn has_headroom_for(&self, saving: &Saving, draw: Draw) -> bool {
        let zone = u64::from(self.device.geometry().zone_blocks);
        let gc_target = match draw {
            Draw::Reserve => 0,
            // The zone that was taken from the reserve comes back.
            _ if self.pool.is_one_taken() => zone.min(self.epoch_blocks()),
            _ => zone,
        };
        let tables = self.limits.zone_table_beyond as u64 * u64::from(self.pool.page_blocks());
        self.headroom(saving) >= self.epoch_blocks() * 3 / 2 + tables + gc_target
    }

    /// Runs GC and takes checkpoints until `is_enough` holds, or until a round gains less than `times` what its
    /// checkpoint writes.
    fn gc_until(&self, saving: &mut Saving, times: u64, is_enough: impl Fn(&Saving) -> bool) -> Result<()> {
        for _ in 0..self.pool.count() {
            // Zones that background GC has emptied are freed by a checkpoint, before more blocks are moved.
            if is_enough(saving) || !(saving.has_emptied_zone || self.gc_many(saving, times)?) {
                break;
            }
            self.checkpoint_with(saving)?;
        }
        Ok(())
    }

    /// Collects as many zones as the headroom allows and as together gain more than `times` what the checkpoint after
    /// them writes. Returns false if no number of zones does.
    pub(crate) fn gc_many(&self, saving: &mut Saving, times: u64) -> Result<bool> {
        let mut victims = self.victims(saving, Need::Must);
        victims.sort_by_key(|victim| (victim.live, victim.zone));
        let dirty = self.dirty_pages();
        let (mut gained, mut moved, mut count) = (0, 0, 0);
        for (victim, number) in victims.into_iter().zip(1..) {
            if self.headroom(saving) < self.blocks_for_gc(saving, moved + u64::from(victim.live), dirty) {
                break;
            }
            moved += u64::from(victim.live);
            gained += u64::from(victim.dead());
            if gained > times * self.table_blocks(saving, moved) {
                count = number;
            }
        }
        for _ in 0..count {
            if !self.collect_one_zone(saving, Need::Must)? {
                break;
            }
        }
        Ok(saving.has_emptied_zone)
    }

    /// Blocks that the nodes of an epoch take when they are written, unless the epoch is a long one.
    pub(crate) fn epoch_blocks(&self) -> u64 {
        self.limits.epoch_pages as u64 * u64::from(self.pool.page_blocks())
    }

    /// Blocks for pages in the open metadata zone and in the free zones.
    fn headroom(&self, saving: &Saving) -> u64 {
        self.headroom_with(u64::from(saving.lease.as_ref().map_or(0, Lease::free_blocks)))
    }

    /// The same for a caller that does not write metadata itself.
    pub(crate) fn headroom_now(&self) -> u64 {
        self.headroom_with(u64::from(self.pool.open_headroom()))
    }

    /// The same for a given headroom of the open zone. What a running checkpoint still has to write is subtracted.
    fn headroom_with(&self, open: u64) -> u64 {
        let being_saved = self.pages_being_saved() as u64 * u64::from(self.pool.page_blocks());
        (open + self.pool.free_headroom()).saturating_sub(being_saved)
    }

    /// Blocks that a GC needs: for the live blocks of its victims, for the checkpoint that frees the victims and
    /// writes `dirty` pages of nodes, and for pages that become dirty before this checkpoint.
    ///
    /// More pages become dirty only with more headroom than that, for an epoch and a half at least. A transaction that
    /// finds less waits.
    pub(crate) fn blocks_for_gc(&self, saving: &Saving, live: u64, dirty: usize) -> u64 {
        let pages = (dirty + self.dirty_until_cut()) as u64;
        live + pages * u64::from(self.pool.page_blocks()) + self.table_blocks(saving, live)
    }

    /// Pages that may become dirty before the cut although the headroom is small: those of transactions under way. A
    /// transaction that was admitted with headroom for a zone and an epoch and a half leaves a zone and half an epoch
    /// when all is written. This must suffice for a full zone, for these pages, and for the tables.
    fn dirty_until_cut(&self) -> usize {
        self.limits.epoch_pages / 4
    }

    /// Blocks for this number of dirty pages of nodes, or for as many as may become dirty before a cut if that is
    /// more.
    pub(crate) fn blocks_for_nodes(&self, dirty: usize) -> u64 {
        let pages = dirty.max(self.limits.dirty.min(self.limits.epoch_pages)) as u64;
        pages * u64::from(self.pool.page_blocks())
    }

    /// Blocks that a checkpoint writes beside dirty nodes when `moved` blocks have been moved.
    pub(crate) fn table_blocks(&self, saving: &Saving, moved: u64) -> u64 {
        self.table_blocks_for(saving, self.changed_nodes(), moved)
    }

    /// Blocks of tables and directories that a checkpoint writes when `changed` nodes have changed and `moved` blocks
    /// have been moved.
    fn table_blocks_for(&self, saving: &Saving, changed: usize, moved: u64) -> u64 {
        let page = u64::from(self.pool.page_blocks());
        let mat_chunks = self.nodes.mat.chunks_len().min(changed as u64 + moved / page);
        let directories =
            mat_chunks.min(saving.mat_directories.len() as u64) + saving.zit_directories.len() as u64;
        (mat_chunks + saving.zit_chunks.len() as u64 + directories.max(DIRECTORY_PAGES)) * page
    }

    /// Free zones that metadata must leave when it grows.
    pub(crate) fn needed_to_grow(&self) -> u32 {
        self.pool.metadata_reserve() + self.count.zones_lacking.load(Ordering::Relaxed)
    }

    /// Finds out whether metadata zones have enough dead or unwritten blocks, so that GC does not move many blocks for
    /// a small gain. Called after a checkpoint, because only then the blocks are dead that no epoch needs.
    pub(crate) fn measure_garbage(&self, saving: &Saving) {
        let (_, live, dead) = self.closed_garbage();
        let open = u64::from(saving.lease.as_ref().map_or(0, Lease::free_blocks));
        let zone = u64::from(self.device.geometry().zone_blocks);
        let lacking = (live / GARBAGE_SHARE).saturating_sub(dead + open).div_ceil(zone) as u32;
        self.count.zones_lacking.store(lacking, Ordering::Relaxed);
        let are_made_up_for = self.pool.free_or_taken() >= self.needed_to_grow();
        self.count.is_short_of_zones.store(lacking > 0 && !are_made_up_for, Ordering::Relaxed);
    }

    /// Computes how many blocks of its zones metadata may leave dead, and the number of zones that it needs for that.
    pub(crate) fn update_metadata_share(&self, saving: &mut Saving) {
        let written =
            [Cause::Data, Cause::Checkpoint].map(|cause| self.leases.traffic().bytes_written(cause));
        saving.metadata_share.update(written);
        let zone = u64::from(self.device.geometry().zone_blocks);
        let kept = LOG_ZONES + self.pool.metadata_reserve_max() + GC_MINIMUM;
        let all = u64::from(self.pool.count().saturating_sub(kept)) * zone;
        let live = [self.pool.live_data(), self.trees.metadata_blocks()];
        let lives = live[0].saturating_add(live[1]);
        let dead_blocks_max =
            saving.metadata_share.for_metadata(live, all.saturating_sub(lives)).min(2 * live[1]);
        self.count.dead_blocks_max.store(dead_blocks_max, Ordering::Relaxed);
        // The open zone comes on top. It has few live or dead blocks yet.
        let zones = 1 + (live[1].saturating_add(dead_blocks_max) / zone) as u32;
        let of_zone = zone * u64::from(self.device.geometry().block_size);
        if self.pool.raise_metadata_target(zones, u32::from(saving.metadata_share.may_grow(of_zone))) > 0 {
            saving.metadata_share.has_grown();
        }
    }

    /// Whether the dead blocks of metadata zones justify a GC. The limit is twice the live blocks while many zones are
    /// free. Otherwise it is half of the live blocks, or more if the write rates say so. The longer a zone waits, the
    /// fewer blocks have to be moved.
    pub(crate) fn gc_is_worth_it(&self) -> bool {
        let (_, live, garbage) = self.closed_garbage();
        let zone = u64::from(self.device.geometry().zone_blocks);
        let abound = self.pool.free() > self.pool.count() / MANY_FREE_ZONES;
        let dead_blocks_max = self.count.dead_blocks_max.load(Ordering::Relaxed);
        let bearable = if abound { 2 * live } else { dead_blocks_max.max(live / 2) };
        garbage > (2 * zone).max(bearable)
    }

    /// Whether the dead blocks of closed metadata zones together fill a zone.
    pub(crate) fn dead_blocks_fill_a_zone(&self) -> bool {
        let (_, _, dead) = self.closed_garbage();
        dead >= u64::from(self.device.geometry().zone_blocks)
    }

    /// Moves the live blocks out of the metadata zone that has the fewest of them. The next checkpoint frees the zone.
    /// Returns false if nothing would be gained.
    pub(crate) fn collect_one_zone(&self, saving: &mut Saving, need: Need) -> Result<bool> {
        self.status.writable()?;
        let victims = self.victims(saving, need);
        let Some(&MetadataZone { zone, life, live, .. }) =
            victims.iter().min_by_key(|victim| (victim.live, victim.zone))
        else {
            return Ok(false);
        };
        let dirty = self.dirty_pages();
        if !self.pool.announce(self.blocks_for_gc(saving, u64::from(live), dirty)) {
            return Ok(false);
        }
        saving.last_gc.insert(zone, life);
        self.count.gc_awaits_checkpoint.store(true, Ordering::Relaxed);
        match self.move_live_pages(saving, zone).map_err(of_full_host) {
            // Moved blocks stay at their new addresses, and the next checkpoint records these. The rest can be moved
            // when the host has space or the machine has memory again.
            Err(StoreError::NoSpace | StoreError::NoMemory(_)) => {
                saving.last_gc.remove(&zone);
                self.count.gc_awaits_checkpoint.store(saving.has_emptied_zone, Ordering::Relaxed);
                self.pool.announce(self.blocks_for_gc(saving, 0, dirty));
                return Ok(false);
            }
            moved => self.status.shut_down_on_error("GC of metadata failed", moved)?,
        }
        saving.has_emptied_zone = true;
        self.pool.announce(self.blocks_for_gc(saving, 0, dirty));
        Ok(true)
    }

    /// Closed metadata zones whose GC gains enough for this urgency.
    fn victims(&self, saving: &Saving, need: Need) -> Vec<MetadataZone> {
        let is_worth_it = |victim: &MetadataZone| {
            victim.dead() >= self.dead_at_least(victim.capacity, need)
                // A zone that was collected in this life and still exists holds something that cannot be moved.
                && saving.last_gc.get(&victim.zone) != Some(&victim.life)
        };
        // A caller that repeats GC until no victim remains ends only if each round leaves less.
        let gains = |victim: &MetadataZone| {
            let cost = self.table_blocks(saving, u64::from(victim.live));
            need != Need::Should || u64::from(victim.dead()) > cost
        };
        let victims = self.pool.closed_metadata().into_iter();
        victims.filter(|victim| is_worth_it(victim) && gains(victim)).collect()
    }

    /// Blocks that must be dead in a zone of this capacity before it is collected.
    fn dead_at_least(&self, capacity: Blocks, need: Need) -> Blocks {
        let part = match need {
            Need::May => 4,
            Need::Should => 8,
            Need::Must => 16,
        };
        (capacity / part).max(GAIN_PAGES * self.pool.page_blocks())
    }

    fn move_live_pages(&self, saving: &mut Saving, zone: ZoneId) -> Result<()> {
        let mut unreadable = 0;
        let mut deltas = Packed::new(self.nodes.page_size());
        self.read_zone(zone, |pages| {
            unreadable += pages.iter().filter(|page| page.bytes.is_none()).count();
            self.move_pages(saving, pages, &mut deltas)?;
            self.move_deltas(saving, deltas.take_full())
        })?;
        self.move_deltas(saving, deltas.take())?;
        if unreadable > 0 {
            tracing::warn!(zone = zone.0, "{unreadable} unreadable pages were not moved");
        }
        Ok(())
    }

    /// Passes all that was written to a metadata zone to `each`, in order.
    fn read_zone(&self, zone: ZoneId, mut each: impl FnMut(Vec<ReadPage>) -> Result<()>) -> Result<()> {
        let page_blocks = self.pool.page_blocks();
        let life = self.pool.entry(zone).life;
        let end = self.written_end(zone)?;
        let step = (GC_READ_BYTES / self.nodes.page_size()).max(1) as Blocks * page_blocks;
        let mut block = 1;
        while block + page_blocks <= end {
            let blocks = step.min((end - block) / page_blocks * page_blocks);
            each(self.read_pages(Address::new(zone, block, life), blocks)?)?;
            block += blocks;
        }
        Ok(())
    }

    /// Reads the pages of some blocks, each by itself if they cannot be read at once. A page that is not valid is read
    /// twice. Otherwise one transient failure would keep the zone until the next mount.
    fn read_pages(&self, at: Address, blocks: Blocks) -> Result<Vec<ReadPage>> {
        let mut bytes = vec![0; blocks as usize * self.device.geometry().block_size as usize];
        let at_once = read_if_readable(&*self.device, at, &mut bytes)?;
        let pages = bytes.chunks_mut(self.nodes.page_size()).enumerate().map(|(index, page)| {
            let at = at.offset(index as Blocks * self.pool.page_blocks());
            let decode = |page: &[u8]| format::decode_page(page, self.info.fs_id);
            let (mut is_read, mut asked) = (at_once, 0);
            let mut header = if is_read { decode(page) } else { None };
            while header.is_none() && asked < 2 {
                is_read = read_if_readable(&*self.device, at, page)?;
                header = if is_read { decode(page) } else { None };
                asked += 1;
            }
            Ok(ReadPage { at, bytes: is_read.then(|| page.to_vec()), header })
        });
        pages.collect()
    }

    fn written_end(&self, zone: ZoneId) -> Result<Blocks> {
        let info = self.device.report_zone(zone)?;
        Ok(if info.state.has_pointer() { info.pointer } else { info.capacity })
    }

    /// Moves the live contents of these pages. Delta records that the tables still point to are packed for
    /// [`Core::move_deltas`].
    fn move_pages(
        &self,
        saving: &mut Saving,
        pages: Vec<ReadPage>,
        deltas: &mut Packed<(NodeId, Address)>,
    ) -> Result<()> {
        let (mut whole, mut moves) = (Vec::new(), Vec::new());
        let nodes = pages
            .iter()
            .filter_map(|page| page.header.as_ref())
            .filter(|header| header.kind == PageKind::Node as u8);
        let mut held =
            self.nodes.pin_chunks(&nodes.map(|header| NodeId(header.id.get())).collect::<Vec<_>>());
        for ReadPage { at, bytes, header } in pages {
            let (Some(page), Some(header)) = (bytes, header) else {
                self.save_from_memory(saving, at);
                continue;
            };
            let id = NodeId(header.id.get());
            if header.kind == PageKind::Deltas as u8 {
                self.pack_deltas(at, &page, deltas)?;
            } else if header.kind != PageKind::Node as u8 {
                self.move_at_next_checkpoint(saving, at, &header);
            } else if let from = self.nodes.find_with_chunks(&mut held, id)?
                && (from.whole_page() == at || rt::is_planted("break-clean-stale") && !from.is_nowhere())
            {
                whole.push(page);
                moves.push((id, from));
            }
        }
        let places = self.append_pages(saving, &mut whole, self.log.epoch(), Cause::MetadataGc)?;
        self.count.nodes_moved.fetch_add(places.len() as u64, Ordering::Relaxed);
        for ((id, from), to) in moves.into_iter().zip(places) {
            let to = if from.is_delta() { Place { base: to, ..from } } else { Place::whole(to) };
            self.note_moved(id, from, to);
        }
        Ok(())
    }

    /// Packs the delta records of a page that the tables still point to.
    fn pack_deltas(&self, at: Address, page: &[u8], into: &mut Packed<(NodeId, Address)>) -> Result<()> {
        let all = delta::all(page).unwrap_or_default();
        let mut held = self.nodes.pin_chunks(&all.iter().map(|delta| delta.node()).collect::<Vec<_>>());
        for delta in all {
            if self.delta_at(&mut held, delta.node(), at)?.is_some() {
                into.add(delta.bytes, Lsn(delta.header.lsn.get()), (delta.node(), at));
            }
        }
        Ok(())
    }

    /// Where a node lies, if its delta record is at `at`.
    fn delta_at(&self, held: &mut PinnedChunks, id: NodeId, at: Address) -> Result<Option<Place>> {
        let place = self.nodes.find_with_chunks(held, id)?;
        Ok((place.is_delta() && place.at == at).then_some(place))
    }

    /// Writes packed delta records. Their base pages may have been moved since they were packed.
    fn move_deltas(
        &self,
        saving: &mut Saving,
        (mut pages, moves): (Vec<Bytes>, Vec<Vec<(NodeId, Address)>>),
    ) -> Result<()> {
        let places = self.append_pages(saving, &mut pages, self.log.epoch(), Cause::MetadataGc)?;
        self.count
            .deltas_moved
            .fetch_add(moves.iter().map(Vec::len).sum::<usize>() as u64, Ordering::Relaxed);
        for (moves, to) in moves.into_iter().zip(places) {
            let mut held = self.nodes.pin_chunks(&moves.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            for (id, at) in moves {
                if let Some(from) = self.delta_at(&mut held, id, at)? {
                    self.note_moved(id, from, Place { at: to, ..from });
                }
            }
        }
        Ok(())
    }

    /// Records the new address of a copied node, if the node has not changed meanwhile.
    fn note_moved(&self, id: NodeId, from: Place, to: Place) {
        // The copy is counted first: once the table names the new address, a thread that frees the node subtracts it.
        self.pool.add_copy(to.copy());
        match self.nodes.mat.replace(id, from, to) {
            Replaced::Not => self.pool.remove_copy(to.copy()),
            Replaced::InOverlay => self.pool.remove_copy(from.copy()),
            Replaced::InChunk => {}
        }
    }

    /// The next checkpoint rewrites chunks and directory pages.
    fn move_at_next_checkpoint(&self, saving: &mut Saving, at: Address, header: &PageHeader) {
        let number = header.id.get();
        if header.kind == PageKind::MatChunk as u8 && self.nodes.mat.chunk(number).address == at {
            saving.move_mat_chunks.insert(number);
        } else {
            self.save_from_memory(saving, at);
        }
    }

    /// Marks a ZIT chunk or a directory page at this address for the next checkpoint. Memory has all its contents.
    fn save_from_memory(&self, saving: &mut Saving, at: Address) {
        if let Some(number) = saving.zit_chunks.iter().position(|place| place.address == at) {
            self.pool.save_chunk(number as u64);
        } else if saving.mat_directories.contains(&at) || saving.zit_directories.contains(&at) {
            saving.move_directories = true;
        }
    }

    /// Makes unused ids available to new nodes.
    pub(crate) fn harvest_ids(&self) -> Result<bool> {
        let _saving = self.saving.lock();
        let Some(number) = self.nodes.mat.chunk_to_harvest() else { return Ok(false) };
        let place = self.nodes.mat.chunk(number).address;
        if let Some(bytes) = self.nodes.chunk(number, place)? {
            self.nodes.mat.harvest(number, &bytes);
        }
        Ok(true)
    }
}
