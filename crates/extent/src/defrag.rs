//! Putting the scattered blocks of an object together, in its order.
//!
//! What counts is how often a device is asked when the object is read from its beginning to its end: once for
//! each **fragment**, blocks that lie together in the object and in a zone, and once more for each further
//! mebibyte of it. A region of the object is written anew when that saves more than an eighth.
//!
//! It writes like a writer who writes over what is there: it takes space as he does, pays garbage collection, and
//! goes to the zones of the object's lifetime class. It commits like garbage collection: checksums are carried
//! along, no lock is held over the I/O, and a block whose owner has changed it meanwhile is dropped. What
//! cannot be read stays where it is.
//!
//! It does not join files with one another, moves nothing out of the metadata store, and does not see to it that
//! zones come free: the old places are dead, which is garbage collection's concern.

use std::collections::BTreeSet;
use std::ops::Range;

use tree::{Tx, ZoneRef};
use zone::{Blocks, Cause, ZoneId};

use crate::format::{EXTENT_BYTES_MAX, Extent};
use crate::gc::{Chunk, Found, Move};
use crate::{Extents, Hint, Object, Result, map};

/// Bytes of an object that are looked at together …
const REGION_BYTES: u64 = 8 << 20;
/// … or a share of a zone, if that is less.
const REGION_SHARE: u32 = 2;
/// A region is left alone when less than such a share of its reads would be saved.
const WORTH_SHARE: u64 = 8;
/// Bytes are moved in pieces of no more than such a share of a zone: what may be there twice on a full volume.
const PIECE_SHARE: u32 = 4;
/// Extents that are looked up at once in an object of any length.
const EXTENTS_AT_ONCE: usize = 1024;

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
    pub reads_least: u64,
}

/// What one step of putting together came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Blocks that were written anew.
    pub blocks_moved: u64,
    /// The block to go on with; none: that was all.
    pub next: Option<u64>,
}

/// Counts a layout, extent by extent, in the order of the object.
struct Surveyor {
    layout: Layout,
    zones: BTreeSet<ZoneId>,
    /// Blocks of the fragment, and of the run of the object, that may go on.
    fragment: u64,
    run: u64,
    last: Option<(u64, Extent)>,
    /// Blocks that one read takes.
    read_blocks: u64,
}

impl Surveyor {
    fn new(block_size: u32) -> Self {
        Surveyor {
            layout: Layout::default(),
            zones: BTreeSet::new(),
            fragment: 0,
            run: 0,
            last: None,
            read_blocks: (EXTENT_BYTES_MAX / u64::from(block_size)).max(1),
        }
    }

    fn add(&mut self, start: u64, extent: Extent) {
        if !extent.is_stored() {
            return;
        }
        let before = self.last.as_ref();
        let in_object = before.is_some_and(|(at, before)| at + u64::from(before.blocks) == start);
        let in_zone = before.is_some_and(|(_, before)| before.is_followed_by(&extent));
        if !in_object {
            self.layout.reads_least += self.run.div_ceil(self.read_blocks);
            self.run = 0;
        }
        if !(in_object && in_zone) {
            self.layout.reads += self.fragment.div_ceil(self.read_blocks);
            self.layout.fragments += 1;
            self.fragment = 0;
        }
        let blocks = u64::from(extent.blocks);
        self.layout.blocks += blocks;
        self.layout.extents += 1;
        self.run += blocks;
        self.fragment += blocks;
        self.zones.insert(extent.address.zone());
        self.last = Some((start, extent));
    }

    fn finish(mut self) -> Layout {
        self.layout.reads += self.fragment.div_ceil(self.read_blocks);
        self.layout.reads_least += self.run.div_ceil(self.read_blocks);
        self.layout.zones = self.zones.len() as u64;
        self.layout
    }
}

impl Layout {
    /// Whether writing the blocks anew saves enough. What goes on in another zone once, because the first was full,
    /// is not scattered: it might come to lie so again.
    pub fn is_scattered(&self) -> bool {
        let goes_on = self.fragments == 2 && self.zones == 2;
        !goes_on && (self.reads - self.reads_least) * WORTH_SHARE > self.reads_least
    }
}

impl Extents {
    /// How the blocks of an object lie in zones.
    pub fn layout(&self, object: Object) -> Result<Layout> {
        let mut surveyor = Surveyor::new(self.block_size());
        let mut from = 0;
        loop {
            let extents = self.extents_of(object, (from, u64::MAX))?;
            let Some((start, last)) = extents.last() else { return Ok(surveyor.finish()) };
            from = start + u64::from(last.blocks);
            extents.into_iter().for_each(|(start, extent)| surveyor.add(start, extent));
        }
    }

