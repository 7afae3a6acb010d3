//! The trees of all groups, and how many nodes they have.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use pool::Moment;
use rt::order::{LockOrder, Ordered};
use rt::sync::RwLock;
use rt::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use zone::format::FEATURE_PREPAID;

use crate::cache::Node;
use crate::delta;
use crate::nodes::Nodes;
use crate::page::Page;
use crate::patch::PATCHES_MAX;
use crate::types::{Group, Key, NodeId, Op};
use crate::volume::Volume;

/// One tree: its nodes that changed since the last cut and are not written. They are written in the order of their
/// ids, so the same run writes the same device.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) dirty: BTreeMap<NodeId, Arc<Node>>,
}

/// Decides whether there is space for trees to grow.
pub trait Growth: Send + Sync {
    /// Whether there is space at this moment for the nodes that transactions have reserved and not made yet. Called
    /// under the lock of the zone table. An implementation takes only leaf locks, and calls only counts of the store.
    fn may_grow(&self, moment: &Moment<'_>, asked: u64) -> bool;
}

/// The trees.
pub(crate) struct Trees {
    pub(crate) volume: Arc<Volume>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) groups: Vec<Ordered<RwLock<Tree>>>,
    /// Nodes of all trees.
    count: AtomicI64,
    /// Nodes of all trees that are marked as prepaid. Changed under the lock of a group.
    prepaid: AtomicI64,
    growth: RwLock<Option<Weak<dyn Growth>>>,
    /// Nodes that transactions have reserved and may not have made yet. Increased under the lock of the zone table.
    asked: AtomicU64,
}

