//! The results file: one line for each suite, with its newest result.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use support::shell::Line;

use super::Suite;

pub(super) const FILE: &str = "docs/results/everything.csv";
const HEADING: &str = "suite,commit,seed,seconds,result,ended,why";
/// Limit for the length of a recorded reason.
const WHY_MAX: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// The machine lacks something, or a part was left out. Nothing was proved.
    Skipped,
}

/// The result of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) suite: String,
    pub(super) commit: String,
    /// Empty if nothing is random.
    pub(super) seed: String,
    pub(super) seconds: u64,
    pub(super) verdict: Verdict,
    /// UTC, as `2026-01-31T12:00:00Z`, so that later times are greater.
    pub(super) ended: String,
    pub(super) why: String,
}

/// By the names of suites.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<String, Row>);

impl Row {
    /// A result that ends now.
    pub(super) fn new(
        suite: &str,
        commit: &str,
        seed: Option<u32>,
        seconds: u64,
        verdict: Verdict,
        why: &str,
    ) -> Result<Row> {
        let ended = Line::new("date --utc +%Y-%m-%dT%H:%M:%SZ").output()?.trim().to_owned();
        let why =
            why.chars().map(|c| if c == ',' || c.is_control() { ';' } else { c }).take(WHY_MAX).collect();
        let seed = seed.map_or(String::new(), |seed| seed.to_string());
        Ok(Row { suite: suite.to_owned(), commit: commit.to_owned(), seed, seconds, verdict, ended, why })
    }

    pub(super) fn parse(line: &str) -> Result<Row> {
        let fields: Vec<&str> = line.split(',').collect();
        let [suite, commit, seed, seconds, verdict, ended, why] = fields[..] else {
            bail!("`{line}` has not the fields {HEADING}");
        };
        let verdicts = [Verdict::Passed, Verdict::Failed, Verdict::Skipped];
        let found = verdicts.into_iter().find(|known| known.to_string() == verdict);
        let [suite, commit, seed, ended, why] = [suite, commit, seed, ended, why].map(str::to_owned);
        let verdict = found.with_context(|| format!("`{verdict}` is no result"))?;
        let seconds = seconds.parse().with_context(|| format!("`{seconds}` is no number of seconds"))?;
        Ok(Row { suite, commit, seed, seconds, verdict, ended, why })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { suite, commit, seed, seconds, verdict, ended, why } = self;
        write!(f, "{suite},{commit},{seed},{seconds},{verdict},{ended},{why}")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
        })
    }
}

impl Results {
    /// Reads a file; empty if there is none.
    pub(super) fn read(path: &Path) -> Result<Results> {
        if !path.exists() {
            return Ok(Results::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Results::parse(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn parse(text: &str) -> Result<Results> {
        let mut lines = text.lines();
        ensure!(lines.next() == Some(HEADING), "the first line is not `{HEADING}`");
        let mut results = Results::default();
        lines.try_for_each(|line| Row::parse(line).map(|row| results.put(row)))?;
        Ok(results)
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let rows: String = self.0.values().map(|row| format!("{row}\n")).collect();
        let folder = path.parent().context("the results lie in a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(path, format!("{HEADING}\n{rows}")).with_context(|| path.display().to_string())
    }

    /// Adds a result, unless a newer one of the same suite is known.
    pub(super) fn put(&mut self, row: Row) {
        match self.0.get(&row.suite) {
            Some(known) if known.ended > row.ended => {}
            _ => drop(self.0.insert(row.suite.clone(), row)),
        }
    }

    pub(super) fn merge(&mut self, others: Results) {
        others.0.into_values().for_each(|row| self.put(row));
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// How long a suite took.
    pub(super) fn seconds(&self, suite: &str) -> Option<u64> {
        self.0.get(suite).map(|row| row.seconds)
    }

    /// Fails unless every suite with a long form has a result, all of one commit, and each has passed as a whole. Prints
    /// the others with their reasons: a suite that was skipped, or of which a part was left out, has not shown what it
    /// is for.
    pub(super) fn check(&self, suites: &[Suite]) -> Result<()> {
        let suites: Vec<&Suite> = suites.iter().filter(|suite| suite.long.is_some()).collect();
        let found: Vec<&Row> = suites.iter().filter_map(|suite| self.0.get(&suite.name)).collect();
        let missing = suites.iter().filter(|suite| !self.0.contains_key(&suite.name));
        let missing: Vec<&str> = missing.map(|suite| suite.name.as_str()).collect();
        ensure!(missing.is_empty(), "there is no result of: {}", missing.join(", "));
        let commit = &found[0].commit;
        if let Some(other) = found.iter().find(|row| row.commit != *commit) {
            bail!("`{}` was run on {commit} and `{}` on {}", found[0].suite, other.suite, other.commit);
        }
        let mut reasons = Vec::new();
        for verdict in [Verdict::Skipped, Verdict::Failed] {
            let rows: Vec<&&Row> = found.iter().filter(|row| row.verdict == verdict).collect();
            rows.iter().for_each(|row| println!("{verdict}: {}: {}", row.suite, row.why));
            if !rows.is_empty() {
                let names: Vec<&str> = rows.iter().map(|row| row.suite.as_str()).collect();
                reasons.push(format!("{verdict} on {commit}: {}", names.join(", ")));
            }
        }
        ensure!(reasons.is_empty(), "{}", reasons.join("; "));
        println!("all {} suites have passed on {commit}", found.len());
        Ok(())
    }
}
