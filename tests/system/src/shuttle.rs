//! `cargo system shuttle`: interleavings of threads that Shuttle chooses (docs/testing.md).
//!
//! Locks must be Shuttle's for that, so nothing of the usual build can be used.

use anyhow::{Context, Result, ensure};
use support::shell::Line;

/// `cargo system shuttle --times N`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Factor for the usual number of schedules.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,
    /// The seed of the schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only tests with this in their names.
    #[arg(long)]
    test: Option<String>,
}

/// The tests of the locks themselves, of calls of the background, and of interactions between threads.
const LOCKS: &str = "cargo test --package polder-rt --lib --features shuttle --locked";
const CALLS: &str = "cargo test --package polder-extent --lib --features shuttle --locked";
const THREADS: &str = "cargo test --package polder-extent --features shuttle --test shuttle --locked";

/// The commands that build them.
pub(crate) fn build_lines() -> Vec<Line> {
    [LOCKS, CALLS, THREADS].map(|tests| Line::new(tests).arg("--no-run")).to_vec()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    Line::new(LOCKS).run().context("the locks themselves are wrong")?;
    let mut tests = 0;
    Line::new(CALLS)
        .args(["--", "shuttled::"])
        .run_watched(|line| tests += u64::from(line.starts_with("test ") && line.ends_with(" ok")))
        .context("a call of the background is lost")?;
    ensure!(tests > 0, "no test of calls was run");
    let line = Line::new(THREADS)
        .args(["--", "--show-output"])
        .args(args.test.as_deref())
        .env("POLDER_SHUTTLE_TIMES", &args.times.to_string())
        .env("POLDER_SHUTTLE_SEED", &args.seed.to_string());
    println!("    {line}");
    line.run()
}
