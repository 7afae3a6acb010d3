//! Commands that the documents tell people to type must exist.

use clap::Parser;
use support::markdown::fenced_lines;

use super::{Finding, Looked, Repository};
use crate::{Task, Xtask};

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in repository.with_extension("md") {
        for (line, command) in fenced_lines(text) {
            let command = command.split(" #").next().unwrap_or(command);
            let Some(args) = command.strip_prefix("cargo xtask ") else { continue };
            looked += 1;
            if let Some(why) = wrong(args) {
                let message = format!("`{command}` is no command of ours: {why}");
                findings.push(Finding { path: path.to_owned(), line, message });
            }
        }
    }
    Looked::At(looked, "commands")
}

/// Why these are no arguments of `cargo xtask`. It takes the commands of `cargo system` as well; a document gives them
/// under that name, and a test there parses them.
fn wrong(args: &str) -> Option<String> {
    match Xtask::try_parse_from(std::iter::once("xtask").chain(args.split_whitespace())) {
        Ok(Xtask { task: Task::System(_) }) => {
            Some("if it is one of the system tests, write `cargo system …`".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string().lines().next().unwrap_or("it cannot be parsed").to_owned()),
    }
}
