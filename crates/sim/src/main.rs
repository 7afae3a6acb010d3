//! `polder-sim`: cuts the power of emulated volumes at every device command, and runs them for a long time.
#![forbid(unsafe_code)]

mod run_calls;
mod run_faults;
mod run_flips;
mod run_fuzz;
mod run_long;
mod run_planted;
mod run_shapes;
mod run_speed;
mod run_states;
mod run_whole;

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use polder_sim::case::{Case, Cut, Loss};
use polder_sim::catalogue::{self, Entry};
use polder_sim::explore::Thoroughness;
use polder_sim::planted;
use polder_sim::report::{Counts, Coverage};
use rt::{Clock, SystemClock};

/// Cuts the power of emulated volumes at every device command, recovers them, and compares the result with a
/// reference model.
#[derive(Parser)]
#[command(name = "polder-sim")]
struct Cli {
    /// Have this bug, in a build with planted bugs.
    #[arg(long, hide = true)]
    planted: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut scenarios at every command, or repeat one case.
    Cuts(Cuts),
    /// Cut all workloads of one, two and some of three operations, in every state that the device may be found in.
    States(run_states::States),
    /// Run several clients, background work, faults, cuts and kills, mount after mount, from one seed.
    Run(run_whole::Run),
    /// Let the first, second, third … command of each kind fail in every scenario.
    Faults(run_faults::Faults),
    /// Mount a small volume with one bit flipped, for every bit of it.
    Flips(run_flips::Flips),
    /// Offer hostile bytes to every decoder and to a mount.
    Fuzz(run_fuzz::Fuzz),
    /// Plant each known bug in turn, and show which harness notices it, and when.
    Planted(run_planted::Planted),
    /// Run scenarios without a cut, and print the signs that rose in the part that would be cut.
    Shows(Shows),
    /// List scenarios and geometries.
    List,
    /// Fill volumes with exactly the available space, through the library.
    Fill(run_long::Fill),
    /// Create, overwrite, truncate and delete files until many times the capacity has been written.
    Endure(run_long::Endure),
    /// Do the same in a directory of any file system, at a level of bytes, until it is done or an operation is
    /// refused.
    Churn(run_long::Churn),
    /// Fill, overwrite and empty volumes of drawn shapes, with drawn write patterns.
    Shapes(run_shapes::Shapes),
    /// Measure the speed of names in small and in large trees.
    Names(run_speed::Names),
    /// Measure reads, writes and names in several places, in turns.
    Turns(run_speed::Turns),
    /// Perform one kind of operation in a directory, and print its rate and latencies.
    Calls(run_calls::Calls),
    /// Perform each of the most frequent operations many times, in memory, for a program that counts instructions.
    Counted,
    /// Measure reads or writes of one place: a raw zoned device, or a directory.
    Transfer(run_speed::Transfer),
    /// Count the metadata written for each operation on a tree much larger than the cache.
    Amplification(run_speed::Amplification),
    /// Write, compare or delete a file with very many extents.
    Extents(run_speed::Extents),
}

#[derive(Args)]
struct Shows {
    /// Only scenarios with this name, or whose name begins with it.
    #[arg(long)]
    scenario: Option<String>,
    /// Only this shape of device.
    #[arg(long)]
    geometry: Option<String>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
}

