//! The built programs and measurements of a run, recorded so that another run can continue.
//!
//! This saves an hour on a busy machine. Missing tests can be written after the first results, and the rest of the
//! mutants can be tried although sources and tests have changed by then.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::drawing::Mutant;
use super::showing::Tests;

/// Name of the file.
const FILE: &str = "begun.json";

#[derive(Serialize, Deserialize)]
pub(super) struct Begun {
    /// The hash of the built sources.
    pub(super) sources: u64,
    pub(super) drawn: Vec<Mutant>,
    /// The mutants in the programs, by their numbers.
    pub(super) built: BTreeSet<usize>,
    pub(super) tests: Tests,
}

impl Begun {
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        fs::write(folder.join(FILE), serde_json::to_string(self)?).context("cannot record the run")
    }

    pub(super) fn load(folder: &Path) -> Result<Begun> {
        let text = fs::read_to_string(folder.join(FILE)).context("no run was begun")?;
        serde_json::from_str(&text).context("cannot parse the recorded run")
    }
}
