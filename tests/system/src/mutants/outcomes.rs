//! The outcomes of mutants: parsed from cargo-mutants, and recorded between runs.
//!
//! A caught mutant stays caught as long as the code around it is the same. A missed mutant is tried again if anything
//! has changed that could notice it, so that a new test counts.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::drawing::Mutant;

/// The outcome of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Noticed by the tests of this package.
    Caught { by: String },
    /// The tests of this package did not end in time.
    TimedOut { by: String },
    /// It does not compile.
    Unviable,
    /// All tests have passed.
    Missed,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Caught { by } => write!(f, "caught by {by}"),
            Outcome::TimedOut { by } => write!(f, "timed out in {by}"),
            Outcome::Unviable => write!(f, "unviable"),
            Outcome::Missed => write!(f, "MISSED"),
        }
    }
}

/// Parses the outcome of a run of cargo-mutants with one mutant.
pub(super) fn read(outcomes: &str, name: &str, by: &str) -> Result<Outcome> {
    let printed: Value =
        serde_json::from_str(outcomes).context("cargo-mutants wrote outcomes that are no JSON")?;
    let all = printed["outcomes"].as_array().context("cargo-mutants wrote no list of outcomes")?;
    let of_mutants: Vec<&Value> = all.iter().filter(|one| one["scenario"]["Mutant"].is_object()).collect();
    let [one] = of_mutants[..] else { bail!("cargo-mutants tried {} mutants, not one", of_mutants.len()) };
    let tried = &one["scenario"]["Mutant"]["name"];
    ensure!(tried == name, "cargo-mutants tried {tried}");
    match one["summary"].as_str() {
        Some("CaughtMutant") => Ok(Outcome::Caught { by: by.to_owned() }),
        Some("Timeout") => Ok(Outcome::TimedOut { by: by.to_owned() }),
        Some("Unviable") => Ok(Outcome::Unviable),
        // The second one if only a compiler ran.
        Some("MissedMutant" | "Success") => Ok(Outcome::Missed),
        other => bail!("cargo-mutants says {other:?} of a mutant, which this command does not know"),
    }
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    name: String,
    identity: u64,
    sources: u64,
    outcome: Outcome,
}

/// All recorded outcomes, in a file to which each new outcome is appended immediately.
pub(crate) struct Kept {
    entries: BTreeMap<u64, Entry>,
    file: File,
}

impl Kept {
    pub(crate) fn open(path: &Path) -> Result<Kept> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file).context("cannot write outcomes")?;
        }
        Ok(Kept { entries: understood(&text), file })
    }

    /// The outcome of the mutant's last trial.
    pub(crate) fn last(&self, mutant: &Mutant) -> Option<&Outcome> {
        self.entries.get(&mutant.identity()).map(|entry| &entry.outcome)
    }

    /// The same, if a trial now could not have another outcome.
    pub(crate) fn stands(&self, mutant: &Mutant, sources: u64) -> Option<&Outcome> {
        let entry = self.entries.get(&mutant.identity())?;
        let stands = entry.outcome != Outcome::Missed || entry.sources == sources;
        stands.then_some(&entry.outcome)
    }

    /// Records the outcome of a mutant.
    pub(crate) fn add(&mut self, mutant: &Mutant, outcome: Outcome, sources: u64) -> Result<()> {
        let identity = mutant.identity();
        let entry = Entry { name: mutant.name.clone(), identity, sources, outcome };
        writeln!(self.file, "{}", serde_json::to_string(&entry)?).context("cannot write outcomes")?;
        self.entries.insert(identity, entry);
        Ok(())
    }
}

/// The newest entry of each mutant. The last line of a killed run may be incomplete.
fn understood(text: &str) -> BTreeMap<u64, Entry> {
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    entries.map(|entry| (entry.identity, entry)).collect()
}

#[cfg(test)]
mod tests;
