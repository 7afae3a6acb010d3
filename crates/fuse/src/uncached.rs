//! A mount of a volume that its process changes by itself too, beside the kernel.
//!
//! Notifying the kernel of each change is not enough. A notification may have to wait for a request, and a program can
//! read the old state meanwhile. With the writeback cache, the kernel also owns sizes, times and dirty pages. So the
//! kernel caches as little as possible of such a mount, and operations arrive here:
//!
//! * Names, attributes and listings are valid for no time. The absence of a name is an error and no cached entry.
//! * Files are opened with `FOPEN_DIRECT_IO`, and there is no writeback cache. A program can map a file privately, and
//!   not shared (`ENODEV`).
//! * `O_DIRECT` is refused: the kernel lets asynchronous access with it depend on its own size of the file. New kernels
//!   do so for all asynchronous access (`io_uring`, `libaio`). Without `ASYNC_DIO`, a read that begins before that size
//!   is complete, and a short write is no error.
//! * A program that appends has its data written at the end that the file has here (`O_APPEND`), because the kernel's
//!   size of the file can be old.
//!
//! **Exceptions.** Private mappings, `sendfile` and `splice` use pages of the kernel. It drops them at each open, and
//! when it learns of another size or time of the file (`AUTO_INVAL_DATA`). When an asynchronous write fails behind the
//! kernel's size of the file, the kernel cuts the file to that size. The request is the same as for `ftruncate`,
//! which sends no time here, so it has to be obeyed.
//!
//! **References.** The volume keeps an inode without a name until the kernel forgets it ([`fs::Fs::keep_unlinked`]).
//! The kernel forgets only what it has looked up, and the process removes names that the kernel has never seen. So the
//! lookups are counted here. An inode that loses its last name is released at once if the kernel does not reference it.
//! A lookup is counted before the inode is looked at again: either the lookup finds that the inode has no name, or the
//! removal finds the lookup.

use std::collections::HashMap;
use std::sync::Arc;

use fs::{Fs, InodeNo};
use rt::sync::Mutex;

/// Enough that threads seldom meet.
const SHARDS: u64 = 64;

/// The inodes that the kernel references, and those that have lost their last name.
pub(crate) struct References {
    lookups: Box<[Mutex<HashMap<InodeNo, u64>>]>,
    unlinked: Mutex<Vec<InodeNo>>,
}

/// For the process that changes the volume of an uncached mount.
#[derive(Clone)]
pub struct Changes(pub(crate) Arc<References>);

impl Changes {
    /// Must be called after each operation that can have removed the last name of an inode.
    pub fn release_unlinked(&self, fs: &Fs) {
        self.0.release_unlinked(fs);
    }
}

impl References {
    pub(crate) fn new() -> References {
        References { lookups: (0..SHARDS).map(|_| Mutex::default()).collect(), unlinked: Mutex::default() }
    }

    /// A reply that is about to be sent makes the kernel know an inode, once more.
    pub(crate) fn note_lookup(&self, inode: InodeNo) {
        *self.shard(inode).lock().entry(inode).or_default() += 1;
    }

    /// The kernel drops `lookups` of its references. Returns whether it has further ones.
    pub(crate) fn forget(&self, inode: InodeNo, lookups: u64) -> bool {
        let mut shard = self.shard(inode).lock();
        let Some(known) = shard.get_mut(&inode) else { return false };
        *known = known.saturating_sub(lookups);
        let is_known = *known > 0;
        if !is_known {
            shard.remove(&inode);
        }
        is_known
    }

    /// An inode has lost its last name, and locks are held.
    pub(crate) fn note_unlinked(&self, inode: InodeNo) {
        self.unlinked.lock().push(inode);
    }

    /// Releases inodes without a name that the kernel does not reference. It reports that it forgets the others.
    pub(crate) fn release_unlinked(&self, fs: &Fs) {
        let unlinked = std::mem::take(&mut *self.unlinked.lock());
        let is_known = |inode: &InodeNo| self.shard(*inode).lock().contains_key(inode);
        unlinked.into_iter().filter(|inode| !is_known(inode)).for_each(|inode| fs.forget(inode));
    }

    fn shard(&self, inode: InodeNo) -> &Mutex<HashMap<InodeNo, u64>> {
        &self.lookups[(inode.0 % SHARDS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_known_until_each_lookup_is_forgotten() {
        let (references, inode) = (References::new(), InodeNo(70));
        (0..3).for_each(|_| references.note_lookup(inode));
        assert!(references.forget(inode, 2));
        assert!(!references.forget(inode, 1));
        assert!(!references.forget(inode, 1), "the kernel is not trusted");
        assert!(references.shard(inode).lock().is_empty());
    }
}
