//! What keeps zones from being reset, and what is counted beside their entries while epochs run. At any moment that is
//! of few zones: those that are written or read, and those of metadata. So it is kept for these alone.

use rustc_hash::FxHashMap;
use zone::{Blocks, ZoneId};

/// Of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Engaged {
    /// Blocks submitted, not yet inserted or given up.
    pub(super) pending: Blocks,
    /// Readers that are in it.
    pub(super) readers: u32,
    /// Whole pages in it that overlays and directories name: they count beside `live`.
    pub(super) pages: u32,
    /// Changes of leaves in it that overlays name.
    pub(super) deltas: u32,
    /// Bases of such changes.
    pub(super) bases: u32,
    /// Those of them that `live` does not count: they were written or moved there in a running epoch.
    pub(super) new_bases: u32,
    /// Blocks from this one on were written in a running epoch.
    pub(super) new_from: Blocks,
}

impl Engaged {
    const NOT: Engaged = Engaged {
        pending: 0,
        readers: 0,
        pages: 0,
        deltas: 0,
        bases: 0,
        new_bases: 0,
        new_from: Blocks::MAX,
    };
}

/// Of all zones.
#[derive(Default)]
pub(super) struct EngagedZones(FxHashMap<ZoneId, Engaged>);

impl EngagedZones {
    pub(super) fn of(&self, zone: ZoneId) -> Engaged {
        self.0.get(&zone).copied().unwrap_or(Engaged::NOT)
    }

    pub(super) fn change<T>(&mut self, zone: ZoneId, change: impl FnOnce(&mut Engaged) -> T) -> T {
        let engaged = self.0.entry(zone).or_insert(Engaged::NOT);
        let changed = change(engaged);
        if *engaged == Engaged::NOT {
            self.0.remove(&zone);
        }
        changed
    }
}
