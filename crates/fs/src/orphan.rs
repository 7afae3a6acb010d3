//! Deleting inodes and finishing truncations and range moves, a few hundred extents at a time.
//!
//! An inode that has lost its last name has a row in the table of orphans, unless the transaction that removes the
//! name deletes the inode as well. A file that is still being truncated, or in which a range is being moved, has a row
//! in the table of intents. The row is written by the transaction that begins the work. After a crash, these
//! tables and the table of uncounted objects (`reflink.rs`) are scanned for unfinished work. `step` does the scan in
//! pieces, so a mount does not wait for it. Each piece of work checks again, under the inode's lock, whether there is
//! anything to do. So work may be queued twice or too early.
//!
//! Work in progress is in no queue. An operation that finds no space, and no queued work that would free some, waits
//! for the work in progress ([`Fs::make_space`]), because it may be about to free space.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use extent::Object;
use rt::order::{Guard, LockOrder, Ordered};
use rt::sync::{Mutex, RwLock, RwLockReadGuard};
use tree::{Group, Table};

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::{
    FLAG_SHIFTING, FLAG_TRUNCATING, INTENT, ORPHAN, Record, SHADOW, XATTR, decode_inode_key, inode_key,
    number_key, xattr_key,
};
use crate::inodes::Locked;
use crate::truncate::STEP_EXTENTS;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Rows of a table that one step of the scan takes.
const SCAN_ROWS: usize = 64;
/// Rows of attributes that one transaction deletes.
const STEP_ATTRIBUTES: usize = 64;

/// Work to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Delete an inode if it has neither a name nor a handle.
    Reap(InodeNo),
    /// Continue with the intent of a file.
    Intent(InodeNo),
    /// Remove an uncounted object, from this block on.
    Uncounted(Object, u64),
}

/// The work that is left, and the progress of the scan for work that earlier mounts left.
pub(crate) struct Backlog {
    queue: Mutex<VecDeque<Work>>,
    /// The next row to look at. None: the scan is complete.
    scan: Mutex<Option<Scan>>,
    /// Held shared during work. Taken exclusively for a moment by a thread that has waited for all work in progress.
    /// Taken before the lock of any inode.
    in_progress: Ordered<RwLock<()>>,
    /// Uncounted objects that an operation is building. Only this operation may remove them.
    building: Mutex<BTreeSet<Object>>,
    /// Counts pieces of work that may have freed space or have found more work.
    advances: AtomicU64,
}

struct Scan {
    group: u16,
    table: Table,
    from: Vec<u8>,
}

impl Backlog {
    pub(crate) fn new(read_only: bool) -> Self {
        let scan = (!read_only).then(|| Scan { group: 0, table: ORPHAN, from: Vec::new() });
        Backlog {
            queue: Mutex::default(),
            scan: Mutex::new(scan),
            in_progress: Ordered::rwlock(LockOrder::BacklogWork, ()),
            building: Mutex::default(),
            advances: AtomicU64::new(0),
        }
    }

    pub(crate) fn push(&self, work: Work) {
        self.queue.lock().push_back(work);
    }

    fn pop(&self) -> Option<Work> {
        self.queue.lock().pop_front()
    }

    /// Queues unfinished work again. Deletions continue at once, because others may wait for their space.
    fn push_again(&self, work: Work) {
        let mut queue = self.queue.lock();
        match work {
            Work::Reap(_) => queue.push_front(work),
            Work::Intent(_) | Work::Uncounted(..) => queue.push_back(work),
        }
    }

