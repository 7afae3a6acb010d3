//! `cargo system crash`: application crash tests. Databases, git and saved files on a mount whose daemon crashes again and again.
//!
//! SQLite with both of its journals, PostgreSQL, RocksDB, LMDB, git and a program that saves files (`crash/saves.rs`)
//! work on a volume each, through their own programs like their users. Acknowledged transactions are remembered
//! outside of the volume. After at least one acknowledged transaction, at a random moment, the daemon crashes
//! (`crash/mode.rs`). The volume must then be clean and mount, the application's own checker must find nothing, and
//! everything acknowledged must exist. One crash in four is followed by another right after the next mount
//! (`crash/section.rs`).
//!
//! Beside each application a thread writes files and never syncs (`crash/litter.rs`).
//!
//! There are two modes. *kill*: SIGKILL of the normal daemon; the file keeps everything written to it. *cut*: a
//! special build of the daemon holds unsynced data in memory, and ends with only a part of it in the file.
//!
//! Each mode must find a loss where there must be one: of an application that does not sync, and on a device that
//! reports a sync without doing it. A canary that passes is a failure.
//!
//! The moment cannot be repeated: the seed determines the delay and the losses, but not the progress of the
//! processors. So a failure keeps the file as the daemon left it.

mod git;
mod litter;
mod lmdb;
mod mode;
mod rocksdb;
mod saves;
mod section;
pub(crate) mod writer;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};
use support::needs;
use support::shell::Line;
use support::workspace;

use self::mode::Mode;
use self::section::{APPLICATIONS, Counts, Entry, Section};
use crate::accept;

/// `cargo system crash [--kills N] [--seed S] [--mode kill|cut|both] [--only NAME] [--quick]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many crashes, over all applications and modes (default: 610; 36 with --quick).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    kills: Option<u64>,
    /// The seed of everything random (default: made from the commit).
    #[arg(long)]
    seed: Option<u64>,
    /// How the daemon crashes.
    #[arg(long, value_enum, default_value_t = Modes::Both)]
    mode: Modes,
    /// One application alone: sqlite, lmdb, rocksdb, git, saves or postgresql.
    #[arg(long)]
    only: Option<String>,
    /// Fewer crashes, sooner after the first transactions, and one canary for each mode.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Modes {
    /// SIGKILL.
    Kill,
    /// A loss of power.
    Cut,
    /// One after the other.
    Both,
}

impl Modes {
    fn all(self) -> &'static [Mode] {
        match self {
            Modes::Kill => &[Mode::Kill],
            Modes::Cut => &[Mode::Cut],
            Modes::Both => &[Mode::Kill, Mode::Cut],
        }
    }
}

const KILLS: u64 = 610;
const QUICK_KILLS: u64 = 36;

pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require_root("run PostgreSQL as its own user")?;
    needs::require(needs::PROGRAMS.iter().chain(&needs::CRASH))?;
    let seed = args.seed.map_or_else(accept::seed_of_commit, Ok)?;
    let kills = args.kills.unwrap_or(if args.quick { QUICK_KILLS } else { KILLS });
    let chosen = chosen(args.only.as_deref())?;
    println!("crash: at least {kills} crashes, seed {seed}");
    let daemon = match args.mode {
        Modes::Kill => None,
        Modes::Cut | Modes::Both => Some(build_daemon()?),
    };
    let clock = SystemClock::new();
    let mut counts = Vec::new();
    for section in sections(args, &chosen, kills, seed) {
        let repeat = repeat(args, &section);
        println!("\n=== {section}\n    {repeat}");
        let done = section.run(daemon.as_deref());
        counts.push(done.with_context(|| format!("{section}: repeat with\n    {repeat}\n"))?);
    }
    show(&counts, clock.monotonic_ns() / 1_000_000_000)
}

