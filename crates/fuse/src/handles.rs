//! The table of open files and directories.
//!
//! The kernel names an open file by a number that we choose: `slot * SHARDS + shard`. All handles of
//! one inode are in one shard, so the shard also knows how many of them may write.

use std::collections::HashMap;
use std::sync::Arc;

use fs::{Handle, InodeNo};
use rt::sync::RwLock;

/// Enough that threads seldom meet, few enough to look into.
const SHARDS: u64 = 64;

/// What the kernel calls an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandleNo(pub(crate) u64);

/// All that is open, in shards that do not share a lock.
pub(crate) struct Handles<T = Handle> {
    shards: Box<[RwLock<Shard<T>>]>,
}

struct Shard<T> {
    slots: Vec<Option<Open<T>>>,
    /// Indexes of the slots that are `None`.
    free: Vec<usize>,
    /// How many open handles of an inode may write; absent when none.
    writers: HashMap<InodeNo, u32>,
}

struct Open<T> {
    inode: InodeNo,
    writes: bool,
    handle: Arc<T>,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Self {
        let shard = || Shard { slots: Vec::new(), free: Vec::new(), writers: HashMap::new() };
        Handles { shards: (0..SHARDS).map(|_| RwLock::new(shard())).collect() }
    }

    pub(crate) fn insert(&self, inode: InodeNo, writes: bool, handle: T) -> HandleNo {
        let number = inode.0 % SHARDS;
        let mut shard = self.shard(number).write();
        let open = Open { inode, writes, handle: Arc::new(handle) };
        let slot = shard.free.pop().unwrap_or_else(|| {
            shard.slots.push(None);
            shard.slots.len() - 1
        });
        shard.slots[slot] = Some(open);
        if writes {
            *shard.writers.entry(inode).or_default() += 1;
        }
        HandleNo(slot as u64 * SHARDS + number)
    }

    pub(crate) fn get(&self, number: HandleNo) -> Option<Arc<T>> {
        let shard = self.shard(number.0 % SHARDS).read();
        shard.slots.get(slot_of(number))?.as_ref().map(|open| Arc::clone(&open.handle))
    }

    /// Takes a handle out; it is closed when the last operation that uses it is done.
    pub(crate) fn remove(&self, number: HandleNo) -> Option<Arc<T>> {
        let mut shard = self.shard(number.0 % SHARDS).write();
        let open = shard.slots.get_mut(slot_of(number))?.take()?;
        shard.free.push(slot_of(number));
        if open.writes {
            shard.forget_writer(open.inode);
        }
        Some(open.handle)
    }

    /// Whether the kernel may hold dirty pages of this inode.
    pub(crate) fn has_writers(&self, inode: InodeNo) -> bool {
        self.shard(inode.0 % SHARDS).read().writers.contains_key(&inode)
    }

    fn shard(&self, number: u64) -> &RwLock<Shard<T>> {
        &self.shards[number as usize]
    }
}

impl<T> Shard<T> {
    fn forget_writer(&mut self, inode: InodeNo) {
        let count = self.writers.get_mut(&inode).expect("each open writer was counted when it was inserted");
        *count -= 1;
        if *count == 0 {
            self.writers.remove(&inode);
        }
    }
}

fn slot_of(number: HandleNo) -> usize {
    (number.0 / SHARDS) as usize
}

#[cfg(test)]
mod tests;
