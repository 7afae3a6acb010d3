//! Zipf's law over a finite number of ranks: rank *k* (from 1) is drawn with a probability proportional to 1 /
//! *k*^exponent. Drawing searches in the cumulative sums, so it is exact for any exponent.

pub(super) struct Zipf {
    /// The probability of this rank or a smaller one.
    sums: Vec<f64>,
}

impl Zipf {
    pub(super) fn new(ranks: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|part| *part /= sum);
        Zipf { sums }
    }

    /// The rank, from 0, that belongs to a uniform number from 0 to 1.
    pub(super) fn rank(&self, uniform: f64) -> usize {
        self.sums.partition_point(|sum| *sum <= uniform).min(self.sums.len() - 1)
    }
}
