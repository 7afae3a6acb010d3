//! The deletion of objects that are not needed any more.

use std::collections::{BTreeSet, VecDeque};

use zone::{Life, ZoneId};

use crate::format::{Shape, decode_bundle};
use crate::store::{Result, StoreError};
use crate::table::Table;
use crate::zones::Zones;

/// Objects that are to be deleted, in the order in which they became unnecessary.
pub(crate) struct Garbage {
    /// With the time from which it may be deleted.
    queue: VecDeque<(u64, Unneeded)>,
    /// The bundles in the queue.
    bundles: BTreeSet<u64>,
    /// How long objects stay for processes that read.
    grace_ns: u64,
}

/// Objects that are not needed any more.
pub(crate) enum Unneeded {
    /// This bundle, unless it is an owner bundle.
    Bundle(u64),
    /// The parts of this zone that are of lives before this one.
    Zone(ZoneId, Life),
    /// Chunks of the table with smaller numbers than these, which a table bundle has.
    Chunks(Vec<u64>),
}

impl Garbage {
    /// Parts that an earlier process has not deleted, as the table says. They may be deleted at once.
    pub(crate) fn of_opened(table: &Table, shape: &Shape, grace_ns: u64) -> Garbage {
        let zones = (0..shape.geometry.zones).map(ZoneId).filter(|&zone| table.has_garbage(zone));
        let unneeded = zones.map(|zone| (0, Unneeded::Zone(zone, table.life(zone))));
        Garbage { queue: unneeded.collect(), bundles: BTreeSet::new(), grace_ns }
    }

    fn add(&mut self, now_ns: u64, unneeded: Unneeded) {
        self.queue.push_back((now_ns + self.grace_ns, unneeded));
    }

    /// A bundle that the last table bundle does not need.
    pub(crate) fn add_bundle(&mut self, now_ns: u64, sequence: u64) {
        if self.bundles.insert(sequence) {
            self.add(now_ns, Unneeded::Bundle(sequence));
        }
    }

    /// The parts of a zone that are of lives before `life`, which a bundle has.
    pub(crate) fn add_zone(&mut self, now_ns: u64, zone: ZoneId, life: Life) {
        self.add(now_ns, Unneeded::Zone(zone, life));
    }

    /// The chunks with smaller numbers than those of the last table bundle.
    pub(crate) fn add_chunks(&mut self, now_ns: u64, named: &[u64]) {
        if !self.queue.iter().any(|(_, unneeded)| matches!(unneeded, Unneeded::Chunks(_))) {
            self.add(now_ns, Unneeded::Chunks(named.to_vec()));
        }
    }

    /// The next one that may be deleted now.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<Unneeded> {
        let is_due = self.queue.front().is_some_and(|(from_ns, _)| *from_ns <= now_ns);
        if !is_due {
            return None;
        }
        let (_, unneeded) = self.queue.pop_front()?;
        if let Unneeded::Bundle(sequence) = unneeded {
            self.bundles.remove(&sequence);
        }
        Some(unneeded)
    }

    /// Objects whose deletion has failed.
    pub(crate) fn put_back(&mut self, now_ns: u64, unneeded: Unneeded) {
        match unneeded {
            Unneeded::Bundle(sequence) => self.add_bundle(now_ns, sequence),
            unneeded => self.add(now_ns, unneeded),
        }
    }
}

/// Deletes objects that a bundle of the chain has made unnecessary. That stays so, so a request that is executed late
/// does no harm, even if another process owns the volume by then.
pub(crate) fn delete(zones: &Zones, unneeded: &Unneeded) -> Result<()> {
    match unneeded {
        Unneeded::Bundle(sequence) => delete_bundle(zones, *sequence),
        Unneeded::Zone(zone, life) => delete_parts(zones, *zone, *life),
        Unneeded::Chunks(named) => delete_chunks(zones, named),
    }
}

fn delete_chunks(zones: &Zones, named: &[u64]) -> Result<()> {
    for name in zones.store.list(&zones.names.chunks(), "")? {
        let newest = |chunk: u32| named.get(chunk as usize).copied().unwrap_or(0);
        if zones.names.chunk_of(&name).is_some_and(|(chunk, number)| number < newest(chunk)) {
            zones.store.delete(&name)?;
        }
    }
    Ok(())
}

fn delete_bundle(zones: &Zones, sequence: u64) -> Result<()> {
    let name = zones.names.bundle(sequence);
    let is_owner = match zones.store.read(&name, None) {
        Ok(object) => match decode_bundle(&zones.shape, sequence, &object) {
            Ok(bundle) => bundle.is_owner,
            // A bundle that cannot be read may be an owner bundle.
            Err(_) => true,
        },
        Err(StoreError::NotFound(_)) => false,
        Err(error) => return Err(error),
    };
    if !is_owner || rt::is_planted("object-keep-owners") {
        zones.store.delete(&name)?;
    }
    Ok(())
}

fn delete_parts(zones: &Zones, zone: ZoneId, life: Life) -> Result<()> {
    let life = match rt::is_planted("object-life-of-garbage") {
        true => zones.lock().table.life(zone),
        false => life,
    };
    let is_before = |of: Life| of.0.wrapping_sub(life.0).cast_signed() < 0;
    for name in zones.store.list(&zones.names.parts_of_zone(zone), "")? {
        if zones.names.life(zone, &name).is_some_and(is_before) {
            zones.store.delete(&name)?;
        }
    }
    let mut state = zones.lock();
    let is_in_flight = state.in_flight.keys().any(|part| part.zone == zone && is_before(part.life));
    if state.table.life(zone) == life && !is_in_flight {
        state.table.set_clean(zone);
        state.noted.insert(zone);
        state.differing.insert(zone);
    }
    Ok(())
}
