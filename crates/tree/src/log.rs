//! Writing the journal: records, batches, group commit, and the switch between log zones.
//!
//! Transactions submit encoded records in one short critical section (`state`), which gives them their LSN. A thread
//! that needs its record durable becomes the leader (`io`, the commit lock). It appends the batches up to its own
//! record, one after the other, and flushes once for all threads whose records are among them. Records submitted
//! meanwhile wait for the next leader. At most one append to the log is in flight.
//!
//! Batches stay in memory until they are durable, so that a failed log zone loses nothing. They are appended again to
//! the standby, and a checkpoint becomes due there.
//!
//! Space. Every record is admitted before it is submitted: `room - reserved` never falls below the space for a
//! checkpoint record and some seals. A single record reserves the blocks that it could take alone. Once it is in a
//! batch, the batch reserves the blocks that it takes as a whole. A switch provides a new zone and makes a checkpoint
//! due.
//!
//! [`switch`] describes how the log moves from one zone to the next.

mod switch;

use std::collections::VecDeque;
use std::sync::Arc;

use pool::{Lsn, OwnedPool};
use rt::order::{LockOrder, Ordered};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};
use zone::{Address, Blocks, Cause, Device, FsId, Geometry, Lease, Leases, Life, ZoneId};

use crate::format::{self, BatchHeader, BatchKind, FRAME, LogFrame, Seal};
use crate::record;
use crate::types::{Epoch, Result, StoreError};
use switch::Mark;
pub(crate) use switch::OldZone;

/// The most bytes of records in a batch.
const BATCH_MAX: usize = 256 << 10;
/// With this number of full batches they are appended in the background, even if no thread waits for them.
const FULL_BATCHES: usize = 4;
/// The most that may be appended to the log without a flush.
const UNFLUSHED_MAX: usize = 8 << 20;
/// … and as a share of a log zone, so that all of it fits beside a checkpoint after a failure.
const UNFLUSHED_SHARE: usize = 8;
/// Blocks reserved for seals of recoveries that do not reach a checkpoint.
const SEALS_RESERVED: u64 = 4;

/// Blocks that a payload of this many bytes takes in the log.
pub(crate) fn blocks_for(payload: usize, block_size: u32) -> u64 {
    payload.div_ceil(block_size as usize - FRAME) as u64
}

/// Records that will be appended together.
#[derive(Default)]
struct Batch {
    records: Vec<u8>,
    count: u32,
    first: u64,
    last: u64,
    epoch: Epoch,
    /// Blocks reserved for it.
    reserved: u64,
}

impl Batch {
    /// Blocks of this batch in the log.
    fn blocks(&self, block_size: u32) -> u64 {
        blocks_for(size_of::<BatchHeader>() + self.records.len(), block_size)
    }
}

/// The part of the log's state that transactions use.
struct State {
    next: u64,
    epoch: Epoch,
    open: Batch,
    full: VecDeque<Batch>,
    /// Free blocks of the log zone.
    room: u64,
    /// Blocks reserved for records that are not appended yet.
    reserved: u64,
    /// Blocks reserved for a checkpoint and seals.
    checkpoint_reserve: u64,
    /// No record is admitted before the next checkpoint.
    checkpoint_first: bool,
    /// Records and their bytes since the last cut, which a recovery would replay.
    replay_records: u64,
    replay_bytes: u64,
    /// The LSNs that running syncs wait for.
    waiting: Vec<u64>,
}

/// A batch that was appended and may have to be appended again.
struct Appended {
    kind: BatchKind,
    epoch: Epoch,
    header: BatchHeader,
    body: Vec<u8>,
}

/// The part of the log's state that the leader uses.
pub(crate) struct Io {
    /// The zone in use. None before the first seal of a mount whose log zone is full or failed.
    lease: Option<Lease>,
    /// Log zones that the next checkpoint frees, because all their records are older than its cut.
    previous: Vec<OldZone>,
    /// The newest batch outside the zone in use is a successor mark. If the zone in use were lost, recovery would not
    /// take an older one for the newest.
    is_marked: bool,
    /// Log zones without a mark that could not be reset. Recovery may read them as long as the volume exists.
    silent: Vec<ZoneId>,
    /// A zone with a mark: the newest one while there are silent ones. The log takes it if no other zone is free.
    witness: Option<ZoneId>,
    sequence: u64,
    unflushed: Vec<Appended>,
    unflushed_bytes: usize,
    /// The last LSN appended.
    appended: u64,
    /// The greatest known-durable LSN in an appended batch.
    appended_known: u64,
    /// The newest checkpoint known durable.
    checkpoint: Address,
    /// Log zones that failed or filled early. They have records after the cut of the checkpoint that was being taken,
    /// so only the one after it replaces them.
    outlived: Vec<OldZone>,
    /// An append or a flush has failed for good. No later record may be reported as durable.
    broken: bool,
    /// The newest batch in the zone in use.
    newest: Newest,
}

