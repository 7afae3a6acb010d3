//! How long each of many operations took.
//!
//! Each power of two has 64 buckets, so a quantile is at most 1.6 % wrong whatever its size, and a bucket for each
//! possible time fits into 30 KiB.

/// The buckets of a power of two, as a power of two.
const BUCKET_BITS: u32 = 6;
/// Times below this have a bucket each.
const EXACT: u64 = 2 << BUCKET_BITS;
const BUCKETS: usize = ((u64::BITS - BUCKET_BITS + 1) << BUCKET_BITS) as usize;

/// The number of operations by their duration in nanoseconds.
#[derive(Clone)]
pub struct Latencies {
    counts: Vec<u64>,
    operations: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { counts: vec![0; BUCKETS], operations: 0 }
    }
}

impl Latencies {
    /// Counts an operation.
    pub fn add(&mut self, took_ns: u64) {
        self.counts[bucket(took_ns)] += 1;
        self.operations += 1;
    }

    /// Counts the operations of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, count)| *own += count);
        self.operations += other.operations;
    }

    /// The number of operations.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The time in nanoseconds that this part of the operations did not exceed. 0 without operations.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let rank = ((self.operations as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, middle_ns)
    }
}

/// The bucket of a time.
fn bucket(took_ns: u64) -> usize {
    if took_ns < EXACT {
        return took_ns as usize;
    }
    let shift = u64::BITS - took_ns.leading_zeros() - BUCKET_BITS - 1;
    ((shift as usize) << BUCKET_BITS) + (took_ns >> shift) as usize
}

/// The time in the middle of a bucket.
fn middle_ns(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let shift = (bucket >> BUCKET_BITS) - 1;
    let first = ((bucket - (shift << BUCKET_BITS)) as u64) << shift;
    first + (1 << (shift - 1))
}

#[cfg(test)]
mod tests;
