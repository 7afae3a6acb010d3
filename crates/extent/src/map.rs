//! The object map: look-ups, and changes to one object's part of it.
//!
//! A [`View`] is a copy of the extents and inline blocks of a range. It is changed in memory. The difference to its first
//! state is the transaction. So live counts change exactly as the map does, whatever was cut and put in between
//! (I-EXT-2), and no key is written twice. A block is in one of the two tables. The exception: an inline block may also have
//! an unwritten extent, which is the space that is preallocated or was used for the block.
//!
//! A caller that changes the map holds the object's map lock for writing from the look-up until the commit has returned.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use tree::{KeyRange, Store, StoreError, Table, Tx};
use zone::{Blocks, Geometry, ZoneId};

use crate::appended::Appended;
use crate::format::{self, EXTENT, Extent, INLINE_BLOCK, KEY_BYTES};
use crate::{Object, Result};

fn decode(geometry: &Geometry, object: Object, key: &[u8], value: &[u8]) -> Result<(u64, Extent)> {
    let (owner, start) = format::decode_key(key).ok_or_else(|| damaged(object, "a key"))?;
    let extent = Extent::decode(value).ok_or_else(|| damaged(owner, "an extent"))?;
    if extent.origin.is_some_and(|origin| origin.object == owner) {
        return Err(damaged(owner, "a reference to itself").into());
    }
    if !is_possible(geometry, start, &extent) {
        return Err(outside(owner, start, &extent).into());
    }
    Ok((start, extent))
}

/// Whether the device has these blocks, and the object can have them.
fn is_possible(geometry: &Geometry, start: u64, extent: &Extent) -> bool {
    let address = extent.address;
    let fits = || {
        let end = address.block().checked_add(extent.blocks);
        address.zone().0 < geometry.zones && end.is_some_and(|end| end <= geometry.zone_blocks)
    };
    let ends = |start: u64| {
        let end = start.checked_add(u64::from(extent.blocks));
        end.is_some_and(|end| end <= blocks_max(geometry))
    };
    ends(start) && (!extent.is_stored() || fits()) && extent.origin.is_none_or(|origin| ends(origin.block))
}

/// Blocks of an object whose bytes can be counted in 64 bits.
pub(crate) fn blocks_max(geometry: &Geometry) -> u64 {
    u64::MAX / u64::from(geometry.block_size)
}

fn overlap(object: Object, start: u64) -> StoreError {
    StoreError::Corrupt(format!("object {} block {start}: its extent overlaps the one before", object.0))
}

fn outside(object: Object, start: u64, extent: &Extent) -> StoreError {
    let (address, blocks) = (extent.address, extent.blocks);
    StoreError::Corrupt(format!(
        "object {} block {start}: its extent names {blocks} blocks at {address}, which no zone has",
        object.0
    ))
}

fn damaged(object: Object, what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} of object {} cannot be decoded", object.0))
}

/// The extent that begins at or before `block`, if it contains `block`.
fn covering(store: &Store, object: Object, block: u64) -> Result<Option<(u64, Extent)>> {
    let found = extent_up_to(store, object, block)?;
    Ok(found.filter(|(start, extent)| start + u64::from(extent.blocks) > block))
}

/// The last extent that begins at or before `block`.
fn extent_up_to(store: &Store, object: Object, block: u64) -> Result<Option<(u64, Extent)>> {
    let (group, geometry) = (store.group_of(object.0), store.device().geometry());
    let found = store.floor(group, EXTENT, &format::key(object, block), |key, value| {
        let is_its = format::decode_key(key).is_some_and(|(owner, _)| owner == object);
        is_its.then(|| decode(geometry, object, key, value))
    })?;
    found.flatten().transpose()
}

/// The last extent that begins before `block`.
pub(crate) fn extent_before(store: &Store, object: Object, block: u64) -> Result<Option<(u64, Extent)>> {
    block.checked_sub(1).map_or(Ok(None), |last| extent_up_to(store, object, last))
}

