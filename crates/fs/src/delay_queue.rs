//! The delayed writes of one file: the queue, and the batches in it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extent::{DelayedSpace, Hint, Object, WriteCall, Written};
use rt::Timestamp;
use rt::sync::{Condvar, Mutex, MutexGuard};
use tree::Lsn;

use crate::format::Record;

/// The delayed writes of a file.
#[derive(Default)]
pub(crate) struct DelayedWrites {
    /// Whether there are any. It is changed under the lock of `queue`.
    any: AtomicBool,
    /// The LSN of the last truncation of the file, or 0 if a sync has settled the file since.
    cut: AtomicU64,
    /// A leaf lock.
    queue: Mutex<Queue>,
    /// A thread has ended appending.
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) queued: Option<Batch>,
    /// What a thread is appending without the lock of the file.
    pub(crate) appending: Option<Outline>,
    /// In the order in which they are inserted. One without appended data must be stored in pieces.
    pub(crate) appended: VecDeque<(Batch, Option<Written>)>,
}

/// Writes that are appended together.
pub(crate) struct Batch {
    pub(crate) outline: Outline,
    pub(crate) object: Object,
    pub(crate) hint: Hint,
    /// The size of the file when the first of them was queued, without older batches.
    pub(crate) valid: u64,
    /// Contents of the runs, in the order of `outline.runs`.
    pub(crate) data: Vec<u8>,
    /// The first block of each run → its place in `data`, and the number of its blocks.
    places: BTreeMap<u64, (usize, u64)>,
    pub(crate) space: Vec<DelayedSpace>,
    /// When the first write was queued (monotonic).
    pub(crate) since_ns: u64,
}

/// What a batch changes.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    /// The first block of each run and the number of its blocks, in the order of the data.
    pub(crate) runs: Vec<(u64, u64)>,
    /// Where the last byte ends.
    pub(crate) end: u64,
    /// The time of the last write.
    pub(crate) time: Timestamp,
}

/// Whether a write was added to a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The batch has grown by this number of bytes.
    Yes(u64),
    /// It does not fit into the same transaction, overlaps another write in part, or must not be delayed.
    No,
}

/// A thread is appending. Dropped when it is not any more.
pub(crate) struct AppendingGuard<'a>(&'a DelayedWrites);

impl Drop for AppendingGuard<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().appending = None;
        self.0.changed.notify_all();
    }
}

impl Outline {
    fn has(&self, blocks: &Range<u64>) -> bool {
        self.runs.iter().any(|&(first, count)| first < blocks.end && blocks.start < first + count)
    }
}

impl Queue {
    /// From the oldest to the newest.
    pub(crate) fn outlines(&self) -> impl Iterator<Item = &Outline> {
        let appended = self.appended.iter().map(|(batch, _)| &batch.outline);
        appended.chain(&self.appending).chain(self.queued.iter().map(|batch| &batch.outline))
    }

    /// The end of the file with these writes.
    pub(crate) fn size(&self, record: &Record) -> u64 {
        self.outlines().map(|outline| outline.end).fold(record.size, u64::max)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.outlines().next().is_none()
    }
}

impl fmt::Debug for DelayedWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedWrites").field("any", &self.any()).finish_non_exhaustive()
    }
}

impl DelayedWrites {
    /// The file was truncated with this LSN.
    pub(crate) fn note_cut(&self, lsn: Lsn) {
        self.cut.store(lsn.0, Ordering::SeqCst);
    }

    /// The LSN of a truncation after which no sync has settled the file.
    pub(crate) fn cut(&self) -> Option<Lsn> {
        Some(self.cut.load(Ordering::SeqCst)).filter(|&lsn| lsn > 0).map(Lsn)
    }

    /// A sync has settled the file after the truncation with this LSN.
    pub(crate) fn end_cut(&self, lsn: Lsn) {
        let newer = self.cut.compare_exchange(lsn.0, 0, Ordering::SeqCst, Ordering::SeqCst).err();
        assert!(newer.is_none_or(|newer| newer == 0 || newer > lsn.0), "truncations have an order");
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Notes whether there are any. The caller has the lock. Returns whether there were.
    pub(crate) fn set_any(&self, any: bool) -> bool {
        self.any.swap(any, Ordering::SeqCst)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Locks the queue when no thread is appending.
    pub(crate) fn lock_unless_appending(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.queue.lock();
        while queue.appending.is_some() {
            self.changed.wait(&mut queue);
        }
        queue
    }

    /// Takes everything that is queued, to be appended by this thread.
    pub(crate) fn take_queued(&self) -> Option<(Batch, AppendingGuard<'_>)> {
        let mut queue = self.lock_unless_appending();
        let batch = queue.queued.take()?;
        queue.appending = Some(batch.outline.clone());
        Some((batch, AppendingGuard(self)))
    }

    /// Whether bytes of a file with this record are delayed: some of them, or the end of the file.
    pub(crate) fn concern(&self, bytes: &Range<u64>, record: &Record, block: u64) -> bool {
        let blocks = bytes.start / block..bytes.end.div_ceil(block);
        self.any() && {
            let queue = self.queue.lock();
            bytes.end > record.size && queue.size(record) > record.size
                || queue.outlines().any(|outline| outline.has(&blocks))
        }
    }
}

impl Batch {
    /// An empty batch for writes like this one.
    pub(crate) fn new(call: &WriteCall<'_>, buffer: Vec<u8>, since_ns: u64) -> Batch {
        let outline = Outline { runs: Vec::new(), end: 0, time: Timestamp(0) };
        let WriteCall { object, hint, valid, .. } = *call;
        let (places, space) = (BTreeMap::new(), Vec::new());
        Batch { outline, object, hint, valid, data: buffer, places, space, since_ns }
    }

    /// Adds a write of whole blocks, if a batch of this number of runs and blocks `fits`.
    pub(crate) fn add(
        &mut self,
        first: u64,
        data: &[u8],
        block: u64,
        fits: impl Fn(u64, u64) -> bool,
    ) -> Added {
        let blocks = data.len() as u64 / block;
        let end = first + blocks;
        if let Some((&start, &(at, count))) = self.places.range(..end).next_back()
            && start + count > first
        {
            if start > first || start + count < end {
                return Added::No;
            }
            let at = at + ((first - start) * block) as usize;
            self.data[at..at + data.len()].copy_from_slice(data);
            return Added::Yes(0);
        }
        let joins = self.outline.runs.last().is_some_and(|(start, count)| start + count == first);
        let runs = (self.outline.runs.len() + usize::from(!joins)) as u64;
        if !fits(runs, (self.data.len() + data.len()) as u64 / block) {
            return Added::No;
        }
        match self.outline.runs.last_mut().filter(|_| joins) {
            Some((start, count)) => {
                *count += blocks;
                self.places.get_mut(start).expect("each run has a place").1 = *count;
            }
            None => {
                self.outline.runs.push((first, blocks));
                self.places.insert(first, (self.data.len(), blocks));
            }
        }
        self.data.extend_from_slice(data);
        self.outline.end = self.outline.end.max(end * block);
        Added::Yes(data.len() as u64)
    }
}

#[cfg(test)]
mod tests;
