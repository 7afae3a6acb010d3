//! Links between the documents lead somewhere, and so do citations of functions: `` `name` (path/file.rs) ``.

use super::modules::joined;
use super::rust::is_word;
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
            for (name, file) in citations(line) {
                looked += 1;
                if !has_function(repository, file, name) {
                    let message = format!("`{name}` is no function of {file}: cite it by its name of today");
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

/// The functions and files of `` `name` (path/file.rs) `` in a line.
fn citations(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split("` (").zip(line.split("` (").skip(1)).filter_map(|(before, behind)| {
        let name = before.rsplit('`').next().filter(|name| is_name(name))?;
        let file = behind.split(')').next().filter(|file| file.ends_with(".rs") && file.contains('/'))?;
        Some((name, file))
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_word)
}

fn has_function(repository: &Repository, file: &str, name: &str) -> bool {
    let of_file = |text: &String| {
        text.match_indices(&format!("fn {name}"))
            .any(|(at, found)| !text[at + found.len()..].bytes().next().is_some_and(is_word))
    };
    repository.files.get(file).is_some_and(of_file)
}

/// A file, or a folder with a file in it.
fn exists(repository: &Repository, path: &str) -> bool {
    let folder = format!("{path}/");
    repository.files.keys().any(|file| file == path || file.starts_with(&folder))
}
