//! Whether reading updates access times. A remount can change this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by the mount and the code that remounts it.
#[derive(Clone, Debug, Default)]
pub struct AccessTimes(Arc<AtomicBool>);

impl AccessTimes {
    pub(crate) fn new(enabled: bool) -> Self {
        AccessTimes(Arc::new(AtomicBool::new(enabled)))
    }

    /// Sets whether reading updates access times from now on.
    pub fn set_enabled(&self, enabled: bool) {
        self.0.store(enabled, Ordering::Relaxed);
    }

    pub(crate) fn are_enabled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
