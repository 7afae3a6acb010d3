//! Reading, and finding data and holes.
//!
//! A reader takes a reference on each zone under the lock of its look-up. So no zone is reset while it is read (I-ZONE-4,
//! `break-zone-reference` removes this). It verifies every block before it uses a byte of it (I-EXT-3). No lock is held during
//! the I/O. References to shared blocks are looked up in the object that owns the blocks. Its data stays while there are
//! references.

use std::ops::Range;

use smallvec::SmallVec;
use tree::ZoneRef;
use zone::{Address, Blocks, Command, DeviceError};

use crate::copies::read_intact;
use crate::format::{self, Extent};
use crate::maps::ObjectMaps;
use crate::{ExtentError, Object, Result, map};

/// Failed look-ups, because a zone is in another life than the extent says, before this counts as damage.
const LOOKUPS_MAX: usize = 8;
/// Extents that are skipped up at once to skip unwritten ones.
const EXTENTS_PER_LOOKUP: usize = 64;

/// Most unwritten extents that are skipped backwards, one by one.
const UNWRITTEN_SKIPPED_MAX: u32 = 256;

/// Bytes that one command reads at most.
const READ_BYTES_MAX: usize = format::EXTENT_BYTES_MAX as usize;

/// Blocks of an extent, and where they go.
struct Segment {
    /// Its first block in the object that is read.
    start: u64,
    extent: Extent,
    into: Range<usize>,
}

/// Blocks of the object that is read, or of an owner to which it refers.
struct Part {
    object: Object,
    blocks: Range<u64>,
    /// The block of the object that is read that has the first of these.
    start: u64,
}

/// The segments to be read, with references on their zones.
struct Plan {
    /// The first block to be read, and the bytes of a block.
    first: u64,
    size: usize,
    segments: Vec<Segment>,
    inline_blocks: Vec<(usize, Vec<u8>)>,
    /// The first lost block.
    lost: Option<u64>,
    zone_refs: Vec<ZoneRef>,
}

impl Plan {
    fn new(first: u64, size: usize) -> Self {
        let (segments, inline_blocks, zone_refs) = (Vec::new(), Vec::new(), Vec::new());
        Plan { first, size, segments, inline_blocks, lost: None, zone_refs }
    }

    /// Where the bytes of a block go.
    fn place(&self, block: u64) -> usize {
        (block - self.first) as usize * self.size
    }

    /// Adds an extent of a part. It begins at block `start` of the part's object.
    fn add(&mut self, part: &Part, start: u64, extent: Extent) {
        let start = part.start + (start - part.blocks.start);
        if extent.is_lost() {
            self.lost = Some(self.lost.map_or(start, |lost| lost.min(start)));
            return;
        }
        let into = self.place(start)..self.place(start + u64::from(extent.blocks));
        self.segments.push(Segment { start, extent, into });
    }

    /// The address of each command, and its bytes.
    fn places(&self) -> impl Iterator<Item = (Address, usize)> {
        self.commands().map(|together| (together[0].extent.address, bytes_of(together)))
    }

