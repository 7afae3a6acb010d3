//! What writers are charged for garbage collection (GC), and whether the background task has work.
//!
//! `throttle.rs` has the formula.

use rt::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Zones that user writes need, each with its debt: the next one, and the one after it.
pub(crate) const NEEDS_MAX: usize = 2;
/// Charges are counted in these parts of a block.
const PARTS: i64 = 1024;

/// What writers are charged.
#[derive(Default)]
pub(crate) struct Charges {
    /// Blocks that GC has moved since the mount.
    moved: AtomicI64,
    /// What `moved` has to be until writers need not wait, in parts of a block.
    charged: AtomicI64,
    /// The debt of each need, in blocks.
    debts: [AtomicI64; NEEDS_MAX],
    /// The headroom for which the debts were counted.
    headroom: AtomicI64,
    /// The headroom at which the background task found nothing to do.
    futile_at: AtomicI64,
    /// The background task has work.
    is_wanted: AtomicBool,
    /// The background task has found no work.
    sleeps: AtomicBool,
}

impl Charges {
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
    pub(crate) fn charge(&self, blocks: f64, credit: i64) {
        assert!(blocks >= 0.0 && credit >= 0, "a charge is never negative");
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

    /// The debt of each need, in blocks.
    pub(crate) fn debts(&self) -> [i64; NEEDS_MAX] {
        self.debts.each_ref().map(|debt| debt.load(Ordering::Relaxed))
    }

    /// The debts were counted for this headroom.
    pub(crate) fn set_debts(&self, debts: [i64; NEEDS_MAX], headroom: i64) {
        assert!(debts.iter().all(|&debt| debt >= 0), "GC never has fewer than no blocks to move");
        self.debts.iter().zip(debts).for_each(|(stored, debt)| stored.store(debt, Ordering::Relaxed));
        self.headroom.store(headroom, Ordering::Relaxed);
    }

    /// Whether the headroom has changed by this number of blocks since the debts were counted.
    pub(crate) fn are_outdated(&self, headroom: i64, blocks: u64) -> bool {
        self.headroom.load(Ordering::Relaxed).abs_diff(headroom) >= blocks
    }

    /// The background task found nothing to do with this headroom.
    pub(crate) fn note_futile(&self, headroom: i64) {
        self.futile_at.store(headroom, Ordering::Relaxed);
    }

    /// Whether the headroom has changed by this number of blocks since the background task found nothing to do.
    pub(crate) fn is_worth_a_try(&self, headroom: i64, blocks: u64) -> bool {
        self.futile_at.load(Ordering::Relaxed).abs_diff(headroom) >= blocks
    }

    /// The background task has more work, and goes on.
    pub(crate) fn stay_awake(&self) {
        self.want_background();
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// The background task has work.
    pub(crate) fn want_background(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Whether the background task has no work. A writer that finds some later wakes it.
    pub(crate) fn falls_asleep(&self) -> bool {
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

#[cfg(test)]
mod tests;
