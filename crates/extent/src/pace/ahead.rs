//! What is moved while nobody writes, before any of it is owed.
//!
//! The background moves, piece by piece, what the next zone will cost: from a zone's length before collection would begin,
//! until that zone is there. As long as zones cost little it goes on until some more are there than will be needed: they
//! are what is written into when the next ones cost much.
//!
//! It looks whether anybody writes, or waits until what he has written is durable, and once more a moment later; where
//! somebody does, it is called when he has ended. Who never stops writing never meets it. Nothing is moved that wins no zone, nothing that might take the last one, and
//! nothing amid collection by hand. Where nothing could be moved it does not look again before somebody has written, and
//! where zones cost too much, not before a part of a zone has been.

use std::ops::RangeInclusive;

use rt::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::gc::{GcState, Progress};
use crate::{Extents, Result};

use super::{Need, take};

/// Beyond the zone that is needed next, zones of so many bytes in all are won, …
const BYTES_AHEAD: u64 = 64 << 20;
/// … but so many zones at least, and at most, …
const ZONES_AHEAD: RangeInclusive<u64> = 2..=4;
/// … and no more than such a share of all, …
const SHARE_AHEAD: u64 = 32;
/// … as long as no more has to be moved for one than so many zones take.
const PRICE_AHEAD: i64 = 3;
/// With such a share of a zone left fresh data is about to open the only one there is: while nobody writes, one is soon
/// won again, so that is less than where collection goes in step with what is written.
const ABOUT_TO_OPEN: i64 = 8;

/// Who writes, and what was found when somebody looked.
pub(super) struct Ahead {
    /// Appends of fresh data, and waits for them to be durable, that were begun, and those that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// How many were begun when the background last looked whether anybody writes …
    looked: AtomicU64,
    /// … and how many, and one more, when nothing could be moved ahead.
    in_vain: AtomicU64,
    /// The room that there was when zones cost too much.
    dear_at: AtomicI64,
    /// The background is to be called when nobody writes any more.
    waits: AtomicBool,
}

/// An append of fresh data, or a wait until it is durable, until it is dropped.
pub struct Writing<'p>(&'p Ahead);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Default for Ahead {
    fn default() -> Self {
        let [begun, ended, looked, in_vain] = Default::default();
        Ahead {
            begun,
            ended,
            looked,
            in_vain,
            dear_at: AtomicI64::new(i64::MIN),
            waits: AtomicBool::new(false),
        }
    }
}

impl Ahead {
    pub(super) fn writing(&self) -> Writing<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Writing(self)
    }

    fn is_written(&self) -> bool {
        // In this order: what ends in between looks as if it went on.
        let ended = self.ended.load(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst) != ended
    }

    /// Whether nobody writes, nor has since this was asked last. Who does calls when he has ended.
    pub(super) fn is_quiet(&self) -> bool {
        // Before it is looked: who ends afterwards calls.
        self.waits.store(true, Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        let was_looked = self.looked.swap(begun, Ordering::Relaxed) == begun;
        if self.is_written() {
            return false;
        }
        self.waits.store(false, Ordering::SeqCst);
        was_looked
    }

    /// Whether nobody writes just now. Where somebody does, whoever ends last is asked to call.
    fn is_quiet_or_calls(&self) -> bool {
        if !self.is_written() {
            return true;
        }
        self.waits.store(true, Ordering::SeqCst);
        // Who has ended before that does not call.
        !self.is_written()
    }

    /// Whether the background is to be called because nobody writes any more.
    pub(super) fn take_call(&self) -> bool {
        !self.is_written() && take(&self.waits)
    }

    /// Nothing could be moved: until somebody has written, nothing can.
    fn was_in_vain(&self) {
        self.in_vain.store(self.looked.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Extents {
    /// While nobody writes, moves a chunk of what the next zone will cost before any of it is owed: whether it did.
    pub(crate) fn move_ahead(&self) -> Result<bool> {
        let ahead = &self.pace.ahead;
        if !self.may_move_ahead() || !ahead.is_quiet() {
            return Ok(false);
        }
        let Some(mut gc) = self.gc.try_lock() else { return Ok(false) };
        let is_worth_it =
            self.is_worth_moving_ahead(&gc) && !self.would_take_the_last_zone(&gc, ABOUT_TO_OPEN);
        let worked = match is_worth_it {
            true => self
                .move_some(&mut gc, self.chunk_blocks(), ABOUT_TO_OPEN, None)
                .map(|done| done != Progress::Nothing),
            false => Ok(false),
        };
        match worked {
            Ok(true) => self.pace.unread.store(0, Ordering::Relaxed),
            // What fails is not tried again as long as nobody needs it.
            _ => ahead.was_in_vain(),
        }
        rt::order::unlock_fair(gc);
        worked
    }

    /// Whether [`Extents::step_space`], which had nothing to do, is to look again in a moment: nobody writes just now, and
    /// if that stays so, something may be moved ahead. Where somebody does, the change of whoever ends last calls
    /// ([`Extents::take_call`]).
    pub fn waits_for_quiet(&self) -> bool {
        let ahead = &self.pace.ahead;
        let in_vain = ahead.in_vain.load(Ordering::Relaxed);
        in_vain != ahead.begun.load(Ordering::Relaxed) + 1
            && self.may_move_ahead()
            && ahead.is_quiet_or_calls()
    }

    fn may_move_ahead(&self) -> bool {
        let needs = self.needs();
        !self.short_soon(&needs).is_empty() || self.are_few_ahead(&needs)
    }

    /// The needs for which it is time to collect garbage when as much has been written as a zone takes.
    fn short_soon(&self, needs: &[Need]) -> Vec<Need> {
        self.short(needs, i64::from(self.payload_min))
    }

    /// Whether fewer zones are free, beyond the one that is needed next, than are wanted; not where they cost too much when
    /// it was looked last, and little has been written since.
    fn are_few_ahead(&self, needs: &[Need]) -> bool {
        let (room, dear_at) = (needs[0].room, self.pace.ahead.dear_at.load(Ordering::Relaxed));
        needs[0].zones > -(self.zones_ahead() as f64)
            && room.abs_diff(dear_at) >= self.step_of_room().unsigned_abs()
    }

    fn zones_ahead(&self) -> u64 {
        let zone = u64::from(self.payload_min) * u64::from(self.block_size());
        let wanted = (BYTES_AHEAD / zone.max(1)).clamp(*ZONES_AHEAD.start(), *ZONES_AHEAD.end());
        wanted.min(u64::from(self.device.geometry().zones) / SHARE_AHEAD)
    }

    /// Whether the zone that is won next will be needed soon, or costs little.
    fn is_worth_moving_ahead(&self, gc: &GcState) -> bool {
        let needs = self.needs();
        if gc.is_wide() {
            return false;
        }
        if self.short_soon(&needs).iter().any(|need| self.due(gc, need).is_some()) {
            return true;
        }
        let most = PRICE_AHEAD * i64::from(self.payload_min);
        let is_cheap = self.debt(gc, 1.0).is_some_and(|debt| debt <= most);
        let ahead = if is_cheap { i64::MIN } else { needs[0].room };
        self.pace.ahead.dear_at.store(ahead, Ordering::Relaxed);
        is_cheap && self.are_few_ahead(&needs)
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod shuttled;
