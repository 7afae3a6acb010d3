//! Runs tests with mutants, several in parallel.
//!
//! All tests run once without a mutant, each in a process of its own. They must pass. Their duration is measured, and
//! the functions with mutants that they reach are recorded. A mutant is then tried only with the tests that reach its
//! function, because no other test can notice it: first the quick tests of its own package, then all others, the
//! shortest first. The first failure ends the trial.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use support::shell::Line;

use super::drawing::Mutant;
use super::outcomes::Outcome;
use super::together::{Program, Together};
use super::{ASKED, Package, trial};

/// The exit status of `timeout` if it had to end the program.
const ENDED_BY_TIMEOUT: i32 = 124;

/// The longest duration of a quick test.
const QUICK_MS: u64 = 1000;

/// One test with its measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Test {
    program: Program,
    name: String,
    ms: u64,
    /// The mutants whose functions it reaches.
    reached: BTreeSet<usize>,
}

/// All tests.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Tests {
    /// The shortest first.
    by_time: Vec<Test>,
}

/// The meaning of a test's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    NeverEnded,
}

impl Verdict {
    fn of(status: Option<i32>) -> Verdict {
        match status {
            Some(0) => Verdict::Passed,
            Some(ENDED_BY_TIMEOUT) => Verdict::NeverEnded,
            _ => Verdict::Failed,
        }
    }
}

impl Tests {
    /// Runs all tests without a mutant.
    pub(super) fn measure(together: &Together, folder: &Path) -> Result<Tests> {
        let mut tests = Vec::new();
        for program in &together.programs {
            tests.extend(listed(program)?);
        }
        ensure!(!tests.is_empty(), "the programs have no tests");
        let reached = folder.join("reached");
        fs::create_dir_all(&reached).context("cannot make a folder")?;
        let work = move |place: usize, test: &Test| measured(test, &reached.join(place.to_string()));
        let mut by_time = Vec::new();
        side_by_side(tests, work, |_, test| {
            by_time.push(test);
            Ok(())
        })?;
        by_time.sort_by_key(|test| test.ms);
        Ok(Tests { by_time })
    }

    /// Prints the number of tests.
    pub(super) fn say(&self) {
        for asked in ASKED {
            let tests = || self.by_time.iter().filter(|test| test.program.package == asked.package);
            let ms: u64 = tests().map(|test| test.ms).sum();
            println!(
                "{}: {} tests take {} s, one after the other",
                asked.package,
                tests().count(),
                ms / 1000
            );
        }
    }

    /// Tries mutants until the time is over, and passes on each outcome immediately.
    ///
    /// All mutants are tried with the quick tests of their package before any is tried with more. Only few need all
    /// tests, and these take nearly all of the time.
    pub(super) fn show(
        self,
        mutants: Vec<Mutant>,
        is_late: impl Fn() -> bool + Send + Sync + 'static,
        mut each: impl FnMut(&Mutant, Outcome) -> Result<()>,
    ) -> Result<()> {
        let (tests, is_late) = (Arc::new(self), Arc::new(is_late));
        let (quick, late) = (Arc::clone(&tests), Arc::clone(&is_late));
        let mut left = Vec::new();
        let work = move |_, mutant: &Mutant| if late() { Ok(None) } else { quick.of(mutant, Pass::Quick) };
        side_by_side(mutants, work, |mutant, outcome| match outcome {
            Some(outcome) => each(mutant, outcome),
            None => {
                left.push(mutant.clone());
                Ok(())
            }
        })?;
        println!("{} were not noticed by quick tests", left.len());
        let work = move |_, mutant: &Mutant| {
            if is_late() { Ok(None) } else { Ok(tests.of(mutant, Pass::Rest)?.or(Some(Outcome::Missed))) }
        };
        side_by_side(left, work, |mutant, outcome| outcome.map_or(Ok(()), |outcome| each(mutant, outcome)))
    }

    /// The outcome of a mutant. `None` if no test of this pass has noticed it.
    fn of(&self, mutant: &Mutant, pass: Pass) -> Result<Option<Outcome>> {
        let asked = Package::of(mutant)?.asked();
        let number = mutant.place.number;
        for test in self.by_time.iter().filter(|test| test.reached.contains(&number)) {
            let by = &test.program.package;
            if !asked.iter().any(|asked| asked.package == by) || Pass::of(test, mutant) != pass {
                continue;
            }
            match test.shown(number)? {
                Verdict::Passed => {}
                Verdict::Failed => return Ok(Some(Outcome::Caught { by: by.clone() })),
                Verdict::NeverEnded => return Ok(Some(Outcome::TimedOut { by: by.clone() })),
            }
        }
        Ok(None)
    }
}

