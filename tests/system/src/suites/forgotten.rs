//! Finds suites that neither the gate nor `cargo system run` runs: they would fail unnoticed after other changes.
//!
//! Such a suite is a command of `xtask` or of this program, the long form of an acceptance point, a suite in the
//! guest, a harness of `polder-sim` or `polder-space`, or a feature with which a package is tested. A harness may
//! also be run by a command that is itself run. [`LEFT_OUT`] has the exceptions, each with its reason.

use std::path::Path;

use clap::{CommandFactory, Parser};
use support::kebab;
use support::markdown::fenced_lines;
use support::shell::Line;
use support::workspace;

use crate::{System, accept, vm};

/// Suites that nothing runs, and why.
const LEFT_OUT: [(&str, &str); 12] = [
    ("cargo xtask ci", "it is the gate"),
    ("cargo xtask try", "it leaves a mount behind; `accept/fresh-clone` runs it and removes the mount"),
    ("cargo xtask stage", "it leaves files behind; `package` does the same in a directory of its own"),
    ("cargo xtask system", "it stands for every command of this program"),
    ("cargo system run", "it runs the others"),
    ("cargo system results", "it judges what was recorded"),
    ("cargo system everything", "it is an older spelling of the other commands"),
    ("cargo system growth", "it is a part of `accept/scale`"),
    ("polder-sim list", "it prints names"),
    ("feature default", "every build has it unless it says otherwise"),
    ("feature objects", "it is on by default, so every test of `polder` and `polder-cli` has it"),
    ("polder-sim counted", "`instructions` runs it under Valgrind"),
];

/// The file with the gate's commands.
const GATE: &str = "xtask/src/ci.rs";
/// The gate gets the suites of this program from this command.
const SUITES_OF_GATE: &str = "cargo system list --gate";
/// The sources of this program.
const SOURCES: &str = "tests/system/src/";

/// The programs with harnesses: where their subcommands are declared, and the patterns of calls.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("polder-sim", "crates/sim/src/main.rs", "simulator("),
    ("polder-space", "crates/space/src/main.rs", "polder-space"),
];

/// Checks that each suite is either run or left out, and that each suite that is left out exists.
fn judge(wanted: &[(String, bool)], left_out: &[(&str, &str)]) -> Vec<String> {
    let is_left_out = |suite: &str| left_out.iter().any(|(name, _)| *name == suite);
    let forgotten = wanted.iter().filter(|(suite, is_run)| !is_run && !is_left_out(suite));
    let forgotten = forgotten.map(|(suite, _)| {
        format!("nothing runs `{suite}`: name it in {SOURCES}suites.rs, or here with a reason")
    });
    let stale =
        left_out.iter().filter(|(name, _)| !wanted.iter().any(|(suite, is_run)| suite == name && !is_run));
    let stale = stale.map(|(name, _)| format!("`{name}` is left out here, and is run or does not exist"));
    forgotten.chain(stale).collect()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(workspace::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The commands of the gate and of `cargo system run`.
fn commands() -> Vec<String> {
    let gate = text(GATE);
    let gate = gate.split('"').filter(|word| word.starts_with("cargo ")).map(str::to_owned);
    let suites = super::all().into_iter().flat_map(|suite| {
        let quick = suite.quick.filter(|_| suite.in_gate);
        suite.long.into_iter().chain(quick)
    });
    gate.chain(suites).collect()
}

/// The commands of `xtask` and of this program.
fn own() -> Vec<String> {
    let xtask = subcommands(&text("xtask/src/main.rs"));
    assert!(xtask.len() > 3, "the commands of xtask are not found: {xtask:?}");
    let xtask = xtask.iter().map(|name| format!("cargo xtask {name}"));
    let ours = System::command();
    let ours: Vec<String> = ours.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let points = accept::POINTS.iter().map(|point| format!("accept {} --seed {{seed}}", point.name));
    let guests = vm::names().map(|name| format!("vm {name}"));
    xtask
        .chain(ours.into_iter().chain(points).chain(guests).map(|words| format!("cargo system {words}")))
        .collect()
}

/// The subcommands that a program declares: the variants of its enum below `#[derive(Subcommand)]`.
fn subcommands(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| {
        !line.trim_start_matches("#[derive(clap::").starts_with("Subcommand")
            && !line.starts_with("#[derive(Subcommand")
    });
    let lines = lines.skip(2).take_while(|line| *line != "}");
    let variants =
        lines.filter(|line| line.starts_with("    ") && !line.trim_start().starts_with(['/', '#']));
    variants.map(|line| kebab(line.trim().split(['(', ',', ' ']).next().unwrap_or_default())).collect()
}

/// Whether one of the commands begins with these words, or contains them.
fn runs(commands: &[String], words: &str) -> bool {
    commands.iter().any(|command| format!("{command} ").contains(&format!("{words} ")))
}

/// The sources of this program without its tests, by path.
fn sources() -> Vec<(String, String)> {
    let listed =
        Line::new("git ls-files --cached --others --exclude-standard").arg(SOURCES).output().unwrap();
    let is_test = |path: &str| path.ends_with("tests.rs") || path.ends_with("suites/forgotten.rs");
    let paths = listed.lines().filter(|path| !is_test(path) && workspace::root().join(path).is_file());
    paths.map(|path| (path.to_owned(), text(path))).collect()
}

/// Whether a command of this program, or a script of a guest, runs the harness.
fn is_called(sources: &[(String, String)], called: &str, program: &str, name: &str) -> bool {
    let (quoted, typed) = (format!("\"{name}\""), format!("{program} {name}"));
    sources.iter().any(|(path, text)| match path.ends_with(".sh") {
        true => text.split(&typed).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric)),
        false => text.contains(called) && text.contains(&quoted),
    })
}

