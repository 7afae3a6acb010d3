//! Shows that the harnesses notice bugs. One bug at a time is planted (`rt::is_planted`), and some harness must fail.
//! The number of noticed bugs is the score of the harnesses.
//!
//! One build contains all bugs, in a target directory of its own, and each run selects one. The harnesses are tried
//! in turn until one notices the bug. First comes every scenario of `cuts`, each in a process of its own, so that a
//! crash of the process does not stop the others. The build without a selected bug must pass everything. Otherwise a
//! failure with a bug would prove nothing.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};

use crate::catalogue::{self, Entry};
use crate::report::Failure;

/// Factor for the number of schedules when a bug is planted. Some bugs need that many.
const SHUTTLE_TIMES: &str = "6";
/// The exit status of a program that does not know an option.
const UNKNOWN_OPTION: i32 = 2;

/// The origin of a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It removes an ordering rule of `docs/design.md`, section 9.
    Rule,
    /// It was chosen from the product's sources by an author who had not read the harnesses.
    Unseen,
    /// It was once a real bug, or resembles one. It was found by reading, and is planted to see which harnesses
    /// notice it.
    Found,
    /// It removes only a protection between threads, for the tests under Shuttle.
    Thread,
}

/// A planted bug, which a build with the feature `planted` can switch on.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// Its name in the source.
    pub name: &'static str,
    /// Where it comes from.
    pub origin: Origin,
}

const fn rule(name: &'static str) -> Bug {
    Bug { name, origin: Origin::Rule }
}

const fn unseen(name: &'static str) -> Bug {
    Bug { name, origin: Origin::Unseen }
}

const fn found(name: &'static str) -> Bug {
    Bug { name, origin: Origin::Found }
}

const fn thread(name: &'static str) -> Bug {
    Bug { name, origin: Origin::Thread }
}

/// All bugs.
pub const BUGS: &[Bug] = &[
    rule("break-data-before-record"),
    rule("break-flush-on-sync"),
    rule("break-follower"),
    rule("break-checkpoint-flush-before"),
    rule("break-checkpoint-flush-after"),
    rule("break-replay-from"),
    rule("break-reset-after-known-durable"),
    rule("break-metadata-reset-after-checkpoint"),
    rule("break-log-reset-after-checkpoint"),
    rule("break-successor-mark"),
    rule("break-flush-before-mark"),
    rule("break-recovery-flush"),
    rule("break-checkpoint-first"),
    rule("break-seal"),
    rule("break-seal-flush"),
    rule("break-verify-tail"),
    rule("break-gap"),
    rule("break-frozen"),
    rule("break-gc-recheck"),
    rule("break-zone-reference"),
    rule("break-delayed-fsync"),
    rule("break-delayed-lock"),
    unseen("break-delayed-read"),
    unseen("break-live-count"),
    unseen("break-tail-on-write"),
    unseen("break-tail-on-growth"),
    unseen("break-verify-last-block"),
    unseen("break-pending"),
    unseen("break-known-durable"),
    unseen("break-seal-limit"),
    unseen("break-zit-cut"),
    unseen("break-delta-cumulative"),
    unseen("break-clean-stale"),
    unseen("break-punch-tail"),
    unseen("break-orphan"),
    unseen("break-rename-target"),
    unseen("break-exchange-parent"),
    unseen("break-truncate-intent"),
    unseen("break-xattr-parts"),
    unseen("break-hash-collision"),
    found("break-mark-epoch"),
    found("break-role-taken"),
    found("break-open-deleted"),
    found("break-reference-count"),
    found("break-promise"),
    found("break-prepaid-freed"),
    found("break-prepaid-cut"),
    found("break-detached-orphan"),
    thread("break-read-node"),
    thread("break-lease-count"),
    thread("break-returned"),
];

