//! A device in memory that does everything a medium may do, and can lose its power at any command.
//!
//! It implements the contract of [`Device`] in the way that is hardest for its user. The appends of one batch land in
//! any order. If the pointer has no meaning, it reports a wrong one. Blocks that were lost in a crash contain zeros,
//! the contents before the last reset of the zone, or noise.
//!
//! It counts every command that changes something. A device that [records](Emulated::record) can produce the state
//! after a power loss directly after the `n`-th of these commands: [`Emulated::image_at`] returns that device,
//! powered on again, under a [`CrashPlan`]. All images share the bytes of blocks, and the state at each flush is
//! stored. So the cost of an image is about that of the commands since the last flush. An image can record and crash
//! again.
//!
//! It has no model of time: a command is complete when it returns, and a batch when all of it is. [`crate::timed`]
//! adds one.
//!
//! While it does not record, a block that repeats one word of eight bytes needs memory only for that word. So runs
//! that write such data can be arbitrarily large.

mod crash;
mod fault;
mod medium;
mod spec;
mod states;
mod supply;

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU64, Ordering};

pub use crash::{CrashPlan, InvalidCrashPlan};
pub use fault::{CommandKind, Counters, Effect, Fault};
pub use spec::Spec;
pub use supply::Supply;

use crash::Change;
use fault::FaultPlan;
use medium::{Block, Contents, Medium, Payload, mix};
use states::States;
use supply::Socket;

use zone::machine::Machine;
use zone::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};

/// A device in memory.
pub struct Emulated {
    spec: Spec,
    geometry: Geometry,
    /// The number of commands that changed something; written under the lock of `inner`.
    commands: AtomicU64,
    /// Its place at a supply that it shares with other devices.
    socket: Option<Socket>,
    inner: Mutex<Inner>,
}

struct Inner {
    medium: Medium,
    recording: Option<Recording>,
    faults: FaultPlan,
    counters: Counters,
    /// The number of batches so far: each has an order of its own.
    batches: u64,
}

impl Inner {
    fn is_empty(&self, zone: Option<ZoneId>) -> bool {
        let info = zone.and_then(|zone| self.medium.machine.zone(zone).ok());
        info.is_some_and(|info| info.state == ZoneState::Empty)
    }
}

/// The changes since the recording began.
struct Recording {
    log: Vec<Change>,
    /// The durable state for a number of changes in the log: at its beginning and after each flush.
    durable: Vec<(usize, Medium)>,
}

impl Recording {
    /// The durable state at `n`, and the changes after it up to `n`.
    fn window(&self, n: usize) -> (&Medium, &[Change]) {
        assert!(n <= self.log.len(), "command {n} was recorded: there are {}", self.log.len());
        let index = self.durable.partition_point(|(at, _)| *at <= n) - 1;
        let (at, medium) = &self.durable[index];
        (medium, &self.log[*at..n])
    }
}

impl Emulated {
    /// An empty device of this shape.
    pub fn new(spec: Spec) -> Self {
        let empty = |&capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
        let machine = Machine::new(spec.geometry(), spec.capacities.iter().map(empty).collect());
        let contents = vec![Contents::default(); spec.capacities.len()];
        Emulated::with(spec, Medium { machine, contents })
    }

    fn with(spec: Spec, medium: Medium) -> Self {
        let inner = Inner {
            medium,
            recording: None,
            faults: FaultPlan::default(),
            counters: Counters::default(),
            batches: 0,
        };
        let geometry = spec.geometry();
        Emulated { spec, geometry, commands: AtomicU64::new(0), socket: None, inner: Mutex::new(inner) }
    }

    /// Begins to record: the present contents count as durable, and commands count from 0.
    pub fn record(&self) {
        let mut inner = self.inner.lock();
        let durable = vec![(0, inner.medium.clone())];
        inner.recording = Some(Recording { log: Vec::new(), durable });
        self.commands.store(0, Ordering::SeqCst);
    }

