//! The signs that a run must show: a scenario that is named after GC is useless if GC does nothing in it.
//!
//! Each scenario names [`Sign`]s, counters that must rise in the part that is cut. A [`Reading`] is taken at the
//! start and at the end of the recording. The difference is [`Shown`].

use std::collections::BTreeSet;
use std::fmt;

use emulated::{CommandKind, Emulated};
use tree::Store;
use zone::{Device, Role, ZoneId, ZoneState};

use crate::caught::Wrong;

/// A counter that rises when a part of Polder works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Batches appended to the log.
    Batches,
    /// Syncs that shared a flush with one before them.
    Followers,
    /// Whether one flush has served four syncs, and contained their records.
    FlushesForFour,
    /// Moments in the middle of an operation at which a part of its transactions became durable.
    Amid,
    /// Checkpoints taken.
    Checkpoints,
    /// Nodes written.
    NodesWritten,
    /// Leaves of which delta records were written.
    DeltasWritten,
    /// Nodes read back from the device.
    NodesRead,
    /// Nodes moved by GC.
    NodesMoved,
    /// Leaves whose delta records were moved.
    DeltasMoved,
    /// Live nodes in metadata zones.
    NodesLive,
    /// Blocks moved by GC.
    Moved,
    /// Lives of log zones that began.
    LogZones,
    /// Lives of data zones that began.
    DataZones,
    /// Zones reset.
    Resets,
    /// Zones whose capacity has changed.
    Capacities,
    /// Device commands that failed.
    Failures,
    /// Zones that can no longer be written.
    ReadOnly,
    /// Zones that can no longer be read.
    Offline,
    /// Records that a recovery discarded.
    Discarded,
}

impl Sign {
    /// All signs, in the order in which they are printed.
    pub const ALL: [Sign; 20] = [
        Sign::Batches,
        Sign::Followers,
        Sign::FlushesForFour,
        Sign::Amid,
        Sign::Checkpoints,
        Sign::NodesWritten,
        Sign::DeltasWritten,
        Sign::NodesRead,
        Sign::NodesMoved,
        Sign::DeltasMoved,
        Sign::NodesLive,
        Sign::Moved,
        Sign::LogZones,
        Sign::DataZones,
        Sign::Resets,
        Sign::Capacities,
        Sign::Failures,
        Sign::ReadOnly,
        Sign::Offline,
        Sign::Discarded,
    ];

    /// The printed name.
    pub fn name(self) -> &'static str {
        match self {
            Sign::Batches => "batches",
            Sign::Followers => "syncs that shared a flush",
            Sign::FlushesForFour => "flush for four",
            Sign::Amid => "times durable in part",
            Sign::Checkpoints => "checkpoints",
            Sign::NodesWritten => "nodes written",
            Sign::DeltasWritten => "delta records written",
            Sign::NodesRead => "nodes read back",
            Sign::NodesMoved => "nodes moved",
            Sign::DeltasMoved => "delta records moved",
            Sign::NodesLive => "nodes added",
            Sign::Moved => "blocks moved by gc",
            Sign::LogZones => "log zones begun",
            Sign::DataZones => "data zones begun",
            Sign::Resets => "resets",
            Sign::Capacities => "capacities changed",
            Sign::Failures => "commands failed",
            Sign::ReadOnly => "zones read-only",
            Sign::Offline => "zones offline",
            Sign::Discarded => "records discarded",
        }
    }
}

/// All counters at one moment of a run.
#[derive(Clone, Debug)]
pub struct Reading {
    counts: [u64; Sign::ALL.len()],
    /// Zone and life of each zone in use as a log or for data.
    lives: BTreeSet<(bool, ZoneId, u64)>,
    capacities: Vec<u32>,
}

