//! What the kernel may have in its cache of directory listings.
//!
//! The kernel opens and closes directories without a request (`FUSE_NO_OPENDIR_SUPPORT`) and collects the entries of
//! all listings of a directory in one place. An empty reply ends a listing and makes what was collected complete. From
//! then on the kernel answers from there. It checks a listing that begins then: if the directory has changed since the
//! first entry was collected, the kernel drops what it has. It does not check a listing that has begun before. That one
//! could continue with entries that another listing had collected before the last change.
//!
//! The kernel changes a directory only while no request of a listing of it is in progress, and the other way round
//! (`i_rwsem`). So it is enough to note which directories have changed since entries were collected. No notification
//! invalidates these entries, but one drops pages. If the first page of a complete listing is missing, the kernel
//! discards the listing at the next use. So the first page is dropped before the empty reply that ends a listing of a
//! changed directory. That listing is not cached. The next one is.
//!
//! **Lookups** of directories are counted. The kernel drops its cache of a directory with its last reference.
//!
//! The test is a model of the kernel's cache.

use std::collections::HashMap;

use fs::InodeNo;
use rt::sync::Mutex;

/// Enough that threads seldom meet.
const SHARDS: u64 = 64;
/// The root is never looked up and never forgotten.
const ALWAYS: u32 = u32::MAX;

/// The directories that the kernel knows.
pub(crate) struct Listings {
    shards: Box<[Mutex<HashMap<InodeNo, Known>>]>,
}

/// A directory that the kernel knows.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The lookups that the kernel has not forgotten.
    lookups: u32,
    /// The kernel may have collected entries.
    is_collected: bool,
    /// They may be from before a change.
    is_old: bool,
}

impl Listings {
    pub(crate) fn new() -> Self {
        let listings = Listings { shards: (0..SHARDS).map(|_| Mutex::default()).collect() };
        let root = Known { lookups: ALWAYS, ..Known::default() };
        listings.shard(InodeNo::ROOT).lock().insert(InodeNo::ROOT, root);
        listings
    }

    /// A reply that is about to be sent makes the kernel know a directory, once more.
    pub(crate) fn note_lookup(&self, directory: InodeNo) {
        let mut shard = self.shard(directory).lock();
        let known = shard.entry(directory).or_default();
        if known.lookups < ALWAYS - 1 {
            known.lookups += 1;
        }
    }

    /// The kernel drops `lookups` of its references to an inode. Returns whether the inode is a directory to which the
    /// kernel has further references.
    pub(crate) fn forget(&self, inode: InodeNo, lookups: u64) -> bool {
        let mut shard = self.shard(inode).lock();
        let Some(known) = shard.get_mut(&inode) else { return false };
        if known.lookups != ALWAYS {
            known.lookups = u64::from(known.lookups).saturating_sub(lookups) as u32;
        }
        let is_known = known.lookups > 0;
        if !is_known {
            shard.remove(&inode);
        }
        is_known
    }

    /// The kernel asks for entries of a directory.
    pub(crate) fn note_entries(&self, directory: InodeNo) {
        if let Some(known) = self.shard(directory).lock().get_mut(&directory) {
            known.is_collected = true;
        }
    }

    /// An operation has changed a directory, and its reply has not been sent yet.
    pub(crate) fn note_change(&self, directory: InodeNo) {
        if let Some(known) = self.shard(directory).lock().get_mut(&directory) {
            known.is_old |= known.is_collected;
        }
    }

    /// A listing ends. Returns whether the first page must be dropped before the empty reply. Nothing is known of what
    /// the kernel has of a directory that is not here.
    pub(crate) fn is_old(&self, directory: InodeNo) -> bool {
        self.shard(directory).lock().get(&directory).is_none_or(|known| known.is_old)
    }

    /// The first page has been dropped, and the reply has not been sent yet.
    pub(crate) fn note_drop(&self, directory: InodeNo) {
        if let Some(known) = self.shard(directory).lock().get_mut(&directory) {
            known.is_old = false;
        }
    }

    fn shard(&self, directory: InodeNo) -> &Mutex<HashMap<InodeNo, Known>> {
        &self.shards[(directory.0 % SHARDS) as usize]
    }
}

#[cfg(test)]
mod tests;
