//! Memory for pages, where the system has no more.
//!
//! A cache that cannot grow is a smaller cache: what nobody uses is dropped for what somebody needs, and only where
//! nothing can be dropped is he told [`StoreError::NoMemory`]. He has changed nothing then. What cannot stop has its
//! pages promised before it begins:
//!
//! * a transaction, before it takes its LSN, those that its changes can take at most ([`needed`]). Where what is in
//!   memory is dirty, that is written out first;
//! * a checkpoint, from the mount on, those that merging chunks takes. So one never fails after its cut for want of
//!   memory, which would end the volume.
//!
//! A checkpoint's pages stay in the cache for chunks only if as many are free as were promised ([`Core::keep_chunk`]):
//! else somebody might hold those of one while the next takes as many again.
//!
//! Who reads ahead ([`Reading::Ahead`]) takes no page for which another would have to be dropped. Where a page is refused
//! to him, who needs it reads it alone.

use std::sync::Arc;

use smallvec::SmallVec;
use zone::{Address, PageBuffer, PageReservation};

use crate::checkpoint::PAGES_AT_ONCE;
use crate::commit::Held;
use crate::core::Core;
use crate::lookup::leaf_of;
use crate::types::{NodeId, Result, StoreError};

/// Pages that a checkpoint has in use at most: chunks that are written together, and one that is read for these.
pub(crate) const TO_SAVE: usize = PAGES_AT_ONCE + 1;

/// Copies that are there for a moment only while a transaction is applied: of the node that is split or merged, and what
/// becomes of it.
const FOR_A_MOMENT: usize = 4;

/// Why something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Somebody cannot go on without it.
    Needed,
    /// Somebody may need it.
    Ahead,
}

impl Core {
    /// A page with anything in it, in place of what nobody uses if there is no other.
    pub(crate) fn page(&self) -> Result<PageBuffer> {
        self.or_in_place_of_others(|| self.pages.try_take())
    }

    /// A page of zeros.
    pub(crate) fn zeroed_page(&self) -> Result<PageBuffer> {
        let mut page = self.page()?;
        page.fill(0);
        Ok(page)
    }

    /// So many pages for what cannot stop once it has begun.
    pub(crate) fn promise(&self, count: usize) -> Result<PageReservation> {
        self.or_in_place_of_others(|| self.pages.reserve(count))
    }

    /// A page for whoever holds `saving`: out of what was promised if there is no other.
    pub(crate) fn page_to_save(&self) -> PageBuffer {
        self.page().unwrap_or_else(|_| self.pages.take_reserved())
    }

    /// A chunk stays in memory, unless what it lies in was promised to the next checkpoint.
    pub(crate) fn keep_chunk(&self, number: u64, at: Address, chunk: Arc<PageBuffer>) {
        if self.pages.covers_reservations() {
            self.chunks.put(number, at, chunk);
        }
    }

    fn or_in_place_of_others<T>(
        &self,
        wanted: impl Fn() -> std::result::Result<T, zone::NoMemory>,
    ) -> Result<T> {
        loop {
            match wanted() {
                Ok(had) => return Ok(had),
                Err(lack) => {
                    let was_dropped = self.spare.clear() || self.cache.shrink() || self.chunks.shrink();
                    if !was_dropped {
                        return Err(lack.into());
                    }
                }
            }
        }
    }

    /// Writes out what is dirty, which can be dropped then. No lock of the trees is held.
    pub(crate) fn relieve_memory(&self) -> Result<()> {
        let mut saving = self.saving.lock();
        let written = match self.epoch_is_long() {
            true => self.checkpoint_with(&mut saving),
            false => self.write_out(&mut saving),
        };
        match written {
            // Who asked lacks memory, whatever else there is a lack of.
            Err(StoreError::NoSpace) => Ok(()),
            written => written,
        }
    }
}

/// What these writes do to one leaf, at most.
struct Touched {
    leaf: NodeId,
    /// Bytes that it grows by if nothing goes, and shrinks by if nothing comes.
    grows: isize,
    shrinks: usize,
}

/// How many pages applying these writes takes at most.
pub(crate) fn needed(held: &[Held<'_>]) -> usize {
    let mut touched: SmallVec<[Touched; 4]> = SmallVec::new();
    held.iter().map(|write| pages_of(write, &mut touched)).sum::<usize>() + FOR_A_MOMENT
}

/// Each node on the way may have to be copied, because a checkpoint still has to write what it was, or somebody looks at
/// it. A leaf that has no room is split once or twice, and the nodes above it once, each with a new one beside it; one
/// that is thin takes over a neighbour.
fn pages_of(write: &Held<'_>, touched: &mut SmallVec<[Touched; 4]>) -> usize {
    let (leaf, depth) = (leaf_of(&write.path), write.path.len());
    let page = &leaf.look().page;
    let found = page.search(&write.key);
    let before = touched.iter().position(|before| before.leaf == leaf.id).unwrap_or_else(|| {
        touched.push(Touched { leaf: leaf.id, grows: 0, shrinks: 0 });
        touched.len() - 1
    });
    let of_leaf = &mut touched[before];
    let is_reshaped = match write.value {
        Some(value) => {
            of_leaf.grows += page.growth(Err(0), write.key.len(), value.len());
            of_leaf.shrinks += found.map_or(0, |index| page.entry_bytes(index));
            of_leaf.grows > page.room()
        }
        None => {
            of_leaf.shrinks += found.map_or(0, |index| page.entry_bytes(index));
            let is_thin = page.used().saturating_sub(of_leaf.shrinks) < page.capacity() / 4;
            is_thin || of_leaf.grows > page.room()
        }
    };
    if is_reshaped { 3 * (depth + 2) } else { 1 }
}
