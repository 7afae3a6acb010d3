//! Invariants have names (I-TREE-1). One that no source cites is held by nothing; one that no
//! document states is a word without a meaning.

use std::collections::BTreeMap;

use super::{Finding, Looked, Repository};

/// The document that states them; until it is there only the first half can be checked.
const STATED_IN: &str = "docs/design.md";

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let stated = places(repository.with_extension("md"));
    let cited = places(repository.rust().filter(|(path, _)| !is_own_tool(path)));
    if stated.is_empty() {
        return Looked::Skipped("no document states an invariant yet");
    }
    let missing = |from: &BTreeMap<String, (String, usize)>, name: &str| !from.contains_key(name);
    for (name, (path, line)) in stated.iter().filter(|(name, _)| missing(&cited, name)) {
        let message = format!("no source cites {name}: name it at the assert or test that holds it");
        findings.push(Finding { path: path.clone(), line: *line, message });
    }
    if repository.files.contains_key(STATED_IN) {
        for (name, (path, line)) in cited.iter().filter(|(name, _)| missing(&stated, name)) {
            let message = format!("no document states {name}: state it in {STATED_IN}");
            findings.push(Finding { path: path.clone(), line: *line, message });
        }
    }
    Looked::At(stated.len(), "invariants")
}

/// Whether a file belongs to the project's own commands, which hold no invariant.
fn is_own_tool(path: &str) -> bool {
    path.starts_with("xtask/") || path.starts_with("tests/")
}

/// The first place of each name.
fn places<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, (String, usize)> {
    let mut places = BTreeMap::new();
    for (path, text) in files {
        for (index, line) in text.lines().enumerate() {
            for name in names(line) {
                places.entry(name.to_owned()).or_insert_with(|| (path.to_owned(), index + 1));
            }
        }
    }
    places
}

/// Names of the form I-ZONE-1 in a line.
fn names(line: &str) -> Vec<&str> {
    let starts = line.match_indices("I-").map(|(at, _)| at);
    starts
        .filter(|&at| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-'))
        .filter_map(|at| name_at(&line[at..]))
        .collect()
}

fn name_at(text: &str) -> Option<&str> {
    let letters = text[2..].bytes().take_while(u8::is_ascii_uppercase).count();
    let digits_at = 2 + letters + 1;
    let digits = text.get(digits_at..)?.bytes().take_while(u8::is_ascii_digit).count();
    let whole = letters > 0 && digits > 0 && text.as_bytes()[digits_at - 1] == b'-';
    whole.then(|| &text[..digits_at + digits])
}