/// The last inline block before `block`.
pub(crate) fn inline_block_before(store: &Store, object: Object, block: u64) -> Result<Option<u64>> {
    let Some(last) = block.checked_sub(1) else { return Ok(None) };
    let group = store.group_of(object.0);
    let found =
        store.floor(group, INLINE_BLOCK, &format::key(object, last), |key, _| format::decode_key(key))?;
    let Some(found) = found else { return Ok(None) };
    let (owner, block) = found.ok_or_else(|| damaged(object, "a key"))?;
    Ok((owner == object).then_some(block))
}

/// Extents of the object that have a block in [from, to), at most `limit`, in order. They do not overlap.
pub(crate) fn extents(
    store: &Store,
    object: Object,
    (from, to): (u64, u64),
    limit: usize,
) -> Result<Vec<(u64, Extent)>> {
    let mut found = Vec::new();
    if from >= to {
        return Ok(found);
    }
    found.extend(covering(store, object, from)?);
    // The row of a block that was just read is not read again.
    let next = if found.first().is_some_and(|(start, _)| *start >= from) { from + 1 } else { from };
    let geometry = store.device().geometry();
    rows(store, (object, EXTENT), (next, to), limit, &mut found, |found, key, value| {
        let (start, extent) = decode(geometry, object, key, value)?;
        match found.last() {
            Some((before, extent)) if has(*before, extent, start) => Err(overlap(object, start).into()),
            _ => Ok((start, extent)),
        }
    })?;
    Ok(found)
}

/// Inline blocks of the object in [from, to), at most `limit`, in order.
pub(crate) fn inline_blocks(
    store: &Store,
    object: Object,
    range: (u64, u64),
    limit: usize,
) -> Result<Vec<(u64, Vec<u8>)>> {
    let geometry = store.device().geometry();
    let mut found = Vec::new();
    rows(store, (object, INLINE_BLOCK), range, limit, &mut found, |_, key, value| {
        let (_, block) = format::decode_key(key).ok_or_else(|| damaged(object, "a key"))?;
        let fits = value.len() <= geometry.block_size as usize && block < blocks_max(geometry);
        if fits { Ok((block, value.to_vec())) } else { Err(damaged(object, "an inline block").into()) }
    })?;
    Ok(found)
}

