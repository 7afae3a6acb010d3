//! Zones in a plain file, or on a block device that has no zones.
//!
//! The states of the zones are stored in two tables of slots before the first zone (`format`), behind two copies of
//! the header (`header`). A third copy is near the end. An open for writing repairs damaged copies
//! (`device_metadata`). If no header is left, the shape of the volume is derived from the headers of the zones
//! (`search`). A flush has these steps: it collects the state of every changed zone, writes the slots of these zones,
//! and then asks the host once to make everything durable. After a crash, the pointer of a zone is the recorded one,
//! and data beyond it is lost.
//!
//! Why one sync of the host is enough for data and slots: a slot counts only writes that had completed when its
//! contents were determined, and the sync makes these durable as well. If the host crashes during the sync, slots may
//! be on the disk without the data that they count. Then a pointer is beyond appends that are lost or torn, and the
//! flush that would have guaranteed them never returned. The contract allows this for every device. Data of earlier
//! flushes is not affected.
//!
//! Why a zone whose reset is not durable takes no write: its slot may still be the old one, and after a crash the old
//! pointer would cover new blocks. So the first write after a reset makes the reset durable, unless a flush has done
//! so. The host's blocks are discarded only after that, because until then the old contents may become valid again. A
//! zone that a new process finds empty may have been reset by a killed process: its reset counts as not durable until
//! the first flush.
//!
//! A flush discards nothing: the host may need milliseconds for each zone, and a large deleted file has hundreds of
//! zones. They wait for [`Device::discard_one_zone`], which discards one at a time. Only a writer that opens the same
//! zone waits for it. A discard is recorded in the zone's slot, so that it is not repeated after each mount. This
//! record is a hint: after a crash, it can say that a zone is discarded although blocks were allocated since. They
//! are then freed when the zone is next emptied.
//!
//! All blocks of a zone are allocated from the host when the zone is opened. So a host without space refuses to open
//! a zone (`HostFull`), and no write in the middle of a zone fails. Zones for user writes are refused while the host
//! still has space for some other zones, because deleting files to free space needs zones for the log and for
//! metadata.
//!
//! On a block device, the same zones are discarded (`engine/discard.rs`) at the same points at which a file's blocks
//! would be freed. So no state that may become valid again has lost its data.
//!
//! On a device with write streams (NVMe placement handles), each write names the stream for the role and the lifetime
//! class of its zone.
//!
//! It does not keep appends in order, and a flush does not wait for appends in flight.

mod contents;
mod device_metadata;
mod draft;
mod error;
pub mod format;
mod header;
mod options;
mod search;
mod slots;
mod volume;
mod writes;

use std::collections::BTreeSet;

use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

pub use contents::FileContents;
pub(crate) use contents::describe_start;
pub use contents::other_signature;
pub use draft::FileDraft;
pub use error::{FileError, StoreTrouble};
pub use options::{FileOptions, ZONES_MIN};
pub use volume::RestoredHeader;
pub(crate) use volume::{lock, physical_block, refusal};

use device_metadata::DeviceMetadata;
use format::Layout;
use slots::Slots;
use writes::Writes;

use crate::engine::{Engine, Transfer};
use crate::machine::Machine;
use crate::{
    Blocks, Command, Device, DeviceError, FsId, Geometry, HostSpace, MetadataCopy, Output, Result, Role,
    ZoneId, ZoneInfo, ZoneState,
};

/// Lifetime classes that have a write stream of their own.
const SHORT: u8 = 1;
const MEDIUM: u8 = 2;
const LONG: u8 = 3;

/// The host's space for this number of zones is reserved for the log, for metadata and for garbage collection: one or
/// two checkpoints need it. User writes are refused below it. The reserve is smaller if fewer zones have no blocks of
/// the host.
const RESERVE_ZONES: u64 = 6;

/// Whether a volume is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// No other process may have it open.
    ReadWrite,
    /// Other processes may have it open for reading; nothing on disk changes.
    ReadOnly,
}

