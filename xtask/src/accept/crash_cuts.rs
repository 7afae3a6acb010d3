//! Point 2: wherever the power goes, a volume comes back as it was promised.
//!
//! The simulator runs each scenario on the emulated device and cuts it after every command, under
//! every plan the device knows; it recovers, runs the checker, compares with the reference model,
//! goes on, and cuts again. The whole form takes every scenario on every shape of device, and then
//! shows that the harness would notice: it removes each ordering rule and expects a failure. The
//! quick form takes each scenario on two shapes, draws plans where there are many, and leaves the
//! rules out.

use anyhow::{Context, Result};

use super::{Report, Run};
use crate::shell::Line;

const SHAPES: &str = "emulated: 28 zones of 256 KiB in 4-KiB blocks with 14 or 6 active, zones of \
                      77 and 70 blocks with a runt, 512-byte and 64-KiB blocks";

pub(super) fn run(run: &Run) -> Result<Report> {
    let mut counts = Vec::new();
    let line = simulator("cuts").arg("--seed").arg(run.seed.to_string());
    let line = if run.quick { line.arg("--quick") } else { line };
    line.run_watched(|line| counts.extend(counted(line)))?;
    if !run.quick {
        simulator("rules").run().context("a rule can be removed and nothing notices")?;
    }
    Ok(Report { geometry: SHAPES.to_owned(), counts })
}

fn simulator(command: &str) -> Line {
    Line::new("cargo run --quiet --release --package polder-sim --").arg(command)
}

/// What the simulator counts, under the names of the report.
const COUNTS: [&str; 8] = [
    "device commands",
    "cuts",
    "second cuts",
    "third and later cuts",
    "chains of cuts",
    "cuts after a kill",
    "distinct device images",
    "distinct recovered trees",
];

/// Reads `counted cuts: 123`.
fn counted(line: &str) -> Option<(&'static str, u64)> {
    let (what, count) = line.strip_prefix("counted ")?.split_once(": ")?;
    let name = COUNTS.into_iter().find(|name| *name == what)?;
    Some((name, count.parse().ok()?))
}

#[cfg(test)]
mod tests;
