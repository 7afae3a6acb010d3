//! The locks of one whole file: the holders and the mode.
//!
//! Requests for shared locks and for exclusive ones wait separately. When the last holder releases its lock, only one
//! of the waiting exclusive requests is woken, because only one of them can get the lock.

use std::collections::BTreeSet;

use rt::sync::{Condvar, Mutex};

use super::{HandleId, LockMode, OnConflict};
use crate::errno::{FsError, Result};

#[derive(Debug, Default)]
pub(super) struct WholeLocks {
    holders: Mutex<Holders>,
    /// No holder is exclusive any more.
    can_share: Condvar,
    /// There is no holder any more.
    can_exclude: Condvar,
}

/// Each handle at most once. An exclusive holder is the only one (I-LOCK-1).
#[derive(Debug, Default)]
struct Holders {
    all: BTreeSet<HandleId>,
    /// The only holder is exclusive.
    is_exclusive: bool,
}

impl WholeLocks {
    pub(super) fn lock(&self, id: HandleId, mode: LockMode, on_conflict: OnConflict) -> Result<()> {
        let mut holders = self.holders.lock();
        while holders.exclude(id, mode) {
            if on_conflict == OnConflict::Refuse {
                return Err(FsError::WouldBlock);
            }
            // Two shared holders that both request an exclusive lock would wait for each other for ever.
            self.remove(&mut holders, id);
            match mode {
                LockMode::Shared => self.can_share.wait(&mut holders),
                LockMode::Exclusive => self.can_exclude.wait(&mut holders),
            }
        }
        holders.all.insert(id);
        let was_exclusive = std::mem::replace(&mut holders.is_exclusive, mode == LockMode::Exclusive);
        if was_exclusive && !holders.is_exclusive {
            self.can_share.notify_all();
        }
        assert!(holders.all.len() == 1 || !holders.is_exclusive, "I-LOCK-1: a holder that excludes is alone");
        Ok(())
    }

    pub(super) fn unlock(&self, id: HandleId) {
        self.remove(&mut self.holders.lock(), id);
    }

    fn remove(&self, holders: &mut Holders, id: HandleId) {
        if holders.all.remove(&id) && holders.all.is_empty() {
            holders.is_exclusive = false;
            self.can_share.notify_all();
            self.can_exclude.notify_one();
        }
    }
}

impl Holders {
    /// Whether other holders conflict.
    fn exclude(&self, id: HandleId, mode: LockMode) -> bool {
        let has_others = self.all.len() > usize::from(self.all.contains(&id));
        has_others && (self.is_exclusive || mode == LockMode::Exclusive)
    }
}
