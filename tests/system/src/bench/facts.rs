//! Figures without a peer: requests per file, bytes in the log, an idle mount, and the size of the program.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt::thread::Stop;
use support::shell::Line;
use support::workspace;

use super::cost;
use super::figures::{Figures, Key, REQUESTS};
use super::place::{Before, Place, Transport};
use super::runner::Runner;
use super::scale::Scale;
use super::step::{Calls, Client, Step};
use crate::accept::volume::{Volume, number};
use crate::measured::Measured;

/// Files whose contents are stored with their attributes.
const INLINE_BYTES: u64 = 700;
/// The counters of `polder stats` that are compared.
const LOG_BYTES: &str = "/written/device_bytes_by_cause/journal";
const TRANSACTIONS: &str = "/metadata/commits";
/// The operations of `polder-sim amplification`.
const AMPLIFIED: [&str; 3] = ["create", "overwrite", "unlink"];

/// Derives requests per file and folder from rows that count requests by these.
pub(super) fn requests(figures: &mut Figures) {
    let place = Transport::ALL[0].name;
    for (fact, row) in [("requests-untar", "untar"), ("requests-rm", "rm"), ("requests-status", "git-status")]
    {
        if let Some(each) = figures.median(&Key::of(row, place, false), REQUESTS) {
            figures.add_fact(fact, each);
        }
    }
}

/// Counts bytes of the log for each operation.
pub(super) fn log(runner: &mut Runner, scale: &Scale, place: &Place) -> Result<()> {
    let step = |kind| {
        let calls =
            Calls { kind, folder: "logged", operations: Some(scale.logged), threads: 1, bytes: INLINE_BYTES };
        Step::client("create", scale.logged, calls).before(Before::Settled)
    };
    counted(&runner.client, &step("create"), place)?;
    let [bytes, _] = counted(&runner.client, &step("chmod"), place)?;
    runner.figures.add_fact("log-chmod", bytes);
    let [bytes, transactions] = counted(&runner.client, &step("unlink"), place)?;
    runner.figures.add_fact("log-unlink", bytes);
    runner.figures.add_fact("log-unlink-transactions", transactions);
    place.clear()
}

/// Log bytes and transactions for each operation of a step.
fn counted(client: &Client, step: &Step, place: &Place) -> Result<[f64; 2]> {
    let counts = || -> Result<[u64; 2]> {
        place.settle()?;
        let stats = place.stats()?;
        Ok([number(&stats, LOG_BYTES)?, number(&stats, TRANSACTIONS)?])
    };
    let before = counts()?;
    client.measure(step, place, false)?;
    let after = counts()?;
    Ok([0, 1].map(|at| (after[at] - before[at]) as f64 / step.operations as f64))
}

/// Watches an idle mount.
pub(super) fn idle(figures: &mut Figures, scale: &Scale, place: &Place) -> Result<()> {
    let (calm, watched) = scale.idle_seconds;
    let pid = place.daemon()?.context("a mount of ours has a daemon")?;
    let written = || number(&place.stats()?, "/written/device_bytes");
    let wait = |seconds: u64| Stop::default().wait(Duration::from_secs(seconds));
    place.settle()?;
    wait(calm);
    // To ask the daemon wakes it, so that is done outside of the watched time.
    let bytes = written()?;
    wait(1);
    let sleeps = cost::sleeps(pid)?;
    wait(watched);
    let slept = cost::sleeps(pid)? - sleeps;
    let bytes = written()? - bytes;
    figures.add_fact("idle-wakeups", slept as f64 / watched as f64);
    figures.add_fact("idle-bytes", bytes as f64 / (1 + watched) as f64);
    Ok(())
}

/// The size of the release program without symbols.
pub(super) fn binary(runner: &mut Runner) -> Result<()> {
    let polder = workspace::build_polder()?;
    let stripped = runner.scratch.path().join("stripped");
    let line = Line::new("strip -o").arg(&stripped).arg(polder);
    let (is_stripped, printed) = match line.verdict() {
        Ok(verdict) => verdict,
        Err(error) => (false, format!("{error:#}")),
    };
    if !is_stripped {
        println!("binary is skipped: `{line}`: {}", printed.trim());
        return Ok(());
    }
    let bytes = std::fs::metadata(&stripped)?.len();
    runner.figures.add_fact("binary", bytes as f64 / 1e6);
    Ok(())
}

/// Metadata written for each operation on a tree that is much larger than the cache.
pub(super) fn metadata(runner: &mut Runner, scale: &Scale) -> Result<()> {
    let volume = Volume::make(&["--size", "1G"], &[])?;
    let mut measured = Measured::default();
    let line = runner.client.simulator("amplification").arg(volume.file()).args(scale.amplification);
    line.run_watched(|line| measured.read(line))?;
    volume.check()?;
    for operation in AMPLIFIED {
        let bytes = measured.median(&format!("metadata {operation}"))?;
        ensure!(bytes > 0.0, "{operation} wrote no metadata");
        runner.figures.add_fact(&format!("metadata-{operation}"), bytes / 1024.0);
    }
    Ok(())
}
