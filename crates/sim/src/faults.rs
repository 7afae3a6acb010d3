//! Faults of the device at the first, second, third … command of every scenario.
//!
//! A [`Kind`] is what goes wrong: an append, a read, a flush or a reset that fails, an append that is torn, a zone
//! that turns read-only or offline, a bit that is not what was written, a drive that loses its cache, a host that is
//! full, memory that is not to be had. It strikes one command (or request for memory), once, or a few in a row; a
//! [`Trial`] says which. Either the scenario runs, or the volume that it leaves is mounted. Operations may fail
//! then as far as the kind allows it. What is given afterwards, while the volume is mounted, after a loss of
//! power, and when it was unmounted and mounted again, must be what the model has: an error, or what was written,
//! and never anything else. Only what a kind destroys may be missing; then the checker says so.
//!
//! * A full host is a full volume, or one that has latched: nothing else is told.
//! * A flush that fails and loses what came since the one before it may cost what it was to make durable, and is told;
//!   nothing that was acknowledged before.
//! * A zone that goes offline costs what was in it, to the block; a wrong block of data costs itself alone. A zone that
//!   turns read-only costs nothing, and is evacuated.
//! * Where the log zone in use takes no more, and the zone in which the log continued is gone after a loss of power, the
//!   mount is refused or nothing that was acknowledged is missing.
//! * Without memory an operation is refused with that word. The volume never latches for it, and an unmount succeeds
//!   once there is some. Between operations no page is in use that was promised to somebody.

mod offline;
mod trial;

use std::fmt;

use emulated::{CommandKind, Effect, Fault};

pub use trial::{Moment, Outcome, Stage, Trial};

use crate::caught::Wrong;
use crate::caught::caught;
use crate::files::{self, Scenario};

/// What may be seen of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// No operation fails, and nothing is lost.
    Nothing,
    /// Operations may fail, and the volume may take no more changes until it is mounted again; nothing is lost.
    Errors,
    /// What was in the zone, or what the bit was part of, may be lost.
    Loss,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it strikes, and how.
    pub strikes: Strikes,
    /// To how many, one after the other. More than one only while the scenario runs, and where no range is taken
    /// out of a file or put in: recovery and such moves ask twice, and give up what cannot be read then.
    pub times: u64,
    /// What may be seen of it.
    pub harm: Harm,
}

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strikes {
    /// Commands of the device, and what happens to them.
    Command(CommandKind, Effect),
    /// Requests for memory for pages, which is asked for one by one.
    Memory,
    /// Appends to the log zone in use. After a loss of power the zone in which the log continued is offline.
    Log,
}

impl Kind {
    /// What happens to commands of the device, if it is these.
    pub fn effect(&self) -> Option<Effect> {
        match self.strikes {
            Strikes::Command(_, effect) => Some(effect),
            Strikes::Memory | Strikes::Log => None,
        }
    }

    /// What is injected so that it strikes the `nth` command from now on, if it strikes commands.
    pub fn fault(&self, nth: u64) -> Option<Fault> {
        match self.strikes {
            Strikes::Command(command, effect) => {
                Some(Fault { times: self.times, ..Fault::nth(command, nth, effect) })
            }
            Strikes::Memory | Strikes::Log => None,
        }
    }

    /// Whether it strikes commands of this kind.
    pub fn is_of(&self, command: CommandKind) -> bool {
        matches!(self.strikes, Strikes::Command(struck, _) if struck == command)
    }

    /// In the quick form one in so many is struck: of those of which there are few, or which few others resemble, more.
    pub fn quick_every(&self) -> u64 {
        match self.strikes {
            Strikes::Command(CommandKind::Open | CommandKind::Finish, _) => 3,
            Strikes::Command(CommandKind::Flush, Effect::LoseCache(_)) => 21,
            Strikes::Command(CommandKind::Append, Effect::HostFull) | Strikes::Memory => 21,
            Strikes::Command(..) | Strikes::Log => 7,
        }
    }

    /// In the quick form one scenario in so many is tried: kinds that resemble another take turns.
    pub fn quick_share(&self) -> usize {
        match self.strikes {
            Strikes::Memory
            | Strikes::Command(CommandKind::Open, _)
            | Strikes::Command(_, Effect::LoseCache(_) | Effect::HostFull) => 3,
            Strikes::Command(..) | Strikes::Log => 1,
        }
    }
}

