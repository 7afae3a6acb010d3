//! Writeback of inline blocks: from values of the store to blocks of a zone.
//!
//! Small writes stay in the store: a journal record makes them durable without a block of their own. If an object has many of
//! them, or all objects together have too many, they are appended to a zone like any other data. The insertion checks under
//! the map lock that each value is still the one that was written. A block that had space, in a zone or preallocated, keeps
//! it as an unwritten extent while it is inline. So it can always be moved and overwritten.
//!
//! The number of inline blocks of an object is counted in memory, only for choosing objects. The number of counted objects
//! is bounded, because there can be any number of small files that stay small. Blocks that are not counted (they are from
//! before the mount, or their count was dropped for others) stay in the store until their object is chosen for newer blocks.
//! A single block is never moved: it would take a whole block of a zone and gain nothing.

use std::collections::{BTreeSet, HashMap};

use rt::sync::Mutex;
use tree::Tx;
use zone::{Blocks, Cause};

use crate::map::{self, View};
use crate::space::Reservation;
use crate::write::{Appended, Run};
use crate::{ExtentError, Extents, FileClass, Hint, Object, Result};

/// Inline blocks of one object that are worth a write.
const MANY: u64 = 16;
/// Inline blocks of one object that are moved if all together have too many.
const SOME: u64 = 2;
/// Bytes of inline blocks of all objects that have at least `SOME`.
const MOVABLE_BYTES_MAX: u64 = 32 << 20;
/// Blocks moved at once.
const BATCH: usize = 256;
/// Objects whose inline blocks are counted.
const COUNTED_MAX: usize = 1 << 16;

/// Counts of inline blocks.
#[derive(Default)]
pub(crate) struct InlineCounts {
    /// A leaf lock.
    counts: Mutex<Counts>,
}

/// Counts of objects. None is 0.
#[derive(Default)]
struct Counts {
    of: HashMap<Object, u64>,
    /// The same counts, in ascending order.
    order: BTreeSet<(u64, Object)>,
    /// The sum of the counts of at least `SOME`.
    movable: u64,
    /// Hints for the data, at most as many as counts.
    hints: HashMap<Object, Hint>,
}

impl Counts {
    fn set(&mut self, object: Object, count: u64) {
        let movable = |count: u64| if count >= SOME { count } else { 0 };
        if let Some(before) = self.of.remove(&object) {
            self.order.remove(&(before, object));
            self.movable -= movable(before);
        }
        if count == 0 {
            self.hints.remove(&object);
            return;
        }
        if self.of.len() >= COUNTED_MAX
            && let Some((fewest, loser)) = self.order.pop_first()
        {
            self.of.remove(&loser);
            self.hints.remove(&loser);
            self.movable -= movable(fewest);
        }
        self.of.insert(object, count);
        self.order.insert((count, object));
        self.movable += movable(count);
    }
}

impl InlineCounts {
    /// The object has more inline blocks, or fewer.
    pub(crate) fn changed(&self, object: Object, change: i64) {
        if change == 0 {
            return;
        }
        let mut counts = self.counts.lock();
        let before = counts.of.get(&object).copied().unwrap_or(0);
        counts.set(object, before.saturating_add_signed(change));
    }

    /// The object is about to have an inline block with this hint.
    pub(crate) fn set_hint(&self, object: Object, hint: Hint) {
        let mut counts = self.counts.lock();
        if hint == Hint::default() {
            counts.hints.remove(&object);
        } else if counts.hints.len() < COUNTED_MAX || counts.hints.contains_key(&object) {
            counts.hints.insert(object, hint);
        }
    }

    /// The hint of its last inline block.
    fn hint(&self, object: Object) -> Hint {
        self.counts.lock().hints.get(&object).copied().unwrap_or_default()
    }

    /// Sets the count of an object.
    fn counted(&self, object: Object, count: u64) {
        self.counts.lock().set(object, count);
    }

    /// An object whose inline blocks should be moved.
    fn next(&self, block_size: u32) -> Option<Object> {
        let counts = self.counts.lock();
        let too_many = counts.movable * u64::from(block_size) > MOVABLE_BYTES_MAX;
        let &(most, object) = counts.order.last()?;
        (most >= if too_many { SOME } else { MANY }).then_some(object)
    }

    /// The object has no inline blocks that would be moved.
    fn forget(&self, object: Object) {
        self.counted(object, 0);
    }
}

impl Extents {
    /// Moves the inline blocks of one object. False if no object has enough of them.
    pub(crate) fn write_back(&self) -> Result<bool> {
        let Some(object) = self.inline_counts.next(self.block_size()) else { return Ok(false) };
        let blocks = {
            let _shared = self.map_of(object).read();
            map::inline_blocks(&self.store, object, (0, u64::MAX), BATCH)?
        };
        let found = blocks.len() as u64;
        if found < SOME {
            self.inline_counts.forget(object);
            return Ok(true);
        }
        // There may be more after a full batch: enough to choose the object again.
        let beyond = if blocks.len() == BATCH { MANY } else { 0 };
        self.inline_counts.counted(object, found + beyond);
        match self.move_inline_blocks(object, &blocks) {
            Err(ExtentError::NoSpace) => self.inline_counts.forget(object),
            moved => moved?,
        }
        Ok(true)
    }

    fn move_inline_blocks(&self, object: Object, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let size = self.block_size() as usize;
        let hint = self.inline_counts.hint(object);
        for run in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
            let mut data = vec![0; run.len() * size];
            for (into, (_, value)) in data.chunks_mut(size).zip(run) {
                into[..value.len()].copy_from_slice(value);
            }
            let reservation = self.reserve_over(object, run[0].0, run.len() as u64)?;
            let run_of = Run::new(object, run[0].0, &data);
            let lifetime = self.class_of(object, hint, run_of.start, false)?;
            self.learned.placed(lifetime, hint, run.len() as u64);
            for piece in self.append_data(lifetime, run_of, Cause::Data)? {
                self.commit_inline_blocks(piece, hint.file_class, run, &reservation)?;
            }
        }
        Ok(())
    }

    /// Moves the blocks of an append out of the store, if they are unchanged.
    fn commit_inline_blocks(
        &self,
        piece: Appended,
        file_class: FileClass,
        written: &[(u64, Vec<u8>)],
        reservation: &Reservation,
    ) -> Result<()> {
        let _guard = self.map_of(piece.object).write();
        let mut view = View::load(&self.store, piece.object, (piece.start, piece.end()), usize::MAX)?;
        let first = (piece.start - written[0].0) as usize;
        for (index, (block, value)) in written[first..first + piece.extent.blocks as usize].iter().enumerate()
        {
            if view.inline_blocks().get(block) == Some(value) {
                view.cut(*block, block + 1);
                view.put(*block, piece.extent.slice(index as Blocks, index as Blocks + 1));
            }
        }
        view.join(&piece);
        self.inline_counts.changed(piece.object, view.inline_change());
        self.learn_from(&view, file_class, std::slice::from_ref(&piece));
        let mut tx = Tx::new();
        view.apply(&self.store, &mut tx);
        reservation.spend_part_in(&mut tx, u64::from(piece.extent.blocks));
        self.commit_if_any(tx)
    }
}

#[cfg(test)]
mod tests;
