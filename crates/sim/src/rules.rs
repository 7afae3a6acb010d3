//! Shows that the harness would notice: each ordering rule is removed at build time by a feature,
//! and some scenario must fail.
//!
//! Each build goes to a target directory of its own; what it finds is read from the verdicts that
//! `polder-sim cuts --verdicts` prints. The build without a feature must pass everything: else a
//! failure elsewhere would prove nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::catalogue::{self, Entry};
use crate::report::Failure;

/// The features, as in section 9 of `docs/design.md`.
pub const RULES: &[&str] = &[
    "break-data-before-record",
    "break-flush-on-sync",
    "break-follower",
    "break-checkpoint-flush-before",
    "break-checkpoint-flush-after",
    "break-replay-from",
    "break-reset-after-known-durable",
    "break-metadata-reset-after-checkpoint",
    "break-log-reset-after-checkpoint",
    "break-recovery-flush",
    "break-checkpoint-first",
    "break-seal",
    "break-seal-flush",
    "break-verify-tail",
    "break-gap",
    "break-frozen",
    "break-gc-recheck",
    "break-zone-reference",
];

/// What a build is asked.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Where builds go.
    pub target: PathBuf,
    /// Only scenarios whose name begins so.
    pub scenario: Option<String>,
    /// The shape of device.
    pub shape: String,
    /// Decides everything that is left open.
    pub seed: u64,
}

/// What one scenario said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing went wrong.
    Clean,
    /// What was found after a cut may not be found, or an assertion of Polder said so.
    Wrong,
    /// The process ended or hung before it could say: something is wrong, but nobody compared.
    Died,
    /// Nothing went wrong, but the run did not show what its scenario names: that proves nothing.
    Idle,
    /// What the run itself compares went wrong before anything was cut: not every rule needs a loss of power
    /// to be missed. That a zone is not reset under a reader is seen by the reader.
    Uncut,
}

/// What each scenario said, by name.
pub type Verdicts = BTreeMap<String, Verdict>;

impl Trial {
    /// What the scenarios say of Polder without this rule; without any removed when `None`. Each runs
    /// in a process of its own, so that one that ends it takes no other along.
    pub fn run(&self, rule: Option<&str>) -> Result<Verdicts> {
        self.build(rule)?;
        let scenarios = self.scenarios();
        ensure!(!scenarios.is_empty(), "no scenario matches; `polder-sim list` shows all");
        scenarios.into_iter().map(|scenario| Ok((scenario.to_owned(), self.ask(scenario)?))).collect()
    }

    fn scenarios(&self) -> Vec<&'static str> {
        let prefix = self.scenario.as_deref().unwrap_or("");
        let runs = catalogue::all(self.seed);
        let of_shape = runs.iter().map(Entry::run).filter(|run| run.shape == self.shape);
        of_shape.map(|run| run.scenario).filter(|name| name.starts_with(prefix)).collect()
    }

    fn ask(&self, scenario: &str) -> Result<Verdict> {
        let mut command = Command::new(self.binary());
        command.args(["cuts", "--quick", "--verdicts", "--geometry", &self.shape, "--scenario", scenario]);
        command.arg("--seed").arg(self.seed.to_string());
        let output = command.output().context("the simulator cannot be started")?;
        Ok(read_verdict(&String::from_utf8_lossy(&output.stdout)))
    }

    fn binary(&self) -> PathBuf {
        self.target.join("debug/polder-sim")
    }

    fn build(&self, rule: Option<&str>) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(["build", "--quiet", "--package", "polder-sim", "--target-dir"]).arg(&self.target);
        if let Some(rule) = rule {
            command.args(["--features", rule]);
        }
        let status = command.status().context("cargo cannot be started")?;
        if !status.success() {
            bail!("Polder cannot be built with {}", rule.unwrap_or("all its rules"));
        }
        Ok(())
    }
}

/// The directory for builds when none is given.
pub fn usual_target() -> PathBuf {
    PathBuf::from("target/rules")
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

/// A process that ended or hung gave none.
fn read_verdict(output: &str) -> Verdict {
    let said = output.lines().find_map(|line| line.strip_prefix("verdict "));
    match said {
        Some("clean") => Verdict::Clean,
        Some("idle") => Verdict::Idle,
        Some("uncut") => Verdict::Uncut,
        Some(_) => Verdict::Wrong,
        None => Verdict::Died,
    }
}

/// The scenarios that noticed, in words: those whose process ended or hung are marked, and those that failed
/// before they were cut.
pub fn noticed(verdicts: &Verdicts) -> Vec<String> {
    let words = verdicts.iter().filter_map(|(scenario, verdict)| match verdict {
        Verdict::Clean | Verdict::Idle => None,
        Verdict::Wrong => Some(scenario.clone()),
        Verdict::Uncut => Some(format!("{scenario}(uncut)")),
        Verdict::Died => Some(format!("{scenario}(died)")),
    });
    words.collect()
}

/// A rule's line of the table.
pub fn line(verdicts: &Verdicts) -> String {
    let (noticed, total) = (noticed(verdicts), verdicts.len());
    let idle = verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Idle);
    let idle: Vec<String> = idle.map(|(scenario, _)| format!("{scenario}(idle)")).collect();
    let words = if noticed.is_empty() { "SURVIVED".to_owned() } else { noticed.join(" ") };
    format!("{:>2} of {total}: {}", noticed.len(), [vec![words], idle].concat().join(" "))
}

#[cfg(test)]
mod tests;
