//! Garbage collection that somebody asks for, whether zones are short or not.
//!
//! It is the same work as ever (`gc.rs`), in the same hands: what was begun here may be gone on with by a
//! writer, and the other way round. Only when to stop is decided otherwise: not when enough zones are free, but
//! when emptying all that is worth it would win none.
//!
//! And how much is emptied at once: what belongs together comes together only if it is moved together. So victims are
//! taken for all zones that fresh data could have, while these are there. None of them is empty before the last has been
//! moved, and others may take those zones meanwhile: then the victims are put back, and chosen anew for the room that is
//! sure. What is kept from fresh data is never used up this way.

use std::collections::BTreeSet;

use tree::Usage;
use zone::{Blocks, Life, Role, ZoneId};

use crate::gc::{Aim, GcState, Progress};
use crate::{Extents, Result};

/// Blocks that are taken in hand at once, at most: of each extent some words are kept.
const BLOCKS_AT_ONCE: i64 = 65_536;
/// Zones that the log and the trees have at the least.
const STORE_ZONES_LEAST: u32 = 2;

/// What garbage collection could still come to, as things are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Zones that could be opened now.
    pub free_zones: u32,
    /// How many more there could be.
    pub zones_to_win: u32,
    /// Blocks to be moved for that.
    pub blocks_to_move: u64,
}

impl Extents {
    /// What garbage collection could still come to. Looks at all zones.
    pub fn gc_outlook(&self) -> Outlook {
        self.outlook(&self.gc.lock())
    }

    /// How many zones can be free, at most, as long as nothing is deleted: what lives needs the others, however well
    /// it is packed, and so do the log and the trees, one each at the least. There may be fewer.
    pub fn free_zones_most(&self) -> u32 {
        let pool = self.store.pool();
        let (mut capacities, mut live) = (Vec::new(), 0);
        for zone in (0..pool.count()).map(ZoneId).filter(|&zone| pool.usage(zone) != Usage::Retired) {
            let entry = pool.entry(zone);
            live += if entry.role.holds_data() { u64::from(entry.live) } else { 0 };
            capacities.push(pool.capacity(zone));
        }
        free_at_most(capacities, live).saturating_sub(STORE_ZONES_LEAST)
    }

    /// One piece of garbage collection; false when it can win nothing more. Call with no map lock, and again
    /// as long as it is wanted: it may stop at any time.
    pub fn compact(&self) -> Result<bool> {
        if self.store.reclaim(true)? > 0 {
            return Ok(true);
        }
        let mut gc = self.gc.lock();
        if gc.victims().next().is_none() && self.outlook(&gc).zones_to_win == 0 {
            return Ok(false);
        }
        match self.collect(&mut gc, Aim::All)? {
            Progress::Moved => Ok(true),
            Progress::Nothing => Ok(false),
            Progress::Evacuated => {
                self.store.reclaim(true)?;
                Ok(true)
            }
        }
    }

    /// Blocks that there is room for when all is asked for, as long as nobody else takes it.
    pub(crate) fn room_for_all(&self, gc: &GcState) -> i64 {
        let pool = self.store.pool();
        let spare = i64::from(pool.free()) - i64::from(pool.reserved_from(Role::Data));
        let room = gc.target_room(self.packing) + spare.max(0) * i64::from(self.payload_min);
        room.min(BLOCKS_AT_ONCE)
    }

    /// Whether there is a zone that fresh data could have as well.
    pub(crate) fn has_zone_for_all(&self) -> bool {
        let pool = self.store.pool();
        pool.free() > pool.reserved_from(Role::Data)
    }

    /// The most zones that emptying the ones with the least in them wins, and the least to be moved for it.
    fn outlook(&self, gc: &GcState) -> Outlook {
        let pool = self.store.pool();
        let in_hand: BTreeSet<ZoneId> = gc.victims().collect();
        let stuck: BTreeSet<ZoneId> = gc.stuck().collect();
        let is_there = |&(zone, life): &(ZoneId, Life)| {
            let entry = pool.entry(zone);
            entry.life == life && entry.role.holds_data()
        };
        let begun = gc.victims_as_chosen().filter(is_there).map(|(zone, _)| (zone, pool.entry(zone).live));
        let worth_it = |&(zone, live): &(ZoneId, Blocks)| live < self.payload_of(zone);
        let others = pool.victims(usize::MAX).into_iter();
        let is_left = |zone| in_hand.contains(&zone) || stuck.contains(&zone) || self.is_waiting(gc, zone);
        let others = others.filter(|&(zone, _)| !is_left(zone));
        let mut outlook = Outlook { free_zones: pool.free(), ..Outlook::default() };
        let (mut gain, mut moved) = (self.gain_of(gc), 0);
        for (_, live) in begun.chain(others.filter(worth_it)) {
            gain.add(live);
            moved += u64::from(live);
            if gain.zones() > i64::from(outlook.zones_to_win) {
                (outlook.zones_to_win, outlook.blocks_to_move) = (gain.zones() as u32, moved);
            }
        }
        outlook
    }
}

/// How many zones are left when so many blocks lie in the largest ones, behind the header of each.
fn free_at_most(mut capacities: Vec<Blocks>, live: u64) -> u32 {
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
