//! A device in memory that does everything a medium may do, and can lose its power at any command.
//!
//! It reads the contract of [`Device`] in the way that is hardest for its user: appends of one batch
//! land in any order; where the pointer tells nothing it says something wrong; blocks that a crash
//! lost are found as zeros, as what the zone held before its last reset, or as noise.
//!
//! Every command that changes something is counted. A device that [records](Emulated::record) can be
//! asked afterwards what would have been found had the power been lost right after the `n`-th of
//! them: [`Emulated::image_at`] gives that device, powered on again, under a [`CrashPlan`]. Blocks
//! share their bytes between all images, and the state at each flush is kept, so that an image costs
//! about as much as the commands since the last flush. An image can record and crash again.
//!
//! It is not a model of time: a command is over when it returns, and a batch when all of it is;
//! [`crate::timed`] adds one.
//!
//! While it does not record, blocks that repeat one word of eight bytes take no memory but for that
//! word, so that runs which write such data can be as large as they need to be.

mod crash;
mod fault;
mod medium;
mod spec;
mod states;

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU64, Ordering};

pub use crash::{CrashPlan, InvalidCrashPlan};
pub use fault::{CommandKind, Counters, Effect, Fault};
pub use spec::Spec;

use crash::Change;
use fault::FaultPlan;
use medium::{Block, Contents, Medium, Payload, mix};
use states::States;

use zone::machine::Machine;
use zone::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};

/// A device in memory.
pub struct Emulated {
    spec: Spec,
    geometry: Geometry,
    /// Commands that changed something; written under the lock of `inner`.
    commands: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    medium: Medium,
    recording: Option<Recording>,
    faults: FaultPlan,
    counters: Counters,
    /// Batches so far: each has an order of its own.
    batches: u64,
}

impl Inner {
    fn is_empty(&self, zone: Option<ZoneId>) -> bool {
        let info = zone.and_then(|zone| self.medium.machine.zone(zone).ok());
        info.is_some_and(|info| info.state == ZoneState::Empty)
    }
}

/// What happened since the recording began.
struct Recording {
    log: Vec<Change>,
    /// What was durable when so many changes were in the log: at its beginning and after each flush.
    durable: Vec<(usize, Medium)>,
}

impl Recording {
    /// What was durable at `n`, and the changes after it up to `n`.
    fn window(&self, n: usize) -> (&Medium, &[Change]) {
        assert!(n <= self.log.len(), "command {n} was recorded: there are {}", self.log.len());
        let index = self.durable.partition_point(|(at, _)| *at <= n) - 1;
        let (at, medium) = &self.durable[index];
        (medium, &self.log[*at..n])
    }
}

