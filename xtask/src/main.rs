//! The project's own commands: `cargo xtask --help` lists them.
//!
//! One file (or folder) per command. What is run is what is printed: every step that starts a
//! program goes through [`support::shell::Line`], so that a person can repeat it by hand.
#![forbid(unsafe_code)]

mod accept;
mod bench;
mod ci;
mod coverage;
mod everything;
mod fuzz;
mod knife;
mod marked;
mod measured;
mod mutants;
mod peer;
mod sanitizer;
mod setup;
mod shuttle;
mod soak;
mod space;
mod tidy;
mod try_volume;
mod vm;
mod ycsb;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use support::needs;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The whole gate, for people and machines alike: set-up, then every check.
    Ci,
    /// The first step of the gate alone: installs or names everything that the gate needs.
    Setup(setup::Args),
    /// Set-up in roots of their own: one with nothing in it, and one with unsuitable programs.
    SetupTest,
    /// Every suite that the gate does not run, in shards, with a record of the results.
    Everything(everything::Args),
    /// Build what the gate's steps run, as the gate does before them.
    Build,
    /// The rules of the house that compiler and linter cannot see.
    Tidy,
    /// One acceptance point: what the project promises, shown from outside.
    Accept(accept::Args),
    /// Whether four times as much of anything costs about four times as much: a table of N against 4 N.
    Growth(accept::GrowthArgs),
    /// What the gate does of crash states, faults and flipped bits, for as long as there is time.
    Soak(soak::Args),
    /// What threads do to each other, in orders that a scheduler chooses.
    Shuttle(shuttle::Args),
    /// ThreadSanitizer on the tests of a package.
    Sanitizer(sanitizer::Args),
    /// Which lines and branches the workspace's tests run.
    Coverage(coverage::Args),
    /// libFuzzer on every decoder and on a mount.
    Fuzz(fuzz::Args),
    /// Databases and git on a mount whose daemon is killed, or loses its power, again and again.
    Knife(knife::Args),
    /// How many small mistakes in `tree` and `extent` their tests notice.
    Mutants(mutants::Args),
    /// Write amplification and latency of volumes in memory, beside an ideal cleaner.
    Space(space::Args),
    /// How fast Polder is beside a plain file, ext4 and XFS.
    Bench(bench::Args),
    /// YCSB on RocksDB through a mount, on ext4 and on XFS.
    Ycsb(ycsb::Args),
    /// Builds Polder, makes a volume in a file, mounts it and says what to try.
    Try(try_volume::Args),
    /// Suites on zoned devices, in a guest that has them.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let result = match Xtask::parse().task {
        Task::Ci => ci::run(),
        Task::Setup(args) => setup::run_command(&args),
        Task::SetupTest => setup::trial::run(),
        Task::Everything(args) => everything::run(&args),
        Task::Build => ci::builds::run(),
        Task::Tidy => tidy::run(),
        Task::Accept(args) => accept::run(&args),
        Task::Growth(args) => accept::run_growth(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Shuttle(args) => shuttle::run(&args),
        Task::Sanitizer(args) => sanitizer::run(&args),
        Task::Coverage(args) => coverage::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Knife(args) => knife::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::Space(args) => space::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Ycsb(args) => ycsb::run(&args),
        Task::Try(args) => try_volume::run(&args),
        Task::Vm(args) => vm::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            // For a person it is a failure; a record of many suites tells one from the other.
            let lacks = error.chain().any(|cause| cause.is::<needs::Lacks>());
            if lacks { ExitCode::from(needs::LACKS) } else { ExitCode::FAILURE }
        }
    }
}
