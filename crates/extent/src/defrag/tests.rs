use zone::Address;
use zone::Life;

use super::*;

fn stored(zone: u32, block: Blocks, blocks: usize) -> Extent {
    Extent::new(Address::new(ZoneId(zone), block, Life(1)), vec![0; blocks])
}

/// Blocks of 4 KiB: a read takes 256 of them.
fn survey(extents: impl IntoIterator<Item = (u64, Extent)>) -> Layout {
    let mut surveyor = Surveyor::new(4096);
    extents.into_iter().for_each(|(start, extent)| surveyor.add(start, extent));
    surveyor.finish()
}

#[test]
fn what_lies_together_is_one_fragment_however_many_extents_it_has() {
    let extents = (0..100).map(|n| (n, stored(7, 10 + n as Blocks, 1)));
    let layout = survey(extents);
    let expected = Layout { blocks: 100, extents: 100, fragments: 1, zones: 1, reads: 1, reads_least: 1 };
    assert_eq!(layout, expected);
    assert!(!layout.is_scattered());
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
    let expected = Layout { blocks: 25, extents: 5, fragments: 4, zones: 2, reads: 4, reads_least: 1 };
    assert_eq!(layout, expected);
    assert!(layout.is_scattered());
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
    let expected = Layout { blocks: 15, extents: 3, fragments: 3, zones: 1, reads: 3, reads_least: 3 };
    assert_eq!(layout, expected);
    assert!(!layout.is_scattered());
    assert_eq!(survey([]), Layout::default());
    assert!(!survey([]).is_scattered());
}

#[test]
fn long_fragments_gain_too_little() {
    // Nine reads where eight would do; and three where one would. Where one zone was full, two are well.
    let rest = (1..16).map(|n| (n * 128, stored(2, 10 + n as Blocks * 128, 128)));
    let long = survey([(0, stored(1, 10, 128))].into_iter().chain(rest));
    assert_eq!((long.reads, long.reads_least), (9, 8), "{long:?}");
    assert!(!long.is_scattered());
    let short = survey([(0, stored(1, 10, 80)), (80, stored(2, 10, 80)), (160, stored(3, 10, 80))]);
    assert_eq!((short.reads, short.reads_least), (3, 1));
    assert!(short.is_scattered());
    let goes_on = survey([(0, stored(1, 10, 100)), (100, stored(2, 10, 100))]);
    assert_eq!((goes_on.reads, goes_on.reads_least), (2, 1));
    assert!(!goes_on.is_scattered());
}
