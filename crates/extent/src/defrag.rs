//! Defragmentation: rewrites the scattered blocks of an object in its order.
//!
//! A region of the object is rewritten if that saves more than an eighth of its reads. `layout.rs` decides that, for reports
//! as well as for the rewrite.
//!
//! A rewrite is like an overwrite by a user: it reserves space, is throttled, and goes to the zones of the object's lifetime
//! class. It commits like GC: checksums are moved along, no lock is held during the I/O, and a block that has changed
//! meanwhile is dropped. A block that cannot be read stays where it is. So a region with such blocks may stay scattered, and
//! its other blocks are moved each time. Blocks that are shared belong to other objects and stay where they are.
//!
//! It does not place files next to each other, moves no inline blocks, and frees no zones: the old blocks are dead, and GC
//! reclaims them.

mod layout;

use std::ops::Range;

use tree::{Tx, ZoneRef};
use zone::{Blocks, Cause};

use crate::extents::Extents;
use crate::format::Extent;
use crate::gc::{Chunk, Move, Readability};
use crate::maps::ObjectMaps;
use crate::{Hint, Lifetime, Object, Result, map};

pub use layout::Layout;
use layout::{LayoutCounter, RewriteRules};

/// Bytes of an object that are examined together …
const REGION_BYTES: u64 = 8 << 20;
/// … or a share of a zone, if that is less.
const REGION_SHARE: u32 = 2;
/// At most this share of a zone is moved at once: on a full volume there must be space for it twice.
const PIECE_SHARE: u32 = 4;

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Blocks that were rewritten.
    pub blocks_moved: u64,
    /// The block where the next step begins. `None` if this was the last one.
    pub next: Option<u64>,
}

/// How the blocks of an object lie in zones.
pub fn layout(extents: &Extents, object: Object) -> Result<Layout> {
    let rewrite_rules = rewrite_rules(extents);
    let mut whole = LayoutCounter::new(&rewrite_rules);
    let (mut from, mut scattered) = (0, false);
    while let Some(region) = region_at(extents, object, from)? {
        let extents = extents_of(extents.maps(), object, &region)?;
        scattered |= layout_of_region(&rewrite_rules, &region, extents.clone()).scattered;
        // An extent that begins in the previous region was counted there.
        let begin = extents.into_iter().filter(|&(start, _)| start >= from);
        begin.for_each(|(start, extent)| whole.add(start, extent));
        from = region.end;
    }
    Ok(Layout { scattered, ..whole.finish() })
}

/// Rewrites the region of an object that begins at block `from`, if that is worth it. Call without map locks, first with
/// 0, then with `next`, until that is `None`.
///
/// # Errors
/// `NoSpace` if there is not even space for one piece.
pub fn defragment(extents: &Extents, object: Object, hint: Hint, from: u64) -> Result<Defragmented> {
    let Some(region) = region_at(extents, object, from)? else { return Ok(Defragmented::default()) };
    let found = extents_of(extents.maps(), object, &region)?;
    let mut done = Defragmented { blocks_moved: 0, next: Some(region.end) };
    if layout_of_region(&rewrite_rules(extents), &region, found).scattered {
        // One class for the whole region, whatever is learned meanwhile. Otherwise its pieces go to different zones.
        let lifetime = extents.class_of(object, hint, region.start, false)?;
        let mut at = region.start;
        while let Some((moved, next)) = rewrite_piece(extents, object, lifetime, at..region.end)? {
            done.blocks_moved += moved;
            at = next;
        }
    }
    Ok(done)
}

/// Writes these blocks of an object anew. Call without map locks. Blocks that cannot be read stay, and so may others that
/// change meanwhile.
///
/// # Errors
/// `NoSpace` if there is not even space for one piece.
pub fn rewrite(extents: &Extents, object: Object, hint: Hint, blocks: Range<u64>) -> Result<()> {
    let lifetime = extents.class_of(object, hint, blocks.start, false)?;
    let mut at = blocks.start;
    while let Some((_, next)) = rewrite_piece(extents, object, lifetime, at..blocks.end)? {
        at = next;
    }
    Ok(())
}

/// The region that begins with the first extent at or after `from`, if there is one.
fn region_at(extents: &Extents, object: Object, from: u64) -> Result<Option<Range<u64>>> {
    let _shared = extents.maps().map_of(object).read();
    let first = map::extents(extents.store(), object, (from, u64::MAX), 1)?;
    let by_bytes = REGION_BYTES / u64::from(extents.block_size());
    let blocks = by_bytes.min(u64::from(extents.payload_min() / REGION_SHARE)).max(1);
    Ok(first.first().map(|&(start, _)| start.max(from)).map(|start| start..start + blocks))
}

