//! The trees of all groups, and how many nodes they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::{Moment, OwnedPool};
use rt::order::{LockOrder, Ordered};
use rt::sync::RwLock;
use rt::sync::atomic::{AtomicI64, Ordering};

use crate::cache::Node;
use crate::delta;
use crate::nodes::Nodes;
use crate::page::Page;
use crate::types::{Bytes, Group, NodeId, Op, VolumeInfo};

/// One tree: its nodes that changed since the last cut and are not written. They are written in the order of their
/// ids, so the same run writes the same device.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) dirty: BTreeMap<NodeId, Arc<Node>>,
}

/// The trees.
pub(crate) struct Trees {
    pool: Arc<OwnedPool>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) groups: Vec<Ordered<RwLock<Tree>>>,
    /// Whether this volume counts nodes of the prepaid table separately.
    counts_prepaid: bool,
    /// Nodes of all trees.
    count: AtomicI64,
    /// Nodes of all trees that are marked as prepaid. Changed under the lock of a group.
    prepaid: AtomicI64,
}

impl Trees {
    /// Trees without nodes.
    pub(crate) fn new(info: &VolumeInfo, pool: &Arc<OwnedPool>, nodes: &Arc<Nodes>) -> Self {
        Trees {
            pool: Arc::clone(pool),
            nodes: Arc::clone(nodes),
            groups: (0..info.groups).map(|_| Ordered::rwlock(LockOrder::Group, Tree::default())).collect(),
            counts_prepaid: info.features & zone::format::FEATURE_PREPAID != 0,
            count: AtomicI64::new(0),
            prepaid: AtomicI64::new(0),
        }
    }

    /// Whether groups exist, and keys and values are not too long.
    pub(crate) fn sizes_are_right(&self, ops: &[Op]) -> bool {
        let value_max = crate::page::value_max(self.nodes.page_size());
        let keyed = |group: &Group, key: &Bytes| {
            usize::from(group.0) < self.groups.len() && key.len() < crate::KEY_MAX
        };
        ops.iter().all(|op| match op {
            Op::Put { group, key, value, .. } => keyed(group, key) && value.len() <= value_max,
            Op::Delete { group, key, .. } => keyed(group, key),
            Op::ZoneOpened { .. } | Op::ZoneLive { .. } | Op::ZoneUser { .. } | Op::Counter { .. } => true,
        })
    }

    /// Marks a node as prepaid, or not, after its keys changed, and counts it. The caller holds its group's lock.
    pub(crate) fn mark(&self, page: &mut Page) {
        let (was, is) = (page.is_prepaid(), self.counts_prepaid && page.leads_to_prepaid());
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
        self.counts_prepaid.then(|| self.prepaid.load(Ordering::Relaxed))
    }

    /// Blocks of live metadata: nodes, delta records, chunks.
    pub(crate) fn metadata_blocks(&self) -> u64 {
        self.pool.at_one_moment(|moment| self.metadata_blocks_at(&moment))
    }

    pub(crate) fn metadata_blocks_at(&self, moment: &Moment<'_>) -> u64 {
        let nodes = self.count.load(Ordering::Relaxed).max(0) as u64;
        let pages =
            nodes + self.nodes.mat.chunks_len() + moment.sums().deltas.div_ceil(delta::IN_PAGE_AT_LEAST);
        pages * u64::from(self.pool.page_blocks())
    }

    /// Blocks of all nodes, and of those that are not marked as prepaid. None if this volume does not count them
    /// separately.
    pub(crate) fn blocks_of_nodes(&self) -> Option<(u64, u64)> {
        let count = |counter: &AtomicI64| counter.load(Ordering::Relaxed).max(0) as u64;
        // A node that is made or freed meanwhile counts twice rather than not at all, unless both happen to it.
        let (before, nodes, after) = (count(&self.prepaid), count(&self.count), count(&self.prepaid));
        let prepaid = before.min(after);
        let blocks = |nodes: u64| nodes * u64::from(self.pool.page_blocks());
        self.counts_prepaid.then(|| (blocks(nodes), blocks(nodes.saturating_sub(prepaid))))
    }
}
