//! Which mutants there are, and the order in which a seed draws them.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Package;
use super::copy::Copy;
use crate::shell::Line;

/// One mistake that could be made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Mutant {
    /// File, line, column and what is replaced: no other has the same.
    pub(crate) name: String,
    pub(crate) package: String,
    /// Relative to the root.
    pub(crate) file: String,
    /// What it changes, with a few lines around.
    pub(crate) diff: String,
}

impl Mutant {
    /// The same for a mistake that is the same in the same surroundings, wherever in the file that is.
    pub(crate) fn identity(&self) -> u64 {
        hash(hash(0, self.file.as_bytes()), without_places(&self.diff).as_bytes())
    }

    /// A regular expression that matches its name and no other.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = String::from("^");
        for character in self.name.chars() {
            match character.is_ascii_alphanumeric() {
                true => pattern.push(character),
                false => write!(pattern, "\\x{{{:X}}}", u32::from(character)).expect("a String takes all"),
            }
        }
        pattern.push('$');
        pattern
    }
}

/// A diff without the numbers of its lines.
fn without_places(diff: &str) -> String {
    diff.lines().filter(|line| !line.starts_with("@@")).collect::<Vec<_>>().join("\n")
}

/// All mutants of the packages.
pub(super) fn list(copy: &Copy, packages: &[Package]) -> Result<Vec<Mutant>> {
    let line = Line::new("cargo mutants --list --json --no-config").in_dir(copy.root());
    let line = packages.iter().fold(line, |line, package| line.args(["--package", package.name()]));
    read(&line.output()?)
}

/// Reads what cargo-mutants lists.
fn read(listed: &str) -> Result<Vec<Mutant>> {
    let mutants: Vec<Mutant> =
        serde_json::from_str(listed).context("cargo-mutants lists what this command cannot read")?;
    ensure!(!mutants.is_empty(), "cargo-mutants knows no mutants: are there sources in the copy?");
    Ok(mutants)
}

/// All of them in the order of their lots. A mutant's lot follows from the seed and its name alone: so the first of
/// a seed are a sample without replacement, more of them begin with the same ones, and a change of one file leaves
/// the lots of all others what they were.
pub(super) fn draw(seed: u64, mut mutants: Vec<Mutant>) -> Vec<Mutant> {
    let lot = |mutant: &Mutant| fastrand::Rng::with_seed(hash(seed, mutant.name.as_bytes())).u64(..);
    mutants.sort_by_cached_key(|mutant| (lot(mutant), mutant.name.clone()));
    mutants
}

/// FNV-1a of 64 bits, begun at a number.
pub(super) fn hash(begin: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(begin.wrapping_add(0xcbf2_9ce4_8422_2325), step)
}

#[cfg(test)]
mod tests;
