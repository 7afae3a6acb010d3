//! The table of open files and directories.
//!
//! The kernel names an open file by a number that we choose: `slot * SHARDS + shard`. All handles of
//! one inode are in one shard, so the shard also knows how many of them may write, and whether bytes that
//! the kernel had taken from a program found no space here.

use std::collections::HashMap;
use std::sync::Arc;

use fs::InodeNo;
use rt::sync::RwLock;

/// Enough that threads seldom meet, few enough to look into.
const SHARDS: u64 = 64;

/// What the kernel calls an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandleNo(pub(crate) u64);

/// All that is open, in shards that do not share a lock.
pub(crate) struct Handles<T> {
    shards: Box<[RwLock<Shard<T>>]>,
}

struct Shard<T> {
    slots: Vec<Option<Open<T>>>,
    /// Indexes of the slots that are `None`.
    free: Vec<usize>,
    /// Inodes with open handles that may write.
    writers: HashMap<InodeNo, Writers>,
}

#[derive(Default)]
struct Writers {
    /// How many handles; at least one.
    count: u32,
    /// Bytes that the kernel wrote back found no space, and no program has been told.
    is_short: bool,
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
            shard.writers.entry(inode).or_default().count += 1;
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

    /// All inodes of which that may be so.
    pub(crate) fn written(&self) -> Vec<InodeNo> {
        let of = |shard: &RwLock<Shard<T>>| shard.read().writers.keys().copied().collect::<Vec<_>>();
        self.shards.iter().flat_map(of).collect()
    }

    /// Whether bytes of this inode have found no space and nobody was told.
    pub(crate) fn is_short(&self, inode: InodeNo) -> bool {
        self.shard(inode.0 % SHARDS).read().writers.get(&inode).is_some_and(|writers| writers.is_short)
    }

    /// The same; somebody is told now.
    pub(crate) fn take_shortage(&self, inode: InodeNo) -> bool {
        self.is_short(inode)
            && self
                .shard(inode.0 % SHARDS)
                .write()
                .writers
                .get_mut(&inode)
                .is_some_and(|writers| std::mem::take(&mut writers.is_short))
    }

    /// Notes that some have not, for as long as somebody may write.
    pub(crate) fn note_shortage(&self, inode: InodeNo) {
        if let Some(writers) = self.shard(inode.0 % SHARDS).write().writers.get_mut(&inode) {
            writers.is_short = true;
        }
    }

    fn shard(&self, number: u64) -> &RwLock<Shard<T>> {
        &self.shards[number as usize]
    }
}

impl<T> Shard<T> {
    fn forget_writer(&mut self, inode: InodeNo) {
        let writers =
            self.writers.get_mut(&inode).expect("each open writer was counted when it was inserted");
        writers.count -= 1;
        if writers.count == 0 {
            self.writers.remove(&inode);
        }
    }
}

fn slot_of(number: HandleNo) -> usize {
    (number.0 / SHARDS) as usize
}

#[cfg(test)]
mod tests;
