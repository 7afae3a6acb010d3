//! Runs all cases of one kind, and records them.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rt::sync::Mutex;
use rt::{Clock, SystemClock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use support::shell::Line;
use support::workspace;

/// A run of `polder-space`, which prints one row.
pub(super) trait Case: Copy + Send + 'static {
    type Row: Serialize + DeserializeOwned + Clone + Send + 'static;

    fn args(&self) -> Vec<String>;

    /// Whether this is the row of the case.
    fn is(&self, row: &Self::Row) -> bool;

    /// A short form of the row, for the progress report.
    fn brief(row: &Self::Row) -> String;
}

/// Options and their values, as a program takes them.
pub(super) fn arguments(options: &[(&str, &dyn Display)]) -> Vec<String> {
    options.iter().flat_map(|(option, value)| [(*option).to_owned(), value.to_string()]).collect()
}

/// The state that all runners share.
struct Shared<C: Case> {
    program: PathBuf,
    waiting: Mutex<Vec<C>>,
    done: Mutex<Done<C>>,
}

struct Done<C: Case> {
    rows: Vec<C::Row>,
    failed: Vec<String>,
    record: std::fs::File,
    left: usize,
    /// The commit of the runs.
    commit: String,
}

/// Runs the cases that are not in the record, one for each processor at a time, and adds each to the record as it
/// ends. Returns all rows, in the order of the cases.
pub(super) fn run<C: Case>(program: &Path, cases: &[C], record: &Path) -> Result<Vec<C::Row>> {
    let known: Vec<C::Row> = read(record)?;
    let missing = |case: &&C| !known.iter().any(|row| case.is(row));
    // Cases are taken from the end.
    let waiting: Vec<C> = cases.iter().filter(missing).rev().copied().collect();
    println!("{}: {} runs, of which {} are still to be done", record.display(), cases.len(), waiting.len());
    let append = std::fs::OpenOptions::new().create(true).append(true).open(record);
    let append = append.with_context(|| format!("cannot write {}", record.display()))?;
    let left = waiting.len();
    let commit = workspace::head_commit_and_changes()?;
    let done = Done { rows: known, failed: Vec::new(), record: append, left, commit };
    let shared = Shared { program: program.to_owned(), waiting: Mutex::new(waiting), done: Mutex::new(done) };
    let shared = Arc::new(shared);
    let runners: Vec<_> = (0..rt::thread::processors())
        .map(|number| {
            let shared = Arc::clone(&shared);
            rt::thread::spawn(&format!("space-{number}"), move || shared.run())
        })
        .collect::<std::io::Result<_>>()?;
    for runner in runners {
        runner.join().expect("a runner notes failures, and does not panic");
    }
    let done = shared.done.lock();
    if let Some(first) = done.failed.first() {
        bail!("{} runs failed; the first: {first}", done.failed.len());
    }
    let row_of = |case: &C| done.rows.iter().find(|row| case.is(row)).cloned();
    let row_of = |case: &C| row_of(case).with_context(|| format!("no row for {}", case.args().join(" ")));
    cases.iter().map(row_of).collect()
}

/// The rows of a record. None if there is no record.
fn read<R: DeserializeOwned>(record: &Path) -> Result<Vec<R>> {
    match std::fs::read_to_string(record) {
        Ok(text) => text
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", record.display())))
            .collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", record.display())),
    }
}

impl<C: Case> Shared<C> {
    fn run(&self) {
        loop {
            let Some(case) = self.waiting.lock().pop() else { return };
            let clock = SystemClock::new();
            let result = Line::program(&self.program).args(case.args()).output();
            let seconds = clock.monotonic_ns() as f64 / 1e9;
            self.done.lock().add(&case, result, seconds);
        }
    }
}

impl<C: Case> Done<C> {
    fn add(&mut self, case: &C, printed: Result<String>, seconds: f64) {
        self.left -= 1;
        let row = printed.and_then(|printed| {
            let mut row: serde_json::Value =
                serde_json::from_str(&printed).context("polder-space printed something else")?;
            row["commit"] = self.commit.as_str().into();
            let (line, row) = (row.to_string(), serde_json::from_value(row)?);
            writeln!(self.record, "{line}")?;
            Ok(row)
        });
        let args = case.args().join(" ");
        match row {
            Ok(row) => {
                println!("{args}: {} ({seconds:.0} s; {} left)", C::brief(&row), self.left);
                self.rows.push(row);
            }
            Err(error) => {
                println!("{args}: FAILED: {error:#}");
                self.failed.push(format!("{error:#}"));
            }
        }
    }
}
