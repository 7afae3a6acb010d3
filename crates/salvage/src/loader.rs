//! Reads pages again that the scan has found, and verifies that they are still the same.

use std::sync::Arc;

use tree::decode::{Page, PageKind, Place, apply_delta, page_header};
use tree::{Bytes, Result};
use zone::{Address, Device, FsId, Pages};

use crate::scan::{Scan, other_copy, read};

/// Reads pages.
#[derive(Clone)]
pub(crate) struct Loader {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) fs_id: FsId,
    /// Memory for nodes.
    pub(crate) pages: Arc<Pages>,
}

impl Loader {
    pub(crate) fn new(device: Arc<dyn Device>, scan: &Scan) -> Loader {
        Loader { device, fs_id: scan.fs_id, pages: Pages::new(scan.page_size) }
    }

    /// A page, if it is still the one that was named: of this kind, number and life.
    pub(crate) fn page(&self, at: Address, kind: PageKind, id: u64) -> Result<Option<Bytes>> {
        let mut bytes = vec![0; self.pages.page_size()];
        let check = |bytes: &[u8]| {
            let is_it = page_header(bytes, self.fs_id)
                .is_some_and(|header| header.kind == kind as u8 && header.id == id && at.is_of(header.life));
            is_it.then_some(())
        };
        let is_read = read(&*self.device, at.zone(), at.block(), &mut bytes)?;
        let first = is_read.then(|| check(&bytes)).flatten();
        let other = || other_copy(&*self.device, at.zone(), at.block(), &mut bytes, check);
        Ok(first.or_else(other).map(|()| bytes))
    }

    /// A node at its place, with its delta records applied.
    pub(crate) fn node(&self, id: u64, place: Place) -> Result<Option<Page>> {
        let Some(bytes) = self.page(place.whole_page(), PageKind::Node, id)? else { return Ok(None) };
        let mut memory = self.pages.try_take()?;
        memory.copy_from_slice(&bytes);
        let Some(mut page) = Page::load(memory) else { return Ok(None) };
        if !place.is_delta() {
            return Ok(Some(page));
        }
        let Some(bytes) = self.page(place.at, PageKind::Deltas, 0)? else { return Ok(None) };
        Ok(apply_delta(&bytes, &mut page).then_some(page))
    }
}
