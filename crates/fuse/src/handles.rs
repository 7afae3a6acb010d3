//! The table of open files.
//!
//! The kernel identifies an open file by a number that we choose: `slot * SHARDS + shard`. All handles of one inode
//! are in one shard. So the shard also records how many of them may write, whether bytes that the kernel accepted
//! from a program found no space here, which count of blocks was reported to the kernel, and whether the kernel has
//! read parts of the file into its cache.

use std::collections::HashMap;
use std::sync::Arc;

use fs::InodeNo;
use rt::sync::RwLock;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Enough that threads seldom meet, and few enough to iterate over.
const SHARDS: u64 = 64;
/// A reported count of blocks is outdated if it is off by more than 1 / `OUTDATED_SHARE`.
const OUTDATED_SHARE: u64 = 64;
/// In place of a count of blocks: the kernel has to ask.
const MUST_ASK: u64 = u64::MAX;

/// The number by which the kernel identifies an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandleNo(pub(crate) u64);

/// All open handles, in shards that do not share a lock.
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
    /// The number of handles; at least one.
    count: u32,
    /// Bytes that the kernel wrote back found no space, and no program has learnt of it yet.
    is_short: bool,
    /// The count of blocks that the kernel has, since the file was opened; or [`MUST_ASK`].
    blocks_reported: AtomicU64,
    /// The kernel has read parts of the file into its cache since the file was opened for writing.
    is_cached: AtomicBool,
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

    /// Removes a handle. It is closed when the last operation that uses it is done.
    pub(crate) fn remove(&self, number: HandleNo) -> Option<Arc<T>> {
        let mut shard = self.shard(number.0 % SHARDS).write();
        let open = shard.slots.get_mut(slot_of(number))?.take()?;
        shard.free.push(slot_of(number));
        if open.writes {
            shard.forget_writer(open.inode);
        }
        Some(open.handle)
    }

    /// Whether the kernel may have dirty pages of this inode.
    pub(crate) fn has_writers(&self, inode: InodeNo) -> bool {
        self.shard(inode.0 % SHARDS).read().writers.contains_key(&inode)
    }

    /// All inodes of which the kernel may have dirty pages.
    pub(crate) fn written(&self) -> Vec<InodeNo> {
        let of = |shard: &RwLock<Shard<T>>| shard.read().writers.keys().copied().collect::<Vec<_>>();
        self.shards.iter().flat_map(of).collect()
    }

    /// Whether bytes of this inode found no space and no program has learnt of it.
    pub(crate) fn is_short(&self, inode: InodeNo) -> bool {
        self.shard(inode.0 % SHARDS).read().writers.get(&inode).is_some_and(|writers| writers.is_short)
    }

    /// The same. The caller now reports it to a program.
    pub(crate) fn take_shortage(&self, inode: InodeNo) -> bool {
        self.is_short(inode)
            && self
                .shard(inode.0 % SHARDS)
                .write()
                .writers
                .get_mut(&inode)
                .is_some_and(|writers| std::mem::take(&mut writers.is_short))
    }

    /// Notes that bytes found no space, until no handle may write any more.
    pub(crate) fn note_shortage(&self, inode: InodeNo) {
        if let Some(writers) = self.shard(inode.0 % SHARDS).write().writers.get_mut(&inode) {
            writers.is_short = true;
        }
    }

    /// Notes the count of blocks of an inode that is reported to the kernel.
    pub(crate) fn note_blocks_reported(&self, inode: InodeNo, blocks: u64) {
        if let Some(writers) = self.shard(inode.0 % SHARDS).read().writers.get(&inode) {
            writers.blocks_reported.store(blocks, Ordering::Relaxed);
        }
    }

    /// Whether the kernel has a count that differs by more than a little, for an inode that may be written. If so, it
    /// will have to ask, and this returns false from then on.
    pub(crate) fn take_outdated(&self, inode: InodeNo, blocks: u64) -> bool {
        let shard = self.shard(inode.0 % SHARDS).read();
        let Some(writers) = shard.writers.get(&inode) else { return false };
        let reported = writers.blocks_reported.load(Ordering::Relaxed);
        reported != MUST_ASK
            && reported.abs_diff(blocks) > reported / OUTDATED_SHARE
            && writers.blocks_reported.swap(MUST_ASK, Ordering::Relaxed) != MUST_ASK
    }

    /// Notes that the kernel reads parts of this inode into its cache. Called before the contents are read.
    pub(crate) fn note_cached(&self, inode: InodeNo) {
        if let Some(writers) = self.shard(inode.0 % SHARDS).read().writers.get(&inode) {
            writers.is_cached.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the kernel may have read parts of this inode into its cache while a handle could write. Called after a
    /// write: a read that is noted later sees the write.
    pub(crate) fn may_be_cached(&self, inode: InodeNo) -> bool {
        let shard = self.shard(inode.0 % SHARDS).read();
        shard.writers.get(&inode).is_some_and(|writers| writers.is_cached.load(Ordering::SeqCst))
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
