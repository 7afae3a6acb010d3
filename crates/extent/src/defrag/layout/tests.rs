use zone::Address;
use zone::Life;

use super::*;

fn stored(zone: u32, block: Blocks, blocks: usize) -> Extent {
    Extent::new(Address::new(ZoneId(zone), block, Life(1)), vec![0; blocks])
}

/// Blocks of each zone.
const CAPACITY: Blocks = 4096;

/// Of a region with blocks of 4 KiB, of which a read takes 256, where so many are written at once.
fn survey_by(piece_blocks: Blocks, extents: impl IntoIterator<Item = (u64, Extent)>) -> Layout {
    let rewriting = Rewriting::new(Packing { block_size: 4096 }, piece_blocks, |_| CAPACITY);
    let mut surveyor = Surveyor::new(&rewriting);
    extents.into_iter().for_each(|(start, extent)| surveyor.add(start, extent));
    surveyor.finish()
}

fn survey(extents: impl IntoIterator<Item = (u64, Extent)>) -> Layout {
    survey_by(256, extents)
}

#[test]
fn what_lies_together_is_one_fragment_however_many_extents_it_has() {
    let extents = (0..100).map(|n| (n, stored(7, 10 + n as Blocks, 1)));
    let layout = survey(extents);
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
    let layout = survey([
        (0, stored(1, 10, 5)),
        (5, stored(1, 15, 5)),
        // Elsewhere in the zone, in another zone, and the same place in another life.
        (10, stored(1, 30, 5)),
        (15, stored(2, 35, 5)),
        (20, Extent::new(Address::new(ZoneId(2), 40, Life(2)), vec![0; 5])),
    ]);
    let expected =
        Layout { blocks: 25, extents: 5, fragments: 4, zones: 2, reads: 4, reads_min: 1, scattered: true };
    assert_eq!(layout, expected);
}

#[test]
fn holes_cannot_be_put_together() {
    let layout = survey([
        (0, stored(1, 10, 5)),
        (100, stored(1, 15, 5)),
        (105, Extent::unwritten(10)),
        (115, Extent::lost(1)),
        (116, stored(1, 20, 5)),
    ]);
    let expected =
        Layout { blocks: 15, extents: 3, fragments: 3, zones: 1, reads: 3, reads_min: 3, scattered: false };
    assert_eq!(layout, expected);
    assert_eq!(survey([]), Layout::default());
    assert!(!survey([]).scattered);
}

#[test]
fn long_fragments_gain_too_little() {
    // Nine reads where eight would do; and three, or two, where one would.
    let rest = (1..16).map(|n| (n * 128, stored(2, 10 + n as Blocks * 128, 128)));
    let long = survey([(0, stored(1, 10, 128))].into_iter().chain(rest));
    assert_eq!((long.reads, long.reads_min), (9, 8), "{long:?}");
    assert!(!long.scattered);
    let short = survey([(0, stored(1, 10, 80)), (80, stored(2, 10, 80)), (160, stored(3, 10, 80))]);
    assert_eq!((short.reads, short.reads_min), (3, 1));
    assert!(short.scattered);
    let halves = survey([(0, stored(1, 10, 100)), (100, stored(2, 10, 100))]);
    assert_eq!((halves.reads, halves.reads_min), (2, 1));
    assert!(halves.scattered);
}

/// Who writes alone goes on in another zone, too, where one is full, or where he gets one of his own.
#[test]
fn a_zones_end_is_no_reason() {
    let full = survey([(0, stored(1, CAPACITY - 103, 100)), (100, stored(2, 10, 100))]);
    assert_eq!((full.reads, full.reads_min), (2, 1));
    assert!(!full.scattered, "{full:?}");
    let own = survey([(0, stored(1, 10, 100)), (100, stored(2, 1, 100))]);
    assert!(!own.scattered, "{own:?}");
    let beside = survey([(0, stored(1, CAPACITY - 300, 100)), (100, stored(2, 2, 100))]);
    assert!(beside.scattered, "{beside:?}");
}

/// Nor what the reverse map has to say between two pieces; but what others have written there is one.
#[test]
fn what_comes_between_pieces_is_no_reason() {
    let gap = |at: u64, blocks| {
        survey_by(64, [(0, stored(1, 1, at as usize)), (at, stored(1, 1 + at as Blocks + blocks, 64))])
    };
    for (at, blocks, scattered) in
        [(64, 1, false), (128, 1, false), (63, 1, true), (65, 1, true), (64, 2, false), (64, 10, true)]
    {
        let layout = gap(at, blocks);
        assert_eq!((layout.reads, layout.reads_min, layout.scattered), (2, 1, scattered), "{at}, {blocks}");
    }
    let back = survey_by(64, [(0, stored(1, 100, 64)), (64, stored(1, 1, 64))]);
    assert!(back.scattered, "{back:?}");
}

/// What the reverse map has to say comes once for many pieces: who has written in turn with another is behind each.
#[test]
fn what_others_wrote_behind_each_piece_is_a_reason() {
    for piece in [1, 32] {
        let pieces =
            (0..256 / piece).map(|n| (n * piece, stored(1, (1 + n * (piece + 1)) as Blocks, piece as usize)));
        let layout = survey_by(piece as Blocks, pieces);
        assert_eq!((layout.reads, layout.reads_min), (256 / piece, 1));
        assert!(layout.scattered, "{piece}: {layout:?}");
    }
}

/// On blocks of 512 bytes the entry for a piece takes more than a block of the reverse map: written anew there would be
/// as many breaks, and what has no more of them stays.
#[test]
fn what_would_lie_no_better_is_left() {
    let rewriting = Rewriting::new(Packing { block_size: 512 }, 256, |_| CAPACITY);
    let survey = |piece: u64| {
        let mut surveyor = Surveyor::new(&rewriting);
        (0..1024 / piece).for_each(|n| {
            surveyor.add(n * piece, stored(1, (1 + n * (piece + 20)) as Blocks, piece as usize))
        });
        surveyor.finish()
    };
    let (longer, shorter) = (survey(512 / 2), survey(64));
    assert_eq!((longer.reads, longer.reads_min, longer.scattered), (4, 1, false));
    assert_eq!((shorter.reads, shorter.reads_min, shorter.scattered), (16, 1, true));
}