    /// Puts together the region of an object that begins at block `from`, if that is worth it. Call with no map
    /// lock, beginning with 0, until there is nothing to go on with.
    ///
    /// # Errors
    /// `NoSpace` when there is not even room for a piece of it twice.
    pub fn defragment(&self, object: Object, hint: Hint, from: u64) -> Result<Defragmented> {
        let Some(region) = self.region_at(object, from)? else { return Ok(Defragmented::default()) };
        let mut surveyor = Surveyor::new(self.block_size());
        let extents = self.extents_of(object, (region.start, region.end))?;
        for (start, extent) in within(extents, &region) {
            surveyor.add(start, extent);
        }
        let mut done = Defragmented { blocks_moved: 0, next: Some(region.end) };
        if surveyor.finish().is_scattered() {
            let mut at = region.start;
            while let Some((moved, next)) = self.rewrite_piece(object, hint, at..region.end)? {
                done.blocks_moved += moved;
                at = next;
            }
        }
        Ok(done)
    }

    /// The region that begins with the first extent at or after `from`; none when there is none.
    fn region_at(&self, object: Object, from: u64) -> Result<Option<Range<u64>>> {
        let _shared = self.map_of(object).read();
        let first = map::extents(&self.store, object, (from, u64::MAX), 1)?;
        let by_bytes = REGION_BYTES / u64::from(self.block_size());
        let blocks = by_bytes.min(u64::from(self.payload_min / REGION_SHARE)).max(1);
        Ok(first.first().map(|&(start, _)| start.max(from)).map(|start| start..start + blocks))
    }

    /// Some extents of the object, all that there are up to the last of them.
    fn extents_of(&self, object: Object, range: (u64, u64)) -> Result<Vec<(u64, Extent)>> {
        let _shared = self.map_of(object).read();
        let most = if range.1 == u64::MAX { EXTENTS_AT_ONCE } else { usize::MAX };
        map::extents(&self.store, object, range, most)
    }

    /// Writes the next blocks anew that follow one another; how many were moved, and where to go on. None when
    /// the range holds nothing more.
    fn rewrite_piece(&self, object: Object, hint: Hint, range: Range<u64>) -> Result<Option<(u64, u64)>> {
        let (moves, held) = self.moves_of(object, range)?;
        let Some(last) = moves.last() else { return Ok(None) };
        let next = last.start + u64::from(last.extent.blocks);
        let chunk = self.read_moves(&moves)?;
        // What is in memory needs its zone no more: it may be the one that has to come free.
        drop(held);
        let mut moved = 0;
        for (range, found) in chunk.runs() {
            if found == Found::Whole {
                moved += self.rewrite_run(&chunk, range, hint)?;
            }
        }
        Ok(Some((moved, next)))
    }

    /// Blocks that follow one another from the first in the range on, no more than a piece, with their zones held.
    fn moves_of(&self, object: Object, range: Range<u64>) -> Result<(Vec<Move>, Vec<ZoneRef>)> {
        let most = self.piece_blocks_max.min(self.payload_min / PIECE_SHARE).max(1);
        let (mut moves, mut held): (Vec<Move>, Vec<ZoneRef>) = (Vec::new(), Vec::new());
        let (mut left, mut end) = (most, None);
        let _shared = self.map_of(object).read();
        let extents = map::extents(&self.store, object, (range.start, range.end), usize::MAX)?;
        for (start, extent) in within(extents, &range).filter(|(_, extent)| extent.is_stored()) {
            if left == 0 || end.is_some_and(|end| end != start) {
                break;
            }
            let extent = if extent.blocks > left { extent.slice(0, left) } else { extent };
            let Some(hold) = self.store.zones().hold(extent.address) else { break };
            left -= extent.blocks;
            end = Some(start + u64::from(extent.blocks));
            held.push(hold);
            moves.push(Move { object, start, extent });
        }
        Ok((moves, held))
    }

    /// Appends a run of what was read and has the object follow it, where it is still the same.
    fn rewrite_run(&self, chunk: &Chunk, range: Range<usize>, hint: Hint) -> Result<u64> {
        let (run, blocks) = (chunk.run(range.clone()), range.len() as u64);
        let reservation = self.reserve_over(run.object, run.start, blocks)?;
        for piece in self.append_data(self.class_of(run.object, hint, run.start, false)?, run, Cause::Gc)? {
            let mut tx = Tx::new();
            reservation.part_kept_by(&mut tx, u64::from(piece.extent.blocks));
            self.commit_move(chunk, piece, tx)?;
        }
        Ok(blocks)
    }
}

/// The extents, cut to a range.
fn within(extents: Vec<(u64, Extent)>, range: &Range<u64>) -> impl Iterator<Item = (u64, Extent)> {
    let range = range.clone();
    extents.into_iter().map(move |(start, extent)| {
        let (from, to) = (range.start.max(start), range.end.min(start + u64::from(extent.blocks)));
        (from, extent.slice((from - start) as Blocks, (to - start) as Blocks))
    })
}

#[cfg(test)]
mod tests;
