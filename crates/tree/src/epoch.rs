//! The bounds of an epoch, and of its dirty nodes.
//!
//! Three resources bound an epoch:
//!
//! * **Memory.** A dirty node stays in the cache until it is written. After a crash, replay has all nodes in memory
//!   that two epochs have changed. This bounds the number of *nodes*.
//! * **Space.** Dirty nodes have to be written even if no zone is free except those of the reserve
//!   ([`pool::MetadataReserve`]). After a crash, nodes that were written early are dirty again. This bounds the *pages
//!   that will be written*. A node that is written whole takes one page. A leaf that is written as delta records
//!   (`delta`) takes their bytes and a fifth more.
//! * **Replay.** This bounds the bytes of records.
//!
//! The weight of a node is known when it is changed and does not depend on the mount. Replay finds the same weight or
//! less, except for leaves that it merges because more nodes are in memory. While a quarter of all zones is free, an
//! epoch may be longer than the reserve has space for. It ends as soon as fewer are free, and that quarter has space
//! for its dirty nodes: they take a 64th of the volume at most.
//!
//! This module only counts and decides. `checkpoint` writes the nodes.

use rt::sync::atomic::Ordering;

use crate::cache::NodeState;
use crate::core::Core;
use crate::format::{DirectoryEntry, entries_per_page};
use crate::weight::Weight;

/// Nodes that may become dirty between the request for a checkpoint and its cut before a thread has to wait, at least.
const NODES_UNTIL_CUT: usize = 256;

impl Core {
    /// Counts the pages for a dirty node after a change.
    pub(crate) fn count_dirty(&self, state: &mut NodeState) {
        let now = Weight::of_changes(&state.changes, self.nodes.mat.has_deltas(), self.nodes.page_size());
        self.count.dirty.weigh(&mut state.counted, now);
    }

    /// Pages that writing the dirty nodes takes, at most.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.count.dirty.weight().pages(self.nodes.page_size())
    }

    /// Whether a checkpoint is due, because a recovery would have much to replay, or because the epoch takes its whole
    /// headroom.
    pub(crate) fn epoch_is_long(&self) -> bool {
        self.log.wants_checkpoint() || self.bounds_of_epoch().into_iter().any(|(is, most)| is >= most)
    }

    /// The bounds of an epoch: the present value and the limit of each.
    fn bounds_of_epoch(&self) -> [(u64, u64); 4] {
        let most = self.pages_now();
        [
            (self.changed_nodes() as u64, self.limits.epoch_nodes as u64),
            (self.changed_pages() as u64, most as u64),
            (self.count.pages_since_cut.load(Ordering::Relaxed) as u64, 2 * most as u64),
            (self.log.replay_cost().1, self.limits.replay_bytes),
        ]
    }

    /// How much of an epoch has passed. This is the largest share of any bound at which a background checkpoint
    /// begins. 1 while a checkpoint is taken, or is due because GC has emptied a zone. A requested checkpoint comes
    /// earlier.
    pub(crate) fn epoch_share(&self) -> f64 {
        if self.pages_being_saved() > 0 || self.count.gc_awaits_checkpoint.load(Ordering::Relaxed) {
            return 1.0;
        }
        let pages = self.pages_now() as u64;
        let pressed = [
            (self.count.dirty.nodes() as u64, self.nodes_until_pressed() as u64),
            (self.changed_pages() as u64, pages - pages / 8),
        ];
        let bounds = self.bounds_of_epoch().into_iter().chain(pressed);
        let shares = bounds.map(|(is, most)| is as f64 / most.max(1) as f64);
        shares.fold(self.log.share_of_zone(), f64::max)
    }

    /// Whether more nodes are dirty after a crash than one epoch may leave. Another epoch on top of it would need more
    /// space or memory than there is, after another crash too.
    pub(crate) fn epoch_is_longer_than_one(&self) -> bool {
        self.changed_pages() > self.limits.epoch_pages || self.changed_nodes() > self.limits.epoch_nodes
    }

    /// Nodes that may differ from the last checkpoint, written or not.
    pub(crate) fn changed_nodes(&self) -> usize {
        self.nodes.mat.running_len() + self.count.dirty.nodes()
    }

    /// Pages that writing them would take, with the chunks for which the reserve has no separate space.
    fn changed_pages(&self) -> usize {
        let (changed, chunks) = (self.changed_nodes(), self.nodes.mat.chunks_len() as usize);
        // A directory page names this number of chunks. One directory page is written in any case.
        let directories = chunks / entries_per_page(self.nodes.page_size(), size_of::<DirectoryEntry>());
        let tables = chunks.min(changed) + directories.min(changed);
        let beyond = tables.saturating_sub(self.limits.mat_pages);
        (self.nodes.mat.running_weight() + self.count.dirty.weight()).pages(self.nodes.page_size()) + beyond
    }

    /// Whether a checkpoint is to write the dirty nodes, which ends the epoch. This is so if the epoch cannot take as
    /// many dirty nodes again. It is also so if less than a quarter of the zones is free, because the dead blocks of
    /// an epoch become visible only at its end. Otherwise, if the cache allows few dirty nodes, they are written
    /// alone. Then many such writes share one write of the tables by a checkpoint, which writes nearly every chunk of
    /// the MAT after random changes.
    pub(crate) fn epoch_is_ending(&self) -> bool {
        !self.many_zones_are_free()
            || self.changed_nodes() + self.count.dirty.nodes() >= self.limits.epoch_nodes
            || self.changed_pages() + self.dirty_pages().max(self.pages_now() / 8) >= self.pages_now()
    }

    /// Whether many nodes differ from the last checkpoint, which a replay would have to read. This state should not
    /// last for ever.
    pub(crate) fn epoch_is_large(&self) -> bool {
        self.changed_nodes() >= self.limits.dirty.min(self.limits.epoch_pages)
    }

    fn many_zones_are_free(&self) -> bool {
        self.pool.free() >= self.device.geometry().zones / 4
    }

    /// Whether enough nodes are dirty that a background checkpoint should begin, or dirty nodes should be written. The
    /// rest of the bound is for transactions that go on until the cut. After the cut they have the whole bound again.
    /// A later checkpoint writes fewer leaves for the same changes.
    pub(crate) fn is_pressed(&self) -> bool {
        let pages = self.pages_now();
        self.count.dirty.nodes() >= self.nodes_until_pressed() || self.changed_pages() + pages / 8 >= pages
    }

    fn nodes_until_pressed(&self) -> usize {
        let nodes = self.limits.dirty;
        nodes - (nodes / 8).max(NODES_UNTIL_CUT.min(nodes / 2))
    }

    /// Whether nodes must be written before more are changed.
    pub(crate) fn dirty_limit_is_reached(&self) -> bool {
        self.count.dirty.nodes() >= self.limits.dirty || self.changed_pages() >= self.pages_now()
    }

    /// Pages that an epoch may write at present.
    fn pages_now(&self) -> usize {
        if self.many_zones_are_free() { self.limits.long_epoch } else { self.limits.epoch_pages }
    }
}

#[cfg(test)]
mod tests;
