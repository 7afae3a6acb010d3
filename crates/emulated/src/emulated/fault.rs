//! Commands that are made to fail, and zones that are made to change.

use super::medium::mix;
use zone::{Blocks, ZoneId, ZoneState};

/// The kinds of device commands, as they are counted and made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// `read`, alone or in a batch.
    Read,
    /// `append`, alone or in a batch.
    Append,
    /// `open`. A fault also strikes an append that opens an empty zone.
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

/// What happens instead of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An I/O error; nothing changes. A flush that fails so makes nothing durable.
    Error,
    /// An I/O error of an append of which the first blocks are on the medium all the same,
    /// so that only a new report tells where the pointer is.
    Torn(Blocks),
    /// An I/O error of an append, with the first blocks on the medium and the zone
    /// read-only from then on.
    TurnReadOnly(Blocks),
    /// An I/O error, and the zone is offline from then on.
    TurnOffline,
    /// What holds the device is full; nothing changes. Once it has refused something and will refuse more, the device
    /// says that there is no room.
    HostFull,
    /// An I/O error of a flush, and what was done since the flush before it is subject to a loss of power, while the
    /// power stays on: a drive that has lost its cache. How much is lost follows from the number.
    LoseCache(u32),
    /// No error: one bit, of those that the command moves, is not what it should be. What an append puts so on the
    /// medium stays so; what a read gives so is given right the next time.
    FlipBit(u32),
}

/// Commands that fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which commands.
    pub kind: CommandKind,
    /// Of which zone; of any when `None`.
    pub zone: Option<ZoneId>,
    /// How many such commands succeed before.
    pub after: u64,
    /// How many fail then.
    pub times: u64,
    /// How they fail.
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

/// Commands since the device was made, by kind, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    commands: [u64; 8],
    /// Commands that were refused or failed; they are counted by kind too.
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

/// Everything that is going to go wrong.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    faults: Vec<Fault>,
    /// The zones whose commands something went wrong with; none for a flush.
    pub(super) failed_zones: Vec<Option<ZoneId>>,
    /// The last block that an append has put wrong.
    pub(super) corrupted_block: Option<(ZoneId, Blocks)>,
    /// Zones that change for good once so many commands were carried out.
    states: Vec<(u64, ZoneId, ZoneState)>,
    /// Capacities that zones have after their next reset.
    capacities: Vec<(ZoneId, Blocks)>,
    /// The number of commands after which the power is lost.
    pub(super) power_until: Option<u64>,
    /// What holds the device is known to be full.
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

    /// What goes wrong with this command, if anything.
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

    /// The zones whose time has come.
    pub(super) fn due_states(&mut self, commands: u64) -> Vec<(ZoneId, ZoneState)> {
        let (due, later) = self.states.drain(..).partition(|(at, ..)| *at <= commands);
        self.states = later;
        let due: Vec<(u64, ZoneId, ZoneState)> = due;
        due.into_iter().map(|(_, zone, state)| (zone, state)).collect()
    }

    /// The capacity that the zone has after the reset that happens now, when it changes.
    pub(super) fn take_capacity(&mut self, zone: ZoneId) -> Option<Blocks> {
        let index = self.capacities.iter().position(|(wanted, _)| *wanted == zone)?;
        Some(self.capacities.remove(index).1)
    }
}

/// The order in which `count` commands of a batch are carried out.
pub(super) fn order(count: usize, seed: u64, batch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    rt::random::Rng::with_seed(mix(seed, batch)).shuffle(&mut order);
    order
}
