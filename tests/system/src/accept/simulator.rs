//! The commands of `polder-sim` for acceptance points, and the counts that it prints.

use anyhow::{Result, ensure};
use support::shell::Line;

/// A command of the simulator.
pub(crate) fn simulator(command: &str) -> Line {
    Line::new("cargo run --quiet --release --locked --package polder-sim --").arg(command)
}

/// The command that builds it.
pub(crate) fn build_line() -> Line {
    Line::new("cargo build --release --locked --package polder-sim")
}

/// Sums of the simulator's counts, by name.
pub(crate) struct Counted(Vec<(&'static str, u64)>);

impl Counted {
    /// These names, without counts yet.
    pub(crate) fn of(names: &[&'static str]) -> Self {
        Counted(names.iter().map(|&name| (name, 0)).collect())
    }

    /// Reads a line such as `counted cuts: 123`. Ignores other lines.
    pub(crate) fn read(&mut self, line: &str) {
        let named = line.strip_prefix("counted ").and_then(|rest| rest.split_once(": "));
        let Some((what, Ok(count))) = named.map(|(what, count)| (what, count.parse::<u64>())) else { return };
        if let Some((_, sum)) = self.0.iter_mut().find(|(name, _)| *name == what) {
            *sum += count;
        }
    }

    /// The counts for the report.
    pub(crate) fn counts(self) -> Vec<(&'static str, u64)> {
        self.0
    }
}

/// Fails if a count is below the least one of the point.
pub(crate) fn check_enough(counts: &[(&'static str, u64)], least: &[(&str, u64)]) -> Result<()> {
    for &(what, least) in least {
        let count = counts.iter().find(|(name, _)| *name == what).map_or(0, |(_, count)| *count);
        ensure!(count >= least, "{what}: only {count}, which says too little: {least} are wanted");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
