//! Zoned devices of the system: what people buy.
//!
//! The device keeps the states of its zones by itself, so nothing is stored beside them. Here is kept what
//! makes it obey the contract of [`Device`]: what each zone is known to be, the limits, and turns.
//!
//! Whoever writes to a zone or changes it has its **turn**, from before the command until after its end: one
//! write at a time is in flight for each zone, because a write that overtakes another is not at the pointer.
//! Appends whose place the device chooses share a turn. Their room is taken before they are sent, so that none
//! finds its zone full; the one that fills the zone has the turn for itself, because with its end a slot is
//! free. The pointer that readers are checked against moves when a write has ended or an append has begun.
//!
//! A command that fails says little of why. So the zone is reported at once, and the error is made from what
//! the device says it is now: read-only or offline, say. The report also makes the kernel take writes to that
//! zone again. A write that was refused where the zone still stands exactly there
//! is given to the device once more: the kernel's own idea of the pointer was old, because somebody had
//! changed the zone through another door.
//!
//! What was open when the device was opened for writing belonged to a process that is gone; it is closed, and
//! zones whose pointer is within a block of ours are finished: they could not be continued.
//!
//! It does not put anything in order, and knows nothing of what is in the zones but for the headers by which a
//! volume is found (`volume`) and by which zones without a pointer of their own are told from empty ones
//! (`conventional`).
//!
//! Locks: a turn, then `machine`; nobody waits for the device while holding `machine`.

mod block;
mod conventional;
mod nvme;
pub(crate) mod port;
pub(crate) mod report;
mod shape;
mod sysfs;
pub(crate) mod volume;

use std::io;

use rt::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

pub(crate) use nvme::generic_beside;
pub use shape::LeftOut;
pub use volume::ZonedDraft;
pub(crate) use volume::is_zoned;

use conventional::Resets;
use port::{Action, Port};
use shape::{Place, Shape};

use crate::engine::Transfer;
use crate::file::OpenMode;
use crate::machine::Machine;
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
    /// One for each zone: held while something is done to it, shared by appends.
    turns: Vec<RwLock<()>>,
    resets: Resets,
}

impl ZonedDevice {
    /// The volume that is on it.
    pub fn fs_id(&self) -> FsId {
        self.fs_id
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// What of the device is not used.
    pub fn left_out(&self) -> LeftOut {
        self.shape.left_out
    }

    /// Takes the memory for so many of the largest writes at once, so that they need none when it is short.
    pub fn prepare_writes(&self, count: usize) {
        let geometry = &self.shape.geometry;
        self.port.prepare_buffers(count, geometry.max_append as usize * geometry.block_size as usize);
    }

    /// A device whose zones were found in these states.
    fn new(port: Box<dyn Port>, shape: Shape, zones: Vec<ZoneInfo>, fs_id: FsId, mode: OpenMode) -> Self {
        let turns = zones.iter().map(|_| RwLock::new(())).collect();
        let machine = Mutex::new(Machine::new(shape.geometry.clone(), zones));
        let resets = Resets::new(&shape.geometry);
        ZonedDevice { port, shape, fs_id, mode, machine, turns, resets }
    }

    fn place(&self, zone: ZoneId) -> Place {
        self.shape.places[zone.0 as usize]
    }

    /// Where a block is on the device.
    fn at(&self, zone: ZoneId, block: Blocks) -> u64 {
        self.place(zone).start + u64::from(block) * u64::from(self.shape.geometry.block_size)
    }

    fn turn_of(&self, zone: ZoneId) -> Result<&RwLock<()>> {
        let turn = self.turns.get(zone.0 as usize);
        turn.ok_or(DeviceError::Invalid { zone, why: "there is no such zone" })
    }

    /// Waits until nobody else does anything to the zone.
    fn turn(&self, zone: ZoneId) -> Result<RwLockWriteGuard<'_, ()>> {
        Ok(self.turn_of(zone)?.write())
    }

