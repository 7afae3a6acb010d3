//! Commands that the documents tell people to type must exist.

use clap::Parser;
use support::markdown::fenced_lines;

use super::{Finding, Looked, Repository};
use crate::Xtask;

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in repository.with_extension("md") {
        for (line, command) in fenced_lines(text) {
            let command = command.split(" #").next().unwrap_or(command);
            let Some(args) = command.strip_prefix("cargo xtask ") else { continue };
            looked += 1;
            if let Err(error) = Xtask::try_parse_from(std::iter::once("xtask").chain(args.split_whitespace()))
            {
                let why = error.to_string();
                let why = why.lines().next().unwrap_or("it cannot be parsed");
                let message = format!("`{command}` is no command of ours: {why}");
                findings.push(Finding { path: path.to_owned(), line, message });
            }
        }
    }
    Looked::At(looked, "commands")
}
