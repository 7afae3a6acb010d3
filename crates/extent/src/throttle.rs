//! How long user writes wait for garbage collection (GC).
//!
//! *Headroom* is what user writes can take before they need a zone that is not free yet. *Debt* is what GC has to move until
//! that zone is free. A written block is charged debt ÷ headroom:
//!
//! ```text
//! ratio  = debt ÷ (headroom − 2 MiB)               at most 16; the 2 MiB pay for resets and for the length of a write
//! charge = charge + ratio · written − moved        from −1 piece, the credit for moves in advance, to the debt
//! wait   until charge < 1 piece                    a write shorter than a piece: until charge < half of the headroom, too
//! ```
//!
//! So the zone is free shortly before the headroom ends. A write waits for no more pieces than its own length is charged, and
//! one. Nothing is charged while the next zone is free: blocks that die meanwhile need not be moved.
//! Where two lifetime classes have open zones, the second zone from now is a need of its own, because both may end at once.
//!
//! A write is charged when its blocks are appended. It waits at its beginning, before it takes a lock, for what is charged
//! by then, and does the work itself, one piece at a time, in turn with the background task. A write shorter than a block,
//! which may be stored inline, does not wait for a piece that another thread moves. The background task also frees two more
//! zones while they cost next to nothing. Reads and fsync never wait.
//!
//! A writer that finds no zone all the same frees one (`supply.rs`).

use std::sync::Arc;

use crate::Result;
use crate::charges::Charges;
use crate::gc::{Collector, GcState, Goal, Progress};
use crate::headroom::Need;

/// Blocks to be moved for each written block, at most.
const RATIO_MAX: f64 = 16.0;
/// The next zone is to be free while headroom is still this number of bytes, because it must be reset first …
const AHEAD_BYTES: i64 = 2 << 20;
/// … or this share of a zone, if that is less.
const AHEAD_SHARE: i64 = 8;
/// The ratio does not rise any more when headroom is less than this share of a zone.
const END_SHARE: i64 = 24;
/// The background task goes on until this number of zones is free beyond the next one …
const FREE_ZONES_MAX: f64 = 2.0;
/// … if no more blocks are moved for a zone than this share of it.
const CHEAP_SHARE: i64 = 4;
/// The debt is counted again, and what was futile is tried again, when headroom has changed by this share of a zone.
const HEADROOM_SHARE: i64 = 32;

/// The limits of a volume, in blocks.
struct Limits {
    /// Blocks of user data that a zone takes.
    zone: i64,
    /// The headroom at which the next zone is to be free.
    ahead: i64,
}

impl Limits {
    /// Blocks to be moved for each written block.
    fn ratio(&self, headroom: i64, debt: i64) -> f64 {
        let headroom = (headroom - self.ahead).max(self.zone / END_SHARE).max(1);
        assert!(debt >= 0 && headroom > 0, "writers are charged for moves");
        (debt as f64 / headroom as f64).min(RATIO_MAX)
    }
}

/// Makes user writes wait for GC.
pub struct Throttle {
    collector: Arc<Collector>,
    charges: Arc<Charges>,
}

impl Throttle {
    pub(crate) fn new(collector: &Arc<Collector>, charges: &Arc<Charges>) -> Throttle {
        Throttle { collector: Arc::clone(collector), charges: Arc::clone(charges) }
    }

    pub(crate) fn charges(&self) -> &Charges {
        &self.charges
    }

    fn limits(&self) -> Limits {
        let zone = i64::from(self.collector.placer().payload_min());
        let ahead = (AHEAD_BYTES / i64::from(self.collector.maps().block_size())).min(zone / AHEAD_SHARE);
        Limits { zone, ahead }
    }

    /// Charges a writer that appends this number of blocks.
    pub(crate) fn charge(&self, blocks: u64) {
        let needs = self.collector.headroom().needs();
        let (charges, headroom) = (&*self.charges, needs[0].headroom);
        if !self.collector.headroom().is_due(&needs) {
            charges.forgive();
            if !self.are_few_free(&needs) {
                return;
            }
        }
        let share = (i64::from(self.collector.placer().payload_min()) / HEADROOM_SHARE).unsigned_abs();
        if charges.are_outdated(headroom, share)
            && let Some(gc) = self.collector.try_lock()
        {
            self.count_debt(&gc);
        }
        let piece = self.collector.mover().reader().piece_blocks() as i64;
        charges.charge(self.ratio(&needs) * blocks as f64, piece);
        if charges.charged() >= piece || charges.is_worth_a_try(headroom, share) {
            charges.want_background();
        }
    }

    /// Blocks to be moved for each written block now.
    pub(crate) fn ratio(&self, needs: &[Need]) -> f64 {
        let (limits, due) = (self.limits(), self.collector.headroom().due(needs));
        let ratios = needs.iter().zip(due).zip(self.charges.debts()).filter(|((_, is_due), _)| *is_due);
        ratios.map(|((need, _), debt)| limits.ratio(need.headroom, debt)).fold(0.0, f64::max)
    }

    /// Counts what GC has to move for each need.
    pub(crate) fn count_debt(&self, gc: &GcState) {
        if self.collector.maps().pool().dead_count() > 0 {
            self.collector.note_resets();
        }
        let needs = self.collector.headroom().needs();
        let is_held = self.collector.would_take_the_last_zone(gc);
        let due = self.collector.headroom().due(&needs);
        let debts = std::array::from_fn(|index| {
            let lacking =
                needs.get(index).filter(|_| due[index] && !is_held).map_or(0.0, |need| need.lacking);
            self.collector.debt(gc, lacking.max(0.0)).unwrap_or(0)
        });
        self.charges.set_debts(debts, needs[0].headroom);
        self.charges.charge(0.0, self.collector.mover().reader().piece_blocks() as i64);
    }