/// Adds what `read` makes of the rows of a table for blocks [from, to) of an object, until there are `limit`.
pub(crate) fn rows<T>(
    store: &Store,
    (object, table): (Object, Table),
    (from, to): (u64, u64),
    limit: usize,
    found: &mut Vec<T>,
    mut read: impl FnMut(&[T], &[u8], &[u8]) -> Result<T>,
) -> Result<()> {
    if from >= to || found.len() >= limit {
        return Ok(());
    }
    let mut done = Ok(());
    let (first, end) = (format::key(object, from), format::key(object, to));
    store.visit(store.group_of(object.0), table, &first, &end, |key, value| {
        match read(found, key, value) {
            Ok(row) => found.push(row),
            Err(error) => done = Err(error),
        }
        if done.is_ok() && found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    done
}

/// Whether an extent that begins at `start`, at or before `block`, contains `block`.
fn has(start: u64, extent: &Extent, block: u64) -> bool {
    start + u64::from(extent.blocks) > block
}

fn unwritten(extents: &BTreeMap<u64, Extent>) -> i64 {
    extents.values().filter(|extent| extent.unwritten).map(|extent| i64::from(extent.blocks)).sum()
}

/// Part of one object's map, in its old and its new state.
#[derive(Debug)]
pub(crate) struct View {
    object: Object,
    old: BTreeMap<u64, Extent>,
    new: BTreeMap<u64, Extent>,
    old_inline: BTreeMap<u64, Vec<u8>>,
    new_inline: BTreeMap<u64, Vec<u8>>,
}

impl View {
    /// Everything that overlaps blocks [from, to): at most `limit` extents, and as many inline blocks.
    pub(crate) fn load(store: &Store, object: Object, range: (u64, u64), limit: usize) -> Result<View> {
        View::load_all(store, object, &[range], limit)
    }

    /// The same for several ranges, `limit` for each of them.
    pub(crate) fn load_all(
        store: &Store,
        object: Object,
        ranges: &[(u64, u64)],
        limit: usize,
    ) -> Result<View> {
        let (mut found, mut found_inline) = (Vec::new(), Vec::new());
        for &range in ranges {
            // An extent that overlaps several ranges is found several times, and kept once.
            found.extend(extents(store, object, range, limit)?);
            found_inline.extend(inline_blocks(store, object, range, limit)?);
        }
        Ok(View::new(object, found, found_inline))
    }

    pub(crate) fn new(
        object: Object,
        extents: Vec<(u64, Extent)>,
        inline_blocks: Vec<(u64, Vec<u8>)>,
    ) -> View {
        let old: BTreeMap<u64, Extent> = extents.into_iter().collect();
        let old_inline: BTreeMap<u64, Vec<u8>> = inline_blocks.into_iter().collect();
        View { object, new: old.clone(), old, new_inline: old_inline.clone(), old_inline }
    }

    /// The object of this map.
    pub(crate) fn object(&self) -> Object {
        self.object
    }

    /// Where the part ends that one transaction changes: at most `limit` extents, as many inline blocks, and extents that
    /// together weigh at most `bytes_max`, but at least one. `None` if the part is the whole view.
    pub(crate) fn end_of_part(
        &self,
        limit: usize,
        bytes_max: usize,
        mut weigh: impl FnMut(&Extent) -> Result<usize>,
    ) -> Result<Option<u64>> {
        let (mut bytes, mut extent) = (0, None);
        for (index, (&start, entry)) in self.new.iter().enumerate() {
            bytes += weigh(entry)?;
            if index > 0 && (index >= limit || bytes > bytes_max) {
                extent = Some(start);
                break;
            }
        }
        let inline_block = self.new_inline.keys().nth(limit).copied();
        Ok([extent, inline_block].into_iter().flatten().min())
    }

    /// The extents in the new state.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, &Extent)> {
        self.new.iter().map(|(&start, extent)| (start, extent))
    }

    /// The inline blocks in the new state.
    pub(crate) fn inline_blocks(&self) -> &BTreeMap<u64, Vec<u8>> {
        &self.new_inline
    }

    /// Removes blocks [from, to), in either table.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        let first = from.saturating_sub(u64::from(format::EXTENT_BLOCKS_MAX));
        let end = |start: u64, extent: &Extent| start + u64::from(extent.blocks);
        let found: Vec<u64> = self
            .new
            .range(first..to)
            .filter(|&(&start, extent)| end(start, extent) > from)
            .map(|(&start, _)| start)
            .collect();
        for start in found {
            let extent = self.new.remove(&start).expect("it was just found");
            self.put_rest(start, &extent, from, to);
        }
        let dead: Vec<u64> = self.new_inline.range(from..to).map(|(&block, _)| block).collect();
        dead.iter().for_each(|block| drop(self.new_inline.remove(block)));
    }

    /// Removes extents from blocks [from, to), except below inline blocks. Returns the removed ranges.
    pub(crate) fn cut_between_inline_blocks(&mut self, from: u64, to: u64) -> Vec<Range<u64>> {
        let inline: Vec<u64> = self.new_inline.range(from..to).map(|(&block, _)| block).collect();
        let starts = std::iter::once(from).chain(inline.iter().map(|block| block + 1));
        let runs = starts.zip(inline.iter().copied().chain([to])).map(|(start, end)| start..end);
        let runs: Vec<Range<u64>> = runs.filter(|run| run.start < run.end).collect();
        runs.iter().for_each(|run| self.cut(run.start, run.end));
        runs
    }

    fn put_rest(&mut self, start: u64, extent: &Extent, from: u64, to: u64) {
        let end = start + u64::from(extent.blocks);
        let trimmed = |part: Extent| Extent { trimmed: part.is_stored(), ..part };
        if start < from {
            self.new.insert(start, trimmed(extent.slice(0, (from - start) as Blocks)));
        }
        if end > to {
            self.new.insert(to, trimmed(extent.slice((to - start) as Blocks, extent.blocks)));
        }
    }

    /// Adds an extent to blocks that have nothing.
    pub(crate) fn put(&mut self, start: u64, extent: Extent) {
        let end = start + u64::from(extent.blocks);
        let free =
            self.new.range(start..end).next().is_none() && self.new_inline.range(start..end).next().is_none();
        assert!(free, "blocks {start}..{end} of object {} are cut before they are put", self.object.0);
        self.new.insert(start, extent);
    }

    /// Joins extents of this append that are adjacent.
    pub(crate) fn join(&mut self, piece: &Appended) {
        let mut starts: Vec<u64> =
            self.new.range(piece.start..piece.end()).map(|(&start, _)| start).collect();
        while let [rest @ .., before, last] = &starts[..] {
            let (head, tail) = (&self.new[before], &self.new[last]);
            let index = (before - piece.start) as Blocks;
            let within = head.address == piece.extent.address_of(index)
                && tail.address == piece.extent.address_of((last - piece.start) as Blocks)
                && before + u64::from(head.blocks) == *last;
            if within {
                let joined = piece.extent.slice(index, index + head.blocks + tail.blocks);
                self.new.remove(last);
                self.new.insert(*before, joined);
            }
            starts.truncate(rest.len() + 1);
        }
    }

    /// Replaces a block by an inline block. Space that it had remains preallocated.
    pub(crate) fn put_inline(&mut self, block: u64, contents: Vec<u8>) {
        let before = self.new.range(..=block).next_back();
        let had_space =
            before.is_some_and(|(start, extent)| has(*start, extent, block) && extent.holds_space());
        self.cut(block, block + 1);
        if had_space {
            self.put(block, Extent::unwritten(1));
        }
        self.new_inline.insert(block, contents);
    }

    /// Preallocates space for the blocks of [from, to) that have none, in at most `limit` extents. Returns where it stopped.
    pub(crate) fn preallocate(&mut self, from: u64, to: u64, limit: usize) -> u64 {
        let (mut at, mut left) = (from, limit);
        while at < to && left > 0 {
            if let Some(end) = self.end_of(at) {
                at = end;
                continue;
            }
            let next = self.new.range(at..to).next().map_or(to, |(&start, _)| start);
            let blocks = (next - at).min(u64::from(format::EXTENT_BLOCKS_MAX));
            self.new.insert(at, Extent::unwritten(blocks as Blocks));
            (at, left) = (at + blocks, left - 1);
        }
        at.min(to)
    }

    /// The end of the extent that has this block.
    fn end_of(&self, block: u64) -> Option<u64> {
        let (start, extent) = self.new.range(..=block).next_back()?;
        has(*start, extent, block).then_some(start + u64::from(extent.blocks))
    }

    /// Adds the difference between the old and the new state.
    pub(crate) fn apply(&self, store: &Store, tx: &mut Tx) {
        let group = store.group_of(self.object.0);
        let key = |block: u64| -> [u8; KEY_BYTES] { format::key(self.object, block) };
        for &start in self.old.keys().filter(|start| !self.new.contains_key(start)) {
            tx.delete(group, EXTENT, key(start));
        }
        for (&start, extent) in self.new.iter().filter(|&(start, extent)| self.old.get(start) != Some(extent))
        {
            tx.put(group, EXTENT, key(start), extent.encode());
        }
        for &block in self.old_inline.keys().filter(|block| !self.new_inline.contains_key(block)) {
            tx.delete(group, INLINE_BLOCK, key(block));
        }
        for (&block, contents) in &self.new_inline {
            if self.old_inline.get(&block) != Some(contents) {
                tx.put(group, INLINE_BLOCK, key(block), contents.clone());
            }
        }
        for (zone, change) in self.live_changes() {
            tx.zone_live(zone, change);
        }
        tx.counter(format::UNWRITTEN_BLOCKS, unwritten(&self.new) - unwritten(&self.old));
    }

    /// Preallocated blocks in the new state.
    pub(crate) fn unwritten(&self) -> u64 {
        unwritten(&self.new).unsigned_abs()
    }

    /// The objects that own blocks to which it refers.
    pub(crate) fn origins(&self) -> BTreeSet<Object> {
        self.old.values().filter_map(|extent| extent.origin).map(|origin| origin.object).collect()
    }

    /// The changes of the numbers of references to blocks of other objects: runs of blocks by object, in order.
    pub(crate) fn reference_changes(&self) -> BTreeMap<Object, Vec<(Range<u64>, i64)>> {
        let mut steps: BTreeMap<Object, BTreeMap<u64, i64>> = BTreeMap::new();
        let mut step = |extent: &Extent, change: i64| {
            let Some(origin) = extent.origin else { return };
            let steps = steps.entry(origin.object).or_default();
            *steps.entry(origin.block).or_default() += change;
            *steps.entry(origin.block + u64::from(extent.blocks)).or_default() -= change;
        };
        self.old.values().for_each(|extent| step(extent, -1));
        self.new.values().for_each(|extent| step(extent, 1));
        let runs = |steps: BTreeMap<u64, i64>| {
            let (mut change, mut runs) = (0, Vec::new());
            let ends = steps.keys().skip(1).copied().collect::<Vec<_>>();
            for ((from, step), to) in steps.into_iter().zip(ends) {
                change += step;
                if change != 0 {
                    runs.push((from..to, change));
                }
            }
            runs
        };
        let changes = steps.into_iter().map(|(object, steps)| (object, runs(steps)));
        changes.filter(|(_, runs)| !runs.is_empty()).collect()
    }

    /// The change of the number of blocks in zones.
    pub(crate) fn stored_change(&self) -> i64 {
        let stored = |extents: &BTreeMap<u64, Extent>| {
            let stored = extents.values().filter(|extent| extent.is_stored());
            stored.map(|extent| i64::from(extent.blocks)).sum::<i64>()
        };
        stored(&self.new) - stored(&self.old)
    }

    /// The changes of the live blocks of zones.
    pub(crate) fn live_changes(&self) -> Vec<(ZoneId, i32)> {
        let mut live: BTreeMap<ZoneId, i32> = BTreeMap::new();
        let mut count = |extents: &BTreeMap<u64, Extent>, sign: i32| {
            for extent in extents.values().filter(|extent| extent.is_stored()) {
                let missed = i32::from(rt::is_planted("break-live-count") && extent.trimmed);
                *live.entry(extent.address.zone()).or_default() += sign * (extent.blocks as i32 - missed);
            }
        };
        count(&self.new, 1);
        count(&self.old, -1);
        live.into_iter().filter(|(_, change)| *change != 0).collect()
    }

    /// The change of the number of blocks that take space: in an extent, or as an inline block without one.
    pub(crate) fn block_change(&self) -> i64 {
        let blocks = |view: &BTreeMap<u64, Extent>, inline_blocks: &BTreeMap<u64, Vec<u8>>| {
            let taken = |extent: &&Extent| !extent.is_lost();
            let in_extents: u64 = view.values().filter(taken).map(|e| u64::from(e.blocks)).sum();
            let has_extent = |block: u64| {
                let before = view.range(..=block).next_back();
                before.is_some_and(|(start, extent)| has(*start, extent, block))
            };
            in_extents as i64 + inline_blocks.keys().filter(|&&block| !has_extent(block)).count() as i64
        };
        blocks(&self.new, &self.new_inline) - blocks(&self.old, &self.old_inline)
    }

    /// The change of the number of inline blocks.
    pub(crate) fn inline_change(&self) -> i64 {
        self.new_inline.len() as i64 - self.old_inline.len() as i64
    }
}

/// The blocks of an object whose keys can be in a range.
pub fn blocks_in(range: &KeyRange, object: Object) -> Range<u64> {
    let block_of = |table: Table, key: &[u8]| {
        let (owner, block) = format::decode_key(key.strip_prefix(&[table.0])?)?;
        (owner == object).then_some(block)
    };
    let touched = [EXTENT, INLINE_BLOCK].into_iter().filter(|&t| range.touches(t, &object.0.to_be_bytes()));
    let each = touched.map(|table| {
        let end = range.high.as_deref().and_then(|high| block_of(table, high));
        block_of(table, &range.low).unwrap_or(0)..end.unwrap_or(u64::MAX)
    });
    each.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end)).unwrap_or(0..0)
}

#[cfg(test)]
mod tests;
