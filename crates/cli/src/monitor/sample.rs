//! One sample: counters since the mount, and the present state.

use std::collections::BTreeMap;

use fs::{Fs, Lifetime};
use fuse::{DURATION_BUCKETS, Durations};
use polder::Stats;
use serde::{Deserialize, Serialize};
use zone::ZoneId;

use crate::info::Info;

/// A sample. Also the answer to the control request `monitor`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Seconds since the mount, by a clock that never goes backwards.
    pub(crate) up_seconds: f64,
    /// The release of the daemon.
    pub(crate) version: String,
    /// As of `polder info`.
    pub(crate) info: Info,
    /// As of `polder stats`.
    pub(crate) stats: Stats,
    /// The requests of the kernel since the mount.
    pub(crate) requests: Vec<Requests>,
    /// The zones that are open for user writes.
    pub(crate) open_zones: Vec<OpenZone>,
    /// Zones that are damaged or cannot be written.
    pub(crate) zone_faults: ZoneFaults,
    /// The map of all zones. Nothing in an event of the status page, which has it separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone_map: Option<Map>,
}

/// The requests of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Requests {
    pub(crate) kind: String,
    pub(crate) count: u64,
    /// The sum of their durations.
    pub(crate) total_ns: u64,
    /// Bytes in the replies.
    pub(crate) reply_bytes: u64,
    /// The number of requests by duration, for the buckets that are not empty. [`fuse::duration_bound_ns`] has the bounds.
    pub(crate) buckets: BTreeMap<usize, u64>,
}

/// A zone that is open for user writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenZone {
    pub(crate) zone: u32,
    /// The lifetime class of the data.
    pub(crate) lifetime: String,
    pub(crate) live_blocks: u32,
    pub(crate) capacity_blocks: u32,
}

/// Numbers of zones that are damaged or cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZoneFaults {
    /// Zones that are not written again in this mount, with data or without.
    pub(crate) retired: u32,
    /// Zones that the device reports as read-only.
    pub(crate) read_only: u32,
    /// Zones that the device reports as offline. Their data is lost.
    pub(crate) offline: u32,
}

/// The map of all zones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Map {
    pub(crate) zones: u32,
    /// How many zones a cell stands for.
    pub(crate) zones_per_cell: u32,
    /// Two characters for each cell, as in the map of `polder zones`.
    pub(crate) cells: String,
}

impl Requests {
    pub(crate) fn of(durations: &Durations) -> Requests {
        let all = durations.buckets.iter().copied().enumerate();
        Requests {
            kind: durations.kind.name().to_owned(),
            count: durations.buckets.iter().sum(),
            total_ns: durations.total_ns,
            reply_bytes: durations.reply_bytes,
            buckets: all.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// The requests since `before`, of which these are a continuation.
    pub(crate) fn since(&self, before: Option<&Requests>) -> Requests {
        let Some(before) = before else { return self.clone() };
        let buckets = self.buckets.iter().map(|(bucket, count)| {
            (*bucket, count.saturating_sub(before.buckets.get(bucket).copied().unwrap_or(0)))
        });
        let buckets: BTreeMap<usize, u64> = buckets.filter(|(_, count)| *count > 0).collect();
        Requests {
            kind: self.kind.clone(),
            count: buckets.values().sum(),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            reply_bytes: self.reply_bytes.saturating_sub(before.reply_bytes),
            buckets,
        }
    }

    /// The duration in seconds that this share of the requests does not exceed, up to the width of a bucket, which is a
    /// quarter. Nothing without requests.
    pub(crate) fn percentile(&self, share: f64) -> Option<f64> {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            sum += *count;
            sum >= rank
        });
        // The last bucket has no end: its beginning is a lower limit.
        found.map(|(bucket, _)| fuse::duration_bound_ns((*bucket).min(DURATION_BUCKETS - 2)) as f64 / 1e9)
    }
}

impl OpenZone {
    pub(crate) fn of(fs: &Fs, zone: ZoneId, class: Lifetime) -> OpenZone {
        let pool = fs.store().pool();
        OpenZone {
            zone: zone.0,
            lifetime: class.name().to_owned(),
            live_blocks: pool.entry(zone).live,
            capacity_blocks: pool.capacity(zone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(buckets: &[(usize, u64)]) -> Requests {
        let buckets: BTreeMap<usize, u64> = buckets.iter().copied().collect();
        let count = buckets.values().sum();
        Requests { kind: "read".to_owned(), count, total_ns: 100 * count, reply_bytes: 0, buckets }
    }

    #[test]
    fn percentiles_are_the_bounds_of_buckets() {
        let requests = requests(&[(0, 90), (9, 9), (101, 1)]);
        let bound = |bucket| Some(fuse::duration_bound_ns(bucket) as f64 / 1e9);
        assert_eq!(requests.percentile(0.5), bound(0));
        assert_eq!(requests.percentile(0.90), bound(0));
        assert_eq!(requests.percentile(0.99), bound(9));
        assert_eq!(requests.percentile(1.0), bound(DURATION_BUCKETS - 2));
        assert_eq!(super::tests::requests(&[]).percentile(0.5), None);
    }

    #[test]
    fn the_difference_of_two_samples_has_the_new_requests() {
        let (before, after) = (requests(&[(0, 5), (3, 2)]), requests(&[(0, 5), (3, 4), (7, 1)]));
        let new = after.since(Some(&before));
        assert_eq!((new.count, new.total_ns), (3, 300));
        assert_eq!(new.buckets, BTreeMap::from([(3, 2), (7, 1)]));
        assert_eq!(after.since(None).count, 10);
    }
}
