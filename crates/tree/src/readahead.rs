//! Readahead for walks through a tree: several leaves are read at once.
//!
//! A walk that misses its leaf in memory names the leaves behind it. If the leaf was itself named by an earlier walk,
//! the walk goes through the tree in order (a listing, or files in the order in which they were made). Then the next
//! leaves are read with it, at the same time.
//!
//! The first leaf that was read ahead *leads*, and so does each leaf that is [`NEXT_LEAVES`] behind a leading one. A
//! walk that reaches a leading leaf requests the leaves further behind. They are read in the background
//! ([`Readahead::take_request`]) while the walk is busy with the leaves in memory, a few at a time and many in
//! advance. If no background reader exists, the walk reaches a missing leaf and reads several again.
//!
//! All trees share a small number of expectations and requests, and a new one replaces the oldest. A lost one costs a
//! read. They are hints: nothing depends on them, and a leaf that cannot be read ahead is read when it is needed.

use std::collections::VecDeque;
use std::sync::Arc;

use rt::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use rt::sync::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::types::NodeId;

/// Leaves that a walk names. All but the last are read with the missing one.
pub(crate) const NEXT_LEAVES: usize = 8;
/// Leaves that are requested at a leading one, at most. Those that were read with the missing leaf are in memory
/// already.
const REQUESTED_MAX: usize = 4 * NEXT_LEAVES;
/// The fraction of the cache that they may take.
const SHARE: usize = 32;
/// Requests that wait.
const REQUESTS: usize = 4;
/// Walks in order that can go on at the same time, including unrelated look-ups between their steps.
const EXPECTED: usize = 32;
/// No node: ids begin with 1.
const NO_NODE: u64 = 0;

/// The leaves behind one, in the order of the tree.
pub(crate) type NextLeaves = SmallVec<[NodeId; NEXT_LEAVES]>;

/// Wakes the background reader because there is a request.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// How many leaves to request with a cache of this size.
pub(crate) fn request_len(cache_pages: usize) -> usize {
    (cache_pages / SHARE).clamp(NEXT_LEAVES, REQUESTED_MAX)
}

/// The leaves that a walk in order needs next.
#[derive(Default)]
pub(crate) struct Readahead {
    expected: [AtomicU64; EXPECTED],
    oldest: AtomicUsize,
    requests: Mutex<VecDeque<NextLeaves>>,
    reader: RwLock<Option<Wake>>,
}

impl Readahead {
    /// The leaves to read together with a leaf that is not in memory.
    pub(crate) fn with<'f>(&self, id: NodeId, following: &'f [NodeId]) -> &'f [NodeId] {
        let is_expected = |slot: &AtomicU64| {
            slot.compare_exchange(id.0, NO_NODE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let (ahead, next) = match self.expected.iter().any(is_expected) {
            true => following.split_at(following.len().min(NEXT_LEAVES - 1)),
            false => following.split_at(0),
        };
        if let Some(next) = next.first() {
            let slot = self.oldest.fetch_add(1, Ordering::Relaxed) % EXPECTED;
            self.expected[slot].store(next.0, Ordering::Relaxed);
        }
        ahead
    }

    /// Sets the background reader.
    pub(crate) fn set_reader(&self, wake: Wake) {
        *self.reader.write() = Some(wake);
    }

    /// Requests the leaves behind a leading one. The caller may hold a tree's lock.
    pub(crate) fn request(&self, following: NextLeaves) {
        let reader = self.reader.read();
        let Some(wake) = reader.as_ref().filter(|_| !following.is_empty()) else { return };
        let mut requests = self.requests.lock();
        if requests.len() == REQUESTS {
            requests.pop_front();
        }
        requests.push_back(following);
        drop(requests);
        wake();
    }

    /// The leaves to read next.
    pub(crate) fn take_request(&self) -> Option<NextLeaves> {
        self.requests.lock().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn following(from: u64, count: u64) -> Vec<NodeId> {
        (from..from + count).map(NodeId).collect()
    }

    #[test]
    fn a_walk_in_order_reads_the_next_leaves_and_a_look_up_reads_one() {
        let readahead = Readahead::default();
        assert_eq!(readahead.with(NodeId(1), &following(2, 8)), []);
        // Unrelated look-ups in between.
        for other in 0..20 {
            assert_eq!(readahead.with(NodeId(1000 + 50 * other), &following(1001 + 50 * other, 8)), []);
        }
        assert_eq!(readahead.with(NodeId(2), &following(3, 8)), following(3, 7));
        assert_eq!(readahead.with(NodeId(10), &following(11, 8)), following(11, 7));
        assert_eq!(readahead.with(NodeId(18), &following(19, 3)), following(19, 3), "the last of its parent");
        assert_eq!(readahead.with(NodeId(500), &[]), []);
        assert_eq!(readahead.with(NodeId(10), &following(11, 8)), [], "expected once");
    }
    #[test]
    fn requests_are_bounded_and_need_a_background_reader() {
        let (readahead, woken) = (Readahead::default(), Arc::new(AtomicUsize::new(0)));
        readahead.request(following(1, 8).into());
        assert_eq!(readahead.take_request(), None, "there is no background reader");
        let wakes = woken.clone();
        readahead.set_reader(Arc::new(move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        }));
        readahead.request(NextLeaves::new());
        (0..6).for_each(|number| readahead.request(following(10 * number, 8).into()));
        assert_eq!(woken.load(Ordering::Relaxed), 6);
        for number in 2..6 {
            assert_eq!(readahead.take_request().as_deref(), Some(following(10 * number, 8).as_slice()));
        }
        assert_eq!(readahead.take_request(), None);
    }
}
