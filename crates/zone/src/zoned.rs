//! Zoned devices of the system.
//!
//! The device stores the states of its zones, so nothing is stored beside them. This module makes such a device
//! follow the contract of [`Device`]: it tracks the known state of each zone, the limits, and one lock for each zone.
//!
//! A thread that writes to a zone or changes it holds the **lock of the zone**, from before the command until after
//! its end. So one write at a time is in flight for each zone, because a write that overtakes another is not at the
//! pointer. Appends whose place the device chooses share the lock. Their blocks are taken before they are sent, so
//! that no append finds its zone full. The append that fills the zone holds the lock exclusively, because its end
//! frees an open slot. The pointer that limits reads advances when a write has ended or an append has begun.
//!
//! If an append lands outside the blocks taken for appends, or before an append that had ended when it was sent,
//! another program has written to the zone or emptied it. The append counts as failed, like a write that is not at
//! the pointer. Otherwise the log could continue in a zone that was emptied, and no mount would find the durable
//! records there. A zone that has less data than was written takes no more writes until it is reset here: threads
//! that wait for its lock assume the old contents.
//!
//! A failed command does not say much about the reason. So the zone is reported immediately, and the error is derived
//! from its state: for example read-only or offline. The report also makes the kernel accept writes to that zone
//! again. A refused write is sent once more if the zone's pointer is still where the write begins: the kernel's own
//! copy of the pointer was outdated, because the zone had been changed through another device node.
//!
//! Zones that are open when the device is opened for writing belonged to a process that has ended; they are closed.
//! Zones whose pointer is within a block of the volume are finished, because they cannot be continued.
//!
//! It does not order commands. Of the contents of zones it knows only the headers by which a volume is found
//! (`volume`) and by which zones without a pointer are distinguished from empty ones (`conventional`).
//!
//! Lock order: the lock of a zone, then `machine`. No thread waits for the device while it holds `machine`.

mod batch;
mod block;
mod conventional;
pub(crate) mod hostile;
mod nvme;
pub mod port;
pub mod report;
mod shape;
mod sysfs;
mod volume;

use std::io;

use rt::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rt::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

pub(crate) use nvme::generic_beside;
pub use shape::UnusedZones;
pub(crate) use volume::is_zoned;
pub use volume::{ZonedDraft, exclusive_port};

use conventional::FirstBlocks;
use port::{Action, Port};
use shape::{Shape, ZoneRange};

use crate::file::OpenMode;
use crate::machine::Machine;
use crate::medium_kind::MediumKind;
use crate::{
    Blocks, Command, Device, DeviceError, FsId, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState,
};

/// A zoned device of the system, open.
pub struct ZonedDevice {
    port: Box<dyn Port>,
    shape: Shape,
    fs_id: FsId,
    mode: OpenMode,
    machine: Mutex<Machine>,
    /// One for each zone: held exclusively during changes, and shared by appends.
    zone_locks: Vec<RwLock<()>>,
    /// One for each zone: no append that is sent now can land before this block. It equals the pointer if no append
    /// is in flight.
    landed: Vec<AtomicU32>,
    /// One for each zone: another program has emptied it.
    emptied: Vec<AtomicBool>,
    first_blocks: FirstBlocks,
    /// A flush has failed: the contents of the device are unknown, so nothing is written any more.
    is_broken: AtomicBool,
}

