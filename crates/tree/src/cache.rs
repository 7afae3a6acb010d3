//! Nodes and chunks in memory, bounded.
//!
//! A [`Node`] is found by its id for as long as it is here. It stays while it is dirty, and while anybody else holds it:
//! a transaction that pinned it. So dirty nodes are never evicted from here; they must be written first (`checkpoint`).
//! Among the rest a clock decides.
//!
//! The limit counts pages: of each node one, and one for its contents at the cut while a checkpoint has to write these,
//! they were changed since, and they are kept as a page. It can be exceeded by what is pinned or dirty, which admission
//! bounds; contents kept as changes take an eighth of a page at most and are not counted, nor are those that the
//! checkpoint has in hand.

use std::sync::Arc;

use rt::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use rt::sync::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

use crate::delta::Changes;
use crate::epoch::Weight;
use crate::page::Page;
use crate::types::{Bytes, Epoch, NodeId};
use pool::Lsn;

const SHARDS: usize = 16;
/// Ids of nodes that have gone, beyond those of as many as are here, before the ring is made anew.
const RING_SLACK: usize = 64;
/// Pages that are kept for copies: about as many as a checkpoint writes at once.
const SPARE: usize = 64;

/// One node, at most once in memory. What a walk looks at lies together, also in [`NodeState`].
#[repr(C)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// Used since the clock last passed.
    recent: AtomicBool,
    /// Read ahead, and whoever comes first asks for what follows.
    leads: AtomicBool,
    pub(crate) state: RwLock<NodeState>,
}

/// What is known of a node. Changed only under its group's write lock, or by whoever holds the checkpoint lock: `frozen`
/// and `taken` when he takes what he writes, `taken`, `dirty`, `base` and `changes` when it has been written.
#[repr(C)]
pub(crate) struct NodeState {
    /// The newest contents.
    pub(crate) page: Arc<Page>,
    /// The epoch in which the newest contents were last changed, unless they have been written since.
    pub(crate) dirty: Option<Epoch>,
    /// The checkpoint has in hand what it writes, and the contents were not changed since the cut.
    pub(crate) taken: bool,
    /// No longer part of the tree in the running epoch.
    pub(crate) freed: bool,
    /// What it weighs among those that the running epoch has made dirty, if it is one of them.
    pub(crate) counted: Weight,
    /// The contents at the last cut, when they were changed after it and not yet written.
    pub(crate) frozen: Option<Frozen>,
    /// How the newest contents may differ from the page that was last written whole.
    pub(crate) changes: Changes,
    /// The LSN of that page; none when there is none.
    pub(crate) base: Option<Lsn>,
}

/// What a checkpoint still has to write of a node that has been changed since its cut.
pub(crate) enum Frozen {
    /// The contents.
    Page(Arc<Page>),
    /// Of a leaf: its changes as they are stored, but for the epoch.
    Changes(Bytes),
}

impl NodeState {
    /// The newest contents as a checkpoint writes them.
    pub(crate) fn to_write(&self, has_deltas: bool) -> Frozen {
        let changes = self.base.filter(|_| has_deltas).and_then(|base| self.changes.encode(&self.page, base));
        changes.map_or_else(|| Frozen::Page(Arc::clone(&self.page)), Frozen::Changes)
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
                frozen: None,
                taken: false,
                freed: false,
                counted: Weight::default(),
            },
        )
    }

    /// A node that was read: these changes to the page with this LSN.
    pub(crate) fn read(id: NodeId, page: Page, changes: Changes, base: Lsn) -> Arc<Node> {
        let (page, base) = (Arc::new(page), Some(base));
        Node::of(
            id,
            NodeState {
                page,
                changes,
                base,
                dirty: None,
                frozen: None,
                taken: false,
                freed: false,
                counted: Weight::default(),
            },
        )
    }

    fn of(id: NodeId, state: NodeState) -> Arc<Node> {
        Arc::new(Node {
            id,
            state: RwLock::new(state),
            recent: AtomicBool::new(true),
            leads: AtomicBool::new(false),
        })
    }

    /// Whether something of it was never written. A checkpoint that failed leaves nodes like this to nobody, and what
    /// is on the device of them is of an earlier time.
    fn is_dirty(&mut self) -> bool {
        let state = self.state.get_mut();
        state.dirty.is_some() || state.frozen.is_some()
    }

    /// To be called before anybody finds it.
    pub(crate) fn set_leading(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Whether it leads; afterwards no more.
    pub(crate) fn take_leading(&self) -> bool {
        self.leads.load(Ordering::Relaxed) && self.leads.swap(false, Ordering::Relaxed)
    }

    /// The newest contents, which stay as they are for as long as this is held.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, NodeState> {
        self.state.read()
    }

    /// The newest contents, as they are at this moment.
    pub(crate) fn page(&self) -> Arc<Page> {
        Arc::clone(&self.state.read().page)
    }
}

/// Pages that nobody needs any more, for copies of others: who copies and who drops are different threads, and the
/// memory would go from one to the other and back through the allocator's locks.
#[derive(Default)]
pub(crate) struct Spare {
    pages: Mutex<Vec<Page>>,
}

impl Spare {
    /// A page for changes: `shared` itself if nobody else holds it, otherwise a copy in its place.
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

    /// Drops all that are kept; whether there were any.
    pub(crate) fn clear(&self) -> bool {
        let pages = std::mem::take(&mut *self.pages.lock());
        !pages.is_empty()
    }

    /// Keeps a page if it was the caller's alone.
    pub(crate) fn give(&self, page: Arc<Page>) {
        let Some(page) = Arc::into_inner(page) else { return };
        let mut pages = self.pages.lock();
        if pages.len() < SPARE {
            pages.push(page);
        }
    }
}

#[derive(Default)]
struct Shard {
    nodes: FxHashMap<NodeId, Arc<Node>>,
    /// The ids in `nodes`, and some that have gone; the hand walks over them.
    ring: Vec<NodeId>,
    hand: usize,
}

/// All nodes in memory.
pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    /// Pages that may be here.
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

    /// Pages that may be here.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Pages that are here.
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

    /// Adds a node that was read, unless one is there already or `current` (asked under the shard's
    /// lock) says that what was read is no longer the newest. Returns what is there afterwards.
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

    /// Adds a new node in place of whatever had its id.
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

    /// Drops a few nodes that nobody uses, of each shard; whether there were any.
    pub(crate) fn shrink(&self) -> bool {
        let dropped: usize = self.shards.iter().map(|shard| self.evict(&mut shard.lock())).sum();
        dropped > 0
    }

    /// A node that is here may have a second page from now on.
    pub(crate) fn add_frozen(&self, frozen: &Frozen) {
        if matches!(frozen, Frozen::Page(_)) {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has no more.
    pub(crate) fn drop_frozen(&self, frozen: &Frozen) {
        if matches!(frozen, Frozen::Page(_)) {
            self.pages.fetch_sub(1, Ordering::Relaxed);
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

    /// Drops up to two nodes of this shard that nobody uses: the clock goes round twice at most.
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
