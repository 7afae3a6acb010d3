//! The cells of the page.

use super::row::Row;
use super::runs::{Case, arguments};

/// Zones, and MiB of each.
const GEOMETRIES: [(u32, u64); 2] = [(64, 64), (256, 16)];
/// The same for overwrites of single blocks, each of which is a transaction: equally many zones, a quarter as large.
const OF_BLOCKS: [(u32, u64); 2] = [(64, 16), (256, 4)];
/// The fill levels, and whether with fsync, at which these zones are as large as elsewhere. Each takes minutes.
const OF_BLOCKS_AT_FULL_SIZE: [(u64, bool); 4] = [(60, false), (80, false), (80, true), (90, false)];
const FILLS: [u64; 4] = [60, 80, 90, 95];
/// Bytes written before and during the measurement, in percent of the bytes in files.
pub(super) const WARM: u64 = 200;
pub(super) const MEASURE: u64 = 100;
/// Features that can be switched off, one at a time.
const SWITCHES: [&str; 1] = ["learning"];

/// A workload of `polder-space`.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Its description, for a heading.
    pub(super) title: &'static str,
    /// Its program can announce how long data will live.
    pub(super) has_hints: bool,
    /// Single blocks of one file: there are no files that could get zones of their own.
    pub(super) is_blocks: bool,
    /// No parameter was ever chosen by it.
    pub(super) is_unseen: bool,
}

pub(super) const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "small-files",
        title: "whole files of 4 KiB to 8 MiB, made and deleted at random",
        has_hints: false,
        is_blocks: false,
        is_unseen: false,
    },
    Workload {
        name: "large-files",
        title: "whole files of 16 KiB to 64 MiB, made and deleted at random",
        has_hints: false,
        is_blocks: false,
        is_unseen: false,
    },
    Workload {
        name: "uniform",
        title: "blocks of 4 KiB written over, uniformly",
        has_hints: false,
        is_blocks: true,
        is_unseen: false,
    },
    Workload {
        name: "zipf",
        title: "blocks of 4 KiB written over, by Zipf's law (0.99)",
        has_hints: false,
        is_blocks: true,
        is_unseen: false,
    },
    Workload {
        name: "rocksdb",
        title: "a write-ahead log and merged levels of tables",
        has_hints: true,
        is_blocks: false,
        is_unseen: false,
    },
    Workload {
        name: "mix",
        title: "80 % of the bytes to files that live shortly, 20 % to cold ones",
        has_hints: true,
        is_blocks: false,
        is_unseen: false,
    },
    Workload {
        name: "spool",
        title: "mail that comes and goes, logs that are rotated, indexes that are written over",
        has_hints: false,
        is_blocks: false,
        is_unseen: true,
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
    /// The feature that is switched off, of [`SWITCHES`].
    pub(super) off: Option<&'static str>,
    pub(super) seed: u64,
}

impl Case for Cell {
    type Row = Row;

    fn args(&self) -> Vec<String> {
        let mut args = arguments(&[
            ("--workload", &self.workload),
            ("--fill", &self.fill),
            ("--zones", &self.zones),
            ("--zone-mib", &self.zone_mib),
            ("--seed", &self.seed),
            ("--warm", &WARM),
            ("--measure", &MEASURE),
        ]);
        let switches = [("--fsync", self.fsync), ("--hints", self.hints)];
        args.extend(switches.iter().filter(|(_, on)| *on).map(|(option, _)| (*option).to_owned()));
        args.extend(self.off.into_iter().flat_map(|off| ["--off".to_owned(), off.to_owned()]));
        args
    }

    fn is(&self, row: &Row) -> bool {
        let Cell { workload, fill, zones, zone_mib, fsync, hints, off, seed } = *self;
        (row.workload.as_str(), row.fill_percent, row.zones, row.zone_bytes >> 20)
            == (workload, fill, zones, zone_mib)
            && (row.fsync, row.hints, row.seed) == (fsync, hints, seed)
            && row.learning == (off != Some("learning"))
    }

    fn brief(row: &Row) -> String {
        let ideal = row.ideal.map_or("full".to_owned(), |ideal| format!("{ideal:.2}"));
        format!("{:.2}, ideal {ideal}", row.amplification)
    }
}

/// All cells: each workload with and without fsync, hints (if it has some), and one feature switched off at a time;
/// at some levels also with hints and without fsync. Fewer cells for the unseen workload, and for single blocks in
/// zones of full size.
pub(super) fn all(seed: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in &WORKLOADS {
        let mut add = |(zones, zone_mib), fill, (fsync, hints, off): Way| {
            let workload = workload.name;
            cells.push(Cell { workload, fill, zones, zone_mib, fsync, hints, off, seed });
        };
        for geometry in if workload.is_blocks { OF_BLOCKS } else { GEOMETRIES } {
            for fill in FILLS {
                ways(workload, fill).into_iter().for_each(|way| add(geometry, fill, way));
            }
        }
        for geometry in GEOMETRIES.into_iter().filter(|_| workload.is_blocks) {
            for (fill, fsync) in OF_BLOCKS_AT_FULL_SIZE {
                add(geometry, fill, (fsync, false, None));
            }
        }
    }
    cells
}

/// Fill levels at which features are also switched off with hints.
const HINTED_FILLS: [u64; 2] = [80, 90];

/// With fsync, with hints, and the feature that is off.
type Way = (bool, bool, Option<&'static str>);

fn ways(workload: &Workload, fill: u64) -> Vec<Way> {
    let mut ways: Vec<Way> = vec![(false, false, None), (true, false, None)];
    if workload.is_unseen {
        // The gain of learning is measured without fsync.
        ways.push((false, false, Some("learning")));
        return ways;
    }
    if workload.has_hints {
        ways.extend([(false, true, None), (true, true, None)]);
    }
    ways.extend(SWITCHES.into_iter().flat_map(|off| [(false, false, Some(off)), (true, false, Some(off))]));
    if workload.has_hints && HINTED_FILLS.contains(&fill) {
        ways.extend(SWITCHES.map(|off| (false, true, Some(off))));
    }
    ways
}

/// The cells of the quick form: every workload at 80 %, one workload at all levels, each switch off where it matters.
pub(super) fn quick(seed: u64) -> Vec<Cell> {
    let is_quick = |cell: &Cell| {
        let many_zones = cell.zones == 256;
        match (cell.workload, cell.off) {
            (_, Some(_)) if cell.hints => false,
            ("zipf", Some(_)) => cell.fill == 80 && !cell.fsync && !many_zones,
            ("mix" | "rocksdb" | "large-files", Some(_)) => cell.fill == 80 && !cell.fsync && many_zones,
            (_, Some(_)) => false,
            ("small-files", None) => cell.fill == 80 || (many_zones && !cell.fsync),
            ("large-files", None) => cell.fill == 80 && !cell.fsync,
            ("uniform" | "zipf", None) => {
                cell.fill == 80 && !cell.fsync && (cell.zones, cell.zone_mib) == OF_BLOCKS[0]
            }
            _ => cell.fill == 80 && !cell.fsync && many_zones,
        }
    };
    all(seed).into_iter().filter(is_quick).collect()
}
