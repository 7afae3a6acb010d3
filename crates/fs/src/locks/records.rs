//! The record locks of one file: for each owner the ranges that he holds.
//!
//! I-LOCK-1 holds between owners. The spans of one owner are in order, do not overlap, and touch only where
//! their modes differ, so that what he holds has one form, however he came to it.

use rt::sync::{Condvar, Mutex, MutexGuard};

use super::waits::WaitsOf;
use super::{HandleId, LockMode, LockOwner, LockRange, OnConflict, RECORD_LOCKS_MAX, RecordLock};
use crate::errno::{FsError, Result};

/// Whose a lock is, within a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Process(u64),
    Handle(HandleId),
}

/// A request.
pub(super) struct Asked {
    pub(super) owner: Owner,
    /// The handle by which it comes.
    pub(super) through: HandleId,
    pub(super) range: LockRange,
    pub(super) mode: LockMode,
}

#[derive(Debug, Default)]
pub(super) struct RecordLocks {
    table: Mutex<Table>,
    /// The table is not what it was when somebody began to wait.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// Each owner who holds something, once.
    owned: Vec<Owned>,
    /// Requests that wait.
    waiting: usize,
}

/// What one owner holds.
#[derive(Debug)]
struct Owned {
    owner: Owner,
    /// Not empty; at most [`RECORD_LOCKS_MAX`].
    spans: Vec<Span>,
    /// The handles through which he has come to it, each once.
    through: Vec<HandleId>,
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
            let in_the_way: Vec<Owner> =
                table.conflicts(asked.owner, asked.range, asked.mode).map(|(owner, _)| owner).collect();
            if in_the_way.is_empty() {
                self.disturb(&table, waits);
                return table.grant(asked);
            }
            if on_conflict == OnConflict::Refuse {
                return Err(FsError::WouldBlock);
            }
            self.wait(&mut table, asked.owner, &in_the_way, waits)?;
        }
    }

    pub(super) fn unlock(&self, owner: Owner, range: LockRange, waits: WaitsOf<'_>) -> Result<()> {
        let mut table = self.table.lock();
        self.disturb(&table, waits);
        table.release(owner, range)
    }

    /// The first lock of another in the way.
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
        table.retain(|owned| owned.owner != Owner::Process(process));
    }

    /// The handle is gone, and so is whoever had it.
    pub(super) fn forget(&self, handle: HandleId, waits: WaitsOf<'_>) {
        let mut table = self.table.lock();
        self.disturb(&table, waits);
        table.retain(|owned| owned.owner != Owner::Handle(handle) && !owned.through.contains(&handle));
    }

    /// The table is about to change: those who wait will have to look again.
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
        in_the_way: &[Owner],
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
    /// Of each other owner the first span in the way.
    fn conflicts(
        &self,
        owner: Owner,
        range: LockRange,
        mode: LockMode,
    ) -> impl Iterator<Item = (Owner, Span)> {
        let others = self.owned.iter().filter(move |owned| owned.owner != owner);
        others.filter_map(move |owned| Some((owned.owner, owned.first_conflict(range, mode)?)))
    }

    /// Gives what nobody is in the way of.
    fn grant(&mut self, asked: &Asked) -> Result<()> {
        let Asked { owner, through, range, mode } = *asked;
        assert!(self.conflicts(owner, range, mode).next().is_none(), "I-LOCK-1: somebody is in the way");
        let span = Span { range, mode };
        match self.owned.iter_mut().find(|owned| owned.owner == owner) {
            Some(owned) => {
                owned.replace(range, Some(mode))?;
                if !owned.through.contains(&through) {
                    owned.through.push(through);
                }
            }
            None => self.owned.push(Owned { owner, spans: vec![span], through: vec![through] }),
        }
        Ok(())
    }

    fn release(&mut self, owner: Owner, range: LockRange) -> Result<()> {
        if let Some(owned) = self.owned.iter_mut().find(|owned| owned.owner == owner) {
            owned.replace(range, None)?;
            self.retain(|owned| !owned.spans.is_empty());
        }
        Ok(())
    }

    fn retain(&mut self, keep: impl Fn(&Owned) -> bool) {
        self.owned.retain(keep);
        if self.owned.is_empty() {
            self.owned = Vec::new();
        }
    }
}

impl Owned {
    fn first_conflict(&self, range: LockRange, mode: LockMode) -> Option<Span> {
        let first = self.spans.partition_point(|span| span.range.end <= range.start);
        let overlapping = self.spans[first..].iter().take_while(|span| span.range.start < range.end);
        overlapping.copied().find(|span| span.mode.excludes(mode))
    }

    /// The range has this mode, or none, whatever parts of it had before.
    fn replace(&mut self, range: LockRange, mode: Option<LockMode>) -> Result<()> {
        // Those that overlap or touch it: of the first and the last something may be left.
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
        self.spans.splice(first..last, instead);
        Ok(())
    }
}

impl Span {
    /// The part of it from `start` to `end`, if that is any.
    fn cut(self, start: u64, end: u64) -> Option<Span> {
        (start < end).then_some(Span { range: LockRange { start, end }, ..self })
    }
}

#[cfg(test)]
impl RecordLocks {
    /// Every span, by owner and in the order in which it is kept.
    pub(super) fn held(&self) -> Vec<(Owner, LockRange, LockMode)> {
        let table = self.table.lock();
        let spans = |owned: &Owned| {
            let owner = owned.owner;
            owned.spans.iter().map(move |span| (owner, span.range, span.mode)).collect::<Vec<_>>()
        };
        table.owned.iter().flat_map(spans).collect()
    }
}
