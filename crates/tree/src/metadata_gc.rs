//! Garbage collection (GC) of metadata zones.
//!
//! GC skips a page that cannot be read or has wrong contents, because most such pages are dead. Memory has all
//! contents of ZIT chunks and directories, so these are rewritten from memory. A live node or a live chunk of the MAT
//! in such a page keeps its old address. Its zone still counts it, so the zone is never reset, and GC does not try the
//! zone again in this mount. The next reader that needs the page gets the error, and only this error shuts the volume
//! down. A device that answers no request shuts it down too.

mod delta_count;
mod move_pages;

use std::sync::Arc;

use pool::MetadataZone;
use rt::sync::atomic::{AtomicU64, Ordering};

use crate::checkpoint::{Checkpoints, of_full_host};
use crate::epoch::RunningEpoch;
use crate::headroom::{Headroom, Need};
use crate::log::Log;
use crate::nodes::Nodes;
use crate::saving::Saving;
use crate::types::{Draw, Result, StoreError};
use crate::volume::Volume;

/// GC of metadata zones.
pub(crate) struct MetadataGc {
    volume: Arc<Volume>,
    log: Arc<Log>,
    nodes: Arc<Nodes>,
    running: Arc<RunningEpoch>,
    headroom: Arc<Headroom>,
    checkpoints: Arc<Checkpoints>,
    nodes_moved: AtomicU64,
    deltas_moved: AtomicU64,
}

impl MetadataGc {
    pub(crate) fn new(
        volume: Arc<Volume>,
        log: Arc<Log>,
        nodes: Arc<Nodes>,
        running: Arc<RunningEpoch>,
        headroom: Arc<Headroom>,
        checkpoints: Arc<Checkpoints>,
    ) -> Self {
        let [nodes_moved, deltas_moved] = [0; 2].map(AtomicU64::new);
        MetadataGc { volume, log, nodes, running, headroom, checkpoints, nodes_moved, deltas_moved }
    }

