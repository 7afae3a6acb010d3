//! The bounds of the figures.

use std::fmt;

use super::row::{Row, Summary, Waits};
use super::{beside, pieces, usable};

/// Limit relative to the ideal GC, which does not separate data.
const AGAINST_IDEAL: f64 = 1.08;
/// Limit for the cost of log, metadata and reserve with 256 zones at 80 %.
const PRICE: f64 = 1.10;
/// Limit relative to the analytical optimum.
const AGAINST_OPTIMUM: f64 = 1.10;
/// Limit relative to the ideal GC where some data lives longer than other data.
const ZIPF: f64 = 0.80;
const MIX: f64 = 0.60;
/// The same for a trace by which no parameter was chosen.
const UNSEEN: f64 = 1.0;
/// Limit for the ratio of runs without hints to runs with hints.
const WITHOUT_HINTS: f64 = 1.10;
/// Limit for the ratio of runs with learning to runs without it, to allow for chance.
const WITH_LEARNING: f64 = 1.03;
/// Limits as multiples of WA times the time on an empty device, in a closed loop: 99.9 %, all.
const CLOSED: (f64, f64) = (2.0, 4.0);
/// Limits as multiples of the time on an empty device, at half the rate: 99.9 %, all.
const HALF_RATE: (f64, f64) = (8.0, 30.0);

/// The bound that the manual states for every write: zones are reclaimed this many times before it, because another
/// writer may take the first ones.
const TURNS: f64 = 2.0;
/// Each time the write waits for this many checkpoints, one behind another. A checkpoint writes two fifths of a zone's
/// pages, within the following minimum and maximum.
const CHECKPOINTS: f64 = 2.0;
const CHECKPOINT_PAGES: (u64, u64) = (512, 1024);
const PAGE_BYTES: u64 = 16 << 10;
/// The time of the device for a byte written, and for a byte read.
const WRITE_NS: f64 = 1.0 / 1.2;
const READ_NS: f64 = 1.0 / 3.0;

/// GB that must be available on devices with this many zones of 2 GiB. They stand for 64, 128 and 256 GB: a tenth of
/// these is not available to users, and further needs come on top.
const OFFERED_GB: [(u32, f64); 3] = [(36, 54.0), (68, 115.0), (128, 230.0)];
const LARGE_ZONE: u64 = 2 << 30;
/// Percent of all bytes that must be available with the least reserve, from this many zones on.
const OFFERED_PERCENT: f64 = 97.0;
const MANY_ZONES: u32 = 1000;
/// Milliseconds that a read may wait for other threads of the process.
const READS_WAIT_MS: f64 = 0.0;
/// Limit for the commands that read a defragmented file, relative to a file that was written alone.
const AGAINST_ALONE: f64 = 1.10;

/// An upper or lower limit, and the value.
pub(super) struct Bound {
    pub(super) kind: Kind,
    /// The workload of the row, or the part of the page.
    pub(super) workload: String,
    pub(super) what: String,
    pub(super) found: f64,
    pub(super) unit: &'static str,
    pub(super) limit: Limit,
}

/// The quantity that is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Ideal,
    Optimum,
    Learning,
    Price,
    WithoutHints,
    ClosedMost,
    ClosedAll,
    HalfMost,
    HalfAll,
    Stated,
    OfferedGb,
    OfferedPercent,
    Pieces,
    ReadsWait,
}

impl Kind {
    fn what(self) -> &'static str {
        match self {
            Kind::Ideal => "against the ideal GC",
            Kind::Optimum => "against the optimum",
            Kind::Learning => "with learning against without",
            Kind::Price => "price of being self-contained",
            Kind::WithoutHints => "without hints against with",
            Kind::ClosedMost => "closed loop, 99.9 % of 1-MiB writes",
            Kind::ClosedAll => "closed loop, all 1-MiB writes",
            Kind::HalfMost => "half rate, 99.9 % of 1-MiB writes",
            Kind::HalfAll => "half rate, all 1-MiB writes",
            Kind::Stated => "longest write, against the bound of the manual",
            Kind::OfferedGb | Kind::OfferedPercent => "offered",
            Kind::Pieces => "commands for reading, collected against alone",
            Kind::ReadsWait => "longest that a read waited for others",
        }
    }
}

/// An upper or lower limit.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    pub(super) fn holds(&self) -> bool {
        match self.limit {
            Limit::AtMost(most) => self.found <= most,
            Limit::AtLeast(least) => self.found >= least,
        }
    }

    /// The ratio of the value to the limit, or of the limit to the value.
    pub(super) fn excess(&self) -> f64 {
        match self.limit {
            Limit::AtMost(most) => self.found / most,
            Limit::AtLeast(least) => least / self.found,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtMost(most) => write!(f, "≤ {most:.2}"),
            Limit::AtLeast(least) => write!(f, "≥ {least:.2}"),
        }
    }
}

/// All bounds that apply to these rows.
pub(super) fn of(rows: &[Row]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for row in rows.iter().filter(|row| row.is_whole()) {
        let mut add = |kind: Kind, found: Option<f64>, at_most: f64| {
            let (workload, what) = (row.workload.clone(), format!("{}: {}", title(row), kind.what()));
            let limit = Limit::AtMost(at_most);
            bounds.extend(found.map(|found| Bound { kind, workload, what, found, unit: "", limit }));
        };
        if !row.hints {
            if is_asked_of_ideal(row) {
                let most = match row.workload.as_str() {
                    "zipf" => ZIPF,
                    "mix" => MIX,
                    "spool" => UNSEEN,
                    _ => AGAINST_IDEAL,
                };
                add(Kind::Ideal, row.against_ideal(), most);
            }
            let without = same_with(row, rows, |other| !other.learning && !other.hints);
            add(Kind::Learning, against(row, without), WITH_LEARNING);
            if row.fill_percent == 80 && row.zones == 256 {
                add(Kind::Price, row.price(), PRICE);
            }
            if row.workload == "rocksdb" {
                let with = same_with(row, rows, |other| other.hints && other.is_whole());
                add(Kind::WithoutHints, against(row, with), WITHOUT_HINTS);
            }
        }
        add(Kind::Optimum, row.optimum.map(|optimum| row.amplification / optimum), AGAINST_OPTIMUM);
        if row.fill_percent >= 90 {
            latencies(row, &mut add);
        }
        add(Kind::Stated, Some(longest_against_stated(row)), 1.0);
    }
    bounds
}

