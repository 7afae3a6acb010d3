//! The command `polder`: one file for each of its commands.
//!
//! Every error is one line that says what is wrong and what to do, and the exit status is not 0. Under the names that
//! `install` creates, the program behaves like the program with that name (`mkfs.polder`, `mount.polder` and so on).
#![forbid(unsafe_code)]
// These panic if the reader has closed the pipe: see `output`.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod bytes;
mod cat;
mod check;
mod client;
mod completions;
mod control;
mod copy_target;
mod cp;
mod daemon;
mod daemon_process;
mod defrag;
mod detaching;
mod device;
mod dump;
mod files;
mod fragments;
mod fsck;
mod gc;
mod hint;
mod holders;
mod info;
mod inherited;
mod install;
mod interrupt;
mod label;
mod list;
mod logged_kinds;
mod logging;
mod ls;
mod manual;
mod misuse;
mod mkfs;
mod monitor;
mod mount;
mod mount_helper;
mod name;
mod numbers;
mod options;
mod output;
mod po2;
mod probe;
mod process;
mod progress;
mod rebuilds;
mod registry;
mod remount;
mod replace;
mod salvage;
mod scrub;
mod sets;
mod starter;
mod stats;
mod status;
mod sync;
mod syslog;
mod tags;
mod top;
mod umount;
mod umount_helper;
mod unmounted;
mod volume;
mod way;
mod zones;

use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::misuse::{MISUSED, suggestions};
use crate::output::error_line;

/// The exit status of a failed command, unless the command has its own statuses.
const FAILED: u8 = 1;

/// An append-only file system for zoned storage.
#[derive(Parser)]
#[command(name = "polder", version, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    amount: Amount,
    #[command(subcommand)]
    command: Command,
}

/// How much is printed.
#[derive(clap::Args)]
struct Amount {
    /// Print only errors and requested data: no summary of what was done, and no progress.
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Log details: to standard error, and in the log of a mount.
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Arguments),
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Sync(sync::Arguments),
    List(list::Arguments),
    Label(label::Arguments),
    Info(info::Arguments),
    Device(device::Arguments),
    Stats(stats::Arguments),
    Top(top::Arguments),
    Zones(zones::Arguments),
    Hint(hint::Arguments),
    Gc(gc::Arguments),
    Fragments(fragments::Arguments),
    Defrag(defrag::Arguments),
    Check(check::Arguments),
    Scrub(scrub::Arguments),
    Salvage(salvage::Arguments),
    Dump(dump::Arguments),
    Ls(ls::Arguments),
    Cat(cat::Arguments),
    Cp(cp::Arguments),
    Po2(po2::Arguments),
    Probe(probe::Arguments),
    Install(install::Arguments),
    Manual(manual::Arguments),
    Completions(completions::Arguments),
}

/// Make a volume of Polder; called by mkfs(8). It is `polder mkfs` under the name that the system looks for.
#[derive(Parser)]
#[command(name = "mkfs.polder", version)]
struct MkfsArguments {
    #[command(flatten)]
    amount: Amount,
    #[command(flatten)]
    mkfs: mkfs::Arguments,
}

fn main() -> ExitCode {
    inherited::begin();
    let called = std::env::args_os().next().unwrap_or_default();
    match Path::new(&called).file_name().and_then(|name| name.to_str()) {
        Some("mkfs.polder") => parsed::<MkfsArguments>(|arguments| {
            arguments.amount.set(true);
            finish(mkfs::run(&arguments.mkfs))
        }),
        Some("fsck.polder") => fsck::main(),
        Some("mount.polder" | "mount.fuse.polder") => mount_helper::main(),
        Some("umount.polder" | "umount.fuse.polder") => umount_helper::main(),
        _ => parsed::<Arguments>(|arguments| {
            arguments.amount.set(!arguments.command.logs());
            run(arguments.command)
        }),
    }
}

impl Amount {
    /// `starts_log` is false for a command that starts a log of its own.
    fn set(&self, starts_log: bool) {
        if self.quiet {
            output::be_quiet();
        }
        if self.verbose {
            logging::be_verbose();
            if starts_log {
                // Standard error is always there.
                let _ = logging::start(&logging::Reader::Starter);
            }
        }
    }
}

impl Command {
    /// Whether the command starts a log of its own.
    fn logs(&self) -> bool {
        match self {
            Command::Mount(_) | Command::Po2(_) => true,
            Command::Zones(arguments) => arguments.is_mount(),
            _ => false,
        }
    }
}

fn parsed<A: Parser>(run: impl FnOnce(A) -> ExitCode) -> ExitCode {
    match A::try_parse() {
        Ok(arguments) => run(arguments),
        Err(error) => explain::<A>(&error),
    }
}

fn run(command: Command) -> ExitCode {
    finish(match command {
        Command::Mkfs(arguments) => mkfs::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Sync(arguments) => sync::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Label(arguments) => label::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Device(arguments) => device::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Zones(arguments) => zones::run(&arguments),
        Command::Hint(arguments) => hint::run(&arguments),
        Command::Gc(arguments) => gc::run(&arguments),
        Command::Fragments(arguments) => fragments::run(&arguments),
        Command::Defrag(arguments) => defrag::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Cat(arguments) => cat::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Po2(arguments) => po2::run(&arguments),
        Command::Install(arguments) => install::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Check(arguments) => return check::run(&arguments),
        Command::Probe(arguments) => return probe::run(&arguments),
        Command::Scrub(arguments) => return scrub::run(&arguments),
        Command::Salvage(arguments) => return salvage::run(&arguments),
    })
}

fn finish(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            misuse::exit_status(&error, MISUSED, FAILED)
        }
    }
}

/// An error that a child process has already reported.
#[derive(Debug)]
struct AlreadyReported;

impl std::error::Error for AlreadyReported {}

impl std::fmt::Display for AlreadyReported {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("see the previous line")
    }
}

/// Prints an error and its causes in one line.
fn complain(error: &anyhow::Error) {
    if error.is::<AlreadyReported>() {
        return;
    }
    error_line!("polder: {}", holders::explained(error).replace('\n', " "));
}

/// Prints the output of the command line parser: help in full, errors in one line.
fn explain<A: CommandFactory>(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        error.exit();
    }
    let text = error.to_string();
    let words: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    let (error_text, meant) = (line.trim_start_matches("error: "), suggestions(error));
    error_line!("polder: {error_text}{meant} (see `{} --help`)", asked_for::<A>());
    ExitCode::from(MISUSED)
}

/// The name of the called program, with the subcommand if there is one.
fn asked_for<A: CommandFactory>() -> String {
    let program = A::command();
    let named = std::env::args_os().nth(1).and_then(|name| program.find_subcommand(name));
    named
        .map_or(program.get_name().to_owned(), |named| format!("{} {}", program.get_name(), named.get_name()))
}
