//! Writeback of resident blocks: from values of the store to blocks of a zone.
//!
//! Small writes stay in the store, where a journal record makes them durable without a block of their
//! own. When an object has gathered many, or those that could be moved are too many together, they are
//! appended to a zone like any other data and inserted with a re-check, under the map lock, that each
//! value is still the one that was written. A block that had space, in a zone or promised, keeps it as an
//! unwritten extent while it is resident, so that it can always be moved and written over.
//!
//! How many an object has is a count kept in memory, for choosing only, and for so many objects at most:
//! small files that stay small are without number. What is not counted (it was there before the mount,
//! or its count gave way to others) stays in the store, and is moved when its object is chosen for newer
//! blocks. A single block is never moved: it would take a whole block of a zone and win nothing.

use std::collections::{BTreeSet, HashMap};

use rt::sync::Mutex;
use tree::Tx;
use zone::{Blocks, Cause};

use crate::map::{self, View};
use crate::space::Reservation;
use crate::write::{Piece, Run};
use crate::{ExtentError, Extents, FileClass, Hint, Object, Result};

/// Resident blocks of one object that are worth a write.
const MANY: u64 = 16;
/// Resident blocks of one object that are moved when all together have too many.
const SOME: u64 = 2;
/// Bytes of resident blocks that all objects that have some may have together.
const MOVABLE_BYTES_MAX: u64 = 32 << 20;
/// Blocks moved at once.
const BATCH: usize = 256;
/// Objects whose resident blocks are counted.
const COUNTED_MAX: usize = 1 << 16;

/// How many resident blocks there are.
#[derive(Default)]
pub(crate) struct Residents {
    /// A leaf lock.
    counts: Mutex<Counts>,
}

/// Counts of objects, none of them 0.
#[derive(Default)]
struct Counts {
    of: HashMap<Object, u64>,
    /// The same, fewest first.
    order: BTreeSet<(u64, Object)>,
    /// The sum of those that are at least `SOME`.
    movable: u64,
    /// What is known of those of which something is: as many as are counted.
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

impl Residents {
    /// The object has so many more (or less).
    pub(crate) fn changed(&self, object: Object, change: i64) {
        if change == 0 {
            return;
        }
        let mut counts = self.counts.lock();
        let before = counts.of.get(&object).copied().unwrap_or(0);
        counts.set(object, before.saturating_add_signed(change));
    }

    /// A block is about to become resident.
    pub(crate) fn expect(&self, object: Object, hint: Hint) {
        let mut counts = self.counts.lock();
        if hint == Hint::default() {
            counts.hints.remove(&object);
        } else if counts.hints.len() < COUNTED_MAX || counts.hints.contains_key(&object) {
            counts.hints.insert(object, hint);
        }
    }

    /// What was said when its last block became resident.
    fn hint(&self, object: Object) -> Hint {
        self.counts.lock().hints.get(&object).copied().unwrap_or_default()
    }

    /// The object has as many.
    fn counted(&self, object: Object, count: u64) {
        self.counts.lock().set(object, count);
    }

    /// An object whose resident blocks should be moved.
    fn next(&self, block_size: u32) -> Option<Object> {
        let counts = self.counts.lock();
        let too_many = counts.movable * u64::from(block_size) > MOVABLE_BYTES_MAX;
        let &(most, object) = counts.order.last()?;
        (most >= if too_many { SOME } else { MANY }).then_some(object)
    }

    /// The object has none left that would be moved.
    fn forget(&self, object: Object) {
        self.counted(object, 0);
    }
}

impl Extents {
    /// Moves the resident blocks of one object; false when none has enough.
    pub(crate) fn write_back(&self) -> Result<bool> {
        let Some(object) = self.residents.next(self.block_size()) else { return Ok(false) };
        let blocks = {
            let _shared = self.map_of(object).read();
            map::residents(&self.store, object, (0, u64::MAX), BATCH)?
        };
        let found = blocks.len() as u64;
        if found < SOME {
            self.residents.forget(object);
            return Ok(true);
        }
        // Behind a full batch there may be more: so many that the object is chosen again.
        let beyond = if blocks.len() == BATCH { MANY } else { 0 };
        self.residents.counted(object, found + beyond);
        match self.move_residents(object, &blocks) {
            Err(ExtentError::NoSpace) => self.residents.forget(object),
            moved => moved?,
        }
        Ok(true)
    }

    fn move_residents(&self, object: Object, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let size = self.block_size() as usize;
        let hint = self.residents.hint(object);
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
                self.commit_resident(piece, hint.file_class, run, &reservation)?;
            }
        }
        Ok(())
    }

    /// The blocks of the piece leave the store, where they are still the same.
    fn commit_resident(
        &self,
        piece: Piece,
        file_class: FileClass,
        written: &[(u64, Vec<u8>)],
        reservation: &Reservation,
    ) -> Result<()> {
        let _guard = self.map_of(piece.object).write();
        let mut view = View::load(&self.store, piece.object, (piece.start, piece.end()), usize::MAX)?;
        let first = (piece.start - written[0].0) as usize;
        for (index, (block, value)) in written[first..first + piece.extent.blocks as usize].iter().enumerate()
        {
            if view.residents().get(block) == Some(value) {
                view.cut(*block, block + 1);
                view.put(*block, piece.extent.slice(index as Blocks, index as Blocks + 1));
            }
        }
        view.join(&piece);
        self.residents.changed(piece.object, view.resident_change());
        self.learn_of(&view, file_class, std::slice::from_ref(&piece));
        let mut tx = Tx::new();
        view.apply(&self.store, &mut tx);
        reservation.part_kept_by(&mut tx, u64::from(piece.extent.blocks));
        self.commit_if_any(tx)
    }
}

#[cfg(test)]
mod tests;
