//! How the blocks of an object lie, and whether it is worth it to write them anew.
//!
//! What counts is how often a device is asked when they are read from the first to the last: once for each
//! **fragment**, blocks that lie together in the object and in a zone, and once more for each further mebibyte of it.
//!
//! Who writes alone and in order leaves some breaks too: where a zone is full, where the file gets a zone of its own,
//! and where the reverse map has an entry between two pieces. Those are no reason to write anything anew, for they
//! would be there again, perhaps elsewhere.
//!
//! The invariant: a region that has just been written anew, with nobody else writing, is not scattered. Without it
//! the same blocks would be moved by every run.

use std::collections::BTreeSet;

use zone::{Blocks, ZoneId};

use crate::Extents;
use crate::format::{EXTENT_BYTES_MAX, Entry, Extent, Packing};

/// A region is left alone when less than such a share of its reads would be saved.
const WORTH_SHARE: u64 = 8;
/// The first block of data of a zone, behind its header.
const FIRST_BLOCK: Blocks = 1;

/// How the blocks of an object lie in zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Blocks in zones.
    pub blocks: u64,
    /// Entries of the object map for them.
    pub extents: u64,
    /// Maximal runs of blocks that follow one another in the object and in a zone.
    pub fragments: u64,
    /// Zones in which there are some.
    pub zones: u64,
    /// How often a device is asked when they are read in order, a mebibyte at a time.
    pub reads: u64,
    /// How often it would be if all that follows one another in the object did so in a zone.
    pub reads_min: u64,
    /// Whether there is a region that putting the object together would write anew.
    pub scattered: bool,
}

/// How a region is written anew, and what of a layout follows from that.
pub(super) struct Rewriting<'e> {
    /// Blocks that one read takes.
    pub(super) read_blocks: u64,
    /// Blocks that are written at once, counted from where a run of the object begins.
    pub(super) piece_blocks: u64,
    packing: Packing,
    capacity_of: Box<dyn Fn(ZoneId) -> Blocks + 'e>,
}

impl<'e> Rewriting<'e> {
    pub(super) fn new(
        packing: Packing,
        piece_blocks: Blocks,
        capacity_of: impl Fn(ZoneId) -> Blocks + 'e,
    ) -> Self {
        Rewriting {
            read_blocks: (EXTENT_BYTES_MAX / u64::from(packing.block_size)).max(1),
            piece_blocks: u64::from(piece_blocks),
            packing,
            capacity_of: Box::new(capacity_of),
        }
    }

    /// Bytes of entries of the reverse map that there may be at once: less than a block takes, and those of the
    /// pieces before and after it was looked.
    fn entry_bytes_max(&self) -> usize {
        self.packing.bytes_per_block() + 2 * self.piece_bytes()
    }

    /// Bytes of the entry for a piece.
    fn piece_bytes(&self) -> usize {
        Entry::bytes_for(self.piece_blocks as Blocks)
    }

    /// Pieces whose entries fill a block of the reverse map.
    fn pieces_together(&self) -> u64 {
        (self.packing.bytes_per_block() / self.piece_bytes()).max(1) as u64
    }

    /// Blocks from one break that the reverse map makes to the next, at the least: what it has to say may have been half
    /// a block's worth when it was looked.
    fn apart_least(&self) -> u64 {
        (self.pieces_together() / 2).max(1) * self.piece_blocks
    }

    /// Reads for a run of the object that was written anew, if every zone had room: at the ends of pieces comes what
    /// the reverse map has to say.
    fn reads_anew(&self, run: u64) -> u64 {
        let together = self.pieces_together() * self.piece_blocks;
        run / together * together.div_ceil(self.read_blocks) + (run % together).div_ceil(self.read_blocks)
    }

    /// Whether what the reverse map has to say may come in between, `passed` blocks after the run of the object began.
    fn has_summary(&self, passed: u64, before: &Extent, next: &Extent) -> bool {
        let (end, begin) = (before.address.block() + before.blocks, next.address.block());
        let summary = self.packing.summary(self.entry_bytes_max());
        place_of(next) == place_of(before)
            && passed.is_multiple_of(self.piece_blocks)
            && begin > end
            && begin - end <= summary
    }

