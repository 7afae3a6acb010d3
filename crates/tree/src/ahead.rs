//! Nodes that many keys need, read together.
//!
//! Who knows what he will look up says so: a replay all keys that the next records change, garbage collection those by
//! which a victim's entries are looked up. Otherwise each look-up waits for its own leaf, and a device that could read a
//! hundred at once, or an arm that could pass over all of them, is asked for one after the other.
//!
//! All keys go down their trees at the same time, a level with each turn. In a turn the nodes that are missing are
//! gathered with the trees' locks held for the walk only; then the chunks of the MAT that say where they lie are read,
//! and then the nodes, each in the order in which they lie, and no more at once than [`AT_ONCE`] pages.
//!
//! It is a hint: what cannot be read, or is not what it should be, is passed over and latches nothing. Whoever needs it
//! comes to it by himself, asks twice, and says what is wrong. So nothing that a replay concludes depends on it.
//!
//! Nor does it take memory from anybody: it is read into pages that are free or that the system has more of, and what is
//! held of it is let go before somebody is told that there is none ([`crate::memory`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use pool::Lsn;
use zone::PageBuffer;

use crate::cache::Node;
use crate::core::Core;
use crate::format::PageKind;
use crate::lookup::{Miss, tree_key};
use crate::mat::{Found, Place};
use crate::memory::Reading;
use crate::store::Store;
use crate::types::{Bytes, Group, NodeId, Op, Result, StoreError, Table};

/// Bytes that are read at once, at most, and pages.
const AT_ONCE_BYTES: usize = 4 << 20;
const AT_ONCE: usize = 256;
/// Bytes of nodes that a replay reads before it needs them, at most: the leaves among them, which are half of them at
/// least where there are many, will be dirty and in memory anyway.
const REPLAY_BYTES: usize = 32 << 20;
/// The part of the cache that nodes may fill which nobody holds, and how many keys are looked at together for that.
const CACHE_SHARE: usize = 4;
const KEYS: usize = 1024;
/// Turns after which nobody goes further down: no tree has so many levels.
const TURNS: usize = 16;

/// A key as it is in its group's tree.
pub(crate) type Key = (Group, Bytes);

/// Chunks of the MAT that stay in memory for as long as this does.
pub(crate) type HeldChunks = Vec<Arc<PageBuffer>>;

impl Store {
    /// Reads what is missing on the way to the first of these keys, all at the same time: who looks them up next waits
    /// for none of it. Returns how many keys that were, which depends on the cache. Best in order, group by group. A
    /// hint: what cannot be read is found by who needs it.
    pub fn read_ahead_of(&self, table: Table, keys: impl Iterator<Item = (Group, Bytes)>) -> usize {
        let most = (self.core.cache.limit() / CACHE_SHARE).clamp(1, KEYS);
        let keys: Vec<Key> = keys.take(most).map(|(group, key)| (group, tree_key(table, &key))).collect();
        let count = keys.len();
        self.core.read_ways(keys, &mut Vec::new());
        count
    }
}

impl Core {
    /// Reads the nodes on the way to the keys that the first of these records change, as far as they are not in memory;
    /// of how many records. What was read stays there for as long as it is held.
    pub(crate) fn read_for_replay(&self, records: &[(Lsn, Vec<Op>)], held: &mut Vec<Arc<Node>>) -> usize {
        let most = REPLAY_BYTES / self.page_size() / 2;
        let (mut keys, mut count) = (BTreeSet::new(), 0);
        for (_, ops) in records {
            if count > 0 && keys.len() >= most {
                break;
            }
            count += 1;
            // A record that is not so ends the replay.
            if self.sizes_are_right(ops) {
                keys.extend(ops.iter().filter_map(key_of));
            }
        }
        self.read_ways(keys.into_iter().collect(), held);
        count
    }

