//! One hour of history, in a ring of fixed size.

use std::collections::VecDeque;

use serde::Serialize;

use super::rates::Rates;
use super::sample::Sample;

/// The time between two points.
pub(crate) const STEP_SECONDS: u64 = 5;
/// The number of points: an hour.
const POINTS: usize = 3600 / STEP_SECONDS as usize;

/// The points of the last hour, the oldest first.
#[derive(Debug, Default, Serialize)]
pub(crate) struct History(VecDeque<Point>);

/// The numbers of a chart at one time. Durations are in seconds, and 0 without requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) at_ms: u64,
    pub(crate) written: f32,
    pub(crate) read: f32,
    pub(crate) device: f32,
    pub(crate) gc: f32,
    pub(crate) metadata: f32,
    pub(crate) read_p99: f32,
    pub(crate) write_p99: f32,
    pub(crate) sync_p99: f32,
    pub(crate) headroom: f32,
    pub(crate) debt: f32,
    pub(crate) throttle: f32,
    pub(crate) available: f32,
    pub(crate) free_zones: u32,
}

impl History {
    /// Adds a point. Drops the oldest one if there are enough for an hour.
    pub(crate) fn add(&mut self, point: Point) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }
}

impl Point {
    pub(crate) fn of(sample: &Sample, rates: &Rates) -> Point {
        let by_cause = |causes: &[&str]| {
            let all = &rates.device_bytes_per_second_by_cause;
            causes.iter().filter_map(|cause| all.get(*cause)).sum::<f64>() as f32
        };
        let p99 = |kind| rates.of_kind(kind).p99.unwrap_or(0.0) as f32;
        let gc = sample.stats.gc.as_ref();
        Point {
            at_ms: sample.at_ms,
            written: rates.written_bytes_per_second as f32,
            read: rates.read_bytes_per_second as f32,
            device: rates.device_bytes_per_second() as f32,
            gc: by_cause(&["gc", "metadata_gc"]),
            metadata: by_cause(&["journal", "checkpoint", "header", "zone_states"]),
            read_p99: p99("read"),
            write_p99: p99("write"),
            sync_p99: p99("sync"),
            headroom: gc.map_or(0.0, |gc| gc.headroom_bytes as f32),
            debt: gc.and_then(|gc| gc.debt_bytes).unwrap_or(0) as f32,
            throttle: gc.map_or(0.0, |gc| gc.moved_per_written as f32),
            available: sample.stats.stored.available_bytes.unwrap_or(0) as f32,
            free_zones: sample.stats.stored.zones_by_role.get("free").copied().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::alerts::tests::sample;

    #[test]
    fn the_history_is_an_hour_at_most() {
        let (mut history, sample) = (History::default(), sample());
        for at_ms in 0..2 * POINTS as u64 {
            history.add(Point { at_ms, ..Point::of(&sample, &Rates::default()) });
        }
        assert_eq!(history.0.len(), POINTS);
        assert_eq!(history.0[0].at_ms, POINTS as u64);
        assert!(serde_json::to_string(&history).unwrap().len() < 512 << 10);
    }
}
