//! Links between the documents lead somewhere.

use super::modules::joined;
use super::{Finding, Looked, Repository};

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in repository.with_extension("md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            for target in local_targets(line) {
                looked += 1;
                if !exists(repository, &joined(folder, target)) {
                    let message = format!("the link to `{target}` leads nowhere");
                    findings.push(Finding { path: path.to_owned(), line: index + 1, message });
                }
            }
        }
    }
    Looked::At(looked, "links")
}

/// The targets of `[text](target)` in a line that are files of this repository, without anchors.
fn local_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://"))
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty())
}

/// A file, or a folder with a file in it.
fn exists(repository: &Repository, path: &str) -> bool {
    let folder = format!("{path}/");
    repository.files.keys().any(|file| file == path || file.starts_with(&folder))
}
