//! The groups of rows that are measured in the same places, and their programs.
//!
//! In a round every step runs in one place after the other before the next step begins, because each step uses the
//! files that those before it have left.

use std::path::Path;

use support::shell::Line;

use super::material::{ABSENT, Journal, Material, git};
use super::place::Before;
use super::rows;
use super::scale::Scale;
use super::step::{Calls, NOTHING_FOUND, Step};

/// Steps that follow one another.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Once, before the first round.
    pub(super) once: Vec<Step>,
    /// In every round.
    pub(super) steps: Vec<Step>,
    /// Whether they also run beside a large sequential writer.
    pub(super) is_beside: bool,
}

impl Group {
    fn of(name: &'static str, steps: Vec<Step>) -> Group {
        Group { name, once: Vec::new(), steps, is_beside: false }
    }
}

/// The groups that need the trees.
pub(super) fn of_trees(material: &Material) -> Vec<Group> {
    vec![trees(material), sources(material), repository(material), databases(material)]
}

/// The groups that need no more than our client.
pub(super) fn of_calls(scale: &Scale) -> Vec<Group> {
    vec![list(scale), names(scale), data(scale), buffered(scale), synced(scale)]
}

const TREE: &str = "tree";
const COPY: &str = "copy";
const CLONE: &str = "clone";

fn untar(row: &'static str, entries: u64, archive: std::path::PathBuf) -> Step {
    Step::other(row, entries, move |dir| {
        // `tar` takes a folder that must exist.
        Line::new("tar --one-top-level=tree -xf").arg(&archive).arg("-C").arg(dir)
    })
}

fn copy(row: &'static str, entries: u64) -> Step {
    Step::other(row, entries, |dir| Line::new("cp -r").arg(dir.join(TREE)).arg(dir.join(COPY)))
}

fn remove(row: &'static str, entries: u64, folder: &'static str) -> Step {
    Step::other(row, entries, move |dir| Line::new("rm -rf").arg(dir.join(folder)))
}

/// `find` with a condition on sizes, so that it needs the attributes of every file.
fn find(row: &'static str, entries: u64) -> Step {
    Step::other(row, entries, |dir| Line::new("find").arg(dir.join(TREE)).args(["-size", "+1024k"]))
}

fn grep(row: &'static str, entries: u64) -> Step {
    let line = |dir: &Path| Line::new("grep -r").arg(ABSENT).arg(dir.join(TREE));
    Step::other(row, entries, line).ending_with(NOTHING_FOUND)
}

fn trees(material: &Material) -> Group {
    let entries = material.files + material.folders;
    let steps = vec![
        untar("untar", entries, material.archive()),
        find("find-cold", entries).before(Before::Cold),
        find("find-warm", entries).before(Before::Warm),
        grep("grep-cold", entries).before(Before::Cold),
        grep("grep-warm", entries).before(Before::Warm),
        copy("cp", entries),
        remove("rm", entries, COPY),
    ];
    Group::of(rows::TREES, steps)
}

fn sources(material: &Material) -> Group {
    let entries = material.sources;
    let steps = vec![
        untar("sources-untar", entries, material.sources_archive()),
        grep("sources-grep", entries).before(Before::Cold),
        copy("sources-cp", entries),
        remove("sources-rm", entries, COPY),
    ];
    Group::of(rows::SOURCES, steps)
}

fn repository(material: &Material) -> Group {
    let (entries, repository) = (material.files + material.folders, material.repository());
    let steps = vec![
        Step::other("git-clone", entries, move |dir| {
            git("clone --quiet --no-hardlinks").arg(&repository).arg(dir.join(CLONE))
        }),
        Step::other("git-status", entries, |dir| git("status --porcelain").in_dir(&dir.join(CLONE))),
        Step::other("git-gc", entries, |dir| git("gc --quiet").in_dir(&dir.join(CLONE))),
    ];
    Group::of(rows::GIT, steps)
}

fn databases(material: &Material) -> Group {
    let database = |row: &'static str, journal: Journal| {
        let script = format!(".read {}", material.script(journal).display());
        Step::other(row, material.transactions, move |dir| {
            Line::new("sqlite3").arg(dir.join(format!("{}.db", journal.name()))).arg(&script)
        })
    };
    let steps = vec![database("sqlite-rollback", Journal::Rollback), database("sqlite-wal", Journal::Wal)];
    Group::of(rows::SQLITE, steps)
}

fn list(scale: &Scale) -> Group {
    let files = scale.listed;
    let ls = |row| Step::other(row, files, |dir| Line::new("ls -l").arg(dir.join("listed")));
    let calls = Calls { kind: "create", folder: "listed", operations: Some(files), threads: 1, bytes: 0 };
    let steps = vec![ls("ls-cold").before(Before::Cold), ls("ls-again").before(Before::Warm)];
    let once = vec![Step::client("ls-cold", files, calls).unmeasured()];
    Group { once, ..Group::of(rows::LIST, steps) }
}

fn names(scale: &Scale) -> Group {
    let files = scale.names;
    let call = |row, kind| {
        let calls = Calls { kind, folder: "names", operations: Some(files), threads: 1, bytes: 1024 };
        Step::client(row, files, calls)
    };
    let steps = vec![
        call("create", "create"),
        call("stat-first", "stat").before(Before::Warm),
        call("stat-again", "stat").before(Before::Warm),
        call("open-read", "open-read").before(Before::Warm),
        call("unlink", "unlink"),
    ];
    Group { is_beside: scale.is_beside, ..Group::of(rows::NAMES, steps) }
}

fn data(scale: &Scale) -> Group {
    let bytes = scale.file_bytes;
    let large = |row, kind| {
        let calls = Calls { kind, folder: "data", operations: None, threads: 1, bytes };
        Step::client(row, bytes >> 20, calls)
    };
    let small = |row, kind, threads| {
        let calls = Calls { kind, folder: "data", operations: Some(scale.small), threads, bytes };
        Step::client(row, scale.small, calls)
    };
    let steps = vec![
        large("write", "write"),
        large("overwrite", "overwrite"),
        large("read", "read"),
        small("random-read-1", "random-read", 1),
        small("random-read-16", "random-read", 16),
        small("random-write-1", "random-write", 1),
        small("random-write-16", "random-write", 16),
    ];
    Group { is_beside: scale.is_beside, ..Group::of(rows::DATA, steps) }
}

fn buffered(scale: &Scale) -> Group {
    let bytes = scale.buffered_bytes;
    let call = |row, kind| {
        let calls = Calls { kind, folder: "buffered", operations: None, threads: 1, bytes };
        Step::client(row, bytes >> 20, calls)
    };
    let steps = vec![
        call("buffered-write", "buffered-write"),
        call("buffered-read", "buffered-read").before(Before::Cold),
    ];
    Group::of(rows::BUFFERED, steps)
}

fn synced(scale: &Scale) -> Group {
    let call = |row, threads| {
        // Each of many threads appends a quarter as often as one alone.
        let operations = if threads == 1 { scale.synced } else { scale.synced / 4 * threads };
        let calls =
            Calls { kind: "append", folder: "synced", operations: Some(operations), threads, bytes: 0 };
        Step::client(row, operations, calls)
    };
    let steps = vec![call("append-1", 1), call("append-16", 16)];
    Group { is_beside: true, ..Group::of(rows::SYNCED, steps) }
}