    /// Waits until GC has moved what is charged, before this number of bytes is written. `Extents::begin_write` calls it.
    /// Longer operations call it for each further piece.
    pub fn wait(&self, bytes: u64) {
        let piece = self.collector.mover().reader().piece_blocks() as i64;
        if self.charges.charged() < piece {
            return;
        }
        let (needs, blocks) =
            (self.collector.headroom().needs(), bytes as f64 / f64::from(self.collector.maps().block_size()));
        let limit = if blocks < piece as f64 { piece.max(needs[0].headroom / 2) } else { piece };
        let own_pieces = (self.ratio(&needs) * blocks / piece as f64).ceil() as u64;
        for _ in 0..=own_pieces {
            if self.charges.charged() < limit {
                return;
            }
            let gc = if blocks < 1.0 { self.collector.try_lock() } else { Some(self.collector.lock()) };
            let Some(mut gc) = gc else { return };
            let is_done = self.charges.charged() < limit;
            let worked = if is_done { Ok(false) } else { self.collect_in_step(&mut gc) };
            rt::order::unlock_fair(gc);
            match worked {
                Ok(true) => {}
                Ok(false) => return,
                // The write does not fail for that. The next charge is tried again.
                Err(error) => {
                    self.charges.forgive();
                    return tracing::warn!("garbage collection: {error}");
                }
            }
        }
    }

    /// A piece of the background task's work; false if there is none.
    pub(crate) fn collect_in_background(&self) -> Result<bool> {
        if self.charges.falls_asleep() {
            return Ok(false);
        }
        let mut gc = self.collector.lock();
        let worked = match self.is_background_useful(&gc) {
            true => self.collect_in_step(&mut gc),
            false => Ok(false),
        };
        match worked {
            Ok(true) => {
                self.charges.stay_awake();
            }
            // It is not tried again before headroom has changed, or writers are charged.
            Ok(false) | Err(_) => self.charges.note_futile(self.collector.headroom().blocks()),
        }
        rt::order::unlock_fair(gc);
        worked
    }

    /// Whether the background task works now, rather than later when more blocks may have died.
    fn is_background_useful(&self, gc: &GcState) -> bool {
        if self.charges.charged() > 0 {
            return true;
        }
        // Manual GC goes on with its own victims.
        if gc.has_victims() {
            return !gc.exceeds_reserve() || gc.is_moved();
        }
        let needs = self.collector.headroom().needs();
        let is_due = self.collector.headroom().is_due(&needs);
        let price = i64::from(self.collector.placer().payload_min()) / CHEAP_SHARE;
        (is_due || self.are_few_free(&needs))
            && self.collector.debt_of_one_more(gc).is_some_and(|debt| is_due || debt <= price)
    }

    /// Whether fewer zones are free than the background task frees while they cost little.
    fn are_few_free(&self, needs: &[Need]) -> bool {
        needs[0].lacking > -FREE_ZONES_MAX
    }

    /// Moves a piece, or less where that might take the last zone; false if nothing can or need be moved.
    pub(crate) fn collect_in_step(&self, gc: &mut GcState) -> Result<bool> {
        // Empty victims are given up in any case.
        let is_held = !gc.is_moved() && self.collector.would_take_the_last_zone(gc);
        let left = self.collector.left_to_move(gc).map_or(usize::MAX, |left| left.max(1) as usize);
        if is_held
            || self.collector.collect_some(
                gc,
                Goal::InStep,
                self.collector.mover().reader().piece_blocks().min(left),
            )? == Progress::Nothing
        {
            self.charges.forgive();
            return Ok(false);
        }
        if gc.is_moved() {
            // At once, so that the victims can be reset.
            self.collector.collect(gc, Goal::InStep)?;
        }
        self.count_debt(gc);
        Ok(true)
    }

    /// How near user writes are to waiting for GC.
    pub fn pressure(&self) -> Pressure {
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.collector.maps().block_size());
        let debt = self.collector.debt_of_one_more(&self.collector.lock());
        let freed = f64::from(self.collector.placer().payload_min())
            * self.collector.headroom().zones_to_free() as f64;
        Pressure {
            headroom: bytes(self.collector.headroom().blocks()),
            low_watermark: bytes(self.collector.headroom().low_watermark()),
            debt: debt.map(bytes),
            charged: bytes(self.charges.charged()),
            moved_per_written: self.ratio(&self.collector.headroom().needs()),
            freed_per_moved: debt.filter(|debt| *debt > 0).map(|debt| freed / debt as f64),
        }
    }
}

/// How near user writes are to waiting for GC, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// What user writes can take before a zone must have been freed.
    pub headroom: u64,
    /// The headroom below which writers are charged, if the zone that is needed next is not free.
    pub low_watermark: u64,
    /// What GC has to move until one more zone is free than there must be. None: no zone can be freed.
    pub debt: Option<u64>,
    /// What is charged to writers and not moved.
    pub charged: u64,
    /// Bytes that GC has to move for each written byte.
    pub moved_per_written: f64,
    /// Bytes that are freed for each moved byte, in the zones that would be victims next.
    pub freed_per_moved: Option<f64>,
}

impl Pressure {
    /// What can be written before GC begins. 0 if it has begun, or begins when a zone is lacking.
    pub fn before_gc(&self) -> u64 {
        self.headroom.saturating_sub(self.low_watermark)
    }
}

#[cfg(test)]
mod tests;
