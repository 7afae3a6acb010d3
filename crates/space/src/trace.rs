//! What programs do to files, by seed: without end, and knowing nothing of who carries it out.
//!
//! A trace first *fills*, until its files hold its level, and then goes on so that they never hold
//! more. Everything is in blocks of 4 KiB. Where a program would close a file, or call fsync in between,
//! the trace says so; whether that makes anything durable is the reader's choice, so that the same trace
//! runs with and without.

mod churn;
mod overwrite;
mod rocksdb;
mod spool;
mod zipf;

use std::collections::VecDeque;
use std::fmt;

use rt::random::Rng;

/// Bytes of the blocks that traces count in.
pub const BLOCK: u64 = 4096;
/// Blocks that are written at once at most: 1 MiB.
pub const PIECE: u64 = 256;

/// How long a program says that data will live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// It does not say.
    #[default]
    Unknown,
    /// Seconds to minutes.
    Short,
    /// Hours.
    Medium,
    /// Days to months.
    Long,
    /// For ever.
    Extreme,
}

/// A name in the way of the program: which directory, and how the name ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// One of the directories, which are made when they are first needed.
    pub directory: &'static str,
    /// The end of the name, with its dot.
    pub suffix: &'static str,
}

/// One thing that a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes an empty file. Numbers of files are not used twice.
    Create {
        /// The file.
        file: u32,
        /// What it is called beside its number.
        name: Name,
        /// What the program could say of its lifetime.
        class: Class,
    },
    /// Writes blocks, at most [`PIECE`], at the end of the file or over what it has.
    Write {
        /// The file.
        file: u32,
        /// The first block.
        start: u64,
        /// How many.
        blocks: u64,
    },
    /// A moment at which a program that wants durability calls fsync.
    Sync {
        /// The file.
        file: u32,
    },
    /// The same, and the file is closed.
    Close {
        /// The file.
        file: u32,
    },
    /// Gives a closed file another name instead.
    Rename {
        /// The file.
        file: u32,
        /// What it is called now, beside its number.
        name: Name,
    },
    /// Takes the only name away.
    Delete {
        /// The file.
        file: u32,
    },
}

/// The kinds of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Whole files of 4 KiB to 8 MiB are made and deleted at random.
    SmallFiles,
    /// Whole files of 16 KiB to 64 MiB are made and deleted at random.
    LargeFiles,
    /// Single blocks are written over, each as likely as the others.
    Uniform,
    /// Single blocks are written over, by Zipf's law with exponent 0.99.
    Zipf,
    /// A write-ahead log, and tables that are merged level by level, as RocksDB has them.
    RocksDb,
    /// Of the bytes written four fifths live shortly and one fifth lives long.
    Mix,
    /// Mail comes and goes, logs are rotated and indexes are written over, as a server has them.
    Spool,
}

impl Workload {
    /// All of them.
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

    /// Whether its program can say how long data will live.
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

/// What makes the operations.
trait Source {
    /// Adds operations; none when the source has only come to a decision.
    fn more(&mut self, ops: &mut VecDeque<Op>);

    /// Whether the files hold what they are to hold.
    fn is_filled(&self) -> bool;
}

/// Operations without end.
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

    /// Whether what was given out so far has filled the files.
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
