//! Dead blocks in metadata zones: which zones GC collects, and whether it should.

use pool::{GC_MINIMUM, LOG_ZONES, MetadataZone};
use rt::sync::atomic::Ordering;
use zone::{Blocks, Cause};

use super::Headroom;
use crate::saving::Saving;

/// Many zones are free if their number exceeds this fraction of all zones.
const MANY_FREE_ZONES: u32 = 4;
/// If a zone has fewer dead pages than this, GC of the zone gains no more than its checkpoint writes.
pub const GAIN_PAGES: Blocks = 4;
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

impl Headroom {
    /// The number of closed metadata zones, and their live and dead blocks.
    pub(crate) fn closed_garbage(&self) -> (u64, u64, u64) {
        let zones = self.volume.pool.closed_metadata();
        let live = zones.iter().map(|zone| u64::from(zone.live)).sum();
        let dead = zones.iter().map(|zone| u64::from(zone.dead())).sum();
        (zones.len() as u64, live, dead)
    }

    /// Whether background GC of the best victim would gain more than four times what the checkpoint after it writes.
    pub(crate) fn gc_gains_much(&self, saving: &Saving) -> bool {
        let best = self.victims(saving, Need::May).into_iter().min_by_key(|victim| victim.live);
        best.is_some_and(|victim| {
            u64::from(victim.dead()) > 4 * self.table_blocks(saving, victim.live.into())
        })
    }

    /// Free zones that metadata must leave when it grows.
    pub(crate) fn needed_to_grow(&self) -> u32 {
        self.volume.pool.metadata_reserve() + self.zones_lacking.load(Ordering::Relaxed)
    }

    /// Whether metadata may not grow, because its zones have too few dead blocks: GC would move many blocks for a small
    /// gain.
    pub(crate) fn lacks_zones(&self) -> bool {
        let are_lacking = self.zones_lacking.load(Ordering::Relaxed) > 0;
        are_lacking && self.volume.pool.free_or_outstanding() < self.needed_to_grow()
    }

    /// Finds out whether metadata zones have enough dead or unwritten blocks, so that GC does not move many blocks for
    /// a small gain. Called after a checkpoint, because only then the blocks are dead that no epoch needs.
    pub(crate) fn measure_garbage(&self, saving: &Saving) {
        let (_, live, dead) = self.closed_garbage();
        let open = saving.zone.free_blocks();
        let zone = self.volume.zone_blocks();
        let lacking = (live / GARBAGE_SHARE).saturating_sub(dead + open).div_ceil(zone) as u32;
        self.zones_lacking.store(lacking, Ordering::Relaxed);
        let are_made_up_for = self.volume.pool.free_or_taken() >= self.needed_to_grow();
        self.is_short_of_zones.store(lacking > 0 && !are_made_up_for, Ordering::Relaxed);
    }

    /// Computes how many blocks of its zones metadata may leave dead, and the number of zones that it needs for that.
    pub(crate) fn update_metadata_share(&self, saving: &mut Saving) {
        let written =
            [Cause::Data, Cause::Checkpoint].map(|cause| self.volume.leases.traffic().bytes_written(cause));
        saving.metadata_share.update(written);
        let zone = self.volume.zone_blocks();
        let kept = LOG_ZONES + self.volume.pool.metadata_reserve_max() + GC_MINIMUM;
        let all = u64::from(self.volume.pool.count().saturating_sub(kept)) * zone;
        let live = [self.volume.pool.live_data(), self.trees.metadata_blocks()];
        let lives = live[0].saturating_add(live[1]);
        let dead_blocks_max =
            saving.metadata_share.for_metadata(live, all.saturating_sub(lives)).min(2 * live[1]);
        self.dead_blocks_max.store(dead_blocks_max, Ordering::Relaxed);
        // The open zone comes on top. It has few live or dead blocks yet.
        let zones = 1 + (live[1].saturating_add(dead_blocks_max) / zone) as u32;
        let of_zone = zone * u64::from(self.volume.device.geometry().block_size);
        if self.volume.pool.raise_metadata_target(zones, u32::from(saving.metadata_share.may_grow(of_zone)))
            > 0
        {
            saving.metadata_share.has_grown();
        }
    }

    /// Whether the dead blocks of metadata zones justify a GC. The limit is twice the live blocks while many zones are
    /// free. Otherwise it is half of the live blocks, or more if the write rates say so. The longer a zone waits, the
    /// fewer blocks have to be moved.
    pub(crate) fn gc_is_worth_it(&self) -> bool {
        let (_, live, garbage) = self.closed_garbage();
        let zone = self.volume.zone_blocks();
        let abound = self.volume.pool.free() > self.volume.pool.count() / MANY_FREE_ZONES;
        let dead_blocks_max = self.dead_blocks_max.load(Ordering::Relaxed);
        let bearable = if abound { 2 * live } else { dead_blocks_max.max(live / 2) };
        garbage > (2 * zone).max(bearable)
    }

    /// Whether the dead blocks of closed metadata zones together fill a zone.
    pub(crate) fn dead_blocks_fill_a_zone(&self) -> bool {
        let (_, _, dead) = self.closed_garbage();
        dead >= self.volume.zone_blocks()
    }

    /// Closed metadata zones whose GC gains enough for this urgency.
    pub(crate) fn victims(&self, saving: &Saving, need: Need) -> Vec<MetadataZone> {
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
        let mut victims = self.volume.pool.closed_metadata();
        victims.retain(|victim| is_worth_it(victim) && gains(victim));
        assert!(
            victims.iter().all(|victim| saving.zone.id() != Some(victim.zone)),
            "the open zone is not closed"
        );
        victims
    }

    /// Blocks that must be dead in a zone of this capacity before it is collected.
    pub(crate) fn dead_at_least(&self, capacity: Blocks, need: Need) -> Blocks {
        let part = match need {
            Need::May => 4,
            Need::Should => 8,
            Need::Must => 16,
        };
        (capacity / part).max(GAIN_PAGES * self.volume.pool.page_blocks())
    }
}