/// The features of all packages.
fn features() -> Vec<String> {
    let metadata = workspace::metadata().unwrap();
    let packages = metadata["packages"].as_array().expect("there are packages");
    let all = packages.iter().filter_map(|package| package["features"].as_object());
    let mut names: Vec<String> = all.flat_map(|features| features.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn no_suite_is_forgotten() {
    let (commands, sources) = (commands(), sources());
    let mut wanted: Vec<(String, bool)> =
        own().into_iter().map(|command| (command.clone(), runs(&commands, &command))).collect();
    for (program, path, called) in PROGRAMS {
        let names = subcommands(&text(path));
        assert!(!names.is_empty(), "the subcommands of {program} are not found");
        for name in names {
            let is_run = runs(&commands, &format!("{program} -- {name}"))
                || is_called(&sources, called, program, &name);
            wanted.push((format!("{program} {name}"), is_run));
        }
    }
    wanted.extend(features().into_iter().map(|name| {
        let switched_on = format!("--features {name}");
        let is_run = sources.iter().any(|(_, text)| text.contains(&switched_on));
        (format!("feature {name}"), is_run)
    }));
    let found = judge(&wanted, &LEFT_OUT);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_gate_runs_the_suites_that_are_marked_for_it() {
    assert!(commands().iter().any(|command| command == SUITES_OF_GATE), "{GATE}: no `{SUITES_OF_GATE}`");
    assert!(super::all().iter().filter(|suite| suite.in_gate).count() > accept::POINTS.len());
}

/// `tidy` does the same for `cargo xtask`.
#[test]
fn commands_in_documents_exist() {
    let listed = Line::new("git ls-files --cached --others --exclude-standard *.md").output().unwrap();
    let mut looked = 0;
    for path in listed.lines().filter(|path| Path::new(&workspace::root()).join(path).is_file()) {
        for (line, command) in fenced_lines(&text(path)) {
            let command = command.split(" #").next().unwrap_or(command);
            let Some(args) = command.strip_prefix("cargo system ") else { continue };
            looked += 1;
            let parsed = System::try_parse_from(std::iter::once("system").chain(args.split_whitespace()));
            if let Err(error) = parsed {
                panic!("{path}:{line}: `{command}` does not exist: {error}");
            }
        }
    }
    assert!(looked > 10, "only {looked} commands are found in documents");
}

const SOURCE: &str = "/// Text.\n#[derive(Subcommand)]\nenum Command {\n    /// Cut.\n    Cuts(Cuts),\n    \
                      #[command(hide = true)]\n    ListAll,\n}\n\nstruct Other(u8);\n";

#[test]
fn subcommands_are_the_variants_of_the_enum() {
    assert_eq!(subcommands(SOURCE), ["cuts", "list-all"]);
    assert_eq!(
        subcommands(&SOURCE.replace("derive(Subcommand", "derive(clap::Subcommand")),
        ["cuts", "list-all"]
    );
    assert!(subcommands("enum Command {\n    Cuts,\n}\n").is_empty());
}

fn messages(suites: &[(&str, bool)], left_out: &[(&str, &str)]) -> Vec<String> {
    let suites: Vec<_> = suites.iter().map(|(name, is_run)| ((*name).to_owned(), *is_run)).collect();
    judge(&suites, left_out)
}

#[test]
fn a_suite_that_nothing_runs_is_found() {
    let found = messages(&[("polder-sim cuts", true), ("polder-sim new", false)], &[]);
    assert!(found.len() == 1 && found[0].contains("nothing runs `polder-sim new`"), "{found:?}");
    assert!(messages(&[("polder-sim new", false)], &[("polder-sim new", "a reason")]).is_empty());
}

#[test]
fn an_unneeded_exception_is_found() {
    let left_out = [("polder-sim cuts", "a reason")];
    for suites in [&[("polder-sim cuts", true)][..], &[("polder-sim other", true)]] {
        let found = messages(suites, &left_out);
        assert!(found.len() == 1 && found[0].contains("is run or does not exist"), "{found:?}");
    }
}
