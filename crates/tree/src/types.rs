//! The basic types of the store: groups, tables, sequence numbers, errors, transactions.

use std::sync::Arc;

use pool::{Change, Reserved};
use rt::sync::Mutex;
use smallvec::SmallVec;
use zone::{DeviceError, FsId, Life, Role, ZoneId};

use crate::patch::Patch;

/// A shard of the key space with a tree and a lock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u16);

impl Group {
    /// The root of the group's tree, which is always the same node.
    pub(crate) fn root(self) -> NodeId {
        NodeId(u64::from(self.0) + 1)
    }
}

/// A table: an ordered map of its own within each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u8);

/// The table whose growth is reserved beforehand by each insertion into it. Nodes that lead only to it are counted
/// separately ([`crate::Store::blocks_of_nodes`]). No table has a smaller number.
pub const PREPAID: Table = Table(1);

/// The id of a node. The MAT has its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A cut in the order of transactions; counts up at each checkpoint and each seal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch(pub(crate) u64);

/// The share of a volume's zones that user data never takes, in hundredths of a percent. 0: the least share with which
/// the volume works. The store only remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reserve(pub u32);

impl Reserve {
    /// All zones.
    pub const ALL: Reserve = Reserve(10_000);
}

impl std::fmt::Display for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02} %", self.0 / 100, self.0 % 100)
    }
}

/// The label of a volume. Every checkpoint has it.
#[derive(Debug)]
pub struct Label(Mutex<String>);

impl Label {
    /// The largest number of bytes.
    pub const BYTES_MAX: usize = 64;

    /// A label with this text.
    pub fn new(text: String) -> Label {
        Label(Mutex::new(text))
    }

    /// The text.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }

    /// Changes the text. The next checkpoint makes that durable.
    pub(crate) fn change(&self, text: &str) {
        text.clone_into(&mut self.0.lock());
    }
}

/// Properties that `mkfs` decided. Only the label can be changed.
#[derive(Debug)]
pub struct VolumeInfo {
    /// The volume's identity.
    pub fs_id: FsId,
    /// Its label.
    pub label: Label,
    /// Shards of the key space.
    pub groups: u16,
    /// Bytes of a node.
    pub page_size: u32,
    /// When it was made, in nanoseconds since 1970.
    pub created_ns: i64,
    /// Its incompatible features ([`zone::format::FEATURES`]).
    pub features: u64,
    /// The space that the store's user reserves and data cannot take.
    pub reserve: Reserve,
    /// Keys the hashes of names.
    pub secret: [u8; 16],
}

impl VolumeInfo {
    /// The first id of a node that is not a root.
    pub(crate) fn first_node(&self) -> u64 {
        u64::from(self.groups) + 1
    }
}

/// Why an operation of the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The metadata does not fit, even after GC.
    #[error("no space left for metadata")]
    NoSpace,
    /// The operation needs more memory than can be freed. It has changed nothing.
    #[error(transparent)]
    NoMemory(#[from] zone::NoMemory),
    /// A failure that cannot be repaired while mounted.
    #[error("the volume is shut down (read-only until it is mounted again): {0}")]
    ShutDown(Arc<str>),
    /// The volume was opened without the right to write.
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// Metadata is missing or not valid.
    #[error(
        "metadata is damaged: {0}; run `polder check`, or `polder salvage` if the volume cannot be opened"
    )]
    Corrupt(String),
    /// There is no volume, or none that this release can read.
    #[error("{0}")]
    NoVolume(String),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The result of an operation of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Bytes of a value.
pub type Bytes = Vec<u8>;

/// A key. Keys of all tables fit without an allocation, also with their table's number in front.
pub type Key = SmallVec<[u8; 24]>;

/// A key and its value.
pub type Entry = (Key, Bytes);

/// The key as it is in the tree.
pub(crate) fn tree_key(table: Table, key: &[u8]) -> Key {
    let mut full = Key::with_capacity(key.len() + 1);
    full.push(table.0);
    full.extend_from_slice(key);
    full
}

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key, whether it was there or not.
    Put {
        /// The shard.
        group: Group,
        /// The table.
        table: Table,
        /// The key, at most [`crate::KEY_MAX`] bytes.
        key: Key,
        /// The value, at most [`crate::Store::value_max`] bytes.
        value: Bytes,
    },
    /// Changes the value of a key that was there. Only in the journal; recovery makes a put of it.
    Patch {
        /// The shard.
        group: Group,
        /// The table.
        table: Table,
        /// The key.
        key: Key,
        /// The change of the value that the key had before the transaction.
        patch: Patch,
    },
    /// Removes a key, whether it was there or not.
    Delete {
        /// The shard.
        group: Group,
        /// The table.
        table: Table,
        /// The key.
        key: Key,
    },
    /// A zone begins a life in a role. Written by [`crate::Store::open_zone`].
    ZoneOpened {
        /// The zone.
        zone: ZoneId,
        /// The life that begins.
        life: Life,
        /// The role.
        role: Role,
    },
    /// The live blocks of a data zone change.
    ZoneLive {
        /// The zone.
        zone: ZoneId,
        /// Its life; filled in when the transaction commits. Replay skips changes of an earlier life than the zone has
        /// in the checkpoint.
        life: Life,
        /// The number of blocks that become live (or dead).
        change: i32,
    },
    /// The 16 bytes for each zone that the store keeps for its user.
    ZoneUser {
        /// The zone.
        zone: ZoneId,
        /// Its life; filled in when the transaction commits.
        life: Life,
        /// The bytes.
        bytes: [u8; 16],
    },
    /// A change of a counter that the store keeps for its user.
    Counter {
        /// Which, below [`crate::COUNTERS`].
        counter: u8,
        /// By how much.
        change: i64,
    },
}