    /// The whole nodes and the delta records that GC has moved.
    pub(crate) fn moved(&self) -> [u64; 2] {
        [&self.nodes_moved, &self.deltas_moved].map(|count| count.load(Ordering::Relaxed))
    }

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
        if self.headroom.reserve_is_whole()
            || self.headroom.gc_gains_little()
            || !at_once && self.headroom.gc_can_wait()
        {
            return Ok(());
        }
        loop {
            let over = self.volume.pool.resets_over();
            if self.headroom.reserve_is_whole() {
                return Ok(());
            }
            if !self.checkpoints.reclaim_one(over)? {
                break;
            }
        }
        let mut saving = self.checkpoints.saving.lock();
        self.gain_headroom(&mut saving)?;
        let is_enough = |saving: &Saving| {
            self.headroom.reserve_is_whole() || self.headroom.has_headroom_for(saving, draw)
        };
        // While few pages are dirty, GC can use more of the headroom. So the checkpoint is taken before headroom is
        // too short.
        let is_due = self.running.dirty_pages() >= self.headroom.dirty_until_cut()
            && !self.headroom.has_headroom_to_go_on(&saving);
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
        let dirty = self.running.dirty_pages();
        let is_of_use = self.running.changed_nodes() > 0
            && self.headroom.headroom(saving) >= self.headroom.blocks_for_gc(saving, 0, dirty);
        if is_of_use {
            self.checkpoints.checkpoint_with(saving)?;
        }
        Ok(is_of_use)
    }

    /// Collects one zone in the background if a zone of the reserve is missing.
    pub(crate) fn refill_reserve(&self) -> Result<bool> {
        if !self.headroom.background_gc_is_due() {
            return Ok(false);
        }
        let saving = &mut self.checkpoints.saving.lock();
        let was_collected =
            self.headroom.gc_gains_much(saving) && self.collect_one_zone(saving, Need::May)?;
        if !was_collected {
            self.headroom.nothing_to_wait_for();
        }
        Ok(was_collected)
    }

    /// Runs GC in three stages. With enough headroom it collects only zones that gain much. With little headroom it
    /// collects zones that gain more than the tables it writes. In an emergency it collects zones that gain anything,
    /// because rewritten tables leave dead blocks behind.
    fn gain_headroom(&self, saving: &mut Saving) -> Result<()> {
        let zone = self.volume.zone_blocks();
        self.gc_until(saving, 4, |_| self.headroom.reserve_is_whole())?;
        self.gc_until(saving, 1, |saving| self.headroom.has_headroom_to_go_on(saving))?;
        self.gc_until(saving, 0, |saving| self.headroom.has_headroom_to_go_on_with(saving, zone))?;
        self.headroom.note_headroom_enough(saving);
        Ok(())
    }

    /// Runs GC and takes checkpoints until `is_enough` holds, or until a round gains less than `times` what its
    /// checkpoint writes.
    fn gc_until(&self, saving: &mut Saving, times: u64, is_enough: impl Fn(&Saving) -> bool) -> Result<()> {
        for _ in 0..self.volume.pool.count() {
            // Zones that background GC has emptied are freed by a checkpoint, before more blocks are moved.
            if is_enough(saving) || !(saving.has_emptied_zone || self.gc_many(saving, times)?) {
                break;
            }
            self.checkpoints.checkpoint_with(saving)?;
        }
        Ok(())
    }

    /// Collects as many zones as the headroom allows and as together gain more than `times` what the checkpoint after
    /// them writes. Returns false if no number of zones does.
    pub(crate) fn gc_many(&self, saving: &mut Saving, times: u64) -> Result<bool> {
        let mut victims = self.headroom.victims(saving, Need::Must);
        victims.sort_by_key(|victim| (victim.live, victim.zone));
        let dirty = self.running.dirty_pages();
        let (mut gained, mut moved, mut count) = (0, 0, 0);
        for (victim, number) in victims.into_iter().zip(1..) {
            if self.headroom.headroom(saving)
                < self.headroom.blocks_for_gc(saving, moved + u64::from(victim.live), dirty)
            {
                break;
            }
            moved += u64::from(victim.live);
            gained += u64::from(victim.dead());
            if gained > times * self.headroom.table_blocks(saving, moved) {
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

    /// Runs GC of metadata zones, if that gains anything, and frees them. Returns false if it gains nothing. For a
    /// caller that needs a zone for data and gets none otherwise.
    ///
    /// It collects as many zones as together gain more than the checkpoint after them writes. If zones are small, a
    /// single zone does not gain that much, and a loop over single zones would never end.
    pub(crate) fn collect_garbage(&self) -> Result<bool> {
        let mut saving = self.checkpoints.saving.lock();
        let (saving, free) = (&mut *saving, self.volume.pool.free());
        // Dead blocks of the running epoch become visible only with a checkpoint.
        let gc_awaits_checkpoint = saving.has_emptied_zone
            || self.gc_many(saving, 1)?
            || self.end_epoch(saving)? && self.gc_many(saving, 1)?
            || self.count_deltas_exactly()? && self.gc_many(saving, 1)?;
        if gc_awaits_checkpoint {
            self.checkpoints.checkpoint_with(saving)?;
        }
        Ok(gc_awaits_checkpoint || self.volume.pool.free() > free)
    }

    /// Runs GC of one metadata zone while the dead blocks of metadata zones together fill a zone.
    pub(crate) fn collect_garbage_if_worth_it(&self) -> Result<bool> {
        self.volume.writable()?;
        if !self.headroom.dead_blocks_fill_a_zone() {
            return Ok(false);
        }
        let mut saving = self.checkpoints.saving.lock();
        if !saving.has_emptied_zone && !self.collect_one_zone(&mut saving, Need::Should)? {
            return Ok(false);
        }
        self.checkpoints.checkpoint_with(&mut saving)?;
        Ok(true)
    }

    /// Moves the live blocks out of the metadata zone that has the fewest of them. The next checkpoint frees the zone.
    /// Returns false if nothing would be gained.
    pub(crate) fn collect_one_zone(&self, saving: &mut Saving, need: Need) -> Result<bool> {
        self.volume.writable()?;
        let victims = self.headroom.victims(saving, need);
        let Some(&MetadataZone { zone, life, live, .. }) =
            victims.iter().min_by_key(|victim| (victim.live, victim.zone))
        else {
            return Ok(false);
        };
        let dirty = self.running.dirty_pages();
        if !self.volume.pool.announce(self.headroom.blocks_for_gc(saving, u64::from(live), dirty)) {
            return Ok(false);
        }
        assert!(saving.zone.id() != Some(zone), "zone {} is the target of GC and no victim", zone.0);
        saving.last_gc.insert(zone, life);
        self.running.set_gc_awaits_checkpoint(true);
        match self.move_live_pages(saving, zone).map_err(of_full_host) {
            // Moved blocks stay at their new addresses, and the next checkpoint records these. The rest can be moved
            // when the host has space or the machine has memory again.
            Err(StoreError::NoSpace | StoreError::NoMemory(_)) => {
                saving.last_gc.remove(&zone);
                self.running.set_gc_awaits_checkpoint(saving.has_emptied_zone);
                self.volume.pool.announce(self.headroom.blocks_for_gc(saving, 0, dirty));
                return Ok(false);
            }
            moved => self.volume.shut_down_on_error("GC of metadata failed", moved)?,
        }
        saving.has_emptied_zone = true;
        self.volume.pool.announce(self.headroom.blocks_for_gc(saving, 0, dirty));
        Ok(true)
    }

    /// Makes unused ids available to new nodes.
    pub(crate) fn harvest_ids(&self) -> Result<bool> {
        let _saving = self.checkpoints.saving.lock();
        let Some(number) = self.nodes.mat.chunk_to_harvest() else { return Ok(false) };
        let place = self.nodes.mat.chunk(number).address;
        if let Some(bytes) = self.nodes.chunk(number, place)? {
            self.nodes.mat.harvest(number, &bytes);
        }
        Ok(true)
    }
}
