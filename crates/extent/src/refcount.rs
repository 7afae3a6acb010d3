//! Shared blocks: their owners, and the numbers of references.
//!
//! An extent has one owner (I-EXT-1). Another object has its blocks by a **reference**: an extent that names the owner and a
//! block of it, and has no address. Owners are no longer written. The data that a file had when it was first shared stays
//! with the old object, under the same keys. So neither data nor reverse maps move, and GC does not know of sharing. The file
//! continues in a new object that refers to the old one ([`ObjectMaps::refer`]). References never refer to references.
//!
//! * References are **counted** for each shared block. Runs with two references or more have a row in [`REFCOUNT`]. All
//!   others have one reference. The transaction that removes the last reference removes the block.
//! * References of an **uncounted** object do not count: those that are being copied and are not read yet, and those that
//!   were copied and are not read any more. The user of this crate knows which objects are uncounted.
//!   [`ObjectMaps::drop_uncounted`] removes their references.
//!
//! Counts are changed, and blocks removed, under the map lock of the owner. The references of an object are changed only
//! while its user prevents other changes of the object.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tree::{Store, StoreError, Tx};
use zone::Blocks;

use crate::format::{self, EXTENT_BLOCKS_MAX, Extent, Origin, REFCOUNT};
use crate::map::{self, View};
use crate::maps::{MapLock, ObjectMaps};
use crate::tx_limits::{REMOVED_ROW_BYTES, ROW_BYTES};
use crate::{FileClass, Object, Result};

/// Extents that are read from the object map at once.
const BATCH: usize = 256;

/// Counts of one owner, in the old and the new state: the start of a run, its end, and the number of references if it is
/// more than one.
struct Counts {
    owner: Object,
    old: BTreeMap<u64, (u64, u32)>,
    new: BTreeMap<u64, (u64, u32)>,
}

impl Counts {
    /// The counts that overlap a run.
    fn load<'r>(store: &Store, owner: Object, runs: impl Iterator<Item = &'r Range<u64>>) -> Result<Counts> {
        let mut old = BTreeMap::new();
        for run in runs {
            old.extend(
                counted(store, owner, run)?.into_iter().map(|(run, count)| (run.start, (run.end, count))),
            );
        }
        Ok(Counts { owner, new: old.clone(), old })
    }

    /// Changes the counts of a run. Returns the parts without any reference.
    fn change(&mut self, run: &Range<u64>, change: i64) -> Result<Vec<Range<u64>>> {
        let mut unreferenced = Vec::new();
        for (part, count) in self.take(run) {
            let is_missed = rt::is_planted("break-reference-count") && change > 0 && count > 1;
            match i64::from(count) + if is_missed { 0 } else { change } {
                0 => unreferenced.push(part),
                1 => {}
                count => {
                    let count = u32::try_from(count).map_err(|_| miscounted(self.owner, part.start))?;
                    self.new.insert(part.start, (part.end, count));
                }
            }
        }
        Ok(unreferenced)
    }

    /// Removes the counts of a run and returns all parts of it.
    fn take(&mut self, run: &Range<u64>) -> Vec<(Range<u64>, u32)> {
        let before = self.new.range(..run.start).next_back().map(|(&start, _)| start);
        let hit: Vec<u64> =
            before.into_iter().chain(self.new.range(run.clone()).map(|(&at, _)| at)).collect();
        let (mut parts, mut at) = (Vec::new(), run.start);
        for start in hit {
            let (end, count) = self.new[&start];
            if end <= run.start {
                continue;
            }
            self.new.remove(&start);
            if start < run.start {
                self.new.insert(start, (run.start, count));
            }
            if end > run.end {
                self.new.insert(run.end, (end, count));
            }
            let part = start.max(run.start)..end.min(run.end);
            if at < part.start {
                parts.push((at..part.start, 1));
            }
            at = part.end;
            parts.push((part, count));
        }
        if at < run.end {
            parts.push((at..run.end, 1));
        }
        parts
    }

    /// Adds the difference between the old and the new state.
    fn apply(&self, store: &Store, tx: &mut Tx) {
        let group = store.group_of(self.owner.0);
        for &start in self.old.keys().filter(|start| !self.new.contains_key(start)) {
            tx.delete(group, REFCOUNT, format::key(self.owner, start));
        }
        for (&start, run) in self.new.iter().filter(|&(start, run)| self.old.get(start) != Some(run)) {
            let blocks = u32::try_from(run.0 - start).expect("a run is of one reference or part of one");
            tx.put(group, REFCOUNT, format::key(self.owner, start), format::encode_refcount(blocks, run.1));
        }
    }
}

