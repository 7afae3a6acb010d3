//! Endless traces of file operations, from a seed, independent of the file system that performs them.
//!
//! A trace first *fills* its files up to its level, and then continues without ever exceeding the level. All sizes
//! are in blocks of 4 KiB. The trace marks where a program would close a file or call fsync. Its user decides whether
//! that makes anything durable, so that the same trace runs with and without.

mod churn;
mod overwrite;
mod rocksdb;
mod spool;
mod zipf;

use std::collections::VecDeque;
use std::fmt;

use rt::random::Rng;

/// Bytes of a block, the unit of traces.
pub const BLOCK: u64 = 4096;
/// Limit for the blocks of one write: 1 MiB.
pub const PIECE: u64 = 256;

/// The lifetime that a program announces for its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Not announced.
    #[default]
    Unknown,
    /// Seconds to minutes.
    Short,
    /// Hours.
    Medium,
    /// Days to months.
    Long,
    /// Forever.
    Extreme,
}

/// A name as the program chooses it: the directory, and the end of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory. It is created when it is first needed.
    pub directory: &'static str,
    /// The end of the name, with its dot.
    pub suffix: &'static str,
}

/// An operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates an empty file. Numbers of files are not reused.
    Create {
        /// The file.
        file: u32,
        /// Its name, without the number.
        name: Name,
        /// The lifetime that the program could announce.
        class: Class,
    },
    /// Writes blocks, at most [`PIECE`], at the end of the file or over existing blocks.
    Write {
        /// The file.
        file: u32,
        /// The first block.
        start: u64,
        /// The number of blocks.
        blocks: u64,
    },
    /// A moment at which a program that wants durability would call fsync.
    Sync {
        /// The file.
        file: u32,
    },
    /// The same, and the file is closed.
    Close {
        /// The file.
        file: u32,
    },
    /// Renames a closed file.
    Rename {
        /// The file.
        file: u32,
        /// The new name, without the number.
        name: Name,
    },
    /// Removes the only name.
    Delete {
        /// The file.
        file: u32,
    },
}

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Whole files of 4 KiB to 8 MiB are created and deleted at random.
    SmallFiles,
    /// Whole files of 16 KiB to 64 MiB are created and deleted at random.
    LargeFiles,
    /// Single blocks are overwritten, all with the same probability.
    Uniform,
    /// Single blocks are overwritten, by Zipf's law with exponent 0.99.
    Zipf,
    /// A write-ahead log, and tables that are merged level by level, as in RocksDB.
    RocksDb,
    /// Four fifths of the bytes written have a short life, and one fifth a long one.
    Mix,
    /// A mail server: messages are created and deleted, logs are rotated, and indexes are overwritten.
    Spool,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 7] = [
        Workload::SmallFiles,
        Workload::LargeFiles,
        Workload::Uniform,
        Workload::Zipf,
        Workload::RocksDb,
        Workload::Mix,
        Workload::Spool,
    ];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Workload::SmallFiles => "small-files",
            Workload::LargeFiles => "large-files",
            Workload::Uniform => "uniform",
            Workload::Zipf => "zipf",
            Workload::RocksDb => "rocksdb",
            Workload::Mix => "mix",
            Workload::Spool => "spool",
        }
    }

    /// Whether its program can announce lifetimes.
    pub fn has_hints(self) -> bool {
        matches!(self, Workload::RocksDb | Workload::Mix)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        let known = || Workload::ALL.map(Workload::name).join(", ");
        found.ok_or_else(|| format!("there is no workload `{name}`; there are: {}", known()))
    }
}

/// The generator of the operations.
trait Source {
    /// Adds operations. May add none if the source only made a decision.
    fn more(&mut self, ops: &mut VecDeque<Op>);

    /// Whether the files have reached their level.
    fn is_filled(&self) -> bool;
}

/// An endless sequence of operations.
pub struct Trace {
    source: Box<dyn Source>,
    ready: VecDeque<Op>,
}

impl Trace {
    /// A trace whose files hold at most `level` blocks.
    pub fn new(workload: Workload, level: u64, seed: u64) -> Trace {
        let rng = Rng::with_seed(seed);
        let source: Box<dyn Source> = match workload {
            Workload::SmallFiles => Box::new(churn::files(1..=2048, level, rng)),
            Workload::LargeFiles => Box::new(churn::files(4..=16384, level, rng)),
            Workload::Uniform => Box::new(overwrite::uniform(level, rng)),
            Workload::Zipf => Box::new(overwrite::zipf(level, rng)),
            Workload::RocksDb => Box::new(rocksdb::RocksDb::new(level, rng)),
            Workload::Mix => Box::new(churn::mix(level, rng)),
            Workload::Spool => Box::new(spool::Spool::new(level, rng)),
        };
        Trace { source, ready: VecDeque::new() }
    }

    /// Whether the operations so far have filled the files.
    pub fn is_filled(&self) -> bool {
        self.ready.is_empty() && self.source.is_filled()
    }
}

impl Iterator for Trace {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        while self.ready.is_empty() {
            self.source.more(&mut self.ready);
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests;
