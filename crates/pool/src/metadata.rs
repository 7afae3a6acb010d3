//! Zones with the role metadata, and how many pages the delta records in them take if they are moved.

use std::collections::{BTreeSet, HashMap};

use zone::{Blocks, Life, ZoneId};

/// A closed metadata zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataZone {
    /// The zone.
    pub zone: ZoneId,
    /// Its life.
    pub life: Life,
    /// The most blocks that moving its live pages and delta records can take, with those that running epochs name.
    pub live: Blocks,
    /// The blocks that it holds.
    pub capacity: Blocks,
}

impl MetadataZone {
    /// Blocks that moving it frees.
    pub fn dead(&self) -> Blocks {
        self.capacity - self.live
    }
}

/// The set of metadata zones.
#[derive(Default)]
pub(crate) struct MetadataZones {
    zones: BTreeSet<ZoneId>,
    /// For zones whose delta records were counted, in that life: the most pages that these take. It only falls.
    counted: HashMap<ZoneId, (Life, u64)>,
}

impl MetadataZones {
    /// A zone has this role now, or another one.
    pub(crate) fn set(&mut self, zone: ZoneId, is_metadata: bool) {
        match is_metadata {
            true => self.zones.insert(zone),
            false => self.zones.remove(&zone),
        };
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = ZoneId> {
        self.zones.iter().copied()
    }

    pub(crate) fn count(&self) -> u32 {
        self.zones.len() as u32
    }

    /// The delta records in this zone take no more pages than this.
    pub(crate) fn note_delta_pages(&mut self, zone: ZoneId, life: Life, pages: u64) {
        self.counted.insert(zone, (life, pages));
    }

    pub(crate) fn forget_delta_pages(&mut self, zone: ZoneId) {
        self.counted.remove(&zone);
    }

    /// The most pages that the delta records in this zone take, if they were counted in this life.
    pub(crate) fn delta_pages(&self, zone: ZoneId, life: Life) -> Option<u64> {
        let (counted, pages) = self.counted.get(&zone)?;
        (*counted == life).then_some(*pages)
    }
}
