//! The graph of crates is the architecture: each may use only what is to its left, and a few
//! dependencies from outside stay on their side of it.

use serde_json::Value;

use super::{Finding, Looked, Repository};

/// The order of the crates. A new crate is a decision: see `docs/decisions/`.
const ORDER: [&str; 8] = [
    "polder-rt",
    "polder-zone",
    "polder-pool",
    "polder-tree",
    "polder-extent",
    "polder-fs",
    "polder-fuse",
    "polder",
];

/// A crate beside the order: it may use the order up to one crate, and only those named here may use it.
struct Beside {
    name: &'static str,
    /// The last crate of the order that it may use.
    last: &'static str,
    users: &'static [&'static str],
    /// Whether tests may use it as well: those of `last` and of every crate that may use `last`.
    is_for_tests: bool,
    why: &'static str,
}

const BESIDE: [Beside; 5] = [
    Beside {
        name: "polder-attach",
        last: "polder-rt",
        users: &["polder"],
        is_for_tests: false,
        why: "the library decides what processes say to each other",
    },
    Beside {
        name: "polder-emulated",
        last: "polder-zone",
        users: &["polder-sim", "polder-space"],
        is_for_tests: true,
        why: "a device that is only for tests is in no release",
    },
    Beside {
        name: "polder-object",
        last: "polder-zone",
        users: &["polder", "polder-sim"],
        is_for_tests: false,
        why: "the library decides which device a volume has",
    },
    Beside {
        name: "polder-po2",
        last: "polder-zone",
        users: &["polder-cli"],
        is_for_tests: false,
        why: "a volume does not need it",
    },
    Beside {
        name: "polder-salvage",
        last: "polder-fs",
        users: &["polder-cli"],
        is_for_tests: true,
        why: "a mount does not need it",
    },
];

/// How much of the order the other crates may use. No crate may use one of these, but for [`FENCES`].
const CONSUMERS: [(&str, Option<&str>); 7] = [
    ("polder-cli", Some("polder")),
    ("polder-capi", Some("polder")),
    ("polder-sim", Some("polder-fs")),
    ("polder-space", Some("polder-fs")),
    ("polder-support", None),
    ("polder-system-tests", Some("polder-rt")),
    ("xtask", Some("polder-rt")),
];

/// The crates that are programs, or serve programs only.
const PROGRAMS: [&str; 6] =
    ["polder-cli", "polder-sim", "polder-space", "polder-support", "polder-system-tests", "xtask"];

/// Dependencies that only some may have.
const FENCES: [(&str, &[&str], &str); 8] = [
    ("anyhow", &PROGRAMS, "below the command errors are typed"),
    ("clap", &PROGRAMS, "the command line is defined once"),
    (
        "polder-support",
        &["xtask", "polder-system-tests", "polder-capi"],
        "it serves the project's own commands, and links the C library for its tests",
    ),
    // The kernel hands requests for a ublk device over by io_uring and by nothing else.
    ("io-uring", &["polder-zone", "polder-po2"], "nothing above zone does device I/O (I-ZONE-1)"),
    ("object_store", &["polder-object"], "nothing above the device knows object stores"),
    ("tokio", &["polder-object"], "the core has no async runtime"),
    ("parking_lot", &["polder-rt"], "locks come from rt"),
    ("shuttle", &["polder-rt"], "locks come from rt"),
];

impl Beside {
    /// Whether the tests of a crate may use this one.
    fn may_test(&self, name: &str) -> bool {
        let may_use_last = || reach(name) > place(self.last);
        self.is_for_tests && (name == self.last || may_use_last())
    }
}

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
            if let Some(message) = wrong(name, &dependency) {
                complain(message);
            }
        }
    }
    Looked::At(looked, "dependencies")
}

struct Dependency<'a> {
    name: &'a str,
    /// Only the package's tests use it.
    is_of_tests: bool,
}

/// A package's dependencies of every kind: a test that reaches to the right is a cycle too.
fn dependencies(package: &Value) -> impl Iterator<Item = Dependency<'_>> {
    let all = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(|dependency| {
        Some(Dependency { name: dependency["name"].as_str()?, is_of_tests: dependency["kind"] == "dev" })
    })
}

/// The place of a crate in the order.
fn place(name: &str) -> Option<usize> {
    ORDER.iter().position(|crate_name| *crate_name == name)
}

/// How many crates of the order a crate may use.
fn reach(name: &str) -> Option<usize> {
    let consumers = CONSUMERS.iter().copied();
    let mut limited = consumers.chain(BESIDE.iter().map(|beside| (beside.name, Some(beside.last))));
    match limited.find(|(limited, _)| *limited == name).map(|(_, last)| last) {
        Some(last) => last.map_or(Some(0), |last| place(last).map(|index| index + 1)),
        None => place(name),
    }
}

/// What is wrong with `name` depending on `dependency`.
fn wrong(name: &str, &Dependency { name: dependency, is_of_tests }: &Dependency<'_>) -> Option<String> {
    if let Some(beside) = BESIDE.iter().find(|beside| beside.name == dependency) {
        let may = beside.users.contains(&name) || is_of_tests && beside.may_test(name);
        let tests = if beside.is_for_tests { " and for tests" } else { "" };
        let users = beside.users.join(", ");
        return (!may).then(|| format!("`{dependency}` is for {users}{tests}: {}", beside.why));
    }
    if let Some((_, users, why)) = FENCES.iter().find(|(fenced, _, _)| *fenced == dependency) {
        return (!users.contains(&name))
            .then(|| format!("`{dependency}` is for {}: {why}", users.join(", ")));
    }
    if CONSUMERS.iter().any(|(consumer, _)| *consumer == dependency) {
        return Some(format!("`{dependency}` is used by nobody: move what is shared to the left"));
    }
    let place = place(dependency)?;
    let allowed = &ORDER[..reach(name).unwrap_or(0)];
    (place >= allowed.len()).then(|| {
        let allowed = if allowed.is_empty() { "no other crate".to_owned() } else { allowed.join(", ") };
        format!("depends on `{dependency}`, which is to its right; it may use {allowed}")
    })
}

fn manifest(name: &str) -> String {
    match name {
        "xtask" => "xtask/Cargo.toml".to_owned(),
        "polder-support" => "tests/support/Cargo.toml".to_owned(),
        "polder-system-tests" => "tests/system/Cargo.toml".to_owned(),
        name => format!("crates/{}/Cargo.toml", name.trim_start_matches("polder-")),
    }
}
