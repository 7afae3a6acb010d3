//! Two runs side by side, each as a table of its figures.
//!
//! Ratios to peers are compared, because these were measured in the same rounds. Processor time and instructions are
//! compared as they are: rows that did not change by more than 5 % are left out.

use super::figures::{
    CLIENT_CPU, CLIENT_INSTRUCTIONS, DAEMON_CPU, DAEMON_INSTRUCTIONS, Figures, Key, RATE, REQUESTS,
};
use super::rows::{FACTS, ROWS};

/// A smaller change of a cost is not shown.
const CHANGE_MIN: f64 = 0.05;
const COSTS: [&str; 5] = [REQUESTS, CLIENT_CPU, DAEMON_CPU, CLIENT_INSTRUCTIONS, DAEMON_INSTRUCTIONS];

/// What a figure was, and what it is.
struct Change {
    what: String,
    before: f64,
    now: f64,
}

impl Change {
    fn part(&self) -> f64 {
        if self.before == self.now { 0.0 } else { self.now / self.before - 1.0 }
    }

    fn line(&self) -> String {
        let Change { what, before, now } = self;
        format!("| {what} | {before:.3} | {now:.3} | {:+.1} % |\n", self.part() * 100.0)
    }
}

/// A table of what both runs have.
pub(super) fn table(before: &Figures, now: &Figures) -> String {
    let changes = rates(before, now).into_iter().chain(costs(before, now)).chain(facts(before, now));
    let lines: String = changes.map(|change| change.line()).collect();
    format!("| | before | now | change |\n|---|---|---|---|\n{lines}")
}

/// The keys of all rows, alone and next to a writer, with the peers' places.
fn keys() -> impl Iterator<Item = (Key, &'static [&'static str])> {
    let alone = ROWS.iter().flat_map(|row| {
        let places = row.places().into_iter();
        places.map(move |(_, place, _)| (Key::of(row.id, place, false), row.against.places()))
    });
    alone.flat_map(|(key, peers)| [(key.clone(), peers), (Key { beside: true, ..key }, peers)])
}

fn title(key: &Key, metric: &str) -> String {
    let near = if key.beside { " next to a writer" } else { "" };
    format!("{} ({}){near}: {metric}", key.row, key.place)
}

fn rates(before: &Figures, now: &Figures) -> Vec<Change> {
    let both = keys().filter_map(|(key, peers)| {
        let ratio = |figures: &Figures| Some(figures.ratio(&key, peers, RATE)?.median);
        let what = title(&key, &format!("rate ÷ {}", peers.join(" or ")));
        Some(Change { what, before: ratio(before)?, now: ratio(now)? })
    });
    both.collect()
}

fn costs(before: &Figures, now: &Figures) -> Vec<Change> {
    let all = keys().flat_map(|(key, _)| COSTS.map(|metric| (key.clone(), metric)));
    let both = all.filter_map(|(key, metric)| {
        let value = |figures: &Figures| figures.median(&key, metric);
        Some(Change { what: title(&key, metric), before: value(before)?, now: value(now)? })
    });
    both.filter(|change| change.part().abs() > CHANGE_MIN).collect()
}

fn facts(before: &Figures, now: &Figures) -> Vec<Change> {
    let both = FACTS.iter().filter_map(|fact| {
        Some(Change { what: fact.title.to_owned(), before: before.fact(fact.id)?, now: now.fact(fact.id)? })
    });
    both.collect()
}
