//! How metadata's next zone is foreseen.
//!
//! Metadata takes one more zone whatever is left for data, and keeps more of those that are free. Where that came as an
//! event, all that a zone costs was found to be done at once. So it is foreseen, little by little: in the last blocks that
//! it can write before it needs one more, what is to be written by now already counted.
//!
//! Most of that is written by the checkpoint that ends an epoch, and until then nothing takes the zone. So it counts in
//! the last part of an epoch only: a quarter, or what a zone of data takes if that is more. While a checkpoint is being
//! taken, or is due since a zone of metadata was cleaned, all of it counts.

use rt::sync::atomic::{AtomicU64, Ordering};
use zone::Cause;

use crate::Extents;

/// In so many bytes of metadata before one more zone is needed for it, that is foreseen …
const BYTES: u64 = 2 << 20;
/// … or in such a share of a zone, if that is less.
const SHARE: u64 = 8;
/// The last part of an epoch, at least.
const LAST_OF_EPOCH: f64 = 0.25;

/// When it was first asked in the running epoch: it is once the zone comes into sight. What was written before is not
/// counted, so that the epoch seems shorter, and more is foreseen, until a zone or so has been written.
#[derive(Default)]
pub(super) struct EpochSeen {
    /// Checkpoints before it, and one more.
    number: AtomicU64,
    /// Bytes of fresh data that had been written by then.
    began: AtomicU64,
}

impl EpochSeen {
    /// Bytes that were written since then, of so many in all.
    pub(super) fn written(&self, number: u64, bytes: u64) -> u64 {
        if self.number.swap(number + 1, Ordering::Relaxed) != number + 1 {
            self.began.store(bytes, Ordering::Relaxed);
        }
        bytes.saturating_sub(self.began.load(Ordering::Relaxed))
    }
}

impl Extents {
    /// Zones that metadata will soon keep beside those that it does: shortly before it needs one more, more and more of
    /// that. With less, garbage collection could not open a zone of its own any more when metadata has taken it.
    pub(super) fn foreseen(&self) -> f64 {
        let geometry = self.device.geometry();
        let until = self.store.headroom_until_reserve_grows();
        let block = u64::from(geometry.block_size);
        let zones = foreseen(until, u64::from(geometry.zone_blocks), BYTES / block);
        if zones <= 0.0 {
            return zones;
        }
        let (number, share) = self.store.epoch();
        let written = self.pace.epoch.written(number, self.store.traffic().bytes_written(Cause::Data));
        let zone = u64::from(self.payload_min.max(1)) * block;
        zones * of_epoch(share, written as f64 / zone as f64)
    }
}

/// Zones that are foreseen for metadata that takes so many blocks before it needs one more: of a zone's length, within
/// so many blocks, or a share of a zone if that is less.
pub(super) fn foreseen(until: i64, zone: u64, within: u64) -> f64 {
    let within = within.min(zone / SHARE).max(1);
    match until {
        0.. => (1.0 - until as f64 / within as f64).max(0.0),
        // One when the room is used up, and more for what does not fit into that.
        _ => 1.0 - until as f64 / zone as f64,
    }
}

/// The part of what the end of an epoch takes that is foreseen when such a share of it has passed, and so many zones of
/// data were written in it.
pub(super) fn of_epoch(share: f64, zones: f64) -> f64 {
    let of_a_zone = if zones > 0.0 { share / zones } else { 1.0 };
    let last = of_a_zone.clamp(LAST_OF_EPOCH, 1.0);
    ((share - (1.0 - last)) / last).clamp(0.0, 1.0)
}
