//! `docs/results/performance.md`: the command writes its tables, everything else is written manually.
//!
//! Absolute rates and times say more about a machine than about a file system, so the tables have ratios. Exceptions
//! are counts, which are the same on every machine, and processor time, which can be compared with later runs.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use support::workspace;

use super::figures::{
    CLIENT_CPU, CLIENT_INSTRUCTIONS, DAEMON_CPU, DAEMON_INSTRUCTIONS, Figures, Key, QUANTILES, RATE, REQUESTS,
};
use super::rows::{Against, FACTS, ROWS, Row};
use crate::marked;

/// Its path.
pub(super) const PATH: &str = marked::PERFORMANCE;
/// An operation slower than this part of a peer needs a reason.
const RATIO_MIN: f64 = 0.5;
/// The columns of peers.
const PEERS: [Against; 3] = [Against::Plain, Against::Ext4, Against::Xfs];
/// The beginnings of the titles of rows.
const OURS: [&str; 2] = ["library", "mount"];

/// The text that the command writes.
pub(super) fn tables(figures: &Figures, rounds: u64, machine: &str) -> String {
    let mut text = format!(
        "Measured on {machine}, rounds: {rounds}. Each figure is the median of the rounds, with the quartiles.\n\n"
    );
    text.push_str(&section("operation | a plain file | ext4 | XFS | target | ", each(figures, rates)));
    text.push_str(&section("figure | value | target | ", facts(figures)));
    let columns = "latency | peer | 50 % | 99 % | 99.9 % | rate next to a writer | 50 % | 99 % | 99.9 % ";
    text.push_str(&section(columns, each(figures, latencies)));
    let columns = "cost of one operation | client, µs | daemon, µs | client, instructions | daemon, instructions | \
                   peer's client, µs | requests ";
    text.push_str(&section(columns, each(figures, costs)));
    text
}

/// A table, or nothing without lines.
fn section(columns: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let rule = "|---".repeat(columns.split('|').count());
    format!("| {columns}|\n{rule}|\n{}\n", lines.concat())
}

/// A row through one transport, or of the library.
struct Line<'a> {
    row: &'a Row,
    title: String,
    key: Key,
    /// The target.
    least: Option<f64>,
}

