//! Every document below `docs` is a chapter of the book (`book.toml`), is in it once, and links only to its files.
//!
//! mdBook leaves out documents that the summary does not name, and everything that is not below `docs`.

use std::collections::BTreeMap;

use super::links::local_targets;
use super::modules::joined;
use super::{Finding, Looked, Repository};

const FOLDER: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let Some(summary) = repository.files.get(SUMMARY) else {
        return Looked::Skipped("docs/SUMMARY.md is not there yet");
    };
    let named = chapters(summary);
    for (chapter, lines) in &named {
        if let Some(again) = lines.get(1) {
            let message = format!("{chapter} is in the book already: name it once");
            findings.push(Finding { path: SUMMARY.to_owned(), line: *again, message });
        }
    }
    let documents =
        repository.with_extension("md").filter(|(path, _)| path.starts_with(FOLDER) && *path != SUMMARY);
    let mut looked = 0;
    for (document, text) in documents {
        looked += 1;
        check_links(document, text, findings);
        check_included(repository, document, text, findings);
        if !named.contains_key(document) {
            let message = format!("is in no line of {SUMMARY}: add one, or the book lacks it");
            findings.push(Finding { path: document.to_owned(), line: 0, message });
        }
    }
    Looked::At(looked, "chapters")
}

/// Links that lead out of the book.
fn check_links(document: &str, text: &str, findings: &mut Vec<Finding>) {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (index, line) in text.lines().enumerate() {
        for (target, _) in local_targets(line) {
            if !joined(folder, target).starts_with(FOLDER) && !target.is_empty() {
                let message = format!("`{target}` is not in the book: name the file without a link");
                findings.push(Finding { path: document.to_owned(), line: index + 1, message });
            }
        }
    }
}

/// A file of another folder that is a chapter: a link of it would lead elsewhere in the book.
fn check_included(repository: &Repository, document: &str, text: &str, findings: &mut Vec<Finding>) {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let names = text.lines().filter_map(|line| line.strip_prefix("{{#include ")?.strip_suffix("}}"));
    for path in names.map(|name| joined(folder, name)) {
        let Some(included) = repository.files.get(&path) else {
            let message = format!("includes {path}, which is not there");
            findings.push(Finding { path: document.to_owned(), line: 1, message });
            continue;
        };
        for (index, line) in included.lines().enumerate() {
            for (target, _) in local_targets(line).filter(|(target, _)| !target.is_empty()) {
                let message = format!(
                    "`{target}`: {document} includes this file, so name the other one without a link"
                );
                findings.push(Finding { path: path.clone(), line: index + 1, message });
            }
        }
    }
}

/// The documents that the summary names, with the numbers of the lines.
fn chapters(summary: &str) -> BTreeMap<String, Vec<usize>> {
    let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut in_comment = false;
    for (index, line) in summary.lines().enumerate() {
        in_comment |= line.contains("<!--");
        let target =
            line.rsplit_once("](").and_then(|(_, rest)| rest.split_once(')')).map(|(target, _)| target);
        if let Some(target) = target.filter(|_| !in_comment) {
            named.entry(joined("docs", target)).or_default().push(index + 1);
        }
        in_comment &= !line.contains("-->");
    }
    named
}