    /// Reads what is missing on the way to these keys.
    fn read_ways(&self, mut keys: Vec<Key>, held: &mut Vec<Arc<Node>>) {
        for _ in 0..TURNS {
            let mut missing = BTreeSet::new();
            keys.retain(|(group, key)| {
                let _shared = self.groups[usize::from(group.0)].read();
                match self.path(*group, key) {
                    Err(Miss::Absent(id, _)) => {
                        missing.insert(id);
                        true
                    }
                    Ok(_) | Err(Miss::Misplaced(_)) => false,
                }
            });
            let before = held.len();
            self.read_missing(&missing.into_iter().collect::<Vec<_>>(), held);
            if held.len() == before {
                break;
            }
        }
    }

    /// Reads these nodes, as far as that is possible.
    fn read_missing(&self, ids: &[NodeId], held: &mut Vec<Arc<Node>>) {
        let mut wanted = Vec::with_capacity(ids.len());
        for ids in ids.chunks(self.pages_at_once()) {
            let _chunks = self.hold_chunks(ids);
            wanted.extend(self.not_in_memory(ids));
        }
        wanted.sort_unstable_by_key(|(_, place, _)| place.whole_page());
        // With a node there may be a page of its changes.
        for wanted in wanted.chunks(self.pages_at_once() / 2) {
            let nodes = self.read_nodes(wanted, Reading::Ahead).into_iter();
            for (node, &(id, place, chunk)) in nodes.zip(wanted) {
                let is_current = || self.is_current(id, place, chunk);
                held.extend(node.ok().and_then(|node| self.cache.insert_read(node, is_current)));
            }
        }
    }

    /// Keeps in memory, and reads at once where they are not there, the chunks that say where these nodes lie: for so
    /// many nodes at most as pages are read at once.
    pub(crate) fn hold_chunks(&self, ids: &[NodeId]) -> HeldChunks {
        let in_chunk = |id: &NodeId| match self.mat.find(*id) {
            Found::InChunk(number) => Some(number),
            Found::At(_) => None,
        };
        self.hold_numbered_chunks(ids.iter().filter_map(in_chunk))
    }

    /// The same for chunks with these numbers.
    pub(crate) fn hold_numbered_chunks(&self, numbers: impl Iterator<Item = u64>) -> HeldChunks {
        let numbers: BTreeSet<u64> = numbers.take(self.pages_at_once()).collect();
        let (mut held, mut missing) = (HeldChunks::new(), Vec::new());
        for number in numbers {
            let at = self.mat.chunk(number).address;
            match self.chunks.get(number, at) {
                Some(chunk) => held.push(chunk),
                None if at.is_none() => {}
                None => missing.push((at, PageKind::MatChunk, number)),
            }
        }
        if missing.is_empty() {
            return held;
        }
        for (&(at, _, number), read) in missing.iter().zip(self.read_many(&missing, Reading::Ahead)) {
            let Ok((bytes, _)) = read else { continue };
            let chunk = Arc::new(bytes);
            held.push(Arc::clone(&chunk));
            self.chunks.put(number, at, chunk);
        }
        held
    }

    /// Where a node lies. What is held makes room for its chunk, where there is no other memory for that.
    pub(crate) fn find_beside(&self, held: &mut HeldChunks, id: NodeId) -> Result<Place> {
        let found = match self.find(id) {
            Err(StoreError::NoMemory(_)) if !held.is_empty() => {
                held.clear();
                self.find(id)
            }
            found => found,
        };
        Ok(found?.0)
    }

    /// How many pages are read at once, at most.
    pub(crate) fn pages_at_once(&self) -> usize {
        (AT_ONCE_BYTES / self.page_size()).min(AT_ONCE)
    }
}

fn key_of(op: &Op) -> Option<Key> {
    match op {
        Op::Put { group, table, key, .. } | Op::Delete { group, table, key } => {
            Some((*group, tree_key(*table, key)))
        }
        Op::ZoneOpened { .. } | Op::ZoneLive { .. } | Op::ZoneUser { .. } | Op::Counter { .. } => None,
    }
}
