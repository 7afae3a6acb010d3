//! The plots, as SVG: sheets of panels with one key, each panel over fill levels.
//!
//! Levels have equal distances, so that there is space for their share of the raw device.

mod bars;
mod levels;
mod lines;
mod sheet;

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::row::{Row, Waits};
use bars::Bars;
use sheet::{Key, Panel, Sheet};

/// A cause of writes, its name in plots, and its colour.
type Cause = (&'static str, &'static str, RGBColor);

/// From bottom to top. The first ones are data, the others metadata.
const OF_DATA: usize = 2;
const CAUSES: [Cause; 7] = [
    ("data", "data", RGBColor(0, 90, 160)),
    ("gc", "garbage collection", RGBColor(230, 130, 30)),
    ("reverse_map", "reverse map", RGBColor(110, 110, 110)),
    ("journal", "journal", RGBColor(0, 150, 90)),
    ("checkpoint", "checkpoint", RGBColor(160, 50, 150)),
    ("metadata_gc", "garbage collection of metadata", RGBColor(200, 30, 30)),
    ("header", "headers of zones", RGBColor(90, 180, 220)),
];

/// The parts of a latency bar, from bottom to top.
const PERCENTILES: [(&str, RGBColor); 4] = [
    ("p50", BLACK),
    ("from p50 to p99", RGBColor(0, 90, 160)),
    ("from p99 to p99.9", RGBColor(240, 160, 40)),
    ("from p99.9 to max", RGBColor(200, 30, 30)),
];
/// Half the thickness of the mark at p50, as a factor.
const MARK: f64 = 1.03;

/// Limit for the columns of a sheet.
const WIDEST: usize = 2;

/// Bars that are thinner than this part of the axis are invisible.
const THINNEST: f64 = 0.001;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Write amplification over the fill level: above without fsync, below with it; a panel for each geometry.
pub(super) fn amplification(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    let mut panels = Vec::new();
    for (fsync, how) in [(false, "without fsync"), (true, "with fsync")] {
        for (geometry, mut rows) in by_geometry(rows) {
            rows.retain(|row| row.fsync == fsync);
            panels.push(Panel { caption: format!("{title}: write amplification {how}, {geometry}"), rows });
        }
    }
    let sheet =
        Sheet { columns: by_geometry(rows).len().min(WIDEST), panel: lines::PANEL, key: lines::key(rows) };
    sheet.draw(path, &panels, lines::draw)
}

/// Latencies in a closed loop.
pub(super) fn latencies(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    percentiles(path, &format!("{title}: latency of writes in ms, closed loop"), rows, |row| row.closed)
}

/// Latencies at half the rate.
pub(super) fn latencies_at_half_rate(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    percentiles(path, &format!("{title}: latency of writes in ms, half rate"), rows, |row| row.half_rate)
}

/// Write amplification by cause.
pub(super) fn causes(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    by_cause(path, &format!("{title}: write amplification by cause"), rows, &CAUSES)
}

/// The same without data and its garbage collection, which would dwarf the others.
pub(super) fn causes_of_metadata(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    by_cause(path, &format!("{title}: write amplification by metadata"), rows, &CAUSES[OF_DATA..])
}

fn by_cause(path: &Path, title: &str, rows: &[&Row], causes: &[Cause]) -> Result<()> {
    let sum = |row: &&Row| causes.iter().map(|(cause, ..)| row.part(cause)).sum();
    let thinnest = rows.iter().map(sum).fold(0.0, f64::max) * THINNEST;
    let pieces = |row: &Row| {
        let mut top = 0.0;
        let mut bar = Vec::new();
        for (cause, _, colour) in causes {
            let bottom = top;
            top += row.part(cause);
            if top - bottom > thinnest {
                bar.push((bottom, top, *colour));
            }
        }
        bar
    };
    let key = causes.iter().map(|(_, name, colour)| Key::bar(name, *colour)).collect();
    of_bars(path, title, rows, key, &Bars { pieces: &pieces, logarithmic: false })
}

fn percentiles(path: &Path, title: &str, rows: &[&Row], waits: fn(&Row) -> Waits) -> Result<()> {
    let pieces = |row: &Row| {
        let writes = waits(row).writes;
        let [p50, p99, p999, max] = [writes.p50_ns, writes.p99_ns, writes.p999_ns, writes.max_ns]
            .map(|nanoseconds| nanoseconds.max(1) as f64 / 1e6);
        // The mark comes last, so that it is on top of the bar.
        let spans = [(p50, p99), (p99, p999), (p999, max), (p50 / MARK, p50 * MARK)];
        let colours = [1, 2, 3, 0].map(|number: usize| PERCENTILES[number].1);
        let bar = spans.into_iter().zip(colours).map(|((bottom, top), colour)| (bottom, top, colour));
        bar.filter(|(bottom, top, _)| bottom < top).collect()
    };
    let key = PERCENTILES.iter().map(|(name, colour)| Key::bar(name, *colour)).collect();
    of_bars(path, title, rows, key, &Bars { pieces: &pieces, logarithmic: true })
}

/// A panel of bars for each geometry, one below the other.
fn of_bars(path: &Path, title: &str, rows: &[&Row], key: Vec<Key>, bars: &Bars<'_>) -> Result<()> {
    let panel = |(geometry, rows)| Panel { caption: format!("{title}, {geometry}"), rows };
    let panels: Vec<Panel<'_>> = by_geometry(rows).into_iter().map(panel).collect();
    let sheet = Sheet { columns: 1, panel: bars::PANEL, key };
    sheet.draw(path, &panels, |area, panel| bars.draw(area, panel))
}

/// The rows of each geometry, with its name.
fn by_geometry<'a>(rows: &[&'a Row]) -> Vec<(String, Vec<&'a Row>)> {
    let mut geometries: Vec<_> = rows.iter().map(|row| (row.zones, row.zone_bytes, row.geometry())).collect();
    geometries.sort();
    geometries.dedup();
    let of = |geometry: &str| rows.iter().copied().filter(|row| row.geometry() == *geometry).collect();
    geometries.into_iter().map(|(.., geometry)| (geometry.clone(), of(&geometry))).collect()
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

#[cfg(test)]
mod tests;
