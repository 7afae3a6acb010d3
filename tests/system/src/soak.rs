//! `cargo system soak`: repeats the harnesses of the gate with other seeds for a given time.
//!
//! Five parts take turns: crash states of small workloads, several clients at once over many mounts, faults at every
//! command, bits flipped in a small volume, and cuts of every scenario with chains of cuts. Crash states get half of
//! the time and run in one process, so that no state is counted twice. For the other parts the device shapes take
//! turns. If there is time, one part flips every bit of a volume, and another strikes every command of every
//! scenario. The sums, and the completed parts, are printed at the end.

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};

use crate::accept::simulator::{Counted, simulator};

/// `cargo system soak --minutes N`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The approximate duration. Runs that have begun are completed.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// The first seed (default: from the clock, so that every run tries something new).
    #[arg(long)]
    seed: Option<u64>,
}

/// Device shapes, with the simulator's names.
const SHAPES: [&str; 7] =
    ["power-of-two", "odd", "blocks-512", "blocks-64k", "six-active", "one-block", "conventional"];

/// Counts of the simulator, under the names of the report.
const COUNTS: [&str; 13] = [
    "runs",
    "operations of clients",
    "simulated hours",
    "workloads of one operation",
    "workloads of two operations",
    "workloads of three operations",
    "states",
    "distinct device images",
    "distinct recovered trees",
    "faults",
    "bits flipped",
    "cuts",
    "chains of cuts",
];

/// Minutes of a round of all parts except crash states.
const ROUND: u64 = 8;

/// From this many minutes on the first round strikes every command and flips every bit, which takes this long on most
/// shapes.
const WHOLE_FROM: u64 = 40;

/// The number of seeds for the runs of one round.
const RUNS_OF_A_ROUND: u64 = 1_000_000;

pub(crate) fn run(args: &Args) -> Result<()> {
    let clock = SystemClock::new();
    let seed = args.seed.unwrap_or_else(|| clock.now().0.unsigned_abs() >> 16);
    println!("soak: {} minutes from seed {seed}", args.minutes);
    let mut soak = Soak { counted: Counted::of(&COUNTS), done: Vec::new() };
    let minutes_left =
        |clock: &SystemClock| args.minutes.saturating_sub(clock.monotonic_ns() / 60_000_000_000);
    let shape = SHAPES[seed as usize % SHAPES.len()];
    soak.part("states", &["--operations", "3"], shape, args.minutes.div_ceil(2), seed)?;
    for round in seed + 1.. {
        if minutes_left(&clock) == 0 {
            break;
        }
        let minutes = minutes_left(&clock).min(ROUND).div_ceil(4);
        let is_whole = round == seed + 1 && args.minutes >= WHOLE_FROM;
        let limit = if is_whole { minutes.max(minutes_left(&clock) / 3) } else { minutes };
        let shape = SHAPES[round as usize % SHAPES.len()];
        soak.part("run", &[], shape, minutes, round * RUNS_OF_A_ROUND)?;
        soak.part("faults", &[], shape, limit, round)?;
        let unmounted: &[&str] = if round % 2 == 0 { &["--unmounted"] } else { &[] };
        soak.part("flips", unmounted, shape, limit, round)?;
        soak.cuts(shape, round)?;
    }
    soak.done.iter().for_each(|done| println!("soaked to the end: {done}"));
    let counts = soak.counted.counts();
    for (what, count) in &counts {
        println!("soaked {what}: {count}");
    }
    println!("soak: {:.1} minutes, nothing went wrong", clock.monotonic_ns() as f64 / 60e9);
    ensure!(
        counts.iter().all(|(_, count)| *count > 0),
        "something was not done at all: give it more minutes"
    );
    Ok(())
}

/// The results so far.
struct Soak {
    counted: Counted,
    /// Completed parts, as they report them.
    done: Vec<String>,
}

impl Soak {
    fn part(&mut self, command: &str, more: &[&str], shape: &str, minutes: u64, seed: u64) -> Result<()> {
        let line = simulator(command).args(more.iter().copied()).args(["--geometry", shape]);
        let line = line.args(["--minutes", &minutes.to_string(), "--seed", &seed.to_string()]);
        println!("\n=== {line}");
        let what = [&[command], more, &["on", shape]].concat().join(" ");
        line.run_watched(|line| {
            self.counted.read(line);
            self.done.extend(is_done(line).then(|| format!("{what}: {line}")));
        })
        .with_context(|| format!("the soak found something in `{command}`"))
    }

    /// The quick cuts of every scenario. Their chains differ for each seed.
    fn cuts(&mut self, shape: &str, seed: u64) -> Result<()> {
        let line = simulator("cuts").args(["--quick", "--geometry", shape, "--seed", &seed.to_string()]);
        println!("\n=== {line}");
        // Its images differ for each seed, and would be added to those of the states.
        let is_own = |line: &str| line.starts_with("counted cuts") || line.starts_with("counted chains");
        line.run_watched(|line| {
            if is_own(line) {
                self.counted.read(line);
            }
        })
        .context("the soak found something in `cuts`")
    }
}

/// Whether a line reports that a part was completed.
fn is_done(line: &str) -> bool {
    line.starts_with("every ") && !line.contains("not every")
}

#[cfg(test)]
mod tests;
