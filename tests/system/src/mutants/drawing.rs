//! The list of mutants, and the order in which a seed draws them.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use support::shell::Line;

use super::Package;
use super::copy::Copy;

/// A mutant: one possible change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mutant {
    /// File, line, column and the replaced text. It is unique.
    pub(crate) name: String,
    pub(crate) package: String,
    /// Relative to the root.
    pub(crate) file: String,
    /// The change, with a few lines of context.
    pub(crate) diff: String,
    /// The replaced text.
    pub(crate) span: Span,
    /// The new text.
    pub(crate) replacement: String,
    /// The function around it, if there is one.
    pub(crate) function: Option<Function>,
    /// Its place in the list of all mutants. cargo-mutants selects the mutant by it, because not every kind of mutant
    /// can be selected by name.
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
    /// After its last character.
    pub(crate) end: Position,
}

/// Both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The mutant's number in a list of this length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl Mutant {
    /// A hash that is the same for the same change in the same context, anywhere in the file.
    pub(crate) fn identity(&self) -> u64 {
        hash(hash(0, self.file.as_bytes()), without_places(&self.diff).as_bytes())
    }
}

/// A diff without line numbers.
fn without_places(diff: &str) -> String {
    diff.lines().filter(|line| !line.starts_with("@@")).collect::<Vec<_>>().join("\n")
}

/// The cargo-mutants command with its packages. So its list is always the same.
pub(super) fn cargo_mutants(copy: &Copy) -> Line {
    let line = Line::new("cargo mutants --no-config").in_dir(copy.root());
    Package::ALL.iter().fold(line, |line, package| line.args(["--package", package.name()]))
}

/// All mutants of the packages.
pub(super) fn list(copy: &Copy) -> Result<Vec<Mutant>> {
    read(&cargo_mutants(copy).args(["--list", "--json"]).output()?)
}

/// Parses the list of cargo-mutants.
fn read(listed: &str) -> Result<Vec<Mutant>> {
    let mut mutants: Vec<Mutant> =
        serde_json::from_str(listed).context("cannot parse the list of cargo-mutants")?;
    ensure!(!mutants.is_empty(), "cargo-mutants knows no mutants: are there sources in the copy?");
    let of = mutants.len();
    (0..).zip(&mut mutants).for_each(|(number, mutant)| mutant.place = Place { number, of });
    Ok(mutants)
}

/// All mutants in the order of their lots. A mutant's lot follows only from the seed and its name. So the first ones
/// of a seed are a sample without replacement, a larger sample begins with the same ones, and a change of one file
/// does not change the lots of the others.
pub(super) fn draw(seed: u64, mut mutants: Vec<Mutant>) -> Vec<Mutant> {
    let lot = |mutant: &Mutant| fastrand::Rng::with_seed(hash(seed, mutant.name.as_bytes())).u64(..);
    mutants.sort_by_cached_key(|mutant| (lot(mutant), mutant.name.clone()));
    mutants
}

/// FNV-1a of 64 bits, with a given start value.
pub(super) fn hash(begin: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(begin.wrapping_add(0xcbf2_9ce4_8422_2325), step)
}

#[cfg(test)]
mod tests;
