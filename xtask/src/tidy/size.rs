//! Files that have grown beyond what one can hold in mind.

use super::{Finding, Looked, Repository};

/// Aim at 500; above this there is a second noun in the file.
const MOST_LINES: usize = 900;

/// Longer files, each with the reason why it is one thing all the same.
const EXEMPT: [(&str, &str); 0] = [];

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in repository.files.iter().filter(|(path, _)| is_source(path)) {
        looked += 1;
        let lines = text.lines().count();
        if lines > MOST_LINES && !EXEMPT.iter().any(|(exempt, _)| exempt == path) {
            findings.push(Finding {
                path: path.clone(),
                line: 0,
                message: format!(
                    "{lines} lines, more than {MOST_LINES}: find the second noun and move it out"
                ),
            });
        }
    }
    Looked::At(looked, "sources")
}

fn is_source(path: &str) -> bool {
    [".rs", ".sh", ".h", ".c", ".cc", ".cpp", ".py"].iter().any(|extension| path.ends_with(extension))
}
