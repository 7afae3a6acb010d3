//! The open volume that all handles share.
//!
//! An operation takes the lock of the volume shared for as long as it runs, and closing takes it exclusively. So
//! closing waits for operations in progress, and no operation begins on a closed volume. No operation is called with
//! the lock held: a second shared request would wait behind a thread that closes.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs::Fs;
use fuse::Changes;
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Condvar, Mutex, RwLock, RwLockReadGuard};

use crate::error::{Error, Result};

/// A volume until it is closed.
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
    /// Any thread has ever requested a lock.
    are_used: AtomicBool,
}

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

    /// Makes everything durable and closes the volume. A volume that is closed stays so.
    ///
    /// # Errors
    /// [`Error::Closed`] if it is closed already.
    pub(crate) fn close(&self) -> Result<()> {
        let mut fs = self.fs.write();
        if self.is_mounted.load(Ordering::SeqCst) {
            return Err(Error::Mounted);
        }
        let closed = fs.take().ok_or(Error::Closed)?.unmount();
        drop(fs);
        self.note_release();
        Ok(closed?)
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

    /// Calls `request` until it gets the lock, fails, or the volume is closed. Calls it again after each release of any
    /// lock of the volume.
    pub(crate) fn wait_for_lock(&self, mut request: impl FnMut(&Fs) -> fs::Result<()>) -> Result<()> {
        self.locks.are_used.store(true, Ordering::SeqCst);
        loop {
            let seen = *self.locks.count.lock();
            match request(&*self.operation()?) {
                Err(fs::FsError::WouldBlock) => {}
                granted => return Ok(granted?),
            }
            let mut count = self.locks.count.lock();
            while *count == seen {
                self.locks.changed.wait(&mut count);
            }
        }
    }

    /// A lock may have been released.
    pub(crate) fn note_release(&self) {
        if self.locks.are_used.load(Ordering::SeqCst) {
            *self.locks.count.lock() += 1;
            self.locks.changed.notify_all();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.close()
            && !matches!(error, Error::Closed)
        {
            tracing::error!("the volume was not closed properly: {error}");
        }
    }
}
