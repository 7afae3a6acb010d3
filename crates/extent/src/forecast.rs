//! The forecast of the next zone that metadata opens.
//!
//! Metadata takes a zone whatever is left for user data. If GC learned of it only then, all moves for one more zone would be
//! due at once. So the zone is forecast little by little: over the last blocks that metadata can write before it needs one
//! more zone, with the writes of the next checkpoint counted as done.
//!
//! Most of that is written by the checkpoint at the end of an epoch, and nothing takes the zone before. So it counts in the
//! last part of the epoch only: a quarter of it, or the time in which user writes fill a zone if that is longer. While a
//! checkpoint runs, or is due because a metadata zone was collected, all of it counts.

use rt::sync::atomic::{AtomicU64, Ordering};
use zone::Cause;

use crate::Extents;

/// The zone is forecast over the last bytes of metadata before it is needed, this number of them …
const BYTES: u64 = 2 << 20;
/// … or this share of a zone, if that is less.
const SHARE: u64 = 8;
/// The last part of an epoch, at least.
const LAST_OF_EPOCH: f64 = 0.25;

/// What users have written in the running epoch. It counts from the first forecast in the epoch, which happens when the zone
/// comes into view. So the epoch seems shorter, and the forecast is higher, until about a zone has been written.
#[derive(Default)]
pub(crate) struct EpochWrites {
    /// Checkpoints before the epoch, plus one.
    number: AtomicU64,
    /// Bytes of user data that had been written at the first forecast.
    began: AtomicU64,
}

impl EpochWrites {
    /// Bytes written in this epoch. `bytes` were written in all.
    fn written(&self, number: u64, bytes: u64) -> u64 {
        if self.number.swap(number + 1, Ordering::Relaxed) != number + 1 {
            self.began.store(bytes, Ordering::Relaxed);
        }
        bytes.saturating_sub(self.began.load(Ordering::Relaxed))
    }
}

impl Extents {
    /// Zones that metadata will soon take or reserve in addition: a part of one, or more.
    pub(crate) fn forecast(&self) -> f64 {
        let geometry = self.device.geometry();
        let until = self.store.headroom_until_reserve_grows();
        let block = u64::from(geometry.block_size);
        let zones = forecast(until, u64::from(geometry.zone_blocks), BYTES / block);
        if zones <= 0.0 {
            return zones;
        }
        let (number, share) = self.store.epoch();
        let written = self.epoch_writes.written(number, self.store.traffic().bytes_written(Cause::Data));
        let zone = u64::from(self.payload_min.max(1)) * block;
        zones * of_epoch(share, written as f64 / zone as f64)
    }
}

/// Zones that are forecast if metadata can write `until` blocks before it needs one more zone of `zone` blocks. They rise
/// from 0 to 1 over the last `within` blocks, or over a share of a zone if that is less.
fn forecast(until: i64, zone: u64, within: u64) -> f64 {
    let within = within.min(zone / SHARE).max(1);
    match until {
        0.. => (1.0 - until as f64 / within as f64).max(0.0),
        // One, and more for what does not fit into it.
        _ => 1.0 - until as f64 / zone as f64,
    }
}

/// The part of the forecast that counts after this share of the epoch, in which users filled this number of zones.
fn of_epoch(share: f64, zones: f64) -> f64 {
    let of_a_zone = if zones > 0.0 { share / zones } else { 1.0 };
    let last = of_a_zone.clamp(LAST_OF_EPOCH, 1.0);
    ((share - (1.0 - last)) / last).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
