//! Blocks that several objects share: who owns them, and how many references there are.
//!
//! An extent has one owner (I-EXT-1). Another object has its blocks by a **reference**: an extent that names the
//! owner and a block of it, and has no place of its own. Owners are objects that are written no more: what a
//! file had when it was first shared stays the old object's, under the same keys, so that neither data nor
//! reverse maps move and garbage collection knows nothing of it; the file goes on in a new object that refers
//! to the old one ([`Extents::refer`]). References are never to references.
//!
//! * A block of an owner that is shared has as many references as are **counted**: those with two or more have a
//!   row in [`REFCOUNT`], all others have one. The transaction that takes away the last one takes away the block.
//! * What a **shadow** has beside data of its own counts for nothing: references that are being copied and that
//!   nobody reads yet, and those that were copied and that nobody reads any more. Which objects are shadows
//!   is known to whoever makes them; [`Extents::drop_shadow`] ends one.
//!
//! Counts are changed, and blocks taken away, under the map lock of their owner. An object's references change
//! only while its user keeps others from changing it.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tree::{Store, StoreError, Tx};
use zone::Blocks;

use crate::format::{self, EXTENT_BLOCKS_MAX, Extent, Origin, REFCOUNT};
use crate::map::{self, View};
use crate::steps::{GONE_BYTES, ROW_BYTES};
use crate::write::MapLock;
use crate::{Extents, FileClass, Object, Result};

pub use check::SharedBlocks;

/// Rows asked of the store at once.
const BATCH: usize = 256;

/// Part of the counts of one owner, and what they are to become: where runs begin, where they end, and how many
/// references there are, if more than one.
struct Counts {
    owner: Object,
    old: BTreeMap<u64, (u64, u32)>,
    new: BTreeMap<u64, (u64, u32)>,
}

impl Counts {
    /// Those that overlap a run.
    fn load<'r>(store: &Store, owner: Object, runs: impl Iterator<Item = &'r Range<u64>>) -> Result<Counts> {
        let mut old = BTreeMap::new();
        for run in runs {
            old.extend(
                counted(store, owner, run)?.into_iter().map(|(run, count)| (run.start, (run.end, count))),
            );
        }
        Ok(Counts { owner, new: old.clone(), old })
    }

    /// Changes the counts of a run; the parts to which no reference is left.
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

    /// Takes the counts of a run out: all parts of it.
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

    /// Adds the difference between what was and what is to be.
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

/// The runs of an owner that have a count, and a block in `run`.
pub(crate) fn counted(store: &Store, owner: Object, run: &Range<u64>) -> Result<Vec<(Range<u64>, u32)>> {
    let group = store.group_of(owner.0);
    let mut found = Vec::new();
    if let Some((key, value)) = store.floor(group, REFCOUNT, &format::key(owner, run.start))?
        && let Some((of, count)) = decode(owner, &key, &value)?
        && of.start < run.start
        && of.end > run.start
    {
        found.push((of, count));
    }
    let (mut from, to) = (format::key(owner, run.start).to_vec(), format::key(owner, run.end));
    loop {
        let rows = store.range(group, REFCOUNT, &from, &to, BATCH)?;
        for (key, value) in &rows {
            found.push(decode(owner, key, value)?.ok_or_else(|| miscounted(owner, run.start))?);
        }
        match rows.last() {
            Some((key, _)) if rows.len() == BATCH => from = [key.as_slice(), &[0]].concat(),
            _ => return Ok(found),
        }
    }
}

/// The run of a row of the counts, and its references; None when the row is another owner's.
pub(crate) fn decode(owner: Object, key: &[u8], value: &[u8]) -> Result<Option<(Range<u64>, u32)>> {
    let Some((_, start)) = format::decode_key(key).filter(|(of, _)| *of == owner) else { return Ok(None) };
    let (blocks, count) = format::decode_refcount(value).ok_or_else(|| miscounted(owner, start))?;
    let end = start.checked_add(u64::from(blocks)).ok_or_else(|| miscounted(owner, start))?;
    Ok(Some((start..end, count)))
}

fn miscounted(owner: Object, block: u64) -> StoreError {
    StoreError::Corrupt(format!("object {} block {block}: its reference count makes no sense", owner.0))
}

impl Extents {
    /// Whether blocks [from, to) of an object have data that are its own.
    pub fn has_own_data(&self, object: Object, (from, to): (u64, u64)) -> Result<bool> {
        let _shared = self.map_of(object).read();
        Ok(!map::residents(&self.store, object, (from, to), 1)?.is_empty()
            || self.has_extent(object, (from, to), &|extent| extent.is_stored() || extent.is_lost())?)
    }

