//! Figures measured in turns, and their ratios.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

/// Rates, times or counts by their names, in the order of the turns.
#[derive(Debug, Default)]
pub(crate) struct Measured(BTreeMap<String, Vec<f64>>);

/// The ratio of two figures, turn by turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// A quarter of the turns were below the first, and a quarter above the second.
    pub(crate) quartiles: (f64, f64),
}

impl Measured {
    /// Reads a line such as `measured library create: 12345.6`. Ignores other lines.
    pub(crate) fn read(&mut self, line: &str) {
        let named = line.strip_prefix("measured ").and_then(|rest| rest.rsplit_once(": "));
        let Some((what, Ok(rate))) = named.map(|(what, rate)| (what, rate.parse::<f64>())) else { return };
        self.add(what, rate);
    }

    /// Adds a figure.
    pub(crate) fn add(&mut self, what: &str, figure: f64) {
        self.0.entry(what.to_owned()).or_default().push(figure);
    }

    /// The largest number of measurements of a figure.
    pub(crate) fn turns(&self) -> u64 {
        self.0.values().map(|rates| rates.len() as u64).sum()
    }

    /// The median of a figure.
    pub(crate) fn median(&self, what: &str) -> Result<f64> {
        Ok(quantile(&sorted(self.rates(what)?), 0.5))
    }

    /// One figure divided by another, in the same turn.
    pub(crate) fn ratio(&self, one: &str, other: &str) -> Result<Ratio> {
        let (ones, others) = (self.rates(one)?, self.rates(other)?);
        ensure!(
            ones.len() == others.len() && others.iter().all(|&rate| rate > 0.0),
            "{one} and {other} were not measured in turns"
        );
        Ok(Ratio::of(ones.iter().zip(others).map(|(one, other)| one / other)).expect("it was measured"))
    }

    fn rates(&self, what: &str) -> Result<&[f64]> {
        let rates = self.0.get(what).with_context(|| format!("nothing measured {what}"))?;
        Ok(rates)
    }
}

impl Ratio {
    /// The ratios of all turns in one. Nothing without turns.
    pub(crate) fn of(ratios: impl IntoIterator<Item = f64>) -> Option<Ratio> {
        let ratios = sorted(&ratios.into_iter().collect::<Vec<_>>());
        let quartiles = || (quantile(&ratios, 0.25), quantile(&ratios, 0.75));
        (!ratios.is_empty()).then(|| Ratio { median: quantile(&ratios, 0.5), quartiles: quartiles() })
    }
}

fn sorted(rates: &[f64]) -> Vec<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile of sorted numbers, interpolated between neighbours.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.quartiles;
        write!(f, "{:.2} ({low:.2}–{high:.2})", self.median)
    }
}

#[cfg(test)]
mod tests;
