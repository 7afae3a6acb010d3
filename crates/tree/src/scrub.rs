//! Scrubbing: reads and verifies all live metadata while the store is in use.
//!
//! Each step reads some pages, from the end of the last step on. Pages in the cache are read from the device as well.
//! No lock is held during a read, so a page that is not valid is looked up once more: a page that was rewritten or
//! moved meanwhile is no finding. A finding does not shut the volume down, because the damaged page may never be
//! needed.
//!
//! On a device with several copies all of them are read. If some are right, the page is reported apart from the findings. GC
//! of its zone writes it anew, with all copies.

use zone::{Address, PageBuffer};

use crate::check::{Finding, FindingKind};
use crate::core::Core;
use crate::format::PageKind;
use crate::mat::{Found, Place};
use crate::store::Store;
use crate::types::{NodeId, Result, StoreError};

/// The position of a scrub. It begins with the tables and goes through all nodes by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeScrub {
    /// The tables have been read.
    pub begun: bool,
    /// The next chunk of the MAT.
    pub chunk: u64,
    /// The next node in it.
    pub index: u64,
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Defects.
    pub findings: Vec<Finding>,
    /// Pages with a damaged copy and an intact one.
    pub damaged_copies: Vec<String>,
    /// The scrub is complete.
    pub done: bool,
}

impl Store {
    /// Reads and verifies the next pages, about `bytes_max` bytes of them.
    ///
    /// # Errors
    /// If the whole device has failed. A damaged page is a finding.
    pub fn scrub_step(&self, scrub: &mut NodeScrub, bytes_max: u64) -> Result<Scrubbed> {
        let core = &self.core;
        let mut scrubbed = Scrubbed::default();
        if !scrub.begun {
            core.scrub_tables(&mut scrubbed)?;
            scrub.begun = true;
            return Ok(scrubbed);
        }
        let per_chunk = core.nodes.mat.per_chunk();
        while scrubbed.bytes < bytes_max {
            if scrub.chunk >= core.nodes.mat.chunks_len() {
                scrubbed.done = true;
                break;
            }
            let first = scrub.chunk * per_chunk;
            let Some(chunk) = core.scrub_chunk(scrub.chunk, &mut scrubbed)? else {
                (scrub.chunk, scrub.index) = (scrub.chunk + 1, 0);
                continue;
            };
            while scrub.index < per_chunk {
                core.scrub_node(NodeId(first + scrub.index), &chunk, &mut scrubbed)?;
                scrub.index += 1;
                if scrubbed.bytes >= bytes_max {
                    break;
                }
            }
            if scrub.index == per_chunk {
                (scrub.chunk, scrub.index) = (scrub.chunk + 1, 0);
            }
        }
        Ok(scrubbed)
    }

    /// About the number of bytes of nodes that [`Store::scrub_step`] will read.
    pub fn scrub_bytes(&self) -> u64 {
        let page = u64::from(self.info().page_size);
        self.core.nodes.mat.chunks().iter().map(|chunk| (u64::from(chunk.used) + 1) * page).sum()
    }
}

impl Core {
    /// The directories and the chunks of the ZIT.
    fn scrub_tables(&self, scrubbed: &mut Scrubbed) -> Result<()> {
        for (kind, number, at) in self.tables() {
            let is_named = || self.tables().contains(&(kind, number, at));
            self.scrub_page(at, kind, number, is_named, scrubbed)?;
        }
        Ok(())
    }

    /// The present places of the tables. The lock is held only for the copy. A running checkpoint is waited for.
    fn tables(&self) -> Vec<(PageKind, u64, Address)> {
        let saving = self.checkpoints.saving.lock();
        let numbered = |kind: PageKind, places: &mut dyn Iterator<Item = Address>| -> Vec<_> {
            let numbered = places.enumerate().map(|(number, at)| (kind, number as u64, at));
            numbered.filter(|(.., at)| !at.is_none()).collect()
        };
        let [mat, zit] = saving.tables.directories();
        let mut all = numbered(PageKind::MatDirectory, &mut mat.iter().copied());
        all.extend(numbered(PageKind::ZitDirectory, &mut zit.iter().copied()));
        all.extend(numbered(PageKind::ZitChunk, &mut saving.tables.zit_chunks()));
        all
    }

