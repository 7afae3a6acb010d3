//! Injected faults: commands that fail, and zones that change their state.

use super::medium::mix;
use zone::{Blocks, ZoneId, ZoneState};

/// The kinds of device commands, for counters and faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// `read`, alone or in a batch.
    Read,
    /// `append`, alone or in a batch.
    Append,
    /// `open`. A fault also affects an append that opens an empty zone.
    Open,
    /// `close`.
    Close,
    /// `finish`.
    Finish,
    /// `reset`.
    Reset,
    /// `flush`.
    Flush,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An I/O error; nothing changes. A flush that fails in this way makes nothing durable.
    Error,
    /// An I/O error of an append whose first blocks are on the medium nevertheless, so that only a new report shows
    /// the pointer.
    Torn(Blocks),
    /// An I/O error of an append, with the first blocks on the medium; then the zone is read-only.
    TurnReadOnly(Blocks),
    /// An I/O error; then the zone is offline.
    TurnOffline,
    /// The host of the device is full; nothing changes. After it has refused a command, and while it will refuse
    /// more, the device reports that it has no space.
    HostFull,
    /// An I/O error of a flush, and the changes since the previous flush are affected as by a power loss while the
    /// power stays on: a drive that has lost its cache. The number determines how much is lost.
    LoseCache(u32),
    /// No error: one bit of the transferred data is flipped. A bit flipped in an append is stored on the medium. A
    /// bit flipped in a read is not: the next read is correct.
    FlipBit(u32),
}

/// A fault that makes commands fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of commands.
    pub kind: CommandKind,
    /// The zone; any zone if `None`.
    pub zone: Option<ZoneId>,
    /// The number of such commands that succeed before.
    pub after: u64,
    /// The number of commands that fail then.
    pub times: u64,
    /// The effect.
    pub effect: Effect,
}

impl Fault {
    /// The `nth` command of a kind from now on, counted from 1, fails.
    pub fn nth(kind: CommandKind, nth: u64, effect: Effect) -> Self {
        assert!(nth > 0, "commands are counted from 1");
        Fault { kind, zone: None, after: nth - 1, times: 1, effect }
    }

    /// Only commands of one zone count and fail.
    pub fn on(mut self, zone: ZoneId) -> Self {
        self.zone = Some(zone);
        self
    }

    /// All later ones fail as well.
    pub fn forever(mut self) -> Self {
        self.times = u64::MAX;
        self
    }
}

/// Commands since the device was created, by kind, and the bytes that they transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    commands: [u64; 8],
    /// Commands that were refused or failed; they also count by kind.
    pub failed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written by appends and writes.
    pub bytes_written: u64,
}

impl Counters {
    /// Commands of one kind, refused ones included.
    pub fn of(&self, kind: CommandKind) -> u64 {
        self.commands[kind as usize]
    }

    /// Commands of all kinds, refused ones included.
    pub fn total(&self) -> u64 {
        self.commands.iter().sum()
    }

    pub(super) fn count(&mut self, kind: CommandKind) {
        self.commands[kind as usize] += 1;
    }
}

/// All injected faults.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    faults: Vec<Fault>,
    /// The zones whose commands failed; `None` for a flush.
    pub(super) failed_zones: Vec<Option<ZoneId>>,
    /// The last block that an append has written with a flipped bit.
    pub(super) corrupted_block: Option<(ZoneId, Blocks)>,
    /// Permanent state changes of zones after a number of commands.
    states: Vec<(u64, ZoneId, ZoneState)>,
    /// Capacities that zones have after their next reset.
    capacities: Vec<(ZoneId, Blocks)>,
    /// The number of commands after which the power is lost.
    pub(super) power_until: Option<u64>,
    /// The host of the device is known to be full.
    pub(super) host_is_full: bool,
}

impl FaultPlan {
    pub(super) fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn set_state_at(&mut self, commands: u64, zone: ZoneId, state: ZoneState) {
        self.states.push((commands, zone, state));
    }

    pub(super) fn change_capacity(&mut self, zone: ZoneId, capacity: Blocks) {
        self.capacities.push((zone, capacity));
    }

    /// The effect of the faults on this command, if any.
    pub(super) fn effect_of(&mut self, kind: CommandKind, zone: Option<ZoneId>) -> Option<Effect> {
        let mut effect = None;
        for fault in self.faults.iter_mut() {
            if fault.kind != kind || fault.zone.is_some_and(|wanted| Some(wanted) != zone) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if fault.times > 0 {
                fault.times = fault.times.saturating_sub(1);
                effect = effect.or(Some(fault.effect));
                self.host_is_full = fault.effect == Effect::HostFull && fault.times > 0;
            }
        }
        self.faults.retain(|fault| fault.times > 0);
        if effect.is_some() {
            self.failed_zones.push(zone);
        }
        effect
    }

    /// The state changes that are due.
    pub(super) fn due_states(&mut self, commands: u64) -> Vec<(ZoneId, ZoneState)> {
        let (due, later) = self.states.drain(..).partition(|(at, ..)| *at <= commands);
        self.states = later;
        let due: Vec<(u64, ZoneId, ZoneState)> = due;
        due.into_iter().map(|(_, zone, state)| (zone, state)).collect()
    }

    /// The new capacity of the zone after the present reset, if it changes.
    pub(super) fn take_capacity(&mut self, zone: ZoneId) -> Option<Blocks> {
        let index = self.capacities.iter().position(|(wanted, _)| *wanted == zone)?;
        Some(self.capacities.remove(index).1)
    }
}

/// The order in which `count` commands of a batch are executed.
pub(super) fn order(count: usize, seed: u64, batch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    rt::random::Rng::with_seed(mix(seed, batch)).shuffle(&mut order);
    order
}
