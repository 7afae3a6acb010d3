//! Parses lcov's format: for each file, how often each line was run and each branch taken.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use anyhow::{Context, Result, ensure};
use support::workspace;

/// The counts of one file.
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// For each line, how often it was run.
    lines: BTreeMap<u32, u64>,
    /// For each branch, by line and number, how often it was taken.
    branches: BTreeMap<(u32, String), u64>,
}

/// A count, and the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) run: u64,
    pub(super) of: u64,
}

impl Covered {
    pub(super) fn lines(&self) -> Count {
        Count::of(self.lines.values())
    }

    pub(super) fn branches(&self) -> Count {
        Count::of(self.branches.values())
    }

    /// The lines that were not run, in order.
    pub(super) fn not_run(&self) -> Vec<u32> {
        self.lines.iter().filter(|(_, count)| **count == 0).map(|(line, _)| *line).collect()
    }
}

impl Count {
    fn of<'a>(counts: impl Iterator<Item = &'a u64>) -> Count {
        counts.fold(Count::default(), |sum, count| Count {
            run: sum.run + u64::from(*count > 0),
            of: sum.of + 1,
        })
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.run += other.run;
        self.of += other.of;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            0 => write!(f, "-"),
            of => write!(f, "{:.1} %", 100.0 * self.run as f64 / of as f64),
        }
    }
}

/// Parses a report. Files are named relative to the workspace. A file that was compiled into several programs has
/// several sections.
pub(super) fn read(report: &str) -> Result<BTreeMap<String, Covered>> {
    let mut files: BTreeMap<String, Covered> = BTreeMap::new();
    let mut file: Option<&mut Covered> = None;
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = Some(files.entry(relative(path)).or_default());
        } else if let (Some(file), Some((kind, counts))) = (file.as_deref_mut(), line.split_once(':')) {
            count(file, kind, counts).with_context(|| format!("the report says `{line}`"))?;
        }
    }
    ensure!(!files.is_empty(), "the report is about no file");
    Ok(files)
}

/// Parses `DA:line,count` and `BRDA:line,block,branch,count`, where a branch that was never reached has the count
/// `-`. Sums are ignored.
fn count(file: &mut Covered, kind: &str, counts: &str) -> Result<()> {
    match kind {
        "DA" => {
            let (line, count) = counts.split_once(',').context("a line has a count")?;
            *file.lines.entry(line.parse()?).or_default() += count.parse::<u64>()?;
        }
        "BRDA" => {
            let (line, rest) = counts.split_once(',').context("a branch has a line")?;
            let (branch, count) = rest.rsplit_once(',').context("a branch has a count")?;
            let count = if count == "-" { 0 } else { count.parse::<u64>()? };
            *file.branches.entry((line.parse()?, branch.to_owned())).or_default() += count;
        }
        _ => {}
    }
    Ok(())
}

/// The path below the root of this workspace, or of a copy of it.
fn relative(path: &str) -> String {
    let root = format!("{}/", workspace::root().display());
    let path = path.strip_prefix(&root).unwrap_or(path);
    path.find("crates/").map_or(path, |at| &path[at..]).to_owned()
}

/// Numbers as `3, 5-9`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
