//! Clocks, which are passed to the code that needs the time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since 1970-01-01 00:00 UTC. May be negative, and may go backwards between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A source of time.
pub trait Clock: Send + Sync {
    /// The time of day, for the times of files.
    fn now(&self) -> Timestamp;
    /// Nanoseconds since some fixed moment of this clock. Never goes backwards.
    fn monotonic_ns(&self) -> u64;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[allow(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn new() -> Self {
        SystemClock { started: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    /// The kernel stamps writes to its cache with the time of its last tick. With a finer clock, a file could seem to
    /// have been written before it was created.
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp(now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec))
    }

    fn monotonic_ns(&self) -> u64 {
        self.started.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicI64,
    monotonic: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        ManualClock { now: AtomicI64::new(now.0), monotonic: AtomicU64::new(0) }
    }

    /// Moves both times forward.
    pub fn advance(&self, nanoseconds: u64) {
        self.monotonic.fetch_add(nanoseconds, Ordering::SeqCst);
        self.now.fetch_add(i64::try_from(nanoseconds).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the time of day, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic.load(Ordering::SeqCst)
    }
}