    /// The same, if writing is possible at all.
    fn turn_to_change(&self, zone: ZoneId) -> Result<RwLockWriteGuard<'_, ()>> {
        self.check_mode()?;
        self.turn(zone)
    }

    /// Waits until nobody does anything to the zone but append.
    fn turn_to_append(&self, zone: ZoneId) -> Result<RwLockReadGuard<'_, ()>> {
        self.check_mode()?;
        Ok(self.turn_of(zone)?.read())
    }

    fn check_mode(&self) -> Result<()> {
        if self.mode == OpenMode::ReadOnly {
            let why = "the volume is open for reading only; open it for writing to change it";
            return Err(DeviceError::Unusable(why.to_owned()));
        }
        Ok(())
    }

    /// Asks the device about a zone and believes it. Whoever calls has the zone's turn.
    fn ask(&self, zone: ZoneId) -> io::Result<ZoneInfo> {
        let place = self.place(zone);
        let told = self.port.report(place.start, 1)?;
        let told = told.first().filter(|told| told.start == place.start);
        let told = told.ok_or_else(|| io::Error::other("the device reports another zone"))?;
        let info = self.seen(zone, self.shape.info(told));
        self.machine.lock().force(zone, info);
        Ok(info)
    }

    /// What a failed command means, after the zone was asked about.
    fn learn(&self, zone: ZoneId, operation: &'static str, error: &io::Error) -> DeviceError {
        let limit = |limit| DeviceError::TooManyOpen { zone, limit };
        let state = self.ask(zone).map(|info| info.state);
        match (state, Errno::from_io_error(error)) {
            (Ok(ZoneState::Offline), _) => DeviceError::Offline(zone),
            (Ok(ZoneState::ReadOnly), _) if operation != "read" => DeviceError::ReadOnly(zone),
            (_, Some(Errno::TOOMANYREFS)) => limit(self.shape.geometry.max_open),
            (_, Some(Errno::OVERFLOW)) => limit(self.shape.geometry.max_active),
            _ => DeviceError::Io { zone, operation, reason: error.to_string() },
        }
    }

    /// Appends, or writes at `at`.
    fn put(&self, zone: ZoneId, at: Option<Blocks>, from: &[u8]) -> Output {
        let blocks = self.machine.lock().blocks(zone, from.len())?;
        let _turn = self.turn_to_change(zone)?;
        self.settle_reset(zone)?;
        let block = {
            let mut machine = self.machine.lock();
            let info = machine.check_write(zone, blocks, at)?;
            machine.open(zone)?;
            info.pointer
        };
        self.write_at(zone, block, from)?;
        let written = self.machine.lock().advance(zone, blocks, Some(block))?;
        assert_eq!(written, block, "nobody else wrote to {zone:?} during this turn");
        Ok(block)
    }

    /// Appends where the device chooses, beside others. `None`: it has to be done alone, with [`Self::put`].
    fn append_beside_others(&self, zone: ZoneId, blocks: Blocks, from: &[u8]) -> Option<Output> {
        let is_too_large = self.port.limits().append_bytes.is_none_or(|most| from.len() > most);
        if is_too_large || self.shape.geometry.is_conventional(zone) {
            return None;
        }
        let taken = self.turn_to_append(zone).and_then(|turn| Ok((turn, self.take_room(zone, blocks)?)));
        let turn = match taken {
            Ok((turn, true)) => turn,
            Ok((_, false)) => return None,
            Err(error) => return Some(Err(error)),
        };
        let landed = self.port.append(self.place(zone).start, from);
        let landed = landed.and_then(|at| self.check_landed(zone, at, blocks));
        drop(turn);
        Some(landed.map_err(|error| self.failed(zone, "append", &error)))
    }

    /// The block at which an append landed: within the room that was taken for appends, or somebody else
    /// wrote to the zone.
    fn check_landed(&self, zone: ZoneId, at: u64, blocks: Blocks) -> io::Result<Blocks> {
        let block_size = u64::from(self.shape.geometry.block_size);
        let block = at.checked_sub(self.place(zone).start).map(|bytes| bytes / block_size);
        let pointer = self.machine.lock().zones()[zone.0 as usize].pointer;
        let block = block.filter(|&block| block + u64::from(blocks) <= u64::from(pointer));
        block
            .map(|block| block as Blocks)
            .ok_or_else(|| io::Error::other("it landed where no room was taken"))
    }

    /// Takes room for an append and a slot for its zone, unless that would fill the zone.
    fn take_room(&self, zone: ZoneId, blocks: Blocks) -> Result<bool> {
        let mut machine = self.machine.lock();
        let info = machine.check_write(zone, blocks, None)?;
        if info.pointer + blocks == info.capacity {
            return Ok(false);
        }
        machine.advance(zone, blocks, None).map(|_| true)
    }

    /// Writes what has its turn, in commands as large as the device takes.
    fn write_at(&self, zone: ZoneId, block: Blocks, from: &[u8]) -> Result<()> {
        let mut is_repeated = false;
        let mut at = self.at(zone, block);
        let mut rest = from;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(self.port.limits().transfer_bytes.min(rest.len()));
            match self.port.write(at, piece) {
                Ok(()) => (at, rest) = (at + piece.len() as u64, after),
                Err(error) => {
                    let error = self.learn(zone, "append", &error);
                    self.check_untouched(zone, at, error, is_repeated)?;
                    is_repeated = true;
                }
            }
        }
        Ok(())
    }

    /// Whether a refused write may be repeated: the zone is open and stands where the write was to begin.
    fn check_untouched(&self, zone: ZoneId, at: u64, error: DeviceError, is_repeated: bool) -> Result<()> {
        let info = self.machine.lock().zone(zone)?;
        let is_there = info.state.has_pointer() && self.at(zone, info.pointer) == at;
        if is_repeated || !is_there || !matches!(error, DeviceError::Io { .. }) {
            return Err(error);
        }
        self.machine.lock().open(zone)
    }

    /// A change of a whole zone: refused by what is known of it, or done by the device and noted.
    fn change(
        &self,
        zone: ZoneId,
        action: Action,
        note: impl FnOnce(&mut Machine) -> Result<()>,
    ) -> Result<()> {
        let _turn = self.turn_to_change(zone)?;
        let after = {
            let mut machine = self.machine.lock();
            let before = machine.zone(zone)?;
            note(&mut machine)?;
            let after = machine.zone(zone)?;
            if action != Action::Open {
                // Whoever takes the slot that this gives back must find it free at the device too.
                machine.force(zone, before);
            }
            after
        };
        // Some devices keep a closed zone active in which nothing is written.
        let is_unused = action == Action::Close && after.state == ZoneState::Empty;
        let action = if is_unused { Action::Reset } else { action };
        self.act(zone, action).map_err(|error| self.learn(zone, action.name(), &error))?;
        self.machine.lock().force(zone, after);
        Ok(())
    }

    fn check_read(&self, zone: ZoneId, block: Blocks, bytes: usize) -> Result<u64> {
        let machine = self.machine.lock();
        let blocks = machine.blocks(zone, bytes)?;
        machine.check_read(zone, block, blocks)?;
        Ok(self.at(zone, block))
    }

    /// What a command means that failed without having the zone's turn.
    fn failed(&self, zone: ZoneId, operation: &'static str, error: &io::Error) -> DeviceError {
        let _turn = match self.turn(zone) {
            Ok(turn) => turn,
            Err(error) => return error,
        };
        self.learn(zone, operation, error)
    }

    /// Carries out the reads of a batch at once, and puts what became of each in its place.
    fn run_reads(&self, batch: &mut [Command<'_>], outputs: &mut [Output]) {
        let mut reads = Vec::new();
        let mut places = Vec::new();
        for (index, command) in batch.iter_mut().enumerate() {
            let Command::Read { zone, block, into } = command else { continue };
            match self.check_read(*zone, *block, into.len()) {
                Ok(offset) => {
                    reads.push(Transfer::Read { offset, into });
                    places.push((index, *zone));
                }
                Err(error) => outputs[index] = Err(error),
            }
        }
        for ((index, zone), done) in places.into_iter().zip(self.port.read_all(&mut reads)) {
            outputs[index] = done.map(|()| 0).map_err(|error| self.failed(zone, "read", &error));
        }
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
        Ok((0..).map(ZoneId).zip(infos).map(|(zone, told)| self.seen(zone, told)).collect())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let _turn = self.turn(zone)?;
        self.ask(zone).map_err(|error| DeviceError::Io {
            zone,
            operation: "report",
            reason: error.to_string(),
        })
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let at = self.check_read(zone, block, into.len())?;
        self.port.read(at, into).map_err(|error| self.failed(zone, "read", &error))
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let machine = self.machine.lock();
        let blocks = machine.blocks(zone, from.len())?;
        machine.check_append(zone, blocks)?;
        drop(machine);
        let appended = self.append_beside_others(zone, blocks, from);
        appended.unwrap_or_else(|| self.put(zone, None, from))
    }

    fn write(&self, zone: ZoneId, block: Blocks, from: &[u8]) -> Result<()> {
        self.put(zone, Some(block), from).map(|_| ())
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Output> = batch.iter().map(|_| Ok(0)).collect();
        self.run_reads(batch, &mut outputs);
        for (command, output) in batch.iter().zip(&mut outputs) {
            if let Command::Append { zone, from } = command {
                *output = self.append(*zone, from);
            }
        }
        outputs
    }

    fn open(&self, zone: ZoneId) -> Result<()> {
        self.change(zone, Action::Open, |machine| machine.open(zone))
    }

    fn close(&self, zone: ZoneId) -> Result<()> {
        self.change(zone, Action::Close, |machine| machine.close(zone))
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.change(zone, Action::Finish, |machine| machine.finish(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.change(zone, Action::Reset, |machine| machine.reset(zone, None))?;
        // It may have another capacity from now on.
        self.report_zone(zone).map(|_| ())
    }

    fn flush(&self) -> Result<()> {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        let number = self.resets.begin_flush();
        self.port.flush().map_err(|error| DeviceError::Io {
            zone: ZoneId(0),
            operation: "flush",
            reason: error.to_string(),
        })?;
        self.resets.end_flush(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
