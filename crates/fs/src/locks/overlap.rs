//! Finding the spans that overlap a range without looking at the others: an interval tree (Edelsbrunner 1980) over
//! the bytes of a file.
//!
//! A span is stored at its centre: the byte in it whose number ends in the most zero bits. If a span begins before a
//! range and reaches into it, its centre is in the range, or is the range's first byte with some of the lowest set
//! bits cleared. If a span begins in the range, its centre is in the range, or is one of the bytes that a Fenwick
//! tree visits from the last byte on. So at most 64 bytes are examined on either side.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use super::LockRange;

/// Spans of owners. The spans of one owner do not overlap.
#[derive(Debug)]
pub(super) struct Spans<O> {
    centres: BTreeMap<u64, Centre<O>>,
}

/// The spans of one centre.
#[derive(Debug)]
struct Centre<O> {
    /// The ends of the spans, by start and owner.
    by_start: BTreeMap<(u64, O), u64>,
    /// End, owner, start.
    by_end: BTreeSet<(u64, O, u64)>,
}

impl<O> Default for Spans<O> {
    fn default() -> Self {
        Spans { centres: BTreeMap::new() }
    }
}

impl<O: Copy + Ord> Spans<O> {
    pub(super) fn insert(&mut self, owner: O, range: LockRange) {
        let none = || Centre { by_start: BTreeMap::new(), by_end: BTreeSet::new() };
        let centre = self.centres.entry(centre_of(range)).or_insert_with(none);
        let before = centre.by_start.insert((range.start, owner), range.end);
        centre.by_end.insert((range.end, owner, range.start));
        assert!(before.is_none(), "spans of one owner do not overlap");
    }

    pub(super) fn remove(&mut self, owner: O, range: LockRange) {
        let number = centre_of(range);
        let centre = self.centres.get_mut(&number).expect("only a span that is there is removed");
        centre.by_start.remove(&(range.start, owner));
        centre.by_end.remove(&(range.end, owner, range.start));
        if centre.by_start.is_empty() {
            self.centres.remove(&number);
        }
    }

    /// Every span that overlaps the range, in no particular order.
    pub(super) fn overlapping(&self, range: LockRange) -> impl Iterator<Item = (O, LockRange)> {
        let (first, last) = (range.start, range.end - 1);
        let lowest = self.centres.first_key_value().map_or(u64::MAX, |(&centre, _)| centre);
        let highest = self.centres.last_key_value().map_or(0, |(&centre, _)| centre);
        let before = successors(without_lowest_bit(first), |&at| without_lowest_bit(at));
        let before = before.take_while(move |&at| at >= lowest);
        let before = before.filter_map(|at| self.centres.get(&at)).flat_map(move |centre| {
            let spans = centre.by_end.iter().rev().take_while(move |(end, ..)| *end > first);
            spans.map(|&(end, owner, start)| (owner, LockRange { start, end }))
        });
        let within = self.centres.range(first..=last).flat_map(|(_, centre)| {
            centre.by_start.iter().map(|(&(start, owner), &end)| (owner, LockRange { start, end }))
        });
        let behind = successors(with_lowest_bit_added(last), |&at| with_lowest_bit_added(at));
        let behind = behind.take_while(move |&at| at <= highest);
        let behind = behind.filter_map(|at| self.centres.get(&at)).flat_map(move |centre| {
            let spans = centre.by_start.iter().take_while(move |((start, _), _)| *start <= last);
            spans.map(|(&(start, owner), &end)| (owner, LockRange { start, end }))
        });
        within.chain(before).chain(behind)
    }
}

/// The byte of a range whose number ends in the most zero bits.
fn centre_of(range: LockRange) -> u64 {
    let last = range.end - 1;
    let Some(before) = range.start.checked_sub(1) else { return 0 };
    let bit = (before ^ last).ilog2();
    last >> bit << bit
}

/// None for 0.
fn without_lowest_bit(number: u64) -> Option<u64> {
    number.checked_sub(1).map(|less| number & less)
}

/// None for 0, which has no set bit, and beyond the largest number.
fn with_lowest_bit_added(number: u64) -> Option<u64> {
    number.checked_add(number & number.wrapping_neg()).filter(|&more| more > number)
}

#[cfg(test)]
mod tests;
