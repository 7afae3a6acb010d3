//! A change of the file system: a transaction and the inode records that it changes.
//!
//! `Fs::commit` is the only way in which a record reaches the store or the inode cache, so the two never differ.

use tree::{Lsn, Tx};

use crate::errno::Result;
use crate::format::{INODE, Record, inode_key};
use crate::inodes::Locked;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Changes that are committed together or not at all.
pub(crate) struct Change {
    pub(crate) tx: Tx,
    records: Vec<(InodeNo, Option<Record>)>,
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
        self.set(inode, Some(record));
    }

    /// Deletes the inode.
    pub(crate) fn erase(&mut self, inode: InodeNo) {
        self.set(inode, None);
    }

    fn set(&mut self, inode: InodeNo, record: Option<Record>) {
        match self.records.iter_mut().find(|(saved, _)| *saved == inode) {
            Some((_, saved)) => *saved = record,
            None => self.records.push((inode, record)),
        }
    }
}

impl Fs {
    /// Commits a change. `locked` contains every inode whose record changes.
    pub(crate) fn commit(&self, mut change: Change, locked: &mut Locked) -> Result<Lsn> {
        for (inode, record) in &change.records {
            let group = self.group(*inode);
            match record {
                Some(record) => change.tx.put(group, INODE, inode_key(*inode), record.encode()),
                None => change.tx.delete(group, INODE, inode_key(*inode)),
            }
        }
        let lsn = self.store.commit(change.tx)?;
        self.runtime.committed(self.clock.monotonic_ns());
        if self.store.is_pressed() {
            self.runtime.request_checkpoint();
        }
        self.wake_for_space();
        for (inode, record) in change.records {
            match record {
                Some(record) => locked.install(inode, record),
                None => locked.remove(inode),
            }
        }
        Ok(lsn)
    }
}

impl Record {
    /// Adds to the count of blocks. It does not fall below zero, because lost blocks have been removed without being
    /// counted.
    pub(crate) fn add_blocks(&mut self, change: i64) {
        self.blocks = self.blocks.saturating_add_signed(change);
    }
}