/// A device in a file. The file stays locked until this is dropped.
pub struct FileDevice {
    engine: Engine,
    layout: Layout,
    fs_id: FsId,
    mode: OpenMode,
    /// The header and the states of all copies; locked after `flushing`.
    metadata: Mutex<DeviceMetadata>,
    /// The copies that were repaired when this was opened.
    repaired: Vec<MetadataCopy>,
    state: Mutex<State>,
    /// Signalled when a zone is no longer busy.
    not_busy: Condvar,
    /// Held during a flush; locked before `state`.
    flushing: Mutex<()>,
    /// The number of flushes that have begun; changed under `flushing`.
    flushes: AtomicU64,
    metadata_bytes_written: AtomicU64,
    /// The host ran out of space, and no data zone was opened since.
    host_is_full: AtomicBool,
    /// The number of write streams of the device; 0 for a file.
    streams: u8,
}

struct State {
    machine: Machine,
    zones: Vec<ZoneExtra>,
    slots: Slots,
    /// Zones with `dirty` set.
    dirty: Vec<ZoneId>,
    /// No flush has completed yet: the states that were found may be those of a killed process, and may not be
    /// durable.
    is_unsure: bool,
    /// Empty zones that may have blocks of the host, and whose resets are durable except for `is_unsure`.
    to_discard: BTreeSet<ZoneId>,
    /// The reason why writes are refused from now on.
    broken: Option<String>,
}

/// The state of a zone in addition to its [`ZoneInfo`].
#[derive(Clone, Copy, Debug)]
struct ZoneExtra {
    writes: Writes,
    /// Whether a thread allocates or discards its host blocks; no other thread changes the zone meanwhile.
    busy: bool,
    /// Whether all of its host blocks are allocated.
    is_allocated: bool,
    /// Whether some of its host blocks may be allocated; true if `is_allocated`.
    may_hold: bool,
    /// Whether it was reset and no flush has recorded the reset.
    reset_undurable: bool,
    /// Whether its slot is older than its state.
    dirty: bool,
    /// The write stream for writes to this zone; 0: none.
    stream: u8,
    /// Whether it was last leased for user writes.
    has_data: bool,
}

impl State {
    fn extra(&mut self, zone: ZoneId) -> &mut ZoneExtra {
        &mut self.zones[zone.0 as usize]
    }

    /// The number of zones without host blocks, at most `most`.
    fn unallocated(&self, most: u64) -> u64 {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.zones.iter().filter(|extra| !extra.is_allocated).take(most).count() as u64
    }

    fn mark_dirty(&mut self, zone: ZoneId) {
        if !std::mem::replace(&mut self.extra(zone).dirty, true) {
            self.dirty.push(zone);
        }
    }

    /// The state to record. Of an active zone, only completed writes count.
    fn recordable(&self, zone: ZoneId) -> ZoneInfo {
        let info = self.machine.zones()[zone.0 as usize];
        if !info.state.is_active() {
            return info;
        }
        match self.zones[zone.0 as usize].writes.done {
            0 => ZoneInfo { state: ZoneState::Empty, pointer: 0, ..info },
            pointer => ZoneInfo { state: ZoneState::Closed, pointer, ..info },
        }
    }
}