    /// The segments of each command: they are adjacent in the object and in a zone.
    fn commands(&self) -> impl Iterator<Item = &[Segment]> {
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

/// The bytes that one command reads.
fn bytes_of(together: &[Segment]) -> usize {
    together[together.len() - 1].into.end - together[0].into.start
}

impl ObjectMaps {
    /// Reads bytes. Holes are zeros. An object has no size: the caller clips. After an error the contents of `into` are
    /// undefined.
    ///
    /// # Errors
    /// `Lost` if a block of the range cannot be read or has a wrong checksum. Other ranges are not affected.
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
        self.appends().submit_deferred();
        assert!(into.len().is_multiple_of(self.block_size() as usize), "whole blocks are read");
        let plan = self.plan(object, first, into.len())?;
        let mut commands = Vec::new();
        // The end of what was read ahead for each command.
        let mut there: SmallVec<[usize; 4]> = SmallVec::new();
        let (mut rest, mut at) = (&mut *into, 0);
        let size = self.block_size() as usize;
        for together in plan.commands() {
            let (start, bytes) = (together[0].into.start, bytes_of(together));
            let (between, after) = rest.split_at_mut(start - at);
            between.fill(0);
            let (target, after) = after.split_at_mut(bytes);
            let address = together[0].extent.address;
            let filled = self.readahead().take(address, target, size);
            there.push(start + filled);
            if filled < bytes {
                let block = address.block() + (filled / size) as Blocks;
                commands.push(Command::Read { zone: address.zone(), block, into: &mut target[filled..] });
            }
            (rest, at) = (after, start + bytes);
        }
        rest.fill(0);
        let mut outputs = match commands.is_empty() {
            true => Vec::new(),
            false => self.device().run(&mut commands),
        }
        .into_iter();
        drop(commands);
        for (at, contents) in &plan.inline_blocks {
            into[*at..*at + contents.len()].copy_from_slice(contents);
        }
        for (together, there) in plan.commands().zip(there) {
            let is_whole = together[together.len() - 1].into.end == there;
            let output = match is_whole {
                true => Ok(0),
                false => outputs.next().expect("each command has an output"),
            };
            for segment in together {
                let bytes = &mut into[segment.into.clone()];
                let address = segment.extent.address;
                let was_read_ahead = segment.into.start < there;
                // Reads the extents one by one, so that the error names the right block.
                let output = match &output {
                    Err(error) if together.len() > 1 && !error.is_of_whole_device() => {
                        self.device().read(address.zone(), address.block(), bytes)
                    }
                    output => output.clone().map(drop),
                };
                let mut was_read = output.is_ok();
                let mut verified = self.verify(object, segment, output, bytes);
                if was_read_ahead && verified.is_err() {
                    let read = self.device().read(address.zone(), address.block(), bytes);
                    was_read = read.is_ok();
                    verified = self.verify(object, segment, read, bytes);
                }
                verified
                    .or_else(|error| self.read_copies(segment, bytes, was_read).then_some(()).ok_or(error))?;
            }
        }
        Ok(())
    }

    /// Reads ahead what was requested first. Returns false if nothing was.
    pub fn step_readahead(&self) -> bool {
        let Some(request) = self.readahead().next_request() else { return false };
        let size = self.block_size() as usize;
        let (first, blocks) = (request.blocks.start, request.blocks.end - request.blocks.start);
        match self.plan(request.object, first, blocks as usize * size) {
            Ok(plan) => {
                let places = plan.places().map(|(address, bytes)| (address, (bytes / size) as Blocks));
                if let Some(mut reading) = self.readahead().begin(&request, places) {
                    let outputs = self.device().run(&mut reading.commands());
                    reading.end(outputs.iter().map(|output| output.is_ok()));
                }
            }
            Err(error) => tracing::debug!("object {} is not read ahead: {error}", request.object.0),
        }
        true
    }

    /// Looks up extents and takes references on their zones.
    fn plan(&self, object: Object, first: u64, bytes: usize) -> Result<Plan> {
        let size = self.block_size() as usize;
        let to = first + (bytes / size) as u64;
        for _ in 0..LOOKUPS_MAX {
            let mut plan = Plan::new(first, size);
            let all = Part { object, blocks: first..to, start: first };
            if !self.add_with_references(&mut plan, &all)? {
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

    /// Adds a part, and the parts to which it refers. False if some of it has changed meanwhile.
    fn add_with_references(&self, plan: &mut Plan, part: &Part) -> Result<bool> {
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

    /// Adds the object's own data in a part. Returns its references, and the number of its blocks with data. `None` if a
    /// zone is in another life.
    fn add_part(&self, plan: &mut Plan, part: &Part) -> Result<Option<(Vec<Part>, u64)>> {
        let (from, to) = (part.blocks.start, part.blocks.end);
        let _shared = self.map_of(part.object).read();
        let extents = map::extents(self.store(), part.object, (from, to), usize::MAX)?;
        let inline_blocks = map::inline_blocks(self.store(), part.object, (from, to), usize::MAX)?;
        let Some(zone_refs) = self.enter_zones(extents.iter().map(|(_, extent)| extent)) else {
            return Ok(None);
        };
        plan.zone_refs.extend(zone_refs);
        let (mut references, mut found) = (Vec::new(), inline_blocks.len() as u64);
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
        for (block, value) in inline_blocks {
            plan.inline_blocks.push((plan.place(part.start + (block - from)), value));
        }
        Ok(Some((references, found)))
    }

    fn enter_zones<'e>(&self, extents: impl Iterator<Item = &'e Extent>) -> Option<Vec<ZoneRef>> {
        if rt::is_planted("break-zone-reference") {
            return Some(Vec::new());
        }
        extents.filter(|extent| extent.is_stored()).map(|e| self.store().enter_zone(e.address)).collect()
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

    /// Reads the blocks of a segment that are wrong from other copies. False if a block has no copy that is right. If
    /// nothing was read, all are wrong: the caller's buffer can have the right bytes from another read, but whether a
    /// read fails must not depend on that.
    fn read_copies(&self, segment: &Segment, bytes: &mut [u8], was_read: bool) -> bool {
        let blocks = (0..).zip(bytes.chunks_mut(self.block_size() as usize));
        blocks.zip(&segment.extent.crcs).all(|((index, block), &crc)| {
            let address = segment.extent.address_of(index);
            was_read && zone::format::checksum(&[block]) == crc
                || read_intact(&**self.device(), address, crc, block)
        })
    }

    /// The first byte of data at or after `offset`, if any. Unwritten blocks have no data.
    pub fn next_data(&self, object: Object, offset: u64) -> Result<Option<u64>> {
        let size = u64::from(self.block_size());
        let first = offset / size;
        let _shared = self.map_of(object).read();
        let extent = self.next_written(object, first)?;
        let inline_block =
            map::inline_blocks(self.store(), object, (first, u64::MAX), 1)?.first().map(|(block, _)| *block);
        let block = [extent, inline_block].into_iter().flatten().min();
        Ok(block.map(|block| (block * size).max(offset)))
    }

    /// The end of the last data that begins before `offset`, but at most `offset`, which is the start of a block. `None` if
    /// there is none. Unwritten blocks have no data. After many unwritten extents, the start of the last one is returned.
    pub fn data_end_before(&self, object: Object, offset: u64) -> Result<Option<u64>> {
        let size = u64::from(self.block_size());
        let first = offset / size;
        let _shared = self.map_of(object).read();
        let mut end = map::inline_block_before(self.store(), object, first)?.map(|block| block + 1);
        let mut below = first;
        for skipped in 1.. {
            let Some((start, extent)) = map::extent_before(self.store(), object, below)? else { break };
            let data_ends = if extent.unwritten { start } else { start + u64::from(extent.blocks) };
            if !extent.unwritten || skipped == UNWRITTEN_SKIPPED_MAX {
                end = end.max(Some(data_ends));
            }
            if end.is_some_and(|end| end >= start) {
                break;
            }
            below = start;
        }
        Ok(end.map(|end| (end * size).min(offset)))
    }

    /// The first block of a written extent that ends after `first`. It may begin before `first`.
    fn next_written(&self, object: Object, first: u64) -> Result<Option<u64>> {
        let (mut from, mut some) = (first, 1);
        loop {
            let extents = map::extents(self.store(), object, (from, u64::MAX), some)?;
            if let Some((start, _)) = extents.iter().find(|(_, extent)| !extent.unwritten) {
                return Ok(Some(*start));
            }
            match extents.last() {
                Some((start, extent)) => from = start + u64::from(extent.blocks),
                None => return Ok(None),
            }
            some = EXTENTS_PER_LOOKUP;
        }
    }

    /// The first byte at or after `offset` that is in a hole. There always is one, after all data.
    pub fn next_hole(&self, object: Object, offset: u64) -> Result<u64> {
        let size = u64::from(self.block_size());
        let mut block = offset / size;
        let _shared = self.map_of(object).read();
        loop {
            let before = block;
            if let Some((start, extent)) = map::extents(self.store(), object, (block, block + 1), 1)?.first()
                && !extent.unwritten
            {
                block = start + u64::from(extent.blocks);
            }
            for (inline_block, _) in map::inline_blocks(self.store(), object, (block, block + 64), 64)? {
                if inline_block != block {
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
    if error.is_of_whole_device() {
        return tree::StoreError::Device(error).into();
    }
    lost(object, block, &error.to_string())
}