impl Op {
    /// The change of the zone table, if the write is one.
    pub(crate) fn zone_change(&self) -> Option<Change> {
        match *self {
            Op::ZoneOpened { zone, life, role } => Some(Change::Opened { zone, life, role }),
            Op::ZoneLive { zone, life, change } => Some(Change::Live { zone, life, change }),
            Op::ZoneUser { zone, life, bytes } => Some(Change::User { zone, life, bytes }),
            Op::Counter { counter, change } => Some(Change::Counter { counter, change }),
            Op::Put { .. } | Op::Patch { .. } | Op::Delete { .. } => None,
        }
    }

    /// The zone, and the life that is filled in when the transaction commits.
    pub(crate) fn life_to_fill(&mut self) -> Option<(ZoneId, &mut Life)> {
        match self {
            Op::ZoneLive { zone, life, .. } | Op::ZoneUser { zone, life, .. } => Some((*zone, life)),
            _ => None,
        }
    }
}

/// The space that a transaction may take when space is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// Free space only: a transaction that would make a tree grow is refused where [`crate::Growth`] says that there
    /// is no space for that. One that only changes rows is not.
    #[default]
    Free,
    /// Space that was reserved for it before it began ([`Tx::spends`]).
    Reserved,
    /// The metadata reserve too, because the transaction frees space, or because nothing can go on without it.
    Reserve,
}

/// Writes that are applied atomically.
///
/// It has no reads: its creator holds the locks that make its preconditions true until [`crate::Store::commit`] has
/// returned.
#[derive(Clone, Debug, Default)]
pub struct Tx {
    pub(crate) ops: Vec<Op>,
    /// The puts, by their index in `ops`, of which the journal may have a patch.
    pub(crate) updates: SmallVec<[usize; 2]>,
    pub(crate) draw: Draw,
    pub(crate) reserved: Vec<Arc<dyn Reserved>>,
}

impl Tx {
    /// An empty transaction that may use free space.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty transaction that may draw on the reserve: one that frees space, or GC's.
    pub fn reclaiming() -> Self {
        Tx { draw: Draw::Reserve, ..Tx::default() }
    }

    /// Spends a reservation when this transaction takes effect.
    pub fn spends(&mut self, reserved: Arc<dyn Reserved>) {
        if self.draw == Draw::Free {
            self.draw = Draw::Reserved;
        }
        self.reserved.push(reserved);
    }

    /// Sets a key.
    pub fn put(&mut self, group: Group, table: Table, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        self.ops.push(Op::Put { group, table, key: Key::from_slice(key.as_ref()), value: value.into() });
    }

    /// Sets a key. If the key is there, the journal gets only what changes in its value, where that is shorter.
    pub fn update(&mut self, group: Group, table: Table, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        self.updates.push(self.ops.len());
        self.put(group, table, key, value);
    }

    /// Removes a key.
    pub fn delete(&mut self, group: Group, table: Table, key: impl AsRef<[u8]>) {
        self.ops.push(Op::Delete { group, table, key: Key::from_slice(key.as_ref()) });
    }

    /// Changes the live count of a data zone.
    pub fn zone_live(&mut self, zone: ZoneId, change: i32) {
        if change != 0 {
            self.ops.push(Op::ZoneLive { zone, life: Life(0), change });
        }
    }

    /// Sets the user's bytes of a zone.
    pub fn zone_user(&mut self, zone: ZoneId, bytes: [u8; 16]) {
        self.ops.push(Op::ZoneUser { zone, life: Life(0), bytes });
    }

    /// Changes a counter. None may become negative.
    pub fn counter(&mut self, counter: u8, change: i64) {
        assert!(usize::from(counter) < crate::COUNTERS, "there are {} counters", crate::COUNTERS);
        if change != 0 {
            self.ops.push(Op::Counter { counter, change });
        }
    }

    /// The writes so far.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// The result of a background step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It did something; call again at once.
    Worked,
    /// There is nothing to do now.
    Idle,
}
