//! Inodes in memory: a bounded cache of records, and the lock of each inode.
//!
//! The lock of a [`Node`] guards its record. The record is always the committed one: only `Fs::commit` changes it,
//! after the transaction. So a node without references can be evicted at any time. The handles of an open inode refer
//! to its node.
//!
//! The states are `Unknown` (not read yet) → `Present` → `Gone`. `Gone` is final, because inode numbers are never
//! used again. A file or directory that is deleted while a kernel references it may be `Detached` in between
//! (`unlinked.rs`): its row is deleted, and memory has the only record. It becomes `Present` again when it gets
//! contents or attributes that need rows.
//!
//! Locks of several inodes are taken in the order of their numbers ([`Locked::lock`]). Everything that was looked up
//! before must be looked up again under the locks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rt::order::{Guard, LockOrder, Ordered};
use rt::sync::{Mutex, RwLock, RwLockWriteGuard};
use rustc_hash::FxHashMap;

use crate::delay_queue::DelayedWrites;
use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::locks::FileLocks;
use crate::types::{InodeNo, Kind};

const SHARDS: usize = 16;
/// How many nodes one insertion considers for eviction.
const EVICTION_TRIES: usize = 8;

/// The cached state of an inode.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing yet.
    Unknown,
    /// Its committed record.
    Present(Record),
    /// It has no row any more, but a kernel references it. It has no name, no attributes and no blocks.
    Detached(Record),
    /// It does not exist, or no longer. The last record is kept for callers that still have its number.
    Gone(Option<Record>),
}

impl State {
    /// The record of an inode that exists.
    pub(crate) fn record(&self) -> Result<&Record> {
        match self {
            State::Present(record) | State::Detached(record) => Ok(record),
            State::Gone(_) => Err(FsError::Stale),
            State::Unknown => unreachable!("a node is handed out only after it was read"),
        }
    }

    /// The same for access to attributes: a deleted pipe may still be in use, as may a directory that no kernel keeps,
    /// and the kernel asks for its access list. A deleted inode that had attributes is refused, because they are not
    /// kept.
    pub(crate) fn record_with_attributes(&self) -> Result<&Record> {
        match self {
            State::Gone(Some(last)) if last.xattrs == 0 => Ok(last),
            state => state.record(),
        }
    }
}

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) inode: InodeNo,
    pub(crate) state: Ordered<RwLock<State>>,
    /// The number of handles. It is raised under the state's lock (shared is enough) while the inode is present, or
    /// is a removed directory, of which nothing is left to delete. So a thread that holds the lock exclusively and
    /// sees 0 may delete the inode.
    pub(crate) opens: AtomicU32,
    /// Set when a lock of the file is first requested. Only handles hold locks, and they refer to the node.
    pub(crate) locks: OnceLock<Box<FileLocks>>,
    /// Bytes of the names of all its attributes, each with a terminating zero. 0: not known. Changes only while the
    /// state is locked exclusively.
    pub(crate) name_bytes: AtomicU32,
    /// Writes to the file that are not in the record and the object map yet.
    pub(crate) delayed: DelayedWrites,
    used: AtomicBool,
}

/// All nodes, in shards.
pub(crate) struct Inodes {
    shards: Vec<Mutex<Shard>>,
    shard_nodes_max: usize,
}

#[derive(Default)]
struct Shard {
    nodes: FxHashMap<InodeNo, Arc<Node>>,
    /// Every node once, in the order in which nodes are considered for eviction.
    queue: VecDeque<InodeNo>,
}

impl Inodes {
    /// A cache of about `nodes_max` nodes. It has more only if more are referenced.
    pub(crate) fn new(nodes_max: usize) -> Self {
        Inodes {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            shard_nodes_max: nodes_max.div_ceil(SHARDS).max(4),
        }
    }

    /// The node of an inode number. It is created as `Unknown` if it is not in memory.
    pub(crate) fn node(&self, inode: InodeNo) -> Arc<Node> {
        // Numbers of one group differ by the number of groups. Multiplying spreads them over the shards.
        let spread = inode.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut shard = self.shards[spread as usize % SHARDS].lock();
        if let Some(node) = shard.nodes.get(&inode) {
            node.used.store(true, Ordering::Relaxed);
            return node.clone();
        }
        if shard.nodes.len() >= self.shard_nodes_max {
            shard.evict();
        }
        let node = Arc::new(Node {
            inode,
            state: Ordered::rwlock(LockOrder::Inode, State::Unknown),
            opens: AtomicU32::new(0),
            locks: OnceLock::new(),
            name_bytes: AtomicU32::new(0),
            delayed: DelayedWrites::default(),
            used: AtomicBool::new(false),
        });
        shard.nodes.insert(inode, node.clone());
        shard.queue.push_back(inode);
        node
    }

