//! Resets that may still be undone.
//!
//! Suppose a superzone of a stripe begins a new life before its reset is durable on all members. After a loss of power
//! one member has the old life and another one the new life. The superzone then has blocks of both, and no pointer that
//! belongs to either. Headers do not always show it: a header that was lost may read as that of the old life.

use std::collections::BTreeMap;

use rt::sync::Mutex;

use crate::ZoneId;

/// The superzones that were reset since the last flush.
#[derive(Default)]
pub(super) struct UnflushedResets(Mutex<Resets>);

#[derive(Default)]
struct Resets {
    /// The number of flushes that had begun when the zone was reset.
    zones: BTreeMap<u32, u64>,
    flushes: u64,
}

impl UnflushedResets {
    /// Notes a reset. Called before it is sent, and again when all members have executed it: a flush that begins before
    /// that does not cover it.
    pub(super) fn add(&self, zone: ZoneId) {
        let mut resets = self.0.lock();
        let flushes = resets.flushes;
        resets.zones.insert(zone.0, flushes);
    }

    /// Whether the reset of a zone may be undone.
    pub(super) fn contains(&self, zone: ZoneId) -> bool {
        self.0.lock().zones.contains_key(&zone.0) && !rt::is_planted("set-reset")
    }

    /// A flush begins: the number to pass to [`UnflushedResets::end_flush`] when it has succeeded.
    pub(super) fn begin_flush(&self) -> u64 {
        let mut resets = self.0.lock();
        resets.flushes += 1;
        resets.flushes
    }

    /// Resets that were noted before that flush began are durable.
    pub(super) fn end_flush(&self, flush: u64) {
        self.0.lock().zones.retain(|_, begun| *begun >= flush);
    }
}