/// All of them.
pub const KINDS: &[Kind] = &[
    kind("open-error", CommandKind::Open, Effect::Error, Harm::Nothing),
    kind("append-error", CommandKind::Append, Effect::Error, Harm::Nothing),
    kind("append-torn", CommandKind::Append, Effect::Torn(1), Harm::Nothing),
    kind("zone-read-only", CommandKind::Append, Effect::TurnReadOnly(0), Harm::Nothing),
    kind("zone-read-only-torn", CommandKind::Append, Effect::TurnReadOnly(1), Harm::Nothing),
    kind("reset-error", CommandKind::Reset, Effect::Error, Harm::Nothing),
    kind("finish-error", CommandKind::Finish, Effect::Error, Harm::Nothing),
    kind("read-error", CommandKind::Read, Effect::Error, Harm::Errors),
    Kind { times: 4, ..kind("read-fails-for-a-while", CommandKind::Read, Effect::Error, Harm::Errors) },
    kind("read-rot", CommandKind::Read, Effect::FlipBit(0), Harm::Errors),
    kind("flush-error", CommandKind::Flush, Effect::Error, Harm::Errors),
    kind("flush-loses", CommandKind::Flush, Effect::LoseCache(0), Harm::Errors),
    kind("host-full", CommandKind::Open, Effect::HostFull, Harm::Errors),
    kind("host-full-append", CommandKind::Append, Effect::HostFull, Harm::Errors),
    Kind { times: u64::MAX, ..kind("host-stays-full", CommandKind::Open, Effect::HostFull, Harm::Errors) },
    memory("out-of-memory", 1),
    memory("memory-stays-out", u64::MAX),
    kind("zone-offline", CommandKind::Append, Effect::TurnOffline, Harm::Loss),
    kind("zone-offline-read", CommandKind::Read, Effect::TurnOffline, Harm::Loss),
    kind("append-rot", CommandKind::Append, Effect::FlipBit(0), Harm::Loss),
    log("log-moves-and-dies", 1),
    log("log-fails-and-dies", u64::MAX),
];

const fn kind(name: &'static str, command: CommandKind, effect: Effect, harm: Harm) -> Kind {
    Kind { name, strikes: Strikes::Command(command, effect), times: 1, harm }
}

/// The log zone in use refuses so many appends, and so takes a successor mark or not.
const fn log(name: &'static str, times: u64) -> Kind {
    Kind { name, strikes: Strikes::Log, times, harm: Harm::Loss }
}

const fn memory(name: &'static str, times: u64) -> Kind {
    Kind { name, strikes: Strikes::Memory, times, harm: Harm::Errors }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Trials in which the fault struck.
    pub struck: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that were refused for want of space.
    pub without_space: u64,
    /// Background steps that failed.
    pub background: u64,
    /// Volumes that took no more changes.
    pub latched: u64,
    /// Mounts that were refused.
    pub refused: u64,
    /// Volumes that were looked at.
    pub judged: u64,
    /// Volumes on which something could not be read, and the checker said so.
    pub lossy: u64,
    /// Volumes of which a twin said to the block what may be missing.
    pub exact: u64,
    /// Volumes that miss a wrong block of data, and no other.
    pub bounded: u64,
    /// Zones in which data lived when they could not be written any more, and do not live now.
    pub evacuated: u64,
}

impl Counts {
    /// Adds what another counted.
    pub fn add(&mut self, other: &Counts) {
        self.struck += other.struck;
        self.failed += other.failed;
        self.without_space += other.without_space;
        self.background += other.background;
        self.latched += other.latched;
        self.refused += other.refused;
        self.judged += other.judged;
        self.lossy += other.lossy;
        self.exact += other.exact;
        self.bounded += other.bounded;
        self.evacuated += other.evacuated;
    }

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("faults", self.struck),
            ("operations that failed", self.failed),
            ("operations refused for want of space", self.without_space),
            ("background steps that failed", self.background),
            ("volumes that latched", self.latched),
            ("mounts refused", self.refused),
            ("volumes compared", self.judged),
            ("volumes with losses that were told", self.lossy),
            ("volumes whose losses were known to the block", self.exact),
            ("volumes that miss one wrong block of data", self.bounded),
            ("zones evacuated", self.evacuated),
        ]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named();
        let counted = named.iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counted.map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&counts.join(", "))
    }
}

/// The scenarios that faults are tried on: those that make none of their own.
pub fn scenarios() -> Vec<Scenario> {
    files::all().into_iter().filter(|scenario| !scenario.name.ends_with("-failure")).collect()
}

/// One kind at one moment, at the `first` command and every `every`-th from there on, until there are no more. What
/// went wrong first, and at which command.
pub fn sweep(
    stage: &Stage,
    kind: Kind,
    moment: Moment,
    (first, every): (u64, u64),
    began: &dyn Fn(&Trial<'_>),
) -> (Counts, Option<(String, Wrong)>) {
    let mut counts = Counts::default();
    for nth in (first..).step_by(every as usize) {
        let trial = Trial { stage, kind, moment, nth };
        began(&trial);
        match caught(trial, || trial.run()) {
            Ok(Outcome::NotReached) => break,
            Ok(Outcome::Struck(more)) => counts.add(&more),
            Err(wrong) => return (counts, Some((trial.to_string(), wrong))),
        }
    }
    (counts, None)
}
