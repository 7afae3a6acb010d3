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
//! A writer that finds no zone all the same frees one in `place.rs`.

use rt::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use zone::ZoneId;

use crate::debt::Need;
use crate::gc::{GcState, Goal, Progress};
use crate::{Extents, Lifetime, Result};

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
/// Charges are counted in these parts of a block.
const PARTS: i64 = 1024;

/// What writers are charged.
#[derive(Default)]
pub(crate) struct Throttle {
    /// Blocks that GC has moved since the mount.
    moved: AtomicI64,
    /// What `moved` has to be until writers need not wait, in parts of a block.
    charged: AtomicI64,
    /// The debt of each need, in blocks.
    debts: [AtomicI64; Need::MAX],
    /// The headroom for which the debts were counted.
    headroom: AtomicI64,
    /// The headroom at which the background task found nothing to do.
    futile_at: AtomicI64,
    /// The background task has work.
    is_wanted: AtomicBool,
    /// The background task has found no work.
    sleeps: AtomicBool,
}

impl Throttle {
    /// GC has moved blocks.
    pub(crate) fn moved(&self, blocks: u64) {
        self.moved.fetch_add(blocks as i64, Ordering::Relaxed);
    }

    /// Nothing is charged until the debt is counted again.
    pub(crate) fn forgive(&self) {
        self.debts.iter().for_each(|debt| debt.store(0, Ordering::Relaxed));
        self.charge(0.0, 0);
    }

    /// Charges writers for some more moves; the sum is at most the debt. What was moved without being charged counts for
    /// later charges, but no more than this credit.
    fn charge(&self, blocks: f64, credit: i64) {
        let moved = self.moved.load(Ordering::Relaxed);
        let debt = self.debts.iter().map(|debt| debt.load(Ordering::Relaxed)).max().unwrap_or(0);
        let more = |charged: i64| {
            let charged = charged.max((moved - credit) * PARTS) + (blocks * PARTS as f64) as i64;
            Some(charged.min((moved + debt) * PARTS))
        };
        let _ = self.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Blocks that are charged and not moved.
    pub(crate) fn charged(&self) -> i64 {
        self.charged.load(Ordering::Relaxed) / PARTS - self.moved.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn want_background(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Whether the background task has no work. A writer that finds some later wakes it.
    fn falls_asleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        !self.is_wanted.swap(false, Ordering::SeqCst)
    }

    /// Whether the background task has to be woken. It is woken once.
    pub(crate) fn take_call(&self) -> bool {
        self.is_wanted.load(Ordering::SeqCst)
            && self.sleeps.load(Ordering::SeqCst)
            && self.sleeps.swap(false, Ordering::SeqCst)
    }
}

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
        (debt as f64 / headroom as f64).min(RATIO_MAX)
    }
}

impl Extents {
    fn limits(&self) -> Limits {
        let zone = i64::from(self.payload_min);
        let ahead = (AHEAD_BYTES / i64::from(self.block_size())).min(zone / AHEAD_SHARE);
        Limits { zone, ahead }
    }

    /// The headroom below which GC runs for the next zone, if it is not free: what an open zone takes, for each zone that should
    /// be open.
    pub(crate) fn low_watermark(&self) -> i64 {
        let beyond =
            self.placement.count().saturating_sub(1).min(self.placement.open_max_beyond_classes()) as i64;
        i64::from(self.payload_min) * (beyond + 1)
    }

    /// The needs whose zone is not free and whose headroom is less than the low watermark.
    fn due(&self, needs: &[Need]) -> [bool; Need::MAX] {
        let watermark = self.low_watermark();
        let mut due = [false; Need::MAX];
        for (index, need) in needs.iter().enumerate() {
            due[index] = need.lacking > 0.0 && need.headroom <= (index as i64 + 1) * watermark;
        }
        due
    }

    /// Whether it is time for GC.
    pub(crate) fn is_headroom_low(&self) -> bool {
        self.is_due(&self.needs())
    }

    fn is_due(&self, needs: &[Need]) -> bool {
        self.due(needs).contains(&true)
    }

    /// Charges a writer that appends this number of blocks.
    pub(crate) fn charge(&self, blocks: u64) {
        let needs = self.needs();
        let (throttle, headroom) = (&self.throttle, needs[0].headroom);
        if !self.is_due(&needs) {
            throttle.forgive();
            if !self.are_few_free(&needs) {
                return;
            }
        }
        let share = (i64::from(self.payload_min) / HEADROOM_SHARE).unsigned_abs();
        let has_changed = |since: &AtomicI64| since.load(Ordering::Relaxed).abs_diff(headroom) >= share;
        if has_changed(&throttle.headroom)
            && let Some(gc) = self.gc.try_lock()
        {
            self.count_debt(&gc);
        }
        let piece = self.piece_blocks() as i64;
        throttle.charge(self.ratio(&needs) * blocks as f64, piece);
        if throttle.charged() >= piece || has_changed(&throttle.futile_at) {
            throttle.is_wanted.store(true, Ordering::SeqCst);
        }
    }

    /// Blocks to be moved for each written block now.
    pub(crate) fn ratio(&self, needs: &[Need]) -> f64 {
        let (limits, due) = (self.limits(), self.due(needs));
        let debts = self.throttle.debts.iter().map(|debt| debt.load(Ordering::Relaxed));
        let ratios = needs.iter().zip(due).zip(debts).filter(|((_, is_due), _)| *is_due);
        ratios.map(|((need, _), debt)| limits.ratio(need.headroom, debt)).fold(0.0, f64::max)
    }

