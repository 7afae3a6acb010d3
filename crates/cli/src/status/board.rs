//! The last sample, and the history.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rt::sync::{Condvar, Mutex};
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use serde_json::json;

use crate::monitor::alerts::{Alert, Throttled, alerts};
use crate::monitor::history::{History, Point, STEP_SECONDS};
use crate::monitor::rates::Rates;
use crate::monitor::sample::Sample;

/// The time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the thread that takes samples passes to those that answer requests.
#[derive(Default)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
    clock: SystemClock,
}

#[derive(Default)]
struct State {
    /// The number of samples.
    number: u64,
    /// When the last one was taken.
    taken_ns: u64,
    report: Option<Arc<Report>>,
    history: History,
}

/// A sample with everything that is derived from it.
#[derive(Debug)]
pub(super) struct Report {
    /// Without the map.
    pub(super) sample: Sample,
    pub(super) alerts: Vec<Alert>,
    /// Sample, rates and alerts as JSON in one line.
    pub(super) event: String,
    /// The map as JSON.
    pub(super) map: String,
}

impl Report {
    fn of(mut sample: Sample, before: Option<&Sample>, throttled: &mut Throttled) -> Result<Report> {
        throttled.note(&sample);
        let map = serde_json::to_string(&sample.zone_map.take())?;
        let rates = Rates::between(before, &sample);
        let alerts = alerts(&sample, &rates, *throttled);
        let event = serde_json::to_string(&json!({ "sample": &sample, "rates": &rates, "alerts": &alerts }))?;
        Ok(Report { sample, alerts, event, map })
    }
}

impl Board {
    /// Takes samples until the process ends. A sample that fails is left out: its age shows that.
    pub(super) fn keep_taking(&self, take: impl Fn() -> Result<Sample>) {
        let (pause, mut last, mut begin) = (Stop::default(), None::<Arc<Report>>, None::<Arc<Report>>);
        let mut throttled = Throttled::default();
        loop {
            let before = last.as_ref().map(|last| &last.sample);
            let taken = take().and_then(|sample| Report::of(sample, before, &mut throttled));
            match taken {
                Ok(report) => {
                    let report = Arc::new(report);
                    let point = point_after(&report, &mut begin);
                    self.put(&report, point);
                    last = Some(report);
                }
                Err(error) => tracing::warn!("no sample for the status page: {error:#}"),
            }
            pause.wait(INTERVAL);
        }
    }

    fn put(&self, report: &Arc<Report>, point: Option<Point>) {
        let mut state = self.state.lock();
        state.number += 1;
        state.taken_ns = self.clock.monotonic_ns();
        state.report = Some(Arc::clone(report));
        if let Some(point) = point {
            state.history.add(point);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The last report. Waits for the first one.
    pub(super) fn report_within(&self, time: Duration) -> Option<Arc<Report>> {
        let mut state = self.state.lock();
        if state.report.is_none() {
            self.changed.wait_for(&mut state, time);
        }
        state.report.clone()
    }

    /// Waits for a report that is newer than the one with this number.
    pub(super) fn next_report(&self, seen: u64, time: Duration) -> Option<(u64, Arc<Report>)> {
        let mut state = self.state.lock();
        if state.number == seen {
            self.changed.wait_for(&mut state, time);
        }
        let report = (state.number != seen).then(|| state.report.clone()).flatten()?;
        Some((state.number, report))
    }

    /// The time since the last sample.
    pub(super) fn age_seconds(&self) -> f64 {
        self.clock.monotonic_ns().saturating_sub(self.state.lock().taken_ns) as f64 / 1e9
    }

    pub(super) fn history(&self) -> String {
        serde_json::to_string(&self.state.lock().history).unwrap_or_default()
    }
}

/// The next point of the history, if it is time for one. It covers the time since `begin`.
fn point_after(report: &Arc<Report>, begin: &mut Option<Arc<Report>>) -> Option<Point> {
    let Some(first) = begin else {
        *begin = Some(Arc::clone(report));
        return None;
    };
    let seconds = report.sample.up_seconds - first.sample.up_seconds;
    if seconds < STEP_SECONDS as f64 - INTERVAL.as_secs_f64() / 2.0 {
        return None;
    }
    let point = Point::of(&report.sample, &Rates::between(Some(&first.sample), &report.sample));
    *begin = Some(Arc::clone(report));
    Some(point)
}

#[cfg(test)]
mod tests;