    /// The number of changes since [`Emulated::record`], or since the device was created. A command that is refused
    /// changes nothing. A fault that changes the state of a zone is a change of its own.
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::SeqCst)
    }

    /// The device after a power loss directly after change `n`, from 0 to [`Emulated::commands`]. It does not record,
    /// and its contents count as durable.
    pub fn image_at(&self, n: u64, plan: &CrashPlan) -> Emulated {
        let (durable, window) = self.window_at(n);
        let seed = mix(self.spec.seed, n);
        Emulated::with(self.spec.clone(), crash::after_power_loss(durable, &window, plan, seed))
    }

    /// The device after a power loss now, or after an earlier one.
    pub fn image(&self, plan: &CrashPlan) -> Emulated {
        self.image_at(self.commands(), plan)
    }

    /// The device after its user was killed directly after change `n` without a power loss: all written data can be
    /// read, and data that was not flushed can still be lost. It records; its changes begin with those that are not
    /// yet flushed.
    pub fn killed_at(&self, n: u64) -> Emulated {
        let (durable, window) = self.window_at(n);
        let killed = Emulated::with(self.spec.clone(), crash::with_power_on(durable.clone(), &window));
        killed.commands.store(window.len() as u64, Ordering::SeqCst);
        killed.inner.lock().recording = Some(Recording { log: window, durable: vec![(0, durable)] });
        killed
    }

    /// Simulates that another process opens the device: the pointers of conventional zones are lost.
    pub fn reopen(&self) {
        if self.geometry.conventional > 0 {
            let mut inner = self.inner.lock();
            inner.medium.forget_pointers();
            self.changed(&mut inner, Change::Reopen);
        }
    }

    /// The distinct plans at change `n` that need no seed: `KeepAll`; if there are unflushed appends and resets,
    /// `LoseAll`, `LoseContents`, `UndoResets` and `LoseAllUndoResets`; all of these with active zones `Full` if
    /// there are active zones; each `LoseOne`, each `BackFrom`, and each `TearOne` after its first block and in its
    /// middle.
    pub fn plans_at(&self, n: u64) -> Vec<CrashPlan> {
        let (durable, window) = self.window_at(n);
        let block_size = self.spec.block_size as usize;
        let kept = crash::after_power_loss(durable, &window, &CrashPlan::KeepAll, 0);
        crash::plans(&window, kept.machine.active() > 0, block_size)
    }

    /// The number of states of [`CrashPlan::State`] at change `n`: all that the contract allows, except for the
    /// contents of lost blocks. `None` if there are too many to number.
    pub fn states_at(&self, n: u64) -> Option<u64> {
        let (durable, window) = self.window_at(n);
        States::of(&durable, &window, self.spec.block_size as usize).count()
    }

    fn window_at(&self, n: u64) -> (Medium, Vec<Change>) {
        let inner = self.inner.lock();
        let recording = inner.recording.as_ref().expect("record() was called before this device is crashed");
        let (durable, window) = recording.window(n as usize);
        (durable.clone(), window.to_vec())
    }

    /// Loses the power after `n` more changes: every later command fails. [`Emulated::image`] is the state
    /// afterwards, if the device is recording.
    pub fn lose_power_after(&self, n: u64) {
        let mut inner = self.inner.lock();
        inner.faults.power_until = Some(self.commands() + n);
    }

    /// Makes commands fail.
    pub fn inject(&self, fault: Fault) {
        self.inner.lock().faults.add(fault);
    }

    /// Removes all faults and scheduled changes that have not happened yet, and restores the power.
    pub fn clear_faults(&self) {
        self.inner.lock().faults = FaultPlan::default();
    }

    /// The zones whose commands were made to fail since [`Emulated::clear_faults`], in order; `None` for a flush.
    pub fn failed_zones(&self) -> Vec<Option<ZoneId>> {
        self.inner.lock().faults.failed_zones.clone()
    }

    /// The last block that was written with a flipped bit since [`Emulated::clear_faults`] ([`Effect::FlipBit`]).
    pub fn corrupted_block(&self) -> Option<(ZoneId, Blocks)> {
        self.inner.lock().faults.corrupted_block
    }

    /// Makes a zone read-only or offline now.
    pub fn set_zone_state(&self, zone: ZoneId, state: ZoneState) {
        self.set_zone_state_at(self.commands(), zone, state);
        self.apply_due_states(&mut self.inner.lock());
    }

    /// Makes a zone read-only or offline after this total number of changes.
    pub fn set_zone_state_at(&self, commands: u64, zone: ZoneId, state: ZoneState) {
        assert!(
            matches!(state, ZoneState::ReadOnly | ZoneState::Offline),
            "a permanent state, not {state:?}"
        );
        self.inner.lock().faults.set_state_at(commands, zone, state);
    }

    /// Changes the capacity of a zone at its next reset, to at most that of the geometry.
    pub fn change_capacity_at_reset(&self, zone: ZoneId, capacity: Blocks) {
        assert!(0 < capacity && capacity <= self.geometry.zone_blocks, "{capacity} is within the geometry");
        self.inner.lock().faults.change_capacity(zone, capacity);
    }

    /// Flips bits of one written byte. The damage is immediate, survives every crash, and ends with the next reset.
    pub fn corrupt(&self, zone: ZoneId, block: Blocks, byte: u32, mask: u8) {
        let mut bytes = vec![0; self.spec.block_size as usize];
        let mut inner = self.inner.lock();
        if inner.medium.block(zone, block, self.spec.seed).copy_to(&mut bytes) {
            bytes[byte as usize] ^= mask;
            self.damage(&mut inner, zone, block, Block::Data { payload: Payload::new(&bytes), at: 0 });
        }
    }

    /// Whether a block, or one behind it, was written since the last reset of its zone. A conventional zone has no
    /// pointer that would show it.
    pub fn is_written(&self, zone: ZoneId, block: Blocks) -> bool {
        (block as usize) < self.inner.lock().medium.contents_mut(zone).blocks.len()
    }

    /// Makes a written block unreadable until the next reset of its zone.
    pub fn make_unreadable(&self, zone: ZoneId, block: Blocks) {
        self.damage(&mut self.inner.lock(), zone, block, Block::Unreadable);
    }

    fn damage(&self, inner: &mut Inner, zone: ZoneId, block: Blocks, to: Block) {
        let contents = inner.medium.contents_mut(zone);
        assert!((block as usize) < contents.blocks.len(), "{zone:?} is written at block {block}");
        contents.put(block, to.clone());
        self.changed(inner, Change::Damage { zone, block, to });
    }

    /// Commands and bytes since the device was created.
    pub fn counters(&self) -> Counters {
        self.inner.lock().counters
    }

    /// A digest of the states and contents of all zones: equal for devices with equal contents.
    pub fn digest(&self) -> u64 {
        self.inner.lock().medium.digest()
    }

    /// A digest like [`Emulated::digest`], but equal for devices that differ only in the values of noise.
    pub fn digest_ignoring_noise(&self) -> u64 {
        self.inner.lock().medium.digest_ignoring_noise()
    }

    /// The specification from which it was created.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Records a change of the medium.
    fn changed(&self, inner: &mut Inner, change: Change) {
        let flushed = matches!(change, Change::Flush);
        if let Some(recording) = &mut inner.recording {
            recording.log.push(change);
            if flushed {
                recording.durable.push((recording.log.len(), inner.medium.clone()));
            }
        }
        self.count_change();
    }

    fn count_change(&self) {
        self.commands.fetch_add(1, Ordering::SeqCst);
        if let Some(socket) = &self.socket {
            socket.count();
        }
    }

    /// The supply that it shares with other devices, if there is one.
    pub fn supply(&self) -> Option<&Arc<Supply>> {
        self.socket.as_ref().map(Socket::supply)
    }

    fn apply_due_states(&self, inner: &mut Inner) {
        for (zone, state) in inner.faults.due_states(self.commands()) {
            self.force(inner, zone, state);
        }
    }

    fn force(&self, inner: &mut Inner, zone: ZoneId, state: ZoneState) {
        inner.medium.set_state(zone, state);
        self.changed(inner, Change::SetState { zone, state });
    }

    fn check_power(&self, inner: &Inner) -> Result<()> {
        match inner.faults.power_until {
            Some(until) if self.commands() >= until => Err(DeviceError::PowerLost),
            _ => self.socket.as_ref().map_or(Ok(()), Socket::check_power),
        }
    }

    /// Executes one command: counts it, makes it fail if a fault applies, and otherwise calls `work`.
    fn command<T>(
        &self,
        kind: CommandKind,
        zone: Option<ZoneId>,
        work: impl FnOnce(&mut Inner, Option<Effect>) -> Result<T>,
    ) -> Result<T> {
        rt::schedule::at_device();
        let mut inner = self.inner.lock();
        self.check_power(&inner)?;
        self.apply_due_states(&mut inner);
        inner.counters.count(kind);
        let mut effect = inner.faults.effect_of(kind, zone);
        if kind == CommandKind::Append && inner.is_empty(zone) {
            effect = effect.or(inner.faults.effect_of(CommandKind::Open, zone));
        }
        let done = work(&mut inner, effect);
        inner.counters.failed += u64::from(done.is_err());
        done
    }

    /// A command that changes the state of a zone and nothing else.
    fn transition(
        &self,
        kind: CommandKind,
        zone: ZoneId,
        work: impl FnOnce(&mut Inner) -> Result<Change>,
    ) -> Result<()> {
        self.command(kind, Some(zone), |inner, effect| {
            inner.medium.machine.zone(zone)?;
            if let Some(effect) = effect {
                return Err(self.fail(inner, zone, operation(kind), effect));
            }
            let change = work(inner)?;
            self.changed(inner, change);
            Ok(())
        })
    }

    /// The error of a command that was made to fail, after the fault has changed the zone.
    fn fail(&self, inner: &mut Inner, zone: ZoneId, operation: &'static str, effect: Effect) -> DeviceError {
        match effect {
            Effect::HostFull => return DeviceError::HostFull { zone },
            Effect::TurnReadOnly(_) => self.force(inner, zone, ZoneState::ReadOnly),
            Effect::TurnOffline => self.force(inner, zone, ZoneState::Offline),
            Effect::Error | Effect::Torn(_) | Effect::FlipBit(_) | Effect::LoseCache(_) => {}
        }
        DeviceError::Io { zone, operation, reason: "a fault was injected".to_owned() }
    }

    /// Loses the changes since the last flush, if the fault requires it; the rest of them is durable.
    fn lose_cache(&self, inner: &mut Inner, effect: Effect) {
        let Effect::LoseCache(number) = effect else { return };
        let plan = match number % 4 {
            0 => CrashPlan::LoseAll,
            1 => CrashPlan::LoseContents,
            2 => CrashPlan::LoseAllUndoResets,
            _ => CrashPlan::Subset(u64::from(number)),
        };
        let recording =
            inner.recording.as_ref().expect("record() was called before this device loses anything");
        let (durable, window) = recording.window(recording.log.len());
        let seed = mix(self.spec.seed, u64::from(number));
        inner.medium = crash::after_power_loss(durable.clone(), window, &plan, seed);
        self.changed(inner, Change::Flush);
    }

    fn put(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let kind = CommandKind::Append;
        self.command(kind, Some(zone), |inner, effect| {
            let blocks = inner.medium.machine.blocks(zone, from.len())?;
            inner.medium.machine.check_append(zone, blocks)?;
            let Some(effect) = effect else {
                return self.store(inner, zone, from, blocks);
            };
            if let Effect::FlipBit(bit) = effect {
                let start = self.store(inner, zone, &with_flipped_bit(from, bit), blocks)?;
                let block = start + (place(from, bit) / self.spec.block_size as usize) as Blocks;
                inner.faults.corrupted_block = Some((zone, block));
                return Ok(start);
            }
            let (Effect::Torn(survive) | Effect::TurnReadOnly(survive)) = effect else {
                return Err(self.fail(inner, zone, operation(kind), effect));
            };
            assert!(survive <= blocks, "no more blocks survive than were written: {survive} of {blocks}");
            if survive > 0 {
                let part = &from[..(survive * self.spec.block_size) as usize];
                self.store(inner, zone, part, survive)?;
            }
            Err(self.fail(inner, zone, operation(kind), effect))
        })
    }

    fn store(&self, inner: &mut Inner, zone: ZoneId, from: &[u8], blocks: Blocks) -> Result<Blocks> {
        let start = inner.medium.machine.advance(zone, blocks, None)?;
        inner.counters.bytes_written += from.len() as u64;
        let contents = inner.medium.contents_mut(zone);
        if inner.recording.is_none() && contents.append_repeated(from, self.spec.block_size as usize) {
            self.count_change();
            return Ok(start);
        }
        let payload = Payload::new(from);
        contents.append(&payload, blocks);
        self.changed(inner, Change::Append { zone, at: start, payload });
        Ok(start)
    }

    /// Returns the blocks, whose bytes are copied without the lock, and the bit to flip, if a fault applies.
    fn find(&self, zone: ZoneId, block: Blocks, bytes: usize) -> Result<(Vec<Block>, Option<u32>)> {
        self.command(CommandKind::Read, Some(zone), |inner, effect| {
            let blocks = inner.medium.machine.blocks(zone, bytes)?;
            inner.medium.machine.check_read(zone, block, blocks)?;
            let rot = match effect {
                Some(Effect::FlipBit(bit)) => Some(bit),
                Some(effect) => return Err(self.fail(inner, zone, operation(CommandKind::Read), effect)),
                None => None,
            };
            inner.counters.bytes_read += bytes as u64;
            let blocks = (block..block + blocks).map(|block| inner.medium.block(zone, block, self.spec.seed));
            Ok((blocks.collect(), rot))
        })
    }

    /// Opens an empty or closed zone. No user of [`Device`] does this before it writes.
    pub fn open(&self, zone: ZoneId) -> Result<()> {
        self.transition(CommandKind::Open, zone, |inner| {
            inner.medium.machine.open(zone)?;
            Ok(Change::Open(zone))
        })
    }

    /// Closes the zone; it stays active if it is partly written.
    pub fn close(&self, zone: ZoneId) -> Result<()> {
        self.transition(CommandKind::Close, zone, |inner| {
            inner.medium.machine.close(zone)?;
            Ok(Change::Close(zone))
        })
    }
}

