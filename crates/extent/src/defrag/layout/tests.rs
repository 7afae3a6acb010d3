use zone::Address;
use zone::Life;

use super::*;

fn stored(zone: u32, block: Blocks, blocks: usize) -> Extent {
    Extent::new(Address::new(ZoneId(zone), block, Life(1)), vec![0; blocks])
}

/// Blocks of each zone.
const CAPACITY: Blocks = 4096;

/// The layout of a region with blocks of 4 KiB, of which a read takes 256, with pieces of this size.
fn layout_with_pieces(piece_blocks: Blocks, extents: impl IntoIterator<Item = (u64, Extent)>) -> Layout {
    let rewrite_rules = RewriteRules::new(Packing { block_size: 4096 }, piece_blocks, |_| CAPACITY);
    let mut counter = LayoutCounter::new(&rewrite_rules);
    extents.into_iter().for_each(|(start, extent)| counter.add(start, extent));
    counter.finish()
}

fn layout_of_region(extents: impl IntoIterator<Item = (u64, Extent)>) -> Layout {
    layout_with_pieces(256, extents)
}

#[test]
fn adjacent_extents_are_one_fragment() {
    let extents = (0..100).map(|n| (n, stored(7, 10 + n as Blocks, 1)));
    let layout = layout_of_region(extents);
    let expected = Layout {
        blocks: 100,
        extents: 100,
        fragments: 1,
        zones: 1,
        reads: 1,
        reads_min: 1,
        scattered: false,
    };
    assert_eq!(layout, expected);
}

#[test]
fn every_break_in_a_zone_or_between_zones_begins_a_fragment() {
    let layout = layout_of_region([
        (0, stored(1, 10, 5)),
        (5, stored(1, 15, 5)),
        // At another place of the zone, in another zone, and at the same place in another life.
        (10, stored(1, 30, 5)),
        (15, stored(2, 35, 5)),
        (20, Extent::new(Address::new(ZoneId(2), 40, Life(2)), vec![0; 5])),
    ]);
    let expected =
        Layout { blocks: 25, extents: 5, fragments: 4, zones: 2, reads: 4, reads_min: 1, scattered: true };
    assert_eq!(layout, expected);
}

#[test]
fn extents_across_a_hole_are_two_fragments() {
    let layout = layout_of_region([
        (0, stored(1, 10, 5)),
        (100, stored(1, 15, 5)),
        (105, Extent::unwritten(10)),
        (115, Extent::lost(1)),
        (116, stored(1, 20, 5)),
    ]);
    let expected =
        Layout { blocks: 15, extents: 3, fragments: 3, zones: 1, reads: 3, reads_min: 3, scattered: false };
    assert_eq!(layout, expected);
    assert_eq!(layout_of_region([]), Layout::default());
    assert!(!layout_of_region([]).scattered);
}

#[test]
fn long_fragments_are_not_worth_a_rewrite() {
    // Nine reads instead of eight; and three, or two, instead of one.
    let rest = (1..16).map(|n| (n * 128, stored(2, 10 + n as Blocks * 128, 128)));
    let long = layout_of_region([(0, stored(1, 10, 128))].into_iter().chain(rest));
    assert_eq!((long.reads, long.reads_min), (9, 8), "{long:?}");
    assert!(!long.scattered);
    let short = layout_of_region([(0, stored(1, 10, 80)), (80, stored(2, 10, 80)), (160, stored(3, 10, 80))]);
    assert_eq!((short.reads, short.reads_min), (3, 1));
    assert!(short.scattered);
    let halves = layout_of_region([(0, stored(1, 10, 100)), (100, stored(2, 10, 100))]);
    assert_eq!((halves.reads, halves.reads_min), (2, 1));
    assert!(halves.scattered);
}

/// A file that is written alone also continues in another zone if one is full.
#[test]
fn the_end_of_a_zone_is_no_reason_for_a_rewrite() {
    let full = layout_of_region([(0, stored(1, CAPACITY - 103, 100)), (100, stored(2, 10, 100))]);
    assert_eq!((full.reads, full.reads_min), (2, 1));
    assert!(!full.scattered, "{full:?}");
    let own = layout_of_region([(0, stored(1, 10, 100)), (100, stored(2, 1, 100))]);
    assert!(!own.scattered, "{own:?}");
    let beside = layout_of_region([(0, stored(1, CAPACITY - 300, 100)), (100, stored(2, 2, 100))]);
    assert!(beside.scattered, "{beside:?}");
}

/// A summary of the reverse map between two pieces is no reason either. Blocks that other threads wrote there are one.
#[test]
fn a_summary_between_pieces_is_no_reason_for_a_rewrite() {
    let gap = |at: u64, blocks| {
        layout_with_pieces(
            64,
            [(0, stored(1, 1, at as usize)), (at, stored(1, 1 + at as Blocks + blocks, 64))],
        )
    };
    for (at, blocks, scattered) in
        [(64, 1, false), (128, 1, false), (63, 1, true), (65, 1, true), (64, 2, false), (64, 10, true)]
    {
        let layout = gap(at, blocks);
        assert_eq!((layout.reads, layout.reads_min, layout.scattered), (2, 1, scattered), "{at}, {blocks}");
    }
    let back = layout_with_pieces(64, [(0, stored(1, 100, 64)), (64, stored(1, 1, 64))]);
    assert!(back.scattered, "{back:?}");
}

/// There is one summary for many pieces. If two threads write in turn, other blocks are behind each piece.
#[test]
fn other_blocks_behind_each_piece_are_a_reason_for_a_rewrite() {
    for piece in [1, 32] {
        let pieces =
            (0..256 / piece).map(|n| (n * piece, stored(1, (1 + n * (piece + 1)) as Blocks, piece as usize)));
        let layout = layout_with_pieces(piece as Blocks, pieces);
        assert_eq!((layout.reads, layout.reads_min), (256 / piece, 1));
        assert!(layout.scattered, "{piece}: {layout:?}");
    }
}

/// With blocks of 512 bytes, the entry of a piece takes more than a block of a summary. After a rewrite there would be as
/// many breaks. So a file with no more breaks than that stays.
#[test]
fn a_layout_that_would_not_improve_stays() {
    let rewrite_rules = RewriteRules::new(Packing { block_size: 512 }, 256, |_| CAPACITY);
    let layout_of_region = |piece: u64| {
        let mut counter = LayoutCounter::new(&rewrite_rules);
        (0..1024 / piece).for_each(|n| {
            counter.add(n * piece, stored(1, (1 + n * (piece + 20)) as Blocks, piece as usize))
        });
        counter.finish()
    };
    let (longer, shorter) = (layout_of_region(512 / 2), layout_of_region(64));
    assert_eq!((longer.reads, longer.reads_min, longer.scattered), (4, 1, false));
    assert_eq!((shorter.reads, shorter.reads_min, shorter.scattered), (16, 1, true));
}
