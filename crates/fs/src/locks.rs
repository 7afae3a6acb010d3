//! Advisory locks for those who share a volume in one process: of whole files (`flock`), and of ranges of
//! bytes (record locks), which belong to a process-like owner (POSIX) or to a handle (OFD).
//!
//! They are in memory only: nothing of them is ever on the device, they end with the mount, and a mount
//! that takes no changes grants them too. They hang off the inode in memory ([`FileLocks`]), which handles
//! keep there; a file of which nobody ever asked for a lock has none of this, and no operation but those
//! here looks at it. The two kinds do not see each other, as on Linux.
//!
//! I-LOCK-1: locks of one kind on one file that have different owners and overlap are both shared. An
//! owner's ranges are in order, do not overlap, and touch only where their modes differ (`records`).
//! Whoever holds a lock has a handle of the file: its drop takes the locks of its own away, and those of
//! every POSIX owner who took some of what he holds through it.
//!
//! States of a request: asked → granted or refused, or (if it may wait) asked → waiting → asked …: who
//! waits has been promised nothing, and asks anew whenever the locks of the file have changed. Requests of
//! POSIX owners that wait are the edges of a graph of the mount (`waits`), and one that would close a circle
//! in it is refused.
//!
//! The order: a file's table, then that graph; nothing else is taken under either, and neither is touched by
//! what needs no lock of this module.
//!
//! What it does not do: keep reading or writing back (locks are advice), be fair (of those who wait, the
//! quickest wins, and readers in turn can keep a writer out), end a wait for any reason but those above, see
//! deadlocks in which a whole-file lock or a handle's range has a part, know which thread of an owner waits
//! (an owner of whom one thread waits counts as waiting), or reach a mount: there the kernel keeps the locks
//! and passes none on.

mod overlap;
mod records;
mod waits;
mod whole;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::errno::{FsError, Result};
use crate::handle::Handle;
use crate::volume::Fs;
use records::{Asked, Owner, RecordLocks};
use waits::Waits;
use whole::WholeLocks;

/// Ranges that one owner can hold in one file (ENOLCK beyond); ranges that touch and have one mode are one.
pub const RECORD_LOCKS_MAX: usize = 4096;

/// Whom a lock lets in besides its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Others who share. As a record lock: a read lock.
    Shared,
    /// Nobody. As a record lock: a write lock.
    Exclusive,
}

/// What becomes of a request that others' locks are in the way of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// [`FsError::WouldBlock`].
    Refuse,
    /// It waits until it can be granted.
    Wait,
}

/// Whose a record lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// A process, by a number that the caller chooses (POSIX, `F_SETLK`). Its locks on a file end when it
    /// closes any handle of the file ([`Fs::close_locks`]).
    Process(u64),
    /// The handle (OFD, `F_OFD_SETLK`): its locks end when it is dropped.
    Handle,
}

/// Bytes of a file that a record lock covers; not empty, and not bounded by the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    start: u64,
    /// Not itself in the range; > start.
    end: u64,
}

impl LockRange {
    /// An end beyond every byte that a file will ever have.
    pub const INFINITY: u64 = u64::MAX;
    /// The whole file, however it grows.
    pub const WHOLE: LockRange = LockRange { start: 0, end: Self::INFINITY };

    /// From `start` up to `end`, which is not in it; an empty one is refused (EINVAL).
    pub fn new(start: u64, end: u64) -> Result<LockRange> {
        if start < end { Ok(LockRange { start, end }) } else { Err(FsError::Invalid) }
    }

    /// The first byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The first byte behind it, or [`LockRange::INFINITY`].
    pub fn end(self) -> u64 {
        self.end
    }
}

/// A record lock: as it is asked for, or as somebody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLock {
    /// Whose.
    pub owner: LockOwner,
    /// Which bytes.
    pub range: LockRange,
    /// Against whom.
    pub mode: LockMode,
}

/// What a mount knows of locks beside the tables of its files.
#[derive(Default)]
pub(crate) struct Locks {
    /// The last of the numbers that were given to handles.
    last_handle: AtomicU64,
    waits: Waits,
}

/// The locks of one file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    whole: WholeLocks,
    records: RecordLocks,
}

/// A handle that has asked for a lock; 0 stands for those that never did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HandleId(u64);

/// The place in a handle for its number as an owner of locks.
#[derive(Default)]
pub(crate) struct Locker(AtomicU64);

impl Locker {
    fn id(&self) -> HandleId {
        HandleId(self.0.load(Ordering::SeqCst))
    }

