//! Which mutants there are, and the order in which a seed draws them.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use support::shell::Line;

use super::Package;
use super::copy::Copy;

/// One mistake that could be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mutant {
    /// File, line, column and what is replaced: no other has the same.
    pub(crate) name: String,
    pub(crate) package: String,
    /// Relative to the root.
    pub(crate) file: String,
    /// What it changes, with a few lines around.
    pub(crate) diff: String,
    /// What it replaces.
    pub(crate) span: Span,
    /// By what.
    pub(crate) replacement: String,
    /// The function that it is in, if it is in one.
    pub(crate) function: Option<Function>,
    /// Its place in the list of all. cargo-mutants is asked for the mutant by it, because not every kind of mutant
    /// can be chosen by name.
    #[serde(default)]
    pub(crate) place: Place,
}

/// A function of the sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    /// From its first line of documentation to the end of its body.
    pub(crate) span: Span,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Position,
    /// Behind its last character.
    pub(crate) end: Position,
}

/// Both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The mutant's number in a list of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl Mutant {
    /// The same for a mistake that is the same in the same surroundings, wherever in the file that is.
    pub(crate) fn identity(&self) -> u64 {
        hash(hash(0, self.file.as_bytes()), without_places(&self.diff).as_bytes())
    }
}

/// A diff without the numbers of its lines.
fn without_places(diff: &str) -> String {
    diff.lines().filter(|line| !line.starts_with("@@")).collect::<Vec<_>>().join("\n")
}

/// cargo-mutants, told of which packages to make mutants: its list is the same whatever it does with it.
pub(super) fn cargo_mutants(copy: &Copy) -> Line {
    let line = Line::new("cargo mutants --no-config").in_dir(copy.root());
    Package::ALL.iter().fold(line, |line, package| line.args(["--package", package.name()]))
}

/// All mutants of the packages.
pub(super) fn list(copy: &Copy) -> Result<Vec<Mutant>> {
    read(&cargo_mutants(copy).args(["--list", "--json"]).output()?)
}

/// Reads what cargo-mutants lists.
fn read(listed: &str) -> Result<Vec<Mutant>> {
    let mut mutants: Vec<Mutant> =
        serde_json::from_str(listed).context("cargo-mutants lists what this command cannot read")?;
    ensure!(!mutants.is_empty(), "cargo-mutants knows no mutants: are there sources in the copy?");
    let of = mutants.len();
    (0..).zip(&mut mutants).for_each(|(number, mutant)| mutant.place = Place { number, of });
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