/// How far a log zone has come. In one zone, epochs and LSNs never decrease. Recovery takes a batch with a lower one
/// for a batch of an earlier life of the zone (`LogZone::batches`). In the next zone both may begin lower: batches
/// that were not durable in a failed zone are appended there once more.
#[derive(Default)]
struct Newest {
    zone: Option<(ZoneId, Life)>,
    epoch: Epoch,
    last: u64,
}

impl Newest {
    /// Checks and notes the batch that is appended next.
    fn advance(&mut self, lease: &Lease, batch: &Appended) {
        let zone = Some((lease.zone(), lease.life()));
        if self.zone != zone {
            *self = Newest { zone, ..Newest::default() };
        }
        let (epoch, first, last) = (batch.epoch, batch.header.first.get(), batch.header.last.get());
        assert!(epoch >= self.epoch, "a batch of epoch {} comes after one of {}", epoch.0, self.epoch.0);
        self.epoch = epoch;
        // Checkpoints and seals have no records. A mark has none either, and its first LSN is after the existing
        // records.
        if batch.kind == BatchKind::Journal {
            assert!(first > self.last, "records from {first} on come after record {}", self.last);
            self.last = self.last.max(last);
        }
    }
}

/// The writer of the journal.
pub(crate) struct Log {
    fs_id: FsId,
    device: Arc<dyn Device>,
    leases: Arc<Leases>,
    pool: Arc<OwnedPool>,
    state: Mutex<State>,
    io: Ordered<Mutex<Io>>,
    durable: AtomicU64,
    known: AtomicU64,
    batches: AtomicU64,
    followers: AtomicU64,
    served_max: AtomicU64,
    checkpoint_due: AtomicBool,
    /// There is background work to do before committing threads have to do it.
    pressed: AtomicBool,
}

/// Space in the log reserved for one record.
#[derive(Debug)]
pub(crate) struct Admitted {
    blocks: u64,
    /// Bytes of the record without patches. A replay has it like this in memory.
    bytes: u64,
}

/// The state from which the log continues after recovery.
pub(crate) struct Start {
    pub(crate) lease: Option<Lease>,
    pub(crate) previous: Vec<OldZone>,
    /// A zone with a successor mark that the log may take when no other does.
    pub(crate) witness: Option<ZoneId>,
    /// Whether the newest batch outside the zone in use is a successor mark, or there is none.
    pub(crate) is_marked: bool,
    pub(crate) sequence: u64,
    pub(crate) next: Lsn,
    pub(crate) epoch: Epoch,
    pub(crate) durable: Lsn,
    pub(crate) checkpoint: Address,
    /// Bytes of the last checkpoint record.
    pub(crate) checkpoint_bytes: usize,
}

impl Log {
    /// A log that does not accept appends yet.
    pub(crate) fn new(fs_id: FsId, leases: Arc<Leases>, pool: Arc<OwnedPool>) -> Self {
        let device = Arc::clone(leases.device());
        let state = State {
            next: 1,
            epoch: Epoch(0),
            open: Batch::default(),
            full: VecDeque::new(),
            room: 0,
            reserved: 0,
            checkpoint_reserve: 0,
            checkpoint_first: false,
            replay_records: 0,
            replay_bytes: 0,
            waiting: Vec::new(),
        };
        let io = Io {
            lease: None,
            previous: Vec::new(),
            is_marked: true,
            silent: Vec::new(),
            witness: None,
            sequence: 0,
            unflushed: Vec::new(),
            unflushed_bytes: 0,
            appended: 0,
            appended_known: 0,
            checkpoint: Address::NONE,
            outlived: Vec::new(),
            broken: false,
            newest: Newest::default(),
        };
        Log {
            fs_id,
            device,
            leases,
            pool,
            state: Mutex::new(state),
            io: Ordered::mutex(LockOrder::Commit, io),
            durable: AtomicU64::new(0),
            known: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            followers: AtomicU64::new(0),
            served_max: AtomicU64::new(0),
            checkpoint_due: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
        }
    }

