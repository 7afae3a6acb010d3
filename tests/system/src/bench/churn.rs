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
    for round in 0..runner.rounds {
        let rewrite = client("churn", "churn", churn.rewrites);
        set.in_turn(round).try_for_each(|place| runner.measure(&rewrite, place, round, false))?;
        let read = client("read-all", "read-all", churn.files).before(Before::Cold);
        set.in_turn(round).try_for_each(|place| runner.measure(&read, place, round, false))?;
    }
    compare(runner, churn, &set)?;
    set.end()
}

/// Reads what was rewritten and fresh copies of it, in turn.
fn compare(runner: &mut Runner, churn: &Churn, set: &Set) -> Result<()> {
    let read = client("read-churned", "read-all", churn.files).before(Before::Cold);
    let &[name] = Against::Fresh.places() else { unreachable!("it is one place") };
    for place in set.ours() {
        let fresh = Place::polder(name, &[], churn.bytes)?;
        Line::new("cp -r").arg(place.dir().join(FOLDER)).arg(fresh.dir()).run().context("copying")?;
        for round in 0..runner.rounds {
            for place in [place, &fresh] {
                runner.measure(&read, place, round, false)?;
            }
        }
        fresh.end()?;
    }
    Ok(())
}

fn client(row: &'static str, kind: &'static str, operations: u64) -> Step {
    let calls = Calls { kind, folder: FOLDER, operations: Some(operations), threads: 1, bytes: 0 };
    Step::client(row, operations, calls)
}
