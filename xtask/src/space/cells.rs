//! Which cells there are, and running them.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rt::sync::Mutex;
use rt::{Clock, SystemClock};

use super::row::Row;
use crate::shell::Line;

/// Zones, and MiB of each.
const GEOMETRIES: [(u32, u64); 2] = [(64, 64), (256, 16)];
/// The same where single blocks are written over, each of which is a transaction: as many zones, a quarter as large.
const OF_BLOCKS: [(u32, u64); 2] = [(64, 16), (256, 4)];
const FILLS: [u64; 4] = [60, 80, 90, 95];
/// What can be switched off, one at a time: zones of their own for large files, and lifetimes that are learned.
const SWITCHES: [&str; 2] = ["by-file", "learning"];

/// A workload of `polder-space`.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// What it does, for a heading.
    pub(super) title: &'static str,
    /// Its program can say how long data will live.
    pub(super) has_hints: bool,
    /// Single blocks of one file: there are no files to give zones of their own.
    pub(super) is_blocks: bool,
}

pub(super) const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "small-files",
        title: "whole files of 4 KiB to 8 MiB, made and deleted at random",
        has_hints: false,
        is_blocks: false,
    },
    Workload {
        name: "large-files",
        title: "whole files of 16 KiB to 64 MiB, made and deleted at random",
        has_hints: false,
        is_blocks: false,
    },
    Workload {
        name: "uniform",
        title: "blocks of 4 KiB written over, uniformly",
        has_hints: false,
        is_blocks: true,
    },
    Workload {
        name: "zipf",
        title: "blocks of 4 KiB written over, by Zipf's law (0.99)",
        has_hints: false,
        is_blocks: true,
    },
    Workload {
        name: "rocksdb",
        title: "a write-ahead log and merged levels of tables",
        has_hints: true,
        is_blocks: false,
    },
    Workload {
        name: "mix",
        title: "80 % of the bytes to files that live shortly, 20 % to cold ones",
        has_hints: true,
        is_blocks: false,
    },
];

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) workload: &'static str,
    pub(super) fill: u64,
    pub(super) zones: u32,
    pub(super) zone_mib: u64,
    pub(super) fsync: bool,
    pub(super) hints: bool,
    /// What is switched off, of [`SWITCHES`].
    pub(super) off: Option<&'static str>,
    pub(super) seed: u64,
    /// What is written before it is measured and while, in percent of what is in files.
    pub(super) warm: u64,
    pub(super) measure: u64,
}

