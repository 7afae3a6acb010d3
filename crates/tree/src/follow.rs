//! Leaves that are needed one after the other, several of which are read at once.
//!
//! A walk that does not find its leaf in memory says which leaves are next to it. Where the leaf is one that was next
//! to an earlier one, whoever walks goes through the tree in its order (a listing, or files in the order in which they
//! were made), and the next ones are read with it, at the same time.
//!
//! The first of those that were read with it *leads*, and so does each that is [`FOLLOWING`] behind one that does:
//! whoever comes to it goes on, and asks for the ones behind. They are read in the background ([`Follow::take_asked`])
//! while the walker is busy with those that are there, a few at a time and many ahead. Where nobody reads in the
//! background, he comes to one that is not there and reads several again.
//!
//! Expectations and requests are few, for all trees together, and a new one takes the place of the oldest: one that is
//! forgotten costs a read. They are hints: nothing depends on them, and what cannot be read ahead is left to whoever
//! needs it.

use std::collections::VecDeque;
use std::sync::Arc;

use rt::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use rt::sync::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::types::NodeId;

/// Leaves that a walk names, of which all but the last are read with the one that is missing.
pub(crate) const FOLLOWING: usize = 8;
/// Leaves that are asked for at a leading one, at most: all but as many as were read with one are there already.
const ASKED: usize = 4 * FOLLOWING;
/// The part of the cache that they may take.
const SHARE: usize = 32;
/// Requests that wait.
const REQUESTS: usize = 4;
/// Walks that go on at the same time, with those in between that do not.
const EXPECTED: usize = 32;
/// No node: ids begin with 1.
const NOTHING: u64 = 0;

/// The leaves behind one, in the order of the tree.
pub(crate) type Following = SmallVec<[NodeId; FOLLOWING]>;

/// Tells whoever reads in the background that there is a request.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// How many leaves to ask for with a cache of so many pages.
pub(crate) fn asked(cache_pages: usize) -> usize {
    (cache_pages / SHARE).clamp(FOLLOWING, ASKED)
}

/// The leaves that come next if somebody goes on.
#[derive(Default)]
pub(crate) struct Follow {
    expected: [AtomicU64; EXPECTED],
    oldest: AtomicUsize,
    asked: Mutex<VecDeque<Following>>,
    reader: RwLock<Option<Wake>>,
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

    /// Somebody reads in the background from now on.
    pub(crate) fn set_reader(&self, wake: Wake) {
        *self.reader.write() = Some(wake);
    }

    /// Somebody has come to a leading leaf. A tree's lock may be held.
    pub(crate) fn ask(&self, following: Following) {
        let reader = self.reader.read();
        let Some(wake) = reader.as_ref().filter(|_| !following.is_empty()) else { return };
        let mut asked = self.asked.lock();
        if asked.len() == REQUESTS {
            asked.pop_front();
        }
        asked.push_back(following);
        drop(asked);
        wake();
    }

    /// What to read next.
    pub(crate) fn take_asked(&self) -> Option<Following> {
        self.asked.lock().pop_front()
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
    #[test]
    fn requests_are_few_and_made_only_where_somebody_reads() {
        let (follow, woken) = (Follow::default(), Arc::new(AtomicUsize::new(0)));
        follow.ask(following(1, 8).into());
        assert_eq!(follow.take_asked(), None, "nobody reads");
        let wakes = woken.clone();
        follow.set_reader(Arc::new(move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        }));
        follow.ask(Following::new());
        (0..6).for_each(|number| follow.ask(following(10 * number, 8).into()));
        assert_eq!(woken.load(Ordering::Relaxed), 6);
        for number in 2..6 {
            assert_eq!(follow.take_asked().as_deref(), Some(following(10 * number, 8).as_slice()));
        }
        assert_eq!(follow.take_asked(), None);
    }
}
