//! The data of objects: by the extents that were found, and where these fail, by the reverse maps of the data zones.
//!
//! A block is returned only if it has the checksum that an extent or an entry of a reverse map has for it (I-EXT-3). An
//! extent describes the state at the checkpoint. Since then its blocks may have been moved, and their zone written again.
//! So a block is **certain** if it has the checksum of a certain extent, either at the extent's address or at an address
//! in an entry of the same object and block. A block that only entries name is not certain: it may be an older or newer
//! version, or belong to a file that was deleted.

use std::ops::Range;
use std::sync::Arc;

use extent::format::{self, EXTENT, EXTENT_BLOCKS_MAX, Extent, INLINE_BLOCK, Origin};
use extent::{Object, blocks_in};
use rt::sync::Mutex;
use tree::{Result, StoreError, Table};
use zone::{Address, Blocks, Role};

use crate::ranges::{add, common, contains, merge, without};
use crate::reverse_maps::ReverseMaps;
use crate::scan::other_copy;
use crate::tables::Tables;

/// Receives blocks: the number of the first one in the object, and their bytes.
pub type EachBlock<'a> = dyn FnMut(u64, &[u8]) + 'a;

/// Receives the rows of an object: block, value, whether the row is certain.
type EachRow<'a> = dyn FnMut(u64, &[u8], bool) -> Result<()> + 'a;

/// Reads the data of objects.
pub struct Objects {
    tables: Arc<Tables>,
    /// Read when a block is missing for the first time.
    reverse_maps: Mutex<Option<Arc<ReverseMaps>>>,
}

/// What was found of an object's data. Ranges are in ascending order and do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReport {
    /// Blocks that have an extent or are inline, without lost ones.
    pub blocks: u64,
    /// Blocks that cannot be read.
    pub lost: Vec<Range<u64>>,
    /// Blocks that were returned and may be of another version.
    pub uncertain: Vec<Range<u64>>,
    /// Blocks that may have had data: rows that would tell are missing.
    pub unknown: Vec<Range<u64>>,
    /// Those of them for which space is allocated. They count as blocks of the inode, whether they had data or not.
    pub unknown_allocated: Vec<Range<u64>>,
}

/// An object for which there are entries in reverse maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayObject {
    /// Its number.
    pub object: Object,
    /// The last LSN when its newest block was written.
    pub newest: u64,
}

impl Objects {
    /// The objects of a volume with these tables.
    pub fn new(tables: Arc<Tables>) -> Objects {
        Objects { tables, reverse_maps: Mutex::default() }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.tables.device().geometry().block_size as usize
    }

