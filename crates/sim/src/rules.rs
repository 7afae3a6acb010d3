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

/// The features, as in section 9 of `docs/design.md`; those that are missing here are named under
/// "What is not shown yet" in `docs/testing.md`.
pub const RULES: &[&str] = &[
    "break-data-before-record",
    "break-flush-on-sync",
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

/// By scenario, whether something went wrong.
pub type Verdicts = BTreeMap<String, bool>;

impl Trial {
    /// What the scenarios say of Polder without this rule; without any removed when `None`.
    pub fn run(&self, rule: Option<&str>) -> Result<Verdicts> {
        self.build(rule)?;
        let mut command = Command::new(self.binary());
        command.args(["cuts", "--quick", "--keep-going", "--verdicts", "--geometry", &self.shape]);
        command.arg("--seed").arg(self.seed.to_string());
        if let Some(scenario) = &self.scenario {
            command.args(["--scenario", scenario]);
        }
        let output = command.output().context("the simulator cannot be started")?;
        let verdicts = read_verdicts(&String::from_utf8_lossy(&output.stdout));
        ensure!(
            !verdicts.is_empty(),
            "the simulator gave no verdict: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(verdicts)
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
pub fn verdict(scenario: &str, wrong: bool) -> String {
    format!("verdict {scenario} {}", if wrong { "caught" } else { "clean" })
}

/// A scenario that hangs or ends the process is one that noticed.
fn read_verdicts(output: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for line in output.lines() {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["verdict", scenario, "caught"] => verdicts.insert((*scenario).to_owned(), true),
            ["verdict", scenario, "clean"] => verdicts.insert((*scenario).to_owned(), false),
            ["begin", scenario] => verdicts.insert((*scenario).to_owned(), true),
            _ => None,
        };
    }
    verdicts
}

/// The scenarios in which something went wrong.
pub fn noticed(verdicts: &Verdicts) -> Vec<String> {
    verdicts.iter().filter(|(_, wrong)| **wrong).map(|(scenario, _)| scenario.clone()).collect()
}

#[cfg(test)]
mod tests;
