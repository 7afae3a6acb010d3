//! Reading, and finding data and holes.
//!
//! A reader takes a reference on each zone under the same lock as its look-up, so no zone is reset
//! under it (I-ZONE-4, `break-zone-reference` removes this), and verifies every block before a byte
//! of it counts (I-EXT-3). No lock is held over the I/O.

use std::ops::Range;

use tree::ZoneRef;
use zone::{Blocks, Command, DeviceError};

use crate::format::{self, Extent};
use crate::write::is_fatal;
use crate::{ExtentError, Extents, Object, Result, map};

/// Look-ups before a zone that is not in the life its extents speak of is believed to be damage.
const LOOKUPS_MAX: usize = 8;
/// Extents looked up at once when passing over unwritten ones.
const EXTENTS_AT_ONCE: usize = 64;

/// Bytes that one command reads at most.
const READ_BYTES_MAX: usize = format::EXTENT_BYTES_MAX as usize;

/// A part of an extent and where it goes.
struct Segment {
    /// The first block in the object.
    start: u64,
    extent: Extent,
    into: Range<usize>,
}

/// What is to be read, with the zones held that it lies in.
struct Plan {
    segments: Vec<Segment>,
    residents: Vec<(usize, Vec<u8>)>,
    _held: Vec<ZoneRef>,
}

impl Plan {
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
            let _shared = self.map_of(object).read();
            let extents = map::extents(&self.store, object, (first, to), usize::MAX)?;
            let residents = map::residents(&self.store, object, (first, to), usize::MAX)?;
            let Some(held) = self.hold(extents.iter().map(|(_, extent)| extent)) else { continue };
            let segments = extents
                .into_iter()
                .filter(|(_, extent)| !extent.unwritten)
                .map(|(start, extent)| segment(start, &extent, first, to, size));
            let residents =
                residents.into_iter().map(|(block, value)| ((block - first) as usize * size, value));
            return Ok(Plan {
                segments: segments
                    .collect::<std::result::Result<_, _>>()
                    .map_err(|block| lost(object, block, "it was lost before"))?,
                residents: residents.collect(),
                _held: held,
            });
        }
        Err(lost(object, first, "its zone is not in the life in which it was written"))
    }

    fn hold<'e>(&self, extents: impl Iterator<Item = &'e Extent>) -> Option<Vec<ZoneRef>> {
        if rt::is_planted("break-zone-reference") {
            return Some(Vec::new());
        }
        extents.filter(|extent| extent.is_stored()).map(|e| self.store.zones().hold(e.address)).collect()
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

/// The part of an extent within blocks [first, to); the block number when it is lost.
fn segment(
    start: u64,
    extent: &Extent,
    first: u64,
    to: u64,
    size: usize,
) -> std::result::Result<Segment, u64> {
    let from = first.max(start);
    if extent.is_lost() {
        return Err(from);
    }
    let until = to.min(start + u64::from(extent.blocks));
    let part = extent.slice((from - start) as Blocks, (until - start) as Blocks);
    let into = (from - first) as usize * size..(until - first) as usize * size;
    Ok(Segment { start: from, extent: part, into })
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
