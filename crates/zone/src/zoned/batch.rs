//! Writes at pointers, and batches of reads and of appends to several zones.
//!
//! Appends to the same zone are executed one after the other. Appends to different zones, and reads, are executed
//! concurrently. This is done in rounds: each round has the next piece of each zone that fits into one command, and
//! the first round has all reads.
//!
//! A thread that writes to several zones locks them in the order of their numbers, so a thread that waits for a lock
//! holds none of a higher number. The zone of a failed read is reported after all locks were released.
//!
//! When an append fails on the device, the later appends of its batch to the same zone fail too.

use std::collections::{BTreeMap, VecDeque};

use rt::sync::RwLockWriteGuard;
use rt::sync::atomic::Ordering;

use super::ZonedDevice;
use crate::engine::Transfer;
use crate::{Blocks, Command, DeviceError, Output, Result, ZoneId};

/// The writes to one zone by the thread that holds its lock.
struct ZoneQueue<'d, 'a> {
    zone: ZoneId,
    /// Released when there is nothing more to write: other threads may wait for this zone only.
    lock: Option<RwLockWriteGuard<'d, ()>>,
    waiting: VecDeque<QueuedWrite<'a>>,
    now: Option<ActiveWrite<'a>>,
}

/// A write that has not begun.
struct QueuedWrite<'a> {
    /// The index of its output.
    index: usize,
    from: &'a [u8],
}

/// A write that has begun.
struct ActiveWrite<'a> {
    index: usize,
    block: Blocks,
    blocks: Blocks,
    /// The offset of the rest on the device.
    offset: u64,
    rest: &'a [u8],
    /// A piece was refused once although the pointer was correct, and was repeated.
    is_repeated: bool,
}

impl ZoneQueue<'_, '_> {
    /// The present write and all queued writes fail.
    fn fail(&mut self, error: &DeviceError, outputs: &mut [Output]) {
        let waiting = self.waiting.drain(..).map(|write| write.index);
        let failed = self.now.take().map(|writing| writing.index).into_iter().chain(waiting);
        failed.for_each(|index| outputs[index] = Err(error.clone()));
    }
}

impl ZonedDevice {
    /// Appends at the pointer, alone.
    pub(super) fn append_alone(&self, zone: ZoneId, from: &[u8]) -> Output {
        self.machine.lock().blocks(zone, from.len())?;
        let waiting = VecDeque::from([QueuedWrite { index: 0, from }]);
        let mut queue = [ZoneQueue { zone, lock: Some(self.lock_to_change(zone)?), waiting, now: None }];
        let mut outputs = vec![Ok(0)];
        self.run_rounds(&mut queue, Vec::new(), &mut outputs);
        outputs.pop().expect("one output for one write")
    }

    /// Executes a batch of commands.
    pub(super) fn run_batch(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Output> = batch.iter().map(|_| Ok(0)).collect();
        let mut queues = self.queues(batch, &mut outputs);
        let (places, reads): (Vec<_>, Vec<_>) = self.reads(batch, &mut outputs).into_iter().unzip();
        let read = self.run_rounds(&mut queues, reads, &mut outputs);
        drop(queues);
        for ((index, zone), done) in places.into_iter().zip(read) {
            outputs[index] =
                done.map(|()| 0).map_err(|error| self.explain_failure_unlocked(zone, "read", &error));
        }
        outputs
    }

