//! The durations of operations.

use serde::Serialize;

/// Durations of single operations, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

/// A summary of many operations, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The number of operations.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

impl Latencies {
    /// Adds an operation.
    pub fn add(&mut self, nanoseconds: u64) {
        self.0.push(nanoseconds);
    }

    /// Extends the last operation by something that belongs to it and came later.
    pub fn extend_last(&mut self, nanoseconds: u64) {
        if let Some(last) = self.0.last_mut() {
            *last += nanoseconds;
        }
    }

    /// Percentiles by nearest rank.
    pub fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = |per_mille: usize| {
            let rank = (sorted.len() * per_mille).div_ceil(1000);
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Summary {
            count: sorted.len() as u64,
            p50_ns: rank(500),
            p99_ns: rank(990),
            p999_ns: rank(999),
            max_ns: rank(1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut latencies = Latencies::default();
        (1..=2000).rev().for_each(|latency| latencies.add(latency));
        latencies.extend_last(0);
        let expected = Summary { count: 2000, p50_ns: 1000, p99_ns: 1980, p999_ns: 1998, max_ns: 2000 };
        assert_eq!(latencies.summary(), expected);
        assert_eq!(Latencies::default().summary(), Summary::default());
    }
}
