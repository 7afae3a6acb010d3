//! The graph of crates is the architecture: each may use only what is to its left, and a few
//! dependencies from outside stay on their side of it.

use serde_json::Value;

use super::{Finding, Looked, Repository};

/// The order of the crates. A new crate is a decision: see `docs/decisions/`.
const ORDER: [&str; 6] =
    ["polder-rt", "polder-zone", "polder-tree", "polder-extent", "polder-fs", "polder-fuse"];

/// Who may use how much of the order; those who are not in it are used by nobody.
const CONSUMERS: [(&str, &str); 5] = [
    ("polder", "polder-fuse"),
    ("polder-capi", "polder-fs"),
    ("polder-sim", "polder-fs"),
    ("polder-space", "polder-fs"),
    ("xtask", "polder-rt"),
];

/// Dependencies from outside that only some may have.
const FENCES: [(&str, &[&str], &str); 5] = [
    ("anyhow", &["polder", "polder-sim", "polder-space", "xtask"], "below the command errors are typed"),
    ("clap", &["polder", "polder-sim", "polder-space", "xtask"], "the command line is defined once"),
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
        Some(last) => place(last).map(|index| index + 1),
        None => place(name),
    }
}

/// What is wrong with `name` depending on `dependency`.
fn wrong(name: &str, dependency: &str) -> Option<String> {
    if CONSUMERS.iter().any(|(consumer, _)| *consumer == dependency) {
        return Some(format!("`{dependency}` is used by nobody: move what is shared to the left"));
    }
    if let Some((_, who, why)) = FENCES.iter().find(|(fenced, _, _)| *fenced == dependency) {
        return (!who.contains(&name)).then(|| format!("`{dependency}` is for {}: {why}", who.join(", ")));
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
        name => format!("crates/{}/Cargo.toml", name.trim_start_matches("polder-")),
    }
}
