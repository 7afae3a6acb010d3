//! The scenarios of the store, as distributions of random steps.

use emulated::Effect;
use zone::Role;

use crate::shows::Sign;

/// An append in one role fails at some step, and so do all later ones to that zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneFailure {
    /// At which step. Later if no zone is being written then.
    pub step: u32,
    /// The zone that is being written in this role.
    pub role: Role,
    /// The effect.
    pub effect: Effect,
}

/// How the random steps of a scenario are distributed.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Signs that must rise in the part that is cut.
    pub shows: &'static [Sign],
    /// Steps before the recording begins.
    pub prepare: u32,
    /// Steps that are recorded and cut. With several clients: transactions of each.
    pub steps: u32,
    /// Clients that commit and sync at once; 0: a single thread does everything step by step.
    pub clients: u32,
    /// Groups of the volume.
    pub groups: u16,
    /// Distinct keys of each group.
    pub keys: u32,
    /// Limit for the bytes of a value.
    pub value_bytes: usize,
    /// Limit for the writes of a transaction.
    pub writes: u32,
    /// One of this many writes is a delete; 0 for none.
    pub delete_every: u32,
    /// Memory for nodes.
    pub cache_bytes: u64,
    /// How likely each kind of step is.
    pub weights: Weights,
    /// Transactions that are committed in the middle of each checkpoint. In scenarios with data they delete
    /// references to some.
    pub meddling: u32,
    /// The run is a recovery, and all data is equal: a client that lost it writes it again.
    pub retries: bool,
    /// GC of nodes and resets of zones happen only in the part that is cut, so that there is work left.
    pub idle_before: bool,
    /// Every zone comes back from its next reset with another capacity.
    pub capacities: bool,
    /// The injected failure.
    pub failure: Option<ZoneFailure>,
}

/// How likely each kind of step is, in any unit.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// A transaction of puts and deletes.
    pub commit: u32,
    /// A transaction that refers to data.
    pub data: u32,
    /// Waiting until everything is durable.
    pub sync: u32,
    /// A checkpoint.
    pub checkpoint: u32,
    /// A background step.
    pub step: u32,
    /// Resetting dead zones.
    pub reclaim: u32,
    /// A reader enters the zone of some data, or leaves it.
    pub reader: u32,
}

const USUAL: Profile = Profile {
    name: "",
    shows: &[Sign::Batches],
    prepare: 20,
    steps: 60,
    clients: 0,
    groups: 2,
    keys: 60,
    value_bytes: 120,
    writes: 4,
    delete_every: 5,
    cache_bytes: 8 << 20,
    weights: Weights { commit: 10, data: 0, sync: 3, checkpoint: 0, step: 1, reclaim: 0, reader: 0 },
    meddling: 0,
    retries: false,
    idle_before: false,
    capacities: false,
    failure: None,
};

/// All scenarios of the store.
pub fn all() -> Vec<Profile> {
    [nodes(), crews(), data(), failures()].concat()
}