impl ZonedDevice {
    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        self.fs_id
    }

    /// The mode in which it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// The kind of its medium.
    pub(crate) fn kind(&self) -> MediumKind {
        let append_bytes = self.port.limits().append_bytes;
        append_bytes.map_or(MediumKind::ZonedDisk, |append_bytes| MediumKind::Namespace { append_bytes })
    }

    /// The parts of the device that are not used.
    pub fn unused_zones(&self) -> UnusedZones {
        self.shape.unused_zones
    }

    /// Allocates the memory for `count` concurrent writes of the largest size, so that they need none when memory is
    /// short.
    pub fn prepare_writes(&self, count: usize) {
        let geometry = &self.shape.geometry;
        self.port.prepare_buffers(count, geometry.max_append as usize * geometry.block_size as usize);
    }

    /// A device whose zones are in these states.
    fn new(port: Box<dyn Port>, shape: Shape, zones: Vec<ZoneInfo>, fs_id: FsId, mode: OpenMode) -> Self {
        let zone_locks = zones.iter().map(|_| RwLock::new(())).collect();
        let landed = zones.iter().map(|info| AtomicU32::new(info.pointer)).collect();
        let emptied = zones.iter().map(|_| AtomicBool::new(false)).collect();
        let machine = Mutex::new(Machine::new(shape.geometry.clone(), zones));
        let (first_blocks, is_broken) = (FirstBlocks::new(&shape.geometry), AtomicBool::new(false));
        ZonedDevice {
            port,
            shape,
            fs_id,
            mode,
            machine,
            zone_locks,
            landed,
            emptied,
            first_blocks,
            is_broken,
        }
    }

    fn range(&self, zone: ZoneId) -> ZoneRange {
        self.shape.ranges[zone.0 as usize]
    }

    /// The offset of a block on the device.
    fn at(&self, zone: ZoneId, block: Blocks) -> u64 {
        self.range(zone).start + u64::from(block) * u64::from(self.shape.geometry.block_size)
    }

    fn landed(&self, zone: ZoneId) -> &AtomicU32 {
        &self.landed[zone.0 as usize]
    }

    /// Sets the known state of a zone. The caller holds the zone's lock.
    fn set_known(&self, zone: ZoneId, info: ZoneInfo) {
        self.machine.lock().force(zone, info);
        self.landed(zone).store(info.pointer, Ordering::Relaxed);
    }

    fn zone_lock(&self, zone: ZoneId) -> Result<&RwLock<()>> {
        let lock = self.zone_locks.get(zone.0 as usize);
        lock.ok_or(DeviceError::Invalid { zone, why: "there is no such zone" })
    }

    /// Waits until no other thread changes the zone or appends to it.
    fn lock_zone(&self, zone: ZoneId) -> Result<RwLockWriteGuard<'_, ()>> {
        Ok(self.zone_lock(zone)?.write())
    }

    /// The same, if the device is open for writing.
    fn lock_to_change(&self, zone: ZoneId) -> Result<RwLockWriteGuard<'_, ()>> {
        self.check_mode()?;
        self.lock_zone(zone)
    }

    /// Waits until no other thread changes the zone; other appends may run.
    fn lock_to_append(&self, zone: ZoneId) -> Result<RwLockReadGuard<'_, ()>> {
        self.check_mode()?;
        Ok(self.zone_lock(zone)?.read())
    }

    fn check_mode(&self) -> Result<()> {
        if self.mode == OpenMode::ReadOnly {
            let why = "the volume is open for reading only; open it for writing to change it";
            return Err(DeviceError::Unusable(why.to_owned()));
        }
        Ok(())
    }

    /// Reports a zone and sets its known state. The caller holds the zone's lock.
    fn refresh(&self, zone: ZoneId) -> io::Result<ZoneInfo> {
        let place = self.range(zone);
        let reported = self.port.report(place.start, 1)?;
        let reported = reported.first().filter(|reported| reported.start == place.start);
        let reported = reported.ok_or_else(|| io::Error::other("the device reports another zone"))?;
        let info = self.known_state(zone, self.shape.info(reported));
        let has_a_place = info.state.has_pointer() || info.state == ZoneState::Empty;
        if has_a_place && info.pointer < self.landed(zone).load(Ordering::Relaxed) {
            tracing::error!(zone = zone.0, "another program has emptied a zone of the volume");
            self.emptied[zone.0 as usize].store(true, Ordering::Relaxed);
        }
        self.set_known(zone, info);
        Ok(info)
    }

    /// Derives the error of a failed command from a new report of the zone. The caller holds the zone's lock.
    fn explain_failure(&self, zone: ZoneId, operation: &'static str, error: &io::Error) -> DeviceError {
        let limit = |limit| DeviceError::TooManyOpen { zone, limit };
        let state = self.refresh(zone).map(|info| info.state);
        match (state, Errno::from_io_error(error)) {
            (Ok(ZoneState::Offline), _) => DeviceError::Offline(zone),
            (Ok(ZoneState::ReadOnly), _) if operation != "read" => DeviceError::ReadOnly(zone),
            (_, Some(Errno::TOOMANYREFS)) => limit(self.shape.geometry.max_open),
            (_, Some(Errno::OVERFLOW)) => limit(self.shape.geometry.max_active),
            _ => DeviceError::Io { zone, operation, reason: error.to_string() },
        }
    }

    /// Appends at a place that the device chooses, concurrently with other appends. `None`: it must be done alone,
    /// with [`Self::append_alone`].
    fn append_beside_others(&self, zone: ZoneId, blocks: Blocks, from: &[u8]) -> Option<Output> {
        let is_too_large = self.port.limits().append_bytes.is_none_or(|most| from.len() > most);
        if is_too_large || self.shape.geometry.is_conventional(zone) {
            return None;
        }
        let taken = self.lock_to_append(zone).and_then(|lock| Ok((lock, self.take_blocks(zone, blocks)?)));
        let lock = match taken {
            Ok((lock, true)) => lock,
            Ok((_, false)) => return None,
            Err(error) => return Some(Err(error)),
        };
        let after = self.landed(zone).load(Ordering::Relaxed);
        let landed = self.port.append(self.range(zone).start, from);
        let landed = landed.and_then(|at| self.check_landed(zone, at, after, blocks));
        if landed.is_ok() {
            self.landed(zone).fetch_add(blocks, Ordering::Relaxed);
        }
        drop(lock);
        Some(landed.map_err(|error| self.explain_failure_unlocked(zone, "append", &error)))
    }

    /// The block at which an append landed. It must be in the blocks taken for appends, and not before `after`, the
    /// end of the appends that had ended before it.
    fn check_landed(&self, zone: ZoneId, at: u64, after: Blocks, blocks: Blocks) -> io::Result<Blocks> {
        let block_size = u64::from(self.shape.geometry.block_size);
        let block = at.checked_sub(self.range(zone).start).map(|bytes| bytes / block_size);
        let pointer = self.machine.lock().zones()[zone.0 as usize].pointer;
        let room = u64::from(after)..=u64::from(pointer);
        let is_in_room = |&block: &u64| room.contains(&block) && room.contains(&(block + u64::from(blocks)));
        block.filter(is_in_room).map(|block| block as Blocks).ok_or_else(|| {
            io::Error::other(
                "it was written outside the expected blocks: another program writes to the device",
            )
        })
    }

    /// Whether the zone may be written: no flush has failed, and no other program has emptied it. The caller holds
    /// its lock or shares it.
    fn check_not_emptied(&self, zone: ZoneId) -> Result<()> {
        self.check_flushed()?;
        if !self.emptied[zone.0 as usize].load(Ordering::Relaxed) {
            return Ok(());
        }
        let reason = "another program has emptied the zone".to_owned();
        Err(DeviceError::Io { zone, operation: "append", reason })
    }

    /// Whether no flush has failed. The device may report an error only once, so all later callers get it from here.
    fn check_flushed(&self) -> Result<()> {
        if !self.is_broken.load(Ordering::SeqCst) {
            return Ok(());
        }
        let why = "a flush of the device failed, so its contents are unknown; open the volume again";
        Err(DeviceError::Unusable(why.to_owned()))
    }

    /// Takes blocks for an append and opens its zone, unless the append would fill the zone.
    fn take_blocks(&self, zone: ZoneId, blocks: Blocks) -> Result<bool> {
        self.check_not_emptied(zone)?;
        let mut machine = self.machine.lock();
        let info = machine.check_write(zone, blocks, None)?;
        if info.pointer + blocks == info.capacity {
            return Ok(false);
        }
        machine.advance(zone, blocks, None).map(|_| true)
    }

    /// Changes a whole zone: checks the change with the known state, lets the device execute it, and records it.
    fn change(
        &self,
        zone: ZoneId,
        action: Action,
        note: impl FnOnce(&mut Machine) -> Result<()>,
    ) -> Result<()> {
        let _lock = self.lock_to_change(zone)?;
        let after = {
            let mut machine = self.machine.lock();
            let before = machine.zone(zone)?;
            note(&mut machine)?;
            let after = machine.zone(zone)?;
            // The slot that this frees must be free on the device before a writer can take it.
            machine.force(zone, before);
            after
        };
        self.act(zone, action).map_err(|error| self.explain_failure(zone, action.name(), &error))?;
        self.set_known(zone, after);
        if action == Action::Reset {
            self.emptied[zone.0 as usize].store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_read(&self, zone: ZoneId, block: Blocks, bytes: usize) -> Result<u64> {
        let machine = self.machine.lock();
        let blocks = machine.blocks(zone, bytes)?;
        machine.check_read(zone, block, blocks)?;
        Ok(self.at(zone, block))
    }

    /// Derives the error of a command that failed without holding the zone's lock.
    fn explain_failure_unlocked(
        &self,
        zone: ZoneId,
        operation: &'static str,
        error: &io::Error,
    ) -> DeviceError {
        let _lock = match self.lock_zone(zone) {
            Ok(lock) => lock,
            Err(error) => return error,
        };
        self.explain_failure(zone, operation, error)
    }
}

impl Device for ZonedDevice {
    fn geometry(&self) -> &Geometry {
        &self.shape.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        let infos = volume::infos(&*self.port, &self.shape).map_err(|error| DeviceError::Io {
            zone: ZoneId(0),
            operation: "report",
            reason: error.to_string(),
        })?;
        Ok((0..).map(ZoneId).zip(infos).map(|(zone, reported)| self.known_state(zone, reported)).collect())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let _lock = self.lock_zone(zone)?;
        self.refresh(zone).map_err(|error| DeviceError::Io {
            zone,
            operation: "report",
            reason: error.to_string(),
        })
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let at = self.check_read(zone, block, into.len())?;
        self.port.read(at, into).map_err(|error| self.explain_failure_unlocked(zone, "read", &error))
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let machine = self.machine.lock();
        let blocks = machine.blocks(zone, from.len())?;
        machine.check_append(zone, blocks)?;
        drop(machine);
        let appended = self.append_beside_others(zone, blocks, from);
        appended.unwrap_or_else(|| self.append_alone(zone, from))
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let of_zone = |command: &Command<'_>| match command {
            Command::Append { zone, .. } => Some(*zone),
            Command::Read { .. } => None,
        };
        let first = batch.first().and_then(of_zone);
        if first.is_none() || batch.iter().any(|command| of_zone(command) != first) {
            return self.run_batch(batch);
        }
        // If the device chooses the place, they run concurrently with the appends of other threads.
        let mut outputs = Vec::with_capacity(batch.len());
        for command in batch.iter() {
            if let Command::Append { zone, from } = command {
                outputs.push(self.append(*zone, from));
            }
        }
        outputs
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.change(zone, Action::Finish, |machine| machine.finish(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.change(zone, Action::Reset, |machine| machine.reset(zone, None))?;
        // Its capacity may have changed.
        self.report_zone(zone).map(|_| ())
    }

    fn flush(&self) -> Result<()> {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        self.check_flushed()?;
        let number = self.first_blocks.begin_flush();
        self.port.flush().map_err(|error| {
            self.is_broken.store(true, Ordering::SeqCst);
            DeviceError::Io { zone: ZoneId(0), operation: "flush", reason: error.to_string() }
        })?;
        // If two flushes are in flight, the device may report an error to only one of them.
        self.check_flushed()?;
        self.first_blocks.end_flush(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
