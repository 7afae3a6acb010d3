//! Panels of lines: write amplification compared with that of an ideal GC.

use anyhow::Result;
use plotters::prelude::*;

use super::super::row::Row;
use super::levels::{FONT, Levels};
use super::sheet::{Key, Panel};
use super::{Area, drawing};

pub(super) const PANEL: (u32, u32) = (520, 360);

/// A line, for rows with and without fsync.
struct Line {
    name: &'static str,
    colour: RGBColor,
    width: u32,
    value: fn(&Row) -> Option<f64>,
}

/// From the lowest to the topmost. Wide lines stay visible below others with the same values.
const LINES: [Line; 7] = [
    Line {
        name: "learning off",
        colour: RGBColor(250, 190, 90),
        width: 5,
        value: |row| polder(row, false, false),
    },
    Line {
        name: "learning off, hints",
        colour: RGBColor(200, 90, 0),
        width: 4,
        value: |row| polder(row, false, true),
    },
    Line {
        name: "analytical optimum",
        colour: RGBColor(245, 140, 140),
        width: 5,
        value: |row| plain(row, row.optimum),
    },
    Line {
        name: "ideal GC, all zones",
        colour: RGBColor(170, 170, 170),
        width: 2,
        value: |row| plain(row, row.ideal_of_all),
    },
    Line {
        name: "ideal GC, zones left for data",
        colour: RGBColor(90, 90, 90),
        width: 2,
        value: |row| plain(row, row.ideal),
    },
    Line {
        name: "Polder, hints",
        colour: RGBColor(0, 140, 80),
        width: 2,
        value: |row| polder(row, true, true),
    },
    Line { name: "Polder", colour: RGBColor(0, 90, 160), width: 2, value: |row| polder(row, true, false) },
];

/// Polder's amplification if the row has these switches (learning, hints).
fn polder(row: &Row, learning: bool, hints: bool) -> Option<f64> {
    ((row.learning, row.hints) == (learning, hints)).then_some(row.amplification)
}

/// A value that does not depend on switches or hints.
fn plain(row: &Row, value: Option<f64>) -> Option<f64> {
    value.filter(|_| row.is_whole() && !row.hints)
}

/// The key of the lines that exist.
pub(super) fn key(rows: &[&Row]) -> Vec<Key> {
    let is_drawn = |line: &&Line| rows.iter().any(|row| (line.value)(row).is_some());
    let key = |line: &Line| Key { name: line.name.to_owned(), colour: line.colour, width: line.width };
    LINES.iter().rev().filter(is_drawn).map(key).collect()
}

pub(super) fn draw(area: &Area<'_>, panel: &Panel<'_>) -> Result<()> {
    let levels = Levels::of(&panel.rows);
    let points = |line: &Line| -> Vec<(f64, f64)> {
        let point = |row: &&Row| Some((levels.middle(row), (line.value)(row)?));
        panel.rows.iter().filter_map(point).collect()
    };
    let values = || LINES.iter().flat_map(points).map(|(_, value)| value);
    let most = values().fold(0.0, f64::max);
    if most == 0.0 {
        return Ok(());
    }
    // The user's own bytes are 1, so the interesting part is above.
    let room = (most - 1.0).max(0.1) * 0.06;
    let (bottom, top) = (values().fold(1.0, f64::min) - room, most.max(1.1) + room);
    let mut builder = ChartBuilder::on(area);
    builder.caption(&panel.caption, FONT).margin(10).x_label_area_size(44).y_label_area_size(48);
    let mut chart = builder.build_cartesian_2d(levels.range(), bottom..top).map_err(drawing)?;
    levels.axes(&mut chart, bottom, 8)?;
    for line in &LINES {
        let style = line.colour.stroke_width(line.width);
        chart.draw_series(LineSeries::new(points(line), style).point_size(2)).map_err(drawing)?;
    }
    Ok(())
}
