//! The tree of a group as segments of keys that follow each other, each with the place of its rows.

use std::collections::BTreeMap;

use tree::Bytes;
use tree::decode::{Page, Place};

/// Keys from `low` up to the next segment's, and where their rows are.
pub(crate) struct Segment {
    pub(crate) low: Bytes,
    pub(crate) high: Option<Bytes>,
    pub(crate) source: Source,
}

/// Where the rows of a segment are.
pub(crate) enum Source {
    /// One leaf has all of them.
    Leaf(Leaf),
    /// The leaf, or a node above it, is lost or uncertain. These rows were found.
    Collected(CollectedRows),
}

/// A leaf that can be read.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    pub(crate) id: u64,
    pub(crate) place: Place,
    pub(crate) certain: bool,
}

/// Rows that were found in several leaves.
#[derive(Default)]
pub(crate) struct CollectedRows {
    /// By key: the value, and whether it is certain.
    pub(crate) rows: BTreeMap<Bytes, (Bytes, bool)>,
    /// Rows may be missing.
    pub(crate) may_be_incomplete: bool,
    /// The lost node was an inner node, and no copy of it was found.
    pub(crate) was_inner: bool,
}

impl CollectedRows {
    /// Adds the rows of a leaf within bounds. A certain row is not replaced by an uncertain one.
    pub(crate) fn add(&mut self, page: &Page, (low, high): (&Bytes, Option<&Bytes>), certain: bool) {
        for index in 0..page.count() {
            let key = page.key(index);
            let is_inside = key >= low.as_slice() && high.is_none_or(|high| key < high.as_slice());
            let is_better = certain || self.rows.get(key).is_none_or(|(_, certain)| !certain);
            if is_inside && is_better {
                self.rows.insert(key.to_vec(), (page.value(index).to_vec(), certain));
            }
        }
    }
}
