//! The latencies of other clients while a writer causes garbage collection.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::bounds::{self, Bound};
use super::row::Summary;
use super::runs::{Case, arguments};
use super::tables::{Table, milliseconds, two};

/// The name for `--only`.
pub(super) const NAME: &str = "beside";

/// The device.
const ZONES: u32 = 64;
const ZONE_MIB: u64 = 64;
/// At the first level no blocks are moved.
const FILLS: [u64; 3] = [10, 90, 95];
const QUICK_FILL: u64 = 90;
/// The rates of the other clients, for the page.
const RATE: &str = "one every 0.5 ms and one every 20 ms, on average";

/// A fill level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    fill: u64,
    seed: u64,
}

/// Latencies of a client: in total, and waiting for other threads of the process.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Waits {
    pub(super) all: Summary,
    pub(super) for_others: Summary,
}

/// The other clients.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Others {
    pub(super) reads_of_4_kib: Waits,
    pub(super) reads_of_64_kib: Waits,
    pub(super) writes_of_4_kib: Waits,
    pub(super) fsyncs: Waits,
}

/// The writer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Wrote {
    amplification: f64,
    moved_per_written: f64,
}

/// The output of `polder-space beside`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) fill_percent: u64,
    seed: u64,
    wrote: Wrote,
    pub(super) beside: Others,
    alone: Others,
}

/// The levels of the full form, or of the quick form.
pub(super) fn all(seed: u64, quick: bool) -> Vec<Beside> {
    let is_wanted = |fill: &u64| !quick || *fill == QUICK_FILL;
    FILLS.into_iter().filter(is_wanted).map(|fill| Beside { fill, seed }).collect()
}

impl Case for Beside {
    type Row = Row;

    fn args(&self) -> Vec<String> {
        let mut args = vec![NAME.to_owned()];
        args.extend(arguments(&[
            ("--fill", &self.fill),
            ("--zones", &ZONES),
            ("--zone-mib", &ZONE_MIB),
            ("--seed", &self.seed),
        ]));
        args
    }

    fn is(&self, row: &Row) -> bool {
        (row.fill_percent, row.seed) == (self.fill, self.seed)
    }

    fn brief(row: &Row) -> String {
        let p99 = |waits: Waits| milliseconds(waits.all.p99_ns);
        format!("99 % of reads {} ms, of fsyncs {}", p99(row.beside.reads_of_4_kib), p99(row.beside.fsyncs))
    }
}

impl Others {
    fn each(&self) -> [(&'static str, Waits); 4] {
        [
            ("read of 4 KiB", self.reads_of_4_kib),
            ("read of 64 KiB", self.reads_of_64_kib),
            ("write of 4 KiB", self.writes_of_4_kib),
            ("its fsync", self.fsyncs),
        ]
    }
}

/// The section of the page, and its bounds.
pub(super) fn section(rows: &[Row]) -> (String, Vec<Bound>) {
    let mut section = "\n## Beside a writer\n\n".to_owned();
    writeln!(
        section,
        include_str!("beside.md"),
        zones = ZONES,
        zone_mib = ZONE_MIB,
        rate = RATE,
        least = FILLS[0]
    )
    .expect("a string takes it");
    let mut table = Table::new(&[
        "fill %",
        "WA",
        "moved",
        "",
        "p50",
        "p99",
        "p99.9",
        "max",
        "for others: p99",
        "max",
        "alone: p50",
        "p99",
        "p99.9",
        "max",
    ]);
    for row in rows {
        for ((what, beside), (_, alone)) in row.beside.each().into_iter().zip(row.alone.each()) {
            let of =
                |waits: Summary| [waits.p50_ns, waits.p99_ns, waits.p999_ns, waits.max_ns].map(milliseconds);
            let mut cells = vec![row.fill_percent.to_string(), two(row.wrote.amplification)];
            cells.extend([two(row.wrote.moved_per_written), what.to_owned()]);
            cells.extend(of(beside.all));
            cells.extend([beside.for_others.p99_ns, beside.for_others.max_ns].map(milliseconds));
            cells.extend(of(alone.all));
            table.row(&cells);
        }
    }
    section += &table.text();
    (section, rows.iter().map(bounds::of_beside).collect())
}
