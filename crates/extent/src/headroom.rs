//! What user writes can take before they need a zone that is not free.
//!
//! # Forecast
//! The forecast of the next zone that metadata opens.
//!
//! Metadata takes a zone whatever is left for user data. If GC learned of it only then, all moves for one more zone would be
//! due at once. So the zone is forecast little by little: over the last blocks that metadata can write before it needs one
//! more zone, with the writes of the next checkpoint counted as done.
//!
//! Most of that is written by the checkpoint at the end of an epoch, and nothing takes the zone before. So it counts in the
//! last part of the epoch only: a quarter of it, or the time in which user writes fill a zone if that is longer. While a
//! checkpoint runs, or is due because a metadata zone was collected, all of it counts.

use std::sync::Arc;

use rt::sync::atomic::{AtomicU64, Ordering};
use zone::{Cause, Role};

use crate::charges::NEEDS_MAX;
use crate::maps::ObjectMaps;
use crate::place::Placer;

/// The zone is forecast over the last bytes of metadata before it is needed, this number of them …
const BYTES: u64 = 2 << 20;
/// … or this share of a zone, if that is less.
const SHARE: u64 = 8;
/// The last part of an epoch, at least.
const LAST_OF_EPOCH: f64 = 0.25;

/// A zone that user writes need: the next one, or the one after it if two lifetime classes have open zones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Blocks that user writes take before they need it.
    pub(crate) headroom: i64,
    /// Zones to be freed until then, with a part of what is forecast for metadata. None or less: it is free.
    pub(crate) lacking: f64,
}

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

/// Counts headroom.
pub(crate) struct Headroom {
    maps: Arc<ObjectMaps>,
    placer: Arc<Placer>,
    epoch_writes: EpochWrites,
}

impl Headroom {
    pub(crate) fn new(maps: &Arc<ObjectMaps>, placer: &Arc<Placer>) -> Headroom {
        Headroom { maps: Arc::clone(maps), placer: Arc::clone(placer), epoch_writes: EpochWrites::default() }
    }

    /// Blocks that user writes take before they need a zone that is not free.
    pub(crate) fn blocks(&self) -> i64 {
        self.needs()[0].headroom
    }

    /// The next zone that user writes need, and the next two if there are two classes of data.
    pub(crate) fn needs(&self) -> Vec<Need> {
        // A zone whose header is being written is neither free nor open.
        let spare = (self.spare_zones() + self.placer.placement().opening_count()) as f64 - self.forecast();
        let open_headroom = self.placer.placement().open_headroom(|free| self.maps.packing().payload(free));
        let need = |(open, zones): (i64, u32)| {
            let lacking = f64::from(zones) - spare;
            let free = (1.0 - lacking).max(0.0) * f64::from(self.placer.payload_min());
            Need { headroom: open + free as i64, lacking }
        };
        let needs: Vec<Need> = open_headroom.until.iter().copied().zip(1..).map(need).collect();
        assert!((1..=NEEDS_MAX).contains(&needs.len()), "there is a next zone");
        needs
    }

    /// The headroom below which GC runs for the next zone, if it is not free: what an open zone takes, for each zone that should
    /// be open.
    pub(crate) fn low_watermark(&self) -> i64 {
        let beyond = self
            .placer
            .placement()
            .count()
            .saturating_sub(1)
            .min(self.placer.placement().open_max_beyond_classes()) as i64;
        i64::from(self.placer.payload_min()) * (beyond + 1)
    }

    /// The needs whose zone is not free and whose headroom is less than the low watermark.
    pub(crate) fn due(&self, needs: &[Need]) -> [bool; NEEDS_MAX] {
        let watermark = self.low_watermark();
        assert!(needs.len() <= NEEDS_MAX, "each need has a debt");
        let mut due = [false; NEEDS_MAX];
        for (index, need) in needs.iter().enumerate() {
            due[index] = need.lacking > 0.0 && need.headroom <= (index as i64 + 1) * watermark;
        }
        due
    }

    pub(crate) fn is_due(&self, needs: &[Need]) -> bool {
        self.due(needs).contains(&true)
    }

    /// Whether it is time for GC.
    pub(crate) fn is_low(&self) -> bool {
        self.is_due(&self.needs())
    }

    /// Zones that user writes may open; negative while GC has taken one from the reserve.
    pub(crate) fn spare_zones(&self) -> i64 {
        let pool = self.maps.pool();
        i64::from(pool.free_soon()) - i64::from(pool.reserved_from(Role::Data))
    }

    /// Zones to be freed until there is one more than there must be.
    pub(crate) fn zones_to_free(&self) -> i64 {
        (self.forecast().round() as i64 - self.spare_zones()).max(0) + 1
    }

    /// Zones that metadata will soon take or reserve in addition: a part of one, or more.
    pub(crate) fn forecast(&self) -> f64 {
        let geometry = self.maps.device().geometry();
        let until = self.maps.store().headroom_until_reserve_grows();
        let block = u64::from(geometry.block_size);
        let zones = forecast(until, u64::from(geometry.zone_blocks), BYTES / block);
        if zones <= 0.0 {
            return zones;
        }
        let (number, share) = self.maps.store().epoch();
        let written =
            self.epoch_writes.written(number, self.maps.store().traffic().bytes_written(Cause::Data));
        let zone = u64::from(self.placer.payload_min().max(1)) * block;
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
