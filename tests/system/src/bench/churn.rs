//! Whole files that are rewritten on a file system that is three quarters full, and what that does to later reads.
//!
//! The files are read cold after the rewrites. Beside them, the same files are read that were just copied to another
//! volume.

use anyhow::{Context, Result};
use support::shell::Line;

use super::place::{Before, Place, Set};
use super::rows::Against;
use super::runner::Runner;
use super::scale::{Churn, Scale};
use super::step::{Calls, Step};

const FOLDER: &str = "churned";

/// Measures in places of its own.
pub(super) fn run(runner: &mut Runner, scale: &Scale, host: &std::path::Path) -> Result<()> {
    let churn = &scale.churn;
    let set = Set::make(churn.bytes, host)?;
    let fill = client("churn", "fill", churn.files).unmeasured();
    set.in_turn(0).try_for_each(|place| runner.measure(&fill, place, 0, false))?;
    let rewrite = client("churn", "churn", churn.rewrites);
    let read = client("read-all", "read-all", churn.files).before(Before::Cold);
    for round in 0..runner.rounds {
        set.in_turn(round).try_for_each(|place| runner.measure(&rewrite, place, round, false))?;
        set.in_turn(round).try_for_each(|place| runner.measure(&read, place, round, false))?;
    }
    for step in [&rewrite, &read] {
        set.ours().try_for_each(|place| runner.count(step, place))?;
    }
    compare(runner, churn, &set)?;
    set.end()
}

/// Reads what was rewritten and fresh copies of it, in turn. Where blocks lie does not depend on the transport, so the
/// first one is enough.
fn compare(runner: &mut Runner, churn: &Churn, set: &Set) -> Result<()> {
    let read = client("read-churned", "read-all", churn.files).before(Before::Cold);
    let churned = set.ours().next().context("there is a transport")?;
    let fresh = Place::polder(Against::Fresh.places()[0], &[], churn.bytes)?;
    Line::new("cp -r").arg(churned.dir().join(FOLDER)).arg(fresh.dir()).run().context("copying")?;
    for round in 0..runner.rounds {
        for place in [churned, &fresh] {
            runner.measure(&read, place, round, false)?;
        }
    }
    fresh.end()
}

fn client(row: &'static str, kind: &'static str, operations: u64) -> Step {
    let calls = Calls { kind, folder: FOLDER, operations: Some(operations), threads: 1, bytes: 0 };
    Step::client(row, operations, calls)
}
