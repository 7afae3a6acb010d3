//! The locks of one whole file: who holds it, and in which mode.

use rt::sync::{Condvar, Mutex};

use super::{HandleId, LockMode, OnConflict};
use crate::errno::{FsError, Result};

#[derive(Debug, Default)]
pub(super) struct WholeLocks {
    holders: Mutex<Holders>,
    /// Somebody gave his lock up, or shares it now.
    changed: Condvar,
}

/// Each handle at most once; one that excludes is alone (I-LOCK-1).
#[derive(Debug, Default)]
struct Holders(Vec<(HandleId, LockMode)>);

impl WholeLocks {
    pub(super) fn lock(&self, id: HandleId, mode: LockMode, on_conflict: OnConflict) -> Result<()> {
        let mut holders = self.holders.lock();
        while holders.exclude(id, mode) {
            if on_conflict == OnConflict::Refuse {
                return Err(FsError::WouldBlock);
            }
            // Two who share and both want to be alone would wait for each other for ever.
            if holders.remove(id) {
                self.changed.notify_all();
            }
            self.changed.wait(&mut holders);
        }
        if holders.remove(id) {
            self.changed.notify_all();
        }
        holders.0.push((id, mode));
        assert!(holders.0.len() == 1 || !holders.any_excludes(), "I-LOCK-1: who excludes is alone");
        Ok(())
    }

    pub(super) fn unlock(&self, id: HandleId) {
        if self.holders.lock().remove(id) {
            self.changed.notify_all();
        }
    }
}

impl Holders {
    /// Whether others are in the way.
    fn exclude(&self, id: HandleId, mode: LockMode) -> bool {
        self.0.iter().any(|&(holder, held)| holder != id && held.excludes(mode))
    }

    fn any_excludes(&self) -> bool {
        self.0.iter().any(|&(_, mode)| mode == LockMode::Exclusive)
    }

    /// Whether it had a lock.
    fn remove(&mut self, id: HandleId) -> bool {
        let before = self.0.len();
        self.0.retain(|&(holder, _)| holder != id);
        self.0.len() < before
    }
}
