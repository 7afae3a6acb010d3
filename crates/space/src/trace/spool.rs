//! A trace of a mail server with its logs.
//!
//! *Messages* arrive as small files in `new`. After a while they are renamed into the directory of a user, and the
//! user deletes most of them soon, some late and some never. When there is no space for a new message, the oldest are
//! deleted. *Logs* are appended to in pieces. A log that has reached its size is closed and becomes `.1`, the
//! previous `.1` becomes `.2`, and so on, and the last is deleted. Each user has an *index*. A block of it is
//! overwritten whenever a message of the user arrives or is deleted. So lifetimes differ within each class of files,
//! and nothing announces them: no hint is given, and all messages are created in one directory.
//!
//! No parameter of Polder was chosen by its effect on this trace, and none may be. The trace shows how the chosen
//! parameters work on an unseen workload. Its own numbers were set once, before it ran.
//!
//! The unit of time is a written block.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::LazyLock;

use rt::random::Rng;

use super::zipf::Zipf;
use super::{Class, Name, Op, PIECE, Source};

/// The number of users. Messages are distributed among them by Zipf's law with this exponent.
const USERS: usize = 128;
const EXPONENT: f64 = 0.8;
/// Messages that are written at the same time.
const WRITERS: usize = 4;
/// Messages in `new`.
const NEW: usize = 32;
/// Blocks of a message: log-normal with this median and standard deviation of the logarithm. The limit is 4 MiB or
/// this part of the level.
const MEDIAN: f64 = 4.0;
const DEVIATION: f64 = 1.5;
const MESSAGE_MAX: u64 = 1024;
const MESSAGES_MIN: u64 = 64;
/// Percent of the messages that no user deletes. They disappear when about three times the level has been written.
const KEPT: u32 = 35;
/// The lifetime of the other messages: by Lomax' law with this exponent, whose mean is infinite, and this part of the
/// level. The median is 2.8 % of the level.
const TAIL: f64 = 0.8;
const SCALE: f64 = 0.02;

/// The share of the indexes, in percent of the level.
const INDEXES: u64 = 4;
const LOGS: u64 = 6;
/// The share of the logs, in percent of the blocks written.
const LOGGED: u64 = 15;
/// The names of a log, from the one that is being written.
const ROTATED: [&str; 7] = [".log", ".1", ".2", ".3", ".4", ".5", ".6"];
/// One of the two logs is written this many times as often as the other.
const BUSY: u32 = 4;
/// Limit for the blocks of a piece of a log.
const LOG_PIECE: u64 = 4;
/// Writes to an index or log between two syncs.
const WRITES_PER_SYNC: u64 = 16;

static DIRECTORIES: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..USERS).map(|user| format!("user-{user:03}")).collect());

/// A message that is being written.
struct Coming {
    file: u32,
    blocks: u64,
    done: u64,
}

/// A delivered message.
struct Message {
    user: usize,
    blocks: u64,
}

struct Index {
    file: u32,
    writes: u64,
}

/// A log and its older versions, the youngest first: number and blocks.
#[derive(Default)]
struct Log {
    files: VecDeque<(u32, u64)>,
    writes: u64,
}

pub(super) struct Spool {
    level: u64,
    /// Live blocks, including those of messages that are still being written.
    live: u64,
    /// Blocks written in total, and to logs.
    now: u64,
    logged: u64,
    users: Zipf,
    index_blocks: u64,
    indexes: Vec<Index>,
    /// The busy log first.
    logs: [Log; 2],
    log_blocks: u64,
    writers: [Option<Coming>; WRITERS],
    /// Messages in `new`: number and blocks.
    new: Vec<(u32, u64)>,
    /// Delivered messages by number, so that the oldest is first.
    messages: BTreeMap<u32, Message>,
    /// When users delete which messages. Some of them may already be gone.
    deaths: BinaryHeap<Reverse<(u64, u32)>>,
    is_filled: bool,
    next: u32,
    rng: Rng,
}

impl Spool {
    pub(super) fn new(level: u64, rng: Rng) -> Spool {
        let index_blocks = level * INDEXES / 100 / USERS as u64;
        let log_blocks = level * LOGS / 100 / 2 / ROTATED.len() as u64;
        assert!(index_blocks > 0 && log_blocks >= LOG_PIECE, "{level} blocks are too few");
        Spool {
            level,
            live: 0,
            now: 0,
            logged: 0,
            users: Zipf::new(USERS, EXPONENT),
            index_blocks,
            indexes: Vec::new(),
            logs: Default::default(),
            log_blocks,
            writers: [const { None }; WRITERS],
            new: Vec::new(),
            messages: BTreeMap::new(),
            deaths: BinaryHeap::new(),
            is_filled: false,
            next: 0,
            rng,
        }
    }

    fn create(&mut self, name: Name, ops: &mut VecDeque<Op>) -> u32 {
        self.next += 1;
        ops.push_back(Op::Create { file: self.next - 1, name, class: Class::Unknown });
        self.next - 1
    }

    fn write(&mut self, file: u32, start: u64, blocks: u64, ops: &mut VecDeque<Op>) {
        self.now += blocks;
        ops.push_back(Op::Write { file, start, blocks });
    }

    /// Makes space for more blocks by deleting the oldest messages.
    fn grow(&mut self, blocks: u64, ops: &mut VecDeque<Op>) {
        while self.live + blocks > self.level {
            self.is_filled = true;
            let (&oldest, _) =
                self.messages.first_key_value().expect("messages in delivery are only a part of the level");
            self.delete(oldest, ops);
        }
        self.live += blocks;
    }

