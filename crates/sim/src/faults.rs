//! Faults of the device at the first, second, third … command of every scenario.
//!
//! A [`Kind`] is a class of faults: an append, a read, a flush or a reset that fails, a torn append, a zone that
//! becomes read-only or offline, a flipped bit, a drive that loses its cache, a full host, or a failed allocation of
//! memory. It strikes one command (or request for memory), once, or a few in a row. A [`Trial`] chooses which. The
//! fault strikes either while the scenario runs, or while its volume is mounted. Operations may then fail as far as
//! the kind allows it. Afterwards every read must give either an error or the bytes of the model, never anything
//! else: while the volume is mounted, after a loss of power, and after an unmount and a mount. Only what the fault
//! destroys may be missing, and then the checker reports it.
//!
//! * A full host looks like a full volume, or like one that was shut down.
//! * A flush that fails and loses the writes since the previous flush may cost the data it was to make durable, and
//!   reports this. It costs nothing that was acknowledged before.
//! * A zone that goes offline costs exactly its blocks. A corrupt block of data costs only itself. A zone that
//!   becomes read-only costs nothing, and its live blocks are moved.
//! * If the log zone in use takes no more appends, and the zone in which the log continued is gone after a loss of
//!   power, the mount is refused or nothing acknowledged is missing.
//! * Without memory an operation fails with that error. The volume is never shut down for it, and an unmount succeeds
//!   once there is memory again. Between operations no reserved page is in use by another owner.

mod offline;
mod trial;

use std::fmt;

use emulated::{CommandKind, Effect, Fault};

pub use trial::{Moment, Outcome, Stage, Trial};

use crate::caught::Wrong;
use crate::caught::caught;
use crate::files::{self, Scenario};

/// The allowed effects of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// No operation fails, and nothing is lost.
    Nothing,
    /// Operations may fail, and the volume may be shut down until it is mounted again. Nothing is lost.
    Errors,
    /// The contents of the zone, or the structure that contains the bit, may be lost.
    Loss,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it strikes, and how.
    pub strikes: Strikes,
    /// How many consecutive commands it strikes. More than one only while the scenario runs, and where no range is
    /// collapsed or inserted: recovery and such operations read twice, and give up what cannot be read then.
    pub times: u64,
    /// The allowed effects.
    pub harm: Harm,
}

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strikes {
    /// Commands of the device, and the effect on them.
    Command(CommandKind, Effect),
    /// Requests for memory for pages. While the fault is active, each page is requested separately.
    Memory,
    /// Appends to the log zone in use. After a loss of power the zone in which the log continued is offline.
    Log,
}

impl Kind {
    /// The effect on device commands, if the fault strikes these.
    pub fn effect(&self) -> Option<Effect> {
        match self.strikes {
            Strikes::Command(_, effect) => Some(effect),
            Strikes::Memory | Strikes::Log => None,
        }
    }

    /// The fault to inject so that it strikes the `nth` command from now on, if it strikes commands.
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

    /// In the quick form one of this many commands is struck. More often for kinds that strike few commands or
    /// resemble few others.
    pub fn quick_every(&self) -> u64 {
        match self.strikes {
            Strikes::Command(CommandKind::Open | CommandKind::Finish, _) => 3,
            Strikes::Command(CommandKind::Flush, Effect::LoseCache(_)) => 21,
            Strikes::Command(CommandKind::Append, Effect::HostFull) | Strikes::Memory => 21,
            Strikes::Command(..) | Strikes::Log => 7,
        }
    }

    /// In the quick form one of this many scenarios is tried. Kinds that resemble another take turns.
    pub fn quick_share(&self) -> usize {
        match self.strikes {
            Strikes::Memory
            | Strikes::Command(CommandKind::Open, _)
            | Strikes::Command(_, Effect::LoseCache(_) | Effect::HostFull) => 3,
            Strikes::Command(..) | Strikes::Log => 1,
        }
    }
}

/// All kinds.
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

/// The log zone in use refuses this many appends, and so accepts a successor mark or not.
const fn log(name: &'static str, times: u64) -> Kind {
    Kind { name, strikes: Strikes::Log, times, harm: Harm::Loss }
}

const fn memory(name: &'static str, times: u64) -> Kind {
    Kind { name, strikes: Strikes::Memory, times, harm: Harm::Errors }
}

/// The counts of trials.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Trials in which the fault struck.
    pub struck: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that were refused for lack of space.
    pub without_space: u64,
    /// Background steps that failed.
    pub background: u64,
    /// Volumes that were shut down.
    pub shut_down: u64,
    /// Mounts that were refused.
    pub refused: u64,
    /// Volumes that were compared with the model.
    pub judged: u64,
    /// Volumes on which something could not be read, and the checker reported it.
    pub lossy: u64,
    /// Volumes for which a twin showed exactly which blocks may be missing.
    pub exact: u64,
    /// Volumes that miss exactly the one corrupt block of data.
    pub bounded: u64,
    /// Zones that had live data when they became read-only, and have none now.
    pub evacuated: u64,
}

impl Counts {
    /// Adds other counts.
    pub fn add(&mut self, other: &Counts) {
        self.struck += other.struck;
        self.failed += other.failed;
        self.without_space += other.without_space;
        self.background += other.background;
        self.shut_down += other.shut_down;
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
            ("volumes that shut down", self.shut_down),
            ("mounts refused", self.refused),
            ("volumes compared", self.judged),
            ("volumes with losses that were reported", self.lossy),
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

/// The scenarios for faults: those that do not inject faults themselves, and delay no writes.
pub fn scenarios() -> Vec<Scenario> {
    // A delayed write reports its error later than the operation that is compared (`fs/tests/all/delayed_writes.rs`).
    let is_comparable = |scenario: &Scenario| !scenario.name.ends_with("-failure") && !scenario.delays;
    files::all().into_iter().filter(is_comparable).collect()
}

/// One kind at one moment, at the `first` command and every `every`-th from there on, until there are no more.
/// Returns the first failure, and its command.
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
