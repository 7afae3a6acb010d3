//! Numbers and lines for people: of one sample as text, and for the screen.

use crate::bytes;
use crate::monitor::alerts::{Level, Throttled, alerts};
use crate::monitor::rates::Rates;
use crate::monitor::sample::Sample;

/// One sample as text (`--once`).
pub(super) fn of(sample: &Sample, rates: &Rates) -> String {
    let (mut text, mut throttled) = (format!("{}\n", title(sample)), Throttled::default());
    throttled.note(sample);
    for alert in alerts(sample, rates, throttled) {
        text += &format!("{:<14}{}; {}\n", level(alert.level), alert.what, alert.remedy);
    }
    for (name, value) in summary(sample, rates) {
        text += &format!("{name:<14}{value}\n");
    }
    text += &format!("{:<14}{:>10}{:>10}{:>10}{:>10}\n", "requests", "per s", "median", "99 %", "99.9 %");
    for (kind, of) in &rates.requests {
        let times = [of.p50, of.p99, of.p999].map(seconds);
        text +=
            &format!("{kind:<14}{:>10.1}{:>10}{:>10}{:>10}\n", of.per_second, times[0], times[1], times[2]);
    }
    text
}

pub(super) fn title(sample: &Sample) -> String {
    let info = &sample.info;
    let place = info.mounted_on.as_ref().map_or_else(|| "lazily unmounted".to_owned(), |on| on.to_string());
    let name = if info.label.is_empty() { info.id.as_str() } else { info.label.as_str() };
    let writing = if info.read_only == Some(true) { "read-only" } else { "read-write" };
    format!("{name} on {place}, {writing}, mounted for {}", long(sample.up_seconds))
}

/// The most important numbers, each with a name.
pub(super) fn summary(sample: &Sample, rates: &Rates) -> Vec<(&'static str, String)> {
    let stored = &sample.stats.stored;
    let mut lines = vec![
        ("written", format!("{} by programs", rate(rates.written_bytes_per_second))),
        ("read", rate(rates.read_bytes_per_second)),
        (
            "device",
            format!("{} written, {}", rate(rates.device_bytes_per_second()), amplification(sample, rates)),
        ),
        ("space", space(sample)),
    ];
    if let Some(gc) = &sample.stats.gc {
        let debt = gc.debt_bytes.map_or("no zone can be reclaimed".to_owned(), |debt| {
            format!(
                "GC debt {}, {} of it charged to writers",
                bytes::show(debt),
                bytes::show(gc.charged_bytes)
            )
        });
        lines.push(("gc", debt));
        let (headroom, watermark) = (bytes::show(gc.headroom_bytes), bytes::show(gc.low_watermark_bytes));
        let throttle = match gc.moved_per_written {
            0.0 => format!("off; headroom {headroom}, low watermark {watermark}"),
            ratio => format!("ON: {ratio:.1} bytes moved for each written byte; headroom {headroom}"),
        };
        lines.push(("throttle", throttle));
    }
    let metadata = &sample.stats.metadata;
    let percent = 100 * metadata.pages_cached / metadata.pages_cached_max.max(1);
    lines.push(("cache", format!("{percent} % full, {:.0} nodes read per s", rates.nodes_read_per_second)));
    let zones: Vec<String> =
        stored.zones_by_role.iter().map(|(role, count)| format!("{role} {count}")).collect();
    lines.push(("zones", format!("{}; {} open for writes", zones.join(", "), sample.open_zones.len())));
    lines.push(("device health", health(sample)));
    lines
}

fn amplification(sample: &Sample, rates: &Rates) -> String {
    let shown = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    format!(
        "amplification {} now, {} since the mount",
        shown(rates.amplification),
        shown(sample.stats.written.amplification)
    )
}

fn space(sample: &Sample) -> String {
    let stored = &sample.stats.stored;
    let available = stored.available_bytes.map_or("-".to_owned(), bytes::show);
    format!(
        "{available} of {} available, {} live, {} dead",
        bytes::show(stored.total_bytes),
        bytes::show(stored.live_bytes),
        bytes::show(stored.dead_bytes)
    )
}

fn health(sample: &Sample) -> String {
    let faults = sample.zone_faults;
    let lost = sample.stats.gc.as_ref().map_or(0, |gc| gc.blocks_lost);
    format!(
        "{} zones offline, {} read-only, {} retired; {lost} blocks lost; {} header copies damaged",
        faults.offline,
        faults.read_only,
        faults.retired,
        sample.info.damaged_copies()
    )
}

pub(super) fn level(level: Level) -> &'static str {
    match level {
        Level::Critical => "CRITICAL",
        Level::Warning => "WARNING",
    }
}

pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes::show(bytes_per_second as u64))
}

/// A duration of a request.
pub(super) fn seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

/// The time of a mount.
fn long(seconds: f64) -> String {
    let minutes = seconds as u64 / 60;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{seconds:.0} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
