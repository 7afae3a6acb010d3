//! The present rate of writing, in contrast to the average since the mount.

use rt::sync::Mutex;

/// The rate is measured over at least this time, and at most twice this time.
const WINDOW_NS: u64 = 10_000_000_000;
const SECOND_NS: f64 = 1e9;

/// How much had been written at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ns: u64,
    bytes: u64,
}

/// Two samples to compare the present with.
#[derive(Debug)]
pub(crate) struct WriteRate {
    /// The older one and the newer one. The newer one replaces the older one later.
    samples: Mutex<[Sample; 2]>,
}

impl WriteRate {
    pub(crate) fn new(at_ns: u64) -> Self {
        WriteRate { samples: Mutex::new([Sample { at_ns, bytes: 0 }; 2]) }
    }

    /// Takes a sample if one is due. Must be called often while data is written.
    pub(crate) fn note(&self, at_ns: u64, bytes: u64) {
        let mut samples = self.samples.lock();
        let now = Sample { at_ns, bytes };
        match at_ns.saturating_sub(samples[1].at_ns) {
            // Nothing was written in between, because this would have been called.
            passed if passed >= 2 * WINDOW_NS => *samples = [now; 2],
            passed if passed >= WINDOW_NS => *samples = [samples[1], now],
            _ => {}
        }
    }

    /// Bytes per second; 0 if no time has passed.
    pub(crate) fn per_second(&self, at_ns: u64, bytes: u64) -> u64 {
        let [since, _] = *self.samples.lock();
        let (time, written) = (at_ns.saturating_sub(since.at_ns), bytes.saturating_sub(since.bytes));
        if time == 0 { 0 } else { (written as f64 * SECOND_NS / time as f64) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn old_writes_do_not_count() {
        let rate = WriteRate::new(5 * SECOND);
        assert_eq!(rate.per_second(5 * SECOND, 100), 0);
        assert_eq!(rate.per_second(7 * SECOND, 100), 50);
        // A thousand bytes per second for half a minute, then nothing.
        for second in 6..=35 {
            rate.note(second * SECOND, (second - 5) * 1000);
        }
        assert_eq!(rate.per_second(35 * SECOND, 30_000), 1000);
        for second in 36..=50 {
            rate.note(second * SECOND, 30_000);
            assert!(rate.per_second(second * SECOND, 30_000) < 1000);
        }
        (51..=60).for_each(|second| rate.note(second * SECOND, 30_000));
        assert_eq!(rate.per_second(60 * SECOND, 30_000), 0);
        // After an hour without a sample, a thousand bytes per second again.
        rate.note(3660 * SECOND, 30_000);
        assert_eq!(rate.per_second(3665 * SECOND, 35_000), 1000);
    }
}