    /// Whether blocks [from, to) of an object have references to blocks of others.
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
            let extents = map::extents(&self.store, object, (at, to), BATCH)?;
            if extents.iter().any(|(_, extent)| is_such(extent)) {
                return Ok(true);
            }
            match extents.last() {
                Some((start, last)) if extents.len() == BATCH => at = start + u64::from(last.blocks),
                _ => return Ok(false),
            }
        }
    }

    /// Adds to `tx` a part of what makes `copy`, a shadow, an object that has the data that `object` has: references
    /// to data of its own, and the same references as it. From block `from` on, at most `limit` extents; where
    /// to go on, if anywhere. Nobody may change `object` until all is done and `copy` is used in its place; from then on
    /// `object` is the shadow, and an owner, and `copy` its heir.
    pub fn refer<'a>(
        &'a self,
        tx: &mut Tx,
        (object, copy): (Object, Object),
        from: u64,
        limit: usize,
    ) -> Result<(MapLock<'a>, Option<u64>)> {
        let limit = self.step_rows(limit);
        let view = {
            let _shared = self.map_of(object).read();
            View::load(&self.store, object, (from, u64::MAX), limit + 1)?
        };
        let until = view.end_of_step(limit, usize::MAX, |_| Ok(0))?;
        let copied = copied(&view, (from, until.unwrap_or(u64::MAX)), copy);
        let lock = self.lock_maps(copy, &BTreeSet::new());
        copied.apply(&self.store, tx);
        Ok((lock, until))
    }

    /// Adds to `tx` a part of the end of a shadow: what it has beside data of its own goes, and no count changes.
    /// Space that it has kept is the heir's from now on, up to the block that is named and where that has nothing.
    /// Where to go on, if anywhere. The lock says how many blocks shadow and heir together have more than before.
    pub fn drop_shadow<'a>(
        &'a self,
        tx: &mut Tx,
        (object, heir): (Object, Option<(Object, u64)>),
        from: u64,
        limit: usize,
    ) -> Result<(MapLock<'a>, Option<u64>)> {
        let limit = self.step_rows(limit);
        let mut lock = self.lock_maps(object, &heir.iter().map(|(heir, _)| *heir).collect());
        let mut view = View::load(&self.store, object, (from, u64::MAX), limit + 1)?;
        let mut until = view.end_of_step(limit, usize::MAX, |_| Ok(0))?;
        let loose: Vec<(u64, Extent)> = view
            .extents()
            .filter(|(_, extent)| extent.origin.is_some() || extent.unwritten)
            .map(|(start, extent)| (start, extent.clone()))
            .collect();
        let mut change = -(view.unwritten() as i64);
        for (start, extent) in loose {
            if tx.encoded_bytes() > self.step_bytes_max() {
                until = until.into_iter().chain([start]).min();
            }
            let end = until.unwrap_or(u64::MAX).min(start + u64::from(extent.blocks));
            if start >= end {
                break;
            }
            let left = view.cut_between_residents(start, end);
            let Some((heir, heirs_end)) = heir.filter(|_| extent.unwritten) else { continue };
            for run in left.into_iter().filter(|run| run.start < heirs_end) {
                change += self.keep_for_heir(tx, heir, run.start, run.end.min(heirs_end))?;
            }
        }
        view.apply(&self.store, tx);
        lock.note_blocks(change + view.unwritten() as i64);
        Ok((lock, until))
    }

    /// No more than an extent has at most; the heir's map is locked.
    fn keep_for_heir(&self, tx: &mut Tx, heir: Object, from: u64, to: u64) -> Result<i64> {
        let mut view = View::load(&self.store, heir, (from, to), usize::MAX)?;
        view.keep(from, to, usize::MAX);
        view.apply(&self.store, tx);
        Ok(view.block_change())
    }

    /// Adds to `tx` that blocks of `into` from `at` on become what [from, to) of `object` is: a first part of them, in
    /// at most `limit` extents; where in `object` it stopped. Data of that range is none of `object`'s own, and nobody may change either
    /// meanwhile. What `into` had there, of `file_class`, goes. Keep the lock until `commit` has returned.
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
            let source = View::load(&self.store, object, (from, to), limit + 1)?;
            let view = View::load(&self.store, into, whole, limit + 1)?;
            let found = &source.origins() | &view.origins();
            if found.is_subset(&owners) {
                break (lock, source, view);
            }
            owners.extend(found);
        };
        let until = self.end_of_step(&source, limit)?.unwrap_or(to);
        let end = at + (until - from);
        let end = self.end_of_step(&view, limit)?.map_or(end, |step| step.min(end));
        view.cut(at, end);
        let until = from + (end - at);
        for (start, extent) in source.extents() {
            assert!(extent.origin.is_some() || extent.unwritten, "an object owns nothing of what it shares");
            if let Some((start, part)) =
                extent.within(start, (from, until)).filter(|(_, e)| e.origin.is_some())
            {
                view.put(at + (start - from), part);
            }
        }
        lock.note_blocks(self.finish_view(&view, tx)?);
        self.learn_of(&view, file_class, &[]);
        Ok((lock, until))
    }

    /// How many blocks in zones, or that have space kept for, are others' to which nobody but this object refers in a
    /// range, and that once.
    pub(crate) fn blocks_of_others_alone(&self, object: Object, range: (u64, u64)) -> Result<u64> {
        let (_lock, view) = self.lock_view(object, range, usize::MAX, BTreeSet::new())?;
        let mut alone = 0;
        for (_, part) in view.extents().filter_map(|(start, extent)| extent.within(start, range)) {
            let Some(Origin { object: owner, block }) = part.origin else { continue };
            let run = block..block + u64::from(part.blocks);
            let mut from = run.start;
            for (several, _) in counted(&self.store, owner, &run)? {
                alone += self.blocks_in_space(owner, (from, several.start.clamp(from, run.end)))?;
                from = several.end.clamp(from, run.end);
            }
            alone += self.blocks_in_space(owner, (from, run.end))?;
        }
        Ok(alone)
    }

    /// How many blocks of a range have a place in a zone, or space kept; the map is locked.
    fn blocks_in_space(&self, object: Object, range: (u64, u64)) -> Result<u64> {
        if range.0 == range.1 {
            return Ok(0);
        }
        let found = map::extents(&self.store, object, range, usize::MAX)?;
        let parts = found.iter().filter(|(_, extent)| extent.holds_space());
        let parts = parts.filter_map(|(start, extent)| extent.within(*start, range));
        Ok(parts.map(|(_, part)| u64::from(part.blocks)).sum())
    }

    /// Bytes in a transaction that takes a reference away, or makes another like it, at most: the owner's rows
    /// go with the last reference, and it may take others to the same blocks, or follow those that went since this was
    /// asked. The owner's map is locked.
    pub(crate) fn bytes_of_reference(&self, extent: &Extent) -> Result<usize> {
        let Some(Origin { object, block }) = extent.origin else { return Ok(GONE_BYTES) };
        let run = block..block + u64::from(extent.blocks);
        let counts = counted(&self.store, object, &run)?;
        let mut bytes = ROW_BYTES + (2 * counts.len() + 1) * 2 * ROW_BYTES;
        let range = (run.start, run.end);
        for (start, owned) in map::extents(&self.store, object, range, usize::MAX)? {
            let is_cut = start < run.start || start + u64::from(owned.blocks) > run.end;
            // What is left of it is written anew: before, behind, and where others refer to it.
            let rest = 2 * ROW_BYTES + owned.crcs.len() * size_of::<u32>();
            bytes += ROW_BYTES + if is_cut || !counts.is_empty() { rest } else { 0 };
        }
        bytes += ROW_BYTES * map::residents(&self.store, object, range, usize::MAX)?.len();
        Ok(bytes)
    }

    /// Adds to `tx` what a change of references means for those whose blocks they are; their maps are locked.
    pub(crate) fn count_references(&self, view: &View, tx: &mut Tx) -> Result<()> {
        for (owner, runs) in view.reference_changes() {
            let mut counts = Counts::load(&self.store, owner, runs.iter().map(|(run, _)| run))?;
            let mut unreferenced = Vec::new();
            for (run, change) in &runs {
                unreferenced.extend(counts.change(run, *change)?);
            }
            counts.apply(&self.store, tx);
            self.remove_unreferenced(owner, &unreferenced, tx)?;
        }
        Ok(())
    }

    fn remove_unreferenced(&self, owner: Object, runs: &[Range<u64>], tx: &mut Tx) -> Result<()> {
        let (mut extents, mut residents) = (Vec::new(), Vec::new());
        for run in runs {
            extents.extend(map::extents(&self.store, owner, (run.start, run.end), usize::MAX)?);
            residents.extend(map::residents(&self.store, owner, (run.start, run.end), usize::MAX)?);
        }
        let mut view = View::new(owner, extents, residents);
        runs.iter().for_each(|run| view.cut(run.start, run.end));
        self.residents.changed(owner, view.resident_change());
        view.apply(&self.store, tx);
        Ok(())
    }
}

/// What a copy of blocks [from, to) of a view has.
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
    let residents = view.residents().keys().filter(|block| (range.0..range.1).contains(block));
    own.extend(residents.map(|&block| block..block + 1));
    own.sort_by_key(|run| run.start);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for run in own {
        match runs.last_mut() {
            // On a damaged volume a block may be in two places.
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
