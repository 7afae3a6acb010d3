//! `cargo system instructions`: how many instructions the most frequent operations take, compared with the recorded
//! counts.
//!
//! Valgrind runs `polder-sim counted` and counts. Other load does not change the counts: they differ by a few
//! millionths from run to run. So a growth that no clock could show fails here. Only the library is counted, with a
//! volume in memory: Valgrind 3.19 cannot run a mount, whose clock reads the kernel's time without a system call.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use support::needs;
use support::shell::Line;
use support::workspace;

use crate::accept::simulator;

/// `cargo system instructions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Record the counts, after a change that is worth its instructions or saves some.
    #[arg(long)]
    record: bool,
}

/// The recorded counts.
const FILE: &str = "docs/results/instructions.csv";
const HEADING: &str = "operation,instructions";
/// The function that performs one operation many times.
const COUNTED: &str = "polder_sim::speed::counted::perform";
/// The allocator keeps no lists of small free pieces: it merges them when a large piece is returned, and where that
/// happens depends on the length of the path of the program (606, 666 or 731 instructions for an entry of a directory).
const ALLOCATOR: &str = "glibc.malloc.mxfast=0";
/// An operation may take this many times its recorded instructions. It may not take as much less either: what was saved
/// and is not recorded could be spent again unnoticed.
const GROWTH_MAX: f64 = 1.05;

/// Instructions by operation.
type Counts = BTreeMap<String, u64>;

pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require([&needs::VALGRIND])?;
    simulator::build_line().run()?;
    let file = workspace::root().join(FILE);
    let counts = count(&workspace::target_dir()?.join("release/polder-sim"))?;
    if args.record {
        std::fs::create_dir_all(file.parent().expect("it is in a folder"))?;
        return std::fs::write(&file, written(&counts)).with_context(|| file.display().to_string());
    }
    let recorded = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let (table, differ) = compared(&counts, &read(&recorded)?)?;
    print!("{table}");
    ensure!(
        differ.is_empty(),
        "{} not within {} of the recorded instructions: `callgrind_annotate` shows where more are spent; if they are \
         worth it, or fewer are, record them: cargo system instructions --record",
        differ.join(" and "),
        GROWTH_MAX - 1.0
    );
    Ok(())
}

/// Has Valgrind count the instructions of each operation.
fn count(program: &Path) -> Result<Counts> {
    let folder = tempfile::tempdir()?;
    let counts = folder.path().join("counts");
    let printed = Line::new("valgrind --tool=callgrind --quiet --collect-atstart=no")
        .args([format!("--toggle-collect={COUNTED}"), format!("--dump-after={COUNTED}")])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(program)
        .arg("counted")
        // The user's settings for Valgrind would change the counts.
        .without_env("VALGRIND_OPTS")
        .env("GLIBC_TUNABLES", ALLOCATOR)
        .output()?;
    let performed: Vec<(&str, u64)> = printed.lines().filter_map(performed).collect();
    ensure!(!performed.is_empty(), "no operation was performed: {printed}");
    // One file for each call of the function.
    let counted = (1..).zip(performed).map(|(number, (operation, times))| {
        let path = counts.with_extension(number.to_string());
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("Valgrind did not find {COUNTED} in {}", program.display()))?;
        ensure!(times > 0, "{operation} was not performed");
        let all = total(&text).filter(|&all| all >= times).context("Valgrind counted nothing")?;
        Ok((operation.to_owned(), all / times))
    });
    counted.collect()
}

/// A line such as `measured create: 1000`.
fn performed(line: &str) -> Option<(&str, u64)> {
    let (operation, times) = line.strip_prefix("measured ")?.split_once(": ")?;
    Some((operation, times.parse().ok()?))
}

/// The sum in a file of Callgrind.
fn total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("summary: "))?.trim().parse().ok()
}

fn written(counts: &Counts) -> String {
    let mut text = format!("{HEADING}\n");
    for (operation, count) in counts {
        writeln!(text, "{operation},{count}").expect("a string takes everything");
    }
    text
}

fn read(text: &str) -> Result<Counts> {
    let mut lines = text.lines();
    ensure!(lines.next() == Some(HEADING), "{FILE} does not begin with {HEADING}");
    lines
        .map(|line| {
            let (operation, count) = line.split_once(',').with_context(|| format!("`{line}` in {FILE}"))?;
            Ok((operation.to_owned(), count.parse().with_context(|| format!("`{line}` in {FILE}"))?))
        })
        .collect()
}

/// A table of all operations, and those that differ too much.
fn compared(counts: &Counts, recorded: &Counts) -> Result<(String, Vec<String>)> {
    ensure!(
        counts.keys().eq(recorded.keys()),
        "other operations are recorded than were performed: cargo system instructions --record"
    );
    let (mut table, mut differ) = (String::new(), Vec::new());
    for ((operation, &count), &before) in counts.iter().zip(recorded.values()) {
        let times = count as f64 / before as f64;
        writeln!(table, "{operation:<12} {count:>8} instructions, {times:.3} times the recorded ones")
            .expect("a string takes everything");
        if !(1.0 / GROWTH_MAX..=GROWTH_MAX).contains(&times) {
            differ.push(format!("{operation} ({times:.2})"));
        }
    }
    Ok((table, differ))
}

#[cfg(test)]
mod tests;
