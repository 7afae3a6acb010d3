//! The command `polder`: one file for each of its commands.
//!
//! Every error is one line that says what is wrong and what to do, and the exit status is not 0.
#![forbid(unsafe_code)]

mod bytes;
mod check;
mod control;
mod daemon;
mod info;
mod logging;
mod mkfs;
mod mount;
mod options;
mod stats;
mod umount;
mod volume;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// An append-only file system for zoned storage.
#[derive(Parser)]
#[command(name = "polder", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Arguments),
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Info(info::Arguments),
    Check(check::Arguments),
    Stats(stats::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let done = match arguments.command {
        Command::Mkfs(arguments) => mkfs::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Check(arguments) => return check::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The one line of an error, causes and all.
fn complain(error: &anyhow::Error) {
    eprintln!("polder: {}", format!("{error:#}").replace('\n', " "));
}

/// What the parser of the command line has to say: help in full, errors in one line.
fn explain(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        error.exit();
    }
    let text = error.to_string();
    let words: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    eprintln!("polder: {} (see `polder --help`)", line.trim_start_matches("error: "));
    ExitCode::from(2)
}