impl Cell {
    fn args(&self) -> Vec<String> {
        let mut args: Vec<String> = [
            ("--workload", self.workload.to_owned()),
            ("--fill", self.fill.to_string()),
            ("--zones", self.zones.to_string()),
            ("--zone-mib", self.zone_mib.to_string()),
            ("--seed", self.seed.to_string()),
            ("--warm", self.warm.to_string()),
            ("--measure", self.measure.to_string()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect();
        let switches = [("--fsync", self.fsync), ("--hints", self.hints)];
        args.extend(switches.iter().filter(|(_, on)| *on).map(|(option, _)| (*option).to_owned()));
        args.extend(self.off.into_iter().flat_map(|off| ["--off".to_owned(), off.to_owned()]));
        args
    }

    /// Whether this is the row of the cell.
    fn is(&self, row: &Row) -> bool {
        let Cell { workload, fill, zones, zone_mib, fsync, hints, off, seed, .. } = *self;
        let is_on = |switch: &str| off != Some(switch);
        (row.workload.as_str(), row.fill_percent, row.zones, row.zone_bytes >> 20)
            == (workload, fill, zones, zone_mib)
            && (row.fsync, row.hints, row.seed) == (fsync, hints, seed)
            && (row.by_file, row.learning) == (is_on("by-file"), is_on("learning"))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.args().join(" "))
    }
}

/// All cells: each workload with and without fsync, hints (where it has some), and one switch off at a time, without
/// hints.
pub(super) fn all(seed: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in &WORKLOADS {
        for (zones, zone_mib) in if workload.is_blocks { OF_BLOCKS } else { GEOMETRIES } {
            for fill in FILLS {
                cells.extend(ways(workload).into_iter().map(|(fsync, hints, off)| {
                    let (workload, warm, measure) = (workload.name, 200, 100);
                    Cell { workload, fill, zones, zone_mib, fsync, hints, off, seed, warm, measure }
                }));
            }
        }
    }
    cells
}

/// With fsync, with hints, and what is off.
type Way = (bool, bool, Option<&'static str>);

fn ways(workload: &Workload) -> Vec<Way> {
    let mut ways: Vec<Way> = vec![(false, false, None), (true, false, None)];
    if workload.has_hints {
        ways.extend([(false, true, None), (true, true, None)]);
    }
    let switches = SWITCHES.into_iter().filter(|off| !(workload.is_blocks && *off == "by-file"));
    ways.extend(switches.flat_map(|off| [(false, false, Some(off)), (true, false, Some(off))]));
    ways
}

/// Those of the quick form: every workload at 80 %, one workload at all levels, each switch off where it matters.
pub(super) fn quick(seed: u64) -> Vec<Cell> {
    let is_quick = |cell: &Cell| {
        let many_zones = cell.zones == 256;
        match (cell.workload, cell.off) {
            ("zipf", Some(_)) => cell.fill == 80 && !cell.fsync && !many_zones,
            ("mix" | "rocksdb" | "large-files", Some(_)) => cell.fill == 80 && !cell.fsync && many_zones,
            (_, Some(_)) => false,
            ("small-files", None) => cell.fill == 80 || (many_zones && !cell.fsync),
            ("large-files", None) => cell.fill == 80 && !cell.fsync,
            ("uniform" | "zipf", None) => cell.fill == 80 && !cell.fsync && !many_zones,
            _ => cell.fill == 80 && !cell.fsync && many_zones,
        }
    };
    all(seed).into_iter().filter(is_quick).collect()
}

/// What several runners share.
struct Shared {
    program: PathBuf,
    waiting: Mutex<Vec<Cell>>,
    done: Mutex<Done>,
}

struct Done {
    rows: Vec<Row>,
    failed: Vec<String>,
    record: std::fs::File,
    left: usize,
}

/// Runs the cells that the record does not have yet, as many at once as there are processors, and adds
/// each to the record as it ends. All rows, in the order of the cells.
pub(super) fn run(program: PathBuf, cells: &[Cell], record: &Path) -> Result<Vec<Row>> {
    let known = read(record)?;
    let missing = |cell: &&Cell| !known.iter().any(|row| cell.is(row));
    // From the end, as they are taken from there.
    let waiting: Vec<Cell> = cells.iter().filter(missing).rev().copied().collect();
    println!("{} cells, of which {} are to be run", cells.len(), waiting.len());
    let append = std::fs::OpenOptions::new().create(true).append(true).open(record);
    let append = append.with_context(|| format!("cannot write {}", record.display()))?;
    let left = waiting.len();
    let done = Done { rows: known, failed: Vec::new(), record: append, left };
    let shared = Arc::new(Shared { program, waiting: Mutex::new(waiting), done: Mutex::new(done) });
    let runners: Vec<_> = (0..rt::thread::processors())
        .map(|number| {
            let shared = Arc::clone(&shared);
            rt::thread::spawn(&format!("space-{number}"), move || shared.run())
        })
        .collect::<std::io::Result<_>>()?;
    for runner in runners {
        runner.join().expect("a runner notes what fails, and does not panic");
    }
    let done = shared.done.lock();
    if let Some(first) = done.failed.first() {
        bail!("{} cells failed; the first: {first}", done.failed.len());
    }
    let row_of = |cell: &Cell| done.rows.iter().find(|row| cell.is(row)).cloned();
    cells.iter().map(|cell| row_of(cell).with_context(|| format!("no row for {cell}"))).collect()
}

/// The rows of a record; none when there is none.
fn read(record: &Path) -> Result<Vec<Row>> {
    match std::fs::read_to_string(record) {
        Ok(text) => text
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", record.display())))
            .collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", record.display())),
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let Some(cell) = self.waiting.lock().pop() else { return };
            let clock = SystemClock::new();
            let result = Line::program(&self.program).args(cell.args()).output();
            let seconds = clock.monotonic_ns() as f64 / 1e9;
            self.done.lock().add(&cell, result, seconds);
        }
    }
}

impl Done {
    fn add(&mut self, cell: &Cell, printed: Result<String>, seconds: f64) {
        self.left -= 1;
        let row = printed.and_then(|printed| {
            let row: Row = serde_json::from_str(&printed).context("polder-space printed something else")?;
            writeln!(self.record, "{}", serde_json::to_string(&row)?)?;
            Ok(row)
        });
        match row {
            Ok(row) => {
                let ideal = row.ideal.map_or("full".to_owned(), |ideal| format!("{ideal:.2}"));
                let amplification = row.amplification;
                println!("{cell}: {amplification:.2}, ideal {ideal} ({seconds:.0} s; {} left)", self.left);
                self.rows.push(row);
            }
            Err(error) => {
                println!("{cell}: FAILED: {error:#}");
                self.failed.push(format!("{error:#}"));
            }
        }
    }
}
