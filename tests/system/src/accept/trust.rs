//! Point 12: many clients at once, small workloads, device faults and flipped bits leave a promised state, do no
//! harm, or are reported.
//!
//! First each harness of the simulator must notice a planted bug. Then the simulator runs several clients at once
//! over many mounts. It cuts small workloads after every command and recovers every state in which the device may
//! then be. It lets the first, second, third … command of each kind fail. And it mounts a small volume with one
//! flipped bit, for every bit. The quick form takes the states of all workloads of one operation and some of two, and
//! a random part of runs, faults and bits.

use anyhow::{Context, Result};
use support::workspace::target_dir;

use super::simulator::{Counted, check_enough, simulator};
use super::{Report, Run};

/// The commands, the options of the quick form, and those of the long form.
const PARTS: [(&str, &[&str], &[&str]); 4] = [
    ("run", &["--quick"], &["--minutes", "10"]),
    ("states", &["--quick"], &["--operations", "2"]),
    ("faults", &["--quick", "--every", "20"], &[]),
    ("flips", &["--quick"], &[]),
];

pub(super) fn run(run: &Run) -> Result<Report> {
    let mut counted = Counted::of(&COUNTS);
    let mut shapes = Vec::new();
    simulator("planted")
        .arg("--canaries")
        .arg("--target-dir")
        .arg(target_dir()?)
        .run_watched(|line| counted.read(line))?;
    for (command, quick, whole) in PARTS {
        let line = simulator(command).args(if run.quick { quick } else { whole }.iter().copied());
        line.arg("--seed")
            .arg(run.seed.to_string())
            .run_watched(|line| {
                counted.read(line);
                shapes.extend(line.strip_prefix("shape ").map(|shape| format!("{command} on {shape}")));
            })
            .with_context(|| format!("`{command}` found something"))?;
    }
    let counts = counted.counts();
    check_enough(&counts, &LEAST)?;
    if !run.quick {
        check_enough(&counts, &LEAST_OF_WHOLE)?;
    }
    Ok(Report { geometry: format!("emulated; {}", shapes.join("; ")), counts })
}

/// Counts of the simulator, under the names of the report.
const COUNTS: [&str; 18] = [
    "canaries noticed",
    "runs",
    "operations of clients",
    "clients found in one order",
    "workloads of one operation",
    "workloads of two operations",
    "device commands",
    "states",
    "second cuts",
    "distinct device images",
    "distinct recovered trees",
    "scenarios",
    "kinds of faults",
    "faults",
    "volumes whose losses were known to the block",
    "volumes that miss one wrong block of data",
    "zones evacuated",
    "bits flipped",
];

/// The least counts of each form.
const LEAST: [(&str, u64); 14] = [
    ("canaries noticed", 5),
    ("runs", 60),
    ("clients found in one order", 30),
    ("workloads of one operation", 255),
    ("workloads of two operations", 1_000),
    ("states", 150_000),
    ("distinct device images", 100_000),
    ("scenarios", 26),
    ("kinds of faults", 20),
    ("faults", 600),
    ("volumes whose losses were known to the block", 20),
    ("volumes that miss one wrong block of data", 10),
    ("zones evacuated", 5),
    ("bits flipped", 2_000),
];

/// Further least counts of the long form.
const LEAST_OF_WHOLE: [(&str, u64); 3] = [("runs", 1_000), ("faults", 80_000), ("bits flipped", 1_000_000)];