/// Which tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Tests of the mutant's package that take at most [`QUICK_MS`].
    Quick,
    /// All others.
    Rest,
}

impl Pass {
    fn of(test: &Test, mutant: &Mutant) -> Pass {
        let is_quick = test.program.package == mutant.package && test.ms <= QUICK_MS;
        if is_quick { Pass::Quick } else { Pass::Rest }
    }
}

impl Test {
    /// Runs the test with a mutant. If it does not end in time, and now takes longer without the mutant as well, the
    /// machine is busy, and the test gets that much more time.
    fn shown(&self, number: usize) -> Result<Verdict> {
        let verdict = self.shown_for(number, self.ms)?;
        if verdict != Verdict::NeverEnded {
            return Ok(verdict);
        }
        let clock = SystemClock::new();
        let started = clock.monotonic_ns();
        status(&self.line())?;
        let now_ms = (clock.monotonic_ns() - started) / 1_000_000;
        if now_ms <= 2 * self.ms { Ok(verdict) } else { self.shown_for(number, now_ms) }
    }

    fn shown_for(&self, number: usize, ms: u64) -> Result<Verdict> {
        let seconds = trial::seconds_max(ms.div_ceil(1000)).to_string();
        let line = Line::new("timeout --kill-after 5").arg(seconds).arg(&self.program.path);
        let line = line.args(["--exact", &self.name]).env("POLDER_MUTANT", &number.to_string());
        Ok(Verdict::of(status(&line.in_dir(&self.program.dir))?))
    }

    fn line(&self) -> Line {
        Line::program(&self.program.path).args(["--exact", &self.name]).in_dir(&self.program.dir)
    }
}

/// The tests of a program that may run, without measurements.
fn listed(program: &Program) -> Result<Vec<Test>> {
    let list = Line::program(&program.path).args(["--list", "--format", "terse"]).in_dir(&program.dir);
    let list = list.output()?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let asked = ASKED.iter().find(|asked| asked.package == program.package);
    let asked = asked.context("a program of a package that is not asked")?;
    let names = names.filter(|name| asked.has(name));
    Ok(names
        .map(|name| Test { program: program.clone(), name: name.to_owned(), ms: 0, reached: BTreeSet::new() })
        .collect())
}

/// Runs a test without a mutant.
fn measured(test: &Test, reached: &Path) -> Result<Test> {
    if reached.exists() {
        fs::remove_file(reached).context("cannot remove the file of an earlier run")?;
    }
    let line = test.line().env("POLDER_MUTANTS_REACHED", &reached.to_string_lossy());
    let clock = SystemClock::new();
    let started = clock.monotonic_ns();
    let passes = Verdict::of(status(&line)?) == Verdict::Passed;
    ensure!(passes, "`{line}` fails without a mistake: repair that first");
    let ms = (clock.monotonic_ns() - started) / 1_000_000;
    let text = fs::read_to_string(reached).unwrap_or_default();
    let reached = text.lines().map(str::parse).collect::<Result<_, _>>().context("no number of a mutant")?;
    Ok(Test { ms, reached, ..test.clone() })
}

/// Runs a program and returns its exit status. Its output may be endless.
fn status(line: &Line) -> Result<Option<i32>> {
    let mut child = line.start(Stdio::null(), Stdio::null(), Stdio::null())?;
    Ok(child.wait().with_context(|| format!("cannot wait for `{line}`"))?.code())
}

/// Does the work on all items, and passes on each result immediately. Twice as many run at a time as there are
/// processors, because some tests wait.
fn side_by_side<T: Send + Sync + 'static, R: Send + 'static>(
    items: Vec<T>,
    work: impl Fn(usize, &T) -> Result<R> + Send + Sync + 'static,
    mut each: impl FnMut(&T, R) -> Result<()>,
) -> Result<()> {
    let (items, work, next) = (Arc::new(items), Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let (results, done) = mpsc::channel();
    for _ in 0..2 * rt::thread::processors() {
        let (items, work, next, results) = (items.clone(), work.clone(), next.clone(), results.clone());
        rt::thread::spawn("tests", move || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(place) else { return };
                if results.send((place, work(place, item))).is_err() {
                    return;
                }
            }
        })?;
    }
    drop(results);
    let mut of = 0;
    for (place, result) in done {
        each(&items[place], result?)?;
        of += 1;
    }
    ensure!(of == items.len(), "a thread that ran tests has panicked");
    Ok(())
}

#[cfg(test)]
mod tests;
