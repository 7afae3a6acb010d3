//! The locks of one whole file: who holds it, and in which mode.
//!
//! Requests to share and requests to be alone wait apart. When the last holder goes, one of those that want to be alone
//! is woken and not all: only one of them can have the lock.

use std::collections::BTreeSet;

use rt::sync::{Condvar, Mutex};

use super::{HandleId, LockMode, OnConflict};
use crate::errno::{FsError, Result};

#[derive(Debug, Default)]
pub(super) struct WholeLocks {
    holders: Mutex<Holders>,
    /// Nobody excludes others any more.
    can_share: Condvar,
    /// Nobody holds the lock any more.
    can_exclude: Condvar,
}

/// Each handle at most once; one that excludes is alone (I-LOCK-1).
#[derive(Debug, Default)]
struct Holders {
    all: BTreeSet<HandleId>,
    /// The one holder excludes others.
    is_exclusive: bool,
}

impl WholeLocks {
    pub(super) fn lock(&self, id: HandleId, mode: LockMode, on_conflict: OnConflict) -> Result<()> {
        let mut holders = self.holders.lock();
        while holders.exclude(id, mode) {
            if on_conflict == OnConflict::Refuse {
                return Err(FsError::WouldBlock);
            }
            // Two holders that share and both want to be alone would wait for each other for ever.
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
    /// Whether others are in the way.
    fn exclude(&self, id: HandleId, mode: LockMode) -> bool {
        let has_others = self.all.len() > usize::from(self.all.contains(&id));
        has_others && (self.is_exclusive || mode == LockMode::Exclusive)
    }
}
