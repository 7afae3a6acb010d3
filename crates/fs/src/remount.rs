//! Changing how a volume is mounted while it is.
//!
//! A volume that is made read-only is closed like one that is unmounted: the next mount has nothing to
//! replay, and from then on nothing is written. Where closing it fails it takes no changes all the same, and is still
//! to be closed: by making it read-only once more, or by unmounting it. What was opened for reading only cannot be made
//! writable: its recovery was done in memory, and others may be reading the same device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::errno::{FsError, Result};
use crate::volume::Fs;

impl Fs {
    /// Ends background work, makes everything durable and closes the volume; what would change it is
    /// refused from then on. Who calls this has seen to it that no operation is changing anything; what is
    /// done aside from operations (`aside`) is waited for.
    ///
    /// # Errors
    /// It is read-only, but was not closed: this may be called again.
    pub fn make_read_only(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        if !self.held.swap(true, Ordering::SeqCst) {
            // What has begun ends first. What begins from now on sees that it may not.
            drop(self.aside.write());
            self.runtime.stop_and_join();
        }
        self.close_held()
    }

    /// Closes what was made read-only, unless that is done.
    pub(crate) fn close_held(&self) -> Result<()> {
        if !self.is_closed() {
            self.extents.close_conventional();
            self.store.sync(self.store.last_lsn())?;
            self.store.close()?;
            self.closed.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether nothing is left to be made durable, and nothing may be written.
    pub(crate) fn is_closed(&self) -> bool {
        self.read_only || self.closed.load(Ordering::SeqCst)
    }

    /// Takes changes again after [`Fs::make_read_only`], whether that succeeded or not.
    pub fn make_writable(self: &Arc<Self>) -> Result<()> {
        if self.read_only || self.store.latched().is_some() {
            return Err(FsError::ReadOnly);
        }
        if !self.held.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.closed.store(false, Ordering::SeqCst);
        self.held.store(false, Ordering::SeqCst);
        self.runtime.allow_start();
        self.start().inspect_err(|_| {
            self.runtime.stop_and_join();
            self.held.store(true, Ordering::SeqCst);
        })
    }

    /// After how long a change is durable without anybody asking, from now on.
    pub fn set_commit_interval(&self, interval_ns: u64) {
        self.runtime.set_commit_interval(interval_ns);
    }
}

#[cfg(test)]
mod tests;
