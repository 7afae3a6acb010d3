//! What the gate's steps run, built before them: the tests, and every program of ours. What clippy and the documentation
//! make of the sources is their own work.
//!
//! How long that takes depends on what this machine has built before, and not on how much is tested. So it is timed
//! apart from the steps. Chains that have target folders, or halves of one, of their own are built at the same time:
//! crates that wait for each other leave processors idle. Every line here is one that a later step repeats and then has
//! nothing to do for.

use std::thread;

use anyhow::{Context, Result};
use support::needs;
use support::shell::Line;
use support::workspace::{self, TESTS};

use crate::accept::simulator;
use crate::{fuzz, shuttle, space};

/// Builds all of it; the first failure, when all have ended.
pub(crate) fn run() -> Result<()> {
    let chains = chains(needs::has_nightly())?;
    let ended: Vec<Result<()>> = thread::scope(|scope| {
        let running: Vec<_> = chains.iter().map(|chain| scope.spawn(|| in_turn(chain))).collect();
        running.into_iter().map(|chain| chain.join().expect("a command does not panic")).collect()
    });
    ended.into_iter().collect()
}

fn in_turn(chain: &[Line]) -> Result<()> {
    chain.iter().try_for_each(|line| {
        println!("    {line}");
        line.run().context("what the gate runs cannot be built")
    })
}

/// Commands, each chain of which may run beside the others.
fn chains(has_nightly: bool) -> Result<Vec<Vec<Line>>> {
    let tests = Line::new(TESTS).arg("--no-run");
    let with_bugs = Line::new("cargo build --package polder-sim --features planted --locked");
    let for_tests = [tests, with_bugs].into_iter().chain(shuttle::build_lines());
    let released = [workspace::polder_line(), simulator::build_line(), space::build_line()];
    let mut chains = vec![for_tests.collect(), released.to_vec()];
    if has_nightly {
        chains.push(vec![fuzz::quick_build_line()?]);
    }
    Ok(chains.into_iter().map(quietly).collect())
}

/// The output of several chains at once cannot be read, unless it is an error.
fn quietly(chain: Vec<Line>) -> Vec<Line> {
    chain
        .into_iter()
        .map(|line| line.env("CARGO_NET_OFFLINE", "true").env("CARGO_TERM_QUIET", "true"))
        .collect()
}
