//! Whether the volume accepts changes.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::types::{Result, StoreError};

/// Read-only from the beginning, or shut down since then.
pub(crate) struct Status {
    read_only: bool,
    shutdown_reason: Mutex<Option<Arc<str>>>,
    is_shut_down: AtomicBool,
}

impl Status {
    pub(crate) fn new(read_only: bool) -> Self {
        Status { read_only, shutdown_reason: Mutex::new(None), is_shut_down: AtomicBool::new(false) }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Why the volume is shut down.
    pub(crate) fn shutdown_reason(&self) -> Option<Arc<str>> {
        self.shutdown_reason.lock().clone()
    }

    /// An error if the volume is read-only or shut down.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only {
            return Err(StoreError::ReadOnly);
        }
        if self.is_shut_down.load(Ordering::Acquire)
            && let Some(why) = self.shutdown_reason.lock().clone()
        {
            return Err(StoreError::ShutDown(why));
        }
        Ok(())
    }

    /// Shuts the volume down: no changes until the next mount. The first reason is kept.
    pub(crate) fn shut_down(&self, why: &str) {
        let mut shutdown_reason = self.shutdown_reason.lock();
        if shutdown_reason.is_none() {
            tracing::error!(why, "the volume is shut down: read-only until it is mounted again");
            *shutdown_reason = Some(Arc::from(why));
            self.is_shut_down.store(true, Ordering::Release);
        }
    }

    /// Returns the result. An unexpected error shuts the volume down.
    pub(crate) fn shut_down_on_error<T>(&self, what: &str, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            StoreError::NoSpace | StoreError::NoMemory(_) | StoreError::ReadOnly => error,
            StoreError::ShutDown(why) => {
                self.shut_down(&why);
                StoreError::ShutDown(why)
            }
            error => {
                self.shut_down(&format!("{what}: {error}"));
                error
            }
        })
    }
}
