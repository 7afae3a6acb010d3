//! Samples of a mounted volume, for `polder top`, the status page and the metrics.
//!
//! A sample has a bounded size and takes a bounded time, however large the volume is: it reads counters, and the state of
//! at most [`zone_map::ZONES_IN_A_STEP`] zones. Rates and percentiles are the difference of two samples ([`rates`]).

pub(crate) mod alerts;
pub(crate) mod history;
pub(crate) mod rates;
pub(crate) mod sample;
pub(crate) mod zone_map;

use anyhow::Result;
use fs::Fs;
use fuse::RequestTimes;
use polder::Stats;
use rt::sync::Mutex;
use rt::{Clock, SystemClock};

use crate::info::{Info, Place};
use sample::{OpenZone, Requests, Sample};
use zone_map::ZoneMap;

/// Takes samples of one mount.
pub(crate) struct Monitor {
    requests: RequestTimes,
    zones: Mutex<ZoneMap>,
    /// Its time begins with the mount.
    clock: SystemClock,
}

impl Monitor {
    /// `requests`: of the mount. A volume has at least one zone.
    pub(crate) fn new(requests: RequestTimes, zones: u32) -> Monitor {
        Monitor { requests, zones: Mutex::new(ZoneMap::new(zones)), clock: SystemClock::new() }
    }

    /// A sample of the present state.
    pub(crate) fn sample(&self, fs: &Fs, place: &Place, read_only: bool) -> Result<Sample> {
        let info = Info::of(fs, place)?;
        let open = fs.extents().open_zones();
        let (zone_map, by_role, faults) = {
            let mut zones = self.zones.lock();
            zones.step(fs);
            (zones.shown(), zones.by_role(), zones.faults())
        };
        Ok(Sample {
            at_ms: unix_ms(self.clock.now().0),
            up_seconds: self.clock.monotonic_ns() as f64 / 1e9,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            info,
            stats: Stats::with_zones(fs, read_only, by_role),
            requests: self.requests.durations().iter().map(Requests::of).collect(),
            open_zones: open.into_iter().map(|(zone, class)| OpenZone::of(fs, zone, class)).collect(),
            zone_faults: faults,
            zone_map: Some(zone_map),
        })
    }
}

/// Milliseconds since 1970.
fn unix_ms(ns: i64) -> u64 {
    u64::try_from(ns / 1_000_000).unwrap_or(0)
}