/// For each harness that is a command, one bug that it must notice by itself. A harness that stops noticing its bug
/// has become blind.
pub const CANARIES: &[(Harness, &str)] = &[
    (Harness::Cuts, "break-data-before-record"),
    (Harness::Run, "break-follower"),
    (Harness::States, "break-flush-on-sync"),
    (Harness::Faults, "break-live-count"),
    (Harness::Flips, "break-verify-last-block"),
];

/// The parameters of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The target directory of the build.
    pub target: PathBuf,
    /// Whether to optimise the build. Not worth its time for few runs.
    pub release: bool,
    /// Only these harnesses; all if empty.
    pub harnesses: Vec<Harness>,
    /// The device shape for scenarios that are cut.
    pub shape: String,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The harnesses, the quickest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    /// Scenarios, cut at every command.
    Cuts,
    /// Everything at once: clients, background, faults, cuts and kills.
    Run,
    /// Small workloads, cut in every state.
    States,
    /// Scenarios on a failing device.
    Faults,
    /// A volume with flipped bits.
    Flips,
    /// Threads, in orders that Shuttle chooses. These tests are in a build of their own.
    Shuttle,
}

impl Harness {
    /// All harnesses, in the order in which they are tried.
    pub const ALL: [Harness; 6] =
        [Harness::Cuts, Harness::Run, Harness::States, Harness::Faults, Harness::Flips, Harness::Shuttle];

    /// The command of the harness.
    pub fn name(self) -> &'static str {
        match self {
            Harness::Cuts => "cuts",
            Harness::Run => "run",
            Harness::States => "states",
            Harness::Faults => "faults",
            Harness::Flips => "flips",
            Harness::Shuttle => "shuttle",
        }
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The run passed.
    Clean,
    /// A wrong state was found, or an assertion of Polder failed.
    Wrong,
    /// The process ended or hung before it could report. Something is wrong, but nothing was compared.
    Died,
    /// The run passed, but did not show the signs that its scenario requires. That proves nothing.
    Idle,
    /// A comparison of the run itself failed before anything was cut. Not every bug needs a loss of power to be
    /// noticed: a reader notices that its zone is reset.
    Uncut,
}

impl Verdict {
    fn is_noticed(self) -> bool {
        !matches!(self, Verdict::Clean | Verdict::Idle)
    }

    /// Whether a comparison found something wrong.
    pub fn is_reported(self) -> bool {
        matches!(self, Verdict::Wrong | Verdict::Uncut)
    }
}

/// Which harness noticed a bug.
#[derive(Clone, Debug)]
pub struct Noticed {
    /// The harness, and the scenario if it has scenarios.
    pub by: String,
    /// How.
    pub verdict: Verdict,
}

impl fmt::Display for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by)?;
        match self.verdict {
            Verdict::Died => f.write_str(" (it ended there)"),
            Verdict::Uncut => f.write_str(" (before a cut)"),
            _ => Ok(()),
        }
    }
}

/// The result for one bug.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first harness that noticed the bug. `None` if no harness did.
    pub noticed: Option<Noticed>,
    /// Seconds from the start of the first harness.
    pub seconds: f64,
}

