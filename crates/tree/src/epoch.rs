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

use std::sync::Arc;

use rt::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cache::NodeState;
use crate::format::{DirectoryEntry, entries_per_page};
use crate::limits::Limits;
use crate::log::Log;
use crate::nodes::Nodes;
use crate::volume::Volume;
use crate::weight::{Dirty, Weight};

/// Nodes that may become dirty between the request for a checkpoint and its cut before a thread has to wait, at least.
const NODES_UNTIL_CUT: usize = 256;

/// The running epoch: what it has changed, and how far it may go.
pub(crate) struct RunningEpoch {
    pub(crate) limits: Limits,
    volume: Arc<Volume>,
    log: Arc<Log>,
    nodes: Arc<Nodes>,
    /// Nodes that it has made dirty and that are not written.
    dirty: Dirty,
    /// Pages appended since the last cut.
    pages_since_cut: AtomicUsize,
    /// Pages that the running checkpoint has still to write, at most.
    being_saved: AtomicUsize,
    /// GC is emptying or has emptied a zone, which only a checkpoint frees.
    gc_awaits_checkpoint: AtomicBool,
}

impl RunningEpoch {
    pub(crate) fn new(limits: Limits, volume: Arc<Volume>, log: Arc<Log>, nodes: Arc<Nodes>) -> Self {
        RunningEpoch {
            limits,
            volume,
            log,
            nodes,
            dirty: Dirty::default(),
            pages_since_cut: AtomicUsize::new(0),
            being_saved: AtomicUsize::new(0),
            gc_awaits_checkpoint: AtomicBool::new(false),
        }
    }

    /// The nodes that are dirty.
    pub(crate) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// The cut, with all groups locked: the dirty nodes belong to the checkpoint, which also writes `tables` pages of
    /// tables. Returns the pages that writing the nodes takes, at most.
    pub(crate) fn cut(&self, tables: usize) -> usize {
        // A thread that reads the counters in between counts these pages twice.
        let pages = self.dirty_pages();
        let before = self.being_saved.swap(pages + tables, Ordering::Relaxed);
        assert!(before == 0, "the checkpoint before has written its {before} pages");
        self.dirty.take_all();
        self.pages_since_cut.store(0, Ordering::Relaxed);
        pages
    }

    /// The checkpoint is durable.
    pub(crate) fn saved(&self) {
        self.being_saved.store(0, Ordering::Relaxed);
        self.gc_awaits_checkpoint.store(false, Ordering::Relaxed);
    }

    /// Pages have been appended to a metadata zone.
    pub(crate) fn appended(&self, pages: usize) {
        let less = |left: usize| Some(left.saturating_sub(pages));
        let _ = self.being_saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// All pages of a write have been appended.
    pub(crate) fn note_pages(&self, pages: usize) {
        self.pages_since_cut.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn gc_awaits_checkpoint(&self) -> bool {
        self.gc_awaits_checkpoint.load(Ordering::Relaxed)
    }

    /// Only a checkpoint frees the zone that GC is emptying, or no zone waits for one.
    pub(crate) fn set_gc_awaits_checkpoint(&self, awaits: bool) {
        self.gc_awaits_checkpoint.store(awaits, Ordering::Relaxed);
    }

    /// Pages that a running checkpoint has still to write, at most.
    pub(crate) fn pages_being_saved(&self) -> usize {
        self.being_saved.load(Ordering::Relaxed)
    }

    /// Counts the pages for a dirty node after a change.
    pub(crate) fn count_dirty(&self, state: &mut NodeState) {
        let now = Weight::of_changes(&state.changes, self.nodes.mat.has_deltas(), self.volume.page_size());
        self.dirty.weigh(&mut state.counted, now);
    }

    /// Pages that writing the dirty nodes takes, at most.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty.weight().pages(self.volume.page_size())
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
            (self.pages_since_cut.load(Ordering::Relaxed) as u64, 2 * most as u64),
            (self.log.replay_cost().1, self.limits.replay_bytes),
        ]
    }

    /// How much of an epoch has passed. This is the largest share of any bound at which a background checkpoint
    /// begins. 1 while a checkpoint is taken, or is due because GC has emptied a zone. A requested checkpoint comes
    /// earlier.
    pub(crate) fn epoch_share(&self) -> f64 {
        if self.pages_being_saved() > 0 || self.gc_awaits_checkpoint() {
            return 1.0;
        }
        let pages = self.pages_now() as u64;
        let pressed = [
            (self.dirty.nodes() as u64, self.nodes_until_pressed() as u64),
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
        self.nodes.mat.running_len() + self.dirty.nodes()
    }

    /// Pages that writing them would take, with the chunks for which the reserve has no separate space.
    fn changed_pages(&self) -> usize {
        let (changed, chunks) = (self.changed_nodes(), self.nodes.mat.chunks_len() as usize);
        // A directory page names this number of chunks. One directory page is written in any case.
        let directories = chunks / entries_per_page(self.volume.page_size(), size_of::<DirectoryEntry>());
        let tables = chunks.min(changed) + directories.min(changed);
        let beyond = tables.saturating_sub(self.limits.mat_pages);
        (self.nodes.mat.running_weight() + self.dirty.weight()).pages(self.volume.page_size()) + beyond
    }

    /// Whether a checkpoint is to write the dirty nodes, which ends the epoch. This is so if the epoch cannot take as
    /// many dirty nodes again. It is also so if less than a quarter of the zones is free, because the dead blocks of
    /// an epoch become visible only at its end. Otherwise, if the cache allows few dirty nodes, they are written
    /// alone. Then many such writes share one write of the tables by a checkpoint, which writes nearly every chunk of
    /// the MAT after random changes.
    pub(crate) fn epoch_is_ending(&self) -> bool {
        !self.many_zones_are_free()
            || self.changed_nodes() + self.dirty.nodes() >= self.limits.epoch_nodes
            || self.changed_pages() + self.dirty_pages().max(self.pages_now() / 8) >= self.pages_now()
    }

    /// Whether many nodes differ from the last checkpoint, which a replay would have to read. This state should not
    /// last for ever.
    pub(crate) fn epoch_is_large(&self) -> bool {
        self.changed_nodes() >= self.limits.dirty.min(self.limits.epoch_pages)
    }

    fn many_zones_are_free(&self) -> bool {
        self.volume.pool.free() >= self.volume.device.geometry().zones / 4
    }

    /// Whether enough nodes are dirty that a background checkpoint should begin, or dirty nodes should be written. The
    /// rest of the bound is for transactions that go on until the cut. After the cut they have the whole bound again.
    /// A later checkpoint writes fewer leaves for the same changes.
    pub(crate) fn is_pressed(&self) -> bool {
        let pages = self.pages_now();
        self.dirty.nodes() >= self.nodes_until_pressed() || self.changed_pages() + pages / 8 >= pages
    }

    fn nodes_until_pressed(&self) -> usize {
        let nodes = self.limits.dirty;
        nodes - (nodes / 8).max(NODES_UNTIL_CUT.min(nodes / 2))
    }

    /// Whether nodes must be written before more are changed.
    pub(crate) fn dirty_limit_is_reached(&self) -> bool {
        self.dirty.nodes() >= self.limits.dirty || self.changed_pages() >= self.pages_now()
    }

    /// Pages that an epoch may write at present.
    fn pages_now(&self) -> usize {
        if self.many_zones_are_free() { self.limits.long_epoch } else { self.limits.epoch_pages }
    }
}

#[cfg(test)]
mod tests;
