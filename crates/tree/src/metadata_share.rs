//! How many dead blocks metadata may leave in its zones, so that GC of metadata and of data together costs least.
//!
//! GC moves the live blocks of its victims, and the fewer dead blocks there are, the more it moves. Take a log with
//! *L* live and *x* dead blocks, whose blocks die at random. GC of it moves about *L* / 2*x* blocks for each block
//! that is written. At a write rate of *r*, one more dead block saves *r L* / 2*x*². The best division of all dead
//! blocks makes this saving equal for both, which is in proportion to the square roots of *r L* (Dayan, Bouganim and
//! Bonnet, "Modelling and Managing SSD Write-amplification", 2015, show it for partitions of an SSD).
//!
//! Writes of whole files cause few writes of metadata, and the share of metadata is then small. Random overwrites of
//! single blocks write as many bytes of metadata as of data, although live metadata is a fiftieth of live data.
//!
//! The share is a soft target. Data leaves this number of free zones to metadata. A role that finds no other free zone
//! takes them ([`pool::Pool::lower_metadata_target`]). Correctness does not depend on them.

/// The weight of earlier writes falls by this fraction with each checkpoint.
const DECAY: f64 = 1.0 / 32.0;
/// Metadata gets no larger share of all dead blocks than this, because its writes come in bursts.
const SHARE_MAX: f64 = 0.5;

/// The recent write rates of data and metadata.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetadataShare {
    /// Bytes of user writes and of checkpoints up to the last update.
    seen: [u64; 2],
    /// The same with decay: older writes weigh less than recent ones.
    recent_writes: [f64; 2],
    /// Bytes of user writes when the share last grew.
    grown_at: u64,
}

impl MetadataShare {
    /// Updates the rates with the bytes of user data, and of metadata without moves by GC, written since the mount.
    pub(crate) fn update(&mut self, written: [u64; 2]) {
        for ((recent, now), before) in self.recent_writes.iter_mut().zip(written).zip(self.seen) {
            *recent = *recent * (1.0 - DECAY) + (now - before) as f64;
        }
        self.seen = written;
    }

    /// Whether `bytes` of data have been written since the share last grew. Data loses one zone at a time.
    pub(crate) fn may_grow(&self, bytes: u64) -> bool {
        self.seen[0] - self.grown_at >= bytes
    }

    /// Notes that the share has grown.
    pub(crate) fn has_grown(&mut self) {
        self.grown_at = self.seen[0];
    }

    /// Blocks that may be dead in metadata zones. `live` has the live blocks of data and of metadata, and `others` the
    /// dead or free blocks of both without the reserve.
    pub(crate) fn for_metadata(&self, live: [u64; 2], others: u64) -> u64 {
        let weight = |index: usize| (self.recent_writes[index] * live[index] as f64).sqrt();
        let all = weight(0) + weight(1);
        let share = if all > 0.0 { weight(1) / all } else { 0.0 };
        (others as f64 * share.min(SHARE_MAX)) as u64
    }
}

#[cfg(test)]
mod tests;
