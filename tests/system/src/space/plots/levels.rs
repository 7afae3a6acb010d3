//! The axis that all panels share.

use std::ops::Range;

use anyhow::Result;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::row::Row;
use super::drawing;

pub(super) const FONT: (&str, u32) = ("sans-serif", 16);

pub(super) type Chart<'a, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>;

/// Fill levels from left to right, each with the least and the largest share of the raw device in its rows.
pub(super) struct Levels(Vec<(u64, f64, f64)>);

impl Levels {
    pub(super) fn of(rows: &[&Row]) -> Levels {
        let mut fills: Vec<u64> = rows.iter().map(|row| row.fill_percent).collect();
        fills.sort_unstable();
        fills.dedup();
        let level = |fill: u64| {
            let raw = rows.iter().filter(|row| row.fill_percent == fill).map(|row| row.live_percent_of_raw);
            (fill, raw.clone().fold(f64::MAX, f64::min), raw.fold(f64::MIN, f64::max))
        };
        Levels(fills.into_iter().map(level).collect())
    }

    /// The middle of a row's level; levels are one apart.
    pub(super) fn middle(&self, row: &Row) -> f64 {
        let place = self.0.iter().position(|(fill, ..)| *fill == row.fill_percent);
        place.expect("the levels are those of the rows") as f64
    }

    pub(super) fn range(&self) -> Range<f64> {
        -0.5..self.0.len() as f64 - 0.5
    }

    /// Draws the other axis, which begins at `bottom`, and the names of the levels, `below` it by some pixels.
    pub(super) fn axes<Y>(&self, chart: &mut Chart<'_, Y>, bottom: f64, below: i32) -> Result<()>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).y_labels(8).max_light_lines(0).label_style(FONT);
        mesh.draw().map_err(drawing)?;
        let style = FONT.into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        for (number, (fill, least, most)) in self.0.iter().enumerate() {
            let names = [format!("{fill} %"), format!("({} % of raw)", span(*least, *most))];
            for (name, y) in names.into_iter().zip([below, below + 17]) {
                let text = Text::new(name, (0, y), style.clone());
                let placed = EmptyElement::at((number as f64, bottom)) + text;
                chart.draw_series([placed]).map_err(drawing)?;
            }
        }
        Ok(())
    }
}

/// `66`, or `66–68`.
fn span(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(|percent| format!("{percent:.0}"));
    if least == most { least } else { format!("{least}–{most}") }
}
