//! How many pages the changes of leaves take that live in closed zones of metadata, where somebody has looked.

use zone::{Blocks, ZoneId};

use super::{State, Use, ZoneTable};

impl State {
    /// The most pages that the changes of leaves in a metadata zone take, if somebody has looked.
    pub(super) fn pages_seen(&self, zone: ZoneId) -> Option<u64> {
        let (life, pages) = self.looked_at.get(&zone)?;
        (*life == self.entries[zone.0 as usize].life).then_some(*pages)
    }
}

impl ZoneTable {
    /// Closed metadata zones in which changes of leaves live, of which nobody knows how many pages they take: those that are
    /// of use if a page has room for so many, by their capacity and the least that can live there.
    pub(crate) fn with_uncounted_changes(
        &self,
        in_page: u64,
        is_of_use: impl Fn(Blocks, Blocks) -> bool,
    ) -> Vec<ZoneId> {
        let state = self.state.lock();
        let is_one = |zone: &&ZoneId| {
            let (entry, engaged) = (state.entries[zone.0 as usize], state.engaged.of(**zone));
            let changes = u64::from(entry.deltas) + u64::from(engaged.deltas);
            let pages = u64::from(engaged.pages + engaged.new_bases) + changes.div_ceil(in_page);
            let live = u64::from(entry.live) + pages * u64::from(self.page_blocks);
            let run = &state.run[zone.0 as usize];
            run.usage == Use::Closed
                && changes > 0
                && live < u64::from(run.info.capacity)
                && is_of_use(run.info.capacity, live as Blocks)
                && state.pages_seen(**zone).is_none()
        };
        state.metadata.iter().filter(is_one).copied().collect()
    }

    /// The changes of leaves that live in a closed metadata zone take no more pages than this.
    pub(crate) fn note_pages_of_changes(&self, zone: ZoneId, pages: u64) {
        let mut state = self.state.lock();
        let life = state.entries[zone.0 as usize].life;
        state.looked_at.insert(zone, (life, pages));
    }
}