/// Most blocks of an object that are rewritten at once, if they are adjacent.
fn rewrite_blocks_max(extents: &Extents) -> Blocks {
    extents.maps().piece_blocks_max().min(extents.payload_min() / PIECE_SHARE).max(1)
}

/// How regions are rewritten on this volume.
fn rewrite_rules(extents: &Extents) -> RewriteRules<'_> {
    let pool = extents.store().pool();
    RewriteRules::new(extents.maps().packing(), rewrite_blocks_max(extents), |zone| pool.capacity(zone))
}

/// Rewrites the next blocks that are adjacent. Returns the number of moved blocks and where to continue. `None` if there
/// are no more blocks in the range.
fn rewrite_piece(
    extents: &Extents,
    object: Object,
    lifetime: Lifetime,
    range: Range<u64>,
) -> Result<Option<(u64, u64)>> {
    let (moves, zone_refs) = moves_of(extents.maps(), object, range, rewrite_blocks_max(extents))?;
    let Some(last) = moves.last() else { return Ok(None) };
    let next = last.start + u64::from(last.extent.blocks);
    let chunk = extents.collector().mover().reader().read_moves(&moves)?;
    // The data is in memory. Its zone may be the one that has to be freed.
    drop(zone_refs);
    let mut moved = 0;
    for (range, readability) in chunk.runs() {
        if readability == Readability::Intact {
            moved += rewrite_run(extents, &chunk, range, lifetime)?;
        }
    }
    Ok(Some((moved, next)))
}

/// Appends a run of the blocks that were read, and commits it where the object is unchanged.
fn rewrite_run(extents: &Extents, chunk: &Chunk, range: Range<usize>, lifetime: Lifetime) -> Result<u64> {
    let (run, blocks) = (chunk.run(range.clone()), range.len() as u64);
    extents.throttle().wait(blocks * u64::from(extents.block_size()));
    let reservation = extents.budget().reserve_over(run.object, run.start, blocks)?;
    for piece in extents.append_data(lifetime, [run].into(), Cause::Gc)? {
        let mut tx = Tx::new();
        reservation.spend_part_in(&mut tx, u64::from(piece.extent.blocks));
        extents.collector().mover().commit_move(chunk, piece, tx)?;
    }
    Ok(blocks)
}

/// The extents of the object that overlap the region.
fn extents_of(maps: &ObjectMaps, object: Object, region: &Range<u64>) -> Result<Vec<(u64, Extent)>> {
    let _shared = maps.map_of(object).read();
    map::extents(maps.store(), object, (region.start, region.end), usize::MAX)
}

/// Blocks that are adjacent, from the first in the range on, at most a piece, with references on their zones.
fn moves_of(
    maps: &ObjectMaps,
    object: Object,
    range: Range<u64>,
    most: Blocks,
) -> Result<(Vec<Move>, Vec<ZoneRef>)> {
    let (mut moves, mut zone_refs): (Vec<Move>, Vec<ZoneRef>) = (Vec::new(), Vec::new());
    let (mut left, mut end) = (most, None);
    let _shared = maps.map_of(object).read();
    let extents = map::extents(maps.store(), object, (range.start, range.end), usize::MAX)?;
    for (start, extent) in within(extents, &range).filter(|(_, extent)| extent.is_stored()) {
        if left == 0 || end.is_some_and(|end| end != start) {
            break;
        }
        let extent = if extent.blocks > left { extent.slice(0, left) } else { extent };
        let Some(zone_ref) = maps.store().enter_zone(extent.address) else { break };
        left -= extent.blocks;
        end = Some(start + u64::from(extent.blocks));
        zone_refs.push(zone_ref);
        moves.push(Move { object, start, extent });
    }
    Ok((moves, zone_refs))
}

/// The layout of a region.
fn layout_of_region(
    rewrite_rules: &RewriteRules<'_>,
    region: &Range<u64>,
    extents: Vec<(u64, Extent)>,
) -> Layout {
    let mut counter = LayoutCounter::new(rewrite_rules);
    within(extents, region).for_each(|(start, extent)| counter.add(start, extent));
    counter.finish()
}

/// The extents, cut to a range.
fn within(extents: Vec<(u64, Extent)>, range: &Range<u64>) -> impl Iterator<Item = (u64, Extent)> {
    let range = range.clone();
    extents.into_iter().map(move |(start, extent)| {
        let (from, to) = (range.start.max(start), range.end.min(start + u64::from(extent.blocks)));
        (from, extent.slice((from - start) as Blocks, (to - start) as Blocks))
    })
}
