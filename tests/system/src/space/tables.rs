//! The tables, as Markdown.

use super::bounds::Bound;
use super::cells::WORKLOADS;
use super::row::{Row, Summary};

/// Causes other than the user's data, and their columns.
const CAUSES: [(&str, &str); 6] = [
    ("gc", "gc"),
    ("reverse_map", "reverse map"),
    ("journal", "journal"),
    ("checkpoint", "checkpoint"),
    ("metadata_gc", "metadata gc"),
    ("header", "zone headers"),
];

/// A Markdown table.
pub(super) struct Table(String);

impl Table {
    pub(super) fn new(columns: &[&str]) -> Table {
        let rule: String = columns.iter().map(|_| "---|").collect();
        Table(format!("| {} |\n|{rule}\n", columns.join(" | ")))
    }

    pub(super) fn row(&mut self, cells: &[String]) {
        self.0 += &format!("| {} |\n", cells.join(" | "));
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// Write amplification of one workload.
pub(super) fn amplification(rows: &[&Row]) -> String {
    let mut columns = vec!["zones", "fill %", "of raw %", "fsync", "hints", "off", "WA"];
    columns.extend(CAUSES.map(|(_, column)| column));
    columns.extend(["zones for data", "ideal", "WA ÷ ideal", "ideal, all zones", "price", "optimum"]);
    let mut table = Table::new(&columns);
    for row in rows {
        let optional = |value: Option<f64>| value.map_or("–".to_owned(), two);
        let mut cells = key(row);
        cells.push(format!("**{}**", two(row.amplification)));
        cells.extend(CAUSES.map(|(cause, _)| three(row.part(cause))));
        cells.push(format!("{:.1}", row.data_zones));
        cells.extend(
            [row.ideal, row.against_ideal(), row.ideal_of_all, row.price(), row.optimum].map(optional),
        );
        table.row(&cells);
    }
    table.0
}

/// Latencies of one workload, in milliseconds.
pub(super) fn latencies(rows: &[&Row]) -> String {
    let mut table = Table::new(&[
        "zones",
        "fill %",
        "of raw %",
        "fsync",
        "hints",
        "off",
        "MB/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "1 MiB: p99.9",
        "max",
        "÷ empty",
        "half rate: WA",
        "p50",
        "p99",
        "p99.9",
        "max",
        "1 MiB: p99.9",
        "max",
        "÷ empty",
    ]);
    for row in rows {
        let mut cells = key(row);
        cells.push(format!("{:.0}", row.bytes_per_second / 1e6));
        for (waits, amplification) in [(row.closed, None), (row.half_rate, Some(row.half_rate_amplification))]
        {
            cells.extend(amplification.map(two));
            let Summary { p50_ns, p99_ns, p999_ns, max_ns, .. } = waits.writes;
            cells.extend([p50_ns, p99_ns, p999_ns, max_ns].map(milliseconds));
            let large = waits.writes_of_1_mib;
            if large.count == 0 {
                cells.extend(["–"; 3].map(str::to_owned));
                continue;
            }
            let empty = row.empty.writes_of_1_mib.p50_ns as f64;
            let times = |nanoseconds: u64| format!("{:.0}", nanoseconds as f64 / empty);
            cells.extend([large.p999_ns, large.max_ns].map(milliseconds));
            cells.push(format!("{}, {}", times(large.p999_ns), times(large.max_ns)));
        }
        table.row(&cells);
    }
    table.0
}

/// The table of bounds that hold or do not hold.
pub(super) fn bounds(bounds: &[Bound]) -> String {
    let mut table = Table::new(&["", "found", "to be", ""]);
    for bound in bounds {
        // Three digits, so that a small violation does not look like the limit.
        let found = format!("{} {}", three(bound.found), bound.unit);
        let cells = [&bound.what, found.trim_end(), &bound.limit.to_string(), verdict(bound)];
        table.row(&cells.map(str::to_owned));
    }
    table.0
}

pub(super) fn verdict(bound: &Bound) -> &'static str {
    if bound.holds() { "holds" } else { "**does not hold**" }
}

/// The rows of each workload that has some.
pub(super) fn by_workload(rows: &[Row]) -> impl Iterator<Item = (&'static str, &'static str, Vec<&Row>)> {
    WORKLOADS.iter().filter_map(move |workload| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.workload == workload.name).collect();
        (!rows.is_empty()).then_some((workload.name, workload.title, rows))
    })
}

fn key(row: &Row) -> Vec<String> {
    let yes = |on: bool| if on { "yes" } else { "" }.to_owned();
    vec![
        row.geometry(),
        row.fill_percent.to_string(),
        format!("{:.1}", row.live_percent_of_raw),
        yes(row.fsync),
        yes(row.hints),
        off(row).to_owned(),
    ]
}

/// The switches that are off.
fn off(row: &Row) -> &'static str {
    if row.learning { "" } else { "learning" }
}

pub(super) fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

pub(super) fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.2}", nanoseconds as f64 / 1e6)
}