/// The counted runs of an owner that have a block in `run`.
pub(crate) fn counted(store: &Store, owner: Object, run: &Range<u64>) -> Result<Vec<(Range<u64>, u32)>> {
    let group = store.group_of(owner.0);
    let mut found = Vec::new();
    let before = store
        .floor(group, REFCOUNT, &format::key(owner, run.start), |key, value| decode(owner, key, value))?;
    if let Some((of, count)) = before.transpose()?.flatten()
        && of.start < run.start
        && of.end > run.start
    {
        found.push((of, count));
    }
    map::rows(store, (owner, REFCOUNT), (run.start, run.end), usize::MAX, &mut found, |_, key, value| {
        Ok(decode(owner, key, value)?.ok_or_else(|| miscounted(owner, run.start))?)
    })?;
    Ok(found)
}

/// The run and the references of a row. `None` if it is another owner's row.
pub(crate) fn decode(owner: Object, key: &[u8], value: &[u8]) -> Result<Option<(Range<u64>, u32)>> {
    let Some((_, start)) = format::decode_key(key).filter(|(of, _)| *of == owner) else { return Ok(None) };
    let (blocks, count) = format::decode_refcount(value).ok_or_else(|| miscounted(owner, start))?;
    let end = start.checked_add(u64::from(blocks)).ok_or_else(|| miscounted(owner, start))?;
    Ok(Some((start..end, count)))
}

fn miscounted(owner: Object, block: u64) -> StoreError {
    StoreError::Corrupt(format!("object {} block {block}: its reference count is not valid", owner.0))
}

impl ObjectMaps {
    /// Whether the object itself has data in blocks [from, to).
    pub fn has_own_data(&self, object: Object, (from, to): (u64, u64)) -> Result<bool> {
        let _shared = self.map_of(object).read();
        Ok(!map::inline_blocks(self.store(), object, (from, to), 1)?.is_empty()
            || self.has_extent(object, (from, to), &|extent| extent.is_stored() || extent.is_lost())?)
    }

    /// Whether the object has references in blocks [from, to).
    pub fn has_references(&self, object: Object, range: (u64, u64)) -> Result<bool> {
        let _shared = self.map_of(object).read();
        self.has_extent(object, range, &|extent| extent.origin.is_some())
    }

    /// Whether there is such an extent.
    fn has_extent(
        &self,
        object: Object,
        (from, to): (u64, u64),
        is_such: &dyn Fn(&Extent) -> bool,
    ) -> Result<bool> {
        let mut at = from;
        loop {
            let extents = map::extents(self.store(), object, (at, to), BATCH)?;
            if extents.iter().any(|(_, extent)| is_such(extent)) {
                return Ok(true);
            }
            match extents.last() {
                Some((start, last)) if extents.len() == BATCH => at = start + u64::from(last.blocks),
                _ => return Ok(false),
            }
        }
    }

