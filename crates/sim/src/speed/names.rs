//! Rates of names in small and in large trees: does the speed hold if a tree is a hundred times as large?
//!
//! A [`Tree`] is a number of files of 1 KiB in one directory or in a thousand. Trees take turns of up to [`SLICE`]
//! files. There are two stages. Everything is remounted between them, so that neither the kernel nor Polder has
//! cached a name from the first stage:
//!
//! * [`make`]: a tree of one slice is created anew in every round (and the old one removed, not timed). A larger tree
//!   is filled up to its last slices, which are timed. So both include the cost of their checkpoints.
//! * [`visit`]: names are looked up in the order of their creation, another slice in each round, for the first time
//!   and immediately again. Directories are listed, and slices are unlinked.

use rt::Clock;

use super::{Named, Result, rate};

/// Limit for the files of one turn.
pub const SLICE: u64 = 10_000;

/// Bytes of a file.
const CONTENT: [u8; 1024] = [0x5a; 1024];
/// How often directories are listed. A listing takes time in proportion to the tree.
const LISTINGS: u64 = 3;

/// Files in a place.
pub struct Tree {
    /// The place.
    pub named: Named,
    /// The number of files.
    pub files: u64,
    /// The number of directories.
    pub directories: u64,
}

/// The result of one turn.
pub struct Measured<'a> {
    /// The place's name.
    pub place: &'a str,
    /// Files of the tree.
    pub files: u64,
    /// The operation.
    pub operation: &'a str,
    /// Operations per second.
    pub rate: f64,
}

impl Tree {
    /// Whether one turn covers the whole tree.
    fn is_small(&self) -> bool {
        self.files <= SLICE
    }

    fn check(&self, rounds: u64) -> Result<()> {
        let enough = self.is_small() || self.files >= rounds * SLICE;
        match self.files.is_multiple_of(self.directories.max(1)) && self.directories > 0 && enough {
            true => Ok(()),
            false => {
                Err(format!("{} files in {} directories cannot be shared out", self.files, self.directories))
            }
        }
    }

    fn directory(&self, generation: u64, number: u64) -> String {
        format!("g{generation}d{number}")
    }

    fn path(&self, generation: u64, file: u64) -> String {
        let directory = self.directory(generation, file / (self.files / self.directories));
        format!("{directory}/f{file}")
    }

    fn make_directories(&self, generation: u64) -> Result<()> {
        (0..self.directories)
            .try_for_each(|number| self.named.place.make_directory(&self.directory(generation, number)))
    }

    fn create(&self, generation: u64, files: std::ops::Range<u64>) -> Result<()> {
        let mut files = files;
        files.try_for_each(|file| self.named.place.create(&self.path(generation, file), &CONTENT))
    }

    fn remove(&self, generation: u64, files: std::ops::Range<u64>) -> Result<()> {
        let mut files = files;
        files.try_for_each(|file| self.named.place.remove(&self.path(generation, file)))
    }

    fn lookup(&self, generation: u64, files: std::ops::Range<u64>) -> Result<()> {
        let mut files = files;
        files.try_for_each(|file| match self.named.place.lookup(&self.path(generation, file))? {
            size if size == CONTENT.len() as u64 => Ok(()),
            size => Err(format!("file {file} has {size} bytes")),
        })
    }

    fn list(&self, generation: u64) -> Result<u64> {
        (0..self.directories).map(|number| self.named.place.list(&self.directory(generation, number))).sum()
    }

    /// The files of a round's turn: spread over the whole tree, no file twice.
    fn slice(&self, round: u64, rounds: u64) -> std::ops::Range<u64> {
        let share = self.files / rounds;
        round * share..round * share + share.min(SLICE)
    }

    /// The generation of the tree that exists after `rounds`.
    fn last_generation(&self, rounds: u64) -> u64 {
        if self.is_small() { rounds - 1 } else { 0 }
    }

    fn measured(&self, operation: &'static str, rate: f64, each: &mut dyn FnMut(Measured<'_>)) {
        each(Measured { place: &self.named.name, files: self.files, operation, rate });
    }
}

/// Creates all trees and times the last slices.
pub fn make(
    trees: &[Tree],
    rounds: u64,
    clock: &dyn Clock,
    each: &mut dyn FnMut(Measured<'_>),
) -> Result<()> {
    trees.iter().try_for_each(|tree| tree.check(rounds))?;
    for tree in trees.iter().filter(|tree| !tree.is_small()) {
        tree.make_directories(0)?;
        tree.create(0, 0..tree.files - rounds * SLICE)?;
    }
    for round in 0..rounds {
        for tree in trees {
            let (generation, slice) = if tree.is_small() {
                tree.make_directories(round)?;
                (round, 0..tree.files)
            } else {
                (0, tree.files - (rounds - round) * SLICE..tree.files - (rounds - round - 1) * SLICE)
            };
            let operations = slice.end - slice.start;
            let rate = rate(clock, operations, || tree.create(generation, slice))?;
            tree.measured("create", rate, each);
            if tree.is_small() && round + 1 < rounds {
                tree.remove(generation, 0..tree.files)?;
            }
        }
    }
    trees.iter().try_for_each(|tree| tree.named.place.sync())
}

/// Looks names up, lists directories and unlinks, in trees created with the same number of rounds.
pub fn visit(
    trees: &[Tree],
    rounds: u64,
    clock: &dyn Clock,
    each: &mut dyn FnMut(Measured<'_>),
) -> Result<()> {
    trees.iter().try_for_each(|tree| tree.check(rounds))?;
    for round in 0..rounds {
        for tree in trees {
            let generation = tree.last_generation(rounds);
            for operation in ["lookup", "lookup again"] {
                let slice = tree.slice(round, rounds);
                let rate = rate(clock, slice.end - slice.start, || tree.lookup(generation, slice))?;
                tree.measured(operation, rate, each);
            }
        }
    }
    for _ in 0..LISTINGS {
        for tree in trees {
            let rate = rate(clock, tree.files, || list_all(tree, rounds, tree.files))?;
            tree.measured("readdir", rate, each);
        }
    }
    for round in 0..rounds {
        for tree in trees {
            let generation = tree.last_generation(rounds);
            let slice = if tree.is_small() { 0..tree.files } else { tree.slice(round, rounds) };
            let rate = rate(clock, slice.end - slice.start, || tree.remove(generation, slice))?;
            tree.measured("unlink", rate, each);
            if tree.is_small() {
                tree.create(generation, 0..tree.files)?;
            }
        }
    }
    for tree in trees {
        let removed = if tree.is_small() { 0 } else { rounds * (tree.files / rounds).min(SLICE) };
        list_all(tree, rounds, tree.files - removed)?;
        tree.named.place.sync()?;
    }
    Ok(())
}

fn list_all(tree: &Tree, rounds: u64, expected: u64) -> Result<()> {
    match tree.list(tree.last_generation(rounds))? {
        entries if entries == expected => Ok(()),
        entries => Err(format!("{}: {entries} of {expected} names are listed", tree.named.name)),
    }
}