    /// A record up to `lsn` has been replayed.
    pub(crate) fn replayed(&self, lsn: Lsn, bytes: u64) {
        let mut state = self.state.lock();
        state.next = state.next.max(lsn.0 + 1);
        state.replay_records += u64::from(bytes > 0);
        state.replay_bytes += bytes;
    }

    /// Continues at the end of the log that recovery found.
    pub(crate) fn attach(&self, start: Start) {
        let mut io = self.io.lock();
        let mut state = self.state.lock();
        assert!(start.next.0 >= state.next, "LSNs are never used twice");
        assert!(start.durable < start.next, "no LSN that is durable is given again");
        assert!(
            io.lease.is_none() && io.unflushed.is_empty(),
            "nothing is appended before the log is attached"
        );
        (state.next, state.epoch) = (start.next.0, start.epoch);
        state.checkpoint_reserve = checkpoint_reserve_blocks(start.checkpoint_bytes, self.block_size());
        state.room = start.lease.as_ref().map_or(0, |lease| u64::from(lease.free_blocks()));
        let due = !start.previous.is_empty() || start.witness.is_some() || start.lease.is_none();
        io.lease = start.lease;
        io.previous = start.previous;
        io.witness = start.witness;
        io.is_marked = start.is_marked;
        io.sequence = start.sequence;
        io.appended = start.next.0 - 1;
        io.checkpoint = start.checkpoint;
        self.durable.store(start.durable.0, Ordering::Release);
        self.checkpoint_due.store(due, Ordering::Release);
    }

    /// The seal took the last zone of the log, and only a checkpoint may follow it. If a crash fills that zone before
    /// the checkpoint, the zone contains nothing but the seal, and the next recovery can do without it.
    pub(crate) fn checkpoint_first(&self) {
        self.state.lock().checkpoint_first = true;
        self.checkpoint_due.store(true, Ordering::Release);
    }

    // ---- transactions ------------------------------------------------------------------------

    /// The longest record.
    pub(crate) fn record_max(&self) -> usize {
        BATCH_MAX.min(self.zone_bytes() / 8)
    }

    fn unflushed_max(&self) -> usize {
        UNFLUSHED_MAX.min(self.zone_bytes() / UNFLUSHED_SHARE)
    }

    /// Payload bytes of a whole log zone.
    fn zone_bytes(&self) -> usize {
        let geometry = self.device.geometry();
        geometry.zone_blocks as usize * (geometry.block_size as usize - FRAME)
    }

    /// Reserves space for a record of this many bytes, if there is space beside a checkpoint.
    pub(crate) fn admit(&self, bytes: usize) -> Option<Admitted> {
        // A record may begin a batch of its own and end in a block of its own.
        let blocks = blocks_for(bytes + size_of::<BatchHeader>(), self.block_size()) + 1;
        let mut state = self.state.lock();
        if state.checkpoint_first || state.reserved + blocks + state.checkpoint_reserve > state.room {
            return None;
        }
        state.reserved += blocks;
        Some(Admitted { blocks, bytes: bytes as u64 })
    }

    /// Returns a reservation that was not used.
    pub(crate) fn return_reservation(&self, admitted: Admitted) {
        self.state.lock().release(admitted.blocks);
    }

