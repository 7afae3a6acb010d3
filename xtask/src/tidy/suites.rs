//! A suite that neither the gate nor `cargo xtask everything` runs: it fails unnoticed when something else changes.
//!
//! A suite is a subcommand of `xtask`, the long form of an acceptance point, a suite in the guest, a harness of
//! `polder-sim` or `polder-space`, or a feature that a package is tested with. A harness may also be run by a command
//! that is itself run. [`LEFT_OUT`] has the exceptions, each with its reason.

use clap::CommandFactory;
use serde_json::Value;

use super::{Finding, Looked, Repository};
use crate::{Xtask, accept, ci, everything, vm};

/// Suites that nothing runs, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("cargo xtask ci", "it is the gate"),
    ("cargo xtask everything", "it runs the others"),
    ("cargo xtask growth", "it is a part of `accept 11`"),
    ("cargo xtask try", "it leaves a mount behind; `accept 1` runs it and takes the mount away"),
    ("polder-sim list", "it prints names"),
];

/// The programs with harnesses: where their subcommands are declared, and how xtask's files that run them are known.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("polder-sim", "crates/sim/src/main.rs", "simulator("),
    ("polder-space", "crates/space/src/main.rs", "polder-space"),
];

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let gate = ci::commands();
    let all: Vec<String> =
        gate.into_iter().chain(everything::suites().into_iter().map(|suite| suite.words)).collect();
    let mut wanted: Vec<(String, bool)> =
        own().map(|command| (command.clone(), runs(&all, &command))).collect();
    for (program, path, called) in PROGRAMS {
        let text = repository.files.get(path).map_or("", String::as_str);
        for name in subcommands(text) {
            let is_run =
                runs(&all, &format!("{program} -- {name}")) || is_called(repository, called, program, &name);
            wanted.push((format!("{program} {name}"), is_run));
        }
    }
    wanted.extend(features(repository).map(|name| {
        let switched_on = format!("--features {name}");
        let is_run = sources(repository).any(|(_, text)| text.contains(&switched_on));
        (format!("feature {name}"), is_run)
    }));
    findings.extend(judge(&wanted, &LEFT_OUT));
    Looked::At(wanted.len(), "suites")
}

/// Each suite is run or left out, and not both; and each that is left out exists.
pub(super) fn judge(wanted: &[(String, bool)], left_out: &[(&str, &str)]) -> Vec<Finding> {
    let is_left_out = |suite: &str| left_out.iter().any(|(name, _)| *name == suite);
    let forgotten =
        wanted.iter().filter(|(suite, is_run)| !is_run && !is_left_out(suite)).map(|(suite, _)| {
            format!(
                "nothing runs `{suite}`: name it in xtask/src/everything.rs, or here with the reason why not"
            )
        });
    let stale =
        left_out.iter().filter(|(name, _)| !wanted.iter().any(|(suite, is_run)| suite == name && !is_run));
    let stale = stale.map(|(name, _)| format!("`{name}` is left out here, and is run or does not exist"));
    let finding = |message| Finding { path: "xtask/src/tidy/suites.rs".to_owned(), line: 0, message };
    forgotten.chain(stale).map(finding).collect()
}

/// The commands of xtask that show something.
fn own() -> impl Iterator<Item = String> {
    let commands = Xtask::command();
    let commands: Vec<String> =
        commands.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let points = accept::POINTS.iter().map(|point| format!("accept {} --seed {{seed}}", point.number));
    let guests = vm::names().map(|name| format!("vm {name}"));
    commands.into_iter().chain(points).chain(guests).map(|words| format!("cargo xtask {words}"))
}

/// Whether one of the commands begins so, or has these words in it.
fn runs(commands: &[String], words: &str) -> bool {
    let has = |command: &String| format!("{command} ").contains(&format!("{words} "));
    commands.iter().any(has)
}

/// Whether a command of xtask, or a script of a guest, runs the harness.
fn is_called(repository: &Repository, called: &str, program: &str, name: &str) -> bool {
    let (quoted, typed) = (format!("\"{name}\""), format!("{program} {name}"));
    sources(repository).any(|(path, text)| match path.ends_with(".sh") {
        true => text.split(&typed).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric)),
        false => text.contains(called) && text.contains(&quoted),
    })
}

/// The sources of xtask, without tests and tidy.
fn sources(repository: &Repository) -> impl Iterator<Item = (&str, &str)> {
    let is_own =
        |path: &str| path.starts_with("xtask/src/") && !path.contains("tests") && !path.contains("/tidy/");
    let files = repository.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    files.filter(move |(path, _)| is_own(path))
}

/// The subcommands that a program declares: the variants of its enum below `#[derive(Subcommand)]`.
pub(super) fn subcommands(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| {
        !line.trim_start_matches("#[derive(clap::").starts_with("Subcommand")
            && !line.starts_with("#[derive(Subcommand")
    });
    let lines = lines.skip(2).take_while(|line| *line != "}");
    let variants =
        lines.filter(|line| line.starts_with("    ") && !line.trim_start().starts_with(['/', '#']));
    variants
        .map(|line| line.trim().split(['(', ',', ' ']).next().unwrap_or_default().to_lowercase())
        .collect()
}

fn features(repository: &Repository) -> impl Iterator<Item = String> {
    let all = repository.packages().iter().filter_map(|package| package["features"].as_object());
    let mut names: Vec<String> =
        all.flat_map(|features: &serde_json::Map<String, Value>| features.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names.into_iter()
}
