//! The stressors of `stress-ng` for file systems, one after the other, on Polder and on an ext4 for comparison.
//!
//! A stressor that does not pass on Polder must not pass on ext4 either, and must report there everything that it
//! reports on Polder, except for those of [`LEFT_OUT`]. A stressor that was left out on either, by stress-ng itself
//! or because it could not run there, is reported with the reason.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use support::needs;
use support::shell::Line;

use super::Counts;
use super::running::at_most;
use crate::accept::Run;
use crate::accept::ext4::Ext4;
use crate::accept::volume::Volume;

const VOLUME: &str = "1G";
const EXT4_BYTES: u64 = 1 << 30;
/// The stressors of the quick form.
const FEW: [&str; 5] = ["copy-file", "fallocate", "locka", "rename", "xattr"];
const WORKERS: &str = "2";
/// Stressors that pass on ext4 and do not run on a mount, and why.
const LEFT_OUT: [(&str, &str); 1] =
    [("fiemap", "the kernel does not pass FS_IOC_FIEMAP on to a FUSE server")];
/// How long a stressor runs, and its time limit.
const SECONDS: [(&str, u64); 2] = [("1s", 60), ("4s", 120)];
/// The exit status of stress-ng if it could not try.
const NO_RESOURCE: i32 = 3;
const NOT_IMPLEMENTED: i32 = 4;

pub(super) fn run(run: &Run, place: &Path) -> Result<(String, Counts)> {
    needs::require(&[needs::EXT4])?;
    let volume = Volume::make(&["--size", VOLUME], &[])?;
    volume.tell_if_failed(compare(&volume, run, place))
}

fn compare(volume: &Volume, run: &Run, place: &Path) -> Result<(String, Counts)> {
    let ext4 = Ext4::mount(place, EXT4_BYTES)?;
    volume.mount()?;
    let geometry = volume.geometry()?;
    let stressors = if run.quick { FEW.map(str::to_owned).to_vec() } else { all()? };
    let (mut passed, mut passed_there, mut worse) = (0, 0, Vec::new());
    for name in &stressors {
        let theirs = stress(name, &ext4.dir, run.quick)?;
        let ours = stress(name, &volume.dir(), run.quick)?;
        for (on, outcome) in [("ext4", &theirs), ("Polder", &ours)] {
            match outcome {
                Outcome::Passed => {}
                Outcome::LeftOut(why) => println!("  {name}: left out on {on}: {why}"),
                Outcome::Failed(why) => println!("  {name}: failed on {on}:\n{why}"),
            }
        }
        passed += u64::from(ours == Outcome::Passed);
        passed_there += u64::from(theirs == Outcome::Passed);
        if is_worse(name, &ours, &theirs) {
            worse.push(name.as_str());
        }
    }
    ensure!(worse.is_empty(), "worse on Polder than on ext4: {}", worse.join(", "));
    volume.unmount()?;
    volume.check()?;
    let counts = vec![
        ("stressors tried on both", stressors.len() as u64),
        ("stressors passed on Polder", passed),
        ("stressors passed on ext4", passed_there),
    ];
    Ok((geometry, counts))
}

/// The names of all stressors of file systems: `class 'filesystem' stressors: access …`.
fn all() -> Result<Vec<String>> {
    let printed = Line::new("stress-ng --class filesystem?").verdict()?.1;
    let names = printed.lines().find_map(|line| line.strip_prefix("class 'filesystem' stressors: "));
    let names = names.with_context(|| format!("stress-ng lists no stressors: {printed}"))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// The result of a stressor.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// With its reason.
    LeftOut(String),
    /// With its output.
    Failed(String),
}

/// Whether a stressor shows a defect of Polder.
fn is_worse(name: &str, ours: &Outcome, theirs: &Outcome) -> bool {
    match (ours, theirs) {
        (Outcome::Passed, _) => false,
        (Outcome::Failed(ours), Outcome::Failed(theirs)) => {
            let (ours, theirs) = (complaints(ours), complaints(theirs));
            // A stressor without a complaint has not ended, or not properly.
            ours.is_empty() && !theirs.is_empty() || !ours.is_subset(&theirs)
        }
        (Outcome::Failed(_), _) => true,
        (Outcome::LeftOut(_), Outcome::Passed) => !LEFT_OUT.iter().any(|(known, _)| *known == name),
        (Outcome::LeftOut(_), _) => false,
    }
}

/// Its complaints, without numbers: `stress-ng: fail:  [77] link: …`.
fn complaints(printed: &str) -> BTreeSet<String> {
    let complaining = printed.lines().filter_map(|line| line.split_once("fail:")).map(|(_, what)| what);
    let what = complaining.map(|what| what.rsplit("] ").next().unwrap_or(what));
    what.map(|what| what.chars().filter(|character| !character.is_ascii_digit()).collect()).collect()
}

fn stress(name: &str, dir: &Path, quick: bool) -> Result<Outcome> {
    let (seconds, seconds_max) = SECONDS[usize::from(!quick)];
    let folder = dir.join("stress");
    std::fs::create_dir(&folder)?;
    let line = at_most(seconds_max, "stress-ng --verify --temp-path").arg(&folder);
    let line = line.args(["--timeout", seconds]).args([&format!("--{name}"), WORKERS]);
    let (status, printed) = line.outcome()?;
    std::fs::remove_dir_all(&folder).with_context(|| format!("the files of {name} cannot be removed"))?;
    Ok(judge(status, &printed))
}

/// The result that follows from the exit status and the output.
fn judge(status: Option<i32>, printed: &str) -> Outcome {
    let line_with = |words: &[&str]| {
        let line = printed.lines().find(|line| words.iter().any(|word| line.contains(word)));
        line.map(|line| line.rsplit("] ").next().unwrap_or(line).trim().to_owned())
    };
    let left_out =
        line_with(&["skipping stress", "disabled '", "out of system resources", "not implemented"]);
    match (status, left_out) {
        (Some(0), None) => Outcome::Passed,
        (Some(0 | NO_RESOURCE | NOT_IMPLEMENTED), Some(why)) => Outcome::LeftOut(why),
        // It ran nothing, and reports that this was because it is dangerous.
        (Some(1), Some(why)) if why.starts_with("disabled") => Outcome::LeftOut(why),
        _ => Outcome::Failed(format!("status {status:?}\n{printed}")),
    }
}

#[cfg(test)]
mod tests;
