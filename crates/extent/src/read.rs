//! Reading, and finding data and holes.
//!
//! A reader takes a reference on each zone under the same lock as its look-up, so no zone is reset
//! under it (I-ZONE-4, `break-zone-reference` removes this), and verifies every block before a byte
//! of it counts (I-EXT-3). No lock is held over the I/O. What an object only refers to is looked up in its
//! owner, whose data cannot go while the reference is there.

use std::ops::Range;

use tree::ZoneRef;
use zone::{Command, DeviceError};

use crate::format::{self, Extent};
use crate::write::is_fatal;
use crate::{ExtentError, Extents, Object, Result, map};

/// Look-ups before a zone that is not in the life its extents speak of is believed to be damage.
const LOOKUPS_MAX: usize = 8;
/// Extents looked up at once when passing over unwritten ones.
const EXTENTS_AT_ONCE: usize = 64;

/// Unwritten extents that are passed over on the way back, one by one.
const UNWRITTEN_LOOKED_AT: u32 = 256;

/// Bytes that one command reads at most.
const READ_BYTES_MAX: usize = format::EXTENT_BYTES_MAX as usize;

/// A part of an extent and where it goes.
struct Segment {
    /// The first block in the object that is read.
    start: u64,
    extent: Extent,
    into: Range<usize>,
}

/// Blocks of an object that are to be read.
struct Part {
    object: Object,
    blocks: Range<u64>,
    /// What the first of them is in the object that is read.
    start: u64,
}

/// What is to be read, with the zones held that it lies in.
struct Plan {
    /// The first block, and bytes of a block.
    first: u64,
    size: usize,
    segments: Vec<Segment>,
    residents: Vec<(usize, Vec<u8>)>,
    /// The first block that cannot be read any more.
    lost: Option<u64>,
    held: Vec<ZoneRef>,
}

impl Plan {
    fn new(first: u64, size: usize) -> Self {
        let (segments, residents, held) = (Vec::new(), Vec::new(), Vec::new());
        Plan { first, size, segments, residents, lost: None, held }
    }

    /// Where the bytes of a block go.
    fn place(&self, block: u64) -> usize {
        (block - self.first) as usize * self.size
    }

    /// Adds data of a part that begins with `start` of its object.
    fn add(&mut self, part: &Part, start: u64, extent: Extent) {
        let start = part.start + (start - part.blocks.start);
        if extent.is_lost() {
            self.lost = Some(self.lost.map_or(start, |lost| lost.min(start)));
            return;
        }
        let into = self.place(start)..self.place(start + u64::from(extent.blocks));
        self.segments.push(Segment { start, extent, into });
    }

    /// The segments by what one command reads: what lies together in the object and in its zone.
    fn together(&self) -> impl Iterator<Item = &[Segment]> {
        let mut rest = self.segments.as_slice();
        std::iter::from_fn(move || {
            let first = rest.first()?;
            let mut count = 1;
            while let Some(next) = rest.get(count)
                && rest[count - 1].is_followed_by(next)
                && next.into.end - first.into.start <= READ_BYTES_MAX
            {
                count += 1;
            }
            let (together, after) = rest.split_at(count);
            rest = after;
            Some(together)
        })
    }
}

impl Segment {
    fn is_followed_by(&self, next: &Segment) -> bool {
        self.into.end == next.into.start && self.extent.is_followed_by(&next.extent)
    }
}

impl Extents {
    /// Reads bytes; holes are zeros. It has no idea of a size: the caller clips. After an error the
    /// contents of `into` are nothing that counts.
    ///
    /// # Errors
    /// `Lost` when a block of the range cannot be read or has a wrong checksum: only ranges that
    /// contain it fail.
    pub fn read(&self, object: Object, offset: u64, into: &mut [u8]) -> Result<()> {
        let size = u64::from(self.block_size());
        let end = offset + into.len() as u64;
        if into.is_empty() || offset.is_multiple_of(size) && end.is_multiple_of(size) {
            return self.read_blocks(object, offset / size, into);
        }
        let first = offset / size;
        let mut blocks = vec![0; ((end.div_ceil(size) - first) * size) as usize];
        self.read_blocks(object, first, &mut blocks)?;
        let at = (offset - first * size) as usize;
        into.copy_from_slice(&blocks[at..at + into.len()]);
        Ok(())
    }