    /// Adds to `tx` a part of what makes `copy`, an uncounted object, have the data of `object`: references to the data
    /// that `object` itself has, and copies of its references. The part begins at block `from` and has at most `limit`
    /// extents. Returns where the next part begins. No thread may change `object` until all parts are done and `copy` is used
    /// in its place. From then on `object` is an owner and uncounted, and `copy` is its successor.
    pub fn refer<'a>(
        &'a self,
        tx: &mut Tx,
        (object, copy): (Object, Object),
        from: u64,
        limit: usize,
    ) -> Result<(MapLock<'a>, Option<u64>)> {
        let limit = self.limits().part_rows_max(limit);
        let view = {
            let _shared = self.map_of(object).read();
            View::load(self.store(), object, (from, u64::MAX), limit + 1)?
        };
        let until = view.end_of_part(limit, usize::MAX, |_| Ok(0))?;
        let copied = copied(&view, (from, until.unwrap_or(u64::MAX)), copy);
        let lock = self.lock_maps(copy, &BTreeSet::new());
        copied.apply(self.store(), tx);
        Ok((lock, until))
    }

    /// Adds to `tx` a part of the end of an uncounted object: its references and preallocated space are removed, and no
    /// count changes. Where the successor has nothing, it gets the preallocated space, up to the given block. Returns where
    /// the next part begins. The lock has the change of the number of blocks of both objects.
    pub fn drop_uncounted<'a>(
        &'a self,
        tx: &mut Tx,
        (object, successor): (Object, Option<(Object, u64)>),
        from: u64,
        limit: usize,
    ) -> Result<(MapLock<'a>, Option<u64>)> {
        let limit = self.limits().part_rows_max(limit);
        let mut lock = self.lock_maps(object, &successor.iter().map(|(successor, _)| *successor).collect());
        let mut view = View::load(self.store(), object, (from, u64::MAX), limit + 1)?;
        let mut until = view.end_of_part(limit, usize::MAX, |_| Ok(0))?;
        let loose: Vec<(u64, Extent)> = view
            .extents()
            .filter(|(_, extent)| extent.origin.is_some() || extent.unwritten)
            .map(|(start, extent)| (start, extent.clone()))
            .collect();
        let mut change = -(view.unwritten() as i64);
        for (start, extent) in loose {
            if tx.encoded_bytes() > self.limits().part_bytes_max() {
                until = until.into_iter().chain([start]).min();
            }
            let end = until.unwrap_or(u64::MAX).min(start + u64::from(extent.blocks));
            if start >= end {
                break;
            }
            let left = view.cut_between_inline_blocks(start, end);
            let Some((successor, successor_end)) = successor.filter(|_| extent.unwritten) else { continue };
            for run in left.into_iter().filter(|run| run.start < successor_end) {
                change +=
                    self.preallocate_for_successor(tx, successor, run.start, run.end.min(successor_end))?;
            }
        }
        view.apply(self.store(), tx);
        lock.set_blocks_added(change + view.unwritten() as i64);
        Ok((lock, until))
    }

    /// At most the blocks of one extent. The successor's map is locked.
    fn preallocate_for_successor(&self, tx: &mut Tx, successor: Object, from: u64, to: u64) -> Result<i64> {
        let mut view = View::load(self.store(), successor, (from, to), usize::MAX)?;
        view.preallocate(from, to, usize::MAX);
        view.apply(self.store(), tx);
        Ok(view.block_change())
    }

    /// Adds to `tx` references in `into`, from block `at` on, to the data of blocks [from, to) of `object`: a first part,
    /// in at most `limit` extents. Returns where in `object` it stopped. `object` itself must not own data in that range, and
    /// no thread may change either object meanwhile. Data of `into` there, of this file class, is removed. Keep the lock until
    /// `commit` has returned.
    pub fn share<'a>(
        &'a self,
        tx: &mut Tx,
        (object, (from, to)): (Object, (u64, u64)),
        (into, at): (Object, u64),
        limit: usize,
        file_class: FileClass,
    ) -> Result<(MapLock<'a>, u64)> {
        let whole = (at, at + (to - from));
        let mut owners = BTreeSet::from([object]);
        let (mut lock, source, mut view) = loop {
            let lock = self.lock_maps(into, &owners);
            let source = View::load(self.store(), object, (from, to), limit + 1)?;
            let view = View::load(self.store(), into, whole, limit + 1)?;
            let found = &source.origins() | &view.origins();
            if found.is_subset(&owners) {
                break (lock, source, view);
            }
            owners.extend(found);
        };
        let until = self.end_of_part(&source, limit)?.unwrap_or(to);
        let end = at + (until - from);
        let end = self.end_of_part(&view, limit)?.map_or(end, |step| step.min(end));
        view.cut(at, end);
        let until = from + (end - at);
        for (start, extent) in source.extents() {
            assert!(extent.origin.is_some() || extent.unwritten, "the shared data has another owner");
            if let Some((start, part)) =
                extent.within(start, (from, until)).filter(|(_, e)| e.origin.is_some())
            {
                view.put(at + (start - from), part);
            }
        }
        lock.set_blocks_added(self.finish_view(&view, tx)?);
        self.learn_from(&view, file_class, &[]);
        Ok((lock, until))
    }

    /// Where a part of a view ends that is removed or copied. One transaction can hold two such parts.
    pub(crate) fn end_of_part(&self, view: &View, limit: usize) -> Result<Option<u64>> {
        view.end_of_part(limit, self.limits().part_bytes_max(), |extent| self.bytes_of_reference(extent))
    }

    /// The number of blocks of other owners, in zones or preallocated, that only this object refers to in a range, and
    /// only once.
    pub(crate) fn blocks_of_others_alone(&self, object: Object, range: (u64, u64)) -> Result<u64> {
        let (_lock, view) = self.lock_view(object, &[range], usize::MAX, BTreeSet::new())?;
        let mut unshared = 0;
        for (_, part) in view.extents().filter_map(|(start, extent)| extent.within(start, range)) {
            let Some(Origin { object: owner, block }) = part.origin else { continue };
            let run = block..block + u64::from(part.blocks);
            let mut from = run.start;
            for (several, _) in counted(self.store(), owner, &run)? {
                unshared += self.blocks_with_space(owner, (from, several.start.clamp(from, run.end)))?;
                from = several.end.clamp(from, run.end);
            }
            unshared += self.blocks_with_space(owner, (from, run.end))?;
        }
        Ok(unshared)
    }

    /// The number of blocks of a range that are in a zone or preallocated. The map is locked.
    fn blocks_with_space(&self, object: Object, range: (u64, u64)) -> Result<u64> {
        if range.0 == range.1 {
            return Ok(0);
        }
        let found = map::extents(self.store(), object, range, usize::MAX)?;
        let parts = found.iter().filter(|(_, extent)| extent.holds_space());
        let parts = parts.filter_map(|(start, extent)| extent.within(*start, range));
        Ok(parts.map(|(_, part)| u64::from(part.blocks)).sum())
    }

    /// The most bytes in a transaction that removes or copies a reference. With the last reference the owner's rows are
    /// removed. The transaction may add other references to the same blocks, or references may have been removed since this
    /// call. The owner's map is locked.
    pub(crate) fn bytes_of_reference(&self, extent: &Extent) -> Result<usize> {
        let Some(Origin { object, block }) = extent.origin else { return Ok(REMOVED_ROW_BYTES) };
        let run = block..block + u64::from(extent.blocks);
        let counts = counted(self.store(), object, &run)?;
        let mut bytes = ROW_BYTES + (2 * counts.len() + 1) * 2 * ROW_BYTES;
        let range = (run.start, run.end);
        for (start, owned) in map::extents(self.store(), object, range, usize::MAX)? {
            let is_cut = start < run.start || start + u64::from(owned.blocks) > run.end;
            // The rest of it is written again: before it, after it, and where other objects refer to it.
            let rest = 2 * ROW_BYTES + owned.crcs.len() * size_of::<u32>();
            bytes += ROW_BYTES + if is_cut || !counts.is_empty() { rest } else { 0 };
        }
        bytes += ROW_BYTES * map::inline_blocks(self.store(), object, range, usize::MAX)?.len();
        Ok(bytes)
    }

    /// Adds to `tx` the changed counts of the owners, for the changed references of a view. Their maps are locked.
    pub(crate) fn count_references(&self, view: &View, tx: &mut Tx) -> Result<()> {
        for (owner, runs) in view.reference_changes() {
            let mut counts = Counts::load(self.store(), owner, runs.iter().map(|(run, _)| run))?;
            let mut unreferenced = Vec::new();
            for (run, change) in &runs {
                unreferenced.extend(counts.change(run, *change)?);
            }
            counts.apply(self.store(), tx);
            self.remove_unreferenced(owner, &unreferenced, tx)?;
        }
        Ok(())
    }

    fn remove_unreferenced(&self, owner: Object, runs: &[Range<u64>], tx: &mut Tx) -> Result<()> {
        let (mut extents, mut inline_blocks) = (Vec::new(), Vec::new());
        for run in runs {
            extents.extend(map::extents(self.store(), owner, (run.start, run.end), usize::MAX)?);
            inline_blocks.extend(map::inline_blocks(self.store(), owner, (run.start, run.end), usize::MAX)?);
        }
        let mut view = View::new(owner, extents, inline_blocks);
        runs.iter().for_each(|run| view.cut(run.start, run.end));
        self.inline_counts().changed(owner, view.inline_change());
        view.apply(self.store(), tx);
        Ok(())
    }
}

