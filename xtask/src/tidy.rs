//! The rules of the house that compiler and linter cannot see.
//!
//! A rule is a function from the repository's text to findings, in a file of its own under `tidy/`
//! and one line in [`RULES`]. It reports how much it looked at: a rule that looked at nothing fails,
//! because it would pass whatever stood in the repository. `tidy` is also a test, and each rule has
//! tests that plant what it forbids.
//!
//! It does not judge style that `rustfmt` and `clippy` judge, and it compiles nothing.

mod book;
mod commands;
mod decoders;
mod features;
mod graph;
mod invariants;
mod links;
mod manual;
mod modules;
mod rust;
mod size;
mod unsafety;
mod walls;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail};
use serde_json::Value;
use support::shell::Line;
use support::workspace;

/// A rule: adds its findings, says what it looked at.
type Rule = fn(&Repository, &mut Vec<Finding>) -> Looked;

const RULES: [(&str, Rule); 13] = [
    ("words", words::check),
    ("unsafe", unsafety::check),
    ("modules", modules::check),
    ("size", size::check),
    ("walls", walls::check),
    ("graph", graph::check),
    ("features", features::check),
    ("invariants", invariants::check),
    ("decoders", decoders::check),
    ("commands", commands::check),
    ("links", links::check),
    ("manual", manual::check),
    ("book", book::check),
];

/// How much a rule looked at.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// So many of these.
    At(usize, &'static str),
    /// What the rule is about does not exist yet.
    Skipped(&'static str),
}

/// Something that is not as the house wants it.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// Relative to the root.
    path: String,
    /// From 1; 0 when it is about the whole file.
    line: usize,
    /// What is wrong and what to do instead.
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// What the rules look at.
#[derive(Debug, Default)]
struct Repository {
    /// The text files that git knows or would add, by path relative to the root.
    files: BTreeMap<String, String>,
    /// What cargo says of the workspace's packages.
    metadata: Value,
}

impl Repository {
    /// The checkout that this program was built from.
    fn of_checkout() -> Result<Self> {
        let listed = Line::new("git ls-files --cached --others --exclude-standard -z").output()?;
        let root = workspace::root();
        let mut files = BTreeMap::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // Files that are listed but gone, and golden images, are not text to be judged.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.insert(path.to_owned(), text);
            }
        }
        Ok(Repository { files, metadata: workspace::metadata()? })
    }

    /// The Rust sources.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_extension("rs")
    }

    fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.rsplit_once('.').is_some_and(|(_, found)| found == extension))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The packages of the workspace.
    fn packages(&self) -> &[Value] {
        self.metadata["packages"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Applies all rules to this checkout; an error if there is a finding.
pub(crate) fn run() -> Result<()> {
    let repository = Repository::of_checkout()?;
    let mut found = 0;
    for (name, rule) in RULES {
        let (said, findings) = apply(&repository, rule);
        println!("{name:<11} {said}");
        findings.iter().for_each(|finding| println!("    {finding}"));
        found += findings.len();
    }
    if found > 0 {
        bail!("{found} findings; each line above says what to do instead");
    }
    Ok(())
}

/// Applies one rule; having looked at nothing is itself a finding.
fn apply(repository: &Repository, rule: Rule) -> (String, Vec<Finding>) {
    let mut findings = Vec::new();
    let said = match rule(repository, &mut findings) {
        Looked::Skipped(why) => format!("skipped: {why}"),
        Looked::At(0, what) => {
            let message = format!("the rule found no {what} to look at, so it would pass whatever is there");
            findings.push(Finding { path: ".".to_owned(), line: 0, message });
            format!("0 {what}")
        }
        Looked::At(count, what) => format!("{count} {what}, {} findings", findings.len()),
    };
    (said, findings)
}

#[cfg(test)]
mod tests;
