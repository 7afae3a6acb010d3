//! The choice of victims, and the loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rt::order::{Guard, LockOrder, Ordered};
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Mutex, MutexGuard};
use zone::{Blocks, Role, ZoneId, ZoneState};

use super::mover::DataMover;
use super::reading::Contents;
use super::state::{GcState, GcStats, Goal, Progress};
use crate::Result;
use crate::headroom::Headroom;
use crate::maps::ObjectMaps;
use crate::open_zone::OpenZone;
use crate::place::Placer;

/// Victims that are reclaimed together.
const VICTIMS_MAX: usize = 4;
/// The same for `Goal::All`.
pub(super) const VICTIMS_MAX_FOR_ALL: usize = 32;
/// This number of zones with the fewest live blocks is compared.
const RANKED_ZONES: usize = 1024;

/// Collects garbage in data zones.
pub struct Collector {
    mover: DataMover,
    headroom: Headroom,
    /// Zones that were read-only at the mount.
    read_only_zones: Vec<ZoneId>,
    state: Ordered<Mutex<GcState>>,
    /// Zones may need a reset, and this has not been reported.
    may_need_resets: AtomicBool,
}

impl Collector {
    pub(crate) fn new(mover: DataMover, headroom: Headroom, target: Option<Arc<OpenZone>>) -> Collector {
        let read_only_zones = read_only_zones(mover.maps());
        let state = Ordered::mutex(LockOrder::Gc, GcState::with_target(target));
        Collector { mover, headroom, read_only_zones, state, may_need_resets: AtomicBool::new(false) }
    }

