//! Measured figures, their ratios, and their CSV file.
//!
//! The file has a line for each figure, so that two runs with different rows can be compared. No field has a comma.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::measured::Ratio;

const HEADER: &str = "row,place,beside_writer,round,metric,value";

/// Metrics of a row.
pub(super) const RATE: &str = "rate";
pub(super) const QUANTILES: [&str; 3] = ["p50_ns", "p99_ns", "p999_ns"];
/// Nanoseconds of processor time for each operation.
pub(super) const CLIENT_CPU: &str = "client_cpu_ns";
pub(super) const DAEMON_CPU: &str = "daemon_cpu_ns";
/// Instructions for each operation.
pub(super) const CLIENT_INSTRUCTIONS: &str = "client_instructions";
pub(super) const DAEMON_INSTRUCTIONS: &str = "daemon_instructions";
/// Requests to the daemon for each operation: all, and by opcode after a space.
pub(super) const REQUESTS: &str = "requests";
/// The value of a figure without a peer.
pub(super) const VALUE: &str = "value";

/// The measurement that a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) row: String,
    pub(super) place: String,
    /// Whether a large sequential writer worked in the same place.
    pub(super) beside: bool,
}

impl Key {
    pub(super) fn of(row: &str, place: &str, beside: bool) -> Key {
        Key { row: row.to_owned(), place: place.to_owned(), beside }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Figure {
    key: Key,
    round: u64,
    metric: String,
    value: f64,
}

/// All figures of a run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Figures(Vec<Figure>);

impl Figures {
    pub(super) fn add(&mut self, key: &Key, round: u64, metric: &str, value: f64) {
        self.0.push(Figure { key: key.clone(), round, metric: metric.to_owned(), value });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a figure without a peer.
    pub(super) fn add_fact(&mut self, id: &str, value: f64) {
        println!("{id}: {value:.3}");
        self.add(&Key::of(id, "polder", false), 0, VALUE, value);
    }

    /// The value of a figure without a peer.
    pub(super) fn fact(&self, id: &str) -> Option<f64> {
        self.median(&Key::of(id, "polder", false), VALUE)
    }

    /// The values of all rounds, in their order.
    fn values(&self, key: &Key, metric: &str) -> Vec<(u64, f64)> {
        let found = self.0.iter().filter(|figure| figure.key == *key && figure.metric == metric);
        found.map(|figure| (figure.round, figure.value)).collect()
    }

    pub(super) fn median(&self, key: &Key, metric: &str) -> Option<f64> {
        Ratio::of(self.values(key, metric).into_iter().map(|(_, value)| value)).map(|ratio| ratio.median)
    }

    /// The ratios to the largest figure of some places in the same round.
    pub(super) fn ratio(&self, key: &Key, peers: &[&str], metric: &str) -> Option<Ratio> {
        let peers: Vec<Vec<(u64, f64)>> = peers
            .iter()
            .map(|peer| self.values(&Key { place: (*peer).to_owned(), ..key.clone() }, metric))
            .collect();
        let largest = |round: u64| {
            let of_round =
                |values: &Vec<(u64, f64)>| values.iter().find(|(of, _)| *of == round).map(|found| found.1);
            let all: Option<Vec<f64>> = peers.iter().map(of_round).collect();
            all?.into_iter().reduce(f64::max).filter(|value| *value > 0.0)
        };
        let ratios = self.values(key, metric).into_iter();
        Ratio::of(ratios.filter_map(|(round, value)| Some(value / largest(round)?)))
    }

    /// The metrics of a measurement that begin with a word and a space, with the rest of their names: the largest
    /// first.
    pub(super) fn parts(&self, key: &Key, word: &str) -> Vec<(&str, f64)> {
        let own = self.0.iter().filter(|figure| figure.key == *key);
        let parts = own
            .filter_map(|figure| Some((figure.metric.strip_prefix(word)?.strip_prefix(' ')?, figure.value)));
        let mut parts: Vec<(&str, f64)> = parts.collect();
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        parts
    }

    /// The text of a CSV file.
    pub(super) fn csv(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for Figure { key, round, metric, value } in &self.0 {
            let beside = u8::from(key.beside);
            writeln!(text, "{},{},{beside},{round},{metric},{value}", key.row, key.place)
                .expect("a String takes everything");
        }
        text
    }

    pub(super) fn parse(text: &str) -> Result<Figures> {
        let mut lines = text.lines();
        ensure!(lines.next() == Some(HEADER), "the first line is not `{HEADER}`");
        lines.map(parse_line).collect::<Result<_>>().map(Figures)
    }

    pub(super) fn read(path: &Path) -> Result<Figures> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Figures::parse(&text).with_context(|| path.display().to_string())
    }
}

fn parse_line(line: &str) -> Result<Figure> {
    let fields: Vec<&str> = line.split(',').collect();
    let &[row, place, beside, round, metric, value] = fields.as_slice() else {
        anyhow::bail!("there are not six fields in `{line}`");
    };
    let wrong = || format!("a field of `{line}` is not a number");
    Ok(Figure {
        key: Key::of(row, place, beside == "1"),
        round: round.parse().with_context(wrong)?,
        metric: metric.to_owned(),
        value: value.parse().with_context(wrong)?,
    })
}