    /// Reads whole blocks.
    pub(crate) fn read_blocks(&self, object: Object, first: u64, into: &mut [u8]) -> Result<()> {
        self.catch_up();
        let plan = self.plan(object, first, into.len())?;
        into.fill(0);
        for (at, contents) in &plan.residents {
            into[*at..*at + contents.len()].copy_from_slice(contents);
        }
        let mut commands = Vec::new();
        let (mut rest, mut at) = (&mut *into, 0);
        for together in plan.together() {
            let (first, last) = (&together[0], &together[together.len() - 1]);
            let (_, after) = rest.split_at_mut(first.into.start - at);
            let (target, after) = after.split_at_mut(last.into.end - first.into.start);
            let address = first.extent.address;
            commands.push(Command::Read { zone: address.zone(), block: address.block(), into: target });
            (rest, at) = (after, last.into.end);
        }
        let outputs = self.device.run(&mut commands);
        drop(commands);
        for (together, output) in plan.together().zip(outputs) {
            for segment in together {
                let bytes = &mut into[segment.into.clone()];
                let address = segment.extent.address;
                // What cannot be read at once is read extent by extent, so that the error names the right one.
                let output = match &output {
                    Err(error) if together.len() > 1 && !is_fatal(error) => {
                        self.device.read(address.zone(), address.block(), bytes)
                    }
                    output => output.clone().map(drop),
                };
                self.verify(object, segment, output, bytes)?;
            }
        }
        Ok(())
    }

    /// Looks up and holds.
    fn plan(&self, object: Object, first: u64, bytes: usize) -> Result<Plan> {
        let size = self.block_size() as usize;
        let to = first + (bytes / size) as u64;
        for _ in 0..LOOKUPS_MAX {
            let mut plan = Plan::new(first, size);
            let all = Part { object, blocks: first..to, start: first };
            if !self.add_and_follow(&mut plan, &all)? {
                continue;
            }
            if let Some(block) = plan.lost {
                return Err(lost(object, block, "it was lost before"));
            }
            plan.segments.sort_by_key(|segment| segment.into.start);
            return Ok(plan);
        }
        Err(lost(object, first, "its zone is not in the life in which it was written"))
    }