impl FileDevice {
    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        self.fs_id
    }

    /// Whether the host's page cache is bypassed; not every host file system supports that.
    pub fn is_direct(&self) -> bool {
        self.engine.is_direct()
    }

    /// Whether batches go through io_uring; not every host permits it.
    pub fn uses_io_uring(&self) -> bool {
        self.engine.has_rings()
    }

    /// Allocates the memory for `count` concurrent writes of the largest size, so that they need none when memory is
    /// short.
    pub fn prepare_writes(&self, count: usize) {
        let geometry = &self.layout.geometry;
        self.engine.prepare_buffers(count, geometry.max_append as usize * geometry.block_size as usize);
    }

    /// The mode in which it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Waits until the zone is not busy. Fails if the device cannot be written.
    fn lock_for_change(&self, zone: ZoneId) -> Result<MutexGuard<'_, State>> {
        if self.mode == OpenMode::ReadOnly {
            let why = "the volume is open for reading only; open it for writing to change it";
            return Err(DeviceError::Unusable(why.to_owned()));
        }
        let mut state = self.state.lock();
        state.machine.zone(zone)?;
        while state.extra(zone).busy {
            self.not_busy.wait(&mut state);
        }
        match &state.broken {
            Some(why) => Err(DeviceError::Unusable(why.clone())),
            None => Ok(state),
        }
    }

    /// Opens the zone, and allocates its host blocks if it has none.
    fn open_zone<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        zone: ZoneId,
    ) -> Result<MutexGuard<'a, State>> {
        let before = state.machine.zone(zone)?;
        state.machine.open(zone)?;
        let extra = *state.extra(zone);
        let needs_flush = extra.reset_undurable || state.is_unsure;
        if before.state != ZoneState::Empty || (extra.is_allocated && !needs_flush) {
            return Ok(state);
        }
        let reserve_zones = match extra.has_data {
            // Without this zone.
            true => state.unallocated(1 + RESERVE_ZONES).saturating_sub(1),
            false => 0,
        };
        (state.extra(zone).busy, state.extra(zone).may_hold) = (true, true);
        drop(state);
        let prepared = self.prepare(zone, needs_flush, (!extra.is_allocated).then_some(reserve_zones));
        let mut state = self.state.lock();
        let extra = state.extra(zone);
        extra.busy = false;
        extra.is_allocated |= prepared.is_ok();
        state.mark_dirty(zone);
        self.not_busy.notify_all();
        if prepared.is_err() {
            state.machine.close(zone).expect("an open zone with nothing in it can be closed");
        }
        prepared.map(|()| state)
    }

    /// Prepares a zone for its first write. `needs_blocks`: host blocks must be allocated, and the host must have
    /// space for this number of further zones afterwards.
    fn prepare(&self, zone: ZoneId, needs_flush: bool, needs_blocks: Option<u64>) -> Result<()> {
        if needs_flush {
            self.flush()?;
        }
        let Some(reserve_zones) = needs_blocks else { return Ok(()) };
        let (offset, bytes) = (self.layout.offset(zone, 0), self.layout.zone_bytes(zone));
        let taken = match self.engine.allocate(offset, bytes) {
            Ok(()) if reserve_zones > 0 && self.engine.host_space() < reserve_zones * bytes => {
                Err(Errno::NOSPC)
            }
            taken => taken,
        };
        match taken {
            Err(Errno::NOSPC | Errno::DQUOT) => self.log_full_host(),
            // Zones for other roles may use the reserve, so they do not show whether the host has space.
            Ok(()) if reserve_zones > 0 => self.log_host_with_space(),
            _ => {}
        }
        taken.map_err(|errno| {
            // The host may have allocated some of the blocks before it ran out of space.
            let _ = self.engine.punch(offset, bytes);
            host_error(zone, "open", &errno.into())
        })
    }

    /// Logs that the host is full, once until it has space again.
    fn log_full_host(&self) {
        if !self.host_is_full.swap(true, Ordering::Relaxed) {
            let free_bytes = self.engine.host_space();
            tracing::warn!(
                free_bytes,
                "the file system that contains the volume is full: free space there, or the volume accepts no more data"
            );
        }
    }

    fn log_host_with_space(&self) {
        if self.host_is_full.swap(false, Ordering::Relaxed) {
            tracing::info!("the file system that contains the volume has space again");
        }
    }

    fn bytes_of_a_zone(&self) -> u64 {
        u64::from(self.layout.geometry.zone_blocks) * u64::from(self.layout.geometry.block_size)
    }

    /// Assigns the next blocks of the zone to a write.
    fn begin_write(&self, zone: ZoneId, blocks: Blocks) -> Result<Blocks> {
        let mut state = self.lock_for_change(zone)?;
        if state.extra(zone).writes.are_failing() {
            return Err(write_failed(zone, "an earlier append failed"));
        }
        let info = state.machine.zone(zone)?;
        // A write that will be refused must not open the zone.
        state.machine.check_write(zone, blocks, None)?;
        if matches!(info.state, ZoneState::Empty | ZoneState::Closed) {
            state = self.open_zone(state, zone)?;
        }
        let block = state.machine.advance(zone, blocks, None)?;
        state.extra(zone).writes.begin();
        Ok(block)
    }

    /// Records the result of a write, and returns the result for its caller.
    fn end_write(&self, zone: ZoneId, block: Blocks, blocks: Blocks, done: std::io::Result<()>) -> Output {
        let mut state = self.state.lock();
        let ended = state.extra(zone).writes.end(block, blocks, done.is_ok());
        let info = state.machine.zones()[zone.0 as usize];
        if let Some(pointer) = ended.pointer.filter(|_| info.state.is_active()) {
            state.machine.force(zone, ZoneInfo { pointer, ..info });
        }
        state.mark_dirty(zone);
        match done {
            Err(error) => Err(host_error(zone, "append", &error)),
            Ok(()) if ended.accepted => Ok(block),
            Ok(()) => Err(write_failed(zone, "an earlier append failed")),
        }
    }

    fn stream(&self, zone: ZoneId) -> u8 {
        self.state.lock().extra(zone).stream
    }

    fn begin_append(&self, zone: ZoneId, bytes: usize) -> Result<(Blocks, Blocks)> {
        let blocks = self.check_append(zone, bytes)?;
        Ok((self.begin_write(zone, blocks)?, blocks))
    }

    fn check_append(&self, zone: ZoneId, bytes: usize) -> Result<Blocks> {
        let state = self.state.lock();
        let blocks = state.machine.blocks(zone, bytes)?;
        state.machine.check_append(zone, blocks)?;
        Ok(blocks)
    }

    fn check_read(&self, zone: ZoneId, block: Blocks, bytes: usize) -> Result<u64> {
        let state = self.state.lock();
        let blocks = state.machine.blocks(zone, bytes)?;
        state.machine.check_read(zone, block, blocks)?;
        Ok(self.layout.offset(zone, block))
    }

    /// Writes the slots of all changed zones, and makes them and all completed writes durable. Returns the zones
    /// whose resets are durable now.
    fn flush_changes(&self) -> Result<Vec<ZoneId>> {
        let (pages, reset) = {
            let mut state = self.state.lock();
            if let Some(why) = &state.broken {
                return Err(DeviceError::Unusable(why.clone()));
            }
            let mut reset = Vec::new();
            for zone in std::mem::take(&mut state.dirty) {
                let info = state.recordable(zone);
                let is_discarded = !state.extra(zone).may_hold;
                state.slots.record(zone, &info, is_discarded);
                state.extra(zone).dirty = false;
                if state.extra(zone).reset_undurable {
                    reset.push(zone);
                }
            }
            (state.slots.take_changed(), reset)
        };
        let mut writes: Vec<_> = pages
            .iter()
            .map(|page| Transfer::Write { offset: page.offset, from: &page.bytes, stream: 0 })
            .collect();
        let written: std::io::Result<()> = self.engine.run(&mut writes).into_iter().collect();
        written.and_then(|()| self.engine.sync()).map_err(|error| self.break_down(&error))?;
        let own: usize = pages.iter().map(|page| page.bytes.len()).sum();
        self.metadata_bytes_written.fetch_add(own as u64, Ordering::Relaxed);
        Ok(reset)
    }

    /// After a failed flush the contents of the host are unknown, so nothing is written any more.
    fn break_down(&self, error: &std::io::Error) -> DeviceError {
        let why = format!("a flush of the volume's file failed ({error}); open the volume again");
        self.state.lock().broken.get_or_insert(why);
        DeviceError::Io { zone: ZoneId(0), operation: "flush", reason: error.to_string() }
    }

    /// Records that these resets are durable: the host's blocks of these zones can be discarded.
    fn note_durable(&self, reset: Vec<ZoneId>) {
        let mut state = self.state.lock();
        state.is_unsure = false;
        for zone in reset {
            state.extra(zone).reset_undurable = false;
            if !self.layout.preallocated {
                state.to_discard.insert(zone);
            }
        }
    }

    /// The next zone whose host blocks can be discarded; it is busy from then on.
    fn next_to_discard(&self) -> Option<ZoneId> {
        let mut state = self.state.lock();
        if state.is_unsure || state.broken.is_some() || self.mode == OpenMode::ReadOnly {
            return None;
        }
        while let Some(zone) = state.to_discard.pop_first() {
            let is_empty = state.machine.zones()[zone.0 as usize].state == ZoneState::Empty;
            let extra = state.extra(zone);
            // A zone that is written leaves the queue; its next reset queues it again.
            if is_empty && !extra.busy && !extra.reset_undurable && extra.may_hold {
                extra.busy = true;
                return Some(zone);
            }
        }
        None
    }

    fn discard_zone(&self, zone: ZoneId) {
        let punched = self.engine.punch(self.layout.offset(zone, 0), self.layout.zone_bytes(zone));
        let mut state = self.state.lock();
        let extra = state.extra(zone);
        // If the host keeps the blocks, the next life of the zone uses them.
        (extra.busy, extra.is_allocated, extra.may_hold) = (false, false, punched.is_err());
        state.mark_dirty(zone);
        self.not_busy.notify_all();
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        Ok(self.state.lock().machine.zones().to_vec())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.state.lock().machine.zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let offset = self.check_read(zone, block, into.len())?;
        self.engine.read(offset, into).map_err(|error| host_error(zone, "read", &error))
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let (block, blocks) = self.begin_append(zone, from.len())?;
        let done = self.engine.write_to(self.stream(zone), self.layout.offset(zone, block), from);
        self.end_write(zone, block, blocks, done)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Output> = Vec::with_capacity(batch.len());
        let mut transfers = Vec::with_capacity(batch.len());
        let mut pending = Vec::with_capacity(batch.len());
        for (index, command) in batch.iter_mut().enumerate() {
            outputs.push(match command {
                Command::Read { zone, block, into } => {
                    self.check_read(*zone, *block, into.len()).map(|offset| {
                        pending.push(Pending { index, zone: *zone, append: None });
                        transfers.push(Transfer::Read { offset, into });
                        0
                    })
                }
                Command::Append { zone, from } => {
                    self.begin_append(*zone, from.len()).map(|(block, blocks)| {
                        pending.push(Pending { index, zone: *zone, append: Some((block, blocks)) });
                        let (offset, stream) = (self.layout.offset(*zone, block), self.stream(*zone));
                        transfers.push(Transfer::Write { offset, from, stream });
                        block
                    })
                }
            });
        }
        let done = self.engine.run(&mut transfers);
        for (pending, done) in pending.into_iter().zip(done) {
            outputs[pending.index] = match pending.append {
                Some((block, blocks)) => self.end_write(pending.zone, block, blocks, done),
                None => done.map(|()| 0).map_err(|error| host_error(pending.zone, "read", &error)),
            };
        }
        outputs
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        let mut state = self.lock_for_change(zone)?;
        state.machine.finish(zone)?;
        state.mark_dirty(zone);
        Ok(())
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        let mut state = self.lock_for_change(zone)?;
        if state.extra(zone).writes.are_in_flight() {
            return Err(DeviceError::Invalid { zone, why: "it cannot be reset while it is being written" });
        }
        let was_empty = state.machine.zone(zone)?.state == ZoneState::Empty;
        state.machine.reset(zone, None)?;
        if !was_empty {
            state.extra(zone).writes = Writes::default();
            state.extra(zone).reset_undurable = true;
            state.mark_dirty(zone);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        let begun = self.flushes.load(Ordering::SeqCst);
        let _one_at_a_time = self.flushing.lock();
        if self.flushes.load(Ordering::SeqCst) > begun && self.state.lock().broken.is_none() {
            // A flush that began after this call has just ended, so it includes this call.
            return Ok(());
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let reset = self.flush_changes()?;
        self.note_durable(reset);
        Ok(())
    }

    fn discard_one_zone(&self) -> bool {
        let next = self.next_to_discard();
        if let Some(zone) = next {
            self.discard_zone(zone);
        }
        next.is_some()
    }

    fn set_placement(&self, zone: ZoneId, role: Role, class: u8) {
        if let Some(extra) = self.state.lock().zones.get_mut(zone.0 as usize) {
            extra.stream = stream_of(role, class, self.streams);
            extra.has_data = role == Role::Data;
        }
    }

    fn host_space(&self) -> Option<HostSpace> {
        let available = self.engine.host_space();
        if available == u64::MAX {
            return None;
        }
        let state = self.state.lock();
        let of = |is_allocated: bool| {
            let zones =
                state.zones.iter().zip(0..).filter(move |(extra, _)| extra.is_allocated == is_allocated);
            zones.map(|(_, zone)| self.layout.zone_bytes(ZoneId(zone))).sum()
        };
        let reserve = state.unallocated(RESERVE_ZONES) * self.bytes_of_a_zone();
        Some(HostSpace { available, allocated: of(true), unallocated: of(false), reserve })
    }

    fn has_space_for(&self, zones: u64) -> bool {
        let zones = self.state.lock().unallocated(zones);
        if zones == 0 {
            return true;
        }
        let has_room = self.engine.host_space() >= zones * self.bytes_of_a_zone();
        if !has_room {
            self.log_full_host();
        }
        has_room
    }

    fn device_metadata_copies(&self) -> Vec<MetadataCopy> {
        self.metadata.lock().copies.clone()
    }

    fn verify_device_metadata(&self) -> Vec<MetadataCopy> {
        self.reread_device_metadata()
    }

    fn device_metadata_bytes_written(&self) -> u64 {
        self.metadata_bytes_written.load(Ordering::Relaxed)
    }
}

/// The write stream for a role and a lifetime class, with `streams` streams. If there are too few, data that garbage
/// collection has moved gets its own stream first, together with data of long lifetime; then everything that is not
/// data; then user writes by class.
fn stream_of(role: Role, class: u8, streams: u8) -> u8 {
    let (wanted, otherwise) = match (role, class) {
        (Role::Free, _) => return 0,
        (Role::Data, 0 | SHORT) => (1, 1),
        (Role::Gc, _) => (2, 1),
        (Role::Log, _) => (3, 1),
        (Role::Metadata, _) => (4, 1),
        (Role::Data, LONG) => (5, 2),
        (Role::Data, MEDIUM) => (6, 1),
        (Role::Data, _) => (7, if streams >= 5 { 5 } else { 2 }),
    };
    if wanted <= streams { wanted } else { streams.min(otherwise) }
}

/// A command of a batch in flight.
struct Pending {
    /// Its index in the batch.
    index: usize,
    zone: ZoneId,
    /// The first block and the length of an append.
    append: Option<(Blocks, Blocks)>,
}

fn write_failed(zone: ZoneId, reason: &str) -> DeviceError {
    DeviceError::Io { zone, operation: "append", reason: reason.to_owned() }
}

/// The error for a command that the host refused.
fn host_error(zone: ZoneId, operation: &'static str, error: &std::io::Error) -> DeviceError {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => DeviceError::HostFull { zone },
        _ => DeviceError::Io { zone, operation, reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