    /// Marks work that is in no queue as in progress, until the guard is dropped.
    pub(crate) fn start_work(&self) -> Guard<RwLockReadGuard<'_, ()>> {
        self.in_progress.read()
    }

    /// Must be called before the uncounted object exists.
    pub(crate) fn begin_building(&self, object: Object) {
        self.building.lock().insert(object);
    }

    pub(crate) fn end_building(&self, object: Object) {
        self.building.lock().remove(&object);
    }

    pub(crate) fn is_building(&self, object: Object) -> bool {
        self.building.lock().contains(&object)
    }

    fn len(&self) -> usize {
        self.queue.lock().len()
    }

    pub(crate) fn note_advance(&self) {
        self.advances.fetch_add(1, Ordering::SeqCst);
    }

    /// The progress of the work. An operation reads it before it looks for space.
    pub(crate) fn advances(&self) -> u64 {
        self.advances.load(Ordering::SeqCst)
    }

    /// Whether no work is left in the queue or from earlier mounts. Waits for all work in progress.
    pub(crate) fn is_done(&self) -> bool {
        drop(self.in_progress.write());
        self.scan.lock().is_none() && self.len() == 0
    }

    /// Waits for all work in progress. Returns whether there has been progress since `before`.
    fn has_advanced(&self, before: u64) -> bool {
        drop(self.in_progress.write());
        self.advances() != before
    }
}

impl Fs {
    /// Deletes an inode that has just lost its last name or handle. Later steps do what cannot be done now or in one
    /// transaction.
    pub(crate) fn dispose(&self, inode: InodeNo) {
        let _in_progress = self.backlog.start_work();
        self.dispose_in_progress(inode);
    }

    /// The same for a caller that has marked this as work in progress. A read-only volume queues the inode, because
    /// it may be remounted writable and nothing else would delete the inode then.
    pub(crate) fn dispose_in_progress(&self, inode: InodeNo) {
        if self.is_read_only() {
            return self.backlog.push(Work::Reap(inode));
        }
        match self.work_on(Work::Reap(inode)) {
            Ok(None) => return,
            Ok(Some(_)) => {}
            Err(error) => tracing::warn!("inode {} will be deleted later: {error}", inode.0),
        }
        self.backlog.push(Work::Reap(inode));
        self.runtime.wake();
    }

    /// Performs a piece of the backlog. Returns false when there is none. Work that finds no space is queued behind
    /// the other work, which may free some.
    ///
    /// # Errors
    /// `NoSpace` or `NoMemory` if there is work but no space or memory for any of it.
    pub(crate) fn step_backlog(&self) -> Result<bool> {
        if self.is_read_only() {
            return Ok(false);
        }
        let mut stuck = None;
        for _ in 0..self.backlog.len() {
            let _in_progress = self.backlog.start_work();
            let Some(work) = self.backlog.pop() else { break };
            match self.work_on(work) {
                Ok(more) => {
                    more.into_iter().for_each(|work| self.backlog.push_again(work));
                    return Ok(true);
                }
                Err(lack @ (FsError::NoSpace | FsError::NoMemory)) => {
                    self.backlog.push(work);
                    stuck = Some(lack);
                }
                // An error (damaged metadata) must not stop the other work. The row stays, so the next mount tries
                // again.
                Err(error) => return Err(error),
            }
        }
        match (self.step_scan()?, stuck) {
            (false, Some(lack)) => Err(lack),
            (worked, _) => Ok(worked),
        }
    }

