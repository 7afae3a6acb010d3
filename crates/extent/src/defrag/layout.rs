//! The layout of an object's blocks, and whether a rewrite is worth it.
//!
//! It counts the reads of the device when the object is read in order. Each **fragment** takes one: blocks that are adjacent
//! in the object and in a zone. Each further mebibyte of a fragment takes one more.
//!
//! A file that is written alone and in order has some breaks too: where a zone is full, and where a summary of the reverse
//! map is between two pieces. They are no reason for a rewrite, because they would be there again, perhaps at other blocks.
//!
//! The invariant: a region that was just rewritten, while no other thread wrote, is not scattered. Otherwise each run would
//! move the same blocks.

use std::collections::BTreeSet;

use zone::{Blocks, ZoneId};

use crate::format::{EXTENT_BYTES_MAX, Entry, Extent, Packing};

/// A region stays if a rewrite saves less than this share of its reads.
const WORTH_SHARE: u64 = 8;
/// The first block of a zone after its header.
const FIRST_BLOCK: Blocks = 1;

/// The layout of an object's blocks in zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Blocks in zones.
    pub blocks: u64,
    /// Entries of the object map for them.
    pub extents: u64,
    /// Maximal runs of blocks that are adjacent in the object and in a zone.
    pub fragments: u64,
    /// Zones with some of these blocks.
    pub zones: u64,
    /// Reads of the device when the blocks are read in order, up to a mebibyte each.
    pub reads: u64,
    /// The same if all blocks that are adjacent in the object were adjacent in a zone.
    pub reads_min: u64,
    /// Whether defragmentation would rewrite a region.
    pub scattered: bool,
}

/// How a region is rewritten.
pub(super) struct RewriteRules<'e> {
    /// Most blocks of one read.
    pub(super) read_blocks: u64,
    /// Blocks that are written at once, counted from the start of a run of the object.
    pub(super) piece_blocks: u64,
    packing: Packing,
    capacity_of: Box<dyn Fn(ZoneId) -> Blocks + 'e>,
}

impl<'e> RewriteRules<'e> {
    pub(super) fn new(
        packing: Packing,
        piece_blocks: Blocks,
        capacity_of: impl Fn(ZoneId) -> Blocks + 'e,
    ) -> Self {
        RewriteRules {
            read_blocks: (EXTENT_BYTES_MAX / u64::from(packing.block_size)).max(1),
            piece_blocks: u64::from(piece_blocks),
            packing,
            capacity_of: Box::new(capacity_of),
        }
    }

    /// Most bytes of entries that are in no summary: less than a block, and the entries of two pieces.
    fn entry_bytes_max(&self) -> usize {
        self.packing.bytes_per_block() + 2 * self.piece_bytes()
    }

    /// Bytes of the entry for a piece.
    fn piece_bytes(&self) -> usize {
        Entry::bytes_for(self.piece_blocks as Blocks)
    }

    /// Pieces whose entries fill a block of a summary.
    fn pieces_per_summary_block(&self) -> u64 {
        (self.packing.bytes_per_block() / self.piece_bytes()).max(1) as u64
    }

    /// Fewest blocks between two breaks that summaries make. When the rewrite begins, half a block of entries may be there.
    fn summary_distance_min(&self) -> u64 {
        (self.pieces_per_summary_block() / 2).max(1) * self.piece_blocks
    }

    /// Reads of a run of the object after a rewrite, if no zone ends. Summaries come at the ends of pieces.
    fn reads_after_rewrite(&self, run: u64) -> u64 {
        let batch = self.pieces_per_summary_block() * self.piece_blocks;
        run / batch * batch.div_ceil(self.read_blocks) + (run % batch).div_ceil(self.read_blocks)
    }

