//! The record locks of one file: the ranges of each owner.
//!
//! I-LOCK-1 holds between owners. The spans of one owner are in order, do not overlap, and touch only if their modes
//! differ. So the same locks always have the same representation.

use std::collections::{BTreeMap, BTreeSet};

use rt::sync::{Condvar, Mutex, MutexGuard};

use super::overlap::Spans;
use super::waits::WaitsOf;
use super::{HandleId, LockMode, LockOwner, LockRange, OnConflict, RECORD_LOCKS_MAX, RecordLock};
use crate::errno::{FsError, Result};

/// The owner of a lock within a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Process(u64),
    Handle(HandleId),
}

/// A request.
pub(super) struct Asked {
    pub(super) owner: Owner,
    /// The handle through which it is made.
    pub(super) through: HandleId,
    pub(super) range: LockRange,
    pub(super) mode: LockMode,
}

#[derive(Debug, Default)]
pub(super) struct RecordLocks {
    table: Mutex<Table>,
    /// The table has changed since a request began to wait.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// Each owner that holds a lock.
    owned: BTreeMap<Owner, Owned>,
    /// The locks of all owners: shared spans, and exclusive ones.
    shared: Spans<Owner>,
    exclusive: Spans<Owner>,
    /// Which owners have acquired their locks through which handles.
    through: BTreeSet<(HandleId, Owner)>,
    /// The number of waiting requests.
    waiting: usize,
}

/// The locks of one owner.
#[derive(Debug, Default)]
struct Owned {
    /// Not empty. At most [`RECORD_LOCKS_MAX`].
    spans: Vec<Span>,
    /// The handles through which the locks were acquired.
    through: BTreeSet<HandleId>,
}

/// Spans of one owner that other spans replace.
struct Replaced {
    before: Vec<Span>,
    after: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    range: LockRange,
    mode: LockMode,
}

impl RecordLocks {
    pub(super) fn lock(&self, asked: &Asked, on_conflict: OnConflict, waits: WaitsOf<'_>) -> Result<()> {
        let mut table = self.table.lock();
        loop {
            let mut conflicts = table.conflicts(asked.owner, asked.range, asked.mode);
            let Some((first, _)) = conflicts.next() else {
                drop(conflicts);
                self.disturb(&table, waits);
                return table.grant(asked);
            };
            if on_conflict == OnConflict::Refuse {
                return Err(FsError::WouldBlock);
            }
            let in_the_way: BTreeSet<Owner> = conflicts.map(|(owner, _)| owner).chain([first]).collect();
            self.wait(&mut table, asked.owner, &in_the_way, waits)?;
        }
    }

    pub(super) fn unlock(&self, owner: Owner, range: LockRange, waits: WaitsOf<'_>) -> Result<()> {
        let mut table = self.table.lock();
        self.disturb(&table, waits);
        table.release(owner, range)
    }

    /// The first conflicting lock of another owner.
    pub(super) fn conflict(&self, owner: Owner, range: LockRange, mode: LockMode) -> Option<RecordLock> {
        let table = self.table.lock();
        let (owner, span) = table.conflicts(owner, range, mode).min_by_key(|(_, span)| span.range.start)?;
        let owner = match owner {
            Owner::Process(number) => LockOwner::Process(number),
            Owner::Handle(_) => LockOwner::Handle,
        };
        Some(RecordLock { owner, range: span.range, mode: span.mode })
    }

    /// The process closes a handle.
    pub(super) fn close(&self, process: u64, waits: WaitsOf<'_>) {
        let mut table = self.table.lock();
        self.disturb(&table, waits);
        table.remove(Owner::Process(process));
    }

    /// The handle is gone, and its user with it.
    pub(super) fn forget(&self, handle: HandleId, waits: WaitsOf<'_>) {
        let mut table = self.table.lock();
        self.disturb(&table, waits);
        let all = (handle, Owner::Process(0))..=(handle, Owner::Handle(HandleId(u64::MAX)));
        let owners: Vec<Owner> = table.through.range(all).map(|(_, owner)| *owner).collect();
        owners.into_iter().for_each(|owner| table.remove(owner));
    }

    /// Must be called before the table changes: waiting requests must be tried again.
    fn disturb(&self, table: &MutexGuard<'_, Table>, waits: WaitsOf<'_>) {
        if table.waiting > 0 {
            waits.forget();
            self.changed.notify_all();
        }
    }

    fn wait(
        &self,
        table: &mut MutexGuard<'_, Table>,
        owner: Owner,
        in_the_way: &BTreeSet<Owner>,
        waits: WaitsOf<'_>,
    ) -> Result<()> {
        let process = |owner: &Owner| match *owner {
            Owner::Process(number) => Some(number),
            Owner::Handle(_) => None,
        };
        let waits_for = || in_the_way.iter().filter_map(process).collect();
        let request = process(&owner).map(|number| waits.begin(number, waits_for())).transpose()?;
        table.waiting += 1;
        self.changed.wait(table);
        table.waiting -= 1;
        if let Some(request) = request {
            waits.end(request);
        }
        Ok(())
    }
}

