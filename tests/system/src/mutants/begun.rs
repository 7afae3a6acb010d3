//! What a run has built and measured, kept so that another can go on with it.
//!
//! That is worth an hour's wait on a machine that does other things: only then are the tests written that were found
//! to be missing, and the rest of the mistakes can be tried although sources and tests are others by now.

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
    /// Which sources were built.
    pub(super) sources: u64,
    pub(super) drawn: Vec<Mutant>,
    /// Those that are in the programs, by their numbers.
    pub(super) built: BTreeSet<usize>,
    pub(super) tests: Tests,
}

impl Begun {
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        fs::write(folder.join(FILE), serde_json::to_string(self)?).context("cannot write what was begun")
    }

    pub(super) fn load(folder: &Path) -> Result<Begun> {
        let text = fs::read_to_string(folder.join(FILE)).context("no run was begun")?;
        serde_json::from_str(&text).context("cannot understand what was begun")
    }
}
