//! Shows that the harnesses would notice: bugs are planted one at a time (`rt::is_planted`), and some harness must
//! fail. How many do is the harnesses' own score.
//!
//! All bugs are in one build, in a target directory of its own; each run is told which to make. A bug is tried on
//! the harnesses in turn until one notices: every scenario of `cuts` in a process of its own, so that one that ends
//! it takes no other along, and then the others. The build with no bug planted must pass everything: else a
//! failure elsewhere would prove nothing.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};

use crate::catalogue::{self, Entry};
use crate::report::Failure;

/// With a bug so many times as many schedules are tried as usual: some take as many to be met.
const SHUTTLE_TIMES: &str = "6";
/// What a program ends with that does not know an option.
const MISUNDERSTOOD: i32 = 2;

/// Where a bug comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It removes an ordering rule of `docs/design.md`, section 9.
    Rule,
    /// It was chosen from the product's sources by somebody who had not read the harnesses.
    Unseen,
    /// It was a real one once, or lies beside one: found by reading, and planted to see who else would have.
    Found,
    /// It takes away what keeps threads apart, and nothing else: for the tests under Shuttle.
    Thread,
}

/// A mistake that Polder can be told to make.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// What the source calls it.
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

/// All of them.
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
    thread("break-read-node"),
    thread("break-lease-count"),
    thread("break-returned"),
];

/// One bug for each harness that is a command, which it must notice by itself: one that does not notice any more what
/// it once did says nothing.
pub const CANARIES: &[(Harness, &str)] = &[
    (Harness::Cuts, "break-data-before-record"),
    (Harness::Run, "break-follower"),
    (Harness::States, "break-flush-on-sync"),
    (Harness::Faults, "break-live-count"),
    (Harness::Flips, "break-verify-last-block"),
];

/// What a build is asked.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Where the build goes.
    pub target: PathBuf,
    /// Whether it is optimised: not worth its time where little is asked.
    pub release: bool,
    /// Only these harnesses; all when there are none.
    pub harnesses: Vec<Harness>,
    /// The shape of device for scenarios that are cut.
    pub shape: String,
    /// Decides everything that is left open.
    pub seed: u64,
}

/// What looks for bugs, the quickest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    /// Scenarios, cut at every command.
    Cuts,
    /// Everything at once: clients, background, faults, cuts and kills.
    Run,
    /// Small workloads, cut in every state.
    States,
    /// Scenarios on a device that fails.
    Faults,
    /// A volume with flipped bits.
    Flips,
    /// Threads, in orders that Shuttle chooses: tests of their own, in a build of their own.
    Shuttle,
}

impl Harness {
    /// All, in the order in which they are asked.
    pub const ALL: [Harness; 6] =
        [Harness::Cuts, Harness::Run, Harness::States, Harness::Faults, Harness::Flips, Harness::Shuttle];

    /// Its command.
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

/// What one run said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing went wrong.
    Clean,
    /// What was found may not be found, or an assertion of Polder said so.
    Wrong,
    /// The process ended or hung before it could say: something is wrong, but nobody compared.
    Died,
    /// Nothing went wrong, but the run did not show what its scenario names: that proves nothing.
    Idle,
    /// What the run itself compares went wrong before anything was cut: not every bug needs a loss of power
    /// to be missed. That a zone is not reset under a reader is seen by the reader.
    Uncut,
}

impl Verdict {
    fn is_noticed(self) -> bool {
        !matches!(self, Verdict::Clean | Verdict::Idle)
    }

    /// Whether something was compared and found wrong.
    pub fn is_told(self) -> bool {
        matches!(self, Verdict::Wrong | Verdict::Uncut)
    }
}

/// Who noticed a bug.
#[derive(Clone, Debug)]
pub struct Noticed {
    /// The harness, and the scenario where it has such.
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

/// What became of one bug.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Who noticed first; nobody when `None`.
    pub noticed: Option<Noticed>,
    /// From the beginning of the first harness.
    pub seconds: f64,
}

impl Trial {
    /// Builds Polder with all bugs in it, of which none is made until it is told to.
    pub fn build(&self) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(["build", "--quiet", "--locked", "--package", "polder-sim", "--features", "planted"]);
        command.args(self.release.then_some("--release"));
        let status = command.arg("--target-dir").arg(&self.target).status();
        let status = status.context("cargo cannot be started")?;
        ensure!(status.success(), "Polder cannot be built with planted bugs");
        Ok(())
    }

    /// Asks the harnesses in turn until one notices this bug; `None` plants nothing.
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

    /// Asks the tests of threads: those that a bug is expected of say so themselves, and are left out.
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
            output.status.code() != Some(MISUNDERSTOOD),
            "the simulator does not understand {command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(read_verdict(&String::from_utf8_lossy(&output.stdout), output.status.success()))
    }
}

/// The directory for the build when none is given.
pub fn usual_target() -> PathBuf {
    PathBuf::from("target/planted")
}

/// The line of one verdict.
pub fn verdict(failure: Option<&Failure>) -> &'static str {
    match failure {
        None => "verdict clean",
        Some(failure) if failure.idle => "verdict idle",
        Some(failure) if failure.case.cuts.is_empty() => "verdict uncut",
        Some(_) => "verdict wrong",
    }
}

/// Of a harness that gives no verdicts, what it failed with says as much. A process that failed without a word
/// ended or hung.
fn read_verdict(output: &str, passed: bool) -> Verdict {
    let said = output.lines().find_map(|line| line.strip_prefix("verdict "));
    match said {
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
