//! Free zones: who may take one, and how many each role leaves to others.
//!
//! What is *kept* is a matter of correctness (`kept.rs`), and so is what is *held* for a checkpoint or for cleaning. What
//! is *left* to metadata is a wish that saves moves (`balance.rs`): fresh data heeds it, and takes it back when it has no
//! zone.
//!
//! What is kept and held are blocks, counted in free zones, the largest first. Where zones are not alike, data takes the
//! smallest of the kind that it is to have, and where less would be left than is kept, the smallest of all: so what is kept
//! is always there, and takes no more zones than if all were as large.

use rt::sync::atomic::Ordering;
use zone::{Role, ZoneId};

use super::{KEPT_FOR_GC, State, Use, ZoneTable};

impl ZoneTable {
    /// Whether `role` may take a zone now.
    pub(crate) fn may_open(&self, role: Role) -> bool {
        let state = self.state.lock();
        state.free.count() > self.kept_by(&state, role)
    }

    /// Whether all that only metadata may take is free.
    pub(crate) fn reserve_is_whole(&self) -> bool {
        let state = self.state.lock();
        state.free.count() >= self.kept_among(&state)
    }

    /// Free zones that only metadata may take now: where they are not alike, the largest.
    pub(crate) fn kept_for_metadata(&self) -> u32 {
        self.kept_among(&self.state.lock())
    }

    /// Free zones that this role must leave to others: fresh data also those that metadata does not have yet and is to
    /// have. Garbage collection may draw on what is kept for metadata, but not the last zone, nor what cleaning counts on:
    /// it gives back more than it takes, and what it commits meanwhile is less than an epoch.
    pub(crate) fn kept_from(&self, role: Role) -> u32 {
        self.kept_by(&self.state.lock(), role)
    }

    fn kept_by(&self, state: &State, role: Role) -> u32 {
        let held = || self.holding(state, self.held.load(Ordering::Relaxed));
        match role {
            Role::Data => {
                let wished = self.left_to_metadata.load(Ordering::Relaxed);
                held().max(self.kept_among(state) + KEPT_FOR_GC + wished)
            }
            Role::Gc => held().max(self.kept_among(state).saturating_sub(1)).max(1),
            _ => 0,
        }
    }

    fn kept_among(&self, state: &State) -> u32 {
        self.holding(state, self.kept.free_blocks(u64::from(self.open_room())))
    }

    /// How many free zones hold so many blocks, the largest first. Where all zones are alike, which are free does not matter.
    fn holding(&self, state: &State, blocks: u64) -> u32 {
        match state.are_alike {
            true => blocks.div_ceil(self.kept.of_zone) as u32,
            false => state.free.holding(blocks, self.kept.of_zone),
        }
    }

    /// Zones that could be opened, and the one that garbage collection gives back.
    pub(crate) fn free_or_borrowed(&self) -> u32 {
        let state = self.state.lock();
        state.free.count() + u32::from(state.borrowed.is_some())
    }

    /// The same, where the one counts only until any zone has become free: not twice, when it has come back.
    pub(crate) fn free_or_lent(&self) -> u32 {
        let state = self.state.lock();
        state.free.count() + u32::from(state.lent.is_some())
    }

    /// Whether garbage collection has a zone of those that are kept for metadata, and gives it back.
    pub(crate) fn one_is_borrowed(&self) -> bool {
        self.state.lock().borrowed.is_some()
    }

    /// Whether cleaning, or a checkpoint, counts on zones that are free.
    pub(crate) fn are_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// Has zones left to metadata until it has written so many blocks; false, and nothing changes, when so
    /// many are not free.
    pub(crate) fn hold_for_metadata(&self, blocks: u64) -> bool {
        let state = self.state.lock();
        let blocks = blocks.saturating_sub(u64::from(self.open_room()));
        let are_free = state.free.count() >= self.holding(&state, blocks);
        if are_free {
            self.held.store(blocks, Ordering::Relaxed);
        }
        are_free
    }

    /// Has data leave free zones to metadata until it has so many in all, but at most so many more than it leaves now,
    /// and none more where data has none left to open; how many more it is.
    pub(crate) fn leave_to_metadata(&self, zones: u32, more: u32) -> u32 {
        let state = self.state.lock();
        let left = self.left_to_metadata.load(Ordering::Relaxed);
        let lacking = zones.saturating_sub(state.metadata.len() as u32);
        let can_be_had = state.free.count() > self.kept_by(&state, Role::Data);
        let now = lacking.min(left + if can_be_had { more } else { 0 });
        self.left_to_metadata.store(now, Ordering::Relaxed);
        now.saturating_sub(left)
    }

    /// Data can have one of those that are left to metadata; false when there is none. Who has seen no reset end since
    /// then looks again.
    pub(crate) fn take_what_is_left_to_metadata(&self) -> bool {
        let mut state = self.state.lock();
        let left = self.left_to_metadata.load(Ordering::Relaxed);
        self.left_to_metadata.store(left.saturating_sub(1), Ordering::Relaxed);
        state.resets.1 += u64::from(left > 0);
        state.turnover += u64::from(left > 0);
        self.reset_ended.notify_all();
        left > 0
    }

    /// Zones that data leaves to metadata beside those that are kept.
    pub(crate) fn left_to_metadata(&self) -> u32 {
        self.left_to_metadata.load(Ordering::Relaxed)
    }

    /// Takes a free zone out of the free ones for this role, if it leaves as many as it must, and whether it is empty.
    pub(crate) fn take_free(&self, role: Role) -> Option<(ZoneId, bool)> {
        let mut state = self.state.lock();
        if state.free.count() <= self.kept_by(&state, role) {
            return None;
        }
        let mut best = self.best_free(&state, role)?;
        state.take_out_of_free(best);
        if !state.are_alike && role == Role::Data && state.free.count() < self.kept_by(&state, role) {
            // Without that one more of the others are needed for what is kept; without the smallest never.
            let State { free, run, .. } = &mut *state;
            free.push(run, best);
            best = state.free.smallest_of_all()?;
            state.take_out_of_free(best);
        }
        let empty = is_empty(&state, best);
        state.with_part(best, |state| state.run[best.0 as usize].usage = Use::Leased);
        if role == Role::Gc && state.free.count() < self.kept_among(&state) {
            (state.borrowed, state.lent) = (Some(best), Some(best));
        }
        Some((best, empty))
    }

    /// One that is empty if there is, the longest free first, and the first four, which a log may need, last. Where they are
    /// not alike, fresh data takes the smallest, which leaves the largest to the others: what lives in a victim of garbage
    /// collection does not fit into a small one, and then there is no other.
    ///
    /// Conventional zones after all others: what they have left when the volume is unmounted is lost. But data takes
    /// them first when no more of the others are free than twice what is ever kept for metadata, so that metadata that
    /// grows finds some too: it writes a little with each mount, and would lose nearly a zone.
    fn best_free(&self, state: &State, role: Role) -> Option<ZoneId> {
        let few = 2 * self.kept_for_metadata_at_most();
        let conventional_first = role.holds_data() && state.free.ordinary() <= few;
        let of_kind = |is_conventional: bool| match role {
            Role::Data => state.free.smallest(is_conventional),
            _ => state.free.largest(is_conventional),
        };
        let best = of_kind(conventional_first).or_else(|| of_kind(!conventional_first));
        best.or_else(|| state.free.log_reserve())
    }
}

fn is_empty(state: &State, zone: ZoneId) -> bool {
    state.run[zone.0 as usize].usage == Use::Free { empty: true }
}