/// Whether the bounds against the ideal GC apply to the row.
pub(super) fn is_asked_of_ideal(row: &Row) -> bool {
    row.is_whole() && !row.hints && row.fill_percent <= 90
}

/// The row of the same cell with other switches.
fn same_with<'a>(row: &Row, rows: &'a [Row], is_asked: impl Fn(&Row) -> bool) -> Option<&'a Row> {
    let cell = |row: &Row| (row.workload.clone(), row.fill_percent, row.geometry(), row.fsync, row.seed);
    rows.iter().find(|other| is_asked(other) && cell(other) == cell(row))
}

fn against(row: &Row, other: Option<&Row>) -> Option<f64> {
    other.map(|other| row.amplification / other.amplification)
}

/// The longest write of any size, in the closed loop or at half the rate, relative to the bound of the manual.
fn longest_against_stated(row: &Row) -> f64 {
    let of = |waits: &Waits, amplification| waits.writes.max_ns as f64 / stated_ns(row, amplification);
    of(&row.closed, row.amplification).max(of(&row.half_rate, row.half_rate_amplification))
}

/// The stated bound for a given WA: that many zones are read and written, minus one for the reclaimed zone and one
/// for metadata's.
fn stated_ns(row: &Row, amplification: f64) -> f64 {
    let moved = amplification * row.zone_bytes as f64;
    let pages = (row.zone_bytes / PAGE_BYTES * 2 / 5).clamp(CHECKPOINT_PAGES.0, CHECKPOINT_PAGES.1);
    let checkpoint = (pages * PAGE_BYTES) as f64;
    TURNS * (moved * (WRITE_NS + READ_NS) + CHECKPOINTS * checkpoint * WRITE_NS)
}

fn latencies(row: &Row, add: &mut impl FnMut(Kind, Option<f64>, f64)) {
    let empty = row.empty.writes_of_1_mib.p50_ns as f64;
    let mut of = |kinds: [Kind; 2], writes: &Summary, (most, all): (f64, f64), times: f64| {
        if writes.count > 0 {
            let times_empty = |nanoseconds: u64| Some(nanoseconds as f64 / empty);
            add(kinds[0], times_empty(writes.p999_ns), most * times);
            add(kinds[1], times_empty(writes.max_ns), all * times);
        }
    };
    let (closed, half) = (&row.closed.writes_of_1_mib, &row.half_rate.writes_of_1_mib);
    of([Kind::ClosedMost, Kind::ClosedAll], closed, CLOSED, row.amplification);
    of([Kind::HalfMost, Kind::HalfAll], half, HALF_RATE, 1.0);
}

/// The bound for the available space, if there is one for this device.
pub(super) fn of_usable(row: &usable::Row) -> Option<Bound> {
    let (kind, found, unit, least) = match OFFERED_GB.iter().find(|(zones, _)| *zones == row.zones) {
        Some((_, gb)) if row.zone_bytes == LARGE_ZONE => (Kind::OfferedGb, row.offered_gb(), "GB", *gb),
        _ if row.zones >= MANY_ZONES && row.is_least() => {
            (Kind::OfferedPercent, row.offered_percent, "%", OFFERED_PERCENT)
        }
        _ => return None,
    };
    let what = format!("{}, {}: {}", usable::NAME, row.geometry(), kind.what());
    let workload = usable::NAME.to_owned();
    Some(Bound { kind, workload, what, found, unit, limit: Limit::AtLeast(least) })
}

/// The bound for GC of a fragmented file.
pub(super) fn of_pieces(row: &pieces::Row) -> Bound {
    let kind = Kind::Pieces;
    let (workload, what) = (pieces::NAME.to_owned(), format!("{}: {}", pieces::NAME, kind.what()));
    let found = row.collected.reads as f64 / row.alone.reads as f64;
    Bound { kind, workload, what, found, unit: "", limit: Limit::AtMost(AGAINST_ALONE) }
}

/// The bound for readers: they must not wait for the locks of writers.
pub(super) fn of_beside(row: &beside::Row) -> Bound {
    let kind = Kind::ReadsWait;
    let (workload, what) =
        (beside::NAME.to_owned(), format!("{}, {} %: {}", beside::NAME, row.fill_percent, kind.what()));
    let longest =
        [row.beside.reads_of_4_kib, row.beside.reads_of_64_kib].map(|reads| reads.for_others.max_ns);
    let found = longest.into_iter().max().unwrap_or(0) as f64 / 1e6;
    Bound { kind, workload, what, found, unit: "ms", limit: Limit::AtMost(READS_WAIT_MS) }
}

fn title(row: &Row) -> String {
    let switches = [(row.fsync, ", fsync"), (row.hints, ", hints")];
    let on: String = switches.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    format!("{}, {}, {} %{on}", row.workload, row.geometry(), row.fill_percent)
}

#[cfg(test)]
pub(super) mod tests;
