//! Nodes in memory, within a limit.
//!
//! A [`Node`] in the cache is found by its id. It stays while it is dirty, and while a transaction or a reader holds a
//! reference to it. So the cache never evicts dirty nodes; a checkpoint must write them first (`checkpoint`). A clock
//! selects a victim among the other nodes.
//!
//! The limit counts pages: one for each node, and one for its cut version. A node has these if it was changed after
//! the cut of a running checkpoint that still has to write it. Pinned and dirty nodes can exceed the limit, and
//! admission bounds their number. Cut versions in the form of changes take an eighth of a page at most and are not
//! counted. Neither are those that the checkpoint has already taken to write.

use std::sync::Arc;

use rt::order::{Guard, LockOrder, Ordered};
use rt::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use rt::sync::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

use crate::delta::Changes;
use crate::page::Page;
use crate::types::{Bytes, Epoch, NodeId};
use crate::weight::Weight;
use pool::Lsn;

const SHARDS: usize = 16;
/// Ids of removed nodes that the ring may contain, beyond the number of present nodes, before it is rebuilt.
const RING_SLACK: usize = 64;
/// Unused pages that are retained for copies: about as many as a checkpoint writes at once.
const UNUSED_MAX: usize = 64;

/// One node, at most once in memory. The fields that a walk reads lie together, also in [`NodeState`].
#[repr(C)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// Used since the clock last passed.
    recent: AtomicBool,
    /// The node was read ahead, and the first walk that reaches it requests the leaves behind it.
    leads: AtomicBool,
    pub(crate) state: Ordered<RwLock<NodeState>>,
}

/// The state of a node. It changes only under its group's write lock, or under the checkpoint lock. The holder of the
/// checkpoint lock changes `cut_version` and `being_written` when it takes the contents to write, and `being_written`,
/// `dirty`, `base` and `changes` when they have been written.
#[repr(C)]
pub(crate) struct NodeState {
    /// The newest contents.
    pub(crate) page: Arc<Page>,
    /// The epoch in which the newest contents were last changed, unless they have been written since.
    pub(crate) dirty: Option<Epoch>,
    /// A checkpoint is writing these contents, and they were not changed since its cut.
    pub(crate) being_written: bool,
    /// No longer part of the tree in the running epoch.
    pub(crate) freed: bool,
    /// The weight with which the node is counted among those that the running epoch has made dirty.
    pub(crate) counted: Weight,
    /// The contents at the last cut, if they were changed after it and not yet written.
    pub(crate) cut_version: Option<CutVersion>,
    /// How the newest contents may differ from the page that was last written whole.
    pub(crate) changes: Changes,
    /// The LSN of that page. None if there is no such page.
    pub(crate) base: Option<Lsn>,
}

/// The part of a node that a checkpoint still has to write although the node has been changed since its cut.
pub(crate) enum CutVersion {
    /// The contents.
    Page(Arc<Page>),
    /// The changes of a leaf as they are stored, without the epoch.
    Changes(Bytes),
}

impl NodeState {
    /// The newest contents as a checkpoint writes them.
    pub(crate) fn to_write(&self, has_deltas: bool) -> CutVersion {
        let changes = self.base.filter(|_| has_deltas).and_then(|base| self.changes.encode(&self.page, base));
        changes.map_or_else(|| CutVersion::Page(Arc::clone(&self.page)), CutVersion::Changes)
    }
}

impl Node {
    /// A node that has never been written.
    pub(crate) fn new(id: NodeId, page: Page, dirty: Epoch) -> Arc<Node> {
        let page = Arc::new(page);
        let changes = Changes::all();
        Node::of(
            id,
            NodeState {
                page,
                changes,
                base: None,
                dirty: Some(dirty),
                cut_version: None,
                being_written: false,
                freed: false,
                counted: Weight::default(),
            },
        )
    }

    /// A node that was read: `changes` to the page with the LSN `base`.
    pub(crate) fn read(id: NodeId, page: Page, changes: Changes, base: Lsn) -> Arc<Node> {
        let (page, base) = (Arc::new(page), Some(base));
        Node::of(
            id,
            NodeState {
                page,
                changes,
                base,
                dirty: None,
                cut_version: None,
                being_written: false,
                freed: false,
                counted: Weight::default(),
            },
        )
    }

    fn of(id: NodeId, state: NodeState) -> Arc<Node> {
        Arc::new(Node {
            id,
            state: Ordered::rwlock(LockOrder::Node, state),
            recent: AtomicBool::new(true),
            leads: AtomicBool::new(false),
        })
    }

    /// Whether a part of the node was never written. After a failed checkpoint no list names such nodes, and the
    /// device has an earlier version of them.
    fn is_dirty(&mut self) -> bool {
        let state = self.state.get_mut();
        state.dirty.is_some() || state.cut_version.is_some()
    }

    /// Marks the node as leading. Called before any thread can find it.
    pub(crate) fn set_leading(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Whether the node leads. Resets the mark.
    pub(crate) fn take_leading(&self) -> bool {
        self.leads.load(Ordering::Relaxed) && self.leads.swap(false, Ordering::Relaxed)
    }

    /// The newest contents, which do not change while the guard is held.
    pub(crate) fn look(&self) -> Guard<RwLockReadGuard<'_, NodeState>> {
        self.state.read()
    }