    /// Its number, which it has from now on.
    fn name(&self, locks: &Locks) -> HandleId {
        if self.id() == HandleId(0) {
            let number = locks.last_handle.fetch_add(1, Ordering::SeqCst) + 1;
            // Of two threads with one handle the first has named it.
            let _ = self.0.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.id()
    }
}

impl LockOwner {
    fn of(self, handle: HandleId) -> Owner {
        match self {
            LockOwner::Process(number) => Owner::Process(number),
            LockOwner::Handle => Owner::Handle(handle),
        }
    }
}

/// Locks of whole files, with the semantics of flock(2).
impl Fs {
    /// Locks the whole file for the handle, whatever that was opened for; of a handle that has a lock,
    /// changes the mode. The lock ends by [`Fs::unlock_file`] or when the handle is dropped.
    ///
    /// A change of mode that has to wait gives the old lock up first: others may come between. One that is
    /// refused (EAGAIN) leaves the old lock as it was.
    pub fn lock_file(&self, handle: &Handle, mode: LockMode, on_conflict: OnConflict) -> Result<()> {
        let id = handle.locker.name(&self.locks);
        handle.node().locks.get_or_init(Box::default).whole.lock(id, mode, on_conflict)
    }

    /// Ends the handle's lock of the whole file, if it has one.
    pub fn unlock_file(&self, handle: &Handle) {
        if let Some(locks) = handle.node().locks.get() {
            locks.whole.unlock(handle.locker.id());
        }
    }
}

/// Locks of ranges of bytes, with the semantics of fcntl(2).
impl Fs {
    /// Locks a range. What the owner held of it before has the new mode; around it his locks stay, and
    /// ranges that then touch and have one mode become one. Refused, and then nothing has changed: EBADF of
    /// a handle that is not open for reading (a shared lock) or for writing (an exclusive one); EAGAIN if
    /// another's lock is in the way; EDEADLK if that owner waits, directly or through others, for a POSIX
    /// owner who asks to wait here; ENOLCK beyond [`RECORD_LOCKS_MAX`].
    pub fn lock_range(&self, handle: &Handle, lock: &RecordLock, on_conflict: OnConflict) -> Result<()> {
        match lock.mode {
            LockMode::Shared => handle.check_readable()?,
            LockMode::Exclusive => handle.check_writable()?,
        }
        let through = handle.locker.name(&self.locks);
        let asked = Asked { owner: lock.owner.of(through), through, range: lock.range, mode: lock.mode };
        let records = &handle.node().locks.get_or_init(Box::default).records;
        records.lock(&asked, on_conflict, self.locks.waits.of(handle.inode()))
    }

    /// Ends the owner's locks in a range. To take bytes out of the middle of a locked range makes two of it:
    /// beyond [`RECORD_LOCKS_MAX`] that is refused (ENOLCK).
    pub fn unlock_range(&self, handle: &Handle, owner: LockOwner, range: LockRange) -> Result<()> {
        let Some(locks) = handle.node().locks.get() else { return Ok(()) };
        locks.records.unlock(owner.of(handle.locker.id()), range, self.locks.waits.of(handle.inode()))
    }

    /// Another's lock that is in the way of this one, the first in the file (`F_GETLK`); `None` if the lock
    /// could be taken. One of [`LockOwner::Handle`] is another handle's. It may be gone when this returns.
    pub fn conflicting_lock(&self, handle: &Handle, lock: &RecordLock) -> Option<RecordLock> {
        let locks = handle.node().locks.get()?;
        locks.records.conflict(lock.owner.of(handle.locker.id()), lock.range, lock.mode)
    }

    /// A process closes a handle of the file: all its record locks on the file end, through whichever handle
    /// they were taken. Who gives several processes one handle says so when each of them closes it. Dropping
    /// a handle says it for all who took some of the locks that they hold through it.
    pub fn close_locks(&self, handle: &Handle, process: u64) {
        if let Some(locks) = handle.node().locks.get() {
            locks.records.close(process, self.locks.waits.of(handle.inode()));
        }
    }

    /// The handle is being dropped.
    pub(crate) fn drop_locks(&self, handle: &Handle) {
        let id = handle.locker.id();
        if id == HandleId(0) {
            return;
        }
        if let Some(locks) = handle.node().locks.get() {
            locks.whole.unlock(id);
            locks.records.forget(id, self.locks.waits.of(handle.inode()));
        }
    }
}

#[cfg(test)]
mod tests;
