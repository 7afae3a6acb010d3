//! What is wrong with a volume, and what helps, in plain sentences.

use serde::{Deserialize, Serialize};

use super::rates::Rates;
use super::sample::Sample;
use crate::bytes;
use crate::info::short_host;

/// Less available space than this share of the volume is a warning.
const LOW_SHARE: f64 = 0.05;
/// Less than this is critical.
const FULL_SHARE: f64 = 0.01;
/// A request that takes longer is slow. The manual's bound for zones of 64 MiB is 0.61 s.
const SLOW_SECONDS: f64 = 1.0;
/// How long a mount reports what the last one lost.
const DAY_SECONDS: f64 = 86_400.0;

/// How long an alert about throttling stays.
const THROTTLED_SECONDS: f64 = 60.0;

/// How bad it is. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Data is lost, or programs cannot write.
    Critical,
    /// It will become so, or programs wait.
    Warning,
}

/// Something that an administrator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alert {
    pub(crate) level: Level,
    /// What is wrong.
    pub(crate) what: String,
    /// What helps.
    pub(crate) remedy: String,
}

/// The last time when writers were throttled. Throttling comes and goes within seconds, so the state of one moment says
/// little.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttled {
    /// The time of the sample, and the largest number of moved bytes for each written byte around it.
    last: Option<(f64, f64)>,
}

impl Throttled {
    /// Notes the state of a sample.
    pub(crate) fn note(&mut self, sample: &Sample) {
        let (now, before) = (sample.up_seconds, self.largest(sample));
        let ratio = sample.stats.gc.as_ref().map_or(0.0, |gc| gc.moved_per_written);
        if ratio > 0.0 {
            self.last = Some((now, before.map_or(ratio, |before| before.max(ratio))));
        }
    }

    /// The largest ratio, if writers were throttled not long before this sample.
    fn largest(self, sample: &Sample) -> Option<f64> {
        let is_recent = |at: f64| (0.0..THROTTLED_SECONDS).contains(&(sample.up_seconds - at));
        self.last.filter(|(at, _)| is_recent(*at)).map(|(_, ratio)| ratio)
    }
}

/// All alerts, the worst first.
pub(crate) fn alerts(sample: &Sample, rates: &Rates, throttled: Throttled) -> Vec<Alert> {
    let mut alerts = Vec::new();
    check_state(sample, &mut alerts);
    check_device(sample, &mut alerts);
    check_space(sample, &mut alerts);
    check_throttle(sample, throttled, &mut alerts);
    check_times(rates, &mut alerts);
    alerts.sort_by_key(|alert| alert.level);
    alerts
}

fn check_state(sample: &Sample, alerts: &mut Vec<Alert>) {
    if let Some(reason) = &sample.info.shutdown_reason {
        let remedy = "read the log; unmount the volume, run `polder check`, and mount it again";
        alerts.push(critical(format!("the volume accepts no changes: {reason}"), remedy));
    }
    if sample.info.closing {
        alerts.push(warning(
            "the mount has ended, and the volume is being closed",
            "wait until the daemon has ended",
        ));
    }
    let is_new = sample.up_seconds < DAY_SECONDS;
    if is_new && sample.info.last_mount.is_some_and(|last| last.records_discarded > 0) {
        let what = "the last mount was not closed, and changes that were not synced are lost";
        alerts.push(warning(what, "look for a crash or a killed daemon in the log"));
    }
}

fn check_device(sample: &Sample, alerts: &mut Vec<Alert>) {
    for set in &sample.info.sets {
        if let (Some(problem), Some(remedy)) = (&set.problem, &set.remedy) {
            alerts.push(warning(format!("the volume is degraded: {problem}"), remedy));
        }
    }
    let faults = sample.zone_faults;
    if faults.offline > 0 {
        let what = format!("the device has lost {} zones with their data (offline)", faults.offline);
        alerts.push(critical(
            what,
            "run `polder check` to list the files, restore them, and replace the device",
        ));
    }
    if faults.read_only > 0 || faults.retired > faults.offline {
        let count = faults.read_only.max(faults.retired.saturating_sub(faults.offline));
        alerts.push(warning(
            format!("{count} zones cannot be written any more"),
            "save the data, and replace the device if their number grows",
        ));
    }
    let lost = sample.stats.gc.as_ref().map_or(0, |gc| gc.blocks_lost);
    if lost > 0 {
        let what = format!("garbage collection could not read {lost} blocks");
        alerts.push(critical(what, "run `polder check` to list the files, and restore them"));
    }
    let damaged = sample.info.damaged_copies();
    if damaged > 0 {
        let what = format!("{damaged} copies of the header or of the zone states are damaged");
        alerts.push(warning(what, "mount the volume for writing again, or run `polder check --repair`"));
    }
}

fn check_space(sample: &Sample, alerts: &mut Vec<Alert>) {
    let stored = &sample.stats.stored;
    if let (Some(available), false) = (stored.available_bytes, sample.info.read_only == Some(true)) {
        let share = available as f64 / stored.total_bytes.max(1) as f64;
        let what = format!("only {} are available ({:.1} %)", bytes::show(available), 100.0 * share);
        match share {
            _ if share < FULL_SHARE => alerts.push(critical(what, "delete files")),
            _ if share < LOW_SHARE => alerts.push(warning(what, "delete files, or move them elsewhere")),
            _ => {}
        }
    }
    if let (Some(available), Some(needed)) = (sample.info.host_available_bytes, sample.info.host_needed_bytes)
        && available < needed
    {
        alerts.push(warning(short_host(available, needed), "free space on the host"));
    }
}

fn check_throttle(sample: &Sample, throttled: Throttled, alerts: &mut Vec<Alert>) {
    let Some(gc) = &sample.stats.gc else { return };
    if let Some(ratio) = throttled.largest(sample) {
        let what = format!("writers are throttled: up to {ratio:.1} bytes were moved for each written byte");
        alerts.push(warning(what, "write less, delete files, or run `polder gc` at a quiet time"));
    } else if gc.headroom_bytes < gc.low_watermark_bytes && gc.debt_bytes.is_none() {
        alerts.push(warning("headroom is short, and no zone can be reclaimed", "delete files"));
    }
}

fn check_times(rates: &Rates, alerts: &mut Vec<Alert>) {
    for kind in ["read", "write", "sync", "lookup"] {
        if let Some(slow) = rates.of_kind(kind).p99.filter(|p99| *p99 > SLOW_SECONDS) {
            let what = format!("one {kind} request in a hundred takes {slow:.1} s or more");
            alerts
                .push(warning(what, "look for a slow device in the system's log, and for throttling above"));
        }
    }
}

fn critical(what: impl Into<String>, remedy: &str) -> Alert {
    Alert { level: Level::Critical, what: what.into(), remedy: remedy.to_owned() }
}

fn warning(what: impl Into<String>, remedy: &str) -> Alert {
    Alert { level: Level::Warning, what: what.into(), remedy: remedy.to_owned() }
}

#[cfg(test)]
pub(super) mod tests;
