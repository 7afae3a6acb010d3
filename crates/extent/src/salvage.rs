//! Data without the log: what the object map that was found says, and where that fails, what the zones of data
//! say of themselves.
//!
//! Every block that is given out has the checksum that an extent, or the zone's own reverse map, has of it
//! (I-EXT-3). An extent speaks of the moment of the checkpoint; by now its blocks may have been moved, and
//! their zone written anew. A block is **certain** if it has the checksum that a certain extent says, where
//! that says or where an entry of the same object and block leads to. What only entries tell is not: it may be
//! an older or a newer version, or of a file that was deleted.
//!
//! Entries are read from summaries that footers lead to, or where there is no footer from whatever looks like
//! a summary of this zone in this life: users' bytes may look like one, which makes nothing certain that is
//! not. Memory: all entries, once something is missed for the first time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rt::sync::Mutex;
use tree::{KeyRange, Salvaged, StoreError, Table};
use zone::{Address, Blocks, Role, ZoneId};

use crate::format::{
    self, EXTENT, EXTENT_BLOCKS_MAX, Entry, Extent, FOOTER_MAGIC, Origin, RESIDENT, SUMMARY_MAGIC, ZoneName,
    ZoneUser,
};
use crate::write::is_fatal;
use crate::{Object, Result};

/// Bytes read at once in search of summaries.
const READ_AT_ONCE: usize = 1 << 20;

/// Is given blocks: the first one's number in the object, and their bytes.
pub type EachBlock<'a> = dyn FnMut(u64, &[u8]) + 'a;

/// Is given the rows of an object: block, value, whether it is certain.
type EachRow<'a> = dyn FnMut(u64, &[u8], bool) -> Result<()> + 'a;

/// The data of a volume as far as they can be read.
pub struct SalvagedData {
    tables: Arc<Salvaged>,
    /// Read when something is missed.
    entries: Mutex<Option<Arc<Entries>>>,
}

/// What became of one object's data. Blocks are in order; neighbours are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundObject {
    /// Blocks that an extent names or that are resident, lost ones left out.
    pub blocks: u64,
    /// Blocks that cannot be read.
    pub lost: Vec<Range<u64>>,
    /// Blocks that were given out and may be of another version.
    pub uncertain: Vec<Range<u64>>,
    /// Blocks of which nobody knows whether something stood there.
    pub unknown: Vec<Range<u64>>,
    /// Those of them that space is kept for: that they count tells nothing of what stood there.
    pub unknown_kept: Vec<Range<u64>>,
}

/// An object that zones of data tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayObject {
    /// Its number.
    pub object: Object,
    /// The last transaction when its newest block was written.
    pub newest: u64,
}

/// What zones say of their blocks.
#[derive(Default)]
struct Entries {
    /// By object and its first block.
    by_block: BTreeMap<(u64, u64), Vec<(ZoneName, Entry)>>,
}

/// Which blocks of an object may be named between these keys.
pub fn blocks_in(range: &KeyRange, object: Object) -> Range<u64> {
    let block_of = |table: Table, key: &[u8]| {
        let (owner, block) = format::decode_key(key.strip_prefix(&[table.0])?)?;
        (owner == object).then_some(block)
    };
    let touched = [EXTENT, RESIDENT].into_iter().filter(|&t| range.touches(t, &object.0.to_be_bytes()));
    let each = touched.map(|table| {
        let end = range.high.as_deref().and_then(|high| block_of(table, high));
        block_of(table, &range.low).unwrap_or(0)..end.unwrap_or(u64::MAX)
    });
    each.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end)).unwrap_or(0..0)
}

impl SalvagedData {
    /// Data below these tables.
    pub fn new(tables: Arc<Salvaged>) -> SalvagedData {
        SalvagedData { tables, entries: Mutex::default() }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.tables.device().geometry().block_size as usize
    }

