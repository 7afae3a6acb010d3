//! The counts and findings of an exploration.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use crate::case::{Case, Cut, Loss, Run};
use crate::caught::Wrong;
use crate::digest::mix;
use crate::shapes::{self, Shape};

/// Counts of one or several explorations.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Device commands after which the power was lost.
    pub commands: u64,
    /// Zones that were reset in the runs.
    pub resets: u64,
    /// Losses of power, by their position in the case: first, second, third or later.
    pub cuts: [u64; 3],
    /// Chains of a dozen losses in a row.
    pub chains: u64,
    /// Moments at which two zones of the log were in use, and all of them came back full again and again.
    pub crowded: u64,
    /// Losses of power after the process had been killed and mounted again.
    pub after_kills: u64,
    /// Distinct devices that a mount found, apart from noise.
    pub images: HashSet<u64>,
    /// Distinct recovered states.
    pub recovered: HashSet<u64>,
    /// The sum of a number for each recovered state. The same for the same seed.
    pub digest: u64,
}

impl Counts {
    /// Notes one recovery.
    pub fn note(&mut self, case: &Case, image: u64, recovered: u64) {
        self.cuts[(case.cuts.len() - 1).min(2)] += 1;
        if let [.., Cut { loss: Loss::Killed, .. }, Cut { loss: Loss::Power(_), .. }] = case.cuts.as_slice() {
            self.after_kills += 1;
        }
        self.images.insert(image);
        self.recovered.insert(recovered);
        let place: Vec<u64> = case.cuts.iter().map(|cut| cut.at).collect();
        self.digest = self.digest.wrapping_add(mix(&[mix(&place), image, recovered]));
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Counts) {
        self.commands += other.commands;
        self.resets += other.resets;
        self.cuts.iter_mut().zip(other.cuts).for_each(|(count, more)| *count += more);
        self.chains += other.chains;
        self.crowded += other.crowded;
        self.after_kills += other.after_kills;
        self.images.extend(other.images);
        self.recovered.extend(other.recovered);
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        let [first, second, third] = self.cuts;
        [
            ("device commands", self.commands),
            ("cuts", first),
            ("second cuts", second),
            ("third and later cuts", third),
            ("chains of cuts", self.chains),
            ("moments with two log zones", self.crowded),
            ("cuts after a kill", self.after_kills),
            ("distinct device images", self.images.len() as u64),
            ("distinct recovered trees", self.recovered.len() as u64),
        ]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.cuts;
        write!(
            f,
            "{:>5} commands, {:>3} resets, {first:>6} cuts, {second:>6} second, {third:>5} third, {:>6} images, {:>5} trees, digest {:016x}",
            self.commands,
            self.resets,
            self.images.len(),
            self.recovered.len(),
            self.digest
        )
    }
}

/// The scenarios that were cut, and on which device shapes.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, BTreeSet<&'static str>>);

impl Coverage {
    /// Notes that a run was cut at least once.
    pub fn note(&mut self, run: &Run, counts: &Counts) {
        if counts.cuts[0] > 0 {
            self.0.entry(run.scenario).or_default().insert(run.shape);
        }
    }

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 2] {
        let fewest = self.0.values().map(BTreeSet::len).min().unwrap_or(0);
        [("scenarios", self.0.len() as u64), ("shapes of each scenario, at least", fewest as u64)]
    }

    /// The shapes in words.
    pub fn shapes(&self) -> Vec<String> {
        let is_used = |shape: &Shape| self.0.values().any(|shapes| shapes.contains(shape.name));
        shapes::all().iter().filter(|shape| is_used(shape)).map(Shape::to_string).collect()
    }
}

/// A case that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// The failure.
    pub wrong: Wrong,
    /// The volume is correct, but the run did not show the signs of its scenario.
    pub idle: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indented = self.wrong.0.replace('\n', "\n    ");
        write!(f, "FAILED: {indented}\n  repeat with: {}", self.case)
    }
}
