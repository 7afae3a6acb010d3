//! Remounting a volume read-only or writable.
//!
//! A volume that is made read-only is closed like one that is unmounted: the next mount has nothing to replay, and
//! nothing is written from then on. If closing fails, the volume accepts no changes either, and the caller must close
//! it by another [`Fs::make_read_only`] or by unmounting. A volume that was opened read-only cannot be made writable:
//! its recovery was done in memory, and others may be reading the same device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::errno::{FsError, Result};
use crate::volume::Fs;

impl Fs {
    /// Ends background work, makes everything durable and closes the volume. Changes are refused from then on. The
    /// caller makes sure that no system call is changing anything. This waits for changes that no system call has
    /// requested (`background_changes`).
    ///
    /// # Errors
    /// The volume is read-only but not closed. The caller may call this again.
    pub fn make_read_only(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        if !self.remounted_read_only.swap(true, Ordering::SeqCst) {
            // Changes that have begun end first. Later ones see that the volume is read-only.
            drop(self.background_changes.write());
            self.delayed.set_closed(true);
            self.runtime.stop_and_join();
        }
        self.close_read_only()
    }

    /// Closes a volume that was made read-only, unless it is closed already.
    pub(crate) fn close_read_only(&self) -> Result<()> {
        if !self.is_closed() {
            // An error is noted, and the handles that are open report it.
            drop(self.settle_all());
            self.extents.close_conventional();
            self.store.sync(self.store.last_lsn())?;
            self.store.close()?;
            self.closed.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether everything is durable and nothing may be written.
    pub(crate) fn is_closed(&self) -> bool {
        self.read_only || self.closed.load(Ordering::SeqCst)
    }

    /// Accepts changes again after [`Fs::make_read_only`], whether that succeeded or not.
    pub fn make_writable(self: &Arc<Self>) -> Result<()> {
        if self.read_only || self.store.shutdown_reason().is_some() {
            return Err(FsError::ReadOnly);
        }
        if !self.remounted_read_only.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.closed.store(false, Ordering::SeqCst);
        self.delayed.set_closed(false);
        self.remounted_read_only.store(false, Ordering::SeqCst);
        self.runtime.allow_start();
        self.start().inspect_err(|_| {
            self.runtime.stop_and_join();
            self.remounted_read_only.store(true, Ordering::SeqCst);
            self.delayed.set_closed(true);
        })
    }

    /// Sets after how long a change becomes durable on its own.
    pub fn set_commit_interval(&self, interval_ns: u64) {
        self.runtime.set_commit_interval(interval_ns);
    }
}

#[cfg(test)]
mod tests;