impl Device for Emulated {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        let mut inner = self.inner.lock();
        self.check_power(&inner)?;
        self.apply_due_states(&mut inner);
        let (medium, seed) = (&inner.medium, self.spec.seed);
        Ok((0..)
            .zip(medium.machine.zones())
            .map(|(zone, info)| medium.reported(ZoneId(zone), *info, seed))
            .collect())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let mut inner = self.inner.lock();
        self.check_power(&inner)?;
        self.apply_due_states(&mut inner);
        let info = inner.medium.machine.zone(zone)?;
        Ok(inner.medium.reported(zone, info, self.spec.seed))
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let (found, rot) = self.find(zone, block, into.len())?;
        for (block, into) in found.iter().zip(into.chunks_exact_mut(self.spec.block_size as usize)) {
            if !block.copy_to(into) {
                let reason = "the medium cannot be read here".to_owned();
                return Err(DeviceError::Io { zone, operation: operation(CommandKind::Read), reason });
            }
        }
        if let Some(bit) = rot {
            flip(into, bit);
        }
        Ok(())
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.put(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let number = {
            let mut inner = self.inner.lock();
            inner.batches += 1;
            inner.batches
        };
        let mut outputs: Vec<Option<Output>> = batch.iter().map(|_| None).collect();
        let mut failed: Vec<ZoneId> = Vec::new();
        for index in fault::order(batch.len(), self.spec.seed, number) {
            outputs[index] = Some(match &mut batch[index] {
                Command::Read { zone, block, into } => self.read(*zone, *block, into).map(|()| 0),
                Command::Append { zone, .. } if failed.contains(zone) => {
                    let reason = "an earlier append failed".to_owned();
                    Err(DeviceError::Io { zone: *zone, operation: operation(CommandKind::Append), reason })
                }
                Command::Append { zone, from } => {
                    self.append(*zone, from).inspect_err(|_| failed.push(*zone))
                }
            });
        }
        outputs.into_iter().map(|output| output.expect("each command of the batch was carried out")).collect()
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.transition(CommandKind::Finish, zone, |inner| {
            inner.medium.machine.finish(zone)?;
            Ok(Change::Finish(zone))
        })
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.transition(CommandKind::Reset, zone, |inner| {
            inner.medium.machine.reset(zone, None)?;
            let capacity = inner.faults.take_capacity(zone);
            inner.medium.machine.reset(zone, capacity)?;
            let contents = inner.medium.contents_mut(zone);
            contents.reset();
            if inner.recording.is_none() {
                contents.previous = Arc::default();
            }
            Ok(Change::Reset { zone, capacity })
        })
    }

    fn flush(&self) -> Result<()> {
        self.command(CommandKind::Flush, None, |inner, effect| {
            if let Some(effect) = effect {
                self.lose_cache(inner, effect);
                let reason = "a fault was injected".to_owned();
                return Err(DeviceError::Io { zone: ZoneId(0), operation: "flush", reason });
            }
            self.changed(inner, Change::Flush);
            Ok(())
        })
    }

    fn takes_time(&self) -> bool {
        false
    }

    fn has_space_for(&self, _zones: u64) -> bool {
        !self.inner.lock().faults.host_is_full
    }
}

fn with_flipped_bit(bytes: &[u8], bit: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    flip(&mut bytes, bit);
    bytes
}

fn flip(bytes: &mut [u8], bit: u32) {
    let at = place(bytes, bit);
    bytes[at] ^= 1 << (bit % 8);
}

/// The index of the byte that contains this bit.
fn place(bytes: &[u8], bit: u32) -> usize {
    bit as usize / 8 % bytes.len()
}

fn operation(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Read => "read",
        CommandKind::Append => "append",
        CommandKind::Open => "open",
        CommandKind::Close => "close",
        CommandKind::Finish => "finish",
        CommandKind::Reset => "reset",
        CommandKind::Flush => "flush",
    }
}
