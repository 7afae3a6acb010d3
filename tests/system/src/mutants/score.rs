//! The score: how many mutants were noticed, by package and by file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::drawing::Mutant;
use super::outcomes::Outcome;

/// The outcomes of some mutants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Noticed by tests of their own package.
    caught: u64,
    /// Noticed by tests of other packages.
    elsewhere: u64,
    timed_out: u64,
    unviable: u64,
    missed: u64,
}

impl Count {
    fn add(&mut self, mutant: &Mutant, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Caught { by } if *by == mutant.package => &mut self.caught,
            Outcome::Caught { .. } => &mut self.elsewhere,
            Outcome::TimedOut { .. } => &mut self.timed_out,
            Outcome::Unviable => &mut self.unviable,
            Outcome::Missed => &mut self.missed,
        };
        *count += 1;
    }

    /// The share of noticed mutants among those that compile, in percent. `None` if there are none.
    fn score(&self) -> Option<f64> {
        let noticed = self.caught + self.elsewhere + self.timed_out;
        let viable = noticed + self.missed;
        (viable > 0).then(|| 100.0 * noticed as f64 / viable as f64)
    }

    fn row(&self, name: &str) -> String {
        let score = self.score().map_or("-".to_owned(), |score| format!("{score:.0} %"));
        let Count { caught, elsewhere, timed_out, unviable, missed } = self;
        format!("| {name} | {caught} | {elsewhere} | {timed_out} | {missed} | {score} | {unviable} |")
    }
}

/// A table by package and one by file, and the names of missed mutants.
pub(super) fn report(found: &[(&Mutant, &Outcome)]) -> String {
    let mut text = table("package", found, |mutant| &mutant.package);
    text += "\n";
    text += &table("file", found, |mutant| &mutant.file);
    let missed = found.iter().filter(|(_, outcome)| **outcome == Outcome::Missed);
    for (mutant, _) in missed {
        write!(text, "\nmissed: {}", mutant.name).expect("a String takes everything");
    }
    text
}

fn table<'a>(by: &str, found: &[(&'a Mutant, &Outcome)], key: impl Fn(&'a Mutant) -> &'a str) -> String {
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    for (mutant, outcome) in found {
        counts.entry(key(mutant)).or_default().add(mutant, outcome);
        all.add(mutant, outcome);
    }
    let mut text = format!("| {by} | caught | by others | timed out | missed | score | unviable |\n");
    text += "|---|--:|--:|--:|--:|--:|--:|\n";
    for (name, count) in &counts {
        text += &(count.row(name) + "\n");
    }
    text + &all.row("all") + "\n"
}

#[cfg(test)]
mod tests;
