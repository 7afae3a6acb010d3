//! The plots, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::row::{Row, Waits};

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

fn panels(path: &Path, rows: &[&Row], draw: impl Fn(&Area<'_>, &str, &[&Row]) -> Result<()>) -> Result<()> {
    let mut geometries: Vec<(u32, String)> = rows.iter().map(|row| (row.zones, row.geometry())).collect();
    geometries.sort();
    geometries.dedup();
    let root = SVGBackend::new(path, (PANEL.0 * geometries.len() as u32, PANEL.1)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    for (area, (_, geometry)) in root.split_evenly((1, geometries.len())).iter().zip(&geometries) {
        let of_geometry: Vec<&Row> = rows.iter().copied().filter(|row| row.geometry() == *geometry).collect();
        draw(area, geometry, &of_geometry)?;
    }
    root.present().map_err(drawing)
}

fn draw(area: &Area<'_>, caption: &str, lines: &[Line], logarithmic: bool) -> Result<()> {
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let most = values().fold(f64::MIN, f64::max);
    if most == f64::MIN {
        return Ok(());
    }
    let mut builder = ChartBuilder::on(area);
    builder.caption(caption, FONT).margin(10).x_label_area_size(44).y_label_area_size(54);
    let fills = 58.0..97.0;
    if logarithmic {
        let least = values().fold(f64::MAX, f64::min);
        let chart = builder.build_cartesian_2d(fills, (least / 1.5..most * 4.0).log_scale());
        fill_in(chart.map_err(drawing)?, lines)
    } else {
        let chart = builder.build_cartesian_2d(fills, 0.0..most * 1.35);
        fill_in(chart.map_err(drawing)?, lines)
    }
}

fn fill_in<'a, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>,
    lines: &[Line],
) -> Result<()>
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
        .map_err(drawing)?;
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
