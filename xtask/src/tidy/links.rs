//! Links between the documents lead to a file, and to a heading if they name one. Citations of functions name functions:
//! `` `name` (path/file.rs) ``.

use super::modules::joined;
use super::rust::is_word;
use super::{Finding, Looked, Repository};

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in repository.with_extension("md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            for (target, heading) in local_targets(line) {
                looked += 1;
                let file = if target.is_empty() { path.to_owned() } else { joined(folder, target) };
                if let Some(message) = wrong(repository, &file, target, heading) {
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

/// Why a link to this file and heading leads nowhere.
fn wrong(repository: &Repository, file: &str, target: &str, heading: Option<&str>) -> Option<String> {
    if !exists(repository, file) {
        return Some(format!("the link to `{target}` leads nowhere"));
    }
    let heading = heading?;
    let text = repository.files.get(file).filter(|_| file.ends_with(".md"))?;
    let is_there = anchors(text).any(|anchor| anchor == heading);
    (!is_there).then(|| format!("{file} has no heading with the anchor `{heading}`"))
}

/// The targets of `[text](target)` in a line that are in this repository: the file (empty: this one) and the anchor.
pub(super) fn local_targets(line: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://") && !target.is_empty())
        .map(|target| target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading))))
}

/// The anchors of the headings of a document, as mdBook and hosts of repositories make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut in_block = false;
    text.lines().filter_map(move |line| {
        in_block ^= line.starts_with("```");
        let heading =
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#') && !in_block)?;
        Some(anchor(&without_targets(heading)))
    })
}

/// The text of a heading without the targets of its links.
fn without_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

fn anchor(heading: &str) -> String {
    let plain = |character: char| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    };
    heading.trim().chars().filter_map(plain).flat_map(char::to_lowercase).collect()
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
