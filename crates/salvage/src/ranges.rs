//! Sets of blocks as ranges in ascending order that do not touch each other.

use std::ops::Range;

/// Whether a block is in a set.
pub(crate) fn contains(ranges: &[Range<u64>], block: u64) -> bool {
    let at = ranges.partition_point(|range| range.end <= block);
    ranges.get(at).is_some_and(|range| range.contains(&block))
}

/// Adds a set to another.
pub(crate) fn merge(ranges: &mut Vec<Range<u64>>, more: Vec<Range<u64>>) {
    if more.is_empty() {
        return;
    }
    let mut all = std::mem::take(ranges);
    all.extend(more);
    all.sort_by_key(|range| range.start);
    all.into_iter().for_each(|range| add(ranges, range));
}

/// The blocks that are in both sets.
pub(crate) fn common(some: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut common = Vec::new();
    for one in some {
        let first = others.partition_point(|other| other.end <= one.start);
        for other in others[first..].iter().take_while(|other| other.start < one.end) {
            add(&mut common, one.start.max(other.start)..one.end.min(other.end));
        }
    }
    common
}

/// The blocks of a set that are not in another.
pub(crate) fn without(some: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for one in some {
        let first = others.partition_point(|other| other.end <= one.start);
        let mut from = one.start;
        for other in others[first..].iter().take_while(|other| other.start < one.end) {
            if from < other.start {
                add(&mut left, from..other.start);
            }
            from = other.end;
        }
        if from < one.end {
            add(&mut left, from..one.end);
        }
    }
    left
}

/// Adds a range of blocks to a set.
pub(crate) fn add(ranges: &mut Vec<Range<u64>>, blocks: Range<u64>) {
    let at = ranges.partition_point(|range| range.end < blocks.start);
    let behind = ranges.partition_point(|range| range.start <= blocks.end);
    let touched = &ranges[at..behind];
    let start = touched.first().map_or(blocks.start, |range| range.start.min(blocks.start));
    let end = touched.last().map_or(blocks.end, |range| range.end.max(blocks.end));
    ranges.splice(at..behind, std::iter::once(start..end));
}
