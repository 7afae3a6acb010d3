//! The effect of GC on a file that was written in many pieces between those of other files.
//!
//! Files are written block by block, in turn, so that each has as many fragments as blocks. Then some are deleted,
//! and manual GC runs until it can free nothing more. It moves live blocks in the order of files.
//! Fragments remain if their zones were no victims or were emptied at different times. They are then defragmented, as
//! by `polder defrag`. A file of the same length that was written alone gives the least number of commands for
//! reading.

use anyhow::{Result, ensure};
use fs::Reserve;
use rt::random::Rng;
use serde::Serialize;

use crate::trace::{Class, Name, Op, PIECE};
use crate::volume::{Layout, Medium, Shape, Switches, Volume};

/// The measured file. The others follow it, and then the one that is written alone.
const ONE: u32 = 0;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// The device.
    pub shape: Shape,
    /// Blocks of each file, written one by one.
    pub pieces: u64,
    /// Files in addition to the measured one.
    pub others: u32,
    /// How many of them are deleted.
    pub deleted: u32,
    /// Determines the order.
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seen {
    /// The seed.
    pub seed: u64,
    /// Blocks of each file.
    pub pieces: u64,
    /// After all writes.
    pub before: Layout,
    /// After GC.
    pub collected: Layout,
    /// After defragmentation, if that saved anything.
    pub put_together: Layout,
    /// A file that was written alone.
    pub alone: Layout,
    /// Bytes moved by GC.
    pub moved_bytes: u64,
}

impl Pieces {
    /// Runs the measurement.
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
        let alone = volume.layout(alone)?;
        let before = volume.layout(ONE)?;
        let mut others: Vec<u32> = (1..=self.others).collect();
        rng.shuffle(&mut others);
        for &file in &others[..self.deleted as usize] {
            volume.apply(&Op::Delete { file })?;
        }
        let moved_bytes = volume.collect()?;
        let collected = volume.layout(ONE)?;
        volume.defragment(ONE)?;
        let put_together = volume.layout(ONE)?;
        volume.compare(usize::MAX)?;
        volume.check()?;
        let Pieces { seed, pieces, .. } = *self;
        Ok(Seen { seed, pieces, before, collected, put_together, alone, moved_bytes })
    }

    /// Writes one block of each file in random order, and again until all are complete.
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
