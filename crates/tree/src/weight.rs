//! What writing a node takes, and the sum of it for all dirty nodes.

use std::ops::{Add, Sub};

use rt::sync::atomic::{AtomicUsize, Ordering};

use crate::delta::Changes;

/// Bytes that writing nodes takes, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weight(usize);

impl Weight {
    /// The weight of a node with these changes.
    pub(crate) fn of_changes(changes: &Changes, has_deltas: bool, page_size: usize) -> Weight {
        match changes.encoded_bytes().filter(|_| has_deltas) {
            Some(bytes) => Weight::packed(bytes),
            None => Weight(page_size),
        }
    }

    /// The weight of delta records that share pages. A page is filled to at least seven eighths of its bytes behind
    /// the header, because no record takes more than an eighth.
    pub(crate) fn packed(bytes: usize) -> Weight {
        Weight((bytes * 6).div_ceil(5))
    }

    /// Pages for this weight. The last page of delta records may be nearly empty.
    pub(crate) fn pages(self, page_size: usize) -> usize {
        self.0.div_ceil(page_size) + usize::from(self.0 > 0)
    }

    pub(crate) fn of_bytes(bytes: usize) -> Weight {
        Weight(bytes)
    }

    pub(crate) fn bytes(self) -> usize {
        self.0
    }
}

impl Add for Weight {
    type Output = Weight;

    fn add(self, other: Weight) -> Weight {
        Weight(self.0 + other.0)
    }
}

impl Sub for Weight {
    type Output = Weight;

    fn sub(self, other: Weight) -> Weight {
        Weight(self.0 - other.0)
    }
}

/// The nodes that the running epoch has made dirty and that are not written. Changed under the lock of the node's
/// group.
#[derive(Default)]
pub(crate) struct Dirty {
    nodes: AtomicUsize,
    weight: AtomicUsize,
}

impl Dirty {
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(crate) fn weight(&self) -> Weight {
        Weight(self.weight.load(Ordering::Relaxed))
    }

    /// Counts a node that has no weight yet.
    pub(crate) fn add_node(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a node with its weight.
    pub(crate) fn remove_node(&self, counted: &mut Weight) {
        let nodes = self.nodes.fetch_sub(1, Ordering::Relaxed);
        assert!(nodes > 0, "the node was counted when it became dirty");
        let counted = std::mem::take(counted);
        let weight = self.weight.fetch_sub(counted.0, Ordering::Relaxed);
        assert!(weight >= counted.0, "the node was counted with its weight");
    }

    /// Replaces the weight of a node.
    pub(crate) fn weigh(&self, counted: &mut Weight, now: Weight) {
        let before = std::mem::replace(counted, now);
        let sum = self.weight.fetch_add(now.0.wrapping_sub(before.0), Ordering::Relaxed);
        assert!(sum >= before.0, "the sum is at least the weight of each node");
    }

    /// The cut: no dirty node remains.
    pub(crate) fn take_all(&self) {
        self.nodes.store(0, Ordering::Relaxed);
        self.weight.store(0, Ordering::Relaxed);
    }
}
