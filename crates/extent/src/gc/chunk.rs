//! Extents to be moved, and the contents of one chunk of them.

use std::collections::BTreeMap;
use std::ops::Range;

use zone::{Address, Blocks, ZoneId};

use super::reading::Readability;
use crate::Object;
use crate::append::Run;
use crate::format::Extent;
use crate::map::View;

/// An extent to be moved, as the object map had it.
pub(crate) struct Move {
    pub(crate) object: Object,
    pub(crate) start: u64,
    pub(crate) extent: Extent,
}

/// A block to be moved.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) object: Object,
    pub(crate) block: u64,
    pub(super) address: Address,
    pub(super) crc: u32,
    pub(super) readability: Readability,
}

/// The contents of one chunk: blocks in the order of the queue, and their bytes.
pub(crate) struct Chunk {
    pub(crate) sources: Vec<Source>,
    /// The address from which each block was read.
    pub(super) places: BTreeMap<(Object, u64), Address>,
    pub(crate) crcs: Vec<u32>,
    pub(crate) data: Vec<u8>,
}

impl Chunk {
    /// Maximal runs of blocks that follow one another in one object and are equally readable.
    pub(crate) fn runs(&self) -> Vec<(Range<usize>, Readability)> {
        // The zone decides what happens to unreadable blocks.
        let is_one_case = |a: &Source, b: &Source| {
            a.readability == Readability::Intact || a.address.zone() == b.address.zone()
        };
        let follows = |a: &Source, b: &Source| {
            a.object == b.object
                && a.block + 1 == b.block
                && a.readability == b.readability
                && is_one_case(a, b)
        };
        let mut at = 0;
        let chunks = self.sources.chunk_by(follows).map(|run| {
            let range = at..at + run.len();
            at = range.end;
            (range, run[0].readability)
        });
        chunks.collect()
    }

    /// A run of its blocks, to be appended.
    pub(crate) fn run(&self, range: Range<usize>) -> Run<'_> {
        let first = self.sources[range.start];
        let size = self.data.len() / self.sources.len();
        assert!(range.start < range.end && range.end <= self.sources.len(), "a run is a part of its chunk");
        let bytes = range.start * size..range.end * size;
        Run::within(first.object, first.block, (&self.data, bytes), Some(&self.crcs[range]))
    }

    /// The address from which the block was read.
    pub(super) fn address(&self, object: Object, block: u64) -> Option<Address> {
        self.places.get(&(object, block)).copied()
    }
}

pub(super) fn address_of_move(moved: &Move) -> (ZoneId, Blocks) {
    (moved.extent.address.zone(), moved.extent.address.block())
}

/// The number of runs if these extents are moved in this order.
pub(super) fn runs_in<'m>(moves: impl Iterator<Item = &'m Move>) -> usize {
    let mut end = None;
    let begins = moves.filter(|moved| {
        let follows = end == Some((moved.object, moved.start));
        end = Some((moved.object, moved.start + u64::from(moved.extent.blocks)));
        !follows
    });
    begins.count()
}

pub(super) fn sources(moved: &Move) -> impl Iterator<Item = Source> {
    let Move { object, start, extent } = moved;
    let blocks = extent.crcs.iter().enumerate();
    blocks.map(move |(index, &crc)| Source {
        object: *object,
        block: start + index as u64,
        address: extent.address_of(index as Blocks),
        crc,
        readability: Readability::Intact,
    })
}

/// The ranges within the given one whose blocks are still at the address from which they were read.
pub(super) fn unchanged(
    view: &View,
    chunk: &Chunk,
    object: Object,
    (from, to): (u64, u64),
) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    if rt::is_planted("break-gc-recheck") {
        ranges.push(from..to);
        return ranges;
    }
    for (start, extent) in view.extents() {
        let blocks = from.max(start)..to.min(start + u64::from(extent.blocks));
        for block in blocks {
            let now = extent.address_of((block - start) as Blocks);
            if now.is_none() || chunk.address(object, block) != Some(now) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => ranges.push(block..block + 1),
            }
        }
    }
    ranges
}