impl Trial {
    /// Builds Polder with all bugs. None is active until it is selected.
    pub fn build(&self) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(["build", "--quiet", "--locked", "--package", "polder-sim", "--features", "planted"]);
        command.args(self.release.then_some("--release"));
        let status = command.arg("--target-dir").arg(&self.target).status();
        let status = status.context("cargo cannot be started")?;
        ensure!(status.success(), "Polder cannot be built with planted bugs");
        Ok(())
    }

    /// Runs the harnesses in turn until one notices this bug. `None` plants nothing.
    pub fn run(&self, bug: Option<&str>) -> Result<Outcome> {
        let clock = SystemClock::new();
        let noticed = self.notice(bug)?;
        Ok(Outcome { noticed, seconds: clock.monotonic_ns() as f64 / 1e9 })
    }

    fn notice(&self, bug: Option<&str>) -> Result<Option<Noticed>> {
        for harness in Harness::ALL.into_iter().filter(|harness| self.asks(*harness)) {
            let scenarios: Vec<Option<&str>> = match harness {
                Harness::Cuts => self.scenarios().into_iter().map(Some).collect(),
                _ => vec![None],
            };
            for scenario in scenarios {
                let verdict = self.ask(harness, scenario, bug)?;
                if verdict.is_noticed() {
                    let by = [Some(harness.name()), scenario].into_iter().flatten().collect::<Vec<_>>();
                    return Ok(Some(Noticed { by: by.join(" "), verdict }));
                }
            }
        }
        Ok(None)
    }

    fn asks(&self, harness: Harness) -> bool {
        self.harnesses.is_empty() || self.harnesses.contains(&harness)
    }

    fn scenarios(&self) -> Vec<&'static str> {
        let runs = catalogue::all(self.seed);
        runs.iter().map(Entry::run).filter(|run| run.shape == self.shape).map(|run| run.scenario).collect()
    }

    /// Runs the tests of threads. Tests that expect a bug say so themselves, and are left out.
    fn ask_threads(&self, bug: Option<&str>) -> Result<Verdict> {
        let tests = |last: &[&str]| {
            let mut command = Command::new("cargo");
            command.args([
                "test",
                "--quiet",
                "--locked",
                "--package",
                "polder-extent",
                "--features",
                "shuttle",
            ]);
            command.args(["--test", "shuttle", "--target-dir"]).arg(&self.target).args(last);
            command
        };
        let built = tests(&["--no-run"]).status().context("cargo cannot be started")?;
        ensure!(built.success(), "the tests of threads cannot be built");
        let mut command = tests(&["--", "--skip", "canaries::"]);
        if let Some(bug) = bug {
            command.env("POLDER_SHUTTLE_PLANT", bug).env("POLDER_SHUTTLE_TIMES", SHUTTLE_TIMES);
        }
        let passed = command.output().context("the tests of threads cannot be started")?.status.success();
        Ok(if passed { Verdict::Clean } else { Verdict::Wrong })
    }

    fn ask(&self, harness: Harness, scenario: Option<&str>, bug: Option<&str>) -> Result<Verdict> {
        if harness == Harness::Shuttle {
            return self.ask_threads(bug);
        }
        let profile = if self.release { "release" } else { "debug" };
        let mut command = Command::new(self.target.join(profile).join("polder-sim"));
        if let Some(bug) = bug {
            command.args(["--planted", bug]);
        }
        command.arg(harness.name()).arg("--quick").arg("--seed").arg(self.seed.to_string());
        if let Some(scenario) = scenario {
            command.args(["--verdicts", "--geometry", &self.shape, "--scenario", scenario]);
        }
        let output = command.output().context("the simulator cannot be started")?;
        ensure!(
            output.status.code() != Some(UNKNOWN_OPTION),
            "the simulator does not understand {command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(read_verdict(&String::from_utf8_lossy(&output.stdout), output.status.success()))
    }
}

/// The default target directory.
pub fn usual_target() -> PathBuf {
    PathBuf::from("target/planted")
}

/// The line that reports a verdict.
pub fn verdict(failure: Option<&Failure>) -> &'static str {
    match failure {
        None => "verdict clean",
        Some(failure) if failure.idle => "verdict idle",
        Some(failure) if failure.case.cuts.is_empty() => "verdict uncut",
        Some(_) => "verdict wrong",
    }
}

/// The verdict of a harness that prints none follows from its failure message. A process that failed without a
/// message has ended or hung.
fn read_verdict(output: &str, passed: bool) -> Verdict {
    let printed = output.lines().find_map(|line| line.strip_prefix("verdict "));
    match printed {
        Some("clean") => Verdict::Clean,
        Some("idle") => Verdict::Idle,
        Some("uncut") => Verdict::Uncut,
        Some(_) => Verdict::Wrong,
        None if passed => Verdict::Clean,
        None if output.contains("repeat with: ") => Verdict::Wrong,
        None => Verdict::Died,
    }
}

#[cfg(test)]
mod tests;
