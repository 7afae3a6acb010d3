//! Scrub: reads all live metadata and data in steps while the volume is in use. The crates below decide what is a
//! finding.
//!
//! On a device with several copies all of them are read. A damaged copy cannot be overwritten in place. Blocks of data are
//! repaired: they are written anew from an intact copy, with all copies. Pages of metadata are only reported. GC of their
//! zone writes them anew.

use std::ops::Range;

use extent::{DataScrub, Hint, Object};
use tree::NodeScrub;
use zone::{Role, ZoneId};

use crate::affected_files::AffectedFile;
use crate::check::Finding;
use crate::errno::Result;
use crate::volume::Fs;

/// The position of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubAt {
    /// In the pages of metadata.
    Metadata(NodeScrub),
    /// In the blocks of files.
    Data(DataScrub),
    /// Everything has been read.
    End,
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The position of the next step.
    pub next: ScrubAt,
    /// The number of bytes that were read.
    pub bytes: u64,
    /// The findings, each with the inode that it affects. Paths are not looked up.
    pub findings: Vec<(Finding, Option<AffectedFile>)>,
    /// The damaged copies of metadata and data of which another copy is intact.
    pub damaged_copies: Vec<DamagedCopy>,
}

/// A damaged copy of a page or of blocks, while another copy is intact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedCopy {
    /// A description of the place and of the damage.
    pub what: String,
    /// Everything was written anew, so all copies are intact.
    pub repaired: bool,
}

/// What a scrub does about damaged copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagedCopies {
    /// It only reports them.
    Report,
    /// It repairs those of data if the volume can be changed.
    Repair,
}

impl ScrubAt {
    /// The beginning of the metadata.
    pub fn start() -> ScrubAt {
        ScrubAt::Metadata(NodeScrub::default())
    }

    /// The beginning of the data.
    pub fn data() -> ScrubAt {
        ScrubAt::Data(DataScrub::default())
    }
}

impl Fs {
    /// Reads and verifies the next pages or blocks, about `bytes_max` bytes.
    pub fn scrub_step(&self, at: ScrubAt, bytes_max: u64, copies: DamagedCopies) -> Result<Scrubbed> {
        let repairs = copies == DamagedCopies::Repair && !self.is_read_only();
        let (next, bytes, findings, damaged_copies) = match at {
            ScrubAt::Metadata(mut at) => {
                let scrubbed = self.store.scrub_step(&mut at, bytes_max)?;
                let next = if scrubbed.done { ScrubAt::data() } else { ScrubAt::Metadata(at) };
                let findings = scrubbed.findings.into_iter().map(Finding::Store).collect();
                let of_page = |what| DamagedCopy { what: format!("metadata: {what}"), repaired: false };
                let damaged_copies = scrubbed.damaged_copies.into_iter().map(of_page).collect();
                (next, scrubbed.bytes, findings, damaged_copies)
            }
            ScrubAt::Data(mut at) => {
                let scrubbed = extent::scrub_step(self.extents.maps(), &mut at, bytes_max)?;
                let next = if scrubbed.done { ScrubAt::End } else { ScrubAt::Data(at) };
                let findings = scrubbed.findings.into_iter().map(Finding::Extents).collect();
                let damaged_copies = self.repair_blocks(scrubbed.damaged_copies, repairs);
                (next, scrubbed.bytes, findings, damaged_copies)
            }
            ScrubAt::End => (ScrubAt::End, 0, Vec::<Finding>::new(), Vec::new()),
        };
        let of = self.affected_inodes(&findings)?.into_iter().map(|of| of.into_iter().next());
        Ok(Scrubbed { next, bytes, findings: findings.into_iter().zip(of).collect(), damaged_copies })
    }

    fn repair_blocks(&self, damaged: Vec<extent::DamagedCopy>, repairs: bool) -> Vec<DamagedCopy> {
        let all = damaged.into_iter().map(|extent::DamagedCopy { object, blocks, what }| {
            let (first, last) = (blocks.start, blocks.end - 1);
            let repaired = repairs && logged(self.rewrite_blocks(object, blocks)) == Some(true);
            DamagedCopy {
                what: format!("data: object {} blocks {first} to {last}: {what}", object.0),
                repaired,
            }
        });
        all.collect()
    }

    /// Returns whether all copies are intact after that.
    fn rewrite_blocks(&self, object: Object, blocks: Range<u64>) -> Result<bool> {
        let _background_change = self.background_changes.read();
        self.with_space(|| {
            self.begin_growing()?;
            Ok(extent::rewrite(&self.extents, object, Hint::default(), blocks.clone())?)
        })?;
        Ok(extent::is_intact(self.extents.maps(), object, blocks)?)
    }

    /// The approximate number of bytes that a scrub reads: of metadata, and of data.
    pub fn scrub_bytes(&self) -> (u64, u64) {
        let pool = self.store.pool();
        let data = [Role::Data, Role::Gc].into_iter().flat_map(|role| pool.in_role(role));
        let copies = |zone| u64::from(self.store.device().copies(zone, 1));
        let live: u64 = data.map(|zone| u64::from(pool.entry(zone).live) * copies(zone)).sum();
        (self.store.scrub_bytes() * copies(ZoneId(0)), live * u64::from(self.extents.block_size()))
    }
}

/// A repair that fails leaves the intact copy, and the damaged one is reported.
fn logged<T>(repaired: Result<T>) -> Option<T> {
    repaired.inspect_err(|error| tracing::warn!("a damaged copy cannot be written anew: {error}")).ok()
}