    /// Gives out all blocks of an object that can be read, not always in order; holes and unwritten blocks are
    /// left out.
    ///
    /// # Errors
    /// When the device as a whole has failed.
    pub fn read(&self, object: Object, each: &mut EachBlock<'_>) -> Result<FoundObject> {
        let mut found = FoundObject::default();
        let (mut named, mut kept): (Vec<Range<u64>>, Vec<Range<u64>>) = (Vec::new(), Vec::new());
        let (mut resident, mut references): (Vec<Range<u64>>, _) = (Vec::new(), Vec::new());
        self.rows(object, EXTENT, 0..u64::MAX, &mut |start, value, certain| {
            let Some(extent) = Extent::decode(value) else { return Ok(()) };
            let end = start.saturating_add(u64::from(extent.blocks));
            add(&mut named, start..end);
            if !certain {
                add(&mut found.uncertain, start..end);
            }
            if extent.is_lost() {
                add(&mut found.lost, start..end);
                return Ok(());
            }
            found.blocks += end - start;
            if extent.unwritten {
                add(&mut kept, start..end);
            } else if let Some(origin) = extent.origin {
                references.push((start, extent.blocks, origin));
            } else {
                self.extent(object, start, &extent, &mut found, each)?;
            }
            Ok(())
        })?;
        // What lies between parts of the extents is put there at once: one by one, all behind it would move each time.
        let mut more = FoundObject::default();
        for (start, blocks, origin) in references {
            self.referred(start, blocks, origin, &mut more, each)?;
        }
        found.merge(std::mem::take(&mut more));
        let mut block_bytes = vec![0; self.block_size()];
        self.rows(object, RESIDENT, 0..u64::MAX, &mut |block, value, certain| {
            if value.len() > block_bytes.len() {
                return Ok(());
            }
            block_bytes.fill(0);
            block_bytes[..value.len()].copy_from_slice(value);
            more.blocks += u64::from(!contains(&named, block));
            add(&mut resident, block..block + 1);
            if !certain {
                add(&mut more.uncertain, block..block + 1);
            }
            each(block, &block_bytes);
            Ok(())
        })?;
        found.merge(more);
        merge(&mut named, resident.clone());
        self.unknown(object, &named, &mut found, each)?;
        found.unknown_kept = without(&common(&kept, &found.unknown), &resident);
        Ok(found)
    }

    /// Objects that zones of data tell of, by number.
    pub fn strays(&self) -> Result<Vec<StrayObject>> {
        let entries = self.entries()?;
        let mut strays: BTreeMap<u64, u64> = BTreeMap::new();
        for ((object, _), those) in &entries.by_block {
            let newest = strays.entry(*object).or_default();
            *newest = those.iter().map(|(_, entry)| entry.sequence).fold(*newest, u64::max);
        }
        Ok(strays
            .into_iter()
            .map(|(object, newest)| StrayObject { object: Object(object), newest })
            .collect())
    }

    /// The newest version of each block of an object that zones of data have; nothing of it is certain.
    pub fn read_stray(&self, object: Object, each: &mut EachBlock<'_>) -> Result<FoundObject> {
        let mut found = FoundObject::default();
        self.give_entries(object, 0..u64::MAX, &[], &mut found, each)?;
        found.blocks = found.uncertain.iter().map(|range| range.end - range.start).sum();
        Ok(found)
    }

    /// The rows of an object that begin in a range of its blocks.
    fn rows(&self, object: Object, table: Table, blocks: Range<u64>, each: &mut EachRow<'_>) -> Result<()> {
        let (from, to, mut result) =
            (format::key(object, blocks.start), format::key(object, blocks.end), Ok(()));
        let group = self.tables.group_of(object.0);
        self.tables.rows(group, table, (&from, &to), &mut |(key, value, certain)| {
            if let Some((_, block)) = format::decode_key(key) {
                result = each(block, value, certain);
            }
            result.is_ok()
        })?;
        result
    }

