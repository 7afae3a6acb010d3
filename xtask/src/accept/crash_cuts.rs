//! Point 2: wherever the power goes, a volume comes back as it was promised.
//!
//! The simulator runs each scenario on the emulated device and cuts it after every command, under
//! every plan the device knows; it recovers, runs the checker, compares with the reference model,
//! goes on, and cuts again. The whole form takes every scenario on every shape of device, and then
//! shows that the harness would notice: it removes each ordering rule and expects a failure. The
//! quick form takes each scenario on two shapes, draws plans where there are many, and leaves the
//! rules out.

use anyhow::{Context, Result};

use super::simulator::{Counted, simulator};
use super::{Report, Run};

const SHAPES: &str = "emulated: 28 zones of 256 KiB in 4-KiB blocks with 14 or 6 active, zones of \
                      77 and 70 blocks with a runt, 512-byte and 64-KiB blocks";

pub(super) fn run(run: &Run) -> Result<Report> {
    let mut counted = Counted::of(&COUNTS);
    let line = simulator("cuts").arg("--seed").arg(run.seed.to_string());
    let line = if run.quick { line.arg("--quick") } else { line };
    line.run_watched(|line| counted.read(line))?;
    if !run.quick {
        simulator("rules").run().context("a rule can be removed and nothing notices")?;
    }
    Ok(Report { geometry: SHAPES.to_owned(), counts: counted.counts() })
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
