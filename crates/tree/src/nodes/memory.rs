//! Memory for pages when the system has no more.
//!
//! A cache that cannot grow works as a smaller cache. If memory is needed for a page, unused pages are dropped. Only
//! if none can be dropped does the caller get `NoMemory`, and then it has changed nothing. Work that cannot be aborted
//! reserves its pages before it begins:
//!
//! * A transaction reserves the pages that its changes can take at most (`commit/pages.rs`) before it takes its LSN. If
//!   the pages in memory are dirty, they are written out first.
//! * A checkpoint has the pages for merging chunks reserved from the mount on. So no checkpoint fails after its cut
//!   because memory is short, which would shut the volume down.
//!
//! The pages of a checkpoint stay in the cache of chunks only if as many pages are free as are reserved
//! ([`Nodes::cache_chunk`]). Otherwise a reader might hold the pages of one checkpoint while the next one takes as many
//! again.
//!
//! Readahead ([`Reading::Ahead`]) takes no page for which another one would have to be dropped. If it gets no page,
//! the thread that needs the contents reads them later.

use std::sync::Arc;

use zone::{Address, PageBuffer, PageReservation};

use super::Nodes;
use crate::types::Result;

/// Pages that are appended together.
pub(crate) const PAGES_AT_ONCE: usize = 64;
/// Pages that a checkpoint uses at the same time, at most: the chunks that are written together, and one that is read
/// for them.
pub(crate) const CHECKPOINT_PAGES: usize = PAGES_AT_ONCE + 1;

/// Why a page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The caller cannot continue without it.
    Needed,
    /// It may be needed soon.
    Ahead,
}

impl Nodes {
    /// A page with undefined contents. If no page is free, an unused one is dropped for it.
    pub(crate) fn page(&self) -> Result<PageBuffer> {
        self.or_after_dropping(|| self.pages.try_take())
    }

    /// A page of zeros.
    pub(crate) fn zeroed_page(&self) -> Result<PageBuffer> {
        let mut page = self.page()?;
        page.fill(0);
        Ok(page)
    }

    /// Reserves pages for work that cannot be aborted.
    pub(crate) fn promise(&self, count: usize) -> Result<PageReservation> {
        self.or_after_dropping(|| self.pages.reserve(count))
    }

    /// A page for the holder of the checkpoint lock, from the reserved pages if no other is free.
    pub(crate) fn checkpoint_page(&self) -> PageBuffer {
        self.page().unwrap_or_else(|_| self.pages.take_reserved())
    }

    /// Keeps a chunk in memory, unless its page is reserved for the next checkpoint.
    pub(crate) fn cache_chunk(&self, number: u64, at: Address, chunk: Arc<PageBuffer>) {
        if self.pages.covers_reservations() {
            self.chunks.put(number, at, chunk);
        }
    }

    fn or_after_dropping<T>(&self, wanted: impl Fn() -> std::result::Result<T, zone::NoMemory>) -> Result<T> {
        loop {
            match wanted() {
                Ok(had) => return Ok(had),
                Err(lack) => {
                    let was_dropped =
                        self.unused_pages.clear() || self.cache.shrink() || self.chunks.shrink();
                    if !was_dropped {
                        return Err(lack.into());
                    }
                }
            }
        }
    }
}
