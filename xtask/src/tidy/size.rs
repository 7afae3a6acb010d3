//! Files that have grown beyond what one can hold in mind.

use super::{Finding, Looked, Repository};

/// Aim at 500; above this there is a second noun in the file.
const MOST_LINES: usize = 900;

/// A decision record is read at one go.
const MOST_WORDS: usize = 400;

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in &repository.files {
        let (length, most) = match path {
            path if is_source(path) => (text.lines().count(), MOST_LINES),
            path if is_decision(path) => (text.split_whitespace().count(), MOST_WORDS),
            _ => continue,
        };
        looked += 1;
        if length > most {
            let message = match most {
                MOST_WORDS => format!("{length} words, more than {most}: leave out what did not decide it"),
                _ => format!("{length} lines, more than {most}: find the second noun and move it out"),
            };
            findings.push(Finding { path: path.clone(), line: 0, message });
        }
    }
    Looked::At(looked, "files")
}

fn is_decision(path: &str) -> bool {
    let name = path.strip_prefix("docs/decisions/");
    name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_digit()))
}

fn is_source(path: &str) -> bool {
    [".rs", ".sh", ".h", ".c", ".cc", ".cpp", ".py"].iter().any(|extension| path.ends_with(extension))
}
