//! What collecting garbage does for a file that was written in many pieces between those of others.
//!
//! Files are written block by block, in turn, so that each lies in as many fragments as it has blocks. Then some are
//! deleted, and garbage is collected by hand until nothing is to be won: what lives is moved in the order of files.
//! What remains scattered, because its zones were no victims or were emptied at different times, is put together as
//! `polder defrag` does. A file of the same length, written alone, says how few commands reading can take.

use anyhow::{Result, ensure};
use fs::Reserve;
use rt::random::Rng;
use serde::Serialize;

use crate::trace::{Class, Name, Op, PIECE};
use crate::volume::{Medium, Shape, Switches, Volume};

/// The file that is looked at; the others follow it, and then the one that is written alone.
const ONE: u32 = 0;

/// How many pieces of how many files.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// The device.
    pub shape: Shape,
    /// Blocks of each file, written one by one.
    pub pieces: u64,
    /// Files beside the one that is looked at.
    pub others: u32,
    /// How many of them are deleted.
    pub deleted: u32,
    /// Decides the order.
    pub seed: u64,
}

/// How a file lies, and what reading it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lies {
    /// Runs of blocks that lie together.
    pub fragments: u64,
    /// Commands that the device is asked when the file is read from its beginning to its end.
    pub reads: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seen {
    /// The seed.
    pub seed: u64,
    /// Blocks of each file.
    pub pieces: u64,
    /// When all had been written.
    pub before: Lies,
    /// When garbage had been collected.
    pub collected: Lies,
    /// When the file had been put together, if that saved anything.
    pub put_together: Lies,
    /// A file that was written alone.
    pub alone: Lies,
    /// Bytes that garbage collection moved.
    pub moved_bytes: u64,
}

impl Pieces {
    /// Does it.
    pub fn run(&self) -> Result<Seen> {
        ensure!(self.deleted <= self.others, "no more files can be deleted than there are");
        rt::random::repeat_from(self.seed);
        let of = (self.shape, Medium::Ssd, Reserve::default(), Switches::default());
        Volume::used_by(of, self.seed, |volume| self.run_on(volume))
    }

    fn run_on(&self, mut volume: Volume) -> Result<Seen> {
        let mut rng = Rng::with_seed(self.seed);
        self.write_in_turn(&mut volume, &mut rng)?;
        let alone = self.others + 1;
        create(&mut volume, alone)?;
        for start in (0..self.pieces).step_by(PIECE as usize) {
            let blocks = PIECE.min(self.pieces - start);
            volume.apply(&Op::Write { file: alone, start, blocks })?;
        }
        let alone = volume.lies(alone)?;
        let before = volume.lies(ONE)?;
        let mut others: Vec<u32> = (1..=self.others).collect();
        rng.shuffle(&mut others);
        for &file in &others[..self.deleted as usize] {
            volume.apply(&Op::Delete { file })?;
        }
        let moved_bytes = volume.collect()?;
        let collected = volume.lies(ONE)?;
        volume.put_together(ONE)?;
        let put_together = volume.lies(ONE)?;
        volume.compare(usize::MAX)?;
        volume.check()?;
        let Pieces { seed, pieces, .. } = *self;
        Ok(Seen { seed, pieces, before, collected, put_together, alone, moved_bytes })
    }

    /// The files' blocks, one of each file in an order of chance, and again.
    fn write_in_turn(&self, volume: &mut Volume, rng: &mut Rng) -> Result<()> {
        let mut files: Vec<u32> = (ONE..=self.others).collect();
        files.iter().try_for_each(|&file| create(volume, file))?;
        for start in 0..self.pieces {
            rng.shuffle(&mut files);
            for &file in &files {
                volume.apply(&Op::Write { file, start, blocks: 1 })?;
            }
        }
        Ok(())
    }
}

fn create(volume: &mut Volume, file: u32) -> Result<()> {
    let name = Name { directory: "pieces", suffix: "" };
    volume.apply(&Op::Create { file, name, class: Class::Unknown })?;
    Ok(())
}

#[cfg(test)]
mod tests;