    /// Whether one zone has ended there, or another begun.
    fn changes_zones(&self, before: &Extent, next: &Extent) -> bool {
        let zone = before.address.zone();
        let (end, capacity) = (before.address.block() + before.blocks, (self.capacity_of)(zone));
        place_of(next) != place_of(before)
            && (next.address.block() == FIRST_BLOCK
                || end + self.packing.rest(self.entry_bytes_max(), capacity) >= capacity)
    }
}

fn place_of(extent: &Extent) -> (ZoneId, u16) {
    (extent.address.zone(), extent.address.life_low_bits())
}

/// Counts a layout, extent by extent, in the order of the object.
pub(super) struct Surveyor<'r> {
    rewriting: &'r Rewriting<'r>,
    layout: Layout,
    zones: BTreeSet<ZoneId>,
    /// Blocks, so far, of the fragment, of the run of the object, and of what goes on but for breaks that writing
    /// anew would leave: `fragment <= stretch <= run`.
    fragment: u64,
    stretch: u64,
    run: u64,
    /// Where in the run the reverse map came in between last.
    summary_at: Option<u64>,
    /// Reads if breaks that writing anew would leave took none, and reads after writing anew.
    reads_in_order: u64,
    reads_anew: u64,
    last: Option<(u64, Extent)>,
}

impl<'r> Surveyor<'r> {
    pub(super) fn new(rewriting: &'r Rewriting<'r>) -> Self {
        Surveyor {
            rewriting,
            layout: Layout::default(),
            zones: BTreeSet::new(),
            fragment: 0,
            stretch: 0,
            run: 0,
            summary_at: None,
            reads_in_order: 0,
            reads_anew: 0,
            last: None,
        }
    }

    pub(super) fn add(&mut self, start: u64, extent: Extent) {
        if !extent.is_stored() {
            return;
        }
        self.go_on_to(start, &extent);
        let blocks = u64::from(extent.blocks);
        self.layout.blocks += blocks;
        self.layout.extents += 1;
        self.fragment += blocks;
        self.stretch += blocks;
        self.run += blocks;
        self.zones.insert(extent.address.zone());
        self.last = Some((start, extent));
    }

    /// Ends what does not go on with this extent.
    fn go_on_to(&mut self, start: u64, next: &Extent) {
        let before = self.last.as_ref().filter(|(at, before)| at + u64::from(before.blocks) == start);
        let Some((_, before)) = before else { return self.end_run() };
        if before.is_followed_by(next) {
            return;
        }
        let is_apart = self.summary_at.is_none_or(|at| self.run - at >= self.rewriting.apart_least());
        if is_apart && self.rewriting.has_summary(self.run, before, next) {
            self.summary_at = Some(self.run);
        } else if !self.rewriting.changes_zones(before, next) {
            self.end_stretch();
        }
        self.end_fragment();
    }

    fn end_fragment(&mut self) {
        self.layout.fragments += u64::from(self.fragment > 0);
        self.layout.reads += self.fragment.div_ceil(self.rewriting.read_blocks);
        self.fragment = 0;
    }

    fn end_stretch(&mut self) {
        self.reads_in_order += self.stretch.div_ceil(self.rewriting.read_blocks);
        self.stretch = 0;
    }

    fn end_run(&mut self) {
        self.end_fragment();
        self.end_stretch();
        self.layout.reads_min += self.run.div_ceil(self.rewriting.read_blocks);
        self.reads_anew += self.rewriting.reads_anew(self.run);
        (self.run, self.summary_at) = (0, None);
    }

    /// Of a region.
    pub(super) fn finish(mut self) -> Layout {
        self.end_run();
        let Layout { reads, reads_min, .. } = self.layout;
        let saved = (self.reads_in_order - reads_min).min(reads.saturating_sub(self.reads_anew));
        let scattered = saved * WORTH_SHARE > reads_min;
        Layout { zones: self.zones.len() as u64, scattered, ..self.layout }
    }
}

impl Extents {
    /// How regions are written anew on this volume.
    pub(super) fn rewriting(&self) -> Rewriting<'_> {
        Rewriting::new(self.packing, self.rewrite_blocks_max(), |zone| self.store.pool().capacity(zone))
    }
}

#[cfg(test)]
mod tests;
