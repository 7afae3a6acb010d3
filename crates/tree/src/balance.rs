//! How much of its zones metadata may leave dead: as much as makes cleaning both metadata and data cheapest.
//!
//! What is cleaned has to be moved, the more of it the less is dead beside what lives. Of a log in which *L* blocks
//! live and *x* are dead, and whose blocks die at random, about *L* / 2*x* are moved for each that is written. Where
//! *r* are written, one block more that may be dead saves *r L* / 2*x*². So what can be dead in all is shared best
//! where that is the same for both: in the proportion of the roots of *r L* (Dayan, Bouganim and Bonnet, "Modelling and
//! Managing SSD Write-amplification", 2015, have it for partitions of an SSD).
//!
//! Files that are written as a whole write hardly any metadata, and theirs is little. Single blocks that are written
//! over at random write as many bytes of metadata as of data, and what lives of it is a fiftieth.
//!
//! The share is a wish. Data leaves so many free zones to metadata, and whoever finds no zone takes them
//! ([`pool::Pool::lower_metadata_target`]); nothing that correctness needs is in it.

/// Of what was written before, so much counts less with each checkpoint.
const FADES: f64 = 1.0 / 32.0;
/// Metadata has no more of what can be dead than this: its writes come in bursts.
const SHARE_MAX: f64 = 0.5;

/// What has been written of late, by whom.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Balance {
    /// Bytes of users' data, and of checkpoints, up to the last look.
    seen: [u64; 2],
    /// The same, what was written long ago less than what was written just now.
    lately: [f64; 2],
    /// Bytes of data that had been written when the share last grew.
    grown_at: u64,
}

impl Balance {
    /// So many bytes of data, and of metadata that is not moved, have been written since the mount.
    pub(crate) fn look(&mut self, written: [u64; 2]) {
        for ((lately, now), before) in self.lately.iter_mut().zip(written).zip(self.seen) {
            *lately = *lately * (1.0 - FADES) + (now - before) as f64;
        }
        self.seen = written;
    }

    /// Whether so many bytes of data have been written since the share last grew: data is to lose a zone at a time.
    pub(crate) fn may_grow(&self, bytes: u64) -> bool {
        self.seen[0] - self.grown_at >= bytes
    }

    /// The share has grown.
    pub(crate) fn has_grown(&mut self) {
        self.grown_at = self.seen[0];
    }

    /// Blocks that may be dead in metadata zones, where so many live of data and of metadata, and so many are dead or
    /// free of both, but for those that are kept.
    pub(crate) fn for_metadata(&self, live: [u64; 2], others: u64) -> u64 {
        let weight = |index: usize| (self.lately[index] * live[index] as f64).sqrt();
        let all = weight(0) + weight(1);
        let share = if all > 0.0 { weight(1) / all } else { 0.0 };
        (others as f64 * share.min(SHARE_MAX)) as u64
    }
}

#[cfg(test)]
mod tests;
