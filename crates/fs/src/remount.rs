//! Changing how a volume is mounted while it is.
//!
//! A volume that is made read-only is closed like one that is unmounted: the next mount has nothing to
//! replay, and from then on nothing is written. What was opened for reading only cannot be made
//! writable: its recovery was done in memory, and others may be reading the same device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::errno::{FsError, Result};
use crate::volume::Fs;

impl Fs {
    /// Ends background work, makes everything durable and closes the volume; what would change it is
    /// refused from then on. Who calls this has seen to it that no operation is changing anything; what is
    /// done aside from operations (`aside`) is waited for.
    pub fn make_read_only(&self) -> Result<()> {
        if self.read_only || self.held.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // What has begun ends first. What begins from now on sees that it may not.
        drop(self.aside.write());
        self.runtime.stop_and_join();
        let closed = self.store.sync(self.store.last_lsn()).and_then(|()| self.store.close());
        Ok(closed?)
    }

    /// Takes changes again after [`Fs::make_read_only`].
    pub fn make_writable(self: &Arc<Self>) -> Result<()> {
        if self.read_only || self.store.latched().is_some() {
            return Err(FsError::ReadOnly);
        }
        if self.held.swap(false, Ordering::SeqCst) {
            self.runtime.allow_start();
            self.start()?;
        }
        Ok(())
    }

    /// After how long a change is durable without anybody asking, from now on.
    pub fn set_commit_interval(&self, interval_ns: u64) {
        self.runtime.set_commit_interval(interval_ns);
    }
}

#[cfg(test)]
mod tests;