    /// The point of no return: the record gets its LSN, and `apply` runs at its place in the order.
    pub(crate) fn submit(
        &self,
        mut record: Vec<u8>,
        admitted: Admitted,
        apply: impl FnOnce(Lsn),
    ) -> (Lsn, Epoch) {
        let mut state = self.state.lock();
        let lsn = Lsn(state.next);
        state.next += 1;
        record::set_lsn(&mut record, lsn);
        if state.open.records.len() + record.len() > BATCH_MAX {
            state.close_batch();
        }
        let epoch = state.epoch;
        let open = &mut state.open;
        if open.count == 0 {
            (open.first, open.epoch) = (lsn.0, epoch);
        }
        open.records.extend_from_slice(&record);
        open.count += 1;
        open.last = lsn.0;
        let (before, now) = (open.reserved, open.blocks(self.block_size()));
        assert!(now - before <= admitted.blocks, "a record takes no more blocks than were admitted for it");
        open.reserved = now;
        state.reserved += now - before;
        state.release(admitted.blocks);
        state.replay_records += 1;
        state.replay_bytes += admitted.bytes;
        if state.full.len() >= FULL_BATCHES || state.is_short(self.device.geometry()) {
            self.pressed.store(true, Ordering::Relaxed);
        }
        apply(lsn);
        (lsn, epoch)
    }

    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.state.lock().next - 1)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.state.lock().epoch
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// The highest LSN that the log durably says is durable.
    pub(crate) fn known_durable(&self) -> Lsn {
        Lsn(self.known.load(Ordering::Acquire))
    }

    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Records and bytes that a recovery would replay now.
    pub(crate) fn replay_cost(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.replay_records, state.replay_bytes)
    }

    /// Whether the log needs a checkpoint, to leave a zone or because space is short.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.checkpoint_due.load(Ordering::Acquire) || self.is_short()
    }

    /// The written share of a log zone, up to the point at which a checkpoint is wanted.
    pub(crate) fn share_of_zone(&self) -> f64 {
        if self.checkpoint_due.load(Ordering::Acquire) {
            return 1.0;
        }
        let (state, geometry) = (self.state.lock(), self.device.geometry());
        let (zone, least) = (u64::from(geometry.zone_blocks), state.least_room(geometry));
        let (left, all) = (state.room.saturating_sub(least), zone.saturating_sub(least).max(1));
        1.0 - left as f64 / all as f64
    }

    /// Whether enough batches are full that they should be appended although no thread waits for them.
    pub(crate) fn has_full_batches(&self) -> bool {
        self.state.lock().full.len() >= FULL_BATCHES
    }

    /// Whether batches have become full or space short since the background last looked.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// The background looks for work.
    pub(crate) fn relieve(&self) {
        self.pressed.store(false, Ordering::Relaxed);
    }

    /// Whether not even a checkpoint would fit.
    fn is_tight(&self) -> bool {
        let state = self.state.lock();
        state.room < state.checkpoint_reserve + state.reserved
    }

    /// Whether the free blocks beside the reserved ones are less than a quarter of a zone.
    fn is_short(&self) -> bool {
        self.state.lock().is_short(self.device.geometry())
    }

    // ---- the leader --------------------------------------------------------------------------

    /// Returns when everything up to `lsn`, and all data appended before the call, is durable.
    pub(crate) fn sync(&self, lsn: Lsn) -> Result<()> {
        if self.durable() >= lsn {
            return Ok(());
        }
        self.state.lock().waiting.push(lsn.0);
        let led = self.leading(|io| self.make_durable(io, lsn));
        let waiting = &mut self.state.lock().waiting;
        let at = waiting.iter().position(|other| *other == lsn.0);
        waiting.swap_remove(at.expect("it was put there above"));
        led
    }

    fn make_durable(&self, io: &mut Io, lsn: Lsn) -> Result<()> {
        // An earlier leader may have done it: that is group commit.
        if self.durable() >= lsn {
            return Ok(());
        }
        self.append_up_to(io, lsn)?;
        if rt::is_planted("break-flush-on-sync") {
            self.durable.store(io.appended, Ordering::Release);
            return Ok(());
        }
        self.flush(io)?;
        if rt::is_planted("break-follower") {
            self.durable.fetch_max(self.last().0, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Counts the syncs that a flush has served.
    fn note_served(&self, before: u64, now: u64) {
        let served = |lsn: &&u64| before < **lsn && **lsn <= now;
        let served = self.state.lock().waiting.iter().filter(served).count() as u64;
        self.followers.fetch_add(served.saturating_sub(1), Ordering::Relaxed);
        self.served_max.fetch_max(served, Ordering::Relaxed);
    }

    /// The number of syncs that shared an earlier one's flush, and the most syncs that one flush has served.
    pub(crate) fn served(&self) -> (u64, u64) {
        (self.followers.load(Ordering::Relaxed), self.served_max.load(Ordering::Relaxed))
    }

    /// Does the leader's work under the commit lock. After a failure no thread leads any more: a later flush that
    /// succeeds would report records as durable that the failed append has lost.
    fn leading<T>(&self, lead: impl FnOnce(&mut Io) -> Result<T>) -> Result<T> {
        let mut io = self.io.lock();
        if io.broken {
            return Err(StoreError::ShutDown(Arc::from("the log has failed")));
        }
        let led = lead(&mut io);
        io.broken = led.is_err();
        led
    }

    /// Appends all submitted records, without a flush unless too much is unflushed.
    pub(crate) fn push(&self) -> Result<()> {
        let last = self.last();
        self.leading(|io| self.append_up_to(io, last))
    }

    /// A flush alone. Everything appended before is durable afterwards.
    pub(crate) fn barrier(&self) -> Result<()> {
        self.leading(|io| self.flush(io))
    }

    /// Makes the log record durably that everything up to `lsn` is durable (with an empty batch, if needed).
    pub(crate) fn make_known(&self, lsn: Lsn) -> Result<bool> {
        self.sync(lsn)?;
        self.leading(|io| {
            if self.known_durable() >= lsn {
                return Ok(true);
            }
            // Each batch states what is durable.
            let mut none_left = None;
            while io.appended_known < lsn.0 && none_left.is_none() {
                none_left = self.append_next(io)?;
            }
            if let Some(epoch) = none_left {
                let Some(admitted) = self.admit(0) else { return Ok(false) };
                let reserved = admitted.blocks;
                let epoch = if rt::is_planted("break-mark-epoch") { self.epoch() } else { epoch };
                let first = io.appended + 1;
                let mark = Batch { first, last: io.appended, epoch, reserved, ..Batch::default() };
                self.append_journal(io, mark)?;
            }
            self.flush(io)?;
            Ok(true)
        })
    }

    /// Appends all submitted records. Returns the epoch in which no record was left. The next batch is of that epoch
    /// or a later one. In a zone epochs only grow, and a batch that came after one of a later epoch would not count.
    fn append_all_batches(&self, io: &mut Io) -> Result<Epoch> {
        loop {
            if let Some(epoch) = self.append_next(io)? {
                return Ok(epoch);
            }
        }
    }

    /// Appends the records up to `lsn`, and those in the same batch. Other threads wait for records that they add
    /// meanwhile.
    fn append_up_to(&self, io: &mut Io, lsn: Lsn) -> Result<()> {
        while io.appended < lsn.0 && self.append_next(io)?.is_none() {}
        Ok(())
    }

    /// Appends the next batch. Returns the epoch if there is none.
    fn append_next(&self, io: &mut Io) -> Result<Option<Epoch>> {
        let batch = {
            let mut state = self.state.lock();
            match state.full.pop_front() {
                Some(batch) => batch,
                None if state.open.count > 0 => std::mem::take(&mut state.open),
                None => return Ok(Some(state.epoch)),
            }
        };
        assert!(batch.count > 0 && batch.first <= batch.last, "a batch that was submitted has records");
        self.append_journal(io, batch)?;
        if io.unflushed_bytes > self.unflushed_max() {
            self.flush(io)?;
        }
        Ok(None)
    }

    fn append_journal(&self, io: &mut Io, batch: Batch) -> Result<()> {
        let header = self.header(io, batch.count, batch.first, batch.last);
        let (reserved, last) = (batch.reserved, batch.last);
        assert!(
            batch.blocks(self.block_size()) <= reserved,
            "a batch takes the blocks that are reserved for it"
        );
        assert!(batch.first > io.appended, "record {} is appended once", batch.first);
        self.append(
            io,
            Appended { kind: BatchKind::Journal, epoch: batch.epoch, header, body: batch.records },
        )?;
        io.appended = io.appended.max(last);
        let mut state = self.state.lock();
        state.release(reserved);
        state.room = io.room();
        Ok(())
    }

    fn header(&self, io: &Io, records: u32, first: u64, last: u64) -> BatchHeader {
        BatchHeader {
            checksum: U32::ZERO,
            records: U32::new(records),
            bytes: U64::ZERO,
            first: U64::new(first),
            last: U64::new(last),
            known_durable: U64::new(if rt::is_planted("break-known-durable") {
                last
            } else {
                self.durable().0
            }),
            checkpoint: U64::new(io.checkpoint.bits()),
            successor: U32::ZERO,
            successor_life: U32::ZERO,
        }
    }

    /// Appends a batch, in the standby if this zone does not accept it. Retains it until it is durable.
    fn append(&self, io: &mut Io, batch: Appended) -> Result<Address> {
        if batch.kind != BatchKind::Seal {
            // A recovery may do without a seal, and without its known-durable LSN.
            io.appended_known = io.appended_known.max(batch.header.known_durable.get());
        }
        io.unflushed_bytes += batch.body.len();
        self.batches.fetch_add(1, Ordering::Relaxed);
        match self.append_to_zone(io, &batch) {
            Ok(at) => {
                io.unflushed.push(batch);
                Ok(at)
            }
            Err(StoreError::Device(error)) if error.ends_zone() => self.fail_over(io, batch, &error),
            Err(error) => Err(error),
        }
    }

    fn append_to_zone(&self, io: &mut Io, batch: &Appended) -> Result<Address> {
        let geometry = self.device.geometry();
        let sequence = io.next_sequence();
        if io.lease.is_none() {
            io.lease = Some(self.begin_standby(io)?);
        }
        let lease = io.lease.as_ref().expect("it was begun if there was none");
        let bytes = self.encode(lease, sequence, batch);
        let blocks = (bytes.len() / geometry.block_size as usize) as Blocks;
        if !lease.admit(blocks, 0) {
            return Err(zone::DeviceError::ZoneFull { zone: lease.zone(), blocks }.into());
        }
        io.newest.advance(lease, batch);
        let cause = if batch.kind == BatchKind::Checkpoint { Cause::Checkpoint } else { Cause::Journal };
        Ok(Address::new(lease.zone(), lease.append_in_pieces(cause, &bytes)?, lease.life()))
    }

    fn encode(&self, lease: &Lease, sequence: u64, batch: &Appended) -> Vec<u8> {
        let block_size = self.block_size() as usize;
        let mut payload = Vec::with_capacity(size_of::<BatchHeader>() + batch.body.len());
        let mut header = batch.header;
        header.bytes = U64::new((size_of::<BatchHeader>() + batch.body.len()) as u64);
        payload.extend_from_slice(header.as_bytes());
        payload.extend_from_slice(&batch.body);
        let sum = format::checksum(&[&payload[4..]]);
        payload[..4].copy_from_slice(&sum.to_le_bytes());
        let count = blocks_for(payload.len(), self.block_size());
        let mut out = vec![0; count as usize * block_size];
        for (index, (part, block)) in
            payload.chunks(block_size - FRAME).zip(out.chunks_mut(block_size)).enumerate()
        {
            block[FRAME..FRAME + part.len()].copy_from_slice(part);
            let frame = LogFrame {
                magic: format::LOG_MAGIC,
                checksum: U32::ZERO,
                fs_id: self.fs_id.0,
                zone: U32::new(lease.zone().0),
                life: U32::new(lease.life().0),
                sequence: U64::new(sequence),
                epoch: U64::new(batch.epoch.0),
                index: U32::new(index as u32),
                count: U32::new(count as u32),
                payload: U32::new(part.len() as u32),
                kind: batch.kind as u8,
                reserved: [0; 3],
            };
            format::seal_block(block, frame);
        }
        out
    }

    fn flush(&self, io: &mut Io) -> Result<()> {
        self.device.flush()?;
        io.unflushed.clear();
        io.unflushed_bytes = 0;
        let before = self.durable.fetch_max(io.appended, Ordering::AcqRel);
        self.note_served(before, io.appended);
        self.known.fetch_max(io.appended_known, Ordering::AcqRel);
        Ok(())
    }

    // ---- checkpoints and seals ---------------------------------------------------------------

    /// The cut, with every group locked: later records belong to the next epoch.
    pub(crate) fn cut(&self) -> (Lsn, Epoch) {
        let mut state = self.state.lock();
        state.close_batch();
        let epoch = state.epoch;
        state.epoch = Epoch(epoch.0 + 1);
        (state.replay_records, state.replay_bytes) = (0, 0);
        // If a log zone fails from here on, another checkpoint becomes due.
        self.checkpoint_due.store(false, Ordering::Release);
        (Lsn(state.next - 1), epoch)
    }

    /// Called before the cut. Makes sure that there is space for a record of about `record_bytes`. Moves the journal
    /// to the standby if this zone lacks space for the record and for the records of transactions meanwhile. Then all
    /// records in the old zone are older than the cut. Returns where replay has to begin: no record before it is newer
    /// than the cut.
    pub(crate) fn prepare_checkpoint(&self, record_bytes: usize) -> Result<Address> {
        self.leading(|io| {
            {
                let mut state = self.state.lock();
                state.checkpoint_reserve =
                    state.checkpoint_reserve.max(checkpoint_reserve_blocks(record_bytes, self.block_size()));
            }
            let outlived = std::mem::take(&mut io.outlived);
            io.previous.extend(outlived);
            if self.is_short() && (io.previous.is_empty() || self.is_tight()) {
                let before = io.zone();
                let epoch = self.append_all_batches(io)?;
                // After a failure of the zone it has moved already.
                if io.zone() == before {
                    self.switch(io, epoch)?;
                }
            }
            Ok(io.end())
        })
    }

    /// Appends the checkpoint record, flushes, and frees the log zones that it replaces.
    pub(crate) fn append_checkpoint(&self, cut: Lsn, body: Vec<u8>) -> Result<()> {
        let (replaced, mark) = self.leading(|io| {
            assert!(io.appended >= cut.0, "the records up to a cut are appended before its checkpoint");
            let bytes = body.len();
            let header = self.header(io, 0, cut.0, cut.0);
            let epoch = self.epoch();
            let mark = Mark { epoch, sequence: io.next_sequence() };
            let at = self.append(io, Appended { kind: BatchKind::Checkpoint, epoch, header, body })?;
            if !rt::is_planted("break-checkpoint-flush-after") {
                self.flush(io)?;
            }
            io.checkpoint = at;
            let mut state = self.state.lock();
            state.room = io.room();
            state.checkpoint_reserve = checkpoint_reserve_blocks(bytes, self.block_size());
            Ok((io.take_replaced(), mark))
        })?;
        self.retire_all(replaced, &mark)?;
        // Only now, because the records of admitted transactions may be acknowledged.
        self.state.lock().checkpoint_first = false;
        Ok(())
    }

    /// Ends a recovery. Batches that earlier epochs wrote beyond `last` never count again.
    pub(crate) fn seal(&self, last: Lsn) -> Result<()> {
        self.leading(|io| {
            let (epoch, next) = {
                let state = self.state.lock();
                (state.epoch, state.next)
            };
            assert!(last.0 < next && io.unflushed.is_empty(), "the seal is the first batch of a mount");
            let seal = Seal { last: U64::new(last.0), next: U64::new(next) };
            let header = self.header(io, 0, next, next - 1);
            let body = seal.as_bytes().to_vec();
            self.append(io, Appended { kind: BatchKind::Seal, epoch, header, body })?;
            self.state.lock().room = io.room();
            if rt::is_planted("break-seal-flush") { Ok(()) } else { self.flush(io) }
        })
    }

    fn block_size(&self) -> u32 {
        self.device.geometry().block_size
    }
}

impl Io {
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    fn room(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| u64::from(lease.free_blocks()))
    }

    fn zone(&self) -> Option<ZoneId> {
        self.lease.as_ref().map(Lease::zone)
    }

    /// The address of the next batch. None if it will begin another zone.
    fn end(&self) -> Address {
        let end = |lease: &Lease| Address::new(lease.zone(), lease.admitted(), lease.life());
        self.lease.as_ref().map_or(Address::NONE, end)
    }
}

impl State {
    fn is_short(&self, geometry: &Geometry) -> bool {
        self.room < self.least_room(geometry)
    }

    /// If fewer blocks than this are free, a checkpoint is wanted.
    fn least_room(&self, geometry: &Geometry) -> u64 {
        self.checkpoint_reserve + self.reserved + u64::from(geometry.zone_blocks) / 4
    }

    fn release(&mut self, blocks: u64) {
        assert!(blocks <= self.reserved, "{blocks} blocks of {} are reserved", self.reserved);
        self.reserved -= blocks;
    }

    fn close_batch(&mut self) {
        if self.open.count > 0 {
            self.full.push_back(std::mem::take(&mut self.open));
        }
    }
}

/// Blocks reserved for the next checkpoint, which may be twice as long as the last, and for seals.
fn checkpoint_reserve_blocks(checkpoint_bytes: usize, block_size: u32) -> u64 {
    blocks_for(checkpoint_bytes * 2 + (8 << 10), block_size) + SEALS_RESERVED
}
