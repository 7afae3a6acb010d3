//! Reading everything that lives, metadata and data, while the volume is used. A piece at a time; the crates
//! below say what is a finding and what is not.

use extent::DataScrub;
use tree::NodeScrub;
use zone::Role;

use crate::affected_files::AffectedFile;
use crate::check::Finding;
use crate::errno::Result;
use crate::volume::Fs;

/// Where reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubAt {
    /// In the pages of metadata.
    Metadata(NodeScrub),
    /// In the blocks of files.
    Data(DataScrub),
    /// Everything has been read.
    End,
}

/// What a piece of work came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// Where the next piece begins.
    pub next: ScrubAt,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong, each with the inode that it concerns; paths are not looked for.
    pub findings: Vec<(Finding, Option<AffectedFile>)>,
}

impl ScrubAt {
    /// The beginning of everything.
    pub fn start() -> ScrubAt {
        ScrubAt::Metadata(NodeScrub::default())
    }

    /// The beginning of the data.
    pub fn data() -> ScrubAt {
        ScrubAt::Data(DataScrub::default())
    }
}

impl Fs {
    /// Reads and verifies the next pages or blocks, about so many bytes of them.
    pub fn scrub_step(&self, at: ScrubAt, bytes_max: u64) -> Result<Scrubbed> {
        let (next, bytes, findings) = match at {
            ScrubAt::Metadata(mut at) => {
                let scrubbed = self.store.scrub_step(&mut at, bytes_max)?;
                let next = if scrubbed.done { ScrubAt::data() } else { ScrubAt::Metadata(at) };
                (next, scrubbed.bytes, scrubbed.findings.into_iter().map(Finding::Store).collect())
            }
            ScrubAt::Data(mut at) => {
                let scrubbed = self.extents.scrub_step(&mut at, bytes_max)?;
                let next = if scrubbed.done { ScrubAt::End } else { ScrubAt::Data(at) };
                (next, scrubbed.bytes, scrubbed.findings.into_iter().map(Finding::Extents).collect())
            }
            ScrubAt::End => (ScrubAt::End, 0, Vec::<Finding>::new()),
        };
        let of = self.affected_inodes(&findings)?.into_iter().map(|of| of.into_iter().next());
        Ok(Scrubbed { next, bytes, findings: findings.into_iter().zip(of).collect() })
    }

    /// About as many bytes as there are to be read: of metadata, and of data.
    pub fn scrub_bytes(&self) -> (u64, u64) {
        let pool = self.store.pool();
        let data = [Role::Data, Role::Gc].into_iter().flat_map(|role| pool.in_role(role));
        let live: u64 = data.map(|zone| u64::from(pool.entry(zone).live)).sum();
        (self.store.scrub_bytes(), live * u64::from(self.extents.block_size()))
    }
}