impl Trees {
    /// Trees without nodes.
    pub(crate) fn new(volume: Arc<Volume>, nodes: Arc<Nodes>) -> Self {
        let groups = 0..volume.info.groups;
        Trees {
            volume,
            nodes,
            groups: groups.map(|_| Ordered::rwlock(LockOrder::Group, Tree::default())).collect(),
            count: AtomicI64::new(0),
            prepaid: AtomicI64::new(0),
            growth: RwLock::new(None),
            asked: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_growth(&self, growth: Weak<dyn Growth>) {
        *self.growth.write() = Some(growth);
    }

    /// Nodes that transactions have reserved and may not have made yet.
    pub(crate) fn nodes_reserved(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Reserves the space of nodes that a transaction is about to make. Returns none if there is no space. It never
    /// waits, so that it can be called under locks of trees. Only there the number of new nodes is known.
    pub(crate) fn reserve_nodes(&self, nodes: u64) -> Option<ReservedNodes<'_>> {
        let asked = &self.asked;
        (nodes == 0 || self.request_nodes(nodes)).then(|| ReservedNodes { asked, nodes })
    }

    fn request_nodes(&self, nodes: u64) -> bool {
        let growth = self.growth.read().as_ref().and_then(Weak::upgrade);
        let asked = &self.asked;
        self.volume.pool.at_one_moment(|moment| {
            let with_these = asked.load(Ordering::Acquire) + nodes;
            let may_grow = growth.as_ref().is_none_or(|growth| growth.may_grow(&moment, with_these));
            if may_grow {
                asked.fetch_add(nodes, Ordering::Relaxed);
            }
            may_grow
        })
    }

    /// Whether groups exist, keys and values are not too long, and there are not too many patches.
    pub(crate) fn sizes_are_right(&self, ops: &[Op]) -> bool {
        let value_max = crate::page::value_max(self.volume.page_size());
        let keyed =
            |group: &Group, key: &Key| usize::from(group.0) < self.groups.len() && key.len() < crate::KEY_MAX;
        let is_right = |op: &Op| match op {
            Op::Put { group, key, value, .. } => keyed(group, key) && value.len() <= value_max,
            Op::Patch { group, key, patch, .. } => {
                keyed(group, key) && usize::from(patch.length) <= value_max
            }
            Op::Delete { group, key, .. } => keyed(group, key),
            Op::ZoneOpened { .. } | Op::ZoneLive { .. } | Op::ZoneUser { .. } | Op::Counter { .. } => true,
        };
        let patches = ops.iter().filter(|op| matches!(op, Op::Patch { .. })).count();
        patches <= PATCHES_MAX && ops.iter().all(is_right)
    }

    /// Whether this volume counts nodes of the prepaid table separately.
    fn counts_prepaid(&self) -> bool {
        self.volume.has_feature(FEATURE_PREPAID)
    }

    /// Marks a node as prepaid, or not, after its keys changed, and counts it. The caller holds its group's lock.
    pub(crate) fn mark(&self, page: &mut Page) {
        let (was, is) = (page.is_prepaid(), self.counts_prepaid() && page.leads_to_prepaid());
        page.set_prepaid(is);
        self.prepaid.fetch_add(i64::from(is) - i64::from(was), Ordering::Relaxed);
    }

    /// Sets the numbers of nodes, and of those marked as prepaid, of the checkpoint from which recovery starts.
    pub(crate) fn load_counts(&self, nodes: u64, prepaid: u64) {
        self.count.store(nodes as i64, Ordering::Relaxed);
        self.prepaid.store(prepaid as i64, Ordering::Relaxed);
    }

    /// Counts a new node.
    pub(crate) fn add_node(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the node with this page no longer.
    pub(crate) fn remove_node(&self, page: &Page) {
        // A thread that counts meanwhile counts this node with the other tables rather than not at all.
        let is_prepaid = page.is_prepaid() && !rt::is_planted("break-prepaid-freed");
        self.prepaid.fetch_sub(i64::from(is_prepaid), Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Nodes that are marked as prepaid, as a checkpoint records it.
    pub(crate) fn prepaid_nodes(&self) -> u64 {
        self.prepaid.load(Ordering::Relaxed).max(0) as u64
    }

    /// The same for the checker. None if this volume does not count them separately.
    pub(crate) fn prepaid(&self) -> Option<i64> {
        self.counts_prepaid().then(|| self.prepaid.load(Ordering::Relaxed))
    }

    /// Blocks of live metadata: nodes, delta records, chunks.
    pub(crate) fn metadata_blocks(&self) -> u64 {
        self.volume.pool.at_one_moment(|moment| self.metadata_blocks_at(&moment))
    }

    pub(crate) fn metadata_blocks_at(&self, moment: &Moment<'_>) -> u64 {
        let nodes = self.count.load(Ordering::Relaxed).max(0) as u64;
        let pages =
            nodes + self.nodes.mat.chunks_len() + moment.sums().deltas.div_ceil(delta::IN_PAGE_AT_LEAST);
        pages * self.volume.page_blocks()
    }

    /// Blocks of all nodes, and of those that are not marked as prepaid. None if this volume does not count them
    /// separately.
    pub(crate) fn blocks_of_nodes(&self) -> Option<(u64, u64)> {
        let count = |counter: &AtomicI64| counter.load(Ordering::Relaxed).max(0) as u64;
        // A node that is made or freed meanwhile counts twice rather than not at all, unless both happen to it.
        let (before, nodes, after) = (count(&self.prepaid), count(&self.count), count(&self.prepaid));
        let prepaid = before.min(after);
        let blocks = |nodes: u64| nodes * self.volume.page_blocks();
        self.counts_prepaid().then(|| (blocks(nodes), blocks(nodes.saturating_sub(prepaid))))
    }
}

/// Nodes whose space a transaction has reserved and that it has not made yet. They are part of every count.
pub(crate) struct ReservedNodes<'a> {
    asked: &'a AtomicU64,
    nodes: u64,
}

impl Drop for ReservedNodes<'_> {
    fn drop(&mut self) {
        if self.nodes > 0 {
            // A count that no longer includes these nodes here includes them among the existing nodes.
            let asked = self.asked.fetch_sub(self.nodes, Ordering::Release);
            assert!(asked >= self.nodes, "a transaction returns the nodes that it has reserved");
        }
    }
}