impl Table {
    /// The conflicting spans of other owners.
    fn conflicts(
        &self,
        owner: Owner,
        range: LockRange,
        mode: LockMode,
    ) -> impl Iterator<Item = (Owner, Span)> {
        let exclusive = self.exclusive.overlapping(range).map(|found| (found, LockMode::Exclusive));
        let shared = (mode == LockMode::Exclusive).then(|| self.shared.overlapping(range));
        let shared = shared.into_iter().flatten().map(|found| (found, LockMode::Shared));
        let all = exclusive.chain(shared).map(|((owner, range), mode)| (owner, Span { range, mode }));
        all.filter(move |(other, _)| *other != owner)
    }

    /// Grants a request without conflicts.
    fn grant(&mut self, asked: &Asked) -> Result<()> {
        let Asked { owner, through, range, mode } = *asked;
        assert!(
            self.conflicts(owner, range, mode).next().is_none(),
            "I-LOCK-1: a lock of another owner conflicts"
        );
        let owned = self.owned.entry(owner).or_default();
        let replaced = owned.replace(range, Some(mode))?;
        owned.through.insert(through);
        self.through.insert((through, owner));
        self.replace(owner, replaced);
        Ok(())
    }

    fn release(&mut self, owner: Owner, range: LockRange) -> Result<()> {
        let Some(owned) = self.owned.get_mut(&owner) else { return Ok(()) };
        let replaced = owned.replace(range, None)?;
        let is_empty = owned.spans.is_empty();
        self.replace(owner, replaced);
        if is_empty {
            self.remove(owner);
        }
        Ok(())
    }

    /// Removes the owner.
    fn remove(&mut self, owner: Owner) {
        let Some(Owned { spans, through }) = self.owned.remove(&owner) else { return };
        self.replace(owner, Replaced { before: spans, after: Vec::new() });
        for handle in through {
            self.through.remove(&(handle, owner));
        }
    }

    fn replace(&mut self, owner: Owner, Replaced { before, after }: Replaced) {
        before.into_iter().for_each(|span| self.spans(span.mode).remove(owner, span.range));
        after.into_iter().for_each(|span| self.spans(span.mode).insert(owner, span.range));
    }

    fn spans(&mut self, mode: LockMode) -> &mut Spans<Owner> {
        match mode {
            LockMode::Shared => &mut self.shared,
            LockMode::Exclusive => &mut self.exclusive,
        }
    }
}

impl Owned {
    /// Gives the range this mode, or none, whatever its parts had before.
    fn replace(&mut self, range: LockRange, mode: Option<LockMode>) -> Result<Replaced> {
        // The spans that overlap or touch the range. Parts of the first and the last one may remain.
        let first = self.spans.partition_point(|span| span.range.end < range.start);
        let last = self.spans.partition_point(|span| span.range.start <= range.end);
        let affected = &self.spans[first..last];
        let before = affected.first().and_then(|span| span.cut(span.range.start, range.start));
        let after = affected.last().and_then(|span| span.cut(range.end, span.range.end));
        let between = mode.map(|mode| Span { range, mode });
        let mut instead: Vec<Span> = Vec::with_capacity(3);
        for span in [before, between, after].into_iter().flatten() {
            match instead.last_mut() {
                Some(last) if last.mode == span.mode && last.range.end == span.range.start => {
                    last.range.end = span.range.end;
                }
                _ => instead.push(span),
            }
        }
        let held = self.spans.len();
        if instead.len() > affected.len() && held - affected.len() + instead.len() > RECORD_LOCKS_MAX {
            return Err(FsError::NoLocks);
        }
        let before = self.spans.splice(first..last, instead.iter().copied()).collect();
        Ok(Replaced { before, after: instead })
    }
}

impl Span {
    /// The part of the span from `start` to `end`, if it is not empty.
    fn cut(self, start: u64, end: u64) -> Option<Span> {
        (start < end).then_some(Span { range: LockRange { start, end }, ..self })
    }
}

#[cfg(test)]
impl RecordLocks {
    /// Every span, by owner and in stored order.
    pub(super) fn held(&self) -> Vec<(Owner, LockRange, LockMode)> {
        let table = self.table.lock();
        let spans = |(&owner, owned): (&Owner, &Owned)| {
            owned.spans.iter().map(move |span| (owner, span.range, span.mode)).collect::<Vec<_>>()
        };
        table.owned.iter().flat_map(spans).collect()
    }
}