    /// The newest contents, as they are at this moment.
    pub(crate) fn page(&self) -> Arc<Page> {
        Arc::clone(&self.state.read().page)
    }
}

/// Unused pages for later copies. The threads that copy and the threads that drop pages differ, and memory would
/// otherwise move between them through the allocator's locks.
#[derive(Default)]
pub(crate) struct UnusedPages {
    pages: Mutex<Vec<Page>>,
}

impl UnusedPages {
    /// A page that may be changed: `shared` itself if it has no other reference, otherwise a copy in its place.
    pub(crate) fn own<'p>(&self, shared: &'p mut Arc<Page>) -> &'p mut Page {
        if Arc::get_mut(shared).is_none() {
            let spare = self.pages.lock().pop();
            if let Some(mut page) = spare {
                page.copy_from(shared);
                *shared = Arc::new(page);
            }
        }
        Arc::make_mut(shared)
    }

    /// Drops all unused pages. Returns whether there were any.
    pub(crate) fn clear(&self) -> bool {
        let pages = std::mem::take(&mut *self.pages.lock());
        !pages.is_empty()
    }

    /// Retains a page if the caller has the only reference.
    pub(crate) fn give(&self, page: Arc<Page>) {
        let Some(page) = Arc::into_inner(page) else { return };
        let mut pages = self.pages.lock();
        if pages.len() < UNUSED_MAX {
            pages.push(page);
        }
    }
}

#[derive(Default)]
struct Shard {
    nodes: FxHashMap<NodeId, Arc<Node>>,
    /// The ids in `nodes`, and some of removed nodes. The clock hand walks over them.
    ring: Vec<NodeId>,
    hand: usize,
}

/// All nodes in memory.
pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    /// The limit in pages.
    limit: usize,
    pages: AtomicUsize,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        Cache { shards, limit, pages: AtomicUsize::new(0) }
    }

    fn shard(&self, id: NodeId) -> &Mutex<Shard> {
        &self.shards[(id.0 ^ (id.0 >> 7)) as usize % SHARDS]
    }

    /// The limit in pages.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Pages in the cache.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<Arc<Node>> {
        let shard = self.shard(id).lock();
        let node = shard.nodes.get(&id)?;
        if !node.recent.load(Ordering::Relaxed) {
            node.recent.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(node))
    }

    /// Adds a node that was read, unless the cache has it already or `current` (called under the shard's lock) says
    /// that the contents are no longer the newest. Returns the node that is in the cache afterwards.
    pub(crate) fn insert_read(&self, node: Arc<Node>, current: impl FnOnce() -> bool) -> Option<Arc<Node>> {
        let mut shard = self.shard(node.id).lock();
        if let Some(there) = shard.nodes.get(&node.id) {
            return Some(Arc::clone(there));
        }
        if !current() && !rt::is_planted("break-read-node") {
            return None;
        }
        self.add(&mut shard, Arc::clone(&node));
        Some(node)
    }

    /// Adds a new node in place of an old one with the same id.
    pub(crate) fn insert_new(&self, node: Arc<Node>) {
        let mut shard = self.shard(node.id).lock();
        if shard.nodes.remove(&node.id).is_some() {
            self.pages.fetch_sub(1, Ordering::Relaxed);
        }
        self.add(&mut shard, node);
    }

    pub(crate) fn remove(&self, id: NodeId) {
        if self.shard(id).lock().nodes.remove(&id).is_some() {
            self.pages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops a few unused nodes of each shard. Returns whether there were any.
    pub(crate) fn shrink(&self) -> bool {
        let dropped: usize = self.shards.iter().map(|shard| self.evict(&mut shard.lock())).sum();
        dropped > 0
    }

    /// Counts the page of a node's cut version.
    pub(crate) fn add_cut_version(&self, cut_version: &CutVersion) {
        if matches!(cut_version, CutVersion::Page(_)) {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts it no longer.
    pub(crate) fn drop_cut_version(&self, cut_version: &CutVersion) {
        if matches!(cut_version, CutVersion::Page(_)) {
            let pages = self.pages.fetch_sub(1, Ordering::Relaxed);
            assert!(pages > 0, "the page was counted when the cut version was made");
        }
    }

    fn add(&self, shard: &mut Shard, node: Arc<Node>) {
        if self.pages.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.evict(shard);
        }
        if shard.ring.len() > 2 * shard.nodes.len() + RING_SLACK {
            shard.ring.clear();
            shard.ring.extend(shard.nodes.keys());
        }
        shard.ring.push(node.id);
        shard.nodes.insert(node.id, node);
    }

    /// Drops up to two unused nodes of this shard. The clock goes round twice at most.
    fn evict(&self, shard: &mut Shard) -> usize {
        let mut dropped = 0;
        for _ in 0..shard.ring.len() * 2 {
            if dropped == 2 || shard.ring.is_empty() {
                break;
            }
            shard.hand %= shard.ring.len();
            let id = shard.ring[shard.hand];
            let keep = shard.nodes.get_mut(&id).is_some_and(|node| match Arc::get_mut(node) {
                None => true,
                Some(node) => node.is_dirty() || std::mem::take(node.recent.get_mut()),
            });
            if keep {
                shard.hand += 1;
                continue;
            }
            shard.ring.swap_remove(shard.hand);
            if shard.nodes.remove(&id).is_some() {
                self.pages.fetch_sub(1, Ordering::Relaxed);
                dropped += 1;
            }
        }
        dropped
    }
}
