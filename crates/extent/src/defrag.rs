//! Putting the scattered blocks of an object together, in its order.
//!
//! A region of the object is written anew when that saves more than an eighth of the reads that it takes; which are
//! worth it is decided in one place (`layout.rs`), for those who ask and for those who have it done.
//!
//! It writes like a writer who writes over what is there: it takes space as he does, pays garbage collection, and
//! goes to the zones of the object's lifetime class. It commits like garbage collection: checksums are carried
//! along, no lock is held over the I/O, and a block whose owner has changed it meanwhile is dropped. What
//! cannot be read stays where it is, so a region with such blocks may stay scattered, and what can be read of it is
//! moved each time. What is shared with other objects is theirs and stays as it is.
//!
//! It does not join files with one another, moves nothing out of the metadata store, and does not see to it that
//! zones come free: the old places are dead, which is garbage collection's concern.

mod layout;

use std::ops::Range;

use tree::{Tx, ZoneRef};
use zone::{Blocks, Cause};

use crate::format::Extent;
use crate::gc::{Chunk, Found, Move};
use crate::{Extents, Hint, Lifetime, Object, Result, map};

pub use layout::Layout;
use layout::{Rewriting, Surveyor};

/// Bytes of an object that are looked at together …
const REGION_BYTES: u64 = 8 << 20;
/// … or a share of a zone, if that is less.
const REGION_SHARE: u32 = 2;
/// Bytes are moved in pieces of no more than such a share of a zone: what may be there twice on a full volume.
const PIECE_SHARE: u32 = 4;

/// What one step of putting together came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Blocks that were written anew.
    pub blocks_moved: u64,
    /// The block to go on with; none: that was all.
    pub next: Option<u64>,
}

impl Extents {
    /// How the blocks of an object lie in zones.
    pub fn layout(&self, object: Object) -> Result<Layout> {
        let rewriting = self.rewriting();
        let mut whole = Surveyor::new(&rewriting);
        let (mut from, mut scattered) = (0, false);
        while let Some(region) = self.region_at(object, from)? {
            let extents = self.extents_of(object, &region)?;
            scattered |= survey(&rewriting, &region, extents.clone()).scattered;
            // One that goes on from the region before has been counted there.
            let begin = extents.into_iter().filter(|&(start, _)| start >= from);
            begin.for_each(|(start, extent)| whole.add(start, extent));
            from = region.end;
        }
        Ok(Layout { scattered, ..whole.finish() })
    }

    /// Puts together the region of an object that begins at block `from`, if that is worth it. Call with no map
    /// lock, beginning with 0, until there is nothing to go on with.
    ///
    /// # Errors
    /// `NoSpace` when there is not even room for a piece of it twice.
    pub fn defragment(&self, object: Object, hint: Hint, from: u64) -> Result<Defragmented> {
        let Some(region) = self.region_at(object, from)? else { return Ok(Defragmented::default()) };
        let extents = self.extents_of(object, &region)?;
        let mut done = Defragmented { blocks_moved: 0, next: Some(region.end) };
        if survey(&self.rewriting(), &region, extents).scattered {
            // The same for all of it, whatever is learned meanwhile: else its pieces go to different zones.
            let lifetime = self.class_of(object, hint, region.start, false)?;
            let mut at = region.start;
            while let Some((moved, next)) = self.rewrite_piece(object, lifetime, at..region.end)? {
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

    /// The extents of the object of which something lies in the region.
    fn extents_of(&self, object: Object, region: &Range<u64>) -> Result<Vec<(u64, Extent)>> {
        let _shared = self.map_of(object).read();
        map::extents(&self.store, object, (region.start, region.end), usize::MAX)
    }

    /// Blocks of an object that are written anew at once, if as many follow one another.
    fn rewrite_blocks_max(&self) -> Blocks {
        self.piece_blocks_max.min(self.payload_min / PIECE_SHARE).max(1)
    }

    /// Writes the next blocks anew that follow one another; how many were moved, and where to go on. None when
    /// the range holds nothing more.
    fn rewrite_piece(
        &self,
        object: Object,
        lifetime: Lifetime,
        range: Range<u64>,
    ) -> Result<Option<(u64, u64)>> {
        let (moves, held) = self.moves_of(object, range)?;
        let Some(last) = moves.last() else { return Ok(None) };
        let next = last.start + u64::from(last.extent.blocks);
        let chunk = self.read_moves(&moves)?;
        // What is in memory needs its zone no more: it may be the one that has to come free.
        drop(held);
        let mut moved = 0;
        for (range, found) in chunk.runs() {
            if found == Found::Whole {
                moved += self.rewrite_run(&chunk, range, lifetime)?;
            }
        }
        Ok(Some((moved, next)))
    }

    /// Blocks that follow one another from the first in the range on, no more than a piece, with their zones held.
    fn moves_of(&self, object: Object, range: Range<u64>) -> Result<(Vec<Move>, Vec<ZoneRef>)> {
        let (mut moves, mut held): (Vec<Move>, Vec<ZoneRef>) = (Vec::new(), Vec::new());
        let (mut left, mut end) = (self.rewrite_blocks_max(), None);
        let _shared = self.map_of(object).read();
        let extents = map::extents(&self.store, object, (range.start, range.end), usize::MAX)?;
        for (start, extent) in within(extents, &range).filter(|(_, extent)| extent.is_stored()) {
            if left == 0 || end.is_some_and(|end| end != start) {
                break;
            }
            let extent = if extent.blocks > left { extent.slice(0, left) } else { extent };
            let Some(hold) = self.store.enter_zone(extent.address) else { break };
            left -= extent.blocks;
            end = Some(start + u64::from(extent.blocks));
            held.push(hold);
            moves.push(Move { object, start, extent });
        }
        Ok((moves, held))
    }

    /// Appends a run of what was read and has the object follow it, where it is still the same.
    fn rewrite_run(&self, chunk: &Chunk, range: Range<usize>, lifetime: Lifetime) -> Result<u64> {
        let (run, blocks) = (chunk.run(range.clone()), range.len() as u64);
        self.throttle(blocks * u64::from(self.block_size()));
        let reservation = self.reserve_over(run.object, run.start, blocks)?;
        for piece in self.append_data(lifetime, run, Cause::Gc)? {
            let mut tx = Tx::new();
            reservation.part_kept_by(&mut tx, u64::from(piece.extent.blocks));
            self.commit_move(chunk, piece, tx)?;
        }
        Ok(blocks)
    }
}

/// How a region lies, and whether it is to be written anew.
fn survey(rewriting: &Rewriting<'_>, region: &Range<u64>, extents: Vec<(u64, Extent)>) -> Layout {
    let mut surveyor = Surveyor::new(rewriting);
    within(extents, region).for_each(|(start, extent)| surveyor.add(start, extent));
    surveyor.finish()
}

/// The extents, cut to a range.
fn within(extents: Vec<(u64, Extent)>, range: &Range<u64>) -> impl Iterator<Item = (u64, Extent)> {
    let range = range.clone();
    extents.into_iter().map(move |(start, extent)| {
        let (from, to) = (range.start.max(start), range.end.min(start + u64::from(extent.blocks)));
        (from, extent.slice((from - start) as Blocks, (to - start) as Blocks))
    })
}
