//! Zones in which nothing lives, and their resets: who may take which, and who waits for whom.
//!
//! A zone that is taken is neither dead nor free until its reset is over. Whoever needs a free zone and finds none looks
//! how many resets were over, takes a dead zone or finds none, and then waits for the next one that was not: so no reset
//! that ends in between is missed.

use zone::{Role, ZoneId};

use super::{Engaged, Use, ZoneTable};
use crate::types::{Lsn, ZoneEntry};

impl ZoneTable {
    /// Closed data zones in which nothing lives, is pending or is read, each with the record that emptied it:
    /// as many as may be reset by that, up to `most`, and of those on the way that may not the newest record.
    pub(crate) fn dead_data(
        &self,
        most: usize,
        may: impl Fn(Lsn) -> bool,
    ) -> (Vec<(ZoneId, Lsn)>, Option<Lsn>) {
        let state = self.state.lock();
        let (mut ready, mut waiting) = (Vec::new(), None);
        for &zone in &state.dead {
            let run = &state.run[zone.0 as usize];
            let Engaged { pending, readers, .. } = state.engaged.of(zone);
            let held = !rt::is_planted("break-zone-reference") && readers > 0;
            let pending = !rt::is_planted("break-pending") && pending > 0;
            if pending || held {
                continue;
            }
            if !may(run.changed) {
                waiting = waiting.max(Some(run.changed));
                continue;
            }
            ready.push((zone, run.changed));
            if ready.len() == most {
                break;
            }
        }
        (ready, waiting)
    }

    /// How many closed data zones there are in which nothing lives: they are free once they have been reset.
    pub(crate) fn count_dead_data(&self) -> u32 {
        self.state.lock().dead.len() as u32
    }

    /// Takes a data zone that this record has emptied out of the table's hands, to be reset; false if it has come to
    /// life since, though it may be dead again, or somebody has entered.
    pub(crate) fn claim_dead(&self, zone: ZoneId, emptied: Lsn) -> bool {
        let mut state = self.state.lock();
        let run = &state.run[zone.0 as usize];
        let Engaged { pending, readers, .. } = state.engaged.of(zone);
        let held = !rt::is_planted("break-zone-reference") && readers > 0;
        let ZoneEntry { live, role, .. } = state.entries[zone.0 as usize];
        let pending = !rt::is_planted("break-pending") && pending > 0;
        let is_same = role.holds_data() && run.changed == emptied && run.usage == Use::Closed;
        if live > 0 || pending || held || !is_same {
            return false;
        }
        state.dead.remove(&zone);
        state.turnover += 1;
        state.with_part(zone, |state| state.run[zone.0 as usize].usage = Use::Resetting);
        state.resets.0 += 1;
        true
    }

    /// The reset of a zone that was taken to be reset is over, however it went.
    pub(crate) fn reset_ended(&self) {
        let mut state = self.state.lock();
        assert!(state.resets.0 > 0, "a reset ends that began");
        state.resets = (state.resets.0 - 1, state.resets.1 + 1);
        self.reset_ended.notify_all();
    }

    /// Resets that are over.
    pub(crate) fn resets_over(&self) -> u64 {
        self.state.lock().resets.1
    }

    /// How often a zone was opened for data, taken to be reset after it, or taken back from metadata.
    pub(crate) fn turnover(&self) -> u64 {
        self.state.lock().turnover
    }

    /// Zones that are free, those of data that are dead, and those that are being reset: all at one moment.
    pub(crate) fn free_soon(&self) -> u32 {
        let state = self.state.lock();
        state.free.count() + state.dead.len() as u32 + state.resets.0
    }

    /// Waits until a reset is over that was not when so many were; false when none goes on, and none has ended since.
    pub(crate) fn wait_for_a_reset(&self, since: u64) -> bool {
        let mut state = self.state.lock();
        while state.resets.0 > 0 && state.resets.1 == since {
            self.reset_ended.wait(&mut state);
        }
        state.resets.1 != since
    }

    /// Takes closed metadata zones that nothing names and nobody reads, to be reset.
    pub(crate) fn claim_dead_metadata(&self) -> Vec<ZoneId> {
        let mut state = self.state.lock();
        let dead = |zone: &ZoneId| {
            let (entry, run) = (&state.entries[zone.0 as usize], &state.run[zone.0 as usize]);
            assert_eq!(entry.role, Role::Metadata, "zone {} is no zone of metadata", zone.0);
            let engaged = state.engaged.of(*zone);
            let named = entry.holds_anything() || engaged.pages + engaged.deltas + engaged.bases > 0;
            run.usage == Use::Closed && !named && engaged.readers == 0
        };
        let dead: Vec<ZoneId> = state.metadata.iter().copied().filter(dead).collect();
        for &zone in &dead {
            state.with_part(zone, |state| state.run[zone.0 as usize].usage = Use::Resetting);
        }
        state.resets.0 += dead.len() as u32;
        dead
    }
}
