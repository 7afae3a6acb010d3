//! Deleting inodes and finishing truncations and moves of ranges, a few hundred extents at a time.
//!
//! An inode that lost its last name has a row in the table of orphans, and a file that is still
//! being truncated, or in which a range is being moved, one among the intents, both written by the
//! transaction that made them so. What is left of either after a crash is found by a scan of these
//! tables and that of shadows (`reflink.rs`), which `step` does in pieces; mounting does not wait for it. Every piece of work looks again, under the inode's lock,
//! whether there is anything to do: so it does no harm that work is queued twice or too early.
//!
//! What somebody has in hand is in no queue. Who finds no room, and nothing to do that would make some, waits
//! for those ([`Fs::make_space`]): what they are about to give back may be what he needs.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use extent::Object;
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

/// Something to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Delete an inode, if it has neither name nor handle.
    Reap(InodeNo),
    /// Go on with a file's intent.
    Intent(InodeNo),
    /// End a shadow, from this block on.
    Shadow(Object, u64),
}

/// What is left to do, and how far the scan for what earlier mounts left has come.
pub(crate) struct Backlog {
    queue: Mutex<VecDeque<Work>>,
    /// The next row to look at; None: everything was looked at.
    scan: Mutex<Option<Scan>>,
    /// Held shared by those who have work in hand, and alone for a moment by who has waited for them. Taken
    /// before any inode's lock.
    in_hand: RwLock<()>,
    /// Shadows that somebody is making, and nobody else may end.
    making: Mutex<BTreeSet<Object>>,
    /// Pieces of work that may have made room, or have found some to do.
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
            in_hand: RwLock::new(()),
            making: Mutex::default(),
            advances: AtomicU64::new(0),
        }
    }

    pub(crate) fn push(&self, work: Work) {
        self.queue.lock().push_back(work);
    }

    fn pop(&self) -> Option<Work> {
        self.queue.lock().pop_front()
    }

    /// What is not done yet. A deletion goes on at once: others may wait for its room.
    fn push_again(&self, work: Work) {
        let mut queue = self.queue.lock();
        match work {
            Work::Reap(_) => queue.push_front(work),
            Work::Intent(_) | Work::Shadow(..) => queue.push_back(work),
        }
    }

    /// For as long as somebody works on what is in no queue.
    pub(crate) fn take_in_hand(&self) -> RwLockReadGuard<'_, ()> {
        self.in_hand.read()
    }

    /// To be called before the shadow exists.
    pub(crate) fn begin_making(&self, shadow: Object) {
        self.making.lock().insert(shadow);
    }

    pub(crate) fn end_making(&self, shadow: Object) {
        self.making.lock().remove(&shadow);
    }

    pub(crate) fn is_making(&self, shadow: Object) -> bool {
        self.making.lock().contains(&shadow)
    }

    fn len(&self) -> usize {
        self.queue.lock().len()
    }

    pub(crate) fn note_advance(&self) {
        self.advances.fetch_add(1, Ordering::SeqCst);
    }

    /// How far the work has come: to be asked before one looks for room.
    pub(crate) fn advances(&self) -> u64 {
        self.advances.load(Ordering::SeqCst)
    }

    /// Whether nothing is left to do, as far as the queue and earlier mounts tell. Waits for all that is in hand.
    pub(crate) fn is_done(&self) -> bool {
        drop(self.in_hand.write());
        self.scan.lock().is_none() && self.len() == 0
    }

    /// Waits for all that is in hand; whether the work has come further than that.
    fn has_advanced(&self, before: u64) -> bool {
        drop(self.in_hand.write());
        self.advances() != before
    }
}

impl Fs {
    /// Deletes an inode that has just lost its last name or handle. What cannot be done at once,
    /// or not now, is done by later steps.
    pub(crate) fn dispose(&self, inode: InodeNo) {
        let _in_hand = self.backlog.take_in_hand();
        self.dispose_in_hand(inode);
    }

    /// The same by who has it in hand. A volume that may not change keeps it in mind: one that is held takes changes
    /// again some day, and nobody would look for what was closed meanwhile.
    pub(crate) fn dispose_in_hand(&self, inode: InodeNo) {
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

    /// One piece of work that is left from before; false when there is none. What finds no room lets
    /// everything else go first: that may make some.
    ///
    /// # Errors
    /// `NoSpace` or `NoMemory` when there is work, and no room for any of it.
    pub(crate) fn step_backlog(&self) -> Result<bool> {
        if self.is_read_only() {
            return Ok(false);
        }
        let mut stuck = None;
        for _ in 0..self.backlog.len() {
            let _in_hand = self.backlog.take_in_hand();
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
                // What cannot be done (its metadata is damaged) must not stop the rest. Its row stays,
                // so the next mount tries again.
                Err(error) => return Err(error),
            }
        }
        match (self.step_scan()?, stuck) {
            (false, Some(lack)) => Err(lack),
            (worked, _) => Ok(worked),
        }
    }

    /// Everything that is left from before, as far as there is room; false when nothing could be done.
    /// No lock is held.
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

    /// Whether there may be more room than when the work had come as far as `before`: does what is left to do, or waits
    /// for those who do it, or else gives up what is only known. No lock is held.
    pub(crate) fn make_space(&self, before: u64) -> Result<bool> {
        if self.work_backlog()? || self.backlog.has_advanced(before) {
            return Ok(true);
        }
        let given_up = self.release_unlinked();
        Ok(self.work_backlog()? || given_up)
    }

    /// A piece of work that was in no queue; what is left to do. No lock is held.
    pub(crate) fn work_in_hand(&self, work: Work) -> Result<Option<Work>> {
        let _in_hand = self.backlog.take_in_hand();
        self.work_on(work)
    }

    /// What is left to do.
    fn work_on(&self, work: Work) -> Result<Option<Work>> {
        let done = match work {
            Work::Reap(inode) => self.reap(inode)?,
            Work::Intent(inode) => {
                let node = self.node(inode)?;
                let mut locked = Locked::one(&node);
                let done = self.step_shift(&mut locked, inode)? && self.trim(&mut locked, inode)?;
                self.backlog.note_advance();
                done
            }
            Work::Shadow(object, from) => return self.work_on_shadow(object, from),
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
        let mut change = Change::reclaiming();
        let mut map = None;
        let mut done = true;
        let has_blocks = !record.has_no_blocks();
        if has_blocks {
            let object = record.object(inode);
            let (all, kind) = ((0, u64::MAX), record.data_kind);
            let (held, none_left) = self.extents.remove(&mut change.tx, object, all, STEP_EXTENTS, kind)?;
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

    /// Looks at a few more rows of what earlier mounts left; false when all were looked at.
    fn step_scan(&self) -> Result<bool> {
        let mut scan = self.backlog.scan.lock();
        let Some(at) = &mut *scan else { return Ok(false) };
        let rows = self.store.range(Group(at.group), at.table, &at.from, &[], SCAN_ROWS)?;
        for (key, _) in &rows {
            let inode = decode_inode_key(key)?;
            self.backlog.push(match at.table {
                ORPHAN => Work::Reap(inode),
                INTENT => Work::Intent(inode),
                _ => Work::Shadow(Object(inode.0), 0),
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