    /// Gives out blocks of another object, from `start` on.
    fn referred(
        &self,
        start: u64,
        blocks: Blocks,
        origin: Origin,
        found: &mut FoundObject,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let Origin { object, block: first } = origin;
        let (end, size) = (first + u64::from(blocks), self.block_size());
        let (mut theirs, mut named): (FoundObject, Vec<Range<u64>>) = Default::default();
        let mut give = |block: u64, bytes: &[u8]| each(start + (block - first), bytes);
        let from = first.saturating_sub(u64::from(EXTENT_BLOCKS_MAX));
        self.rows(object, EXTENT, from..end, &mut |at, value, certain| {
            let part = Extent::decode(value).and_then(|extent| extent.within(at, (first, end)));
            let Some((at, part)) = part.filter(|(_, part)| part.is_stored() || part.is_lost()) else {
                return Ok(());
            };
            let run = at..at + u64::from(part.blocks);
            add(&mut named, run.clone());
            if !certain {
                add(&mut theirs.uncertain, run.clone());
            }
            if part.is_lost() {
                add(&mut theirs.lost, run);
                return Ok(());
            }
            self.extent(object, at, &part, &mut theirs, &mut give)
        })?;
        let mut bytes = vec![0; size];
        self.rows(object, RESIDENT, first..end, &mut |block, value, certain| {
            if value.len() <= size {
                bytes.fill(0);
                bytes[..value.len()].copy_from_slice(value);
                add(&mut named, block..block + 1);
                if !certain {
                    add(&mut theirs.uncertain, block..block + 1);
                }
                give(block, &bytes);
            }
            Ok(())
        })?;
        for block in (first..end).filter(|block| !contains(&named, *block)) {
            let is_found = self.any_version(object, block, &mut bytes)?;
            add(if is_found { &mut theirs.uncertain } else { &mut theirs.lost }, block..block + 1);
            if is_found {
                give(block, &bytes);
            }
        }
        let here = |run: &Range<u64>| start + (run.start - first)..start + (run.end - first);
        theirs.lost.iter().for_each(|run| add(&mut found.lost, here(run)));
        theirs.uncertain.iter().for_each(|run| add(&mut found.uncertain, here(run)));
        Ok(())
    }

    fn extent(
        &self,
        object: Object,
        start: u64,
        extent: &Extent,
        found: &mut FoundObject,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let size = self.block_size();
        let mut bytes = vec![0; extent.blocks as usize * size];
        let mut good = self.read_blocks(extent.address, &extent.crcs, &mut bytes)?;
        for (index, is_good) in good.iter_mut().enumerate().filter(|(_, is_good)| !**is_good) {
            let (block, into) = (start + index as u64, &mut bytes[index * size..(index + 1) * size]);
            *is_good = self.moved(object, block, extent.crcs[index], into)?;
            let uncertain = !*is_good && self.any_version(object, block, into)?;
            if uncertain {
                *is_good = true;
                add(&mut found.uncertain, block..block + 1);
            } else if !*is_good {
                add(&mut found.lost, block..block + 1);
            }
        }
        for (index, _) in good.iter().enumerate().filter(|(_, is_good)| **is_good) {
            each(start + index as u64, &bytes[index * size..(index + 1) * size]);
        }
        Ok(())
    }

    /// Blocks without an extent where extents may be missing.
    fn unknown(
        &self,
        object: Object,
        named: &[Range<u64>],
        found: &mut FoundObject,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let group = self.tables.group_of(object.0);
        let prefix = object.0.to_be_bytes();
        let near = |table| self.tables.lost_near(group, table, &prefix);
        let mut unknown = Vec::new();
        [EXTENT, RESIDENT].into_iter().flat_map(near).for_each(|range| {
            let blocks = blocks_in(range, object);
            if !blocks.is_empty() {
                add(&mut unknown, blocks);
            }
        });
        let mut more = FoundObject::default();
        for blocks in &unknown {
            self.give_entries(object, blocks.clone(), named, &mut more, each)?;
        }
        found.merge(more);
        found.unknown = unknown;
        Ok(())
    }

    /// Gives out the newest version that entries know of each block of a range that is not named.
    fn give_entries(
        &self,
        object: Object,
        range: Range<u64>,
        named: &[Range<u64>],
        found: &mut FoundObject,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let entries = self.entries()?;
        let mut bytes = vec![0; self.block_size()];
        for block in entries.blocks(object, &range) {
            if !contains(named, block) && self.any_version(object, block, &mut bytes)? {
                add(&mut found.uncertain, block..block + 1);
                each(block, &bytes);
            }
        }
        Ok(())
    }

