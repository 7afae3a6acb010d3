//! The inodes in memory: a bounded cache of records, and the lock of each inode.
//!
//! A [`Node`]'s lock guards its record, and the record in it is always the committed one: it is
//! changed only by `Fs::commit`, after the transaction. So a node can be dropped at any time when
//! nobody holds it; open inodes are held by their handles.
//!
//! States: `Unknown` (not read yet) → `Present` → `Gone` (deleted; inode numbers are never used
//! again, so this is final). Locks of several inodes are taken in the order of their numbers
//! ([`Locked::lock`]), and what was looked up before is looked up again under them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rt::sync::{Mutex, RwLock, RwLockWriteGuard};
use rustc_hash::FxHashMap;

use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::locks::FileLocks;
use crate::types::{InodeNo, Kind};

const SHARDS: usize = 16;
/// How many nodes one insertion looks at for one to drop.
const EVICTION_TRIES: usize = 8;

/// What is known of an inode.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing yet.
    Unknown,
    /// Its committed record.
    Present(Record),
    /// It does not exist (any more); what it was last, for those who still hold its number.
    Gone(Option<Record>),
}

impl State {
    /// The record of an inode that exists.
    pub(crate) fn record(&self) -> Result<&Record> {
        match self {
            State::Present(record) => Ok(record),
            State::Gone(_) => Err(FsError::Stale),
            State::Unknown => unreachable!("a node is handed out only after it was read"),
        }
    }

    /// The same for who asks for attributes: a pipe or a directory may be in use although it was deleted, and whether
    /// it may be is asked of its access list. One that had any is not remembered with them.
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
    pub(crate) state: RwLock<State>,
    /// Handles. Raised under the state's lock (shared is enough) while the inode is present (or is a directory that
    /// was removed, of which nothing is left to delete), so that whoever holds the lock exclusively and sees 0 may
    /// delete the inode.
    pub(crate) opens: AtomicU32,
    /// Since somebody asked for a lock of the file. Only handles hold locks, and they hold the node.
    pub(crate) locks: OnceLock<Box<FileLocks>>,
    /// Bytes of the names of all its attributes, with a zero behind each; 0 while that is not known. Changes while the
    /// state is locked exclusively.
    pub(crate) name_bytes: AtomicU32,
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
    /// Every node once, in the order in which they are considered for eviction.
    queue: VecDeque<InodeNo>,
}

impl Inodes {
    /// Room for about `nodes_max` nodes; more only while more are held.
    pub(crate) fn new(nodes_max: usize) -> Self {
        Inodes {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            shard_nodes_max: nodes_max.div_ceil(SHARDS).max(4),
        }
    }

    /// The node of a number; made `Unknown` if it is not in memory.
    pub(crate) fn node(&self, inode: InodeNo) -> Arc<Node> {
        // Numbers of one group differ by the number of groups: multiply to spread them.
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
            state: RwLock::new(State::Unknown),
            opens: AtomicU32::new(0),
            locks: OnceLock::new(),
            name_bytes: AtomicU32::new(0),
            used: AtomicBool::new(false),
        });
        shard.nodes.insert(inode, node.clone());
        shard.queue.push_back(inode);
        node
    }

    /// Nodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().nodes.len()).sum()
    }
}

impl Shard {
    /// Drops a node or two that nobody holds and that were not used since they were last looked
    /// at. Nobody can take hold of one meanwhile: that needs this shard's lock.
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

/// The nodes in the order in which they must be locked, each once.
pub(crate) fn in_order(mut nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    nodes.sort_by_key(|node| node.inode);
    nodes.dedup_by_key(|node| node.inode);
    nodes
}

/// Why an inode that is changed is among those that are locked.
const LOCKED: &str = "an operation changes only inodes that it has locked";

/// Inodes that are locked for a change.
pub(crate) struct Locked<'a> {
    guards: Vec<(&'a Node, RwLockWriteGuard<'a, State>)>,
}

impl<'a> Locked<'a> {
    /// Locks nodes that are [`in_order`].
    pub(crate) fn lock(nodes: &'a [Arc<Node>]) -> Self {
        assert!(nodes.is_sorted_by(|a, b| a.inode < b.inode), "inodes are locked in their order");
        Locked { guards: nodes.iter().map(|node| (&**node, node.state.write())).collect() }
    }

    /// Locks one.
    pub(crate) fn one(node: &'a Arc<Node>) -> Self {
        Self::lock(std::slice::from_ref(node))
    }

    /// Locks another, whose place in the order is behind all that are locked.
    pub(crate) fn also(&mut self, node: &'a Arc<Node>) {
        let last = self.guards.last().map(|(node, _)| node.inode);
        assert!(last < Some(node.inode), "inodes are locked in their order");
        self.guards.push((node, node.state.write()));
    }

    /// The committed record of one of them.
    pub(crate) fn record(&self, inode: InodeNo) -> Result<&Record> {
        self.state(inode).record()
    }

    /// Whether no handle is open, nor can be opened while this is held.
    pub(crate) fn is_closed(&self, inode: InodeNo) -> bool {
        self.find(inode).0.opens.load(Ordering::SeqCst) == 0
    }

    /// What was just committed.
    pub(crate) fn install(&mut self, inode: InodeNo, record: Record) {
        let (node, state) = self.guards.iter_mut().find(|(node, _)| node.inode == inode).expect(LOCKED);
        // The caller may know which name has gone; here only their number is known.
        if matches!(&**state, State::Present(before) if record.xattrs < before.xattrs) {
            node.name_bytes.store(0, Ordering::Relaxed);
        }
        **state = State::Present(record);
    }

    /// The deletion was just committed.
    pub(crate) fn remove(&mut self, inode: InodeNo) {
        let state = self.state_mut(inode);
        let last = match std::mem::replace(state, State::Unknown) {
            // Who has found a symbolic link may yet ask where it leads.
            State::Present(record) if record.kind == Kind::Symlink => Some(Record { links: 0, ..record }),
            State::Present(record) => Some(Record { links: 0, content: Vec::new(), ..record }),
            State::Gone(last) => last,
            State::Unknown => None,
        };
        *state = State::Gone(last);
    }

    fn find(&self, inode: InodeNo) -> &(&'a Node, RwLockWriteGuard<'a, State>) {
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