    /// Adds what is to be read, wherever it is; false when it was not there any more.
    fn add_and_follow(&self, plan: &mut Plan, part: &Part) -> Result<bool> {
        let Some((references, _)) = self.add_part(plan, part)? else { return Ok(false) };
        for reference in references {
            let blocks = reference.blocks.end - reference.blocks.start;
            match self.add_part(plan, &reference)? {
                Some((further, found)) if further.is_empty() && found == blocks => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Adds what the object itself has of a part: to what else it refers, and how many blocks of data there are. None when a
    /// zone is in another life.
    fn add_part(&self, plan: &mut Plan, part: &Part) -> Result<Option<(Vec<Part>, u64)>> {
        let (from, to) = (part.blocks.start, part.blocks.end);
        let _shared = self.map_of(part.object).read();
        let extents = map::extents(&self.store, part.object, (from, to), usize::MAX)?;
        let residents = map::residents(&self.store, part.object, (from, to), usize::MAX)?;
        let Some(held) = self.hold(extents.iter().map(|(_, extent)| extent)) else { return Ok(None) };
        plan.held.extend(held);
        let (mut references, mut found) = (Vec::new(), residents.len() as u64);
        let data = extents.iter().filter(|(_, extent)| !extent.unwritten);
        for (start, extent) in data.filter_map(|(start, extent)| extent.within(*start, (from, to))) {
            if let Some(origin) = extent.origin {
                let blocks = origin.block..origin.block + u64::from(extent.blocks);
                let start = part.start + (start - from);
                references.push(Part { object: origin.object, blocks, start });
            } else {
                found += u64::from(extent.blocks);
                plan.add(part, start, extent);
            }
        }
        for (block, value) in residents {
            plan.residents.push((plan.place(part.start + (block - from)), value));
        }
        Ok(Some((references, found)))
    }

    fn hold<'e>(&self, extents: impl Iterator<Item = &'e Extent>) -> Option<Vec<ZoneRef>> {
        if rt::is_planted("break-zone-reference") {
            return Some(Vec::new());
        }
        extents.filter(|extent| extent.is_stored()).map(|e| self.store.enter_zone(e.address)).collect()
    }

    fn verify(
        &self,
        object: Object,
        segment: &Segment,
        output: zone::Result<()>,
        bytes: &[u8],
    ) -> Result<()> {
        output.map_err(|error| read_failed(object, segment.start, error))?;
        let blocks = bytes.chunks(self.block_size() as usize);
        for (index, (block, &crc)) in blocks.zip(&segment.extent.crcs).enumerate() {
            let is_passed_over = rt::is_planted("break-verify-last-block")
                && index > 0
                && index + 1 == segment.extent.crcs.len();
            if zone::format::checksum(&[block]) != crc && !is_passed_over {
                return Err(lost(object, segment.start + index as u64, "its checksum is wrong"));
            }
        }
        Ok(())
    }

    /// The first byte of data at or after `offset`; None when there is none. Unwritten blocks are none.
    pub fn next_data(&self, object: Object, offset: u64) -> Result<Option<u64>> {
        let size = u64::from(self.block_size());
        let first = offset / size;
        let _shared = self.map_of(object).read();
        let extent = self.next_written(object, first)?;
        let resident =
            map::residents(&self.store, object, (first, u64::MAX), 1)?.first().map(|(block, _)| *block);
        let block = [extent, resident].into_iter().flatten().min();
        Ok(block.map(|block| (block * size).max(offset)))
    }

    /// Where the last data ends that begins before `offset`, the beginning of a block, but no later than that; None when
    /// there is none. Unwritten blocks are none; behind many of them it ends where they begin as far as was looked.
    pub fn data_end_before(&self, object: Object, offset: u64) -> Result<Option<u64>> {
        let size = u64::from(self.block_size());
        let first = offset / size;
        let _shared = self.map_of(object).read();
        let mut end = map::resident_before(&self.store, object, first)?.map(|block| block + 1);
        let mut below = first;
        for looked in 1.. {
            let Some((start, extent)) = map::extent_before(&self.store, object, below)? else { break };
            let data_ends = if extent.unwritten { start } else { start + u64::from(extent.blocks) };
            if !extent.unwritten || looked == UNWRITTEN_LOOKED_AT {
                end = end.max(Some(data_ends));
            }
            if end.is_some_and(|end| end >= start) {
                break;
            }
            below = start;
        }
        Ok(end.map(|end| (end * size).min(offset)))
    }

    /// The first block, from `first` on, of an extent that was written, or where it begins if before.
    fn next_written(&self, object: Object, first: u64) -> Result<Option<u64>> {
        let (mut from, mut some) = (first, 1);
        loop {
            let extents = map::extents(&self.store, object, (from, u64::MAX), some)?;
            if let Some((start, _)) = extents.iter().find(|(_, extent)| !extent.unwritten) {
                return Ok(Some(*start));
            }
            match extents.last() {
                Some((start, extent)) => from = start + u64::from(extent.blocks),
                None => return Ok(None),
            }
            some = EXTENTS_AT_ONCE;
        }
    }

    /// The first byte at or after `offset` that is in a hole: there always is one, beyond all data.
    pub fn next_hole(&self, object: Object, offset: u64) -> Result<u64> {
        let size = u64::from(self.block_size());
        let mut block = offset / size;
        let _shared = self.map_of(object).read();
        loop {
            let before = block;
            if let Some((start, extent)) = map::extents(&self.store, object, (block, block + 1), 1)?.first()
                && !extent.unwritten
            {
                block = start + u64::from(extent.blocks);
            }
            for (resident, _) in map::residents(&self.store, object, (block, block + 64), 64)? {
                if resident != block {
                    break;
                }
                block += 1;
            }
            if block == before {
                return Ok((block * size).max(offset));
            }
        }
    }
}

pub(crate) fn lost(object: Object, block: u64, why: &str) -> ExtentError {
    ExtentError::Lost { object: object.0, block, why: why.to_owned() }
}

fn read_failed(object: Object, block: u64, error: DeviceError) -> ExtentError {
    if is_fatal(&error) {
        return tree::StoreError::Device(error).into();
    }
    lost(object, block, &error.to_string())
}
