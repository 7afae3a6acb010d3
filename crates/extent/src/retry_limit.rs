//! When a writer that finds no zone stops trying.
//!
//! The writer tries again whenever a reset has ended since its last attempt, because the reset may have freed the zone
//! that it needs. But metadata zones are reset as long as other threads change metadata, and metadata takes each of these
//! zones again. So the writer counts attempts without progress. There is progress if it has reclaimed a victim, if data
//! has opened or freed a zone, or if the headroom of metadata is larger than at any earlier attempt. Headroom rises and
//! falls with each checkpoint, but its maximum rises only a limited number of times. Faster threads that take each freed
//! zone open a zone, so they cause no refusal. So a writer stops when nothing can be reclaimed, and only then.

use tree::Store;

/// Attempts without progress, one after the other, after which there is no space.
const FAILURES_MAX: u32 = 16;
/// After this number of them, a reset that ended before GC was tried does not count.
const FAILURES_BEFORE_GC: u32 = FAILURES_MAX / 2;

/// The attempts of one writer to find a zone.
#[derive(Debug, Default)]
pub(crate) struct RetryLimit {
    /// How often data had opened or freed a zone at the last progress.
    turnover: u64,
    /// The largest headroom of metadata at any attempt since then, in blocks.
    headroom_max: u64,
    failures: u32,
}

impl RetryLimit {
    /// Counts an attempt. Returns whether another one is allowed.
    pub(crate) fn allows_retry(&mut self, store: &Store) -> bool {
        let (turnover, headroom) = (store.pool().turnover(), store.metadata_headroom());
        if turnover != self.turnover || headroom > self.headroom_max {
            *self = RetryLimit { turnover, headroom_max: headroom, failures: 0 };
        } else {
            self.failures += 1;
            assert!(self.failures <= FAILURES_MAX, "a writer that may not try again stops");
        }
        self.failures < FAILURES_MAX
    }

    /// The number of ended resets after which another one is a reason to try again. `over` had ended before the attempt.
    pub(crate) fn resets_to_exceed(&self, store: &Store, over: u64) -> u64 {
        if self.failures < FAILURES_BEFORE_GC { over } else { store.resets_over() }
    }
}
