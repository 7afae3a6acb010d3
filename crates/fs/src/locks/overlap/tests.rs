use super::*;

fn range(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

/// Every span with ends near 0, 8 and the largest number, each compared with every other.
#[test]
fn only_overlapping_spans_are_found() {
    let ends: Vec<u64> = (0..=17).chain(u64::MAX - 9..=u64::MAX).collect();
    let mut all = Vec::new();
    for &start in &ends {
        all.extend(ends.iter().filter(|end| start < **end).map(|&end| range(start, end)));
    }
    let mut spans = Spans::default();
    all.iter().enumerate().for_each(|(owner, span)| spans.insert(owner, *span));
    for asked in &all {
        let overlaps = |span: &LockRange| span.start < asked.end && asked.start < span.end;
        let expected: Vec<usize> =
            all.iter().enumerate().filter(|(_, span)| overlaps(span)).map(|(owner, _)| owner).collect();
        let mut found: Vec<usize> = spans.overlapping(*asked).map(|(owner, _)| owner).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{asked:?}");
        assert!(spans.overlapping(*asked).all(|(owner, span)| all[owner] == span));
    }
    all.iter().enumerate().for_each(|(owner, span)| spans.remove(owner, *span));
    assert!(spans.centres.is_empty(), "nothing is left of spans that were removed");
}

#[test]
fn several_owners_can_have_the_same_span() {
    let mut spans = Spans::default();
    (0..10).for_each(|owner| spans.insert(owner, range(3, 9)));
    spans.remove(4, range(3, 9));
    let mut found: Vec<u64> = spans.overlapping(range(8, 20)).map(|(owner, _)| owner).collect();
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    assert_eq!(spans.overlapping(range(9, 20)).count(), 0);
}

/// Any number of spans that end just before a range or begin just behind it.
#[test]
fn spans_beside_a_range_cost_nothing() {
    let mut spans = Spans::default();
    for owner in 0..4000 {
        spans.insert(owner, range(16 * owner, 16 * owner + 8));
    }
    let looks = |asked: LockRange| {
        let before = successors(without_lowest_bit(asked.start), |&at| without_lowest_bit(at)).count();
        before + successors(with_lowest_bit_added(asked.end - 1), |&at| with_lowest_bit_added(at)).count()
    };
    for owner in 0..4000 {
        let beside = range(16 * owner + 8, 16 * owner + 16);
        assert_eq!(spans.overlapping(beside).count(), 0);
        assert!(looks(beside) <= 128);
    }
}