/// The rows of a copy of blocks [from, to) of a view.
fn copied(view: &View, range: (u64, u64), copy: Object) -> View {
    let mut copied = View::new(copy, Vec::new(), Vec::new());
    let mut own: Vec<Range<u64>> = Vec::new();
    let data = view.extents().filter(|(_, extent)| !extent.unwritten);
    for (start, extent) in data.filter_map(|(start, extent)| extent.within(start, range)) {
        match extent.origin {
            Some(_) => copied.put(start, extent),
            None => own.push(start..start + u64::from(extent.blocks)),
        }
    }
    let inline_blocks = view.inline_blocks().keys().filter(|block| (range.0..range.1).contains(block));
    own.extend(inline_blocks.map(|&block| block..block + 1));
    own.sort_by_key(|run| run.start);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for run in own {
        match runs.last_mut() {
            // On a damaged volume two rows may have the same block.
            Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
            _ => runs.push(run),
        }
    }
    for run in runs {
        copied.cut(run.start, run.end);
        for start in run.clone().step_by(EXTENT_BLOCKS_MAX as usize) {
            let blocks = (run.end - start).min(u64::from(EXTENT_BLOCKS_MAX)) as Blocks;
            copied.put(start, Extent::reference(blocks, Origin { object: view.object(), block: start }));
        }
    }
    copied
}

#[cfg(test)]
mod tests;
