//! The metrics in the text format of Prometheus. The manual has a table of them.

use std::fmt;
use std::sync::Arc;

use fuse::{DURATION_BUCKETS, duration_bound_ns};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::board::Report;
use crate::monitor::alerts::Level;
use crate::monitor::sample::{Requests, Sample};

pub(super) const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The bounds of the exported histograms are these numbers of buckets apart: one for each power of two.
const BUCKETS_APART: usize = 4;

/// All metrics of a report.
pub(super) fn text(report: &Arc<Report>, age_seconds: f64) -> String {
    let mut registry = Registry::with_prefix("polder");
    registry.register_collector(Box::new(Metrics { report: Arc::clone(report), age_seconds }));
    let mut text = String::new();
    if prometheus_text::encode(&mut text, &registry).is_err() {
        // A part of the metrics would look like all of them. A panic would end the mount.
        text.clear();
    }
    text
}

#[derive(Debug)]
struct Metrics {
    report: Arc<Report>,
    age_seconds: f64,
}

/// Writes metrics.
struct Out<'e>(DescriptorEncoder<'e>);

/// A value with the value of its label.
type Labelled = (String, f64);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (sample, mut out) = (&self.report.sample, Out(encoder));
        self.encode_state(&mut out)?;
        encode_writes(sample, &mut out)?;
        encode_requests(&sample.requests, &mut out)?;
        encode_metadata(sample, &mut out)?;
        encode_space(sample, &mut out)?;
        encode_zones(sample, &mut out)?;
        encode_gc(sample, &mut out)
    }
}

impl Metrics {
    fn encode_state(&self, out: &mut Out<'_>) -> fmt::Result {
        let sample = &self.report.sample;
        let info = &sample.info;
        let labels =
            [("volume", info.id.clone()), ("label", info.label.clone()), ("version", sample.version.clone())];
        let mut metric = out.0.encode_descriptor("volume_info", "The volume.", None, MetricType::Gauge)?;
        metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
        out.gauge("sample_age_seconds", "Time since the last sample.", self.age_seconds)?;
        out.gauge("uptime_seconds", "Time since the mount.", sample.up_seconds)?;
        out.gauge(
            "shut_down",
            "1 if an error has shut the volume down.",
            flag(info.shutdown_reason.is_some()),
        )?;
        out.gauge("read_only", "1 if the mount is read-only.", flag(info.read_only == Some(true)))?;
        let count = |level| self.report.alerts.iter().filter(|alert| alert.level == level).count() as f64;
        let levels = [("critical", Level::Critical), ("warning", Level::Warning)];
        let counts = levels.map(|(name, level)| (name.to_owned(), count(level)));
        out.gauges("alerts", "Alerts of the status page.", "level", counts)?;
        let damaged = info.damaged_copies() as f64;
        out.gauge("damaged_header_copies", "Damaged copies of the header and of the zone states.", damaged)
    }
}

fn encode_writes(sample: &Sample, out: &mut Out<'_>) -> fmt::Result {
    let (written, streams) = (&sample.stats.written, &sample.stats.streams);
    out.counter("written_user_bytes", "User writes that have reached Polder.", written.user_bytes)?;
    let causes = written.device_bytes_by_cause.iter().map(|(cause, bytes)| (cause.clone(), *bytes as f64));
    out.counters("written_device_bytes", "Bytes written to the device.", "cause", causes)?;
    let user = streams.iter().map(|(name, stream)| (name.clone(), stream.user_bytes as f64));
    out.counters("stream_user_bytes", "User writes by stream.", "stream", user)?;
    let moved = streams.iter().map(|(name, stream)| (name.clone(), stream.moved_bytes as f64));
    out.counters("stream_moved_bytes", "Bytes moved out of zones of a stream.", "stream", moved)
}

fn encode_requests(requests: &[Requests], out: &mut Out<'_>) -> fmt::Result {
    let help = "Time from receiving a request of the kernel to its answer.";
    let mut metric =
        out.0.encode_descriptor("request_duration_seconds", help, None, MetricType::Histogram)?;
    for of_kind in requests {
        let labels = [("kind", of_kind.kind.as_str())];
        let sum = of_kind.total_ns as f64 / 1e9;
        let mut metric = metric.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, of_kind.count, &coarse(of_kind), None)?;
    }
    let bytes = requests.iter().map(|of| (of.kind.clone(), of.reply_bytes as f64));
    out.counters("request_reply_bytes", "Bytes in the answers to the kernel.", "kind", bytes)
}

/// A bound and the number of requests below it and above the previous one, for each power of two.
fn coarse(requests: &Requests) -> Vec<(f64, u64)> {
    let firsts = (0..DURATION_BUCKETS - 1).step_by(BUCKETS_APART);
    let mut buckets: Vec<(f64, u64)> =
        firsts.map(|bucket| (duration_bound_ns(bucket) as f64 / 1e9, 0)).collect();
    buckets.push((f64::MAX, 0));
    for (bucket, count) in &requests.buckets {
        let coarse = bucket.div_ceil(BUCKETS_APART).min(buckets.len() - 1);
        buckets[coarse].1 += count;
    }
    buckets
}

