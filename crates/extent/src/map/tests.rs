use super::*;
use zone::{Address, Life};

fn extent(zone: u32, block: Blocks, blocks: u32) -> Extent {
    Extent::new(Address::new(ZoneId(zone), block, Life(1)), (0..blocks).map(|crc| crc + block).collect())
}

#[test]
fn a_cut_leaves_head_and_tail() {
    let mut view = View::new(Object(1), vec![(10, extent(3, 5, 20))], vec![]);
    view.cut(14, 16);
    let left: Vec<_> =
        view.extents().map(|(start, e)| (start, e.address.block(), e.blocks, e.trimmed)).collect();
    assert_eq!(left, [(10, 5, 4, true), (16, 11, 14, true)]);
    assert_eq!(view.live_changes(), [(ZoneId(3), -2)]);
    view.put(14, extent(4, 9, 2));
    assert_eq!(view.live_changes(), [(ZoneId(3), -2), (ZoneId(4), 2)]);
}

#[test]
fn a_block_is_in_one_table_only() {
    let mut view = View::new(Object(1), vec![(0, extent(3, 5, 4))], vec![(7, vec![1])]);
    view.cut(2, 3);
    view.put_inline(2, vec![9]);
    view.cut(7, 8);
    view.put(7, extent(3, 30, 1));
    assert_eq!(view.inline_blocks().keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(view.live_changes(), []);
    assert_eq!(view.inline_change(), 0);
}

#[test]
fn space_is_preallocated_under_inline_blocks_and_in_holes() {
    let mut view = View::new(Object(1), vec![(4, extent(3, 5, 4))], vec![(20, vec![1])]);
    view.put_inline(5, vec![9]);
    assert_eq!((view.live_changes(), view.block_change()), (vec![(ZoneId(3), -1)], 0));
    assert_eq!(view.preallocate(2, 300, 2), 264);
    let unwritten: Vec<_> =
        view.extents().filter(|(_, e)| e.unwritten).map(|(at, e)| (at, e.blocks)).collect();
    assert_eq!(unwritten, [(2, 2), (5, 1), (8, 256)]);
    assert_eq!(view.block_change(), 2 + 256 - 1, "the inline block at 20 counted before");
    view.cut(0, 300);
    assert_eq!((view.extents().count(), view.block_change()), (0, -5));
}

/// A part that changes nothing would be repeated forever.
#[test]
fn a_part_has_at_most_the_limit_and_at_least_one_extent() {
    let extents = (0..4).map(|at| (at * 10, extent(3, 5 + at as u32 * 10, 4))).collect();
    let view = View::new(Object(1), extents, vec![(7, vec![1]), (17, vec![1]), (27, vec![1])]);
    let end = |limit, bytes_max| view.end_of_part(limit, bytes_max, |_| Ok(100)).unwrap();
    assert_eq!(end(1, 10), Some(10), "the first one alone is too much");
    assert_eq!(end(2, 1000), Some(20));
    assert_eq!(end(9, 100), Some(10));
    assert_eq!(end(9, 200), Some(20));
    assert_eq!(end(9, 400), None);
}

/// Random cuts and puts against an array of owners.
#[test]
fn views_agree_with_an_array_of_blocks() {
    let mut rng = rt::random::Rng::with_seed(11);
    for _ in 0..300 {
        let mut view = View::new(Object(1), vec![], vec![]);
        let mut model = [None; 600];
        for step in 0..40u32 {
            let from = rng.u64(0..500);
            let to = from + rng.u64(1..90);
            view.cut(from, to);
            model[from as usize..to as usize].fill(None);
            if rng.u8(..4) > 0 {
                let first = 1 + step * 100;
                view.put(from, extent(step % 5, first, (to - from) as u32));
                (from..to).zip(first..).for_each(|(at, block)| model[at as usize] = Some((step % 5, block)));
            }
        }
        let mut found = [None; 600];
        for (start, extent) in view.extents() {
            for index in 0..extent.blocks {
                let at = (start + u64::from(index)) as usize;
                assert!(found[at].is_none(), "extents do not overlap");
                let address = extent.address_of(index);
                found[at] = Some((address.zone().0, address.block()));
            }
        }
        assert_eq!(found, model);
        let live: i32 = view.live_changes().iter().map(|(_, change)| change).sum();
        assert_eq!(live as usize, model.iter().flatten().count());
    }
}
