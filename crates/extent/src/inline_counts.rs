//! How many inline blocks each object has.

use std::collections::{BTreeSet, HashMap};

use rt::sync::Mutex;

use crate::{Hint, Object};

/// Inline blocks of one object that are worth a write.
pub(crate) const MANY: u64 = 16;
/// Inline blocks of one object that are moved if all together have too many.
pub(crate) const SOME: u64 = 2;
/// Bytes of inline blocks of all objects that have at least `SOME`.
const MOVABLE_BYTES_MAX: u64 = 32 << 20;
/// Objects whose inline blocks are counted.
const COUNTED_MAX: usize = 1 << 16;

/// Counts of inline blocks.
#[derive(Default)]
pub(crate) struct InlineCounts {
    /// A leaf lock.
    counts: Mutex<Counts>,
}

/// Counts of objects. None is 0.
#[derive(Default)]
struct Counts {
    of: HashMap<Object, u64>,
    /// The same counts, in ascending order.
    order: BTreeSet<(u64, Object)>,
    /// The sum of the counts of at least `SOME`.
    movable: u64,
    /// Hints for the data, at most as many as counts.
    hints: HashMap<Object, Hint>,
}

impl Counts {
    fn set(&mut self, object: Object, count: u64) {
        let movable = |count: u64| if count >= SOME { count } else { 0 };
        if let Some(before) = self.of.remove(&object) {
            self.order.remove(&(before, object));
            self.movable -= movable(before);
        }
        if count == 0 {
            self.hints.remove(&object);
            return;
        }
        if self.of.len() >= COUNTED_MAX
            && let Some((fewest, loser)) = self.order.pop_first()
        {
            self.of.remove(&loser);
            self.hints.remove(&loser);
            self.movable -= movable(fewest);
        }
        self.of.insert(object, count);
        self.order.insert((count, object));
        self.movable += movable(count);
    }
}

impl InlineCounts {
    /// The object has more inline blocks, or fewer.
    pub(crate) fn changed(&self, object: Object, change: i64) {
        if change == 0 {
            return;
        }
        let mut counts = self.counts.lock();
        let before = counts.of.get(&object).copied().unwrap_or(0);
        counts.set(object, before.saturating_add_signed(change));
    }

    /// The object is about to have an inline block with this hint.
    pub(crate) fn set_hint(&self, object: Object, hint: Hint) {
        let mut counts = self.counts.lock();
        if hint == Hint::default() {
            counts.hints.remove(&object);
        } else if counts.hints.len() < COUNTED_MAX || counts.hints.contains_key(&object) {
            counts.hints.insert(object, hint);
        }
    }

    /// The hint of its last inline block.
    pub(crate) fn hint(&self, object: Object) -> Hint {
        self.counts.lock().hints.get(&object).copied().unwrap_or_default()
    }

    /// Sets the count of an object.
    pub(crate) fn counted(&self, object: Object, count: u64) {
        self.counts.lock().set(object, count);
    }

    /// An object whose inline blocks should be moved.
    pub(crate) fn next(&self, block_size: u32) -> Option<Object> {
        let counts = self.counts.lock();
        let too_many = counts.movable * u64::from(block_size) > MOVABLE_BYTES_MAX;
        let &(most, object) = counts.order.last()?;
        (most >= if too_many { SOME } else { MANY }).then_some(object)
    }

    /// The object has no inline blocks that would be moved.
    pub(crate) fn forget(&self, object: Object) {
        self.counted(object, 0);
    }
}

#[cfg(test)]
mod tests;
