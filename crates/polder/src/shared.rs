//! The open volume that all handles share.
//!
//! An operation takes the lock of the volume shared for as long as it runs, and closing takes it exclusively. So
//! closing waits for operations in progress, and no operation begins on a closed volume. No operation is called with
//! the lock held: a second shared request would wait behind a thread that closes.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fs::{Fs, Handle};
use fuse::Changes;
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Condvar, Mutex, RwLock, RwLockReadGuard};

use crate::error::{Error, Result};

/// A volume that this process owns, until it is closed.
pub(crate) struct Shared {
    /// The file or device.
    path: PathBuf,
    /// Nothing once the volume is closed.
    fs: RwLock<Option<Arc<Fs>>>,
    locks: LockReleases,
    /// A mount exists that this process serves.
    is_mounted: AtomicBool,
    /// Of this mount. It must learn which inodes lose their last name.
    changes: RwLock<Option<Changes>>,
}

/// Lets threads wait for locks on files.
#[derive(Default)]
struct LockReleases {
    /// How often a lock was released, or the volume was closed.
    count: Mutex<u64>,
    changed: Condvar,
    /// Any thread has ever waited for a lock.
    are_used: AtomicBool,
    /// They pass each release on to other processes.
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// Is called after each release of a lock.
pub(crate) type Listener = dyn Fn() + Send + Sync;

/// An operation in progress.
pub(crate) struct Operation<'a>(RwLockReadGuard<'a, Option<Arc<Fs>>>);

impl Deref for Operation<'_> {
    type Target = Fs;

    fn deref(&self) -> &Fs {
        self.0.as_ref().expect("an operation begins on an open volume only")
    }
}

impl Operation<'_> {
    pub(crate) fn fs(&self) -> Arc<Fs> {
        Arc::clone(self.0.as_ref().expect("an operation begins on an open volume only"))
    }
}

impl Shared {
    pub(crate) fn new(path: &Path, fs: Arc<Fs>) -> Shared {
        Shared {
            path: path.to_owned(),
            fs: RwLock::new(Some(fs)),
            locks: LockReleases::default(),
            is_mounted: AtomicBool::new(false),
            changes: RwLock::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins an operation.
    pub(crate) fn operation(&self) -> Result<Operation<'_>> {
        let fs = self.fs.read();
        if fs.is_some() { Ok(Operation(fs)) } else { Err(Error::Closed) }
    }

    /// Makes everything durable and closes the volume. A volume that is closed stays so. `before` is called when no
    /// operation is in progress, and `after` when everything is durable, before another process can open the volume.
    ///
    /// # Errors
    /// [`Error::Closed`] if it is closed already.
    pub(crate) fn close(&self, before: impl FnOnce(), after: impl FnOnce()) -> Result<()> {
        let mut fs = self.fs.write();
        if self.is_mounted.load(Ordering::SeqCst) {
            return Err(Error::Mounted);
        }
        let open = fs.take().ok_or(Error::Closed)?;
        before();
        let closed = open.unmount();
        after();
        drop(open);
        drop(fs);
        self.note_release();
        Ok(closed?)
    }

    /// Refuses operations from now on, as after closing. Another component closes the volume.
    pub(crate) fn give_up(&self) {
        drop(self.fs.write().take());
        self.note_release();
    }

    /// Closes a file. That can delete it, which must not happen while the volume is being closed.
    pub(crate) fn release(&self, handle: Handle) {
        let operation = self.operation();
        drop(handle);
        drop(operation);
        self.note_release();
    }

    /// Until [`Shared::end_mount`], the volume cannot be closed or mounted again.
    pub(crate) fn begin_mount(&self) -> Result<()> {
        let _operation = self.operation()?;
        match self.is_mounted.swap(true, Ordering::SeqCst) {
            true => Err(Error::Mounted),
            false => Ok(()),
        }
    }

    pub(crate) fn set_changes(&self, changes: Option<Changes>) {
        *self.changes.write() = changes;
    }

    pub(crate) fn end_mount(&self) {
        self.set_changes(None);
        // An operation in progress may have unlinked an inode for the kernel to forget, after the session forgot all.
        let fs = self.fs.write();
        if let Some(fs) = &*fs {
            fs.forget_all();
        }
        self.is_mounted.store(false, Ordering::SeqCst);
    }

    /// Must be called after each operation that can have removed the last name of an inode.
    pub(crate) fn release_unlinked(&self, fs: &Fs) {
        if self.is_mounted.load(Ordering::SeqCst)
            && let Some(changes) = &*self.changes.read()
        {
            changes.release_unlinked(fs);
        }
    }

    /// A thread is about to request a lock, and will wait for a release if there is a conflict.
    pub(crate) fn expect_waits(&self) {
        self.locks.are_used.store(true, Ordering::SeqCst);
    }

    /// The number of releases of locks so far.
    pub(crate) fn releases(&self) -> u64 {
        *self.locks.count.lock()
    }

    /// Waits until the number of releases is another one.
    pub(crate) fn wait_for_release(&self, seen: u64) {
        let mut count = self.locks.count.lock();
        while *count == seen {
            self.locks.changed.wait(&mut count);
        }
    }

    /// Calls a function after each release, as long as it exists.
    pub(crate) fn listen(&self, listener: Weak<Listener>) {
        let mut listeners = self.locks.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    /// A lock may have been released.
    pub(crate) fn note_release(&self) {
        if self.locks.are_used.load(Ordering::SeqCst) {
            *self.locks.count.lock() += 1;
            self.locks.changed.notify_all();
            self.locks.listeners.lock().iter().filter_map(Weak::upgrade).for_each(|listener| listener());
        }
    }
}
