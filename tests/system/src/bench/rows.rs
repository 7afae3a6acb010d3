//! The rows: what is measured, the peer of each, and its target.
//!
//! A rate is a fraction of a peer's rate in the same round, and a target is the least fraction. [`FACTS`] are figures
//! without a peer, and their targets are the largest values.

use super::place::Transport;

/// The part of Polder that a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    /// A program that links Polder.
    Library,
    /// Every other program.
    Mount,
}

/// The peer that a target is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    /// A file with direct I/O.
    Plain,
    Ext4,
    Xfs,
    /// The faster of ext4 and XFS in each round.
    Faster,
    /// Another Polder volume, to which the files were just copied.
    Fresh,
}

impl Against {
    /// The names of the places. The fastest counts.
    pub(super) fn places(self) -> &'static [&'static str] {
        match self {
            Against::Plain => &["raw"],
            Against::Ext4 => &["ext4"],
            Against::Xfs => &["xfs"],
            Against::Faster => &["ext4", "xfs"],
            Against::Fresh => &["fresh"],
        }
    }

    /// The words for a target.
    pub(super) fn title(self) -> &'static str {
        match self {
            Against::Plain => "a plain file",
            Against::Ext4 => "ext4",
            Against::Xfs => "XFS",
            Against::Faster => "the faster",
            Against::Fresh => "fresh copies",
        }
    }
}

/// The least fraction of the peer's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    /// With a transport that needs no wake-up for a small request.
    least: f64,
    /// Through `/dev/fuse`, if that is less.
    least_by_device: f64,
}

/// A measured operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The name in commands and CSV files.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) ours: Ours,
    /// The group of rows that are measured one after the other, because each uses the files of those before.
    pub(super) group: &'static str,
    pub(super) against: Against,
    pub(super) target: Option<Target>,
}

impl Row {
    /// The least fraction of the peer's rate through this transport.
    pub(super) fn least(&self, transport: Option<&Transport>) -> Option<f64> {
        let by_device = transport.is_some_and(|transport| !transport.is_uring);
        self.target.map(|target| if by_device { target.least_by_device } else { target.least })
    }

    /// The places of Polder that have this row, each with the text before the title.
    pub(super) fn places(&self) -> Vec<(String, &'static str, Option<&'static Transport>)> {
        let transports = Transport::ALL.iter();
        match self.ours {
            Ours::Library => vec![("library".to_owned(), "library", None)],
            Ours::Mount => transports.map(|one| (one.title(), one.name, Some(one))).collect(),
        }
    }
}

/// A figure without a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) group: &'static str,
    /// The target.
    pub(super) most: Option<f64>,
}

/// Over `/dev/fuse`, rows whose cost is the number of requests have to become this many times faster than they were
/// when the targets were set.
const FASTER_BY_DEVICE: f64 = 1.7;

/// The same target for every transport.
const fn always(least: f64) -> Option<Target> {
    Some(Target { least, least_by_device: least })
}

/// A target for rows whose cost is the number of requests. `was` is the fraction when the targets were set.
const fn requests(least: f64, was: f64) -> Option<Target> {
    let by_device = FASTER_BY_DEVICE * was;
    Some(Target { least, least_by_device: if by_device < least { by_device } else { least } })
}

const fn mount(
    id: &'static str,
    title: &'static str,
    group: &'static str,
    against: Against,
    target: Option<Target>,
) -> Row {
    Row { id, title, ours: Ours::Mount, group, against, target }
}

const fn library(id: &'static str, title: &'static str, against: Against, least: f64) -> Row {
    Row { id, title, ours: Ours::Library, group: LIBRARY, against, target: always(least) }
}