/// The lines of all rows, in their order.
fn each(figures: &Figures, line: fn(&Figures, &Line<'_>) -> Option<String>) -> Vec<String> {
    let all = ROWS.iter().flat_map(|row| {
        row.places().into_iter().map(move |(before, place, transport)| Line {
            row,
            title: format!("{before}: {}", row.title),
            key: Key::of(row.id, place, false),
            least: row.least(transport),
        })
    });
    all.filter_map(|one| line(figures, &one)).collect()
}

fn rates(figures: &Figures, line: &Line<'_>) -> Option<String> {
    let against = line.row.against;
    let ratio = figures.ratio(&line.key, against.places(), RATE)?;
    let mut text = format!("| {} |", line.title);
    for peer in PEERS {
        let shown =
            figures.ratio(&line.key, peer.places(), RATE).map_or(String::new(), |ratio| format!(" {ratio}"));
        write!(text, "{shown} |").expect("a String takes everything");
    }
    let (mut target, verdict) = match line.least {
        Some(least) => (format!("≥ {least:.2} of {}", against.title()), verdict(ratio.median >= least)),
        None => (String::new(), ""),
    };
    if against == Against::Fresh {
        target = format!("{target}: {ratio}");
    }
    writeln!(text, " {target} | {verdict} |").expect("a String takes everything");
    Some(text)
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn facts(figures: &Figures) -> Vec<String> {
    let found = FACTS.iter().filter_map(|fact| Some((fact, figures.fact(fact.id)?)));
    let lines = found.map(|(fact, value)| {
        let (target, verdict) = match fact.most {
            Some(most) => (format!("≤ {most}"), verdict(value <= most)),
            None => (String::new(), ""),
        };
        format!("| {} | {value:.2} | {target} | {verdict} |\n", fact.title)
    });
    lines.collect()
}

/// Latencies as multiples of the peer's.
fn latencies(figures: &Figures, line: &Line<'_>) -> Option<String> {
    let peers = line.row.against.places();
    // Of two peers the first, because the fastest in the median may be the slowest in the tail.
    let ratio = |beside: bool, metric: &str| {
        let key = Key { beside, ..line.key.clone() };
        figures.ratio(&key, &peers[..1], metric).map_or(String::new(), |ratio| format!("{:.2}", ratio.median))
    };
    figures.median(&line.key, QUANTILES[0])?;
    let alone = QUANTILES.map(|metric| ratio(false, metric)).join(" | ");
    let beside =
        [RATE].iter().chain(&QUANTILES).map(|metric| ratio(true, metric)).collect::<Vec<_>>().join(" | ");
    Some(format!("| {} | {} | {alone} | {beside} |\n", line.title, peers[0]))
}

fn costs(figures: &Figures, line: &Line<'_>) -> Option<String> {
    let client_us = figures.median(&line.key, CLIENT_CPU)? / 1e3;
    let number = |key: &Key, metric: &str, unit: f64| {
        figures.median(key, metric).map_or(String::new(), |value| format!("{:.1}", value / unit))
    };
    let peer = Key { place: line.row.against.places()[0].to_owned(), ..line.key.clone() };
    let daemon = number(&line.key, DAEMON_CPU, 1e3);
    let instructions =
        [CLIENT_INSTRUCTIONS, DAEMON_INSTRUCTIONS].map(|metric| number(&line.key, metric, 1.0));
    let peer = number(&peer, CLIENT_CPU, 1e3);
    let requests = requests(figures, &line.key);
    let title = &line.title;
    Some(format!(
        "| {title} | {client_us:.1} | {daemon} | {} | {peer} | {requests} |\n",
        instructions.join(" | ")
    ))
}

/// `8.06: LOOKUP 2.18, SETATTR 1.84`. Opcodes with less than a hundredth of a request are left out.
fn requests(figures: &Figures, key: &Key) -> String {
    let Some(all) = figures.median(key, REQUESTS) else { return String::new() };
    let parts = figures.parts(key, REQUESTS).into_iter().filter(|(_, each)| *each >= 0.01);
    let parts: Vec<String> = parts.map(|(opcode, each)| format!("{opcode} {each:.2}")).collect();
    format!("{all:.2}: {}", parts.join(", "))
}

/// The page's text.
pub(super) struct Page(String);

impl Page {
    pub(super) fn read() -> Result<Page> {
        Ok(Page(std::fs::read_to_string(path()).with_context(|| format!("there is no {PATH}"))?))
    }

    #[cfg(test)]
    pub(super) fn of(text: &str) -> Page {
        Page(text.to_owned())
    }

    /// The same page with these tables.
    pub(super) fn with_tables(&self, tables: &str) -> Result<Page> {
        Ok(Page(marked::with(&self.0, "bench", tables).context(PATH)?))
    }

    pub(super) fn write(&self) -> Result<()> {
        Ok(std::fs::write(path(), &self.0)?)
    }

    /// Every row below half of a peer must have a line with the reason: `* **mount: stat**: …`. Every such line must
    /// belong to a row.
    pub(super) fn check_reasons(&self) -> Result<()> {
        let reasons: Vec<&str> = self.0.lines().filter_map(reason_of).collect();
        let rows: Vec<(&str, Vec<f64>)> = self.rates().filter_map(row_of).collect();
        ensure!(!rows.is_empty(), "{PATH} has no rows of figures");
        let slow = rows.iter().filter(|(_, ratios)| ratios.iter().any(|&ratio| ratio < RATIO_MIN));
        let missing: Vec<&str> = slow.map(|(row, _)| *row).filter(|row| !reasons.contains(row)).collect();
        ensure!(
            missing.is_empty(),
            "below half of a peer, and {PATH} does not say why; add `* **{}**: reason` for: {}",
            missing[0],
            missing.join("; ")
        );
        let unknown = reasons.iter().find(|reason| !rows.iter().any(|(row, _)| row == *reason));
        ensure!(unknown.is_none(), "{PATH} gives a reason for a row that there is not: {unknown:?}");
        Ok(())
    }

    /// The lines of the table of rates.
    fn rates(&self) -> impl Iterator<Item = &str> {
        let lines = self.0.lines().skip_while(|line| !line.starts_with("| operation | a plain file |"));
        lines.take_while(|line| line.starts_with('|'))
    }
}

fn path() -> PathBuf {
    workspace::root().join(PATH)
}

/// `* **mount: stat**: because …` names a row.
fn reason_of(line: &str) -> Option<&str> {
    let (row, why) = line.strip_prefix("* **")?.split_once("**: ")?;
    (!why.trim().is_empty()).then_some(row)
}

/// `| mount: stat | | 0.98 (0.97–1.00) | … |` and its medians.
fn row_of(line: &str) -> Option<(&str, Vec<f64>)> {
    let mut cells = line.strip_prefix("| ")?.split(" |");
    let row = cells.next()?;
    let ours = row.split_once(": ")?.0;
    let medians = cells.filter_map(|cell| cell.split_whitespace().next()?.parse().ok());
    let is_ours = OURS.iter().any(|word| ours == *word || ours.starts_with(&format!("{word} (")));
    is_ours.then(|| (row, medians.collect()))
}
