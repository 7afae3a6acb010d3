//! Every subcommand of `polder` has a section in the manual, headed by its name.

use support::kebab;

use super::rust::{has_word, mask};
use super::{Finding, Looked, Repository};

const MANUAL: &str = "docs/manual.md";
const COMMAND: &str = "crates/cli/src/";

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let commands: Vec<(String, String)> = repository
        .rust()
        .filter(|(path, _)| path.starts_with(COMMAND))
        .flat_map(|(path, text)| subcommands(text).into_iter().map(|name| (path.to_owned(), name)))
        .collect();
    if commands.is_empty() {
        return Looked::Skipped("`polder` has no subcommands yet");
    }
    let Some(manual) = repository.files.get(MANUAL) else {
        return Looked::Skipped("docs/manual.md is not there yet");
    };
    for (path, name) in &commands {
        let wanted = format!("polder {name}");
        let mut headings = manual.lines().filter(|line| line.starts_with('#'));
        if !headings.any(|line| has_word(line, &wanted)) {
            let message = format!("{MANUAL} has no section on `{wanted}`: write one under that heading");
            findings.push(Finding { path: path.clone(), line: 0, message });
        }
    }
    Looked::At(commands.len(), "subcommands")
}

/// The names of the variants of every enum that derives `Subcommand`, as clap makes them.
fn subcommands(text: &str) -> Vec<String> {
    let code = mask(text).code;
    let mut names = Vec::new();
    for (at, _) in code.match_indices("Subcommand") {
        let in_derive = code[..at]
            .rfind("#[")
            .is_some_and(|from| code[from..at].starts_with("#[derive(") && !code[from..at].contains(']'));
        if in_derive && let Some(body) = enum_body(&code[at..]) {
            names.extend(variants(body).map(kebab));
        }
    }
    names
}

/// What stands between the braces of the first enum.
fn enum_body(code: &str) -> Option<&str> {
    let body = &code[code.find("enum ")?..];
    let body = &body[body.find('{')? + 1..];
    let mut depth = 1;
    let end = body.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    })?;
    Some(&body[..end])
}

/// The first word after each comma that stands outside every bracket.
fn variants(body: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    body.split(move |c| {
        depth += i32::from("({[".contains(c)) - i32::from(")}]".contains(c));
        c == ',' && depth == 0
    })
    .filter_map(|variant| {
        let name = without_attributes(variant).split(|c: char| !c.is_alphanumeric()).next()?;
        (!name.is_empty()).then_some(name)
    })
}

/// A variant from its name on.
fn without_attributes(variant: &str) -> &str {
    let mut rest = variant.trim_start();
    while rest.starts_with("#[") {
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ']' && depth == 0
        });
        rest = end.map_or("", |end| rest[end + 1..].trim_start());
    }
    rest
}
