//! Inode numbers: counter × groups + group.
//!
//! A range of counters is journaled before any of them is used, and a mount never continues the range of an earlier
//! mount. So no number is used for a second inode. (A crash can undo inodes that were not durable, together with
//! their range. Such numbers may be used again for other inodes, which have a different generation.)

use std::sync::atomic::{AtomicU32, Ordering};

use rt::sync::Mutex;
use tree::{Group, Store, Tx};

use crate::errno::{FsError, Result};
use crate::format::{COUNTER, counter_key, decode_counter, encode_counter};
use crate::types::InodeNo;

/// Counters that are journaled at a time.
const RANGE: u64 = 1024;
/// The first counter of every group. The numbers below are reserved; one of them is the root's.
pub(crate) const COUNTER_FIRST: u64 = 2;

/// Unused counters of each group.
pub(crate) struct Numbers {
    ranges: Vec<Mutex<Range>>,
    next_group: AtomicU32,
}

/// next ≤ end. Both are 0 until the first number of this mount.
#[derive(Default)]
struct Range {
    next: u64,
    end: u64,
}

impl Numbers {
    pub(crate) fn new(groups: u16) -> Self {
        Numbers { ranges: (0..groups).map(|_| Mutex::default()).collect(), next_group: AtomicU32::new(0) }
    }

    /// A number in `group` that was never used. Must be called before any inode is locked.
    pub(crate) fn next(&self, store: &Store, group: Group) -> Result<InodeNo> {
        let groups = self.ranges.len() as u64;
        let mut range = self.ranges[usize::from(group.0)].lock();
        if range.next == range.end {
            *range = journal_range(store, group)?;
        }
        let number = range.next.checked_mul(groups).and_then(|base| base.checked_add(u64::from(group.0)));
        range.next += 1;
        number.map(InodeNo).ok_or(FsError::NoSpace)
    }

    /// The group for the next new directory. The groups take turns.
    pub(crate) fn next_directory_group(&self) -> Group {
        let turn = self.next_group.fetch_add(1, Ordering::Relaxed) as usize % self.ranges.len();
        Group(turn as u16)
    }
}

fn journal_range(store: &Store, group: Group) -> Result<Range> {
    let next = range_end(store, group)?;
    let end = next.checked_add(RANGE).ok_or(FsError::NoSpace)?;
    let mut tx = Tx::new();
    tx.put(group, COUNTER, counter_key(group.0), encode_counter(end));
    store.commit(tx)?;
    Ok(Range { next, end })
}

/// The end of the ranges that were ever used.
pub(crate) fn range_end(store: &Store, group: Group) -> Result<u64> {
    match store.get(group, COUNTER, &counter_key(group.0))? {
        Some(bytes) => Ok(decode_counter(&bytes)?),
        None => Ok(COUNTER_FIRST),
    }
}
