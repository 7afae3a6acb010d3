//! How much of a device files can use. A volume is filled to the last available block, overwritten while it is full,
//! and emptied. Each time the reported space is compared with the bytes written.
//!
//! One file takes all available space. The device stores no contents: each block repeats a word that follows from its
//! place and the number of its writes.

use anyhow::{Result, ensure};
use fs::Reserve;
use rt::random::Rng;
use serde::Serialize;

use crate::trace::{Class, Name, Op, PIECE};
use crate::volume::{Medium, Shape, Switches, Volume};

const FILE: u32 = 0;
/// Blocks that are read at the end, drawn from all.
const COMPARED: u64 = 200_000;
/// Live metadata of the store that did not exist when the volume was new: the limit.
const FOR_METADATA: u64 = 64 << 10;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Usable {
    /// The device.
    pub shape: Shape,
    /// The reserve that data never gets.
    pub reserve: Reserve,
    /// Bytes overwritten while the volume is full, in thousandths of the available space.
    pub churn_permille: u64,
    /// Determines what is overwritten.
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Zones of the device.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Hundredths of a percent that data never gets; 0: as few as possible.
    pub reserve: u32,
    /// The least possible reserve.
    pub least_reserve: u32,
    /// The seed.
    pub seed: u64,
    /// The space available on the empty volume, in bytes.
    pub offered_bytes: u64,
    /// The same in percent of all bytes of the device.
    pub offered_percent: f64,
    /// The bytes written until no space was available and one more block was refused. More than the space available
    /// at first only if metadata takes less than was reserved for it.
    pub filled_bytes: u64,
    /// The bytes overwritten while the volume was full.
    pub churned_bytes: u64,
    /// Device bytes for each byte written over.
    pub amplification: f64,
    /// Blocks compared.
    pub compared_blocks: u64,
    /// The space available after the file was deleted.
    pub offered_again_bytes: u64,
    /// The maximum of the zones with metadata while the volume was full.
    pub metadata_zones_max: u32,
}

impl Usable {
    /// Runs the measurement.
    pub fn run(&self) -> Result<Seen> {
        rt::random::repeat_from(self.seed);
        let of = (self.shape, Medium::Ssd, self.reserve, Switches::default());
        Volume::used_by(of, self.seed, |volume| self.run_on(volume))
    }

    fn run_on(&self, mut volume: Volume) -> Result<Seen> {
        let name = Name { directory: "usable", suffix: "" };
        let block_bytes = self.shape.block_bytes;
        // The name comes first, because it takes a part of a node from the available space.
        volume.apply(&Op::Create { file: FILE, name, class: Class::Unknown })?;
        let offered = volume.available()?;
        let blocks = self.fill(&mut volume, 0)?;
        ensure!(blocks * block_bytes >= offered, "{blocks} blocks fit into {offered} available bytes");
        let before = volume.written_in_all();
        let (churned, metadata_zones_max) = self.churn(&mut volume, blocks)?;
        let amplification = (volume.written_in_all() - before) as f64 / (churned * block_bytes).max(1) as f64;
        let filled = self.fill(&mut volume, blocks)?;
        let compared_blocks = volume.compare_some(FILE, COMPARED, self.seed)?;
        volume.check()?;
        volume.apply(&Op::Delete { file: FILE })?;
        let offered_again_bytes = volume.available_at_rest()?;
        ensure!(
            offered_again_bytes + FOR_METADATA >= offered,
            "{offered} bytes were available when it was empty, {offered_again_bytes} are when it is empty again"
        );
        volume.check()?;
        let raw = u64::from(self.shape.zones) * self.shape.zone_bytes;
        Ok(Seen {
            zones: self.shape.zones,
            zone_bytes: self.shape.zone_bytes,
            block_bytes,
            reserve: self.reserve.0,
            least_reserve: volume.least_reserve().0,
            seed: self.seed,
            offered_bytes: offered,
            offered_percent: offered as f64 / raw as f64 * 100.0,
            filled_bytes: filled * block_bytes,
            churned_bytes: churned * block_bytes,
            amplification,
            compared_blocks,
            offered_again_bytes,
            metadata_zones_max,
        })
    }

    /// Overwrites pieces of all sizes; each size in blocks has the same probability. Returns the number of blocks.
    fn churn(&self, volume: &mut Volume, blocks: u64) -> Result<(u64, u32)> {
        let mut rng = Rng::with_seed(self.seed);
        let (mut churned, mut metadata_zones_max) = (0, 0);
        while churned < blocks * self.churn_permille / 1000 {
            let length = 1 << rng.u32(0..=PIECE.ilog2());
            let start = rng.u64(0..=blocks - length);
            volume.apply(&Op::Write { file: FILE, start, blocks: length })?;
            churned += length;
            metadata_zones_max = metadata_zones_max.max(volume.zone_use().metadata);
        }
        Ok((churned, metadata_zones_max))
    }

    /// Appends to the file until no space is available, and checks that one more block is refused. Returns the blocks
    /// of the file.
    fn fill(&self, volume: &mut Volume, mut end: u64) -> Result<u64> {
        loop {
            let until = end + volume.available()? / self.shape.block_bytes;
            if until == end {
                break;
            }
            while end < until {
                let blocks = PIECE.min(until - end);
                volume.apply(&Op::Write { file: FILE, start: end, blocks })?;
                end += blocks;
            }
        }
        ensure!(volume.refuses(FILE, end)?, "one block more than was available has been written");
        Ok(end)
    }
}

#[cfg(test)]
mod tests;
