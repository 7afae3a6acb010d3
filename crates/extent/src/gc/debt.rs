//! What garbage collection (GC) has to move for the zones that user writes need.
//!
//! Debt is counted as it will happen. A victim is a free zone when all of its live blocks have been moved, and not before.
//! The moved blocks take a zone whenever GC's open zone is full. GC takes that zone from the reserve, and the next victims
//! return it before user writes need one. So GC needs no further free zone. That matters on a volume with few zones: dead
//! blocks cannot accumulate in a zone that stays free.

use zone::{Blocks, Life, ZoneId};

use super::collector::Collector;
use super::state::{GcState, Goal};

/// User writes are about to open a zone when this share of a zone is left of their headroom.
const ABOUT_TO_OPEN: i64 = 2;
/// No extent is longer than this share of a zone.
const EXTENT_SHARE: Blocks = 8;
/// GC moves at least this share of a piece at once.
const PIECE_SHARE: i64 = 4;
/// Candidates that are examined to count the debt.
const CANDIDATES_MAX: usize = 256;

/// What moving the blocks of some zones frees.
pub(crate) struct Gain {
    /// Blocks that GC's open zone takes.
    into: i64,
    /// Blocks that another zone takes.
    payload: i64,
    freed: i64,
    moved: i64,
}

impl Gain {
    pub(crate) fn new(into: i64, payload: i64) -> Gain {
        Gain { into, payload, freed: 0, moved: 0 }
    }

    /// Adds a zone with this number of live blocks.
    pub(crate) fn add(&mut self, live: Blocks) {
        self.freed += 1;
        self.moved += i64::from(live);
    }

    /// Zones that are free afterwards, less those that the moved blocks take.
    pub(crate) fn zones(&self) -> i64 {
        assert!(self.payload > 0 && self.moved >= 0, "zones take blocks");
        let beyond = (self.moved - self.into).max(0);
        self.freed - (beyond + self.payload - 1) / self.payload
    }
}

impl Collector {
    /// Whether GC's next moves take the only zone that user writes may open, while they are about to open it. They take it
    /// first.
    pub(crate) fn would_take_the_last_zone(&self, gc: &GcState) -> bool {
        self.left_to_move(gc)
            .is_some_and(|left| left < self.mover().reader().piece_blocks() as i64 / PIECE_SHARE)
    }

    /// Blocks that GC can move before it takes the only zone that user writes may open, if they are about to open it.
    pub(crate) fn left_to_move(&self, gc: &GcState) -> Option<i64> {
        let open_headroom =
            self.placer().placement().open_headroom(|free| self.maps().packing().payload(free));
        let opens_soon = open_headroom.is_shared
            || open_headroom.until[0] <= i64::from(self.payload_min()) / ABOUT_TO_OPEN;
        let is_last = self.headroom().spare_zones() == 1 && opens_soon;
        // The last extent of a piece is moved whole.
        let beyond = i64::from(self.maps().piece_blocks_max().min(self.payload_min() / EXTENT_SHARE));
        is_last.then(|| gc.target_headroom(self.maps().packing()) - beyond)
    }

    /// Blocks to be moved until this number of zones has been freed; for a part of a zone, that part of its moves. None if
    /// they cannot be freed.
    pub(crate) fn debt(&self, gc: &GcState, zones: f64) -> Option<i64> {
        assert!(zones >= 0.0, "no fewer than no zones are freed");
        if zones == 0.0 {
            return Some(0);
        }
        let debts = self.debts(gc, zones.ceil() as usize);
        let of = |zones: usize| if zones == 0 { Some(0) } else { debts.get(zones - 1).copied() };
        let whole = of(zones as usize)?;
        let next = of(zones.ceil() as usize).unwrap_or(whole);
        Some(whole + ((next - whole) as f64 * zones.fract()) as i64)
    }

    /// Blocks to be moved until one zone has been freed, two, and so on. The victims in hand come first, all of them
    /// together. The list is shorter if fewer zones can be freed.
    fn debts(&self, gc: &GcState, zones: usize) -> Vec<i64> {
        let (mut gain, mut debts) = (self.gain_of(gc), Vec::new());
        let (in_hand, others) = self.victims_to_come(gc);
        in_hand.into_iter().for_each(|live| gain.add(live));
        let mut note = |gain: &Gain| {
            let freed = (gain.zones().max(0) as usize).min(zones);
            debts.resize(freed.max(debts.len()), gain.moved);
            debts.len() >= zones
        };
        let mut is_enough = note(&gain);
        for live in others {
            if is_enough {
                break;
            }
            gain.add(live);
            is_enough = note(&gain);
        }
        debts
    }

    /// The live blocks of each victim in hand, and of those that would be next. Zones without live blocks are free.
    fn victims_to_come(&self, gc: &GcState) -> (Vec<Blocks>, Vec<Blocks>) {
        let pool = self.maps().pool();
        // A victim that has been reset is among the free zones.
        let is_there = |&(zone, life): &(ZoneId, Life)| {
            let entry = pool.entry(zone);
            entry.life == life && entry.role.holds_data()
        };
        let in_hand: Vec<ZoneId> = gc.victims_with_life().filter(is_there).map(|(zone, _)| zone).collect();
        let mut others = self.ranked_victims(Goal::InStep, CANDIDATES_MAX + in_hand.len());
        others.retain(|&(zone, live)| {
            (1..self.maps().payload_of(zone)).contains(&live)
                && !in_hand.contains(&zone)
                // It is not written again when it is empty.
                && !self.is_read_only(zone)
                && !gc.is_stuck(zone)
                && !self.is_unreadable(gc, zone)
        });
        let in_hand = in_hand.into_iter().map(|zone| pool.entry(zone).live).filter(|&live| live > 0);
        (in_hand.collect(), others.into_iter().map(|(_, live)| live).collect())
    }

    /// Blocks to be moved for one free zone more than there must be.
    pub(crate) fn debt_of_one_more(&self, gc: &GcState) -> Option<i64> {
        self.debt(gc, self.headroom().zones_to_free() as f64)
    }

    /// The gain of GC before any victim, with GC's open zone as its target.
    pub(crate) fn gain_of(&self, gc: &GcState) -> Gain {
        Gain::new(gc.target_headroom(self.maps().packing()), i64::from(self.payload_min().max(1)))
    }
}

#[cfg(test)]
pub(crate) mod tests;
