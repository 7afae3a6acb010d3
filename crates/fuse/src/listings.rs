//! What the kernel may have in its cache of directory listings.
//!
//! The kernel opens and closes directories without a request (`FUSE_NO_OPENDIR_SUPPORT`) and collects the entries of
//! all listings of a directory in one place. An empty reply ends a listing and makes what was collected complete. From
//! then on the kernel answers from there. It checks a listing that begins then: if the directory has changed since the
//! first entry was collected, the kernel drops what it has. It does not check a listing that has begun before. That one
//! could continue with entries that another listing had collected before the last change.
//!
//! So a listing ends with an empty reply only if the directory has not changed since it may have been collected.
//! Otherwise it ends with a reply that is too short for an entry, which leaves what was collected incomplete.
//!
//! **Dropping.** The kernel cannot be told to drop what it has collected, but it does so as soon as it wants to use a
//! complete listing without its first page. So the first reply to a listing that begins after a change is sent when
//! the first page has been dropped: an empty reply to an earlier listing may still be on its way.
//!
//! **Readers.** Entries that were read before a change can be on their way for any time. They have arrived when the
//! same thread asks again. As long as they may be on their way, the directory counts as changed.
//!
//! The test is a model of the kernel's cache.

use std::collections::HashMap;

use fs::InodeNo;
use rt::sync::Mutex;

/// Enough that threads seldom meet.
const SHARDS: u64 = 64;
/// The number of readers of a directory that are told apart.
const READERS_MAX: usize = 16;

/// The directories that have been listed since the kernel learnt of them.
pub(crate) struct Listings {
    shards: Box<[Mutex<HashMap<InodeNo, Collected>>]>,
}

/// What the kernel may have collected of one directory.
#[derive(Default)]
struct Collected {
    /// The directory has changed since entries were read that it has or that are on their way.
    is_old: bool,
    /// How often it has changed.
    changes: u32,
    /// Only while there are any.
    readers: Option<Box<Readers>>,
}

/// The threads to which entries may be on their way.
#[derive(Default)]
struct Readers {
    threads: Vec<u32>,
    /// There are others, which are not told apart.
    has_others: bool,
}

/// A first reply that is sent when the first page has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BeginsAfterDrop {
    thread: u32,
    /// How often the directory had changed.
    changes: u32,
}

impl Listings {
    pub(crate) fn new() -> Self {
        Listings { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// A thread asks for the first entries. They have not been read yet.
    pub(crate) fn begin(&self, directory: InodeNo, thread: u32) -> Option<BeginsAfterDrop> {
        let mut shard = self.shard(directory).lock();
        let collected = shard.entry(directory).or_default();
        collected.add_reader(thread);
        collected.is_old.then_some(BeginsAfterDrop { thread, changes: collected.changes })
    }

    /// The first page has been dropped, and the reply has not been sent yet.
    pub(crate) fn dropped(&self, directory: InodeNo, begun: BeginsAfterDrop) {
        let mut shard = self.shard(directory).lock();
        let Some(collected) = shard.get_mut(&directory) else { return };
        let has_other_readers = collected.readers.as_ref().is_some_and(|readers| {
            readers.has_others || readers.threads.iter().any(|&other| other != begun.thread)
        });
        collected.is_old = has_other_readers || collected.changes != begun.changes;
    }

    /// A thread asks for further entries. They have not been read yet.
    pub(crate) fn go_on(&self, directory: InodeNo, thread: u32) {
        let mut shard = self.shard(directory).lock();
        let unknown = || Collected { is_old: true, ..Collected::default() };
        shard.entry(directory).or_insert_with(unknown).add_reader(thread);
    }

    /// An operation has changed a directory, and its reply has not been sent yet.
    pub(crate) fn note_change(&self, directory: InodeNo) {
        if let Some(collected) = self.shard(directory).lock().get_mut(&directory) {
            collected.is_old = true;
            collected.changes = collected.changes.wrapping_add(1);
        }
    }

    /// A thread has asked for further entries, and there are none. Returns whether what the kernel has collected is
    /// complete.
    pub(crate) fn end(&self, directory: InodeNo, thread: u32) -> bool {
        let mut shard = self.shard(directory).lock();
        let Some(collected) = shard.get_mut(&directory) else { return false };
        collected.remove_reader(thread);
        !collected.is_old
    }

    /// The kernel has forgotten an inode, and all that it had collected of it. This arrives before the kernel learns
    /// of that inode again and lists it.
    pub(crate) fn forget(&self, inode: InodeNo) {
        self.shard(inode).lock().remove(&inode);
    }

    fn shard(&self, directory: InodeNo) -> &Mutex<HashMap<InodeNo, Collected>> {
        &self.shards[(directory.0 % SHARDS) as usize]
    }
}

impl Collected {
    /// The kernel has no number for a thread outside of our namespace.
    fn add_reader(&mut self, thread: u32) {
        let readers = self.readers.get_or_insert_default();
        match readers.threads.contains(&thread) {
            true => {}
            false if thread == 0 || readers.threads.len() == READERS_MAX => readers.has_others = true,
            false => readers.threads.push(thread),
        }
    }

    fn remove_reader(&mut self, thread: u32) {
        let Some(readers) = &mut self.readers else { return };
        readers.threads.retain(|&other| other != thread);
        if readers.threads.is_empty() && !readers.has_others {
            self.readers = None;
        }
    }
}

#[cfg(test)]
mod tests;
