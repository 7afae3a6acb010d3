//! Advisory locks for users of a volume in one process: locks of whole files (`flock`), and locks of byte ranges
//! (record locks), whose owner is a process (POSIX) or a handle (OFD).
//!
//! Locks exist in memory only. They end with the mount, and a read-only mount grants them too. They belong to the
//! inode in memory ([`FileLocks`]), which handles keep there. A file for which no lock was ever requested has none of
//! this state, and only the operations in this module use it. The two kinds do not affect each other, as on Linux.
//!
//! I-LOCK-1: if two locks of one kind on one file have different owners and overlap, both are shared. The ranges of
//! one owner are in order, do not overlap, and touch only if their modes differ (`records`). Every owner of a lock
//! has a handle of the file. Dropping a handle removes the handle's own locks, and the locks of every POSIX owner
//! that has acquired some of its locks through it.
//!
//! States of a request: requested → granted or refused, or (if it may wait) requested → waiting → requested …. A
//! waiting request has no claim. It is tried again whenever the locks of the file have changed. Waiting requests of
//! POSIX owners are the edges of a graph of the mount (`waits`). A request that would close a cycle in it is refused.
//!
//! Lock order: the table of a file, then the graph. No other lock is taken under either, and operations that need no
//! lock of this module take neither.
//!
//! Not implemented: enforcement against reads and writes (locks are advisory), fairness (the fastest waiting request
//! wins, and readers can keep a writer out for ever), other ends of a wait than those above, detection of deadlocks
//! that include a whole-file lock or the range of a handle, knowledge of the thread that waits (an owner with one
//! waiting thread counts as waiting), and mounts: there the kernel keeps the locks and passes none on.

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

/// Ranges that one owner can hold in one file (ENOLCK beyond). Ranges that touch and have the same mode count as one.
pub const RECORD_LOCKS_MAX: usize = 4096;

/// Whether a lock excludes other owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Other owners may share. As a record lock: a read lock.
    Shared,
    /// Other owners are excluded. As a record lock: a write lock.
    Exclusive,
}

/// What happens to a request that conflicts with locks of other owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// It fails with [`FsError::WouldBlock`].
    Refuse,
    /// It waits until it can be granted.
    Wait,
}

/// The owner of a record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// A process, identified by a number that the caller chooses (POSIX, `F_SETLK`). Its locks on a file end when it
    /// closes any handle of the file ([`Fs::close_locks`]).
    Process(u64),
    /// The handle (OFD, `F_OFD_SETLK`). Its locks end when it is dropped.
    Handle,
}

/// The bytes of a file that a record lock covers. Not empty, and not limited by the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    start: u64,
    /// The first byte behind the range; > start.
    end: u64,
}

impl LockRange {
    /// An end beyond every byte that a file can have.
    pub const INFINITY: u64 = u64::MAX;
    /// The whole file, however it grows.
    pub const WHOLE: LockRange = LockRange { start: 0, end: Self::INFINITY };

    /// From `start` up to but without `end`. An empty range is refused (EINVAL).
    pub fn new(start: u64, end: u64) -> Result<LockRange> {
        if start < end { Ok(LockRange { start, end }) } else { Err(FsError::Invalid) }
    }

    /// The first byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The first byte behind the range, or [`LockRange::INFINITY`].
    pub fn end(self) -> u64 {
        self.end
    }
}

/// A record lock that is requested or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLock {
    /// The owner.
    pub owner: LockOwner,
    /// The range.
    pub range: LockRange,
    /// The mode.
    pub mode: LockMode,
}

/// The state of a mount's locks beside the tables of its files.
#[derive(Default)]
pub(crate) struct Locks {
    /// The last number that a handle got.
    last_handle: AtomicU64,
    waits: Waits,
}

/// The locks of one file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    whole: WholeLocks,
    records: RecordLocks,
}

/// The number of a handle that has requested a lock. 0 stands for handles that never did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HandleId(u64);

/// The place in a handle for its number as an owner of locks.
#[derive(Default)]
pub(crate) struct Locker(AtomicU64);

impl Locker {
    fn id(&self) -> HandleId {
        HandleId(self.0.load(Ordering::SeqCst))
    }

    /// The handle's number. The first call assigns it.
    fn name(&self, locks: &Locks) -> HandleId {
        if self.id() == HandleId(0) {
            let number = locks.last_handle.fetch_add(1, Ordering::SeqCst) + 1;
            // Of two threads with one handle, the first has assigned the number.
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
    /// Locks the whole file for the handle, whatever it was opened for. If the handle has a lock, changes the mode.
    /// The lock ends by [`Fs::unlock_file`] or when the handle is dropped.
    ///
    /// A change of mode that has to wait releases the old lock first, so other owners may get the lock in between. A
    /// change that is refused (EAGAIN) leaves the old lock unchanged.
    pub fn lock_file(&self, handle: &Handle, mode: LockMode, on_conflict: OnConflict) -> Result<()> {
        let id = handle.locker.name(&self.locks);
        handle.node().locks.get_or_init(Box::default).whole.lock(id, mode, on_conflict)
    }

    /// Releases the handle's lock of the whole file, if it has one.
    pub fn unlock_file(&self, handle: &Handle) {
        if let Some(locks) = handle.node().locks.get() {
            locks.whole.unlock(handle.locker.id());
        }
    }
}

/// Locks of byte ranges, with the semantics of fcntl(2).
impl Fs {
    /// Locks a range. The owner's locks in the range get the new mode. Its locks around it stay, and ranges that then
    /// touch and have the same mode become one. Refused without a change: EBADF for a handle that is not open for
    /// reading (a shared lock) or for writing (an exclusive one); EAGAIN if a lock of another owner conflicts;
    /// EDEADLK if that owner waits, directly or through others, for a POSIX owner that requests to wait here; ENOLCK
    /// beyond [`RECORD_LOCKS_MAX`].
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

    /// Releases the owner's locks in a range. Releasing bytes in the middle of a locked range splits it in two. That
    /// is refused beyond [`RECORD_LOCKS_MAX`] (ENOLCK).
    pub fn unlock_range(&self, handle: &Handle, owner: LockOwner, range: LockRange) -> Result<()> {
        let Some(locks) = handle.node().locks.get() else { return Ok(()) };
        locks.records.unlock(owner.of(handle.locker.id()), range, self.locks.waits.of(handle.inode()))
    }

    /// The first lock of another owner in the file that conflicts with this one (`F_GETLK`). `None` if the lock could
    /// be acquired. A result with [`LockOwner::Handle`] belongs to another handle. The lock may be gone when this
    /// returns.
    pub fn conflicting_lock(&self, handle: &Handle, lock: &RecordLock) -> Option<RecordLock> {
        let locks = handle.node().locks.get()?;
        locks.records.conflict(lock.owner.of(handle.locker.id()), lock.range, lock.mode)
    }

    /// A process closes a handle of the file: all its record locks on the file end, through whichever handle they
    /// were acquired. A caller that gives one handle to several processes calls this when each of them closes it.
    /// Dropping a handle does this for all owners that have acquired some of their locks through it.
    pub fn close_locks(&self, handle: &Handle, process: u64) {
        if let Some(locks) = handle.node().locks.get() {
            locks.records.close(process, self.locks.waits.of(handle.inode()));
        }
    }

    /// Called when a handle is dropped.
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