impl Reading {
    /// The current counters. `moved` are the blocks that GC has moved.
    pub fn of(device: &Emulated, store: &Store, moved: u64) -> Self {
        let (stats, commands) = (store.stats(), device.counters());
        let report = device.report().unwrap_or_default();
        let zones = || (0..).map(ZoneId).zip(&report);
        let in_state = |state| report.iter().filter(|info| info.state == state).count() as u64;
        let metadata = store.pool().in_role(Role::Metadata).into_iter();
        let live = metadata.map(|zone| u64::from(store.pool().entry(zone).live)).sum();
        let count = |sign| match sign {
            Sign::Batches => stats.log_batches,
            Sign::Followers => stats.sync_followers,
            Sign::FlushesForFour => u64::from(stats.syncs_per_flush_max >= 4),
            Sign::Checkpoints => stats.checkpoints,
            Sign::NodesWritten => stats.nodes_written,
            Sign::DeltasWritten => stats.deltas_written,
            Sign::NodesRead => stats.nodes_read,
            Sign::NodesMoved => stats.nodes_moved,
            Sign::DeltasMoved => stats.deltas_moved,
            Sign::NodesLive => live,
            Sign::Moved => moved,
            Sign::Resets => commands.of(CommandKind::Reset),
            Sign::Failures => commands.failed,
            Sign::ReadOnly => in_state(ZoneState::ReadOnly),
            Sign::Offline => in_state(ZoneState::Offline),
            Sign::Amid | Sign::LogZones | Sign::DataZones | Sign::Capacities | Sign::Discarded => 0,
        };
        Reading {
            counts: Sign::ALL.map(count),
            lives: zones().filter_map(|(zone, info)| life(device, zone, info.state)).collect(),
            capacities: report.iter().map(|info| info.capacity).collect(),
        }
    }

    /// Adds a count that neither device nor store has.
    pub fn with(mut self, sign: Sign, count: u64) -> Self {
        self.counts[sign as usize] = count;
        self
    }

    /// By how much each counter has risen since `before`.
    pub fn since(&self, before: &Reading) -> Shown {
        let mut shown = Shown(std::array::from_fn(|at| self.counts[at].saturating_sub(before.counts[at])));
        let begun = |log| self.lives.difference(&before.lives).filter(|life| life.0 == log).count() as u64;
        shown.set(Sign::LogZones, begun(true));
        shown.set(Sign::DataZones, begun(false));
        let pairs = self.capacities.iter().zip(&before.capacities);
        shown.set(Sign::Capacities, pairs.filter(|(now, then)| now != then).count() as u64);
        shown
    }
}

/// From a zone's header, if it is a zone of the log or of data: whether it is of the log, and its life.
fn life(device: &Emulated, zone: ZoneId, state: ZoneState) -> Option<(bool, ZoneId, u64)> {
    let mut header = vec![0; device.geometry().block_size as usize];
    if matches!(state, ZoneState::Empty | ZoneState::Offline) || device.read(zone, 0, &mut header).is_err() {
        return None;
    }
    let (identity, _) = zone::format::decode_header(&header).ok()?;
    let log = identity.role == Role::Log;
    (log || identity.role.holds_data()).then_some((log, zone, u64::from(identity.life.0)))
}

/// By how much each counter rose in the part of a run that is cut.
#[derive(Clone, Debug, Default)]
pub struct Shown([u64; Sign::ALL.len()]);

impl Shown {
    /// By how much this counter rose.
    pub fn of(&self, sign: Sign) -> u64 {
        self.0[sign as usize]
    }

    /// Sets a counter that is not part of a [`Reading`].
    pub fn set(&mut self, sign: Sign, count: u64) {
        self.0[sign as usize] = count;
    }

    /// Checks that all of these rose. The error names those that did not.
    pub fn check(&self, wanted: &[Sign]) -> Result<(), Wrong> {
        let missing: Vec<&str> =
            wanted.iter().filter(|&&sign| self.of(sign) == 0).map(|sign| sign.name()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Wrong(format!(
            "the run does not show what its scenario names: {} (it shows {self})",
            missing.join(", ")
        )))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let risen: Vec<String> = Sign::ALL
            .into_iter()
            .filter(|&sign| self.of(sign) > 0)
            .map(|sign| format!("{} {}", self.of(sign), sign.name()))
            .collect();
        f.write_str(if risen.is_empty() { "nothing" } else { "" })?;
        f.write_str(&risen.join(", "))
    }
}