pub(super) const TREES: &str = "trees";
pub(super) const SOURCES: &str = "sources";
pub(super) const GIT: &str = "git";
pub(super) const LIST: &str = "list";
pub(super) const NAMES: &str = "names";
pub(super) const DATA: &str = "data";
pub(super) const BUFFERED: &str = "buffered";
pub(super) const SYNCED: &str = "synced";
pub(super) const SQLITE: &str = "sqlite";
pub(super) const CHURN: &str = "churn";
pub(super) const LIBRARY: &str = "library";
pub(super) const LOG: &str = "log";
pub(super) const IDLE: &str = "idle";
pub(super) const BINARY: &str = "binary";
pub(super) const METADATA: &str = "metadata";

use Against::{Ext4, Faster, Fresh, Plain, Xfs};

/// All rows, in the order of the page.
pub(super) const ROWS: [Row; 46] = [
    library("library-write", "sequential write", Plain, 0.95),
    library("library-read", "sequential read", Plain, 0.95),
    library("library-random-read", "random read", Plain, 0.95),
    library("library-random-write", "random write", Plain, 1.0),
    library("library-append", "write and fsync", Plain, 0.9),
    library("library-append-16", "write and fsync, 16 threads", Plain, 0.9),
    library("library-create", "create", Xfs, 5.0),
    library("library-stat", "stat", Xfs, 3.0),
    library("library-unlink", "unlink", Xfs, 6.0),
    mount("untar", "untar", TREES, Ext4, requests(0.5, 0.14)),
    mount("find-cold", "find, cold", TREES, Xfs, requests(0.9, 0.28)),
    mount("find-warm", "find, warm", TREES, Xfs, requests(0.9, 0.27)),
    mount("grep-cold", "grep -r, cold", TREES, Xfs, requests(0.9, 0.63)),
    mount("grep-warm", "grep -r, warm", TREES, Xfs, requests(0.9, 0.61)),
    mount("cp", "cp -r", TREES, Ext4, requests(0.5, 0.17)),
    mount("rm", "rm -rf", TREES, Ext4, requests(0.6, 0.31)),
    mount("sources-untar", "untar of the sources", SOURCES, Ext4, None),
    mount("sources-grep", "grep -r of the sources, cold", SOURCES, Xfs, None),
    mount("sources-cp", "cp -r of the sources", SOURCES, Ext4, None),
    mount("sources-rm", "rm -rf of the sources", SOURCES, Ext4, None),
    mount("git-clone", "git clone", GIT, Ext4, requests(0.5, 0.20)),
    mount("git-status", "git status after it", GIT, Ext4, requests(0.7, 0.30)),
    mount("git-gc", "git gc", GIT, Ext4, None),
    mount("ls-cold", "ls -l of many files, first time", LIST, Ext4, None),
    mount("ls-again", "ls -l of many files, second time", LIST, Ext4, requests(0.4, 0.08)),
    mount("create", "create 1 KiB and close", NAMES, Xfs, requests(0.6, 0.16)),
    mount("stat-first", "stat, first after close", NAMES, Xfs, requests(0.15, 0.05)),
    mount("stat-again", "stat, again", NAMES, Xfs, requests(0.8, 0.8)),
    mount("open-read", "open, read and close", NAMES, Xfs, requests(0.7, 0.14)),
    mount("unlink", "unlink", NAMES, Xfs, requests(0.6, 0.32)),
    mount("write", "direct write of 1 MiB, new file", DATA, Xfs, always(1.0)),
    mount("overwrite", "direct write of 1 MiB, over", DATA, Xfs, always(1.0)),
    mount("read", "direct read of 1 MiB", DATA, Xfs, always(1.0)),
    mount("random-read-1", "direct read of 4 KiB, 1 thread", DATA, Xfs, always(0.95)),
    mount("random-read-16", "direct read of 4 KiB, 16 threads", DATA, Xfs, always(0.95)),
    mount("random-write-1", "direct write of 4 KiB, 1 thread", DATA, Xfs, always(1.0)),
    mount("random-write-16", "direct write of 4 KiB, 16 threads", DATA, Xfs, always(1.0)),
    mount("buffered-write", "buffered write and fsync", BUFFERED, Xfs, always(0.9)),
    mount("buffered-read", "buffered read, cold", BUFFERED, Xfs, always(0.9)),
    mount("append-1", "write 4 KiB and fdatasync", SYNCED, Faster, always(1.0)),
    mount("append-16", "write 4 KiB and fdatasync, 16 threads", SYNCED, Faster, always(1.0)),
    mount("sqlite-rollback", "SQLite, rollback journal", SQLITE, Faster, always(1.0)),
    mount("sqlite-wal", "SQLite, WAL", SQLITE, Faster, always(1.0)),
    mount("churn", "buffered whole files rewritten", CHURN, Ext4, always(0.7)),
    mount("read-all", "cold read of all files", CHURN, Xfs, None),
    mount("read-churned", "cold read of all files after that", CHURN, Fresh, always(0.95)),
];

