//! A drawing of several panels, with a key above them.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::row::Row;
use super::levels::FONT;
use super::{Area, drawing};

const LINE_HEIGHT: i32 = 22;
const MARGIN: i32 = 14;
/// The width of a sample before a name, and of a letter.
const SAMPLE: i32 = 22;
const LETTER: i32 = 7;

/// The meaning of one colour.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) width: u32,
}

impl Key {
    pub(super) fn bar(name: &str, colour: RGBColor) -> Key {
        Key { name: name.to_owned(), colour, width: 10 }
    }

    fn width_used(&self) -> i32 {
        SAMPLE + LETTER * self.name.chars().count() as i32 + MARGIN
    }
}

/// One panel, before it is drawn.
pub(super) struct Panel<'a> {
    pub(super) caption: String,
    pub(super) rows: Vec<&'a Row>,
}

/// The layout of panels.
pub(super) struct Sheet {
    pub(super) columns: usize,
    pub(super) panel: (u32, u32),
    pub(super) key: Vec<Key>,
}

impl Sheet {
    pub(super) fn draw(
        &self,
        path: &Path,
        panels: &[Panel<'_>],
        draw: impl Fn(&Area<'_>, &Panel<'_>) -> Result<()>,
    ) -> Result<()> {
        let lines = panels.len().div_ceil(self.columns.max(1)).max(1);
        let width = self.panel.0 * self.columns.max(1) as u32;
        let places = self.places(width as i32);
        let head = places.last().map_or(0, |(_, y)| y + LINE_HEIGHT);
        let size = (width, head as u32 + self.panel.1 * lines as u32);
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let (above, below) = root.split_vertically(head);
        for (key, place) in self.key.iter().zip(places) {
            explain(&above, key, place)?;
        }
        for (area, panel) in below.split_evenly((lines, self.columns.max(1))).iter().zip(panels) {
            draw(area, panel)?;
        }
        root.present().map_err(drawing)
    }

    /// The positions of the entries of the key, in lines like words.
    fn places(&self, width: i32) -> Vec<(i32, i32)> {
        let (mut x, mut y) = (MARGIN, LINE_HEIGHT / 2 + 4);
        let place = |key: &Key| {
            if x > MARGIN && x + key.width_used() > width {
                (x, y) = (MARGIN, y + LINE_HEIGHT);
            }
            let place = (x, y);
            x += key.width_used();
            place
        };
        self.key.iter().map(place).collect()
    }
}

fn explain(area: &Area<'_>, key: &Key, (x, y): (i32, i32)) -> Result<()> {
    let sample = PathElement::new([(x, y), (x + SAMPLE - 6, y)], key.colour.stroke_width(key.width));
    area.draw(&sample).map_err(drawing)?;
    let style = FONT.into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(key.name.as_str(), (x + SAMPLE, y), style)).map_err(drawing)
}
