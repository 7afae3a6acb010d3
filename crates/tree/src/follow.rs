//! Leaves that are needed one after the other, several of which are read at once.
//!
//! A walk that does not find its leaf in memory says which leaves are next to it. Where the leaf is one that was next
//! to an earlier one, whoever walks goes through the tree in its order (a listing, or files in the order in which they
//! were made), and the next ones are read with it, at the same time.
//!
//! Expectations are few, for all trees together, and a new one takes the place of the oldest: one that is forgotten
//! costs a read. They are hints: nothing depends on them, and what cannot be read ahead is left to whoever needs it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use smallvec::SmallVec;

use crate::types::NodeId;

/// Leaves that a walk names, of which all but the last are read with the one that is missing.
pub(crate) const FOLLOWING: usize = 8;
/// Walks that go on at the same time, with those in between that do not.
const EXPECTED: usize = 32;
/// No node: ids begin with 1.
const NOTHING: u64 = 0;

/// The leaves behind one, in the order of the tree.
pub(crate) type Following = SmallVec<[NodeId; FOLLOWING]>;

/// The leaves that come next if somebody goes on.
#[derive(Default)]
pub(crate) struct Follow {
    expected: [AtomicU64; EXPECTED],
    oldest: AtomicUsize,
}

impl Follow {
    /// What to read with a leaf that is not in memory.
    pub(crate) fn with<'f>(&self, id: NodeId, following: &'f [NodeId]) -> &'f [NodeId] {
        let is_expected = |slot: &AtomicU64| {
            slot.compare_exchange(id.0, NOTHING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let (ahead, next) = match self.expected.iter().any(is_expected) {
            true => following.split_at(following.len().min(FOLLOWING - 1)),
            false => following.split_at(0),
        };
        if let Some(next) = next.first() {
            let slot = self.oldest.fetch_add(1, Ordering::Relaxed) % EXPECTED;
            self.expected[slot].store(next.0, Ordering::Relaxed);
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn following(from: u64, count: u64) -> Vec<NodeId> {
        (from..from + count).map(NodeId).collect()
    }

    #[test]
    fn who_goes_on_finds_the_next_leaves_and_who_does_not_reads_one() {
        let follow = Follow::default();
        assert_eq!(follow.with(NodeId(1), &following(2, 8)), []);
        // Others in between.
        for other in 0..20 {
            assert_eq!(follow.with(NodeId(1000 + 50 * other), &following(1001 + 50 * other, 8)), []);
        }
        assert_eq!(follow.with(NodeId(2), &following(3, 8)), following(3, 7));
        assert_eq!(follow.with(NodeId(10), &following(11, 8)), following(11, 7));
        assert_eq!(follow.with(NodeId(18), &following(19, 3)), following(19, 3), "the last of its parent");
        assert_eq!(follow.with(NodeId(500), &[]), []);
        assert_eq!(follow.with(NodeId(10), &following(11, 8)), [], "expected once");
    }
}
