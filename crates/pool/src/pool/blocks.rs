//! Blocks of zones that are pending, read or named, and how much of metadata zones is live.

use zone::{Address, Blocks, ZoneId};

use super::{OwnedPool, Pool};
use crate::metadata::MetadataZone;
use crate::state::{State, Usage};
use crate::types::NodeCopy;

impl Pool {
    /// Blocks were submitted that no transaction names yet.
    pub fn add_pending(&self, zone: ZoneId, blocks: Blocks) {
        self.state.lock().holds.change(zone, |hold| hold.pending += blocks);
    }

    /// Pending blocks were inserted or given up.
    pub fn remove_pending(&self, zone: ZoneId, blocks: Blocks) {
        self.state.lock().holds.change(zone, |hold| {
            assert!(hold.pending >= blocks, "pending blocks are returned once");
            hold.pending -= blocks;
        });
    }
}

impl OwnedPool {
    /// A reader enters, if the zone is still in this life. The zone is not reset until the reader leaves.
    pub fn enter(&self, at: Address) -> bool {
        let mut state = self.state.lock();
        let may = state.may_enter(at);
        if may {
            state.holds.change(at.zone(), |hold| hold.readers += 1);
        }
        may
    }

    /// A reader leaves.
    pub fn leave(&self, zone: ZoneId) {
        self.state.lock().holds.change(zone, |hold| {
            assert!(hold.readers > 0, "a reader leaves once");
            hold.readers -= 1;
        });
    }

    /// An overlay or a directory names a page.
    pub fn add_page(&self, zone: ZoneId) {
        self.state.lock().holds.change(zone, |hold| hold.pages += 1);
    }

    /// An overlay or a directory does not name a page any more.
    pub fn remove_page(&self, zone: ZoneId) {
        self.state.lock().holds.change(zone, |hold| {
            assert!(hold.pages > 0, "zone {}: a page is removed once", zone.0);
            hold.pages -= 1;
        });
    }

    /// An overlay names a copy of a node, if the node has one.
    pub fn add_copy(&self, copy: Option<NodeCopy>) {
        self.change_copy(copy, |count| *count += 1);
    }

    /// An overlay does not name a copy of a node any more.
    pub fn remove_copy(&self, copy: Option<NodeCopy>) {
        self.change_copy(copy, |count| {
            *count = count.checked_sub(1).expect("an overlay ceases to name a copy once");
        });
    }

    fn change_copy(&self, copy: Option<NodeCopy>, change: impl Fn(&mut u32)) {
        if let Some(copy) = copy {
            self.state.lock().holds.change_copy(copy, change);
        }
    }

    /// Pages, delta records and base pages in a zone that overlays and directories name.
    pub fn named_copies(&self, zone: ZoneId) -> u32 {
        self.state.lock().holds.of(zone).named()
    }

    /// The MAT of the checkpoint that is being written names this copy of a node (`sign` 1), or does not any more (-1).
    ///
    /// The counts before come from the device. If the result cannot be right, the answer is false, and the checkpoint must
    /// fail.
    #[must_use]
    pub fn merge_copy(&self, copy: Option<NodeCopy>, sign: i64) -> bool {
        let Some(copy) = copy else { return true };
        let mut state = self.state.lock();
        let page = sign * i64::from(self.shape.page_blocks);
        state.merge(copy.whole_page().zone(), page, 0)
            && match copy {
                NodeCopy::Page(_) => true,
                NodeCopy::Deltas { at, .. } => state.merge(at.zone(), 0, sign),
            }
    }

    /// From now on, rows count all pages of metadata zones, except those that are written to the open zone from this block
    /// on. Called at the end of a checkpoint, or when writing to that zone goes on after a mount.
    pub fn new_pages_begin(&self, open: Option<(ZoneId, Blocks)>) {
        let mut state = self.state.lock();
        let State { metadata, holds, .. } = &mut *state;
        for zone in metadata.all() {
            holds.change(zone, |hold| {
                assert_eq!(hold.new_bases, 0, "zone {}: the checkpoint has counted the new ones", zone.0);
                hold.new_from = open.filter(|(open, _)| *open == zone).map_or(Blocks::MAX, |(_, from)| from);
            });
        }
    }

    /// Closed metadata zones, and how much of them is live at most.
    pub fn closed_metadata(&self) -> Vec<MetadataZone> {
        let state = self.state.lock();
        let measured = |zone: ZoneId| {
            let entry = state.rows.get(zone);
            let most = live_deltas(&state, zone).div_ceil(self.shape.deltas_per_page);
            let counted = state.metadata.delta_pages(zone, entry.life);
            let live = self.live_with(&state, zone, counted.map_or(most, |counted| most.min(counted)));
            let capacity = state.info(zone).capacity;
            let live = live.min(u64::from(capacity)) as Blocks;
            let is_closed = state.usage(zone) == Usage::Closed;
            is_closed.then_some(MetadataZone { zone, life: entry.life, live, capacity })
        };
        state.metadata.all().filter_map(measured).collect()
    }

    /// Closed metadata zones with live delta records that were not counted yet, and for which `is_worth_it` holds: it gets
    /// the capacity, and the live blocks if a page holds `in_page` delta records.
    pub fn with_uncounted_deltas(
        &self,
        in_page: u64,
        is_worth_it: impl Fn(Blocks, Blocks) -> bool,
    ) -> Vec<ZoneId> {
        let state = self.state.lock();
        let is_one = |zone: &ZoneId| {
            let (deltas, capacity) = (live_deltas(&state, *zone), state.info(*zone).capacity);
            let live = self.live_with(&state, *zone, deltas.div_ceil(in_page));
            state.usage(*zone) == Usage::Closed
                && deltas > 0
                && live < u64::from(capacity)
                && is_worth_it(capacity, live as Blocks)
                && state.metadata.delta_pages(*zone, state.rows.get(*zone).life).is_none()
        };
        state.metadata.all().filter(is_one).collect()
    }

    /// The live delta records in a closed metadata zone take no more pages than this.
    pub fn note_delta_pages(&self, zone: ZoneId, pages: u64) {
        let mut state = self.state.lock();
        let life = state.rows.get(zone).life;
        state.metadata.note_delta_pages(zone, life, pages);
    }

    /// Live blocks of a metadata zone if its delta records take this number of pages.
    fn live_with(&self, state: &State, zone: ZoneId, delta_pages: u64) -> u64 {
        let hold = state.holds.of(zone);
        let pages = u64::from(hold.pages + hold.new_bases) + delta_pages;
        u64::from(state.rows.get(zone).live) + pages * u64::from(self.shape.page_blocks)
    }
}

/// Delta records in a zone that rows or overlays name.
fn live_deltas(state: &State, zone: ZoneId) -> u64 {
    u64::from(state.rows.get(zone).deltas) + u64::from(state.holds.of(zone).deltas)
}
