//! Whole files that are written once, piece by piece, and deleted at random.
//!
//! A few programs write concurrently, each one file after the other, so that pieces of different files alternate.
//! Files belong to one or more *crowds*. Each crowd has its share of the bytes written and of the live bytes. The
//! next file to delete is chosen at random. A crowd that gets many bytes and keeps few has files with short lives.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use rt::random::Rng;

use super::{Class, Name, Op, PIECE, Source};

/// Programs that write concurrently.
const WRITERS: usize = 4;

/// Files of one class.
struct Crowd {
    name: Name,
    class: Class,
    /// Blocks of a file; log-uniform between the two.
    sizes: RangeInclusive<u64>,
    /// Its share of the blocks written, in percent.
    share: u64,
    /// Limit for the blocks of its files.
    level: u64,
    /// Live blocks, including those still to be written.
    live: u64,
    written: u64,
    /// Whole files: number and blocks.
    files: Vec<(u32, u64)>,
    is_filled: bool,
}

/// A file that is being written.
struct Writing {
    crowd: usize,
    file: u32,
    blocks: u64,
    done: u64,
}

pub(super) struct Churn {
    crowds: Vec<Crowd>,
    writers: [Option<Writing>; WRITERS],
    next: u32,
    rng: Rng,
}

/// Files of one class.
pub(super) fn files(sizes: RangeInclusive<u64>, level: u64, rng: Rng) -> Churn {
    let name = Name { directory: "files", suffix: ".dat" };
    Churn::new(vec![crowd(name, Class::Unknown, sizes, 100, level)], rng)
}

/// Four fifths of the bytes live shortly in a tenth of the space. One fifth lives long in the rest.
pub(super) fn mix(level: u64, rng: Rng) -> Churn {
    let (short, cold) =
        (Name { directory: "work", suffix: ".tmp" }, Name { directory: "store", suffix: ".dat" });
    let sizes = 4..=1024;
    let crowds = vec![
        crowd(short, Class::Short, sizes.clone(), 80, level / 10),
        crowd(cold, Class::Long, sizes, 20, level - level / 10),
    ];
    Churn::new(crowds, rng)
}

fn crowd(name: Name, class: Class, sizes: RangeInclusive<u64>, share: u64, level: u64) -> Crowd {
    assert!(level > WRITERS as u64 * sizes.end(), "{level} blocks hold the largest file of each writer");
    Crowd { name, class, sizes, share, level, live: 0, written: 0, files: Vec::new(), is_filled: false }
}

impl Churn {
    fn new(crowds: Vec<Crowd>, rng: Rng) -> Churn {
        Churn { crowds, writers: [const { None }; WRITERS], next: 0, rng }
    }

    /// The crowd of the next file. Until all are full: the least full one. Then: the one that is furthest behind its
    /// share.
    fn next_crowd(&self) -> usize {
        let filled = self.is_filled();
        let behind = |crowd: &Crowd| {
            let (part, of) = if filled { (crowd.written, crowd.share) } else { (crowd.live, crowd.level) };
            part as f64 / of as f64
        };
        let crowds = self.crowds.iter().enumerate();
        let first = crowds.min_by(|(_, a), (_, b)| behind(a).total_cmp(&behind(b)));
        first.expect("there is a crowd").0
    }

    fn create(&mut self, writer: usize, ops: &mut VecDeque<Op>) {
        let filled = self.is_filled();
        let (index, file) = (self.next_crowd(), self.next);
        let crowd = &mut self.crowds[index];
        let blocks = log_uniform(&mut self.rng, &crowd.sizes);
        while crowd.live + blocks > crowd.level {
            crowd.is_filled = true;
            let (file, gone) = crowd.files.swap_remove(self.rng.usize(0..crowd.files.len()));
            crowd.live -= gone;
            ops.push_back(Op::Delete { file });
        }
        crowd.live += blocks;
        crowd.written += if filled { blocks } else { 0 };
        self.next += 1;
        ops.push_back(Op::Create { file, name: crowd.name, class: crowd.class });
        self.writers[writer] = Some(Writing { crowd: index, file, blocks, done: 0 });
    }
}

impl Source for Churn {
    fn more(&mut self, ops: &mut VecDeque<Op>) {
        let writer = self.rng.usize(0..WRITERS);
        if self.writers[writer].is_none() {
            self.create(writer, ops);
        }
        let writing = self.writers[writer].as_mut().expect("a file was made where there was none");
        let blocks = PIECE.min(writing.blocks - writing.done);
        ops.push_back(Op::Write { file: writing.file, start: writing.done, blocks });
        writing.done += blocks;
        if writing.done == writing.blocks {
            ops.push_back(Op::Close { file: writing.file });
            self.crowds[writing.crowd].files.push((writing.file, writing.blocks));
            self.writers[writer] = None;
        }
    }

    fn is_filled(&self) -> bool {
        self.crowds.iter().all(|crowd| crowd.is_filled)
    }
}

/// A size whose logarithm is uniform between these two.
fn log_uniform(rng: &mut Rng, sizes: &RangeInclusive<u64>) -> u64 {
    let (least, most) = (*sizes.start() as f64, *sizes.end() as f64);
    let size = least * (most / least).powf(rng.f64());
    (size.round() as u64).clamp(*sizes.start(), *sizes.end())
}
