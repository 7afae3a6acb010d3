//! The command that searches all crash states of small workloads: `polder-sim states`.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use polder_sim::case::{Cut, Loss};
use polder_sim::shapes;
use polder_sim::states::{Limits, Search};
use rt::{Clock, SystemClock};

/// Limit for the states of one command.
const STATES_MAX: u64 = 48;
/// Workloads of two operations in the quick form.
const QUICK_TWO: u64 = 2000;
/// Workloads of three operations in the quick form.
const QUICK_THREE: u64 = 100;

#[derive(Args)]
pub(crate) struct States {
    /// Only as much as the gate has time for: all workloads of one operation, some of two and three.
    #[arg(long)]
    quick: bool,
    /// All workloads of up to this many operations. Those of three run for as long as `--minutes` allows.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3))]
    operations: u32,
    /// End after this many minutes, even if workloads are left.
    #[arg(long)]
    minutes: Option<u64>,
    /// Limit for the states after one command. If there are more, some are drawn.
    #[arg(long, default_value_t = STATES_MAX, value_parser = clap::value_parser!(u64).range(2..))]
    states_max: u64,
    /// The shape of device.
    #[arg(long, default_value = "power-of-two")]
    geometry: String,
    /// Determines the order of workloads, and which states are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// List the steps that workloads are made of.
    #[arg(long)]
    list: bool,
    /// Run only this workload: steps with commas between them.
    #[arg(long)]
    workload: Option<String>,
    /// Repeat one case: the power fails right after this command of the workload. May be given twice, each time with
    /// `--plan`: the second cut falls into the recovery from the first.
    #[arg(long, requires = "plan", requires = "workload")]
    cut: Vec<u64>,
    /// The state of the device after the cut: for example state:17 or lose-all.
    #[arg(long, requires = "cut")]
    plan: Vec<Loss>,
}

pub(crate) fn states(options: &States) -> Result<()> {
    let Some(shape) = shapes::all().into_iter().find(|shape| shape.name == options.geometry) else {
        bail!("there is no shape {:?}; `polder-sim list` shows all", options.geometry);
    };
    let search = Search::new(shape.clone(), limits(options)).map_err(|wrong| anyhow!("{wrong}"))?;
    if options.list {
        search.space().names().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if let Some(text) = &options.workload {
        return repeat(&search, text, options);
    }
    let clock = SystemClock::new();
    let (steps, operations) = (search.space().count(1), search.space().operations());
    println!(
        "{operations} operations, {steps} with what follows them, {} pairs; seed {}",
        steps * steps,
        options.seed
    );
    println!("shape {shape}");
    let search = Arc::new(search);
    let (found, failure) = search.run();
    let seconds = clock.monotonic_ns() as f64 / 1e9;
    for (what, count) in found.named() {
        println!("counted {what}: {count}");
    }
    let rate = |count: u64| count as f64 / seconds;
    println!(
        "{seconds:.1} s; {:.0} states, {:.0} recoveries and {:.0} distinct images a second; {} workloads cannot be",
        rate(found.states),
        rate(found.recoveries),
        rate(found.images),
        found.impossible
    );
    println!(
        "after {} of {} commands every state, after the others {} drawn from the seed",
        found.exhaustive, found.commands, options.states_max
    );
    if let Some(failure) = failure {
        println!("{failure}");
        bail!("the state after a cut is not allowed");
    }
    let has_all = |operations: u32| search.has_taken_all(operations);
    println!("{} workload of one operation, {} of two", every(has_all(1)), every(has_all(2)));
    let is_whole = has_all(1) && (options.quick || options.operations == 1 || has_all(2));
    ensure!(options.minutes.is_some() || is_whole, "some workloads were left out");
    Ok(())
}

fn every(is_so: bool) -> &'static str {
    if is_so { "every" } else { "not every" }
}

fn limits(options: &States) -> Limits {
    let all = if options.operations > 1 { u64::MAX } else { 0 };
    let sampled = if options.operations > 2 { u64::MAX } else { 0 };
    Limits {
        states_max: options.states_max,
        workloads_max: if options.quick { [QUICK_TWO, QUICK_THREE] } else { [all, sampled] },
        nanoseconds: options.minutes.unwrap_or(0) * 60_000_000_000,
        seed: options.seed,
    }
}

fn repeat(search: &Search, text: &str, options: &States) -> Result<()> {
    ensure!(options.cut.len() == options.plan.len(), "each --cut needs its --plan");
    let workload = search.space().parse(text).map_err(|why| anyhow!("{why}"))?;
    let cuts: Vec<Cut> =
        options.cut.iter().zip(&options.plan).map(|(&at, loss)| Cut { at, loss: loss.clone() }).collect();
    println!("{}", search.repeat(&workload, &cuts).map_err(|wrong| anyhow!("{wrong}"))?);
    Ok(())
}
