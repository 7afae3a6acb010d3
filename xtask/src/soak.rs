//! `cargo xtask soak`: for as long as there is time, what the gate does for a moment, each time with another seed.
//!
//! Five parts take turns: crash states of small workloads, several clients at once over many mounts, faults at every
//! command, bits flipped in a small volume, and cuts of every scenario with chains of cuts. Crash states have half of
//! the time and one process, so that states which it has seen are not counted twice; the shapes of device take turns
//! with the others.
//! The sums are printed at the end, and whenever a part has ended.

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};

use crate::accept::simulator::{Counted, simulator};

/// `cargo xtask soak --minutes N`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long, about: what was begun is finished.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// The first seed (default: from the clock, so that every run tries something new).
    #[arg(long)]
    seed: Option<u64>,
}

/// Shapes of device, as the simulator calls them.
const SHAPES: [&str; 6] = ["power-of-two", "odd", "blocks-512", "blocks-64k", "six-active", "conventional"];

/// What the simulator counts, under the names of the report.
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

/// Minutes of a round of all parts but crash states.
const ROUND: u64 = 8;

/// Seeds that one round uses for runs, and no other does.
const RUNS_OF_A_ROUND: u64 = 1_000_000;

pub(crate) fn run(args: &Args) -> Result<()> {
    let clock = SystemClock::new();
    let seed = args.seed.unwrap_or_else(|| clock.now().0.unsigned_abs() >> 16);
    println!("soak: {} minutes from seed {seed}", args.minutes);
    let mut counted = Counted::of(&COUNTS);
    let minutes_left =
        |clock: &SystemClock| args.minutes.saturating_sub(clock.monotonic_ns() / 60_000_000_000);
    part(
        &mut counted,
        "states",
        &["--operations", "3"],
        SHAPES[seed as usize % SHAPES.len()],
        args.minutes.div_ceil(2),
        seed,
    )?;
    for round in seed + 1.. {
        if minutes_left(&clock) == 0 {
            break;
        }
        let minutes = minutes_left(&clock).min(ROUND).div_ceil(4);
        let shape = SHAPES[round as usize % SHAPES.len()];
        part(&mut counted, "run", &[], shape, minutes, round * RUNS_OF_A_ROUND)?;
        part(&mut counted, "faults", &[], shape, minutes, round)?;
        let unmounted: &[&str] = if round % 2 == 0 { &["--unmounted"] } else { &[] };
        part(&mut counted, "flips", unmounted, shape, minutes, round)?;
        cuts(&mut counted, shape, round)?;
    }
    let counts = counted.counts();
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

fn part(
    counted: &mut Counted,
    command: &str,
    more: &[&str],
    shape: &str,
    minutes: u64,
    seed: u64,
) -> Result<()> {
    let line = simulator(command).args(more.iter().copied()).args(["--geometry", shape]);
    let line = line.args(["--minutes", &minutes.to_string(), "--seed", &seed.to_string()]);
    println!("\n=== {line}");
    line.run_watched(|line| counted.read(line))
        .with_context(|| format!("the soak found something in `{command}`"))
}

/// The quick cuts of every scenario: their chains are others for each seed.
fn cuts(counted: &mut Counted, shape: &str, seed: u64) -> Result<()> {
    let line = simulator("cuts").args(["--quick", "--geometry", shape, "--seed", &seed.to_string()]);
    println!("\n=== {line}");
    // Its images are other ones for each seed, and would be counted beside those of the states.
    let is_own = |line: &str| line.starts_with("counted cuts") || line.starts_with("counted chains");
    line.run_watched(|line| {
        if is_own(line) {
            counted.read(line);
        }
    })
    .context("the soak found something in `cuts`")
}
