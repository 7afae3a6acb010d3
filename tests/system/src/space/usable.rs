//! The share of a device that files can use.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::bounds::{self, Bound};
use super::runs::{Case, arguments};
use super::tables::{Table, two, verdict};

/// The name for `--only`.
pub(super) const NAME: &str = "usable";

/// Bytes overwritten while the volume is full, in thousandths of the available space.
const CHURN_PERMILLE: u64 = 150;
/// The same for many small zones, where GC empties zones. The bytes moved for each byte grow with the bytes
/// overwritten, and 15 % would take most of an hour with 4,000 zones.
const CHURN_PERMILLE_SMALL: u64 = 40;
/// MiB of a zone of an SSD, and of a small zone, so that there are many.
const LARGE: u64 = 2048;
const SMALL: u64 = 64;
/// Bytes of a block: the usual size, and a larger one with less metadata.
const BLOCK: u64 = 4096;
const LARGE_BLOCK: u64 = 8192;

/// A device to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usable {
    zones: u32,
    zone_mib: u64,
    block: u64,
    /// Percent that data never gets; 0: as little as possible.
    reserve: u32,
    seed: u64,
}

/// The output of `polder-space usable`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) zones: u32,
    pub(super) zone_bytes: u64,
    block_bytes: u64,
    /// Hundredths of a percent that data never gets.
    reserve: u32,
    least_reserve: u32,
    seed: u64,
    pub(super) offered_bytes: u64,
    pub(super) offered_percent: f64,
    filled_bytes: u64,
    churned_bytes: u64,
    /// Device bytes for each byte overwritten.
    amplification: f64,
    compared_blocks: u64,
    offered_again_bytes: u64,
    metadata_zones_max: u32,
    /// The commit at which it was made. The program does not know it.
    #[serde(default)]
    commit: String,
}

/// All devices, from the one that takes longest.
pub(super) fn all(seed: u64) -> Vec<Usable> {
    let least = |zones, zone_mib| Usable { zones, zone_mib, block: BLOCK, reserve: 0, seed };
    vec![
        least(4000, SMALL),
        Usable { reserve: 10, ..least(128, LARGE) },
        least(68, LARGE),
        least(64, LARGE),
        least(1000, SMALL),
        Usable { block: LARGE_BLOCK, ..least(1000, SMALL) },
        least(36, LARGE),
        least(32, LARGE),
    ]
}

/// The devices of the quick form: the smallest of each zone size.
pub(super) fn quick(seed: u64) -> Vec<Usable> {
    let is_quick = |usable: &Usable| matches!((usable.zones, usable.block), (32 | 1000, BLOCK));
    all(seed).into_iter().filter(is_quick).collect()
}

impl Case for Usable {
    type Row = Row;

    fn args(&self) -> Vec<String> {
        let mut args = vec![NAME.to_owned()];
        args.extend(arguments(&[
            ("--zones", &self.zones),
            ("--zone-mib", &self.zone_mib),
            ("--block", &self.block),
            ("--reserve", &self.reserve),
            ("--churn", if self.zone_mib == SMALL { &CHURN_PERMILLE_SMALL } else { &CHURN_PERMILLE }),
            ("--seed", &self.seed),
        ]));
        args
    }

    fn is(&self, row: &Row) -> bool {
        let Usable { zones, zone_mib, block, reserve, seed } = *self;
        (row.zones, row.zone_bytes >> 20, row.block_bytes, row.reserve, row.seed)
            == (zones, zone_mib, block, reserve * 100, seed)
    }

    fn brief(row: &Row) -> String {
        format!("{:.1} GB offered, {:.1} %", row.offered_gb(), row.offered_percent)
    }
}

impl Row {
    /// Whether the reserve is the least possible one.
    pub(super) fn is_least(&self) -> bool {
        self.reserve == 0
    }

    /// In units of 2³⁰ bytes, like zones.
    pub(super) fn offered_gb(&self) -> f64 {
        gb(self.offered_bytes)
    }

    /// `36 × 2048 MiB`, and the block size if it is not the usual one.
    pub(super) fn geometry(&self) -> String {
        let zones = format!("{} × {} MiB", self.zones, self.zone_bytes >> 20);
        match self.block_bytes {
            BLOCK => zones,
            bytes => format!("{zones}, blocks of {} KiB", bytes >> 10),
        }
    }
}

/// The section of the page, and its bounds.
pub(super) fn section(rows: &[Row]) -> (String, Vec<Bound>) {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.zone_bytes), row.zones, row.block_bytes));
    let mut table = Table::new(&[
        "zones",
        "reserve %",
        "GB",
        "offered GB",
        "of raw %",
        "filled GB",
        "churned GB",
        "WA while full",
        "offered again GB",
        "target",
        "",
    ]);
    let mut bounds = Vec::new();
    for row in &rows {
        let bound = bounds::of_usable(row);
        let reserve = if row.is_least() { row.least_reserve } else { row.reserve };
        let mut cells = vec![
            row.geometry(),
            format!("{}{}", two(f64::from(reserve) / 100.0), if row.is_least() { " (least)" } else { "" }),
            one(gb(u64::from(row.zones) * row.zone_bytes)),
            format!("**{}**", one(row.offered_gb())),
            one(row.offered_percent),
            one(gb(row.filled_bytes)),
            one(gb(row.churned_bytes)),
            two(row.amplification),
            one(gb(row.offered_again_bytes)),
        ];
        cells.extend(bound.as_ref().map_or(["–".to_owned(), String::new()], |bound| {
            [format!("{} {}", bound.limit, bound.unit), verdict(bound).to_owned()]
        }));
        table.row(&cells);
        bounds.extend(bound);
    }
    let mut section = "\n## Usable space\n\n".to_owned();
    let compared: u64 = rows.iter().map(|row| row.compared_blocks).sum();
    let commits = super::commits(rows.iter().map(|row| &*row.commit));
    let seed = super::SEED_OF_DEVICES;
    writeln!(section, include_str!("usable.md"), compared = compared, seed = seed, commits = commits)
        .expect("a string takes it");
    section += &table.text();
    (section, bounds)
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn one(value: f64) -> String {
    format!("{value:.1}")
}
