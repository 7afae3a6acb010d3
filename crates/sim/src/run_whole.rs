//! The command that runs the whole system under one seed: `polder-sim run`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};
use clap::Args;
use polder_sim::whole::shrink::{Failing, shrink};
use polder_sim::whole::{OPERATIONS_MAX, Place, Plan, Report};
use polder_sim::{crew, shapes};
use rt::sync::Mutex;
use rt::{Clock, SystemClock};

/// Runs in the quick form.
const QUICK: u64 = 120;
/// Runs by default.
const RUNS: u64 = 2000;
/// Runs spent on making a failure smaller.
const SHRINKING: u32 = 3000;

#[derive(Args, Clone)]
pub(crate) struct Run {
    /// Only as much as the gate has time for.
    #[arg(long)]
    quick: bool,
    /// The first seed. Each run has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of runs.
    #[arg(long)]
    runs: Option<u64>,
    /// Begin no run after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// The shape of device (default: all take turns).
    #[arg(long)]
    geometry: Option<String>,
    /// Clients at once (default: 2 to 4 take turns).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16))]
    clients: Option<u32>,
    /// Mounts of a run.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Operations of each client in each mount.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(OPERATIONS_MAX)))]
    operations: Option<u32>,
    /// Only the run of this seed, without making a failure smaller.
    #[arg(long)]
    once: bool,
    /// Only these operations of that run: round, client and number, such as 0.1.17.
    #[arg(long, requires = "once", value_delimiter = ',')]
    only: Option<Vec<Place>>,
}

pub(crate) fn run(options: &Run) -> Result<()> {
    if let Some(name) = &options.geometry {
        let known = shapes::all().iter().any(|shape| shape.name == name);
        ensure!(known, "there is no shape {name:?}; `polder-sim list` shows all");
    }
    if options.once {
        return once(&options.plan(options.seed));
    }
    let clock = SystemClock::new();
    let runs = options.runs.unwrap_or(match (options.quick, options.minutes) {
        (true, _) => QUICK,
        (false, Some(_)) => u64::MAX,
        (false, None) => RUNS,
    });
    let found = all(options, runs, &clock);
    let seconds = clock.monotonic_ns() as f64 / 1e9;
    println!("shape {}", shape_names(options));
    println!("counted runs: {}", found.runs);
    for (what, count) in found.report.named() {
        println!("counted {what}: {count}");
    }
    let simulated = found.report.simulated_ns as f64 / 1e9;
    let core_seconds = seconds * rt::thread::processors() as f64;
    println!("counted simulated hours: {:.0}", simulated / 3600.0);
    println!("{seconds:.1} s; {:.2} simulated years per core and day", simulated / core_seconds / 365.25);
    println!("digest {:016x}", found.report.digest);
    let Some(failing) = found.failing else { return Ok(()) };
    println!("FAILED: {}\n  first seen with: {}", failing.wrong, failing.plan);
    let small = shrink(failing, SHRINKING);
    println!("made smaller: {}\n  repeat with: {}", small.wrong, small.plan);
    bail!("the found state is not allowed");
}

fn once(plan: &Plan) -> Result<()> {
    match plan.run() {
        Ok(report) => println!("{report:?}"),
        Err(wrong) => bail!("{wrong}\n  repeat with: {plan}"),
    }
    Ok(())
}

fn shape_names(options: &Run) -> String {
    options.geometry.clone().unwrap_or_else(|| "all in turn".to_owned())
}

impl Run {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::usual(seed);
        let wanted = shapes::all().into_iter().find(|shape| Some(shape.name) == self.geometry.as_deref());
        plan.shape = wanted.unwrap_or(plan.shape);
        plan.clients = self.clients.unwrap_or(plan.clients);
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        plan.operations = self.operations.unwrap_or(plan.operations);
        plan.only = self.only.clone().map(BTreeSet::from_iter);
        plan
    }
}

#[derive(Default)]
struct Found {
    runs: u64,
    report: Report,
    /// The failure with the least seed.
    failing: Option<Failing>,
}

/// All runs, shared by the processors, until one fails.
fn all(options: &Run, runs: u64, clock: &SystemClock) -> Found {
    let found = Arc::new(Mutex::new(Found::default()));
    let (next, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let until = options.minutes.map(|minutes| clock.monotonic_ns() + minutes * 60_000_000_000);
    let plans = options.clone();
    let (shared, own) = (Arc::clone(&found), SystemClock::new());
    crew::share(move |member| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_late = until.is_some_and(|until| own.monotonic_ns() > until);
            if number >= runs || is_late || is_over.load(Ordering::Relaxed) {
                break;
            }
            let plan = plans.plan(plans.seed.wrapping_add(number));
            member.began(plan.to_string());
            let ran = plan.run();
            let mut found = shared.lock();
            found.runs += 1;
            match ran {
                Ok(report) => found.report.add(&report),
                Err(wrong) => {
                    is_over.store(true, Ordering::Relaxed);
                    if found.failing.as_ref().is_none_or(|failing| plan.seed < failing.plan.seed) {
                        found.failing = Some(Failing { plan, wrong });
                    }
                }
            }
        }
    });
    std::mem::take(&mut *found.lock())
}
