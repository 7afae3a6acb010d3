//! Prefetch: the nodes that many keys need, read together.
//!
//! A caller that knows its next look-ups announces them: a replay announces all keys that the next records change, and
//! GC announces the keys of a victim's entries. Otherwise each look-up waits for its own leaf, and the device gets one
//! request after the other. It could serve a hundred requests at once, or its arm could pass over all of them.
//!
//! All keys go down their trees at the same time, one level in each turn. A turn collects the missing nodes and holds
//! the trees' locks only for the walk. Then it reads the chunks of the MAT that have their places, and then the nodes,
//! each in the order of their addresses. It reads a bounded number of pages at once.
//!
//! A prefetch is a hint. It skips a page that cannot be read or is not valid, and never shuts the volume down. A later
//! look-up reads such a page itself, twice if needed, and reports the error. So a replay never depends on a prefetch.
//!
//! Nor does a prefetch take memory from others. It reads into pages that are free or that the system can add. The
//! pages it holds are released before a caller gets an error for lack of memory (`nodes/memory.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use pool::Lsn;

use crate::cache::Node;
use crate::lookup::Miss;
use crate::trees::Trees;
use crate::types::{Group, Key, Op, Table, tree_key};

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
type GroupKey = (Group, Key);

impl Trees {
    /// Reads the missing nodes on the paths to the keys that the first of these records change. Returns the number of
    /// records. The nodes stay in memory while `held` has them.
    pub(crate) fn read_for_replay(&self, records: &[(Lsn, Vec<Op>)], held: &mut Vec<Arc<Node>>) -> usize {
        let most = REPLAY_BYTES / self.volume.page_size() / 2;
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
    pub(crate) fn read_paths_ahead(
        &self,
        table: Table,
        keys: impl Iterator<Item = (Group, impl AsRef<[u8]>)>,
    ) -> usize {
        let most = (self.nodes.cache.limit() / CACHE_SHARE).clamp(1, KEYS);
        let keys = keys.take(most).map(|(group, key)| (group, tree_key(table, key.as_ref())));
        let keys: Vec<GroupKey> = keys.collect();
        let count = keys.len();
        self.read_paths(keys, &mut Vec::new());
        count
    }

    /// Reads the missing nodes on the paths to these keys.
    fn read_paths(&self, mut keys: Vec<GroupKey>, held: &mut Vec<Arc<Node>>) {
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
            self.nodes.read_missing(&missing.into_iter().collect::<Vec<_>>(), held);
            if held.len() == before {
                break;
            }
        }
    }
}

fn key_of(op: &Op) -> Option<GroupKey> {
    match op {
        Op::Put { group, table, key, .. }
        | Op::Patch { group, table, key, .. }
        | Op::Delete { group, table, key } => Some((*group, tree_key(*table, key))),
        Op::ZoneOpened { .. } | Op::ZoneLive { .. } | Op::ZoneUser { .. } | Op::Counter { .. } => None,
    }
}