    /// Returns all blocks of an object that can be read, not always in order, but no holes and unwritten blocks.
    ///
    /// # Errors
    /// If the device as a whole has failed.
    pub fn read(&self, object: Object, each: &mut EachBlock<'_>) -> Result<ObjectReport> {
        let mut found = ObjectReport::default();
        let (mut named, mut allocated): (Vec<Range<u64>>, Vec<Range<u64>>) = (Vec::new(), Vec::new());
        let (mut inline, mut references): (Vec<Range<u64>>, _) = (Vec::new(), Vec::new());
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
                add(&mut allocated, start..end);
            } else if let Some(origin) = extent.origin {
                references.push((start, extent.blocks, origin));
            } else {
                self.extent(object, start, &extent, &mut found, each)?;
            }
            Ok(())
        })?;
        // Merged at once: added one by one in the middle, each would move all ranges behind it.
        let mut more = ObjectReport::default();
        for (start, blocks, origin) in references {
            self.referred(start, blocks, origin, &mut more, each)?;
        }
        found.merge(std::mem::take(&mut more));
        let mut block_bytes = vec![0; self.block_size()];
        self.rows(object, INLINE_BLOCK, 0..u64::MAX, &mut |block, value, certain| {
            if value.len() > block_bytes.len() {
                return Ok(());
            }
            block_bytes.fill(0);
            block_bytes[..value.len()].copy_from_slice(value);
            more.blocks += u64::from(!contains(&named, block));
            add(&mut inline, block..block + 1);
            if !certain {
                add(&mut more.uncertain, block..block + 1);
            }
            each(block, &block_bytes);
            Ok(())
        })?;
        found.merge(more);
        merge(&mut named, inline.clone());
        self.unknown(object, &named, &mut found, each)?;
        found.unknown_allocated = without(&common(&allocated, &found.unknown), &inline);
        Ok(found)
    }

    /// All objects for which there are entries, by number.
    pub fn strays(&self) -> Vec<StrayObject> {
        let objects = self.reverse_maps().objects().into_iter();
        objects.map(|(object, newest)| StrayObject { object: Object(object), newest }).collect()
    }

    /// Returns the newest version of each block for which a reverse map has an entry. None of it is certain.
    pub fn read_stray(&self, object: Object, each: &mut EachBlock<'_>) -> Result<ObjectReport> {
        let mut found = ObjectReport::default();
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

    /// Returns blocks that belong to another object, as blocks from `start` on.
    fn referred(
        &self,
        start: u64,
        blocks: Blocks,
        origin: Origin,
        found: &mut ObjectReport,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let Origin { object, block: first } = origin;
        let (end, size) = (first + u64::from(blocks), self.block_size());
        let (mut theirs, mut named): (ObjectReport, Vec<Range<u64>>) = Default::default();
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
        self.rows(object, INLINE_BLOCK, first..end, &mut |block, value, certain| {
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
        found: &mut ObjectReport,
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

    /// Returns blocks without an extent where extents may be missing.
    fn unknown(
        &self,
        object: Object,
        named: &[Range<u64>],
        found: &mut ObjectReport,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let group = self.tables.group_of(object.0);
        let prefix = object.0.to_be_bytes();
        let near = |table| self.tables.lost_near(group, table, &prefix);
        let mut unknown = Vec::new();
        [EXTENT, INLINE_BLOCK].into_iter().flat_map(near).for_each(|range| {
            let blocks = blocks_in(range, object);
            if !blocks.is_empty() {
                add(&mut unknown, blocks);
            }
        });
        let mut more = ObjectReport::default();
        for blocks in &unknown {
            self.give_entries(object, blocks.clone(), named, &mut more, each)?;
        }
        found.merge(more);
        found.unknown = unknown;
        Ok(())
    }

    /// Returns the newest version, by entries, of each block of a range that is not `named`.
    fn give_entries(
        &self,
        object: Object,
        range: Range<u64>,
        named: &[Range<u64>],
        found: &mut ObjectReport,
        each: &mut EachBlock<'_>,
    ) -> Result<()> {
        let entries = self.reverse_maps();
        let mut bytes = vec![0; self.block_size()];
        for block in entries.blocks(object, &range) {
            if !contains(named, block) && self.any_version(object, block, &mut bytes)? {
                add(&mut found.uncertain, block..block + 1);
                each(block, &bytes);
            }
        }
        Ok(())
    }

    /// Reads the newest version of a block that has an entry and the right checksum.
    fn any_version(&self, object: Object, block: u64, into: &mut [u8]) -> Result<bool> {
        for (at, crc) in self.reverse_maps().versions(object, block) {
            if self.read_blocks(at, &[crc], into)?[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads a block with this checksum from an address in an entry of the same object and block.
    fn moved(&self, object: Object, block: u64, crc: u32, into: &mut [u8]) -> Result<bool> {
        for (at, known) in self.reverse_maps().versions(object, block) {
            if known == crc && self.read_blocks(at, &[crc], into)?[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads blocks, and tells for each whether it was read and has its checksum.
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
                Err(error) if !error.is_of_whole_device() && crcs.len() > 1 => {
                    device.read(at.zone(), at.block() + index as Blocks, block)
                }
                read => read.clone(),
            };
            match read {
                Err(error) if error.is_of_whole_device() => return Err(StoreError::Device(error)),
                read => {
                    let check = |block: &[u8]| (zone::format::checksum(&[block]) == *crc).then_some(());
                    let first = read.ok().and_then(|()| check(block));
                    let place = at.block() + index as Blocks;
                    let other = || other_copy(&**device, at.zone(), place, block, check);
                    good.push(first.or_else(other).is_some());
                }
            }
        }
        Ok(good)
    }

    fn reverse_maps(&self) -> Arc<ReverseMaps> {
        let mut maps = self.reverse_maps.lock();
        Arc::clone(maps.get_or_insert_with(|| Arc::new(ReverseMaps::read(&self.tables))))
    }
}

impl ObjectReport {
    /// Adds what was found of other blocks.
    fn merge(&mut self, more: ObjectReport) {
        self.blocks += more.blocks;
        merge(&mut self.lost, more.lost);
        merge(&mut self.uncertain, more.uncertain);
        merge(&mut self.unknown, more.unknown);
        merge(&mut self.unknown_allocated, more.unknown_allocated);
    }
}
