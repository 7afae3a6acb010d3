//! Writeback of resident blocks: from values of the store to blocks of a zone.
//!
//! Small writes stay in the store, where a journal record makes them durable without a block of their
//! own. When an object has gathered many, or all objects together have too many, they are appended to
//! a zone like any other data and inserted with a re-check, under the map lock, that each value is still
//! the one that was written. How many an object has is a count kept in memory, for choosing only; after
//! a mount a slow walk over the table finds those from before.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};

use rt::sync::Mutex;
use tree::{Group, Tx};
use zone::Blocks;

use crate::format::{self, RESIDENT};
use crate::map::{self, View};
use crate::write::{Piece, Run};
use crate::{ExtentError, Extents, Hint, Object, Result};

/// Resident blocks of one object that are worth a write.
const MANY: i64 = 16;
/// Resident blocks of one object that are moved when all together have too many.
const SOME: i64 = 2;
/// Bytes of resident blocks that all objects together may have.
const TOTAL_BYTES_MAX: i64 = 32 << 20;
/// Blocks moved at once.
const BATCH: usize = 256;

/// How many resident blocks there are.
#[derive(Default)]
pub(crate) struct Residents {
    /// A leaf lock.
    counts: Mutex<HashMap<Object, i64>>,
    total: AtomicI64,
    /// Objects that have many.
    due: Mutex<VecDeque<Object>>,
    /// Where the walk over the table goes on; None when it is done.
    walk: Mutex<Option<(u16, Vec<u8>)>>,
}

impl Residents {
    pub(crate) fn new() -> Self {
        Residents { walk: Mutex::new(Some((0, Vec::new()))), ..Residents::default() }
    }

    /// The object has so many more (or less).
    pub(crate) fn changed(&self, object: Object, change: i64) {
        if change == 0 {
            return;
        }
        self.total.fetch_add(change, Ordering::Relaxed);
        let mut counts = self.counts.lock();
        let count = counts.entry(object).or_default();
        let before = *count;
        *count += change;
        let after = *count;
        if after <= 0 {
            counts.remove(&object);
        }
        drop(counts);
        if before < MANY && after >= MANY {
            self.due.lock().push_back(object);
        }
    }

    /// An object whose resident blocks should be moved.
    fn next(&self, block_size: u32) -> Option<Object> {
        if let Some(object) = self.due.lock().pop_front() {
            return Some(object);
        }
        if self.total.load(Ordering::Relaxed) * i64::from(block_size) <= TOTAL_BYTES_MAX {
            return None;
        }
        let counts = self.counts.lock();
        let most = counts.iter().max_by_key(|&(object, &count)| (count, *object))?;
        (*most.1 >= SOME).then_some(*most.0)
    }

    /// The object has none left that would be moved.
    fn forget(&self, object: Object) {
        if let Some(count) = self.counts.lock().remove(&object) {
            self.total.fetch_sub(count, Ordering::Relaxed);
        }
    }
}

impl Extents {
    /// Moves the resident blocks of one object; false when none has enough.
    pub(crate) fn write_back(&self) -> Result<bool> {
        let Some(object) = self.residents.next(self.block_size()) else { return self.walk_residents() };
        let blocks = {
            let _shared = self.map_of(object).read();
            map::residents(&self.store, object, (0, u64::MAX), BATCH)?
        };
        if (blocks.len() as i64) < SOME {
            self.residents.forget(object);
            return Ok(true);
        }
        let more = blocks.len() == BATCH;
        match self.move_residents(object, &blocks) {
            Err(ExtentError::NoSpace) => self.residents.forget(object),
            Ok(()) if more => self.residents.due.lock().push_back(object),
            moved => moved?,
        }
        Ok(true)
    }

    fn move_residents(&self, object: Object, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let size = self.block_size() as usize;
        let _reservation = self.reserve(blocks.len() as u64)?;
        for run in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
            let mut data = vec![0; run.len() * size];
            for (into, (_, value)) in data.chunks_mut(size).zip(run) {
                into[..value.len()].copy_from_slice(value);
            }
            let run_of = Run { object, start: run[0].0, data: &data, crcs: None };
            for piece in self.append_data(Hint::default(), run_of)? {
                self.commit_resident(piece, run)?;
            }
        }
        Ok(())
    }

    /// The blocks of the piece leave the store, where they are still the same.
    fn commit_resident(&self, piece: Piece, written: &[(u64, Vec<u8>)]) -> Result<()> {
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
        let mut tx = Tx::new();
        view.apply(&self.store, &mut tx);
        self.commit_if_any(tx)
    }

    /// One piece of the walk that finds resident blocks from before the mount.
    fn walk_residents(&self) -> Result<bool> {
        let mut walk = self.residents.walk.lock();
        let Some((group, from)) = walk.take() else { return Ok(false) };
        if group >= self.store.info().groups {
            return Ok(false);
        }
        let batch = self.store.range(Group(group), RESIDENT, &from, &[], BATCH)?;
        *walk = Some(match batch.last() {
            Some((last, _)) => (group, [last, &[0][..]].concat()),
            None => (group + 1, Vec::new()),
        });
        drop(walk);
        let found: Vec<Object> =
            batch.iter().filter_map(|(key, _)| Some(format::decode_key(key)?.0)).collect();
        for object in found.chunk_by(|a, b| a == b) {
            self.residents.changed(object[0], object.len() as i64);
        }
        Ok(true)
    }
}
