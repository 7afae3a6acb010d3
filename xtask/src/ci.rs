//! The whole gate: one command, the same for people and machines.
//!
//! Set-up comes first and is the only step that uses the network: all later ones run with cargo's
//! network access switched off. The gate stops at the first failure and prints the command that
//! repeats it. The system tests say which of their suites belong to the gate ([`LISTED`]): each is a step.
//!
//! Each step is timed, because a gate that grows slow is a gate that is gone around: if all steps together take longer
//! than [`SECONDS_MAX`], the gate is closed as well. Set-up does not count, nor does what only compiles, which has a
//! limit of its own: they depend on what the machine has had before.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use rt::{Clock, SystemClock};
use support::needs;
use support::shell::Line;
use support::workspace::TESTS;

use crate::setup;

/// What all steps but set-up and those that only compile may take together, on the machine of two cores that the gate is
/// made for.
const SECONDS_MAX: f64 = 1200.0;
/// What compiling may take where nothing has been compiled before, so that all of it is done within 75 minutes. The client
/// of object stores, with about 100 crates, is compiled in three ways.
const COMPILE_SECONDS_MAX: f64 = 2700.0;
/// The step whose time depends on the network, and which does nothing when it was done before.
const SET_UP: &str = "set-up";
/// The steps that only compile. They do next to nothing where that has been done before: clippy and the documentation
/// compile all libraries in ways of their own.
const COMPILING: [&str; 4] = [CLIPPY, CLIPPY_OF_SHUTTLE, BUILD, DOCS];
const CLIPPY: &str = "clippy";
const CLIPPY_OF_SHUTTLE: &str = "clippy of Shuttle";
const BUILD: &str = "build";
const DOCS: &str = "docs";
/// The suite that needs a nightly compiler, and how the names of those begin that need a guest.
const FUZZ: &str = "fuzz";
const GUESTS: &str = "vm/";
/// What prints the suites of the gate, in each line a name, a tab and the command.
const LISTED: &str = "cargo system list --gate";

/// One step of the gate.
struct Step {
    name: String,
    /// What a person types to do this step alone.
    repeat: Line,
    work: Work,
}

/// How a step is carried out.
enum Work {
    /// By running its command.
    Run,
    /// By running its command, which prints cargo's test results.
    Test,
    /// By making sure that the machine has what the others need.
    SetUp,
    /// By running its command, if this user can be expected to have what it needs: a guest, of which set-up has installed
    /// the machine and the kernel only as root.
    Guest,
    /// Needs a nightly compiler.
    Fuzz,
}

impl Work {
    fn of_suite(name: &str) -> Work {
        match name {
            FUZZ => Work::Fuzz,
            name if name.starts_with(GUESTS) => Work::Guest,
            _ => Work::Run,
        }
    }
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// Never for root, as who the machines run the gate that decides.
    Skipped,
}

/// A step that is over.
struct Done {
    name: String,
    seconds: f64,
    verdict: Verdict,
}

/// Tests that ran, as the test runners say.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Runs the gate; an error if any step fails.
pub(crate) fn run() -> Result<()> {
    let (mut done, mut tally) = (Vec::new(), Tally::default());
    carry_out(steps(), &mut done, &mut tally)?;
    // Before set-up and building there may be nothing that lists them.
    let listed = offline(Line::new(LISTED)).output().context("cannot list the suites of the gate")?;
    carry_out(suites(&listed)?, &mut done, &mut tally)?;
    println!("\n{}", table(&done));
    println!("tests: {} passed, {} failed", tally.passed, tally.failed);
    judge_time(&done)
}

/// Carries out steps; the first that fails closes the gate.
fn carry_out(steps: Vec<Step>, done: &mut Vec<Done>, tally: &mut Tally) -> Result<()> {
    let clock = SystemClock::new();
    for step in steps {
        println!("\n=== {} ===\n    {}", step.name, step.repeat);
        let started = clock.monotonic_ns();
        let result = step.carry_out(tally);
        let seconds = (clock.monotonic_ns() - started) as f64 / 1e9;
        let verdict = *result.as_ref().unwrap_or(&Verdict::Failed);
        println!("=== {}: {} in {seconds:.1} s ===", step.name, verdict.name());
        done.push(Done { name: step.name, seconds, verdict });
        if let Err(error) = result {
            println!("\n{}\n{error:#}", table(done));
            bail!("the gate is closed; repeat this step with:\n    {}", step.repeat);
        }
    }
    Ok(())
}