/// Builds a daemon whose power can be cut, in a folder of its own, to keep it apart from the normal one.
fn build_daemon() -> Result<std::path::PathBuf> {
    let target = workspace::target_dir()?.join("crash");
    let line = Line::new(
        "cargo build --release --locked --package polder-cli --bin polder --no-default-features --features knife",
    );
    line.arg("--target-dir").arg(&target).run()?;
    Ok(target.join("release/polder"))
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Entry>> {
    let chosen: Vec<&Entry> =
        APPLICATIONS.iter().filter(|entry| only.is_none_or(|name| name == entry.name)).collect();
    let known: Vec<&str> = APPLICATIONS.iter().map(|entry| entry.name).collect();
    ensure!(!chosen.is_empty(), "there is no such application; there are: {}", known.join(", "));
    Ok(chosen)
}

/// Each application with its part of the usual number of crashes and of the quick form's, over both modes.
pub(crate) fn shares() -> impl Iterator<Item = (&'static str, u64, u64)> {
    let shares: u64 = APPLICATIONS.iter().map(|entry| entry.share).sum();
    let part = move |kills: u64, share: u64| 2 * (kills * share).div_ceil(2 * shares);
    APPLICATIONS
        .iter()
        .map(move |entry| (entry.name, part(KILLS, entry.share), part(QUICK_KILLS, entry.share)))
}

/// Each application in each mode, with its share of the crashes.
fn sections(args: &Args, chosen: &[&'static Entry], kills: u64, seed: u64) -> Vec<Section> {
    let modes = args.mode.all();
    let shares: u64 = chosen.iter().map(|entry| entry.share).sum::<u64>() * modes.len() as u64;
    let mut sections = Vec::new();
    for &mode in modes {
        for (place, &entry) in chosen.iter().enumerate() {
            sections.push(Section {
                entry,
                mode,
                crashes: (kills * entry.share).div_ceil(shares),
                seed,
                quick: args.quick,
                canary: place == 0 || !args.quick,
            });
        }
    }
    sections
}

fn repeat(args: &Args, section: &Section) -> Line {
    let line = Line::new("cargo system crash").args(["--seed", &section.seed.to_string()]);
    let line = line.args(["--mode", section.mode.name(), "--only", section.entry.name]);
    let line = line.args(["--kills", &section.crashes.to_string()]);
    if args.quick { line.arg("--quick") } else { line }
}

/// Prints the counts. A zero count proves nothing.
fn show(counts: &[Counts], seconds: u64) -> Result<()> {
    println!(
        "\n{:<11} {:<5} {:>6} {:>7} {:>13} {:>10} {:>9} {:>9} {:>9}",
        "application", "mode", "crashes", "doubled", "acknowledged", "verified", "kept", "lost", "mount ms"
    );
    for row in counts {
        println!("{row}");
        ensure!(row.acknowledged > 0 && row.verified > 0, "nothing was acknowledged, or nothing verified");
    }
    let sum = |count: fn(&Counts) -> u64| counts.iter().map(count).sum::<u64>();
    for mode in [Mode::Kill, Mode::Cut] {
        let crashes: u64 = counts.iter().filter(|row| row.mode == mode).map(|row| row.crashes).sum();
        println!("{} crashes of mode {}", crashes, mode.name());
    }
    judge_losses(counts)?;
    println!("transactions acknowledged: {}", sum(|row| row.acknowledged));
    println!("transactions verified: {}", sum(|row| row.verified));
    println!("files read that were never synced: {}", sum(|row| row.litter));
    println!("crashes right after a mount, beside those: {}", sum(|row| row.doubled));
    println!("canaries found: {}", sum(|row| row.canaries));
    ensure!(sum(|row| row.canaries) > 0, "no canary was tried");
    println!("crash: {} crashes in {seconds} s, and nothing acknowledged was lost", sum(|row| row.crashes));
    Ok(())
}

/// A few cuts may by chance keep everything.
const CUTS_THAT_LOSE: u64 = 10;

fn judge_losses(counts: &[Counts]) -> Result<()> {
    let cuts = || counts.iter().filter(|row| row.mode == Mode::Cut);
    let (crashes, lost) =
        (cuts().map(|row| row.crashes).sum::<u64>(), cuts().map(|row| row.lost).sum::<u64>());
    ensure!(crashes < CUTS_THAT_LOSE || lost > 0, "the cuts have lost nothing, so they have shown nothing");
    Ok(())
}

#[cfg(test)]
mod tests;