fn encode_metadata(sample: &Sample, out: &mut Out<'_>) -> fmt::Result {
    let metadata = &sample.stats.metadata;
    out.counter("commits", "Committed transactions.", metadata.commits)?;
    out.counter("log_batches", "Batches appended to the log.", metadata.log_batches)?;
    out.counter("checkpoints", "Checkpoints.", metadata.checkpoints)?;
    out.counter("nodes_written", "Metadata nodes written completely.", metadata.nodes_written)?;
    out.counter("delta_records_written", "Leaves written as delta records.", metadata.delta_records_written)?;
    out.counter("nodes_moved", "Metadata nodes moved by garbage collection.", metadata.nodes_moved)?;
    out.counter("nodes_read", "Metadata nodes that were not in the cache.", metadata.nodes_read)?;
    out.gauge("cache_pages", "Pages in the cache of metadata.", metadata.pages_cached as f64)?;
    out.gauge("cache_pages_max", "The capacity of that cache in pages.", metadata.pages_cached_max as f64)
}

fn encode_space(sample: &Sample, out: &mut Out<'_>) -> fmt::Result {
    let stored = &sample.stats.stored;
    out.gauge("space_total_bytes", "The most that data can use.", stored.total_bytes as f64)?;
    out.gauge("space_live_bytes", "Live blocks.", stored.live_bytes as f64)?;
    out.gauge(
        "space_dead_bytes",
        "Dead blocks, which garbage collection reclaims.",
        stored.dead_bytes as f64,
    )?;
    out.gauge("space_pending_bytes", "Promised to writers and not recorded.", stored.pending_bytes as f64)?;
    out.gauge("space_unwritten_bytes", "Allocated by files and not written.", stored.unwritten_bytes as f64)?;
    out.optional("space_reserved_bytes", "Not available to files.", stored.reserved_bytes)?;
    out.optional("space_available_bytes", "Available to files.", stored.available_bytes)?;
    let host = sample.info.host_available_bytes;
    out.optional("host_available_bytes", "Available on the file system that contains the volume.", host)?;
    let needed = sample.info.host_needed_bytes;
    out.optional("host_needed_bytes", "What the volume may still allocate there.", needed)
}

fn encode_zones(sample: &Sample, out: &mut Out<'_>) -> fmt::Result {
    let roles =
        sample.stats.stored.zones_by_role.iter().map(|(role, count)| (role.clone(), f64::from(*count)));
    out.gauges("zones", "Zones by role.", "role", roles)?;
    let reserved = sample.stats.stored.free_zones_reserved.map(u64::from);
    out.optional("free_zones_reserved", "Free zones that user writes cannot use now.", reserved)?;
    out.gauge("open_zones", "Zones that are open for user writes.", sample.open_zones.len() as f64)?;
    let faults = sample.zone_faults;
    let counts = [("retired", faults.retired), ("read_only", faults.read_only), ("offline", faults.offline)];
    let counts = counts.map(|(name, count)| (name.to_owned(), f64::from(count)));
    out.gauges("faulty_zones", "Zones that cannot be written, or that are lost.", "fault", counts)
}

/// Nothing if the volume is read-only.
fn encode_gc(sample: &Sample, out: &mut Out<'_>) -> fmt::Result {
    let Some(gc) = &sample.stats.gc else { return Ok(()) };
    out.gauge("gc_headroom_bytes", "User writes until a zone must be reclaimed.", gc.headroom_bytes as f64)?;
    let watermark = gc.low_watermark_bytes as f64;
    out.gauge("gc_low_watermark_bytes", "The headroom below which writers are throttled.", watermark)?;
    out.optional("gc_debt_bytes", "Bytes to be moved until one more zone is reclaimed.", gc.debt_bytes)?;
    out.gauge(
        "gc_charged_bytes",
        "The part of the debt that is charged to writers.",
        gc.charged_bytes as f64,
    )?;
    let help = "Bytes to be moved for each written byte. Writers are throttled if it is not 0.";
    out.gauge("gc_throttle_ratio", help, gc.moved_per_written)?;
    out.counter("gc_zones_reclaimed", "Zones that garbage collection has emptied.", gc.zones_reclaimed)?;
    out.counter("gc_moved_blocks", "Blocks that garbage collection has moved.", gc.blocks_moved)?;
    out.counter("gc_lost_blocks", "Blocks that garbage collection could not read.", gc.blocks_lost)
}

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.begin(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Nothing is written if the value is not known.
    fn optional(&mut self, name: &str, help: &str, value: Option<u64>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(name, help, value as f64))
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = Labelled>,
    ) -> fmt::Result {
        let mut metric = self.begin(name, help, MetricType::Gauge)?;
        values
            .into_iter()
            .try_for_each(|(of, value)| metric.encode_family(&[(label, of.as_str())])?.encode_gauge(&value))
    }

    /// The name gets the suffix `_total`.
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.begin(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = Labelled>,
    ) -> fmt::Result {
        let mut metric = self.begin(name, help, MetricType::Counter)?;
        values.into_iter().try_for_each(|(of, value)| {
            metric.encode_family(&[(label, of.as_str())])?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}