    /// Deletes a message if it still exists.
    fn delete(&mut self, file: u32, ops: &mut VecDeque<Op>) {
        if let Some(message) = self.messages.remove(&file) {
            self.live -= message.blocks;
            ops.push_back(Op::Delete { file });
            self.note(message.user, ops);
        }
    }

    /// Creates the next user's index.
    fn make_index(&mut self, ops: &mut VecDeque<Op>) {
        let directory = DIRECTORIES[self.indexes.len()].as_str();
        let file = self.create(Name { directory, suffix: ".index" }, ops);
        self.grow(self.index_blocks, ops);
        for start in (0..self.index_blocks).step_by(PIECE as usize) {
            self.write(file, start, PIECE.min(self.index_blocks - start), ops);
        }
        ops.push_back(Op::Sync { file });
        self.indexes.push(Index { file, writes: 0 });
    }

    /// Overwrites a block of a user's index.
    fn note(&mut self, user: usize, ops: &mut VecDeque<Op>) {
        let index = &mut self.indexes[user];
        index.writes += 1;
        let (file, syncs) = (index.file, index.writes.is_multiple_of(WRITES_PER_SYNC));
        let block = self.rng.u64(0..self.index_blocks);
        self.write(file, block, 1, ops);
        ops.extend(syncs.then_some(Op::Sync { file }));
    }

    /// Appends a piece to one of the logs. Rotates the log before if it has reached its size.
    fn log(&mut self, ops: &mut VecDeque<Op>) {
        let which = usize::from(self.rng.u32(0..=BUSY) == BUSY);
        let blocks = self.rng.u64(1..=LOG_PIECE);
        self.grow(blocks, ops);
        if self.logs[which].files.front().is_none_or(|(_, held)| *held >= self.log_blocks) {
            self.rotate(which, ops);
        }
        let log = &mut self.logs[which];
        log.writes += 1;
        let syncs = log.writes.is_multiple_of(WRITES_PER_SYNC);
        let (file, held) = log.files.front_mut().expect("rotation creates a file");
        let (file, start) = (*file, *held);
        *held += blocks;
        self.logged += blocks;
        self.write(file, start, blocks, ops);
        ops.extend(syncs.then_some(Op::Sync { file }));
    }

    fn rotate(&mut self, which: usize, ops: &mut VecDeque<Op>) {
        let name = |age: usize| Name { directory: "log", suffix: ROTATED[age] };
        let files = &mut self.logs[which].files;
        ops.extend(files.front().map(|&(file, _)| Op::Close { file }));
        if files.len() == ROTATED.len()
            && let Some((file, held)) = files.pop_back()
        {
            self.live -= held;
            ops.push_back(Op::Delete { file });
        }
        let older = files.iter().enumerate().rev();
        ops.extend(older.map(|(age, &(file, _))| Op::Rename { file, name: name(age + 1) }));
        let file = self.create(name(0), ops);
        self.logs[which].files.push_front((file, 0));
    }

    /// Writes a piece of a message.
    fn receive(&mut self, ops: &mut VecDeque<Op>) {
        let writer = self.rng.usize(0..WRITERS);
        let mut coming = self.writers[writer].take().unwrap_or_else(|| self.begin(ops));
        let piece = PIECE.min(coming.blocks - coming.done);
        self.write(coming.file, coming.done, piece, ops);
        coming.done += piece;
        if coming.done < coming.blocks {
            self.writers[writer] = Some(coming);
            return;
        }
        ops.push_back(Op::Close { file: coming.file });
        self.new.push((coming.file, coming.blocks));
        if self.new.len() > NEW {
            self.deliver(ops);
        }
    }

    fn begin(&mut self, ops: &mut VecDeque<Op>) -> Coming {
        let most = MESSAGE_MAX.min(self.level / MESSAGES_MIN);
        let blocks = ((MEDIAN * (DEVIATION * normal(&mut self.rng)).exp()).ceil() as u64).clamp(1, most);
        self.grow(blocks, ops);
        let file = self.create(Name { directory: "new", suffix: "" }, ops);
        Coming { file, blocks, done: 0 }
    }

    /// Delivers a message from `new` to a user.
    fn deliver(&mut self, ops: &mut VecDeque<Op>) {
        let (file, blocks) = self.new.swap_remove(self.rng.usize(0..self.new.len()));
        let user = self.users.rank(self.rng.f64());
        ops.push_back(Op::Rename { file, name: Name { directory: &DIRECTORIES[user], suffix: "" } });
        self.messages.insert(file, Message { user, blocks });
        if self.rng.u32(0..100) >= KEPT {
            let life = lomax(&mut self.rng) * SCALE * self.level as f64;
            self.deaths.push(Reverse((self.now.saturating_add(life as u64), file)));
        }
        self.note(user, ops);
    }
}

impl Source for Spool {
    fn more(&mut self, ops: &mut VecDeque<Op>) {
        if self.indexes.len() < USERS {
            self.make_index(ops);
        } else if self.logged * 100 < self.now * LOGGED {
            self.log(ops);
        } else if let Some(&Reverse((death, file))) = self.deaths.peek()
            && death <= self.now
        {
            self.deaths.pop();
            self.delete(file, ops);
        } else {
            self.receive(ops);
        }
    }

    fn is_filled(&self) -> bool {
        self.is_filled
    }
}

/// A normal variate with mean 0 and variance 1, by the method of Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A variate that exceeds *t* with probability (1 + *t*)^−[`TAIL`].
fn lomax(rng: &mut Rng) -> f64 {
    (1.0 - rng.f64()).powf(-1.0 / TAIL) - 1.0
}
