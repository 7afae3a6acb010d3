//! Manual GC: the user asks for it, whether zones are short or not.
//!
//! It is the same work as in `collector.rs`, on the same state: a writer may continue work that manual GC began, and the other
//! way round. Only the end differs. Manual GC ends when moving the live blocks of all worthwhile victims would reclaim
//! no zone, and not when enough zones are free.
//!
//! It also takes more victims at once, because GC joins pieces of files only if they are moved together. The victims
//! are taken for all zones that user writes could have, while these are free. None of them is reclaimed before the last
//! one has been moved, and other threads may take these zones meanwhile. Then the victims are released, and others are
//! chosen for the reserved headroom. Manual GC never uses up the reserve.

use std::collections::BTreeSet;

use tree::{Pool, Usage};
use zone::{Blocks, Life, Role, ZoneId};

use super::collector::Collector;
use super::state::{GcState, Goal, Progress};
use crate::Result;

/// Live blocks of the victims, at most: memory holds a few words for each extent.
const BLOCKS_AT_ONCE: i64 = 65_536;
/// The fewest zones of the log and the trees.
const STORE_ZONES_MIN: u32 = 2;

/// What GC could still reclaim now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Zones that can be opened now.
    pub free_zones: u32,
    /// The number of zones that GC can free.
    pub zones_to_reclaim: u32,
    /// Blocks to be moved for these.
    pub blocks_to_move: u64,
}

impl Collector {
    /// What GC could still reclaim. Reads the state of all zones.
    pub fn outlook_now(&self) -> Outlook {
        self.outlook(&self.lock())
    }

    /// Does one piece of manual GC. Returns false if GC can reclaim no more. Call with no map lock, and again as often
    /// as wanted: the caller may stop at any time.
    pub fn manual_gc(&self) -> Result<bool> {
        if self.maps().store().reclaim(true)? > 0 {
            return Ok(true);
        }
        let mut gc = self.lock();
        if gc.victims().next().is_none() && self.outlook(&gc).zones_to_reclaim == 0 {
            return Ok(false);
        }
        match self.collect(&mut gc, Goal::All)? {
            Progress::Moved => Ok(true),
            Progress::Nothing => Ok(false),
            Progress::Reclaimed => {
                self.maps().store().reclaim(true)?;
                Ok(true)
            }
        }
    }

    /// The headroom of manual GC, if no other thread takes the zones.
    pub(crate) fn headroom_for_all(&self, gc: &GcState) -> i64 {
        let pool = self.maps().pool();
        let zones = i64::from(pool.free()) - i64::from(pool.reserved_from(Role::Data));
        let headroom =
            gc.target_headroom(self.maps().packing()) + zones.max(0) * i64::from(self.payload_min());
        headroom.min(BLOCKS_AT_ONCE)
    }

    /// The most zones that GC reclaims from the victims with the fewest live blocks, and the fewest moves for it.
    fn outlook(&self, gc: &GcState) -> Outlook {
        let pool = self.maps().pool();
        let in_hand: BTreeSet<ZoneId> = gc.victims().collect();
        let stuck: BTreeSet<ZoneId> = gc.stuck().collect();
        let is_there = |&(zone, life): &(ZoneId, Life)| {
            let entry = pool.entry(zone);
            entry.life == life && entry.role.holds_data()
        };
        let present = gc.victims_with_life().filter(is_there).map(|(zone, _)| (zone, pool.entry(zone).live));
        let has_gain = |&(zone, live): &(ZoneId, Blocks)| live < self.maps().payload_of(zone);
        let others = pool.victims(usize::MAX).into_iter();
        let is_excluded =
            |zone| in_hand.contains(&zone) || stuck.contains(&zone) || self.is_unreadable(gc, zone);
        let others = others.filter(|&(zone, _)| !is_excluded(zone));
        let mut outlook = Outlook { free_zones: pool.free(), ..Outlook::default() };
        let (mut gain, mut moved) = (self.gain_of(gc), 0);
        for (_, live) in present.chain(others.filter(has_gain)) {
            gain.add(live);
            moved += u64::from(live);
            if gain.zones() > i64::from(outlook.zones_to_reclaim) {
                (outlook.zones_to_reclaim, outlook.blocks_to_move) = (gain.zones() as u32, moved);
            }
        }
        outlook
    }
}

/// The largest possible number of free zones without deletions. Live blocks need the other zones, however well they are
/// packed, and the log and the trees need one each at least. The number may not be reached.
pub fn free_zones_max(pool: &Pool) -> u32 {
    let (mut capacities, mut live) = (Vec::new(), 0);
    for zone in (0..pool.count()).map(ZoneId).filter(|&zone| pool.usage(zone) != Usage::Retired) {
        let entry = pool.entry(zone);
        live += if entry.role.holds_data() { u64::from(entry.live) } else { 0 };
        capacities.push(pool.capacity(zone));
    }
    free_zones_beside(capacities, live).saturating_sub(STORE_ZONES_MIN)
}

/// The number of zones left if this number of blocks is in the largest ones, behind the header of each.
fn free_zones_beside(mut capacities: Vec<Blocks>, live: u64) -> u32 {
    capacities.sort_unstable();
    let mut left = live;
    while left > 0
        && let Some(capacity) = capacities.pop()
    {
        left = left.saturating_sub(u64::from(capacity) - 1);
    }
    capacities.len() as u32
}

#[cfg(test)]
mod tests;
