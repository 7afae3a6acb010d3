//! Ranges of keys: which rows a part of a tree that cannot be read may have had.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::types::{Group, Key, Table, tree_key};

/// Consecutive keys of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The group.
    pub group: Group,
    /// The first key: the table's number, then the key.
    pub low: Key,
    /// The first key behind the range; none at the end of the group.
    pub high: Option<Key>,
}

/// Several ranges. A look-up by key does not examine each of them.
#[derive(Clone, Debug, Default)]
pub struct KeyRanges {
    /// In the order of their first keys.
    groups: BTreeMap<Group, Vec<Part>>,
}

#[derive(Clone, Debug)]
struct Part {
    range: KeyRange,
    /// The greatest end of this range and those before it; none at the end of the group.
    reached: Option<Key>,
}

impl KeyRange {
    /// Whether a key of the table with this prefix may lie in the range.
    pub fn touches(&self, table: Table, prefix: &[u8]) -> bool {
        let first = tree_key(table, prefix);
        self.begins_at_or_before(&first) && ends_behind(self.high.as_ref(), &first)
    }

    /// The numbers with which keys of a table in it may begin.
    pub fn numbers(&self, table: Table) -> Option<RangeInclusive<u64>> {
        let first = match self.low.split_first() {
            Some((own, _)) if *own > table.0 => return None,
            Some((own, key)) if *own == table.0 => number_of(key),
            _ => 0,
        };
        let last = match self.high.as_ref().map(|high| high.split_first()) {
            None => u64::MAX,
            Some(Some((own, _))) if *own > table.0 => u64::MAX,
            // A longer key sorts behind all keys that are only its number.
            Some(Some((own, key))) if *own == table.0 && key.len() > size_of::<u64>() => number_of(key),
            Some(Some((own, key))) if *own == table.0 => number_of(key).checked_sub(1)?,
            Some(_) => return None,
        };
        (first <= last).then_some(first..=last)
    }

    fn begins_at_or_before(&self, key: &Key) -> bool {
        self.low <= *key || self.low.starts_with(key)
    }
}

impl KeyRanges {
    /// These ranges; they may overlap.
    pub fn new(ranges: impl IntoIterator<Item = KeyRange>) -> KeyRanges {
        let mut groups: BTreeMap<Group, Vec<Part>> = BTreeMap::new();
        for range in ranges {
            let reached = range.high.clone();
            groups.entry(range.group).or_default().push(Part { range, reached });
        }
        for parts in groups.values_mut() {
            parts.sort_by(|one, other| one.range.low.cmp(&other.range.low));
            for index in 1..parts.len() {
                let before = parts[index - 1].reached.clone();
                let reached = &mut parts[index].reached;
                *reached = before.zip(reached.take()).map(|(before, own)| before.max(own));
            }
        }
        KeyRanges { groups }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &KeyRange> {
        self.groups.values().flatten().map(|part| &part.range)
    }

    /// The ranges in which a key of the table with this prefix may lie.
    pub fn touching<'a>(
        &'a self,
        group: Group,
        table: Table,
        prefix: &[u8],
    ) -> impl Iterator<Item = &'a KeyRange> + use<'a> {
        let first = tree_key(table, prefix);
        let parts = self.groups.get(&group).map_or(&[][..], Vec::as_slice);
        let begun = &parts[..parts.partition_point(|part| part.range.begins_at_or_before(&first))];
        let end = begun.len();
        let from = begun.partition_point(|part| !ends_behind(part.reached.as_ref(), &first));
        begun[from..end]
            .iter()
            .map(|part| &part.range)
            .filter(move |range| ends_behind(range.high.as_ref(), &first))
    }
}

/// Whether a range with this end contains keys behind this one.
fn ends_behind(high: Option<&Key>, key: &Key) -> bool {
    high.is_none_or(|high| high > key)
}

/// The number at the start of a key. Missing bytes are 0.
fn number_of(key: &[u8]) -> u64 {
    let mut number = [0; size_of::<u64>()];
    let known = key.len().min(number.len());
    number[..known].copy_from_slice(&key[..known]);
    u64::from_be_bytes(number)
}

#[cfg(test)]
mod tests;
