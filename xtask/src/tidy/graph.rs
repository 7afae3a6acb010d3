//! The graph of crates is the architecture: each may use only what is to its left, and a few
//! dependencies from outside stay on their side of it.

use serde_json::Value;

use super::{Finding, Looked, Repository};

/// The order of the crates. A new crate is a decision: see `docs/decisions/`.
const ORDER: [&str; 6] =
    ["polder-rt", "polder-zone", "polder-tree", "polder-extent", "polder-fs", "polder-fuse"];

/// How much of the order the other crates may use. No crate may use one of these, but for [`FENCES`].
const CONSUMERS: [(&str, Option<&str>); 7] = [
    ("polder", Some("polder-fuse")),
    ("polder-capi", Some("polder-fs")),
    ("polder-sim", Some("polder-fs")),
    ("polder-space", Some("polder-fs")),
    ("polder-support", None),
    ("polder-system-tests", Some("polder-rt")),
    ("xtask", Some("polder-rt")),
];

/// The crates that are programs, or serve programs only.
const PROGRAMS: [&str; 6] =
    ["polder", "polder-sim", "polder-space", "polder-support", "polder-system-tests", "xtask"];

/// Dependencies that only some may have.
const FENCES: [(&str, &[&str], &str); 6] = [
    ("anyhow", &PROGRAMS, "below the command errors are typed"),
    ("clap", &PROGRAMS, "the command line is defined once"),
    ("polder-support", &["xtask", "polder-system-tests"], "it serves the project's own commands"),
    ("io-uring", &["polder-zone"], "nothing above zone does device I/O (I-ZONE-1)"),
    ("parking_lot", &["polder-rt"], "locks come from rt"),
    ("shuttle", &["polder-rt"], "locks come from rt"),
];

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for package in repository.packages() {
        let name = package["name"].as_str().unwrap_or_default();
        let mut complain = |message| findings.push(Finding { path: manifest(name), line: 0, message });
        if reach(name).is_none() {
            complain(format!(
                "crate `{name}` has no place in the graph: decide one, and record the decision"
            ));
        }
        for dependency in dependencies(package) {
            looked += 1;
            if let Some(message) = wrong(name, dependency) {
                complain(message);
            }
        }
    }
    Looked::At(looked, "dependencies")
}

/// The names of a package's dependencies of every kind: a test that reaches to the right is a
/// cycle too.
fn dependencies(package: &Value) -> impl Iterator<Item = &str> {
    let all = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(|dependency| dependency["name"].as_str())
}

/// How many crates of the order a crate may use.
fn reach(name: &str) -> Option<usize> {
    let place = |wanted: &str| ORDER.iter().position(|crate_name| *crate_name == wanted);
    let last = CONSUMERS.iter().find(|(consumer, _)| *consumer == name).map(|(_, last)| *last);
    match last {
        Some(last) => last.map_or(Some(0), |last| place(last).map(|index| index + 1)),
        None => place(name),
    }
}

/// What is wrong with `name` depending on `dependency`.
fn wrong(name: &str, dependency: &str) -> Option<String> {
    if let Some((_, users, why)) = FENCES.iter().find(|(fenced, _, _)| *fenced == dependency) {
        return (!users.contains(&name))
            .then(|| format!("`{dependency}` is for {}: {why}", users.join(", ")));
    }
    if CONSUMERS.iter().any(|(consumer, _)| *consumer == dependency) {
        return Some(format!("`{dependency}` is used by nobody: move what is shared to the left"));
    }
    let place = ORDER.iter().position(|crate_name| *crate_name == dependency)?;
    let allowed = &ORDER[..reach(name).unwrap_or(0)];
    (place >= allowed.len()).then(|| {
        let allowed = if allowed.is_empty() { "no other crate".to_owned() } else { allowed.join(", ") };
        format!("depends on `{dependency}`, which is to its right; it may use {allowed}")
    })
}

fn manifest(name: &str) -> String {
    match name {
        "xtask" => "xtask/Cargo.toml".to_owned(),
        "polder" => "crates/cli/Cargo.toml".to_owned(),
        "polder-support" => "tests/support/Cargo.toml".to_owned(),
        "polder-system-tests" => "tests/system/Cargo.toml".to_owned(),
        name => format!("crates/{}/Cargo.toml", name.trim_start_matches("polder-")),
    }
}
