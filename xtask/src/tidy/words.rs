//! Words that must not stand in the repository, each with what to write instead.

use super::rust::{has_word, lines_with, mask};
use super::{Finding, Looked, Repository};

/// Where a word is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Rust code without comments and literals.
    Code,
    /// Rust comments.
    Comments,
    /// Rust sources as they are.
    Rust,
    /// Every text file.
    Everything,
}

/// A banned word.
struct Word {
    text: &'static str,
    within: Within,
    instead: &'static str,
}

const fn word(text: &'static str, within: Within, instead: &'static str) -> Word {
    Word { text, within, instead }
}

const WORDS: [Word; 13] = [
    word("todo!", Within::Code, "write it, or leave out what would call it"),
    word("unimplemented!", Within::Code, "write it, or refuse with a typed error"),
    word("dbg!", Within::Code, "use tracing"),
    word("#[ignore", Within::Code, "run the test, or make it an acceptance point"),
    word("thread::sleep", Within::Code, "wait for a condition: rt::sync::Condvar or rt::thread::Stop"),
    word("FIXME", Within::Comments, "repair it"),
    word("HACK", Within::Comments, "say why it must be so"),
    word("/tmp/", Within::Rust, "use tempfile"),
    word("/home/", Within::Everything, "no path of one machine: make it relative"),
    word("/root/", Within::Everything, "no path of one machine: make it relative"),
    word("/work/", Within::Everything, "no path of one machine: make it relative"),
    word("crates.io", Within::Everything, "name no registry's host: cargo knows its own"),
    word("docs.rs", Within::Everything, "name no registry's host: cargo knows its own"),
];

/// Files in which a rule does not hold, with the reason.
const EXEMPT: [(&str, &str); 4] = [
    ("xtask/src/tidy/", "the rules and their tests have to name what they forbid"),
    ("Cargo.lock", "written by cargo, which names its registry in every entry"),
    ("fuzz/Cargo.lock", "written by cargo, which names its registry in every entry"),
    ("ycsb/Cargo.lock", "written by cargo, which names its registry in every entry"),
];

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in &repository.files {
        if EXEMPT.iter().any(|(prefix, _)| path.starts_with(prefix)) {
            continue;
        }
        looked += 1;
        check_everywhere(path, text, findings);
        if path.ends_with(".rs") {
            check_rust(path, text, findings);
        }
    }
    Looked::At(looked, "files")
}

fn check_everywhere(path: &str, text: &str, findings: &mut Vec<Finding>) {
    check_words(path, text, Within::Everything, findings);
    if path.ends_with(".md") {
        return; // prose may speak of the word
    }
    for (index, line) in text.lines().enumerate() {
        if has_word(line, "TODO") && !has_issue_number(line) {
            let message = "TODO without the number of its issue: write TODO(#12), or do it".to_owned();
            findings.push(Finding { path: path.to_owned(), line: index + 1, message });
        }
    }
}

/// `TODO(#12)`: someone else can find out what it is about.
fn has_issue_number(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("TODO(#") else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && rest[digits..].starts_with(')')
}

fn check_rust(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let masked = mask(text);
    check_words(path, &masked.code, Within::Code, findings);
    check_words(path, &masked.comments, Within::Comments, findings);
    check_words(path, text, Within::Rust, findings);
    for attribute in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
        check_reasons(path, &masked.code, attribute, findings);
    }
}

fn check_words(path: &str, text: &str, within: Within, findings: &mut Vec<Finding>) {
    for word in WORDS.iter().filter(|word| word.within == within) {
        findings.extend(lines_with(text, word.text).map(|line| Finding {
            path: path.to_owned(),
            line,
            message: format!("`{}`: {}", word.text, word.instead),
        }));
    }
}

/// Every lint that is silenced says why.
fn check_reasons(path: &str, code: &str, attribute: &str, findings: &mut Vec<Finding>) {
    for (at, _) in code.match_indices(attribute) {
        let inside = &code[at..];
        let end = inside.find(']').unwrap_or(inside.len());
        if !has_word(&inside[..end], "reason") {
            let line = code[..at].lines().count().max(1) + usize::from(code[..at].ends_with('\n'));
            let message = "a silenced lint without `reason = \"…\"`: say why it must be so".to_owned();
            findings.push(Finding { path: path.to_owned(), line, message });
        }
    }
}
