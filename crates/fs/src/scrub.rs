//! Scrub: reads all live metadata and data in steps while the volume is in use. The crates below decide what is a
//! finding.

use extent::DataScrub;
use tree::NodeScrub;
use zone::Role;

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
    pub fn scrub_step(&self, at: ScrubAt, bytes_max: u64) -> Result<Scrubbed> {
        let (next, bytes, findings) = match at {
            ScrubAt::Metadata(mut at) => {
                let scrubbed = self.store.scrub_step(&mut at, bytes_max)?;
                let next = if scrubbed.done { ScrubAt::data() } else { ScrubAt::Metadata(at) };
                (next, scrubbed.bytes, scrubbed.findings.into_iter().map(Finding::Store).collect())
            }
            ScrubAt::Data(mut at) => {
                let scrubbed = extent::scrub_step(self.extents.maps(), &mut at, bytes_max)?;
                let next = if scrubbed.done { ScrubAt::End } else { ScrubAt::Data(at) };
                (next, scrubbed.bytes, scrubbed.findings.into_iter().map(Finding::Extents).collect())
            }
            ScrubAt::End => (ScrubAt::End, 0, Vec::<Finding>::new()),
        };
        let of = self.affected_inodes(&findings)?.into_iter().map(|of| of.into_iter().next());
        Ok(Scrubbed { next, bytes, findings: findings.into_iter().zip(of).collect() })
    }

    /// The approximate number of bytes that a scrub reads: of metadata, and of data.
    pub fn scrub_bytes(&self) -> (u64, u64) {
        let pool = self.store.pool();
        let data = [Role::Data, Role::Gc].into_iter().flat_map(|role| pool.in_role(role));
        let live: u64 = data.map(|zone| u64::from(pool.entry(zone).live)).sum();
        (self.store.scrub_bytes(), live * u64::from(self.extents.block_size()))
    }
}
