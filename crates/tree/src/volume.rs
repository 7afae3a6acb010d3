//! The volume: its properties, its zones, and whether it accepts changes.

use std::sync::Arc;

use pool::OwnedPool;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};
use zone::{Device, Leases};

use crate::types::{Result, StoreError, VolumeInfo};

/// What all parts of the store work on.
pub(crate) struct Volume {
    pub(crate) info: VolumeInfo,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) pool: Arc<OwnedPool>,
    read_only: bool,
    shutdown_reason: Mutex<Option<Arc<str>>>,
    is_shut_down: AtomicBool,
}

impl Volume {
    pub(crate) fn new(info: VolumeInfo, leases: Arc<Leases>, pool: Arc<OwnedPool>, read_only: bool) -> Self {
        let (shutdown_reason, is_shut_down) = (Mutex::new(None), AtomicBool::new(false));
        let device = Arc::clone(leases.device());
        Volume { info, device, leases, pool, read_only, shutdown_reason, is_shut_down }
    }

    /// Bytes of a node.
    pub(crate) fn page_size(&self) -> usize {
        self.info.page_size as usize
    }

    /// Whether the volume has this incompatible feature.
    pub(crate) fn has_feature(&self, feature: u64) -> bool {
        self.info.features & feature != 0
    }

    /// Blocks of a node.
    pub(crate) fn page_blocks(&self) -> u64 {
        self.pool.page_blocks().into()
    }

    /// Blocks of a zone.
    pub(crate) fn zone_blocks(&self) -> u64 {
        self.device.geometry().zone_blocks.into()
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
