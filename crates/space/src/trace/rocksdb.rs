//! A trace of a log-structured merge tree of RocksDB's shape, while random keys are overwritten.
//!
//! Writes go to a write-ahead log. When the log has the size of a table, it becomes a table of level 0, and the log
//! is deleted. Four tables of level 0 are merged with all of level 1. When a deeper level exceeds its target, one of
//! its tables, in the order of keys, is merged with the overlapping tables of the next level. The bottom level
//! contains every key. Each level above has a tenth of the size of the one below it, like RocksDB's dynamic level
//! sizes. Lifetime classes are those of RocksDB: short for logs, medium for levels 0 and 1, long for level 2, extreme
//! below.
//!
//! There are no keys. A table is a range of the key space, and the share of its keys that the table contains. Keys
//! are random, so a merge of shares *a* and *b* contains 1 − (1 − *a*)(1 − *b*).

use std::collections::VecDeque;

use rt::random::Rng;

use super::{Class, Name, Op, PIECE, Source};

/// Tables at the fill level. On a volume of 4 GiB a table has a few MiB, in the same proportion to a zone as
/// RocksDB's tables on real devices.
const TABLES: u64 = 800;
/// Tables of the bottom level. The rest is for the levels above, for logs, and for the duplicate data of a merge.
const BOTTOM_TABLES: u64 = 660;
/// The number of level 0 tables that starts a merge. If all are full, writes wait.
const MERGE_AT: usize = 4;
const WAIT_AT: usize = 8;
/// Tables of level 1.
const LEVEL_ONE: u64 = 4;
const BOTTOM: usize = 3;
/// Blocks of a write to the log: 64 KiB.
const LOG_PIECE: u64 = 16;
/// While tables are being written, one of this many operations goes to the log.
const LOG_EVERY: u32 = 3;

#[derive(Clone, Debug)]
struct Table {
    file: u32,
    from: f64,
    to: f64,
    blocks: u64,
}

/// A table that is being written, or will be.
struct Output {
    table: Table,
    done: u64,
}

/// A flush or a merge.
struct Job {
    into: usize,
    /// Tables that are deleted at the end of the job.
    inputs: Vec<u32>,
    written: Vec<Table>,
    outputs: VecDeque<Output>,
}

pub(super) struct RocksDb {
    table_blocks: u64,
    /// Blocks of all keys.
    keys: u64,
    levels: [Vec<Table>; BOTTOM + 1],
    /// For each level the key at which its next merge begins.
    cursor: [f64; BOTTOM + 1],
    /// The log that is being written, and its blocks.
    log: Option<(u32, u64)>,
    flush: Option<Job>,
    merge: Option<Job>,
    is_filled: bool,
    next: u32,
    rng: Rng,
}

impl RocksDb {
    pub(super) fn new(level: u64, rng: Rng) -> RocksDb {
        let table_blocks = level / TABLES;
        assert!(table_blocks >= LOG_PIECE, "{level} blocks are too few for {TABLES} tables");
        let mut database = RocksDb {
            table_blocks,
            keys: table_blocks * BOTTOM_TABLES,
            levels: Default::default(),
            cursor: [0.0; BOTTOM + 1],
            log: None,
            flush: None,
            merge: None,
            is_filled: false,
            next: 0,
            rng,
        };
        let outputs = database.cut(&[(0.0, 1.0, 1.0)]);
        database.merge = Some(Job { into: BOTTOM, inputs: Vec::new(), written: Vec::new(), outputs });
        database
    }

