//! Rates and percentiles: the difference of two samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sample::{Requests, Sample};

/// What happened between two samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rates {
    /// The time between the samples.
    pub(crate) seconds: f64,
    /// User writes that have reached Polder.
    pub(crate) written_bytes_per_second: f64,
    /// Bytes that the kernel has read for programs.
    pub(crate) read_bytes_per_second: f64,
    /// Bytes written to the device, by cause.
    pub(crate) device_bytes_per_second_by_cause: BTreeMap<String, f64>,
    /// Bytes written to the device for each byte of user writes. Nothing without user writes.
    pub(crate) amplification: Option<f64>,
    pub(crate) requests: BTreeMap<String, RequestRates>,
    /// Nodes that were not in the cache, for each second.
    pub(crate) nodes_read_per_second: f64,
    pub(crate) commits_per_second: f64,
    pub(crate) checkpoints_per_second: f64,
}

/// The requests of one kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RequestRates {
    pub(crate) per_second: f64,
    /// Percentiles of their durations in seconds. Nothing without requests.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Rates {
    /// The rates from `before` to `now`. Without `before`, or if it is of another mount, they are those since the mount.
    pub(crate) fn between(before: Option<&Sample>, now: &Sample) -> Rates {
        let before =
            before.filter(|before| before.info.pid == now.info.pid && before.up_seconds < now.up_seconds);
        let seconds = now.up_seconds - before.map_or(0.0, |before| before.up_seconds);
        let each_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let more = |of: &dyn Fn(&Sample) -> u64| of(now).saturating_sub(before.map_or(0, of));
        let user_bytes = more(&|sample| sample.stats.written.user_bytes);
        let device_bytes = more(&|sample| sample.stats.written.device_bytes);
        let requests: Vec<Requests> = now.requests.iter().map(|requests| since(before, requests)).collect();
        let causes = now.stats.written.device_bytes_by_cause.keys().map(|cause| {
            let of =
                |sample: &Sample| sample.stats.written.device_bytes_by_cause.get(cause).copied().unwrap_or(0);
            (cause.clone(), each_second(more(&of)))
        });
        Rates {
            seconds,
            written_bytes_per_second: each_second(user_bytes),
            read_bytes_per_second: each_second(bytes_read(&requests)),
            device_bytes_per_second_by_cause: causes.collect(),
            amplification: (user_bytes > 0).then(|| device_bytes as f64 / user_bytes as f64),
            requests: requests
                .iter()
                .map(|of| (of.kind.clone(), RequestRates::of(of, each_second)))
                .collect(),
            nodes_read_per_second: each_second(more(&|sample| sample.stats.metadata.nodes_read)),
            commits_per_second: each_second(more(&|sample| sample.stats.metadata.commits)),
            checkpoints_per_second: each_second(more(&|sample| sample.stats.metadata.checkpoints)),
        }
    }

    /// The requests of one kind. None came if it is not there.
    pub(crate) fn of_kind(&self, kind: &str) -> RequestRates {
        self.requests.get(kind).cloned().unwrap_or_default()
    }

    pub(crate) fn device_bytes_per_second(&self) -> f64 {
        self.device_bytes_per_second_by_cause.values().sum()
    }
}

fn since(before: Option<&Sample>, requests: &Requests) -> Requests {
    let earlier = before.and_then(|before| before.requests.iter().find(|of| of.kind == requests.kind));
    requests.since(earlier)
}

fn bytes_read(requests: &[Requests]) -> u64 {
    requests.iter().filter(|of| of.kind == "read").map(|of| of.reply_bytes).sum()
}

impl RequestRates {
    fn of(requests: &Requests, each_second: impl Fn(u64) -> f64) -> RequestRates {
        RequestRates {
            per_second: each_second(requests.count),
            p50: requests.percentile(0.5),
            p99: requests.percentile(0.99),
            p999: requests.percentile(0.999),
            max: requests.percentile(1.0),
        }
    }
}
