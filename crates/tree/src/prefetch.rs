//! Prefetch: the nodes that many keys need, read together.
//!
//! A caller that knows its next look-ups announces them: a replay announces all keys that the next records change, and
//! GC announces the keys of a victim's entries. Otherwise each look-up waits for its own leaf, and the device gets one
//! request after the other. It could serve a hundred requests at once, or its arm could pass over all of them.
//!
//! All keys go down their trees at the same time, one level in each turn. A turn collects the missing nodes and holds
//! the trees' locks only for the walk. Then it reads the chunks of the MAT that have their places, and then the nodes,
//! each in the order of their addresses. It reads no more than [`AT_ONCE`] pages at once.
//!
//! A prefetch is a hint. It skips a page that cannot be read or is not valid, and never shuts the volume down. A later
//! look-up reads such a page itself, twice if needed, and reports the error. So a replay never depends on a prefetch.
//!
//! Nor does a prefetch take memory from others. It reads into pages that are free or that the system can add. The
//! pages it holds are released before a caller gets an error for lack of memory ([`crate::memory`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use pool::Lsn;
use zone::PageBuffer;

use crate::cache::Node;
use crate::core::Core;
use crate::format::PageKind;
use crate::lookup::Miss;
use crate::mat::{Found, Place};
use crate::memory::Reading;
use crate::types::{Bytes, Group, NodeId, Op, Result, StoreError, Table, tree_key};

/// Bytes, and pages, that are read at once, at most.
const AT_ONCE_BYTES: usize = 4 << 20;
const AT_ONCE: usize = 256;
/// Bytes of nodes that a replay prefetches, at most. The leaves among them will be dirty and in memory anyway. They
/// are at least half of the nodes in a large tree.
const REPLAY_BYTES: usize = 32 << 20;
/// The fraction of the cache that prefetched nodes may fill while they are held, and the number of keys that are
/// examined together for that.
const CACHE_SHARE: usize = 4;
const KEYS: usize = 1024;
/// Turns after which the descent ends. No tree has this many levels.
const TURNS: usize = 16;

/// A key as it is in its group's tree.
pub(crate) type Key = (Group, Bytes);

/// Chunks of the MAT that stay in memory while this value exists.
pub(crate) type PinnedChunks = Vec<Arc<PageBuffer>>;

impl Core {
    /// Reads the missing nodes on the paths to the keys that the first of these records change. Returns the number of
    /// records. The nodes stay in memory while `held` has them.
    pub(crate) fn read_for_replay(&self, records: &[(Lsn, Vec<Op>)], held: &mut Vec<Arc<Node>>) -> usize {
        let most = REPLAY_BYTES / self.page_size() / 2;
        let (mut keys, mut count) = (BTreeSet::new(), 0);
        for (_, ops) in records {
            if count > 0 && keys.len() >= most {
                break;
            }
            count += 1;
            // A record that breaks these limits ends the replay.
            if self.sizes_are_right(ops) {
                keys.extend(ops.iter().filter_map(key_of));
            }
        }
        self.read_paths(keys.into_iter().collect(), held);
        count
    }

    /// Reads the missing nodes on the paths to the first of these keys. Returns the number of keys.
    pub(crate) fn read_paths_ahead(&self, table: Table, keys: impl Iterator<Item = (Group, Bytes)>) -> usize {
        let most = (self.cache.limit() / CACHE_SHARE).clamp(1, KEYS);
        let keys: Vec<Key> = keys.take(most).map(|(group, key)| (group, tree_key(table, &key))).collect();
        let count = keys.len();
        self.read_paths(keys, &mut Vec::new());
        count
    }

    /// Reads the missing nodes on the paths to these keys.
    fn read_paths(&self, mut keys: Vec<Key>, held: &mut Vec<Arc<Node>>) {
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

    /// Reads these nodes as far as possible.
    fn read_missing(&self, ids: &[NodeId], held: &mut Vec<Arc<Node>>) {
        let mut wanted = Vec::with_capacity(ids.len());
        for ids in ids.chunks(self.pages_at_once()) {
            let _chunks = self.pin_chunks(ids);
            wanted.extend(self.not_in_memory(ids));
        }
        wanted.sort_unstable_by_key(|(_, place, _)| place.whole_page());
        // Each node may have a page of delta records beside its base page.
        for wanted in wanted.chunks(self.pages_at_once() / 2) {
            let nodes = self.read_nodes(wanted, Reading::Ahead).into_iter();
            for (node, &(id, place, chunk)) in nodes.zip(wanted) {
                let is_current = || self.is_current(id, place, chunk);
                held.extend(node.ok().and_then(|node| self.cache.insert_read(node, is_current)));
            }
        }
    }

    /// Holds the chunks with the places of these nodes in memory, and reads the missing ones at once. The number of
    /// nodes is at most the number of pages that are read at once.
    pub(crate) fn pin_chunks(&self, ids: &[NodeId]) -> PinnedChunks {
        let in_chunk = |id: &NodeId| match self.mat.find(*id) {
            Found::InChunk(number) => Some(number),
            Found::At(_) => None,
        };
        self.pin_numbered_chunks(ids.iter().filter_map(in_chunk))
    }

    /// The same for chunks with these numbers.
    pub(crate) fn pin_numbered_chunks(&self, numbers: impl Iterator<Item = u64>) -> PinnedChunks {
        let numbers: BTreeSet<u64> = numbers.take(self.pages_at_once()).collect();
        let (mut held, mut missing) = (PinnedChunks::new(), Vec::new());
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

    /// Where a node lies. The held chunks are released for its chunk if there is no other memory.
    pub(crate) fn find_with_chunks(&self, held: &mut PinnedChunks, id: NodeId) -> Result<Place> {
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
