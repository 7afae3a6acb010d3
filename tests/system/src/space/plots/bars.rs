//! Panels of bars: at each fill level one bar for each way of running, which is named below it.

use std::cmp::Reverse;
use std::ops::Range;

use anyhow::Result;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::row::Row;
use super::levels::{Chart, FONT, Levels};
use super::sheet::Panel;
use super::{Area, drawing};

pub(super) const PANEL: (u32, u32) = (960, 460);
/// The font of the names below the bars, and its size.
const NAMES: (&str, u32) = ("sans-serif", 14);
const LONGEST: i32 = 112;
/// The share of a level's width for its bars, and the share of a bar's part that it fills.
const GROUP: f64 = 0.94;
const FILLED: f64 = 0.8;

/// The range of a piece of a bar, and its colour.
pub(super) type Piece = (f64, f64, RGBColor);

/// The bars of a row.
pub(super) struct Bars<'a> {
    pub(super) pieces: &'a dyn Fn(&Row) -> Vec<Piece>,
    pub(super) logarithmic: bool,
}

/// A way of running: by file, learning, hints, fsync. Fully enabled ways come first.
type Way = (Reverse<bool>, bool, bool);

fn way(row: &Row) -> Way {
    (Reverse(row.learning), row.hints, row.fsync)
}

fn name(row: &Row) -> String {
    let printed = [(!row.learning, "learning off"), (row.hints, "hints"), (row.fsync, "fsync")];
    let names: Vec<&str> = printed.into_iter().filter_map(|(is_so, name)| is_so.then_some(name)).collect();
    if names.is_empty() { "plain".to_owned() } else { names.join(", ") }
}

impl Bars<'_> {
    pub(super) fn draw(&self, area: &Area<'_>, panel: &Panel<'_>) -> Result<()> {
        let pieces = || panel.rows.iter().flat_map(|row| (self.pieces)(row));
        let most = pieces().map(|(_, top, _)| top).fold(0.0, f64::max);
        if most == 0.0 {
            return Ok(());
        }
        let levels = Levels::of(&panel.rows);
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(&panel.caption, FONT)
            .margin(10)
            .x_label_area_size(44 + LONGEST)
            .y_label_area_size(48);
        if self.logarithmic {
            let bottom = pieces().map(|(bottom, ..)| bottom).fold(f64::MAX, f64::min) / 1.3;
            let range = bottom..most * 1.3;
            let values = range.clone().log_scale().with_key_points(round_values(&range));
            let chart = builder.build_cartesian_2d(levels.range(), values);
            self.fill_in(chart.map_err(drawing)?, &levels, bottom, &panel.rows)
        } else {
            let chart = builder.build_cartesian_2d(levels.range(), 0.0..most * 1.05);
            self.fill_in(chart.map_err(drawing)?, &levels, 0.0, &panel.rows)
        }
    }

    fn fill_in<Y>(&self, mut chart: Chart<'_, Y>, levels: &Levels, bottom: f64, rows: &[&Row]) -> Result<()>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        levels.axes(&mut chart, bottom, LONGEST + 6)?;
        let mut ways: Vec<Way> = rows.iter().map(|row| way(row)).collect();
        ways.sort_unstable();
        ways.dedup();
        let share = GROUP / ways.len() as f64;
        let below = NAMES.into_font().transform(FontTransform::Rotate270).color(&BLACK);
        let below = below.pos(Pos::new(HPos::Right, VPos::Center));
        for row in rows {
            let place = ways.iter().position(|other| *other == way(row)).expect("all ways are in the list");
            let middle = levels.middle(row) - GROUP / 2.0 + (place as f64 + 0.5) * share;
            let half = share / 2.0 * FILLED;
            let rectangle = |(from, to, colour): Piece| {
                Rectangle::new([(middle - half, from), (middle + half, to)], colour.filled())
            };
            chart.draw_series((self.pieces)(row).into_iter().map(rectangle)).map_err(drawing)?;
            let text = Text::new(name(row), (0, 6), below.clone());
            chart.draw_series([EmptyElement::at((middle, bottom)) + text]).map_err(drawing)?;
        }
        Ok(())
    }
}

/// 1, 2 and 5 of each power of ten in a range.
fn round_values(range: &Range<f64>) -> Vec<f64> {
    let powers = range.start.log10().floor() as i32..=range.end.log10().floor() as i32;
    let values = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    values.filter(|value| range.contains(value)).collect()
}
