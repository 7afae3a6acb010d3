//! Closed data zones: those with live blocks, ordered for GC, and dead ones, which only lack their reset.

use std::collections::BTreeSet;

use zone::{Blocks, ZoneId};

/// The two sets.
#[derive(Default)]
pub(crate) struct Victims {
    /// By the live blocks that the zone would have if it were as large as the largest zone and had as many dead blocks: a
    /// small zone has few live blocks, but moving them frees little.
    live: BTreeSet<(Blocks, ZoneId)>,
    /// Dead zones are apart, because each write counts them, and there may be many: all that a large file had.
    dead: BTreeSet<ZoneId>,
}

impl Victims {
    /// `lacks` is the number of blocks by which the zone is smaller than the largest.
    pub(crate) fn insert(&mut self, zone: ZoneId, live: Blocks, lacks: Blocks) {
        let is_new = match live {
            0 => self.dead.insert(zone),
            _ => self.live.insert((live + lacks, zone)),
        };
        assert!(is_new, "zone {} is closed once", zone.0);
    }

    /// Removes a zone that may be in neither set.
    pub(crate) fn remove(&mut self, zone: ZoneId, live: Blocks, lacks: Blocks) {
        match live {
            0 => self.dead.remove(&zone),
            _ => self.live.remove(&(live + lacks, zone)),
        };
    }

    /// Zones with live blocks, the one with most dead blocks first, each with its rank.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Blocks, ZoneId)> {
        self.live.iter().copied()
    }

    pub(crate) fn dead(&self) -> impl Iterator<Item = ZoneId> {
        self.dead.iter().copied()
    }

    pub(crate) fn dead_count(&self) -> u32 {
        self.dead.len() as u32
    }
}