    /// Counts what GC has to move for each need.
    pub(crate) fn count_debt(&self, gc: &GcState) {
        if self.store.pool().dead_count() > 0 {
            self.may_need_resets.store(true, Ordering::Relaxed);
        }
        let needs = self.needs();
        let is_held = self.would_take_the_last_zone(gc);
        let due = self.due(&needs);
        for (index, debt) in self.throttle.debts.iter().enumerate() {
            let lacking =
                needs.get(index).filter(|_| due[index] && !is_held).map_or(0.0, |need| need.lacking);
            debt.store(self.debt(gc, lacking.max(0.0)).unwrap_or(0), Ordering::Relaxed);
        }
        self.throttle.headroom.store(needs[0].headroom, Ordering::Relaxed);
        self.throttle.charge(0.0, self.piece_blocks() as i64);
    }

    /// Waits until GC has moved what is charged, before this number of bytes is written. [`Extents::begin_write`] calls it.
    /// Longer operations call it for each further piece.
    pub fn throttle(&self, bytes: u64) {
        let piece = self.piece_blocks() as i64;
        if self.throttle.charged() < piece {
            return;
        }
        let (needs, blocks) = (self.needs(), bytes as f64 / f64::from(self.block_size()));
        let limit = if blocks < piece as f64 { piece.max(needs[0].headroom / 2) } else { piece };
        let own_pieces = (self.ratio(&needs) * blocks / piece as f64).ceil() as u64;
        for _ in 0..=own_pieces {
            if self.throttle.charged() < limit {
                return;
            }
            let gc = if blocks < 1.0 { self.gc.try_lock() } else { Some(self.gc.lock()) };
            let Some(mut gc) = gc else { return };
            let is_done = self.throttle.charged() < limit;
            let worked = if is_done { Ok(false) } else { self.collect_in_step(&mut gc) };
            rt::order::unlock_fair(gc);
            match worked {
                Ok(true) => {}
                Ok(false) => return,
                // The write does not fail for that. The next charge is tried again.
                Err(error) => {
                    self.throttle.forgive();
                    return tracing::warn!("garbage collection: {error}");
                }
            }
        }
    }

    /// A piece of the background task's work; false if there is none.
    pub(crate) fn collect_in_background(&self) -> Result<bool> {
        if self.throttle.falls_asleep() {
            return Ok(false);
        }
        let mut gc = self.gc.lock();
        let worked = match self.is_background_useful(&gc) {
            true => self.collect_in_step(&mut gc),
            false => Ok(false),
        };
        match worked {
            Ok(true) => {
                self.throttle.is_wanted.store(true, Ordering::SeqCst);
                self.throttle.sleeps.store(false, Ordering::SeqCst);
            }
            // It is not tried again before headroom has changed, or writers are charged.
            Ok(false) | Err(_) => self.throttle.futile_at.store(self.headroom(), Ordering::Relaxed),
        }
        rt::order::unlock_fair(gc);
        worked
    }

    /// Whether the background task works now, rather than later when more blocks may have died.
    fn is_background_useful(&self, gc: &GcState) -> bool {
        if self.throttle.charged() > 0 {
            return true;
        }
        // Manual GC goes on with its own victims.
        if gc.has_victims() {
            return !gc.exceeds_reserve() || gc.is_moved();
        }
        let needs = self.needs();
        let is_due = self.is_due(&needs);
        let price = i64::from(self.payload_min) / CHEAP_SHARE;
        (is_due || self.are_few_free(&needs))
            && self.debt_of_one_more(gc).is_some_and(|debt| is_due || debt <= price)
    }

    /// Whether fewer zones are free than the background task frees while they cost little.
    fn are_few_free(&self, needs: &[Need]) -> bool {
        needs[0].lacking > -FREE_ZONES_MAX
    }

    /// Moves a piece, or less where that might take the last zone; false if nothing can or need be moved.
    pub(crate) fn collect_in_step(&self, gc: &mut GcState) -> Result<bool> {
        // Empty victims are given up in any case.
        let is_held = !gc.is_moved() && self.would_take_the_last_zone(gc);
        let left = self.left_to_move(gc).map_or(usize::MAX, |left| left.max(1) as usize);
        if is_held || self.collect_some(gc, Goal::InStep, self.piece_blocks().min(left))? == Progress::Nothing
        {
            self.throttle.forgive();
            return Ok(false);
        }
        if gc.is_moved() {
            // At once, so that the victims can be reset.
            self.collect(gc, Goal::InStep)?;
        }
        self.count_debt(gc);
        Ok(true)
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

impl Extents {
    /// How near user writes are to waiting for GC.
    pub fn pressure(&self) -> Pressure {
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.block_size());
        let debt = self.debt_of_one_more(&self.gc.lock());
        let freed = f64::from(self.payload_min) * self.zones_to_free() as f64;
        Pressure {
            headroom: bytes(self.headroom()),
            low_watermark: bytes(self.low_watermark()),
            debt: debt.map(bytes),
            charged: bytes(self.throttle.charged()),
            moved_per_written: self.ratio(&self.needs()),
            freed_per_moved: debt.filter(|debt| *debt > 0).map(|debt| freed / debt as f64),
        }
    }

    /// The open zones of user data, and the lifetime class of each.
    pub fn open_zones(&self) -> Vec<(ZoneId, Lifetime)> {
        self.placement.classes()
    }
}

#[cfg(test)]
mod tests;