const fn fact(id: &'static str, title: &'static str, group: &'static str, most: Option<f64>) -> Fact {
    Fact { id, title, group, most }
}

/// All figures without a peer, in the order of the page.
pub(super) const FACTS: [Fact; 12] = [
    fact("requests-untar", "requests per file and folder: untar", TREES, Some(7.0)),
    fact("requests-rm", "requests per file and folder: rm -rf", TREES, Some(3.9)),
    fact("requests-status", "requests per file and folder: git status after clone", GIT, Some(1.9)),
    fact("log-chmod", "log bytes of an attribute change, file of 700 bytes", LOG, Some(200.0)),
    fact("log-unlink", "log bytes of an unlink, file of 700 bytes", LOG, Some(300.0)),
    fact("log-unlink-transactions", "transactions of an unlink, file of 700 bytes", LOG, Some(1.0)),
    fact("idle-wakeups", "wake-ups a second of an idle mount", IDLE, Some(0.2)),
    fact("idle-bytes", "bytes a second written by an idle mount", IDLE, Some(0.0)),
    fact("binary", "MB of the stripped release binary", BINARY, Some(12.0)),
    fact("metadata-create", "metadata written by a create, KiB, file of 1 KiB", METADATA, None),
    fact("metadata-overwrite", "metadata written by an overwrite, KiB, file of 1 KiB", METADATA, None),
    fact("metadata-unlink", "metadata written by an unlink, KiB, file of 1 KiB", METADATA, None),
];

/// The rows and figures that a command line asks for: names of rows or of groups. All, if there are none.
pub(super) struct Selection(Vec<String>);

impl Selection {
    /// Refuses a name that nothing has. Without names, these groups are asked for.
    pub(super) fn of(names: &[String], groups: &[&str]) -> anyhow::Result<Self> {
        let known = || {
            let rows = ROWS.iter().flat_map(|row| [row.id, row.group]);
            rows.chain(FACTS.iter().flat_map(|fact| [fact.id, fact.group]))
        };
        if let Some(name) = names.iter().find(|name| !known().any(|known| known == *name)) {
            let ids: Vec<&str> =
                ROWS.iter().map(|row| row.id).chain(FACTS.iter().map(|fact| fact.id)).collect();
            anyhow::bail!("there is no row or group `{name}`; the rows are {}", ids.join(", "));
        }
        let groups = || groups.iter().map(|&group| group.to_owned()).collect();
        Ok(Selection(if names.is_empty() { groups() } else { names.to_vec() }))
    }

    pub(super) fn has(&self, id: &str, group: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|name| name == id || name == group)
    }

    /// Whether some row or figure of a group is asked for.
    pub(super) fn has_group(&self, group: &str) -> bool {
        let rows = ROWS.iter().map(|row| (row.id, row.group));
        let mut all = rows.chain(FACTS.iter().map(|fact| (fact.id, fact.group)));
        all.any(|(id, of)| of == group && self.has(id, of))
    }
}