    /// A chunk of the MAT. None if no checkpoint has written a node of it, or if it is damaged.
    fn scrub_chunk(&self, number: u64, scrubbed: &mut Scrubbed) -> Result<Option<PageBuffer>> {
        loop {
            let at = self.nodes.mat.chunk(number).address;
            if at.is_none() {
                return Ok(None);
            }
            let is_named = || self.nodes.mat.chunk(number).address == at;
            let page = self.scrub_page(at, PageKind::MatChunk, number, is_named, scrubbed)?;
            if page.is_some() || is_named() {
                return Ok(page);
            }
        }
    }

    fn scrub_node(&self, id: NodeId, chunk: &[u8], scrubbed: &mut Scrubbed) -> Result<()> {
        let mut known = Some(self.nodes.mat.place_in(chunk, (id.0 % self.nodes.mat.per_chunk()) as usize));
        loop {
            let place = match (self.nodes.mat.find(id), known.take()) {
                (Found::At(place), _) | (Found::InChunk(_), Some(place)) => place,
                (Found::InChunk(_), None) => self.nodes.find(id)?.0,
            };
            if place.is_nowhere() {
                return Ok(());
            }
            let pages = if place.is_delta() { 2 } else { 1 };
            scrubbed.bytes += pages * self.volume.page_size() as u64;
            let Some(wrong) = wrong(self.nodes.read_node(id, place))? else {
                let is_named = || self.lies_at(id, place);
                self.scrub_copies(place.whole_page(), PageKind::Node, id.0, &is_named, scrubbed)?;
                if place.is_delta() {
                    self.scrub_copies(place.at, PageKind::Deltas, 0, &is_named, scrubbed)?;
                }
                return Ok(());
            };
            if self.lies_at(id, place)? {
                scrubbed.findings.push(Finding { kind: FindingKind::Node, what: wrong, lost: None });
                return Ok(());
            }
        }
    }

    /// Reads all copies of a page of which one is right.
    fn scrub_copies(
        &self,
        at: Address,
        kind: PageKind,
        number: u64,
        is_named: &dyn Fn() -> Result<bool>,
        scrubbed: &mut Scrubbed,
    ) -> Result<()> {
        let others = self.volume.device.copies(at.zone(), at.block()).saturating_sub(1);
        scrubbed.bytes += u64::from(others) * self.volume.page_size() as u64;
        if let Some(what) = self.nodes.damaged_copy(at, kind, number)?
            && is_named()?
            // Several nodes have their delta records in one page.
            && !scrubbed.damaged_copies.contains(&what)
        {
            scrubbed.damaged_copies.push(what);
        }
        Ok(())
    }

    /// Whether the node still lies at this place.
    fn lies_at(&self, id: NodeId, place: Place) -> Result<bool> {
        Ok(self.nodes.find(id)?.0 == place)
    }

    /// Reads a page. A damaged page that is still named is a finding.
    fn scrub_page(
        &self,
        at: Address,
        kind: PageKind,
        number: u64,
        is_named: impl Fn() -> bool,
        scrubbed: &mut Scrubbed,
    ) -> Result<Option<PageBuffer>> {
        scrubbed.bytes += self.volume.page_size() as u64;
        match self.nodes.read_within(at, kind, number) {
            Ok((bytes, _)) => {
                self.scrub_copies(at, kind, number, &|| Ok(is_named()), scrubbed)?;
                Ok(Some(bytes))
            }
            Err(error) => {
                if let Some(what) = wrong(Err::<(), _>(error))?
                    && is_named()
                {
                    scrubbed.findings.push(Finding { kind: FindingKind::Table, what, lost: None });
                }
                Ok(None)
            }
        }
    }
}

/// The defect of one page, in words. An error if the device has failed.
fn wrong<T>(read: Result<T>) -> Result<Option<String>> {
    match read {
        Ok(_) => Ok(None),
        Err(StoreError::Corrupt(what)) => Ok(Some(what)),
        Err(StoreError::Device(error)) if !error.is_of_whole_device() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}