    fn new_file(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Tables for pieces of the key space, with the share of their keys.
    fn cut(&mut self, pieces: &[(f64, f64, f64)]) -> VecDeque<Output> {
        let (keys, full) = (self.keys as f64, self.table_blocks as f64);
        let mut outputs = VecDeque::new();
        let (mut start, mut held, mut end) = (None, 0.0, 0.0);
        for &(mut from, to, share) in pieces {
            while from < to {
                let until = to.min(from + (full - held) / (share * keys));
                start.get_or_insert(from);
                held += (until - from) * share * keys;
                (from, end) = (until, until);
                if held >= full - 0.5 {
                    outputs.push_back(self.output(start.take(), end, held));
                    held = 0.0;
                }
            }
        }
        if start.is_some() {
            outputs.push_back(self.output(start, end, held));
        }
        outputs
    }

    fn output(&mut self, from: Option<f64>, to: f64, held: f64) -> Output {
        let from = from.expect("a table begins before it ends");
        let table = Table { file: self.new_file(), from, to, blocks: (held.round() as u64).max(1) };
        Output { table, done: 0 }
    }

    /// The output of a merge of these tables.
    fn merged(&mut self, inputs: &[Table]) -> VecDeque<Output> {
        let mut bounds: Vec<f64> = inputs.iter().flat_map(|table| [table.from, table.to]).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let keys = self.keys as f64;
        let missing = |from: f64, to: f64| -> f64 {
            let covers = |table: &&Table| table.from <= from && to <= table.to;
            let share = |table: &Table| (table.blocks as f64 / (table.to - table.from) / keys).min(1.0);
            inputs.iter().filter(covers).map(|table| 1.0 - share(table)).product()
        };
        let pieces: Vec<_> = bounds
            .windows(2)
            .map(|pair| (pair[0], pair[1], 1.0 - missing(pair[0], pair[1])))
            .filter(|(_, _, share)| *share > 0.0)
            .collect();
        self.cut(&pieces)
    }

    /// Limit for the blocks of a level.
    fn target(&self, level: usize) -> u64 {
        match level {
            1 => (LEVEL_ONE * self.table_blocks).max(self.keys / 100),
            _ => self.keys / 10,
        }
    }

    /// The most urgent merge.
    fn begin_merge(&mut self) -> Option<Job> {
        let fullness = |level: usize| match level {
            0 => self.levels[0].len() as f64 / MERGE_AT as f64,
            _ => {
                let held: u64 = self.levels[level].iter().map(|table| table.blocks).sum();
                held as f64 / self.target(level) as f64
            }
        };
        let level = (0..BOTTOM).max_by(|&a, &b| fullness(a).total_cmp(&fullness(b)))?;
        if fullness(level) < 1.0 {
            return None;
        }
        let mut inputs = if level == 0 { self.levels[0].clone() } else { vec![self.pick(level)] };
        let (from, to) = inputs
            .iter()
            .fold((1.0f64, 0.0f64), |(from, to), table| (from.min(table.from), to.max(table.to)));
        let below = self.levels[level + 1].iter();
        inputs.extend(below.filter(|table| table.from < to && from < table.to).cloned());
        let outputs = self.merged(&inputs);
        let inputs = inputs.iter().map(|table| table.file).collect();
        Some(Job { into: level + 1, inputs, written: Vec::new(), outputs })
    }

    /// The next table in the order of keys.
    fn pick(&mut self, level: usize) -> Table {
        let tables = &self.levels[level];
        let behind = tables.iter().find(|table| table.from >= self.cursor[level]);
        let table = behind.unwrap_or(&tables[0]).clone();
        self.cursor[level] = table.to;
        table
    }

    /// Writes to the log. A full log becomes a table of level 0. False if the write has to wait.
    fn write_log(&mut self, ops: &mut VecDeque<Op>) -> bool {
        let full = self.log.is_some_and(|(_, blocks)| blocks >= self.table_blocks);
        if full && (self.flush.is_some() || self.levels[0].len() >= WAIT_AT) {
            return false;
        }
        if full && let Some((log, _)) = self.log.take() {
            ops.push_back(Op::Close { file: log });
            let table = Table { file: self.new_file(), from: 0.0, to: 1.0, blocks: self.table_blocks };
            let outputs = VecDeque::from([Output { table, done: 0 }]);
            self.flush = Some(Job { into: 0, inputs: vec![log], written: Vec::new(), outputs });
        }
        let (file, written) = match self.log {
            Some(log) => log,
            None => {
                let file = self.new_file();
                let name = Name { directory: "database", suffix: ".log" };
                ops.push_back(Op::Create { file, name, class: Class::Short });
                (file, 0)
            }
        };
        ops.push_back(Op::Write { file, start: written, blocks: LOG_PIECE });
        self.log = Some((file, written + LOG_PIECE));
        true
    }

    fn finish(&mut self, job: Job, ops: &mut VecDeque<Op>) {
        let Job { into, inputs, written, .. } = job;
        for level in &mut self.levels {
            level.retain(|table| !inputs.contains(&table.file));
        }
        ops.extend(inputs.into_iter().map(|file| Op::Delete { file }));
        self.levels[into].extend(written);
        if into > 0 {
            self.levels[into].sort_by(|a, b| a.from.total_cmp(&b.from));
        }
        self.is_filled |= into == BOTTOM;
    }
}

/// Writes the next piece of a job. Returns whether the job is done.
fn work(job: &mut Job, ops: &mut VecDeque<Op>) -> bool {
    let Some(Output { table, done }) = job.outputs.front_mut() else { return true };
    let file = table.file;
    if *done == 0 {
        let class = match job.into {
            0 | 1 => Class::Medium,
            2 => Class::Long,
            _ => Class::Extreme,
        };
        ops.push_back(Op::Create { file, name: Name { directory: "database", suffix: ".sst" }, class });
    }
    let blocks = PIECE.min(table.blocks - *done);
    ops.push_back(Op::Write { file, start: *done, blocks });
    *done += blocks;
    if *done == table.blocks {
        ops.push_back(Op::Close { file });
        job.written.extend(job.outputs.pop_front().map(|output| output.table));
    }
    job.outputs.is_empty()
}

impl Source for RocksDb {
    fn more(&mut self, ops: &mut VecDeque<Op>) {
        if self.merge.is_none() {
            self.merge = self.begin_merge();
        }
        let busy = self.flush.is_some() || self.merge.is_some();
        let log_is_next = self.is_filled && (!busy || self.rng.u32(0..LOG_EVERY) == 0);
        if log_is_next && self.write_log(ops) {
            return;
        }
        let flushes = self.flush.is_some() && (self.merge.is_none() || self.rng.bool());
        let slot = if flushes { &mut self.flush } else { &mut self.merge };
        let Some(mut job) = slot.take() else { return };
        if work(&mut job, ops) {
            self.finish(job, ops);
        } else if flushes {
            self.flush = Some(job);
        } else {
            self.merge = Some(job);
        }
    }

    fn is_filled(&self) -> bool {
        self.is_filled
    }
}
