//! The plots, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::row::{Row, Waits};
use super::tables;

const PANEL: (u32, u32) = (520, 380);
const FONT: (&str, u32) = ("sans-serif", 15);
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 90, 160),
    RGBColor(200, 80, 0),
    RGBColor(110, 110, 110),
    RGBColor(0, 130, 80),
    RGBColor(150, 40, 140),
    RGBColor(190, 160, 0),
    RGBColor(180, 30, 30),
    RGBColor(90, 160, 200),
];

/// What is written, from below, and what a plot calls it.
const CAUSES: [(&str, &str); 7] = [
    ("data", "data"),
    ("gc", "garbage collection"),
    ("reverse_map", "reverse map"),
    ("journal", "journal"),
    ("checkpoint", "checkpoint"),
    ("metadata_gc", "garbage collection of metadata"),
    ("header", "headers of zones"),
];
/// Levels of fill that are shown, and half of a bar in the same unit.
const FILLS: std::ops::Range<f64> = 58.0..97.0;
const HALF_BAR: f64 = 0.9;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One of the two ways in which a row was measured.
type Loop = fn(&Row) -> Waits;

/// A line: what it is called, and its points by fill.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    fn new<'a>(name: &str, rows: impl Iterator<Item = &'a Row>, value: impl Fn(&Row) -> Option<f64>) -> Line {
        let point = |row: &Row| Some((row.fill_percent as f64, value(row)?));
        Line { name: name.to_owned(), points: rows.filter_map(point).collect() }
    }
}

/// Write amplification over the level of fill, a panel for each geometry.
pub(super) fn amplification(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    panels(path, rows, |area, geometry, rows| {
        let chosen = |fsync: bool, hints: bool| {
            let is_chosen = move |row: &&Row| row.is_whole() && (row.fsync, row.hints) == (fsync, hints);
            rows.iter().copied().filter(is_chosen)
        };
        let without = |is_off: fn(&Row) -> bool| {
            rows.iter().copied().filter(move |row| is_off(row) && !row.fsync && !row.hints)
        };
        let polder = |row: &Row| Some(row.amplification);
        let lines = vec![
            Line::new("Polder", chosen(false, false), polder),
            Line::new("Polder, fsync at each close", chosen(true, false), polder),
            Line::new("ideal cleaner, zones left for data", chosen(false, false), |row| row.ideal),
            Line::new("ideal cleaner, all zones", chosen(false, false), |row| row.ideal_of_all),
            Line::new("Polder with hints", chosen(false, true), polder),
            Line::new("Polder with hints, fsync", chosen(true, true), polder),
            Line::new("Polder without learning", without(|row| !row.learning), polder),
            Line::new("Polder, not placed by file", without(|row| !row.by_file), polder),
        ];
        draw(area, &format!("{title}: write amplification, {geometry}"), &lines, false)
    })
}

/// Latencies in a closed loop over the level of fill, a panel for each geometry; logarithmic.
pub(super) fn latencies(path: &Path, title: &str, rows: &[&Row]) -> Result<()> {
    panels(path, rows, |area, geometry, rows| {
        let plain = || rows.iter().copied().filter(|row| row.is_whole() && !row.fsync && !row.hints);
        let line = |name: &str, of: Loop, value: fn(&Waits) -> u64| {
            Line::new(name, plain(), |row| Some(value(&of(row)).max(1) as f64 / 1e6))
        };
        let (closed, half): (Loop, Loop) = (|row| row.closed, |row| row.half_rate);
        let lines = vec![
            line("p50", closed, |waits| waits.writes.p50_ns),
            line("p99", closed, |waits| waits.writes.p99_ns),
            line("p99.9", closed, |waits| waits.writes.p999_ns),
            line("max", closed, |waits| waits.writes.max_ns),
            line("p99.9 at half the rate", half, |waits| waits.writes.p999_ns),
            line("max at half the rate", half, |waits| waits.writes.max_ns),
        ];
        draw(area, &format!("{title}: latency of writes in ms, {geometry}"), &lines, true)
    })
}

