//! Delayed writes: writes that have returned before their data is appended.
//!
//! A write of whole blocks can return as soon as its space is reserved and its data copied. Later all delayed writes of a
//! file are appended together and inserted by one transaction. So a program does not wait for the device, and many small
//! writes become few commands. [`Fs::delay_writes`] switches this on.
//!
//! **Settling.** Delayed data belongs to its file as soon as the write has returned. A thread that locks a file
//! exclusively, by [`Fs::lock`], *settles* it: it inserts the delayed writes before it does anything else. A thread that
//! reads a part of a file or its attributes settles the file before, if they are delayed. So all other code sees only
//! settled files. Removing a name does not depend on contents, and settles nothing. Deleting a file discards its delayed
//! writes.
//!
//! **States.** Writes are *queued*, until a thread takes all of them as one [`Batch`] and is *appending* it, without the
//! lock of the file. One thread of a file does this at a time, so an older batch is complete before a newer one. A
//! complete batch is *appended*, until a thread that has the lock exclusively has inserted it. That may be another
//! thread. A write is queued under the shared lock of the file. So a thread that has the exclusive one can wait until
//! nothing is delayed: a thread that is appending needs no lock of the file.
//!
//! **After a crash** delayed writes are like data in the kernel's cache. They reach the log later than changes of other
//! files that were made after them. A file is settled before it gets another name. A file that was truncated is settled
//! before the truncation becomes durable.
//!
//! **Errors.** A batch that cannot be inserted as a whole for lack of space or memory is stored in pieces. If that fails
//! too, its writes are lost: each open handle reports it at its next `fsync`, and no more writes are delayed. This is
//! noted before the batch is removed. So an `fsync` either finds the batch or the note.

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use extent::{BlockRuns, DelayedSpace, ExtentError, MapLock, WriteCall, Written};
use rt::Timestamp;
use tree::{Step, Tx};

use crate::change::Change;
use crate::delay_queue::{Added, Batch, Outline, Queue};
use crate::delayed_files::DELAY;
use crate::errno::{FsError, Result};
use crate::file_io::{PIECE, check_file, write_call};
use crate::format::{
    FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, FLAG_SHIFTING, FLAG_TAIL_STALE, FLAG_TRUNCATING, Record,
};
use crate::handle::Handle;
use crate::inodes::{Locked, Node, State};
use crate::permissions::without_set_id;
use crate::runtime::BackgroundTask;
use crate::types::{Attributes, InodeNo};
use crate::volume::Fs;

/// A batch of this number of bytes, or of this number of runs, is large: it is appended at once.
const LARGE: (u64, usize) = (PIECE / 2, RUNS_MAX as usize / 2);
/// The most runs of a batch. Each may change another leaf of the object map.
const RUNS_MAX: u64 = 64;
/// At most this part of a zone is delayed: the throttle counts a write when it is appended.
const ZONE_SHARE: u64 = 4;

impl Fs {
    /// Delays writes of programs, of at most about this number of bytes at once. 0: no more writes are delayed. Also bounds
    /// them by a part of a zone.
    pub fn delay_writes(&self, bytes_max: u64) {
        let geometry = self.store.device().geometry();
        let zone = u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
        self.delayed.set_bytes_max(bytes_max.min(zone / ZONE_SHARE));
    }