    /// Reads the newest version of a block that entries know and that is whole.
    fn any_version(&self, object: Object, block: u64, into: &mut [u8]) -> Result<bool> {
        for (at, crc) in self.entries()?.versions(object, block) {
            if self.read_blocks(at, &[crc], into)?[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads a block with this checksum from wherever entries say that the object has it.
    fn moved(&self, object: Object, block: u64, crc: u32, into: &mut [u8]) -> Result<bool> {
        for (at, known) in self.entries()?.versions(object, block) {
            if known == crc && self.read_blocks(at, &[crc], into)?[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Which of these blocks are there and have their checksums.
    fn read_blocks(&self, at: Address, crcs: &[u32], into: &mut [u8]) -> Result<Vec<bool>> {
        let (device, size) = (self.tables.device(), self.block_size());
        let nothing = vec![false; crcs.len()];
        let Some(zone) = self.tables.zones().get(at.zone().0 as usize) else { return Ok(nothing) };
        let is_other = zone.role != Role::Free && !(zone.role.holds_data() && at.is_of(zone.life));
        let end = at.block().checked_add(crcs.len() as Blocks);
        if at.is_none() || is_other || end.is_none_or(|end| end > zone.end) {
            return Ok(nothing);
        }
        let at_once = device.read(at.zone(), at.block(), into);
        let mut good = Vec::with_capacity(crcs.len());
        for (index, (block, crc)) in into.chunks_mut(size).zip(crcs).enumerate() {
            let read = match &at_once {
                Err(error) if !is_fatal(error) && crcs.len() > 1 => {
                    device.read(at.zone(), at.block() + index as Blocks, block)
                }
                read => read.clone(),
            };
            match read {
                Err(error) if is_fatal(&error) => return Err(StoreError::Device(error).into()),
                read => good.push(read.is_ok() && zone::format::checksum(&[block]) == *crc),
            }
        }
        Ok(good)
    }

    fn entries(&self) -> Result<Arc<Entries>> {
        let mut entries = self.entries.lock();
        if let Some(entries) = &*entries {
            return Ok(Arc::clone(entries));
        }
        let mut all = Entries::default();
        for (index, zone) in self.tables.zones().iter().enumerate() {
            if zone.end <= 1 || matches!(zone.role, Role::Log | Role::Metadata) {
                continue;
            }
            let name = ZoneName { fs_id: self.tables.fs_id(), zone: ZoneId(index as u32), life: zone.life };
            for entry in self.zone_entries(&name, zone.end, ZoneUser::decode(&zone.user)) {
                all.by_block.entry((entry.object.0, entry.offset)).or_default().push((name, entry));
            }
        }
        Ok(Arc::clone(entries.insert(Arc::new(all))))
    }

    /// What a zone says of its blocks.
    fn zone_entries(&self, name: &ZoneName, end: Blocks, user: ZoneUser) -> Vec<Entry> {
        let device = &**self.tables.device();
        let summary = |place: Blocks| {
            let (count, payload) = crate::read_summary(device, end, SUMMARY_MAGIC, name, place)?;
            format::decode_entries(&payload, count)
        };
        let footer = (user.footer > 0)
            .then(|| crate::read_summary(device, end, FOOTER_MAGIC, name, user.footer))
            .flatten()
            .and_then(|(count, payload)| format::decode_places(&payload, count));
        let places = footer.unwrap_or_else(|| self.summaries(name, end));
        places.into_iter().filter_map(summary).flatten().collect()
    }

    /// Where something begins that looks like a summary.
    fn summaries(&self, name: &ZoneName, end: Blocks) -> Vec<Blocks> {
        let (device, size) = (self.tables.device(), self.block_size());
        let mut bytes = vec![0; (READ_AT_ONCE / size).max(1) * size];
        let (mut places, mut block) = (Vec::new(), 1);
        while block < end {
            let blocks = (end - block).min((bytes.len() / size) as Blocks);
            let some = &mut bytes[..blocks as usize * size];
            let at_once = device.read(name.zone, block, some).is_ok();
            for (index, one) in some.chunks_mut(size).enumerate() {
                let at = block + index as Blocks;
                let is_read = at_once || device.read(name.zone, at, one).is_ok();
                if is_read && format::summary_blocks_claimed(SUMMARY_MAGIC, one).is_some() {
                    places.push(at);
                }
            }
            block += blocks;
        }
        places
    }
}

impl Entries {
    /// Where a block of an object may be, and with which checksum, the newest first.
    fn versions(&self, object: Object, block: u64) -> Vec<(Address, u32)> {
        let first = block.saturating_sub(u64::from(EXTENT_BLOCKS_MAX) - 1);
        let near = self.by_block.range((object.0, first)..=(object.0, block));
        let mut versions: Vec<(u64, Address, u32)> = Vec::new();
        for (name, entry) in near.flat_map(|(_, entries)| entries) {
            let index = block - entry.offset;
            if let Some(crc) = entry.crcs.get(index as usize) {
                let at = Address::new(name.zone, entry.block + index as Blocks, name.life);
                versions.push((entry.sequence, at, *crc));
            }
        }
        versions.sort_unstable_by(|one, other| other.cmp(one));
        versions.into_iter().map(|(_, at, crc)| (at, crc)).collect()
    }

    /// The blocks of an object within a range that entries know.
    fn blocks(&self, object: Object, range: &Range<u64>) -> Vec<u64> {
        let first = range.start.saturating_sub(u64::from(EXTENT_BLOCKS_MAX) - 1);
        let near = self.by_block.range((object.0, first)..(object.0, range.end));
        let mut blocks: Vec<u64> = near
            .flat_map(|((_, offset), entries)| {
                entries.iter().map(move |(_, entry)| (*offset, entry.blocks()))
            })
            .flat_map(|(offset, blocks)| offset..offset + u64::from(blocks))
            .filter(|block| range.contains(block))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

impl FoundObject {
    /// Adds what was found beside it.
    fn merge(&mut self, more: FoundObject) {
        self.blocks += more.blocks;
        merge(&mut self.lost, more.lost);
        merge(&mut self.uncertain, more.uncertain);
        merge(&mut self.unknown, more.unknown);
        merge(&mut self.unknown_kept, more.unknown_kept);
    }
}

/// Whether a block is in one of the ranges, which are in order.
fn contains(ranges: &[Range<u64>], block: u64) -> bool {
    let at = ranges.partition_point(|range| range.end <= block);
    ranges.get(at).is_some_and(|range| range.contains(&block))
}

/// Adds ranges to others; both are in order.
fn merge(ranges: &mut Vec<Range<u64>>, more: Vec<Range<u64>>) {
    if more.is_empty() {
        return;
    }
    let mut all = std::mem::take(ranges);
    all.extend(more);
    all.sort_by_key(|range| range.start);
    all.into_iter().for_each(|range| add(ranges, range));
}

/// What is in both; both are in order.
fn common(some: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut common = Vec::new();
    for one in some {
        let first = others.partition_point(|other| other.end <= one.start);
        for other in others[first..].iter().take_while(|other| other.start < one.end) {
            add(&mut common, one.start.max(other.start)..one.end.min(other.end));
        }
    }
    common
}

/// What is in some and not in others; both are in order.
fn without(some: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for one in some {
        let first = others.partition_point(|other| other.end <= one.start);
        let mut from = one.start;
        for other in others[first..].iter().take_while(|other| other.start < one.end) {
            if from < other.start {
                add(&mut left, from..other.start);
            }
            from = other.end;
        }
        if from < one.end {
            add(&mut left, from..one.end);
        }
    }
    left
}

/// Adds blocks to ranges that are in order.
fn add(ranges: &mut Vec<Range<u64>>, blocks: Range<u64>) {
    let at = ranges.partition_point(|range| range.end < blocks.start);
    let behind = ranges.partition_point(|range| range.start <= blocks.end);
    let touched = &ranges[at..behind];
    let start = touched.first().map_or(blocks.start, |range| range.start.min(blocks.start));
    let end = touched.last().map_or(blocks.end, |range| range.end.max(blocks.end));
    ranges.splice(at..behind, std::iter::once(start..end));
}