    /// Locks the state of GC. The holder may do I/O.
    pub(crate) fn lock(&self) -> Guard<MutexGuard<'_, GcState>> {
        self.state.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<Guard<MutexGuard<'_, GcState>>> {
        self.state.try_lock()
    }

    pub(crate) fn maps(&self) -> &Arc<ObjectMaps> {
        self.mover.maps()
    }

    pub(crate) fn placer(&self) -> &Arc<Placer> {
        self.mover.placer()
    }

    pub(crate) fn mover(&self) -> &DataMover {
        &self.mover
    }

    pub(crate) fn headroom(&self) -> &Headroom {
        &self.headroom
    }

    pub(super) fn payload_min(&self) -> Blocks {
        self.placer().payload_min()
    }

    pub(super) fn is_read_only(&self, zone: ZoneId) -> bool {
        self.read_only_zones.contains(&zone)
    }

    /// Zones may need a reset.
    pub(crate) fn note_resets(&self) {
        self.may_need_resets.store(true, Ordering::Relaxed);
    }

    /// Whether zones that may need a reset were found since the last call.
    pub(crate) fn take_may_need_resets(&self) -> bool {
        self.may_need_resets.load(Ordering::Relaxed) && self.may_need_resets.swap(false, Ordering::Relaxed)
    }

    /// Whether there are zones that need no reason to be victims: those without a footer, and read-only ones.
    pub(crate) fn has_first_victims(&self) -> bool {
        let has_live_blocks = |&zone: &ZoneId| {
            let entry = self.maps().pool().entry(zone);
            entry.role.holds_data() && entry.live > 0
        };
        self.read_only_zones.iter().any(has_live_blocks)
            || !self.placer().reverse().without_footer().is_empty()
    }

    /// What GC has done.
    pub fn stats(&self) -> GcStats {
        self.lock().stats
    }

    /// Does one piece of work.
    pub(crate) fn collect(&self, gc: &mut GcState, goal: Goal) -> Result<Progress> {
        self.collect_some(gc, goal, self.mover.reader().piece_blocks())
    }

    /// The same, with at most about this number of blocks.
    pub(crate) fn collect_some(&self, gc: &mut GcState, goal: Goal, blocks: usize) -> Result<Progress> {
        if gc.exceeds_reserve && goal != Goal::All && !gc.queue.is_empty() {
            gc.release_victims();
        }
        let worked = match gc.queue.is_empty() {
            false => self.mover.move_chunk(gc, goal, blocks),
            true => self.go_on_without_moves(gc, goal),
        };
        match worked {
            Ok(Progress::Nothing) if gc.exceeds_reserve => {
                gc.release_victims();
                Ok(Progress::Moved)
            }
            worked => worked.inspect_err(|_| gc.postpone_victims()),
        }
    }

    /// Goes on when the queue is empty.
    fn go_on_without_moves(&self, gc: &mut GcState, goal: Goal) -> Result<Progress> {
        if !gc.victims.is_empty() {
            return self.finish_victims(gc);
        }
        let begun = self.choose_and_queue_victims(gc, goal)?;
        Ok(if begun { Progress::Moved } else { Progress::Nothing })
    }

    /// Works until the present victims, or the next ones, are reclaimed. Returns false if there are none.
    pub(crate) fn reclaim_victims(&self, gc: &mut GcState) -> Result<bool> {
        loop {
            match self.collect(gc, Goal::OneZone)? {
                Progress::Moved => {}
                Progress::Reclaimed => return Ok(true),
                Progress::Nothing => return Ok(false),
            }
        }
    }

    // ---- victims -----------------------------------------------------------------------------

    pub(super) fn choose_and_queue_victims(&self, gc: &mut GcState, goal: Goal) -> Result<bool> {
        let with_life = |zone: ZoneId| (zone, self.maps().pool().entry(zone).life);
        let (chosen, exceeds_reserve) = self.choose_victims(gc, goal);
        gc.victims = chosen.into_iter().map(with_life).collect();
        gc.exceeds_reserve = exceeds_reserve;
        // An unreadable zone is chosen only if its space is needed, and alone.
        gc.given_up = gc.unreadable_among(&gc.victims);
        gc.searched.clear();
        self.maps().learned().gc_begins(gc.victims().map(|zone| (zone, self.maps().pool().entry(zone).live)));
        let mut moves = BTreeMap::new();
        for (zone, life) in gc.victims.clone() {
            // The lookups for the victims before it take time. Meanwhile it may have been reset.
            let now = self.maps().pool().entry(zone);
            if now.life == life && now.role.holds_data() && now.live > 0 {
                self.mover.find_moves(gc, zone, &mut moves)?;
            }
        }
        gc.queue = self.mover.queue(moves, &gc.victims);
        gc.contents = Contents::default();
        Ok(!gc.victims.is_empty())
    }

    /// The next victims, and whether they need more than the reserved headroom.
    fn choose_victims(&self, gc: &GcState, goal: Goal) -> (Vec<ZoneId>, bool) {
        let mut candidates = self.first_victims(gc);
        if goal != Goal::Repair {
            self.add_worthwhile_victims(gc, goal, &mut candidates);
        }
        let reserved = self.reserved_headroom(gc);
        let headroom = if goal == Goal::All { reserved.max(self.headroom_for_all(gc)) } else { reserved };
        let (mut live_blocks, mut exceeds_reserve) = (0, false);
        let mut gain = self.gain_of(gc);
        let mut chosen = Vec::new();
        let most = if goal == Goal::All { VICTIMS_MAX_FOR_ALL } else { VICTIMS_MAX };
        for (zone, live) in candidates.into_iter().take(most) {
            if goal != Goal::All && gain.zones() >= self.headroom.zones_to_free() {
                break;
            }
            gain.add(live);
            live_blocks += i64::from(live);
            // A postponed zone is a victim alone, so that its failure does not delay others.
            if !chosen.is_empty() && (live_blocks > headroom || self.is_postponed(gc, zone)) {
                break;
            }
            exceeds_reserve |= !chosen.is_empty() && live_blocks > reserved;
            chosen.push(zone);
        }
        assert!(chosen.len() <= 1 || live_blocks > 0, "dead zones are no victims");
        (chosen, exceeds_reserve)
    }

    fn is_postponed(&self, gc: &GcState, zone: ZoneId) -> bool {
        let life = self.maps().pool().entry(zone).life;
        gc.postponed(zone, life) > 0 || gc.has_unreadable(zone, life)
    }

    /// Whether the zone has unreadable blocks. It is a victim only if a writer finds no other.
    pub(crate) fn is_unreadable(&self, gc: &GcState, zone: ZoneId) -> bool {
        gc.has_unreadable(zone, self.maps().pool().entry(zone).life)
    }

    /// Adds the victims with a gain, the best first. Postponed zones come after them, in the order of their failures,
    /// and then unreadable zones.
    fn add_worthwhile_victims(&self, gc: &GcState, goal: Goal, candidates: &mut Vec<(ZoneId, Blocks)>) {
        let first: BTreeSet<ZoneId> = candidates.iter().map(|&(zone, _)| zone).collect();
        let pool = self.maps().pool();
        let left_out = first.len() + gc.stuck.len() + gc.postponed.len() + gc.unreadable.len();
        let mut others = self.ranked_victims(goal, VICTIMS_MAX_FOR_ALL + left_out);
        others.retain(|&(zone, live)| {
            live < self.maps().payload_of(zone)
                && !first.contains(&zone)
                && !gc.stuck.contains(&zone)
                && (goal == Goal::OneZone || !self.is_unreadable(gc, zone))
        });
        others.sort_by_key(|&(zone, _)| {
            let life = pool.entry(zone).life;
            (gc.has_unreadable(zone, life), gc.postponed(zone, life))
        });
        candidates.extend(others);
    }

    /// Closed zones, the best victims first. At least this number, if there are as many.
    pub(crate) fn ranked_victims(&self, goal: Goal, least: usize) -> Vec<(ZoneId, Blocks)> {
        let count = if goal == Goal::InStep { least.max(RANKED_ZONES) } else { least };
        let mut victims = self.maps().pool().victims(count);
        if goal == Goal::InStep {
            self.maps().learned().rank(&mut victims, self.payload_min());
        }
        victims
    }

    /// Zones without a footer, and read-only zones, those with the fewest live blocks first, if there is a target for
    /// them. They need no gain, and zones need not be short. Postponed ones are ordinary candidates.
    fn first_victims(&self, gc: &GcState) -> Vec<(ZoneId, Blocks)> {
        let pool = self.maps().pool();
        if pool.free() <= pool.reserved_from(Role::Gc) {
            return Vec::new();
        }
        let zones: BTreeSet<ZoneId> = self
            .placer()
            .reverse()
            .without_footer()
            .into_iter()
            .chain(self.read_only_zones.iter().copied())
            .collect();
        let mut first: Vec<(ZoneId, Blocks)> = zones
            .into_iter()
            .map(|zone| (zone, pool.entry(zone)))
            .filter(|(zone, entry)| entry.live > 0 && entry.role.holds_data() && !gc.stuck.contains(zone))
            .filter(|(zone, _)| !pool.is_open(*zone) && !self.is_postponed(gc, *zone))
            .map(|(zone, entry)| (zone, entry.live))
            .collect();
        first.sort_by_key(|&(_, live)| live);
        first
    }

    /// Blocks for which GC has headroom for sure: in the target, and in the zone that is reserved for GC. User writes
    /// may take the other free zones first.
    fn reserved_headroom(&self, gc: &GcState) -> i64 {
        let pool = self.maps().pool();
        let has_reserve = pool.free() > pool.reserved_from(Role::Gc);
        gc.target_headroom(self.maps().packing()) + i64::from(has_reserve) * i64::from(self.payload_min())
    }

    /// Ends the work on victims whose queue is empty. They should have no live blocks.
    fn finish_victims(&self, gc: &mut GcState) -> Result<Progress> {
        let pool = self.maps().pool();
        let mut moves = BTreeMap::new();
        let (victims, mut left) = (gc.victims.clone(), Vec::new());
        for (zone, life) in victims {
            let now = pool.entry(zone);
            let live = now.live;
            gc.stats.zones_reclaimed += 1;
            if live == 0 || now.life != life || !now.role.holds_data() {
                gc.postponed.remove(&zone);
                gc.unreadable.remove(&zone);
                continue;
            }
            if gc.has_unreadable(zone, life) && !gc.given_up.contains(&zone) {
                gc.stats.zones_reclaimed -= 1;
                // Its unreadable blocks stay until there is no zone to move other victims to.
                if pool.free_soon() <= pool.reserved_from(Role::Gc) {
                    self.mover.find_moves(gc, zone, &mut moves)?;
                    left.push((zone, life));
                }
                continue;
            }
            if gc.searched.insert(zone) {
                gc.stats.zones_reclaimed -= 1;
                gc.stats.zones_searched += 1;
                self.mover.search(zone, &mut moves)?;
                left.push((zone, life));
            } else {
                tracing::error!(
                    "zone {} counts {live} live blocks that no extent names; run `polder check`",
                    zone.0
                );
                gc.stuck.insert(zone);
            }
        }
        let given_up = gc.unreadable_among(&left);
        gc.given_up.extend(given_up);
        gc.queue = self.mover.queue(moves, &left);
        gc.contents = Contents::default();
        gc.victims = left;
        self.note_resets();
        self.placer().reverse().prune(self.maps().store());
        Ok(if gc.victims.is_empty() { Progress::Reclaimed } else { Progress::Moved })
    }
}

/// Read-only zones. Their live blocks are moved before they go offline.
fn read_only_zones(maps: &ObjectMaps) -> Vec<ZoneId> {
    let zones = (0..maps.pool().count()).map(ZoneId);
    zones.filter(|&zone| maps.pool().info(zone).state == ZoneState::ReadOnly).collect()
}