    /// The number of nodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().nodes.len()).sum()
    }
}

impl Shard {
    /// Evicts a node or two that have no references and were not used since they were last considered. Nodes get no
    /// new references meanwhile, because that needs this shard's lock.
    fn evict(&mut self) {
        let mut wanted = 2;
        for _ in 0..EVICTION_TRIES.min(self.queue.len()) {
            let Some(inode) = self.queue.pop_front() else { return };
            let node = &self.nodes[&inode];
            if Arc::strong_count(node) > 1 || node.used.swap(false, Ordering::Relaxed) {
                self.queue.push_back(inode);
                continue;
            }
            self.nodes.remove(&inode);
            wanted -= 1;
            if wanted == 0 {
                return;
            }
        }
    }
}

/// The nodes in the order in which they must be locked, without duplicates.
pub(crate) fn in_order(mut nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    nodes.sort_by_key(|node| node.inode);
    nodes.dedup_by_key(|node| node.inode);
    nodes
}

/// Why a changed inode is among the locked ones.
const LOCKED: &str = "an operation changes only inodes that it has locked";

/// Inodes that are locked for a change.
pub(crate) struct Locked<'a> {
    guards: Vec<(&'a Node, Guard<RwLockWriteGuard<'a, State>>)>,
}

impl<'a> Locked<'a> {
    /// Locks nodes that are [`in_order`], and does not settle them: `Fs::lock` does.
    pub(crate) fn lock(nodes: &'a [Arc<Node>]) -> Self {
        assert!(nodes.is_sorted_by(|a, b| a.inode < b.inode), "inodes are locked in their order");
        Locked { guards: nodes.iter().map(|node| (&**node, node.state.write())).collect() }
    }

    /// Locks one node.
    pub(crate) fn one(node: &'a Arc<Node>) -> Self {
        Self::lock(std::slice::from_ref(node))
    }

    /// Locks another node that comes after all locked ones in the order.
    pub(crate) fn also(&mut self, node: &'a Arc<Node>) {
        let last = self.guards.last().map(|(node, _)| node.inode);
        assert!(last < Some(node.inode), "inodes are locked in their order");
        self.guards.push((node, node.state.write()));
    }

    /// The committed record of a locked inode.
    pub(crate) fn record(&self, inode: InodeNo) -> Result<&Record> {
        self.state(inode).record()
    }

    /// Whether the inode has no handle. None can be opened while the inode is locked.
    pub(crate) fn is_closed(&self, inode: InodeNo) -> bool {
        self.find(inode).0.opens.load(Ordering::SeqCst) == 0
    }

    /// Whether only memory has the record of the inode.
    pub(crate) fn is_detached(&self, inode: InodeNo) -> bool {
        matches!(self.state(inode), State::Detached(_))
    }

    /// Installs the record of an inode whose row does not exist, or was just deleted.
    pub(crate) fn detach(&mut self, inode: InodeNo, record: Record) {
        *self.state_mut(inode) = State::Detached(record);
    }

    /// Installs a record that was just committed.
    pub(crate) fn install(&mut self, inode: InodeNo, record: Record) {
        let (node, state) = self.guards.iter_mut().find(|(node, _)| node.inode == inode).expect(LOCKED);
        // The caller may know which name was removed. Here only the number of attributes is known.
        if matches!(&**state, State::Present(before) if record.xattrs < before.xattrs) {
            node.name_bytes.store(0, Ordering::Relaxed);
        }
        **state = State::Present(record);
    }

    /// Marks an inode as deleted whose deletion was just committed.
    pub(crate) fn remove(&mut self, inode: InodeNo) {
        let state = self.state_mut(inode);
        let last = match std::mem::replace(state, State::Unknown) {
            // A program that has found a symbolic link may still ask for its target.
            State::Present(record) if record.kind == Kind::Symlink => Some(Record { links: 0, ..record }),
            State::Present(record) | State::Detached(record) => {
                Some(Record { links: 0, content: Vec::new(), ..record })
            }
            State::Gone(last) => last,
            State::Unknown => None,
        };
        *state = State::Gone(last);
    }

    fn find(&self, inode: InodeNo) -> &(&'a Node, Guard<RwLockWriteGuard<'a, State>>) {
        let found = self.guards.iter().find(|(node, _)| node.inode == inode);
        found.expect(LOCKED)
    }

    fn state(&self, inode: InodeNo) -> &State {
        &self.find(inode).1
    }

    fn state_mut(&mut self, inode: InodeNo) -> &mut State {
        let found = self.guards.iter_mut().find(|(node, _)| node.inode == inode);
        &mut found.expect(LOCKED).1
    }
}

#[cfg(test)]
mod tests;