    /// Locks nodes that are in order, and settles them. An error is noted for the next `fsync`.
    pub(crate) fn lock<'a>(&self, nodes: &'a [Arc<Node>]) -> Locked<'a> {
        // Other threads may need these locks, so most of it is done before.
        if !rt::is_planted("break-delayed-lock") {
            nodes.iter().for_each(|node| drop(self.flush(node)));
        }
        let mut locked = Locked::lock(nodes);
        if !rt::is_planted("break-delayed-lock") {
            nodes.iter().for_each(|node| drop(self.settle_locked(&mut locked, node)));
        }
        locked
    }

    /// The same for one node.
    pub(crate) fn lock_one<'a>(&self, node: &'a Arc<Node>) -> Locked<'a> {
        self.lock(slice::from_ref(node))
    }

    /// Inserts all writes to a file that have been delayed until now. The caller holds no lock.
    pub(crate) fn settle(&self, node: &Arc<Node>) -> Result<()> {
        if !node.delayed.any() {
            return Ok(());
        }
        let flushed = self.flush(node);
        flushed.and(self.settle_locked(&mut Locked::one(node), node))
    }

    /// The same, if some of these bytes are delayed.
    pub(crate) fn settle_bytes(&self, node: &Arc<Node>, bytes: &Range<u64>) -> Result<()> {
        let concerned = || {
            let state = node.state.read();
            let block = u64::from(self.extents.block_size());
            state.record().is_ok_and(|record| node.delayed.concern(bytes, record, block))
        };
        let is_due = node.delayed.any() && concerned() && !rt::is_planted("break-delayed-read");
        if is_due { self.settle(node) } else { Ok(()) }
    }

    /// The same for all files. All are settled even if some writes are lost.
    pub(crate) fn settle_all(&self) -> Result<()> {
        self.settle_each(&self.delayed.all())
    }

    /// Settles the files that were truncated since the last sync. Returns whether there are any. An error is noted for
    /// the next `fsync` of a file.
    pub(crate) fn settle_cut_files(&self) -> bool {
        let cut = |node: Arc<Node>| node.delayed.cut().map(|lsn| (node, lsn));
        let (nodes, cuts): (Vec<_>, Vec<_>) = self.delayed.all().into_iter().filter_map(cut).unzip();
        drop(self.settle_each(&nodes));
        // Not before, because another sync must find them too.
        nodes.iter().zip(&cuts).for_each(|(node, lsn)| node.delayed.end_cut(*lsn));
        !nodes.is_empty()
    }

    fn settle_each(&self, nodes: &[Arc<Node>]) -> Result<()> {
        // The lock waits for a first write that is just being queued.
        let settle = |node| self.flush(node).and(self.settle_locked(&mut Locked::one(node), node));
        nodes.iter().map(settle).fold(Ok(()), Result::and)
    }

    /// Drops the delayed writes of a locked file that is being deleted.
    pub(crate) fn discard_delayed(&self, node: &Node) {
        let mut queue = node.delayed.lock_unless_appending();
        let queued = queue.queued.take();
        let dropped = queue.appended.drain(..).map(|(batch, _)| batch).chain(queued);
        dropped.for_each(|batch| self.delayed.return_buffer(batch.data));
        self.unlist_if_empty(node, &queue);
    }

    /// Gives the attributes of a file the size and the times that delayed writes have set. The count of blocks is without
    /// them. The caller has the lock of the state since it took the attributes.
    pub(crate) fn with_delayed(&self, node: &Node, found: Attributes) -> Attributes {
        let queue = node.delayed.lock();
        let of_one = |found: Attributes, outline: &Outline| Attributes {
            size: found.size.max(outline.end),
            modified: outline.time,
            changed: found.changed.max(outline.time),
            ..found
        };
        queue.outlines().fold(found, of_one)
    }

    /// Appends and inserts the queued writes of one file: of one with many of them, or of one whose oldest has been
    /// queued for long enough.
    pub(crate) fn step_delayed_writes(&self) -> Step {
        let now_ns = self.clock.monotonic_ns();
        let is_old = |node: &Arc<Node>| {
            let delay_ns = DELAY.as_nanos() as u64;
            node.delayed.lock().queued.as_ref().is_some_and(|batch| batch.since_ns + delay_ns <= now_ns)
        };
        let next = self.delayed.take_due().or_else(|| self.delayed.all().into_iter().find(is_old));
        let Some(node) = next else { return Step::Idle };
        // An error is noted for the next `fsync`.
        drop(self.flush(&node));
        Step::Worked
    }

    /// Delays a write, if that is possible.
    pub(crate) fn delay_write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<bool> {
        let length = data.len() as u64;
        let block = u64::from(self.extents.block_size());
        let is_whole = length > 0 && offset.is_multiple_of(block) && length.is_multiple_of(block);
        let fits = length <= PIECE
            && offset.checked_add(length).is_some_and(|end| end <= FILE_SIZE_MAX)
            && self.extents.runs_fit_in_one_tx(1, length / block);
        if !is_whole || !fits || handle.flags().append || handle.flags().sync {
            return Ok(false);
        }
        self.begin()?;
        if !self.delayed.add_bytes(length) {
            // An error is not one of this write.
            drop(self.flush(handle.node()));
            if !self.delayed.add_bytes(length) {
                return Ok(false);
            }
        }
        let queued = self.delay_counted(handle, offset, data);
        let more = queued.as_ref().map_or(0, |queued| queued.unwrap_or(0));
        self.delayed.remove_bytes(length - more);
        Ok(queued?.is_some())
    }

    /// The same for a write whose bytes are counted. Returns by how many bytes the queue has grown, if the write is queued.
    fn delay_counted(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<Option<u64>> {
        let node = handle.node();
        let bytes = offset..offset + data.len() as u64;
        if !self.accepts_delayed(&node.state.read(), &node.delayed.lock(), handle, &bytes)? {
            return Ok(None);
        }
        let mut space = match self.extents.begin_delayed_write(data.len() as u64).map_err(FsError::from) {
            Ok(Some(space)) => Some(space),
            Ok(None) | Err(FsError::NoSpace) => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Added::Yes(more) = self.queue_write(handle, offset, data, &mut space)? {
            return Ok(Some(more));
        }
        // An error is not one of this write.
        drop(self.flush(node));
        match self.queue_write(handle, offset, data, &mut space)? {
            Added::Yes(more) => Ok(Some(more)),
            Added::No => Ok(None),
        }
    }

    /// Whether a write of whole blocks to these bytes can be delayed: nothing but its blocks, the size and the times may
    /// depend on it.
    fn accepts_delayed(
        &self,
        state: &State,
        queue: &Queue,
        handle: &Handle,
        bytes: &Range<u64>,
    ) -> Result<bool> {
        let record = state.record()?;
        check_file(record)?;
        let is_plain =
            !record.has(FLAG_INLINE | FLAG_SHARES | FLAG_SHIFTING) && matches!(state, State::Present(_));
        // A write may have to remove a privilege at once.
        let keeps_set_id = handle.keeps_set_id() || without_set_id(record) == record.permissions;
        if !is_plain || !keeps_set_id || record.xattrs > 0 {
            return Ok(false);
        }
        // If the file becomes longer, nothing may have to be done with its old end.
        let size = queue.size(record);
        let block = u64::from(self.extents.block_size());
        let is_clean = !record.has(FLAG_TAIL_STALE | FLAG_TRUNCATING) && size.is_multiple_of(block);
        Ok(bytes.end <= size || is_clean && bytes.start <= size)
    }

    fn queue_write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        space: &mut Option<DelayedSpace>,
    ) -> Result<Added> {
        let (node, block) = (handle.node(), u64::from(self.extents.block_size()));
        let state = node.state.read();
        let mut queue = node.delayed.lock();
        let call = write_call(handle, state.record()?, offset, data);
        let is_of_another_class = queue.queued.as_ref().is_some_and(|batch| batch.hint != call.hint);
        let bytes = offset..offset + data.len() as u64;
        if is_of_another_class || !self.accepts_delayed(&state, &queue, handle, &bytes)? {
            return Ok(Added::No);
        }
        // Before it is queued, so that a thread that closes the volume finds it.
        let Some(mut wakes) = self.delayed.list(node.inode, node) else { return Ok(Added::No) };
        let fits = |runs, blocks| {
            runs <= RUNS_MAX && blocks * block <= PIECE && self.extents.runs_fit_in_one_tx(runs, blocks)
        };
        let now_ns = self.clock.monotonic_ns();
        let batch = queue.queued.get_or_insert_with(|| Batch::new(&call, self.delayed.take_buffer(), now_ns));
        let added = batch.add(offset / block, data, block, fits);
        assert!(!batch.data.is_empty(), "an empty batch takes any write that may be delayed");
        if let Added::Yes(more) = added {
            batch.outline.time = self.clock.now();
            // A write over another one needs no space of its own.
            batch.space.extend(space.take().filter(|_| more > 0));
            node.delayed.set_any(true);
            let large_bytes = LARGE.0.min(self.delayed.bytes_max() / 4);
            let is_large = batch.data.len() as u64 >= large_bytes || batch.outline.runs.len() >= LARGE.1;
            wakes |= is_large && self.delayed.set_due(node.inode);
            drop(queue);
            self.runtime.committed(now_ns);
        }
        if wakes {
            self.runtime.wake_task(BackgroundTask::DelayedWrites);
        }
        Ok(added)
    }

    /// Appends the queued writes of a file, and then inserts them under its lock. The caller holds no lock.
    fn flush(&self, node: &Arc<Node>) -> Result<()> {
        if !node.delayed.any() {
            return Ok(());
        }
        match self.append_queued(node) {
            Ok(false) => Ok(()),
            appended => appended.and(self.settle_appended(&mut Locked::one(node), node)),
        }
    }

    /// Appends the queued writes of a file without its lock. Returns whether there were any.
    fn append_queued(&self, node: &Node) -> Result<bool> {
        let Some((mut batch, appending)) = node.delayed.take_queued() else { return Ok(false) };
        let Batch { object, hint, valid, .. } = batch;
        let call = BlockRuns { object, hint, valid, runs: &batch.outline.runs, data: &batch.data };
        let appended = match self.extents.append_runs(&call, std::mem::take(&mut batch.space)) {
            Ok(written) => Some(written),
            Err(error) if may_succeed_in_pieces(&error) => None,
            Err(error) => {
                self.delayed.return_buffer(batch.data);
                return Err(self.lost(node.inode, error.into()));
            }
        };
        node.delayed.lock().appended.push_back((batch, appended));
        drop(appending);
        Ok(true)
    }

    /// Inserts what is appended.
    fn settle_appended(&self, locked: &mut Locked, node: &Node) -> Result<()> {
        let mut settled = Ok(());
        loop {
            let mut queue = node.delayed.lock();
            let Some((batch, written)) = queue.appended.pop_front() else {
                self.unlist_if_empty(node, &queue);
                return settled;
            };
            drop(queue);
            let inserted = self.insert_batch(locked, node.inode, &batch, written);
            settled = settled.and(inserted.map_err(|error| self.lost(node.inode, error)));
            self.delayed.return_buffer(batch.data);
        }
    }

    /// Inserts everything that is delayed of a locked file.
    fn settle_locked(&self, locked: &mut Locked, node: &Node) -> Result<()> {
        let mut settled = Ok(());
        while node.delayed.any() {
            settled = settled.and(self.append_queued(node).map(drop));
            settled = settled.and(self.settle_appended(locked, node));
        }
        settled
    }

    fn unlist_if_empty(&self, node: &Node, queue: &Queue) {
        if queue.is_empty() && node.delayed.set_any(false) {
            self.delayed.unlist(node.inode);
        }
    }

    fn insert_batch(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        batch: &Batch,
        written: Option<Written>,
    ) -> Result<()> {
        if let Some(written) = written {
            let end = batch.outline.end;
            let insert = |tx: &mut Tx, _: &Record| Ok((self.extents.insert(tx, written)?, end));
            match self.insert_delayed(locked, inode, batch.outline.time, insert) {
                Err(FsError::NoSpace | FsError::NoMemory) => {}
                inserted => return inserted.map(drop),
            }
        }
        let block = self.extents.block_size() as usize;
        let mut from = 0;
        for &(first, blocks) in &batch.outline.runs {
            let run = &batch.data[from..from + blocks as usize * block];
            self.store_in_pieces(locked, inode, batch, first * block as u64, run)?;
            from += run.len();
        }
        Ok(())
    }

    fn store_in_pieces(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        batch: &Batch,
        offset: u64,
        run: &[u8],
    ) -> Result<()> {
        let block = self.extents.block_size() as usize;
        let (mut done, mut piece) = (0, run.len());
        while done < run.len() {
            let (at, data) = (offset + done as u64, &run[done..run.len().min(done + piece)]);
            let write = |tx: &mut Tx, record: &Record| {
                let (object, valid, may_refer) = (record.object(inode), record.size, record.has(FLAG_SHARES));
                let call = WriteCall { object, hint: batch.hint, offset: at, data, valid, may_refer };
                let (map, length) = self.extents.write(tx, &call, None)?;
                Ok((map, at + length as u64))
            };
            match self.insert_delayed(locked, inode, batch.outline.time, write) {
                Ok(end) => done = (end - offset) as usize,
                Err(FsError::NoSpace | FsError::NoMemory) if piece > block => {
                    piece = (piece / 2).next_multiple_of(block);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Commits the blocks that `insert` adds, with the times, and with the end that it returns.
    fn insert_delayed<'a>(
        &'a self,
        locked: &mut Locked,
        inode: InodeNo,
        time: Timestamp,
        insert: impl FnOnce(&mut Tx, &Record) -> Result<(MapLock<'a>, u64)>,
    ) -> Result<u64> {
        let mut record = locked.record(inode)?.clone();
        let mut change = Change::new();
        let (map, end) = insert(&mut change.tx, &record)?;
        record.size = record.size.max(end);
        record.add_blocks(map.blocks_added());
        record.modified = time;
        // A name may have been removed since.
        record.changed = record.changed.max(time);
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(end)
    }

    fn lost(&self, inode: InodeNo, error: FsError) -> FsError {
        tracing::error!("data that was written to inode {} cannot be stored: {error}", inode.0);
        self.delay_writes(0);
        self.runtime.failed(&error);
        error
    }
}

/// Whether less data may need less than is missing.
fn may_succeed_in_pieces(error: &ExtentError) -> bool {
    matches!(FsError::from(error.clone()), FsError::NoSpace | FsError::NoMemory)
}