    /// The appends of a batch, by zone.
    fn queues<'a>(&self, batch: &[Command<'a>], outputs: &mut [Output]) -> Vec<ZoneQueue<'_, 'a>> {
        let mut by_zone: BTreeMap<ZoneId, VecDeque<QueuedWrite<'a>>> = BTreeMap::new();
        for (index, command) in batch.iter().enumerate() {
            let Command::Append { zone, from } = command else { continue };
            let machine = self.machine.lock();
            match machine.blocks(*zone, from.len()).and_then(|blocks| machine.check_append(*zone, blocks)) {
                Ok(()) => by_zone.entry(*zone).or_default().push_back(QueuedWrite { index, from }),
                Err(error) => outputs[index] = Err(error),
            }
        }
        let mut queues = Vec::new();
        for (zone, waiting) in by_zone {
            match self.lock_to_change(zone) {
                Ok(lock) => queues.push(ZoneQueue { zone, lock: Some(lock), waiting, now: None }),
                Err(error) => waiting.iter().for_each(|write| outputs[write.index] = Err(error.clone())),
            }
        }
        queues
    }

    /// The valid reads of a batch, with their indexes and zones.
    fn reads<'r>(
        &self,
        batch: &'r mut [Command<'_>],
        outputs: &mut [Output],
    ) -> Vec<((usize, ZoneId), Transfer<'r>)> {
        let mut reads = Vec::new();
        for (index, command) in batch.iter_mut().enumerate() {
            let Command::Read { zone, block, into } = command else { continue };
            match self.check_read(*zone, *block, into.len()) {
                Ok(offset) => reads.push(((index, *zone), Transfer::Read { offset, into })),
                Err(error) => outputs[index] = Err(error),
            }
        }
        reads
    }

    /// Executes all queues, together with the reads in `transfers`. Returns the results of the reads.
    fn run_rounds<'a>(
        &self,
        queues: &mut [ZoneQueue<'_, 'a>],
        mut transfers: Vec<Transfer<'a>>,
        outputs: &mut [Output],
    ) -> Vec<std::io::Result<()>> {
        let mut read: Option<Vec<std::io::Result<()>>> = None;
        loop {
            let reads = transfers.len();
            for queue in queues.iter_mut() {
                self.begin(queue, outputs);
                transfers.extend(queue.now.as_ref().map(|writing| self.piece(queue.zone, writing)));
            }
            let mut moved = match transfers.is_empty() {
                true => return read.unwrap_or_default(),
                false => self.port.move_all(&mut transfers),
            };
            transfers.clear();
            let written = moved.split_off(reads);
            read.get_or_insert(moved);
            let writing = queues.iter_mut().filter(|queue| queue.now.is_some());
            writing.zip(written).for_each(|(queue, done)| self.end_piece(queue, done, outputs));
        }
    }

    /// Begins the next write of a queue if none has begun, and ensures that its next piece may be written.
    fn begin(&self, queue: &mut ZoneQueue<'_, '_>, outputs: &mut [Output]) {
        while queue.now.is_none()
            && let Some(QueuedWrite { index, from }) = queue.waiting.pop_front()
        {
            match self.begin_write(queue.zone, from.len()) {
                Ok((block, blocks)) => {
                    let offset = self.at(queue.zone, block);
                    let writing =
                        ActiveWrite { index, block, blocks, offset, rest: from, is_repeated: false };
                    queue.now = Some(writing);
                }
                Err(error) => outputs[index] = Err(error),
            }
        }
        if queue.now.is_some()
            && let Err(error) = self.make_first_block_durable(queue.zone)
        {
            queue.fail(&error, outputs);
        }
        if queue.now.is_none() {
            queue.lock = None;
        }
    }

    fn begin_write(&self, zone: ZoneId, bytes: usize) -> Result<(Blocks, Blocks)> {
        self.check_not_emptied(zone)?;
        let mut machine = self.machine.lock();
        let blocks = machine.blocks(zone, bytes)?;
        let info = machine.check_write(zone, blocks, None)?;
        machine.open(zone)?;
        Ok((info.pointer, blocks))
    }

    fn piece<'a>(&self, zone: ZoneId, writing: &ActiveWrite<'a>) -> Transfer<'a> {
        let length = self.piece_bytes(zone, writing.offset).min(writing.rest.len());
        Transfer::Write { offset: writing.offset, from: &writing.rest[..length], stream: 0 }
    }

    /// Processes the result of a piece.
    fn end_piece(&self, queue: &mut ZoneQueue<'_, '_>, done: std::io::Result<()>, outputs: &mut [Output]) {
        let writing = queue.now.as_mut().expect("only queues that write have a result");
        let ended = match done {
            Ok(()) => self.advance_past_piece(queue.zone, writing),
            Err(error) => {
                let error = self.explain_failure(queue.zone, "append", &error);
                let again = self.check_untouched(queue.zone, writing.offset, error, writing.is_repeated);
                writing.is_repeated = true;
                again.map(|()| false)
            }
        };
        match ended {
            Ok(false) => {}
            Ok(true) => {
                outputs[writing.index] = Ok(writing.block);
                queue.now = None;
            }
            Err(error) => queue.fail(&error, outputs),
        }
    }

    /// Advances behind a piece that was written. Returns whether it was the last.
    fn advance_past_piece(&self, zone: ZoneId, writing: &mut ActiveWrite<'_>) -> Result<bool> {
        let length = self.piece_bytes(zone, writing.offset).min(writing.rest.len());
        self.note_written(zone, writing.offset);
        writing.offset += length as u64;
        writing.rest = &writing.rest[length..];
        if !writing.rest.is_empty() {
            return Ok(false);
        }
        let end = writing.block + writing.blocks;
        let mut machine = self.machine.lock();
        // The pointer is behind the start of the write if the zone was reported in between.
        let pointer = machine.zone(zone)?.pointer;
        assert!((writing.block..end).contains(&pointer), "nothing else wrote to {zone:?} under this lock");
        machine.advance(zone, end - pointer, Some(pointer))?;
        self.landed(zone).store(end, Ordering::Relaxed);
        Ok(true)
    }

    /// Checks whether a refused write may be repeated: the zone is open and its pointer is where the write begins.
    fn check_untouched(&self, zone: ZoneId, at: u64, error: DeviceError, is_repeated: bool) -> Result<()> {
        let info = self.machine.lock().zone(zone)?;
        let is_there = info.state.has_pointer() && self.at(zone, info.pointer) == at;
        if is_repeated || !is_there || !matches!(error, DeviceError::Io { .. }) {
            return Err(error);
        }
        self.machine.lock().open(zone)
    }
}
