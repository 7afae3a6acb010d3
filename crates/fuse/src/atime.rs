//! Whether reading sets times of access: a switch that a remount turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by the mount and whoever may change how it is mounted.
#[derive(Clone, Debug, Default)]
pub struct AccessTimes(Arc<AtomicBool>);

impl AccessTimes {
    pub(crate) fn new(kept: bool) -> Self {
        AccessTimes(Arc::new(AtomicBool::new(kept)))
    }

    /// From now on reading sets times of access, or does not.
    pub fn keep(&self, kept: bool) {
        self.0.store(kept, Ordering::Relaxed);
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
