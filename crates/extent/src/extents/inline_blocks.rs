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

use tree::Tx;
use zone::{Blocks, Cause};

use super::Extents;
use crate::append::Run;
use crate::appended::Appended;
use crate::inline_counts::{MANY, SOME};
use crate::map::{self, View};
use crate::reservations::Reservation;
use crate::{ExtentError, FileClass, Object, Result};

/// Blocks moved at once.
const BATCH: usize = 256;

impl Extents {
    /// Moves the inline blocks of one object. False if no object has enough of them.
    pub(crate) fn write_back(&self) -> Result<bool> {
        let Some(object) = self.maps.inline_counts().next(self.maps.block_size()) else { return Ok(false) };
        let blocks = {
            let _shared = self.maps.map_of(object).read();
            map::inline_blocks(self.maps.store(), object, (0, u64::MAX), BATCH)?
        };
        let found = blocks.len() as u64;
        if found < SOME {
            self.maps.inline_counts().forget(object);
            return Ok(true);
        }
        // There may be more after a full batch: enough to choose the object again.
        let beyond = if blocks.len() == BATCH { MANY } else { 0 };
        self.maps.inline_counts().counted(object, found + beyond);
        match self.move_inline_blocks(object, &blocks) {
            Err(ExtentError::NoSpace) => self.maps.inline_counts().forget(object),
            moved => moved?,
        }
        Ok(true)
    }

    fn move_inline_blocks(&self, object: Object, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let size = self.maps.block_size() as usize;
        let hint = self.maps.inline_counts().hint(object);
        for run in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
            let mut data = vec![0; run.len() * size];
            for (into, (_, value)) in data.chunks_mut(size).zip(run) {
                into[..value.len()].copy_from_slice(value);
            }
            let reservation = self.budget.reserve_over(object, run[0].0, run.len() as u64)?;
            let run_of = Run::new(object, run[0].0, &data);
            let lifetime = self.class_of(object, hint, run_of.start, false)?;
            self.maps.learned().placed(lifetime, hint, run.len() as u64);
            for piece in self.append_data(lifetime, [run_of].into(), Cause::Data)? {
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
        let _guard = self.maps.map_of(piece.object).write();
        let mut view = View::load(self.maps.store(), piece.object, (piece.start, piece.end()), usize::MAX)?;
        let end = written[0].0 + written.len() as u64;
        assert!(piece.start >= written[0].0 && piece.end() <= end, "the append is of these blocks");
        let first = (piece.start - written[0].0) as usize;
        for (index, (block, value)) in written[first..first + piece.extent.blocks as usize].iter().enumerate()
        {
            if view.inline_blocks().get(block) == Some(value) {
                view.cut(*block, block + 1);
                view.put(*block, piece.extent.slice(index as Blocks, index as Blocks + 1));
            }
        }
        view.join(&piece);
        self.maps.inline_counts().changed(piece.object, view.inline_change());
        self.maps.learn_from(&view, file_class, std::slice::from_ref(&piece));
        let mut tx = Tx::new();
        view.apply(self.maps.store(), &mut tx);
        reservation.spend_part_in(&mut tx, u64::from(piece.extent.blocks));
        self.maps.commit_if_any(tx)
    }
}
