//! What became of mutants: as cargo-mutants says it, and as it is kept between runs.
//!
//! A mutant that was caught stays so for as long as the code around it is the same. One that was missed is tried
//! again when anything has changed that it could be noticed by, so that a new test counts.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::drawing::Mutant;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// By the tests of this package.
    Caught { by: String },
    /// The tests of this package came to no end.
    TimedOut { by: String },
    /// It is no program.
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

/// Reads the outcome of the one mutant that a run of cargo-mutants was about.
pub(super) fn read(outcomes: &str, name: &str, by: &str) -> Result<Outcome> {
    let said: Value =
        serde_json::from_str(outcomes).context("cargo-mutants wrote outcomes that are no JSON")?;
    let all = said["outcomes"].as_array().context("cargo-mutants wrote no list of outcomes")?;
    let of_mutants: Vec<&Value> = all.iter().filter(|one| one["scenario"]["Mutant"].is_object()).collect();
    let [one] = of_mutants[..] else { bail!("cargo-mutants tried {} mutants, not one", of_mutants.len()) };
    let tried = &one["scenario"]["Mutant"]["name"];
    ensure!(tried == name, "cargo-mutants tried {tried}");
    match one["summary"].as_str() {
        Some("CaughtMutant") => Ok(Outcome::Caught { by: by.to_owned() }),
        Some("Timeout") => Ok(Outcome::TimedOut { by: by.to_owned() }),
        Some("Unviable") => Ok(Outcome::Unviable),
        // The second where nothing but a compiler was asked.
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

/// All that is known, in a file to which each outcome is appended as soon as it is there.
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

    /// What became of the mutant when it was last tried.
    pub(crate) fn last(&self, mutant: &Mutant) -> Option<&Outcome> {
        self.entries.get(&mutant.identity()).map(|entry| &entry.outcome)
    }

    /// The same, if it would not be found otherwise now.
    pub(crate) fn stands(&self, mutant: &Mutant, sources: u64) -> Option<&Outcome> {
        let entry = self.entries.get(&mutant.identity())?;
        let stands = entry.outcome != Outcome::Missed || entry.sources == sources;
        stands.then_some(&entry.outcome)
    }

    /// Writes down what became of a mutant.
    pub(crate) fn add(&mut self, mutant: &Mutant, outcome: Outcome, sources: u64) -> Result<()> {
        let identity = mutant.identity();
        let entry = Entry { name: mutant.name.clone(), identity, sources, outcome };
        writeln!(self.file, "{}", serde_json::to_string(&entry)?).context("cannot write outcomes")?;
        self.entries.insert(identity, entry);
        Ok(())
    }
}

/// The newest entry of each mutant. The last line of a run that was killed may be a part of one.
fn understood(text: &str) -> BTreeMap<u64, Entry> {
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    entries.map(|entry| (entry.identity, entry)).collect()
}

#[cfg(test)]
mod tests;