/// A gate that takes too long has not been passed, whatever its steps say.
fn judge_time(done: &[Done]) -> Result<()> {
    let sum = |counts: &dyn Fn(&str) -> bool| {
        done.iter().filter(|step| counts(&step.name)).map(|step| step.seconds).sum::<f64>()
    };
    let compiles = |name: &str| COMPILING.contains(&name);
    let (compiling, seconds) = (sum(&compiles), sum(&|name| !compiles(name) && name != SET_UP));
    if compiling > COMPILE_SECONDS_MAX {
        bail!(
            "compiling took {compiling:.0} s, and {COMPILE_SECONDS_MAX:.0} s are allowed: compile less, or less of it \
             anew, or run it where nothing else runs"
        );
    }
    if seconds > SECONDS_MAX {
        bail!(
            "the gate took {seconds:.0} s without set-up and compiling, and {SECONDS_MAX:.0} s are allowed: make the \
             slowest steps above shorter, or run it where nothing else runs"
        );
    }
    println!(
        "time: {seconds:.0} s of {SECONDS_MAX:.0} s, and {compiling:.0} s of {COMPILE_SECONDS_MAX:.0} s for compiling"
    );
    Ok(())
}

/// The steps before the suites, the quick ones first.
fn steps() -> Vec<Step> {
    vec![
        Step { name: SET_UP.to_owned(), repeat: Line::new("cargo xtask setup"), work: Work::SetUp },
        step("fmt", "cargo fmt --all --check"),
        step("tidy", "cargo xtask tidy"),
        step(CLIPPY, "cargo clippy --workspace --all-targets --locked -- -D warnings"),
        step(
            CLIPPY_OF_SHUTTLE,
            "cargo clippy --package polder-extent --features shuttle --all-targets --locked -- -D warnings",
        ),
        step(BUILD, "cargo system build"),
        Step { name: "tests".to_owned(), repeat: offline(Line::new(TESTS)), work: Work::Test },
        Step::new(
            DOCS,
            Line::new("cargo doc --workspace --no-deps --locked").env("RUSTDOCFLAGS", "-D warnings"),
        ),
        step("deny", "cargo deny --offline check licenses bans sources"),
        // Whether its links lead somewhere is a rule of `tidy`.
        step("book", "mdbook build"),
    ]
}

/// The steps that the system tests list.
fn suites(listed: &str) -> Result<Vec<Step>> {
    let suites: Option<Vec<Step>> = listed
        .lines()
        .map(|line| {
            let (name, words) = line.split_once('\t')?;
            Some(Step { work: Work::of_suite(name), ..step(name, words) })
        })
        .collect();
    let suites = suites.filter(|suites| !suites.is_empty());
    suites.with_context(|| format!("`{LISTED}` printed something that is no list of suites: {listed}"))
}

fn step(name: &str, words: &str) -> Step {
    Step::new(name, Line::new(words))
}

fn offline(line: Line) -> Line {
    line.env("CARGO_NET_OFFLINE", "true")
}

impl Step {
    fn new(name: &str, repeat: Line) -> Self {
        Step { name: name.to_owned(), repeat: offline(repeat), work: Work::Run }
    }

    fn carry_out(&self, tally: &mut Tally) -> Result<Verdict> {
        match self.work {
            Work::Run => self.repeat.run()?,
            Work::SetUp => setup::run()?,
            Work::Test => {
                self.repeat.run_watched(|line| tally.add(line))?;
                tally.judge()?;
            }
            Work::Guest => return self.in_guest(needs::is_root()?),
            Work::Fuzz => return self.fuzz(needs::has_nightly() || needs::is_root()?),
        }
        Ok(Verdict::Passed)
    }

    fn in_guest(&self, is_root: bool) -> Result<Verdict> {
        if !is_root {
            println!(
                "Skipped: set-up gets the emulated machine and its kernel only as root, which you are not. With `{}` \
                 you get them yourself.",
                self.repeat
            );
            return Ok(Verdict::Skipped);
        }
        self.repeat.run().map(|()| Verdict::Passed)
    }

    /// Root has the compiler by now, or set-up would have failed.
    fn fuzz(&self, is_possible: bool) -> Result<Verdict> {
        if !is_possible {
            println!("Skipped: there is no nightly compiler; to have it, run: {}", needs::nightly_line());
            return Ok(Verdict::Skipped);
        }
        self.repeat.run().map(|()| Verdict::Passed)
    }
}

impl Tally {
    /// Adds what one line says, if it is the closing line of a test binary:
    /// `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = counts.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1].trim_end_matches(';') {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// A run that tested nothing, or passed something over, has not passed.
    fn judge(&self) -> Result<()> {
        if self.passed == 0 {
            bail!("no test ran");
        }
        if self.ignored > 0 {
            bail!("{} tests were passed over: run them here or in `cargo system accept`", self.ignored);
        }
        Ok(())
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        }
    }
}

/// The closing table: each step, how it went, how long it took, and the sum.
fn table(done: &[Done]) -> String {
    let mut text = String::from("step                    result   seconds\n");
    for step in done {
        writeln!(text, "{:<22}  {:<7}  {:>7.1}", step.name, step.verdict.name(), step.seconds)
            .expect("a String takes everything");
    }
    let total: f64 = done.iter().map(|step| step.seconds).sum();
    let failed = done.iter().any(|step| step.verdict == Verdict::Failed);
    let all = if failed { Verdict::Failed } else { Verdict::Passed };
    write!(text, "{:<22}  {:<7}  {total:>7.1}", "total", all.name()).expect("a String takes everything");
    text
}

#[cfg(test)]
mod tests;
