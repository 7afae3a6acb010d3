//! Point 2: after a loss of power at any moment, a volume comes back in a promised state.
//!
//! The simulator runs each scenario on the emulated device and cuts it after every command, under every plan of the
//! device. It recovers, runs the checker, compares with the reference model, continues, and cuts again. The long form
//! takes every scenario on every device shape. Then it shows that the harnesses notice bugs: it plants each known bug
//! and expects a failure. The quick form takes each scenario on two shapes, draws plans if there are many, spreads
//! the cuts over the commands if there are many, and plants nothing.

use anyhow::{Context, Result};

use super::simulator::{Counted, check_enough, simulator};
use super::{Report, Run};

pub(super) fn run(run: &Run) -> Result<Report> {
    let mut counted = Counted::of(&COUNTS);
    let mut shapes = Vec::new();
    let line = simulator("cuts").arg("--seed").arg(run.seed.to_string());
    let line = if run.quick { line.arg("--quick") } else { line };
    line.run_watched(|line| {
        counted.read(line);
        shapes.extend(line.strip_prefix("shape ").map(str::to_owned));
    })?;
    let mut counts = counted.counts();
    check_enough(&counts, &LEAST)?;
    if !run.quick {
        check_enough(&counts, &LEAST_OF_WHOLE)?;
        let mut planted = Counted::of(&PLANTED);
        simulator("planted")
            .run_watched(|line| planted.read(line))
            .context("a bug can be planted and nothing notices")?;
        counts.extend(planted.counts());
    }
    Ok(Report { geometry: format!("emulated; {}", shapes.join("; ")), counts })
}

/// Counts of the simulator, under the names of the report.
const COUNTS: [&str; 11] = [
    "scenarios",
    "shapes of each scenario, at least",
    "device commands",
    "cuts",
    "second cuts",
    "third and later cuts",
    "chains of cuts",
    "moments with two log zones",
    "cuts after a kill",
    "distinct device images",
    "distinct recovered trees",
];

/// Counts of the long form only: the bugs that the simulator can plant, and those that a harness noticed.
const PLANTED: [&str; 2] = ["planted bugs", "planted bugs found"];

/// The least counts of each form.
const LEAST: [(&str, u64); 7] = [
    ("scenarios", 50),
    ("shapes of each scenario, at least", 2),
    ("cuts", 20_000),
    ("second cuts", 5_000),
    ("third and later cuts", 4_000),
    ("chains of cuts", 100),
    ("distinct device images", 20_000),
];

/// Further least counts of the long form.
const LEAST_OF_WHOLE: [(&str, u64); 1] = [("shapes of each scenario, at least", 3)];
