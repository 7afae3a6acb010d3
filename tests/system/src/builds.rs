//! Builds the programs of the gate's steps before the steps: the tests, and every program of ours. Clippy and the
//! documentation have steps of their own.
//!
//! The duration depends on earlier builds on this machine, and not on the tests, so it is timed separately. Chains
//! with target folders of their own (or halves of one) are built in parallel, because crates that wait for each other
//! leave processors idle. Every line here is repeated by a later step, which then has nothing to build.

use std::thread;

use anyhow::{Context, Result};
use support::needs;
use support::shell::Line;
use support::workspace::{self, TESTS};

use crate::accept::simulator;
use crate::{fuzz, shuttle, space};

/// Builds everything. Returns the first failure when all chains have ended.
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
        line.run().context("the programs of the gate cannot be built")
    })
}

/// Chains of commands. Different chains may run in parallel.
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

/// The output of several chains at once cannot be read, so only errors are shown.
fn quietly(chain: Vec<Line>) -> Vec<Line> {
    chain
        .into_iter()
        .map(|line| line.env("CARGO_NET_OFFLINE", "true").env("CARGO_TERM_QUIET", "true"))
        .collect()
}