#[derive(Args)]
struct Cuts {
    /// Only as much as the gate has time for.
    #[arg(long)]
    quick: bool,
    /// Only scenarios with this name, or whose name begins with it.
    #[arg(long)]
    scenario: Option<String>,
    /// Only this shape of device.
    #[arg(long)]
    geometry: Option<String>,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Continue with the next scenario after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Print a verdict for each scenario, for `planted`.
    #[arg(long, hide = true)]
    verdicts: bool,
    /// Repeat one case: the power fails right after this command. May be given several times, each time with
    /// `--plan`: a second cut falls into the recovery from the first.
    #[arg(long, requires = "plan")]
    cut: Vec<u64>,
    /// The state of the device after the cut: for example lose-all, tear-one:3:1, subset:77, full:keep-all or killed.
    #[arg(long, requires = "cut")]
    plan: Vec<Loss>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(bug) = cli.planted {
        run_planted::plant(bug);
    }
    let done = match cli.command {
        Command::Cuts(options) => cuts(&options),
        Command::States(options) => run_states::states(&options),
        Command::Run(options) => run_whole::run(&options),
        Command::Faults(options) => run_faults::faults(&options),
        Command::Flips(options) => run_flips::flips(&options),
        Command::Fuzz(options) => run_fuzz::fuzz(&options),
        Command::Planted(options) => run_planted::planted(&options),
        Command::Fill(options) => run_long::fill(&options),
        Command::Endure(options) => run_long::endure(&options),
        Command::Shapes(options) => run_shapes::shapes(&options),
        Command::Churn(options) => run_long::churn(&options),
        Command::Names(options) => run_speed::names(&options),
        Command::Turns(options) => run_speed::turns(&options),
        Command::Calls(options) => run_calls::calls(&options),
        Command::Counted => run_calls::counted(),
        Command::Transfer(options) => run_speed::transfer(&options),
        Command::Amplification(options) => run_speed::amplification(&options),
        Command::Extents(options) => run_speed::extents(&options),
        Command::Shows(options) => shows(&options),
        Command::List => {
            list();
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("polder-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for entry in catalogue::all(1) {
        println!("{:<26} {}", entry.run().scenario, entry.run().shape);
    }
}

fn cuts(options: &Cuts) -> Result<()> {
    let entries = chosen(options)?;
    if !options.cut.is_empty() {
        return repeat(options, &entries);
    }
    let how = if options.quick { Thoroughness::QUICK } else { Thoroughness::FULL };
    let (clock, mut sum, mut failed) = (SystemClock::new(), Counts::default(), 0);
    let mut coverage = Coverage::default();
    for entry in &entries {
        let began = clock.monotonic_ns();
        let (counts, failure) = entry.explore(how);
        let seconds = (clock.monotonic_ns() - began) as f64 / 1e9;
        println!("{:<24} {:<13} {counts} {seconds:6.1} s", entry.run().scenario, entry.run().shape);
        coverage.note(entry.run(), &counts);
        sum.add(counts);
        if options.verdicts {
            println!("{}", planted::verdict(failure.as_ref()));
        }
        if let Some(failure) = failure {
            println!("{failure}");
            failed += 1;
            ensure!(options.keep_going, "the state after a cut is not allowed");
        }
    }
    println!("{:<38} {sum} {:6.1} s", format!("{} runs", entries.len()), clock.monotonic_ns() as f64 / 1e9);
    for shape in coverage.shapes() {
        println!("shape {shape}");
    }
    for (what, count) in coverage.named().into_iter().chain(sum.named()) {
        println!("counted {what}: {count}");
    }
    ensure!(failed == 0, "{failed} of {} runs failed", entries.len());
    Ok(())
}

fn chosen(options: &Cuts) -> Result<Vec<Entry>> {
    let rotated = options.quick && options.geometry.is_none();
    let entries = if rotated { catalogue::rotated(options.seed) } else { catalogue::all(options.seed) };
    matching(entries, options.scenario.as_deref(), options.geometry.as_deref())
}

/// The scenarios with this name, or those whose name begins with it if none has it.
fn matching(mut entries: Vec<Entry>, scenario: Option<&str>, shape: Option<&str>) -> Result<Vec<Entry>> {
    let exact = entries.iter().any(|entry| Some(entry.run().scenario) == scenario);
    let named = |name: &str| match scenario {
        Some(wanted) if exact => name == wanted,
        Some(wanted) => name.starts_with(wanted),
        None => true,
    };
    entries.retain(|entry| {
        named(entry.run().scenario) && shape.is_none_or(|wanted| entry.run().shape.starts_with(wanted))
    });
    if entries.is_empty() {
        bail!("no scenario matches; `polder-sim list` shows all");
    }
    Ok(entries)
}

fn shows(options: &Shows) -> Result<()> {
    let mut lacking = 0;
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        let entries =
            matching(catalogue::all(seed), options.scenario.as_deref(), options.geometry.as_deref())?;
        for entry in entries {
            let (commands, shown, wrong) = entry.show();
            let run = entry.run();
            println!("{:<24} {:<13} seed {seed}: {commands:>5} commands; {shown}", run.scenario, run.shape);
            if let Some(wrong) = wrong {
                println!("LACKING: {wrong}");
                lacking += 1;
            }
        }
    }
    ensure!(lacking == 0, "{lacking} runs do not show what their scenarios name");
    Ok(())
}

fn repeat(options: &Cuts, entries: &[Entry]) -> Result<()> {
    ensure!(options.cut.len() == options.plan.len(), "each --cut needs its --plan");
    let exact = |entry: &&Entry| options.scenario.as_deref() == Some(entry.run().scenario);
    let Some(entry) = entries.iter().find(exact) else {
        bail!("to repeat a case, name its --scenario and --geometry exactly");
    };
    let cuts = options.cut.iter().zip(&options.plan).map(|(&at, loss)| Cut { at, loss: loss.clone() });
    let case = Case { run: entry.run().clone(), cuts: cuts.collect() };
    println!("{}", entry.repeat(&case)?);
    Ok(())
}
