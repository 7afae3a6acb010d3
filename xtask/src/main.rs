//! The project's own commands: `cargo xtask --help` lists them.
//!
//! One file (or folder) per command. What is run is what is printed: every step that starts a
//! program goes through [`support::shell::Line`], so that a person can repeat it. Tests of the whole system are in
//! `tests/system`. This program must build fast in a fresh clone, so it only starts them.
#![forbid(unsafe_code)]

mod ci;
mod clean_root;
mod setup;
mod stage;
mod tidy;
mod try_volume;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use support::needs;
use support::shell::Line;

/// The project's own commands. Any other command is one of `cargo system`.
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
    /// The rules of the house that compiler and linter cannot see.
    Tidy,
    /// Builds Polder, makes a volume in a file, mounts it and says what to try.
    Try(try_volume::Args),
    /// Builds the command, the C library, the plugin of RocksDB and their documentation, and installs them below a
    /// directory.
    Stage(stage::Args),
    /// Builds packages: a `.deb` and an `.rpm`.
    Package(stage::PackageArgs),
    /// A command of the system tests.
    #[command(external_subcommand)]
    System(Vec<String>),
}

fn main() -> ExitCode {
    let result = match Xtask::parse().task {
        Task::Ci => ci::run(),
        Task::Setup(args) => setup::run_command(&args),
        Task::SetupTest => setup::trial::run(),
        Task::Tidy => tidy::run(),
        Task::Try(args) => try_volume::run(&args),
        Task::Stage(args) => stage::run(&args),
        Task::Package(args) => stage::package(&args),
        Task::System(args) => Err(Line::new("cargo system").args(args).replace_this_process()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            // For a person it is a failure. A record of many suites distinguishes the two.
            let lacks = error.chain().any(|cause| cause.is::<needs::Lacks>());
            if lacks { ExitCode::from(needs::LACKS) } else { ExitCode::FAILURE }
        }
    }
}
