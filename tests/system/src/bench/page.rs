//! `docs/performance.md`: the command writes its table, everything else is written manually.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use support::workspace;

use super::{OPERATIONS, OURS, PEERS};
use crate::marked;
use crate::measured::Ratio;

/// Its path.
pub(super) const PATH: &str = marked::PERFORMANCE;
/// An operation slower than this part of a peer needs a reason.
const RATIO_MIN: f64 = 0.5;

/// One of our operations and its peers.
pub(super) struct Row {
    pub(super) ours: &'static str,
    pub(super) operation: &'static str,
    pub(super) ratios: Vec<(&'static str, Ratio)>,
}

/// The text that the command writes.
pub(super) fn table(rows: &[Row], metadata: &[(&str, f64)], machine: &str) -> String {
    let mut text =
        format!("Measured on {machine}. Each figure is the median of the turns, with the quartiles.\n\n");
    text.push_str("| operation | a plain file | ext4 | XFS |\n|---|---|---|---|\n");
    for Row { ours, operation, ratios } in rows {
        write!(text, "| {ours}: {operation} |").expect("a String takes everything");
        for peer in PEERS {
            match ratios.iter().find(|(name, _)| *name == peer) {
                Some((_, ratio)) => write!(text, " {ratio} |"),
                None => write!(text, " |"),
            }
            .expect("a String takes everything");
        }
        text.push('\n');
    }
    text.push_str("\n| operation on a file of 1 KiB | metadata written, KiB |\n|---|---|\n");
    for (operation, bytes) in metadata {
        writeln!(text, "| {operation} | {:.1} |", bytes / 1024.0).expect("a String takes everything");
    }
    text
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

    /// The same page with this table.
    pub(super) fn with_table(&self, table: &str) -> Result<Page> {
        Ok(Page(marked::with(&self.0, "bench", table).context(PATH)?))
    }

    pub(super) fn write(&self) -> Result<()> {
        Ok(std::fs::write(path(), &self.0)?)
    }

    /// Every row below half of a peer must have a line with the reason: `* **mount: stat**: …`. Every such line must
    /// belong to a row.
    pub(super) fn check_reasons(&self) -> Result<()> {
        let reasons: Vec<&str> = self.0.lines().filter_map(reason_of).collect();
        let rows: Vec<(&str, Vec<f64>)> = self.0.lines().filter_map(row_of).collect();
        ensure!(rows.len() == OURS.len() * OPERATIONS.len(), "{PATH} has {} rows of figures", rows.len());
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
    OURS.contains(&ours).then(|| (row, medians.collect()))
}
