//! The part of the table that transactions change and checkpoints save.

use std::collections::BTreeMap;
use std::sync::Arc;

use zone::{Address, Life, ZoneId};

use super::{OwnedPool, Pool};
use crate::rows::UserCounters;
use crate::types::{Change, Lsn, Reserved, ZoneEntry};

impl Pool {
    /// One of the user's counters.
    pub fn counter(&self, counter: u8) -> i64 {
        self.state.lock().rows.counters()[usize::from(counter)]
    }
}

impl OwnedPool {
    // ---- transactions ------------------------------------------------------------------------

    /// Applies the changes of a transaction, and spends what was reserved for it, at one moment. The caller holds the lock
    /// of the log, so that the order of LSNs is the order of changes.
    pub fn apply(&self, changes: impl Iterator<Item = Change>, lsn: Lsn, reservations: &[Arc<dyn Reserved>]) {
        let mut state = self.state.lock();
        changes.for_each(|change| state.apply(change, lsn));
        reservations.iter().for_each(|reservation| reservation.spend());
    }

    /// Fills in the present lives of zones.
    pub fn fill_lives<'a>(&self, lives: impl Iterator<Item = (ZoneId, &'a mut Life)>) {
        let state = self.state.lock();
        for (zone, life) in lives {
            if let Some(row) = state.rows.find(zone) {
                *life = row.life;
            }
        }
    }

    /// Whether all zones in these changes exist, and live counts and counters stay within bounds at each of them. For
    /// records that come from the device.
    pub fn accepts(&self, changes: impl Iterator<Item = Change>) -> bool {
        let state = self.state.lock();
        let mut seen: BTreeMap<ZoneId, (Life, i64)> = BTreeMap::new();
        let mut counters = state.rows.counters();
        for change in changes {
            let zone = match change {
                Change::Counter { counter, change } => {
                    let counter = &mut counters[usize::from(counter)];
                    let Some(after) = counter.checked_add(change).filter(|&after| after >= 0) else {
                        return false;
                    };
                    *counter = after;
                    continue;
                }
                Change::Opened { zone, .. } | Change::Live { zone, .. } | Change::User { zone, .. } => zone,
            };
            let Some(row) = state.rows.find(zone) else { return false };
            let now = seen.entry(zone).or_insert((row.life, i64::from(row.live)));
            match change {
                Change::Opened { life, .. } if life > now.0 && (now.1 != 0 || row.deltas > 0) => {
                    return false;
                }
                Change::Opened { life, .. } => now.0 = now.0.max(life),
                Change::Live { life, change, .. } if life == now.0 => now.1 += i64::from(change),
                Change::Live { life, .. } | Change::User { life, .. } if life > now.0 => return false,
                _ => {}
            }
            // The capacity may have been another one in the life that the record is about.
            if !(0..=i64::from(Address::BLOCKS_MAX)).contains(&now.1) {
                return false;
            }
        }
        true
    }

    // ---- checkpoints -------------------------------------------------------------------------

    /// The cut: from now on rows keep their old version when they change. Returns the counters at the cut.
    pub fn cut(&self) -> UserCounters {
        self.state.lock().rows.cut()
    }

    /// Encodes the chunks that differ from those on the device, as they were at the cut. From now on, changes for the
    /// checkpoint are noted for its record.
    pub fn encode_changed(&self, encode: impl Fn(&[ZoneEntry]) -> Vec<u8>) -> Vec<(u64, Vec<u8>)> {
        self.state.lock().rows.encode_changed(encode)
    }

    /// Rows that changed for the checkpoint after its chunks were encoded.
    pub fn take_late(&self) -> Vec<(ZoneId, ZoneEntry)> {
        self.state.lock().rows.take_late()
    }

    /// Has the next checkpoint save a chunk though none of its rows changed.
    pub fn save_chunk(&self, number: u64) {
        self.state.lock().rows.save_chunk(number);
    }

    /// Has the next checkpoint save all chunks.
    pub fn save_all(&self) {
        self.state.lock().rows.save_all();
    }

    // ---- recovery ----------------------------------------------------------------------------

    /// Sets the counters to those of a checkpoint.
    pub fn load_counters(&self, counters: UserCounters) {
        self.state.lock().rows.load_counters(counters);
    }

    /// Sets a row to that of a chunk.
    pub fn load(&self, zone: ZoneId, row: ZoneEntry) {
        self.state.lock().load(zone, row, false);
    }

    /// Sets a row to that of the record of a checkpoint.
    pub fn patch(&self, zone: ZoneId, row: ZoneEntry) {
        self.state.lock().load(zone, row, true);
    }

    /// The zone is dead: whatever it was for, it has no role any more.
    pub fn forget_role(&self, zone: ZoneId) {
        self.state.lock().forget_role(zone);
    }

    /// The life that the header of a zone has shown is over: a crash has left it.
    pub fn set_life(&self, zone: ZoneId, life: Life) {
        self.state.lock().rows.change(zone).life = life;
    }
}