/// Scenarios of nodes and the log.
fn nodes() -> Vec<Profile> {
    vec![
        Profile { name: "store-journal", ..USUAL },
        Profile {
            name: "store-splits",
            shows: &[Sign::NodesWritten, Sign::NodesLive],
            keys: 400,
            value_bytes: usize::MAX,
            writes: 12,
            weights: Weights { step: 4, checkpoint: 2, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-checkpoints",
            shows: &[Sign::Checkpoints],
            steps: 50,
            keys: 200,
            weights: Weights { checkpoint: 3, step: 3, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-cleaning",
            shows: &[Sign::NodesMoved, Sign::Resets],
            prepare: 400,
            steps: 60,
            keys: 160,
            value_bytes: usize::MAX,
            writes: 4,
            idle_before: true,
            weights: Weights { checkpoint: 4, step: 6, reclaim: 1, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-log-switch",
            shows: &[Sign::LogZones],
            prepare: 40,
            steps: 120,
            value_bytes: 1200,
            writes: 16,
            weights: Weights { sync: 8, checkpoint: 1, step: 2, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-eviction",
            shows: &[Sign::NodesRead, Sign::NodesWritten],
            keys: 60,
            prepare: 100,
            steps: 60,
            groups: 4,
            value_bytes: usize::MAX,
            writes: 4,
            delete_every: 10,
            cache_bytes: 64 << 10,
            weights: Weights { checkpoint: 1, step: 4, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-during-checkpoint",
            shows: &[Sign::Checkpoints],
            steps: 30,
            keys: 30,
            meddling: 3,
            weights: Weights { sync: 1, checkpoint: 3, step: 0, ..USUAL.weights },
            ..USUAL
        },
    ]
}

/// Scenarios with four concurrent writers.
fn crews() -> Vec<Profile> {
    vec![
        Profile {
            name: "store-group-commit",
            shows: &[Sign::Followers, Sign::FlushesForFour],
            clients: 4,
            steps: 6,
            weights: Weights { commit: 1, sync: 6, checkpoint: 0, step: 0, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-group-checkpoint",
            shows: &[Sign::Followers, Sign::Checkpoints, Sign::NodesWritten],
            clients: 4,
            steps: 6,
            keys: 200,
            weights: Weights { commit: 1, sync: 1, checkpoint: 2, step: 3, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-group-eviction",
            shows: &[Sign::Followers, Sign::NodesRead, Sign::NodesWritten],
            clients: 4,
            prepare: 100,
            steps: 6,
            groups: 4,
            value_bytes: usize::MAX,
            delete_every: 10,
            cache_bytes: 64 << 10,
            weights: Weights { commit: 1, sync: 1, checkpoint: 1, step: 4, ..USUAL.weights },
            ..USUAL
        },
    ]
}

/// Scenarios of data and its zones.
fn data() -> Vec<Profile> {
    vec![
        Profile {
            name: "store-data",
            shows: &[Sign::DataZones, Sign::Resets],
            prepare: 80,
            steps: 100,
            keys: 5,
            weights: Weights { commit: 3, data: 12, sync: 3, checkpoint: 1, step: 3, reclaim: 2, reader: 0 },
            ..USUAL
        },
        Profile {
            name: "store-readers",
            shows: &[Sign::DataZones, Sign::Resets],
            prepare: 60,
            steps: 150,
            keys: 3,
            weights: Weights { commit: 1, data: 14, sync: 2, reclaim: 3, reader: 1, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-retry",
            shows: &[Sign::Discarded],
            keys: 12,
            retries: true,
            weights: Weights { commit: 1, data: 6, sync: 1, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-data-during-checkpoint",
            shows: &[Sign::Checkpoints, Sign::DataZones],
            prepare: 30,
            steps: 60,
            keys: 12,
            meddling: 2,
            weights: Weights { commit: 1, data: 10, sync: 2, checkpoint: 3, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-capacities",
            shows: &[Sign::Capacities, Sign::Resets],
            prepare: 60,
            steps: 90,
            keys: 4,
            capacities: true,
            weights: Weights { commit: 2, data: 14, sync: 3, checkpoint: 2, step: 3, reclaim: 3, reader: 0 },
            ..USUAL
        },
    ]
}

/// Zones that fail while they are being written.
fn failures() -> Vec<Profile> {
    let failing = |step, role, effect| Some(ZoneFailure { step, role, effect });
    let with_data = Weights { commit: 3, data: 8, sync: 4, checkpoint: 1, step: 3, reclaim: 2, reader: 0 };
    let with_nodes = Weights { checkpoint: 3, step: 3, ..USUAL.weights };
    vec![
        Profile {
            name: "store-log-failure",
            shows: &[Sign::Failures, Sign::LogZones],
            steps: 50,
            failure: failing(20, Role::Log, Effect::Error),
            weights: Weights { sync: 6, step: 3, data: 3, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-log-read-only",
            shows: &[Sign::ReadOnly, Sign::LogZones],
            steps: 50,
            failure: failing(15, Role::Log, Effect::TurnReadOnly(1)),
            weights: Weights { sync: 6, step: 3, ..USUAL.weights },
            ..USUAL
        },
        Profile {
            name: "store-metadata-failure",
            shows: &[Sign::Failures, Sign::Checkpoints],
            steps: 80,
            keys: 200,
            failure: failing(15, Role::Metadata, Effect::Error),
            weights: with_nodes,
            ..USUAL
        },
        Profile {
            name: "store-metadata-read-only",
            shows: &[Sign::ReadOnly, Sign::Checkpoints],
            steps: 80,
            keys: 200,
            failure: failing(15, Role::Metadata, Effect::TurnReadOnly(0)),
            weights: with_nodes,
            ..USUAL
        },
        Profile {
            name: "store-data-read-only",
            shows: &[Sign::ReadOnly, Sign::DataZones],
            steps: 50,
            keys: 8,
            failure: failing(15, Role::Data, Effect::TurnReadOnly(1)),
            weights: with_data,
            ..USUAL
        },
        Profile {
            name: "store-data-offline",
            shows: &[Sign::Offline, Sign::DataZones],
            steps: 50,
            keys: 8,
            failure: failing(15, Role::Data, Effect::TurnOffline),
            weights: with_data,
            ..USUAL
        },
    ]
}
