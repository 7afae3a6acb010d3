//! Files that stay, with single blocks that are overwritten.

use std::collections::VecDeque;

use rt::random::Rng;

use super::zipf::Zipf;
use super::{Class, Name, Op, PIECE, Source};

/// Files that share the blocks.
const FILES: u64 = 16;
/// Writes between two moments at which a program would call fsync.
const WRITES_PER_SYNC: u64 = 64;
/// The exponent of Zipf's law.
const EXPONENT: f64 = 0.99;

/// How the next block is chosen.
enum Choice {
    Uniform,
    /// Ranks by Zipf's law, and the block of each rank.
    Zipf(Zipf, Vec<u32>),
}

pub(super) struct Overwrite {
    blocks: u64,
    /// Blocks written by filling.
    filled: u64,
    writes: u64,
    choice: Choice,
    rng: Rng,
}

pub(super) fn uniform(level: u64, rng: Rng) -> Overwrite {
    Overwrite::new(level, Choice::Uniform, rng)
}

pub(super) fn zipf(level: u64, mut rng: Rng) -> Overwrite {
    let mut ranked: Vec<u32> = (0..level as u32).collect();
    rng.shuffle(&mut ranked);
    let choice = Choice::Zipf(Zipf::new(level as usize, EXPONENT), ranked);
    Overwrite::new(level, choice, rng)
}

impl Overwrite {
    fn new(blocks: u64, choice: Choice, rng: Rng) -> Overwrite {
        assert!(blocks >= FILES, "each file has a block");
        Overwrite { blocks, filled: 0, writes: 0, choice, rng }
    }

    /// The first block of a file, counted over all files.
    fn start_of(&self, file: u64) -> u64 {
        file * self.blocks / FILES
    }

    /// The file, and the block in it.
    fn place(&self, block: u64) -> (u32, u64) {
        let about = block * FILES / self.blocks;
        let file = if block >= self.start_of(about + 1) { about + 1 } else { about };
        (file as u32, block - self.start_of(file))
    }

    fn fill(&mut self, ops: &mut VecDeque<Op>) {
        let (file, start) = self.place(self.filled);
        if start == 0 {
            let name = Name { directory: "files", suffix: ".dat" };
            ops.push_back(Op::Create { file, name, class: Class::Unknown });
        }
        let end = self.start_of(u64::from(file) + 1);
        let blocks = PIECE.min(end - self.filled);
        ops.push_back(Op::Write { file, start, blocks });
        self.filled += blocks;
        if self.filled == end {
            ops.push_back(Op::Sync { file });
        }
    }
}

impl Source for Overwrite {
    fn more(&mut self, ops: &mut VecDeque<Op>) {
        if !self.is_filled() {
            return self.fill(ops);
        }
        let block = match &self.choice {
            Choice::Uniform => self.rng.u64(0..self.blocks),
            Choice::Zipf(zipf, ranked) => u64::from(ranked[zipf.rank(self.rng.f64())]),
        };
        let (file, start) = self.place(block);
        self.writes += 1;
        ops.push_back(Op::Write { file, start, blocks: 1 });
        if self.writes.is_multiple_of(WRITES_PER_SYNC) {
            ops.push_back(Op::Sync { file });
        }
    }

    fn is_filled(&self) -> bool {
        self.filled == self.blocks
    }
}