    /// Works on the backlog as far as there is space. Returns false if nothing could be done. The caller holds no
    /// lock.
    pub(crate) fn work_backlog(&self) -> Result<bool> {
        let mut worked = false;
        loop {
            match self.step_backlog() {
                Ok(true) => worked = true,
                Ok(false) | Err(FsError::NoSpace) => return Ok(worked),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there may be more space than when the progress was `before`. Works on the backlog, or waits for work
    /// in progress, or else gives up unlinked files that only a kernel references. The caller holds no lock.
    pub(crate) fn make_space(&self, before: u64) -> Result<bool> {
        if self.work_backlog()? || self.backlog.has_advanced(before) {
            return Ok(true);
        }
        let given_up = self.release_unlinked();
        Ok(self.work_backlog()? || given_up)
    }

    /// Performs a piece of work that was in no queue. Returns the work that is left. The caller holds no lock.
    pub(crate) fn work_on_unqueued(&self, work: Work) -> Result<Option<Work>> {
        let _in_progress = self.backlog.start_work();
        self.work_on(work)
    }

    /// Returns the work that is left.
    fn work_on(&self, work: Work) -> Result<Option<Work>> {
        let done = match work {
            Work::Reap(inode) => self.reap(inode)?,
            Work::Intent(inode) => {
                let node = self.node(inode)?;
                let mut locked = self.lock_one(&node);
                let done = self.step_range_move(&mut locked, inode)? && self.trim(&mut locked, inode)?;
                self.backlog.note_advance();
                done
            }
            Work::Uncounted(object, from) => return self.step_uncounted(object, from),
        };
        Ok((!done).then_some(work))
    }

    fn reap(&self, inode: InodeNo) -> Result<bool> {
        let node = self.node(inode)?;
        let mut locked = Locked::one(&node);
        let mut record = match locked.record(inode) {
            Ok(record) if record.links == 0 && locked.is_closed(inode) => record.clone(),
            _ => return Ok(true),
        };
        self.discard_delayed(&node);
        if locked.is_detached(inode) {
            locked.remove(inode);
            return Ok(true);
        }
        let mut change = Change::reclaiming();
        let mut map = None;
        let mut done = true;
        let has_blocks = !record.has_no_blocks();
        if has_blocks {
            let object = record.object(inode);
            let (all, file_class) = ((0, u64::MAX), record.file_class);
            let (held, none_left) =
                self.extents.remove(&mut change.tx, object, all, STEP_EXTENTS, file_class)?;
            record.add_blocks(held.blocks_added());
            (map, done) = (Some(held), none_left);
        }
        if done {
            done = self.reap_attributes(&mut change, inode, &record)?;
        }
        match done {
            true => self.erase(&mut change, inode, &record),
            false => change.save(inode, record),
        }
        self.commit(change, &mut locked)?;
        drop(map);
        if has_blocks {
            self.backlog.note_advance();
        }
        Ok(done)
    }

    fn reap_attributes(&self, change: &mut Change, inode: InodeNo, record: &Record) -> Result<bool> {
        if record.xattrs == 0 {
            return Ok(true);
        }
        let group = self.group(inode);
        let (from, to) = (xattr_key(inode, 0, 0, 0), inode_key(InodeNo(inode.0 + 1)));
        let rows = self.store.range(group, XATTR, &from, &to, STEP_ATTRIBUTES)?;
        let done = rows.len() < STEP_ATTRIBUTES;
        for (key, _) in rows {
            change.tx.delete(group, XATTR, key);
        }
        Ok(done)
    }

    fn erase(&self, change: &mut Change, inode: InodeNo, record: &Record) {
        let group = self.group(inode);
        change.tx.delete(group, ORPHAN, number_key(inode));
        if record.has(FLAG_TRUNCATING | FLAG_SHIFTING) {
            change.tx.delete(group, INTENT, number_key(inode));
        }
        change.erase(inode);
    }

    /// Looks at a few more rows that earlier mounts left. Returns false when the scan is complete.
    fn step_scan(&self) -> Result<bool> {
        let mut scan = self.backlog.scan.lock();
        let Some(at) = &mut *scan else { return Ok(false) };
        let rows = self.store.range(Group(at.group), at.table, &at.from, &[], SCAN_ROWS)?;
        for (key, _) in &rows {
            let inode = decode_inode_key(key)?;
            self.backlog.push(match at.table {
                ORPHAN => Work::Reap(inode),
                INTENT => Work::Intent(inode),
                _ => Work::Uncounted(Object(inode.0), 0),
            });
            self.backlog.note_advance();
        }
        match rows.last() {
            Some((key, _)) => at.from = [key.as_slice(), &[0]].concat(),
            None => *scan = at.next(self.store.info().groups),
        }
        Ok(true)
    }
}

impl Scan {
    fn next(&self, groups: u16) -> Option<Scan> {
        match self.table {
            ORPHAN => Some(Scan { group: self.group, table: INTENT, from: Vec::new() }),
            INTENT => Some(Scan { group: self.group, table: SHADOW, from: Vec::new() }),
            _ if self.group + 1 < groups => {
                Some(Scan { group: self.group + 1, table: ORPHAN, from: Vec::new() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
