//! The effect of GC on a file that was written in many pieces.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::bounds::{self, Bound};
use super::runs::{Case, arguments};
use super::tables::{Table, two};

/// The name for `--only`.
pub(super) const NAME: &str = "pieces";

/// The device.
const ZONES: u32 = 64;
const ZONE_MIB: u64 = 16;
/// Blocks of each file, files in addition to the measured one, and how many of them are deleted.
const PIECES: u64 = 1000;
const OTHERS: u32 = 100;
const DELETED: u32 = 50;

/// Fragmented files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) seed: u64,
}

/// The layout of a file, and the cost of reading it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Layout {
    pub(super) fragments: u64,
    pub(super) reads: u64,
}

/// The output of `polder-space pieces`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) seed: u64,
    pub(super) pieces: u64,
    pub(super) before: Layout,
    pub(super) collected: Layout,
    pub(super) put_together: Layout,
    pub(super) alone: Layout,
    pub(super) moved_bytes: u64,
}

impl Case for Pieces {
    type Row = Row;

    fn args(&self) -> Vec<String> {
        let mut args = vec![NAME.to_owned()];
        args.extend(arguments(&[
            ("--zones", &ZONES),
            ("--zone-mib", &ZONE_MIB),
            ("--pieces", &PIECES),
            ("--others", &OTHERS),
            ("--deleted", &DELETED),
            ("--seed", &self.seed),
        ]));
        args
    }

    fn is(&self, row: &Row) -> bool {
        (row.seed, row.pieces) == (self.seed, PIECES)
    }

    fn brief(row: &Row) -> String {
        format!("{} commands, {} alone", row.collected.reads, row.alone.reads)
    }
}

/// The section of the page, and its bounds.
pub(super) fn section(rows: &[Row]) -> (String, Vec<Bound>) {
    let moved: u64 = rows.iter().map(|row| row.moved_bytes >> 20).sum();
    let mut section = "\n## A file in pieces\n\n".to_owned();
    writeln!(
        section,
        include_str!("pieces.md"),
        files = OTHERS + 1,
        pieces = PIECES,
        deleted = DELETED,
        zones = ZONES,
        zone_mib = ZONE_MIB,
        moved = moved
    )
    .expect("a string takes it");
    let mut table = Table::new(&["", "fragments", "commands", "÷ alone"]);
    for row in rows {
        let alone = row.alone.reads as f64;
        for (what, layout) in [
            ("written in turn with the others", row.before),
            ("garbage collected", row.collected),
            ("put together", row.put_together),
            ("written alone", row.alone),
        ] {
            let counts =
                [layout.fragments.to_string(), layout.reads.to_string(), two(layout.reads as f64 / alone)];
            table.row(&[&[what.to_owned()][..], &counts].concat());
        }
    }
    section += &table.text();
    (section, rows.iter().map(bounds::of_pieces).collect())
}
