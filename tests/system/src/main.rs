//! The tests of the whole system, through mounts, guests and other programs: `cargo system --help` lists them.
//!
//! A suite has a stable name such as `accept/posix` (`suites.rs`). `cargo system run` runs suites by their names and
//! records the results. Each group of suites also has a command of its own, with arguments for debugging: `cargo
//! system accept posix --seed 7`. Every step that starts a program goes through [`support::shell::Line`], so that the
//! printed command can be repeated.
//!
//! This crate uses no part of the product except `rt`. It starts the product's programs.
#![forbid(unsafe_code)]

mod accept;
mod bench;
mod builds;
mod coverage;
mod crash;
mod fuzz;
mod instructions;
mod marked;
mod measured;
mod mutants;
mod peer;
mod rocksdb;
mod sanitizer;
mod shuttle;
mod soak;
mod space;
mod suites;
mod vm;
mod ycsb;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use support::needs;

/// The tests of the whole system.
#[derive(Parser)]
#[command(name = "cargo system", bin_name = "cargo system")]
struct System {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The suites: their names, durations and commands.
    List(suites::ListArgs),
    /// Runs suites one after another, and records the results of their long forms.
    Run(suites::RunArgs),
    /// Merges recorded results, or reports whether they are complete.
    Results(suites::ResultsArgs),
    /// An older spelling of `list`, `run` and `results`.
    #[command(hide = true)]
    Everything(suites::EverythingArgs),
    /// Builds the programs of the gate's steps, as the gate does before them.
    Build,
    /// Acceptance points: the promises of the project, shown from outside.
    Accept(accept::Args),
    /// Whether four times as much of anything costs about four times as much: a table of N against 4 N.
    Growth(accept::GrowthArgs),
    /// Application crash tests: databases, git and saved files on a mount whose daemon is killed or loses its power.
    #[command(alias = "knife")]
    Crash(crash::Args),
    /// The gate's tests of crash states, faults and flipped bits, for a given time.
    Soak(soak::Args),
    /// Suites on zoned devices, in a guest that has them.
    Vm(vm::Args),
    /// Write amplification and latency of volumes in memory, compared with an ideal GC.
    Space(space::Args),
    /// The speed of Polder compared with a plain file, ext4 and XFS.
    Bench(bench::Args),
    /// How many instructions the most frequent operations take, compared with the recorded counts.
    Instructions(instructions::Args),
    /// YCSB on RocksDB through a mount, on ext4 and on XFS.
    Ycsb(ycsb::Args),
    /// RocksDB on a volume through the plugin: its methods, the tools of RocksDB, and writers that are killed.
    Rocksdb(rocksdb::Args),
    /// Interleavings of threads that a scheduler chooses.
    Shuttle(shuttle::Args),
    /// ThreadSanitizer on the tests of a package.
    Sanitizer(sanitizer::Args),
    /// libFuzzer on every decoder and on mounts.
    Fuzz(fuzz::Args),
    /// Which lines and branches the gate runs.
    Coverage(coverage::Args),
    /// How many small code changes in `pool`, `tree`, `extent` and `salvage` their tests notice.
    Mutants(mutants::Args),
}

fn main() -> ExitCode {
    match run(System::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            // For a person it is a failure. A record of many suites distinguishes the two.
            let lacks = error.chain().any(|cause| cause.is::<needs::Lacks>());
            if lacks { ExitCode::from(needs::LACKS) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => suites::list(&args),
        Command::Run(args) => suites::run(&args),
        Command::Results(args) => suites::results(&args),
        Command::Everything(args) => suites::everything(args),
        Command::Build => builds::run(),
        Command::Accept(args) => accept::run(&args),
        Command::Growth(args) => accept::run_growth(&args),
        Command::Crash(args) => crash::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Vm(args) => vm::run(&args),
        Command::Space(args) => space::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Ycsb(args) => ycsb::run(&args),
        Command::Rocksdb(args) => rocksdb::run(&args),
        Command::Shuttle(args) => shuttle::run(&args),
        Command::Sanitizer(args) => sanitizer::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Coverage(args) => coverage::run(&args),
        Command::Mutants(args) => mutants::run(&args),
    }
}