/// Write amplification by cause, a bar for each level of fill without fsync and one with it; a line of panels for each
/// workload.
pub(super) fn causes(path: &Path, rows: &[Row]) -> Result<()> {
    let workloads: Vec<_> = tables::by_workload(rows).collect();
    let columns = workloads.iter().map(|(_, _, rows)| geometries(rows).len()).max().unwrap_or(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * workloads.len().max(1) as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    for (area, (name, _, rows)) in root.split_evenly((workloads.len().max(1), 1)).iter().zip(&workloads) {
        each_geometry(area, columns, rows, |area, geometry, rows| {
            let plain: Vec<&Row> = rows.iter().copied().filter(|row| row.is_whole() && !row.hints).collect();
            stacks(area, &format!("{name}: write amplification by cause, {geometry}"), &plain)
        })?;
    }
    root.present().map_err(drawing)
}

/// The bars of one panel.
fn stacks(area: &Area<'_>, caption: &str, rows: &[&Row]) -> Result<()> {
    let most = rows.iter().map(|row| row.amplification).fold(0.0, f64::max);
    if most == 0.0 {
        return Ok(());
    }
    let mut builder = ChartBuilder::on(area);
    builder.caption(caption, FONT).margin(10).x_label_area_size(44).y_label_area_size(54);
    // Room for the names above the bars.
    let mut chart = builder.build_cartesian_2d(FILLS, 0.0..most * 2.1).map_err(drawing)?;
    mesh(&mut chart)?;
    for (number, ((_, name), colour)) in CAUSES.iter().zip(COLOURS).enumerate() {
        let bar = |row: &&Row| {
            let below: f64 = CAUSES[..number].iter().map(|(cause, _)| row.part(cause)).sum();
            let middle = row.fill_percent as f64 + if row.fsync { HALF_BAR } else { -HALF_BAR };
            let (left, right) = (middle - 0.8 * HALF_BAR, middle + 0.8 * HALF_BAR);
            let above = below + row.part(CAUSES[number].0);
            Rectangle::new([(left, below), (right, above)], colour.filled())
        };
        chart
            .draw_series(rows.iter().map(bar))
            .map_err(drawing)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 16, y + 5)], colour.filled()));
    }
    names(&mut chart)
}

fn geometries(rows: &[&Row]) -> Vec<(u32, String)> {
    let mut geometries: Vec<(u32, String)> = rows.iter().map(|row| (row.zones, row.geometry())).collect();
    geometries.sort();
    geometries.dedup();
    geometries
}

fn panels(path: &Path, rows: &[&Row], draw: impl Fn(&Area<'_>, &str, &[&Row]) -> Result<()>) -> Result<()> {
    let columns = geometries(rows).len();
    let root = SVGBackend::new(path, (PANEL.0 * columns as u32, PANEL.1)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    each_geometry(&root, columns, rows, draw)?;
    root.present().map_err(drawing)
}

/// A panel for each geometry, side by side.
fn each_geometry(
    area: &Area<'_>,
    columns: usize,
    rows: &[&Row],
    draw: impl Fn(&Area<'_>, &str, &[&Row]) -> Result<()>,
) -> Result<()> {
    for (area, (_, geometry)) in area.split_evenly((1, columns)).iter().zip(&geometries(rows)) {
        let of_geometry: Vec<&Row> = rows.iter().copied().filter(|row| row.geometry() == *geometry).collect();
        draw(area, geometry, &of_geometry)?;
    }
    Ok(())
}

fn draw(area: &Area<'_>, caption: &str, lines: &[Line], logarithmic: bool) -> Result<()> {
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let most = values().fold(f64::MIN, f64::max);
    if most == f64::MIN {
        return Ok(());
    }
    let mut builder = ChartBuilder::on(area);
    builder.caption(caption, FONT).margin(10).x_label_area_size(44).y_label_area_size(54);
    if logarithmic {
        let least = values().fold(f64::MAX, f64::min);
        let chart = builder.build_cartesian_2d(FILLS, (least / 1.5..most * 4.0).log_scale());
        fill_in(chart.map_err(drawing)?, lines)
    } else {
        let chart = builder.build_cartesian_2d(FILLS, 0.0..most * 1.35);
        fill_in(chart.map_err(drawing)?, lines)
    }
}

type Chart<'a, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>;

fn fill_in<Y>(mut chart: Chart<'_, Y>, lines: &[Line]) -> Result<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    mesh(&mut chart)?;
    for (line, colour) in lines.iter().zip(COLOURS) {
        if line.points.is_empty() {
            continue;
        }
        let points = line.points.clone();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))
            .map_err(drawing)?
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    names(&mut chart)
}

/// Axes.
fn mesh<Y>(chart: &mut Chart<'_, Y>) -> Result<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc("% of what the empty volume offers")
        .x_labels(8)
        .y_labels(8)
        .max_light_lines(0)
        .axis_desc_style(FONT)
        .label_style(FONT)
        .draw()
        .map_err(drawing)
}

/// What is what.
fn names<Y>(chart: &mut Chart<'_, Y>) -> Result<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_series_labels()
        .label_font(FONT)
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(drawing)
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

#[cfg(test)]
mod tests;