    /// Whether a summary can be between the two extents, `passed` blocks after the start of the run.
    fn has_summary(&self, passed: u64, before: &Extent, next: &Extent) -> bool {
        let (end, begin) = (before.address.block() + before.blocks, next.address.block());
        let summary = self.packing.summary(self.entry_bytes_max());
        place_of(next) == place_of(before)
            && passed.is_multiple_of(self.piece_blocks)
            && begin > end
            && begin - end <= summary
    }

    /// Whether a zone ends or begins between the two extents.
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
pub(super) struct LayoutCounter<'r> {
    rewrite_rules: &'r RewriteRules<'r>,
    layout: Layout,
    zones: BTreeSet<ZoneId>,
    /// Blocks so far: of the fragment, of the stretch, and of the run of the object. A stretch only has breaks that a
    /// rewrite would leave: `fragment <= stretch <= run`.
    fragment: u64,
    stretch: u64,
    run: u64,
    /// Where in the run the last summary was.
    summary_at: Option<u64>,
    /// Reads if only breaks counted that a rewrite would remove, and reads after a rewrite.
    reads_without_breaks: u64,
    reads_after_rewrite: u64,
    last: Option<(u64, Extent)>,
}

impl<'r> LayoutCounter<'r> {
    pub(super) fn new(rewrite_rules: &'r RewriteRules<'r>) -> Self {
        LayoutCounter {
            rewrite_rules,
            layout: Layout::default(),
            zones: BTreeSet::new(),
            fragment: 0,
            stretch: 0,
            run: 0,
            summary_at: None,
            reads_without_breaks: 0,
            reads_after_rewrite: 0,
            last: None,
        }
    }

    pub(super) fn add(&mut self, start: u64, extent: Extent) {
        if !extent.is_stored() {
            return;
        }
        self.end_before(start, &extent);
        let blocks = u64::from(extent.blocks);
        self.layout.blocks += blocks;
        self.layout.extents += 1;
        self.fragment += blocks;
        self.stretch += blocks;
        self.run += blocks;
        self.zones.insert(extent.address.zone());
        self.last = Some((start, extent));
    }

    /// Ends the fragment, stretch or run that does not continue with this extent.
    fn end_before(&mut self, start: u64, next: &Extent) {
        let before = self.last.as_ref().filter(|(at, before)| at + u64::from(before.blocks) == start);
        let Some((_, before)) = before else { return self.end_run() };
        if before.is_followed_by(next) {
            return;
        }
        let is_far_enough =
            self.summary_at.is_none_or(|at| self.run - at >= self.rewrite_rules.summary_distance_min());
        if is_far_enough && self.rewrite_rules.has_summary(self.run, before, next) {
            self.summary_at = Some(self.run);
        } else if !self.rewrite_rules.changes_zones(before, next) {
            self.end_stretch();
        }
        self.end_fragment();
    }

    fn end_fragment(&mut self) {
        self.layout.fragments += u64::from(self.fragment > 0);
        self.layout.reads += self.fragment.div_ceil(self.rewrite_rules.read_blocks);
        self.fragment = 0;
    }

    fn end_stretch(&mut self) {
        self.reads_without_breaks += self.stretch.div_ceil(self.rewrite_rules.read_blocks);
        self.stretch = 0;
    }

    fn end_run(&mut self) {
        self.end_fragment();
        self.end_stretch();
        self.layout.reads_min += self.run.div_ceil(self.rewrite_rules.read_blocks);
        self.reads_after_rewrite += self.rewrite_rules.reads_after_rewrite(self.run);
        (self.run, self.summary_at) = (0, None);
    }

    /// The layout of the region.
    pub(super) fn finish(mut self) -> Layout {
        self.end_run();
        let Layout { reads, reads_min, .. } = self.layout;
        let saved =
            (self.reads_without_breaks - reads_min).min(reads.saturating_sub(self.reads_after_rewrite));
        let scattered = saved * WORTH_SHARE > reads_min;
        Layout { zones: self.zones.len() as u64, scattered, ..self.layout }
    }
}

#[cfg(test)]
mod tests;
