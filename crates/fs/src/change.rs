//! A change of the file system: a transaction and the inode records that it changes.
//!
//! `Fs::commit` is the only way in which a record reaches the store or the inode cache, so the two never differ. Only
//! the cache has the record of a detached inode (`unlinked.rs`).

use tree::{Lsn, Tx};

use crate::errno::Result;
use crate::format::{INODE, ORPHAN, Record, inode_key, marker, number_key};
use crate::inodes::Locked;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Changes that are committed together or not at all.
pub(crate) struct Change {
    pub(crate) tx: Tx,
    records: Vec<(InodeNo, After)>,
}

/// What becomes of an inode's record.
enum After {
    /// It is stored.
    Saved(Record),
    /// It is deleted, and memory keeps it.
    Detached(Record),
    /// It is deleted.
    Erased,
}

impl Change {
    /// A change that needs free space.
    pub(crate) fn new() -> Self {
        Change { tx: Tx::new(), records: Vec::new() }
    }

    /// A change that frees space and must succeed on a full volume.
    pub(crate) fn reclaiming() -> Self {
        Change { tx: Tx::reclaiming(), records: Vec::new() }
    }

    /// Replaces the inode's record.
    pub(crate) fn save(&mut self, inode: InodeNo, record: Record) {
        self.set(inode, After::Saved(record));
    }

    /// Deletes the inode in the tables. Its record stays in memory, because a kernel references it.
    pub(crate) fn detach(&mut self, inode: InodeNo, record: Record) {
        self.set(inode, After::Detached(record));
    }

    /// Deletes the inode.
    pub(crate) fn erase(&mut self, inode: InodeNo) {
        self.set(inode, After::Erased);
    }

    fn set(&mut self, inode: InodeNo, after: After) {
        match self.records.iter_mut().find(|(saved, _)| *saved == inode) {
            Some((_, saved)) => *saved = after,
            None => self.records.push((inode, after)),
        }
    }

    /// A detached inode stays so unless its new record needs rows.
    fn keep_detached(&mut self, locked: &Locked) {
        for (inode, after) in &mut self.records {
            *after = match std::mem::replace(after, After::Erased) {
                After::Saved(record) if record.may_be_detached() && locked.is_detached(*inode) => {
                    After::Detached(record)
                }
                after => after,
            };
        }
    }
}

impl Fs {
    /// Commits a change. `locked` contains every inode whose record changes.
    pub(crate) fn commit(&self, mut change: Change, locked: &mut Locked) -> Result<Lsn> {
        change.keep_detached(locked);
        for (inode, after) in &change.records {
            self.put_row(&mut change.tx, *inode, after, locked.is_detached(*inode));
        }
        let is_stored = !change.tx.is_empty();
        let lsn = self.store.commit(change.tx)?;
        if is_stored {
            self.runtime.committed(self.clock.monotonic_ns());
        }
        if self.store.is_pressed() {
            self.runtime.request_checkpoint();
        }
        self.wake_for_space();
        for (inode, after) in change.records {
            match after {
                After::Saved(record) => locked.install(inode, record),
                After::Detached(record) => locked.detach(inode, record),
                After::Erased => locked.remove(inode),
            }
        }
        Ok(lsn)
    }

    /// Adds the write of an inode's row. A detached inode that gets a row is an orphan from now on, unless it gets a name.
    fn put_row(&self, tx: &mut Tx, inode: InodeNo, after: &After, was_detached: bool) {
        let group = self.group(inode);
        match after {
            After::Saved(record) => tx.update(group, INODE, inode_key(inode), record.encode()),
            After::Detached(_) | After::Erased if was_detached => {}
            After::Detached(_) | After::Erased => tx.delete(group, INODE, inode_key(inode)),
        }
        let is_orphan = matches!(after, After::Saved(record) if record.links == 0);
        if was_detached && is_orphan && !rt::is_planted("break-detached-orphan") {
            tx.put(group, ORPHAN, number_key(inode), marker());
        }
    }
}

impl Record {
    /// Adds to the count of blocks. It does not fall below zero, because lost blocks have been removed without being
    /// counted.
    pub(crate) fn add_blocks(&mut self, change: i64) {
        self.blocks = self.blocks.saturating_add_signed(change);
    }
}