impl Emulated {
    /// A device of this shape with nothing on it.
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
        Emulated { spec, geometry, commands: AtomicU64::new(0), inner: Mutex::new(inner) }
    }

    /// Begins to record: what is on the device now counts as durable, and commands count from 0.
    pub fn record(&self) {
        let mut inner = self.inner.lock();
        let durable = vec![(0, inner.medium.clone())];
        inner.recording = Some(Recording { log: Vec::new(), durable });
        self.commands.store(0, Ordering::SeqCst);
    }

    /// Changes so far: since [`Emulated::record`], or since the device was made. A command that is
    /// refused changes nothing; a fault that turns a zone is a change of its own.
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::SeqCst)
    }

    /// The device as it may be found when the power was lost right after change `n`, from 0 to
    /// [`Emulated::commands`]. It does not record, and what is on it counts as durable.
    pub fn image_at(&self, n: u64, plan: &CrashPlan) -> Emulated {
        let (durable, window) = self.window_at(n);
        let seed = mix(self.spec.seed, n);
        Emulated::with(self.spec.clone(), crash::after_power_loss(durable, &window, plan, seed))
    }

    /// The device as it is found when the power is lost now, or was lost before.
    pub fn image(&self, plan: &CrashPlan) -> Emulated {
        self.image_at(self.commands(), plan)
    }

    /// The device after its user was killed right after change `n`, the power still on: all that
    /// was written can be read, and what was not flushed can still be lost. It records; its changes
    /// begin with those that are not yet flushed.
    pub fn killed_at(&self, n: u64) -> Emulated {
        let (durable, window) = self.window_at(n);
        let killed = Emulated::with(self.spec.clone(), crash::with_power_on(durable.clone(), &window));
        killed.commands.store(window.len() as u64, Ordering::SeqCst);
        killed.inner.lock().recording = Some(Recording { log: window, durable: vec![(0, durable)] });
        killed
    }

    /// Who used it is gone, and somebody else begins: the pointers of conventional zones are lost.
    pub fn reopen(&self) {
        if self.geometry.conventional > 0 {
            let mut inner = self.inner.lock();
            inner.medium.forget_pointers();
            self.changed(&mut inner, Change::Reopen);
        }
    }

    /// The plans at change `n` that are distinct and need no seed: `KeepAll`, and as far as there
    /// are unflushed appends and resets `LoseAll`, `LoseContents`, `UndoResets`, `LoseAllUndoResets`,
    /// all of these with active zones `Full` when there are any, each `LoseOne`, each `BackFrom`, and
    /// each `TearOne` after its first block and in its middle.
    pub fn plans_at(&self, n: u64) -> Vec<CrashPlan> {
        let (durable, window) = self.window_at(n);
        let block_size = self.spec.block_size as usize;
        let kept = crash::after_power_loss(durable, &window, &CrashPlan::KeepAll, 0);
        crash::plans(&window, kept.machine.active() > 0, block_size)
    }

    /// How many states [`CrashPlan::State`] numbers at change `n`: all that the contract allows, but for what is
    /// read at blocks that were lost. None when there are too many to number.
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

    /// Lets the power go once `n` more changes have happened: every command fails from then on.
    /// [`Emulated::image`] is what is found afterwards, if the device is recording.
    pub fn lose_power_after(&self, n: u64) {
        let mut inner = self.inner.lock();
        inner.faults.power_until = Some(self.commands() + n);
    }

    /// Makes commands fail.
    pub fn inject(&self, fault: Fault) {
        self.inner.lock().faults.add(fault);
    }

    /// Takes back all faults and changes that have not happened yet, and gives the power back.
    pub fn clear_faults(&self) {
        self.inner.lock().faults = FaultPlan::default();
    }

    /// The zones whose commands were made to fail since [`Emulated::clear_faults`], in order; none for a flush.
    pub fn failed_zones(&self) -> Vec<Option<ZoneId>> {
        self.inner.lock().faults.failed_zones.clone()
    }

    /// The last block that was put wrong on the medium since [`Emulated::clear_faults`] ([`Effect::FlipBit`]).
    pub fn corrupted_block(&self) -> Option<(ZoneId, Blocks)> {
        self.inner.lock().faults.corrupted_block
    }

    /// Makes a zone read-only or offline now.
    pub fn set_zone_state(&self, zone: ZoneId, state: ZoneState) {
        self.set_zone_state_at(self.commands(), zone, state);
        self.apply_due_states(&mut self.inner.lock());
    }

    /// Makes a zone read-only or offline once there have been so many changes in all.
    pub fn set_zone_state_at(&self, commands: u64, zone: ZoneId, state: ZoneState) {
        assert!(matches!(state, ZoneState::ReadOnly | ZoneState::Offline), "a state for good, not {state:?}");
        self.inner.lock().faults.set_state_at(commands, zone, state);
    }

    /// Gives a zone another capacity at its next reset, no larger than the geometry's.
    pub fn change_capacity_at_reset(&self, zone: ZoneId, capacity: Blocks) {
        assert!(0 < capacity && capacity <= self.geometry.zone_blocks, "{capacity} is within the geometry");
        self.inner.lock().faults.change_capacity(zone, capacity);
    }

    /// Flips bits of one written byte. The damage is there at once, survives every crash, and is
    /// gone with the next reset.
    pub fn corrupt(&self, zone: ZoneId, block: Blocks, byte: u32, mask: u8) {
        let mut bytes = vec![0; self.spec.block_size as usize];
        let mut inner = self.inner.lock();
        if inner.medium.block(zone, block, self.spec.seed).copy_to(&mut bytes) {
            bytes[byte as usize] ^= mask;
            self.damage(&mut inner, zone, block, Block::Data { payload: Payload::new(&bytes), at: 0 });
        }
    }

    /// Whether anything was written to a block, or to one behind it, since the last reset of its zone: a conventional zone
    /// has no pointer that would tell.
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

    /// Commands and bytes since the device was made.
    pub fn counters(&self) -> Counters {
        self.inner.lock().counters
    }

    /// A number for the states and contents of all zones: equal on devices that hold the same.
    pub fn digest(&self) -> u64 {
        self.inner.lock().medium.digest()
    }

    /// A number like [`Emulated::digest`], but the same for devices that differ only in which noise they hold.
    pub fn digest_ignoring_noise(&self) -> u64 {
        self.inner.lock().medium.digest_ignoring_noise()
    }

    /// What it was made from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Notes what has just happened to the medium.
    fn changed(&self, inner: &mut Inner, change: Change) {
        let flushed = matches!(change, Change::Flush);
        if let Some(recording) = &mut inner.recording {
            recording.log.push(change);
            if flushed {
                recording.durable.push((recording.log.len(), inner.medium.clone()));
            }
        }
        self.commands.fetch_add(1, Ordering::SeqCst);
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
            _ => Ok(()),
        }
    }

    /// Carries out one command: counts it, lets it fail when it is its turn, does it otherwise.
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

    /// The error of a command that was made to fail, after the zone has changed as the fault says.
    fn fail(&self, inner: &mut Inner, zone: ZoneId, operation: &'static str, effect: Effect) -> DeviceError {
        match effect {
            Effect::HostFull => return DeviceError::HostFull { zone },
            Effect::TurnReadOnly(_) => self.force(inner, zone, ZoneState::ReadOnly),
            Effect::TurnOffline => self.force(inner, zone, ZoneState::Offline),
            Effect::Error | Effect::Torn(_) | Effect::FlipBit(_) | Effect::LoseCache(_) => {}
        }
        DeviceError::Io { zone, operation, reason: "a fault was injected".to_owned() }
    }

    /// What was done since the last flush is lost, if the fault says so; what is left of it is durable.
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
            self.commands.fetch_add(1, Ordering::SeqCst);
            return Ok(start);
        }
        let payload = Payload::new(from);
        contents.append(&payload, blocks);
        self.changed(inner, Change::Append { zone, at: start, payload });
        Ok(start)
    }

    /// Finds the blocks under the lock; their bytes are copied without it.
    /// With the bit that is given wrong, if one is.
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

    /// Takes an open slot for an empty or closed zone, as no user of [`Device`] does before it writes.
    pub fn open(&self, zone: ZoneId) -> Result<()> {
        self.transition(CommandKind::Open, zone, |inner| {
            inner.medium.machine.open(zone)?;
            Ok(Change::Open(zone))
        })
    }

    /// Returns the open slot; the zone stays active if it is partly written.
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
            .map(|(zone, info)| medium.told(ZoneId(zone), *info, seed))
            .collect())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let mut inner = self.inner.lock();
        self.check_power(&inner)?;
        self.apply_due_states(&mut inner);
        let info = inner.medium.machine.zone(zone)?;
        Ok(inner.medium.told(zone, info, self.spec.seed))
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
                    let reason = "an append before it failed".to_owned();
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

/// The byte that holds such a bit.
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
