//! Background work: the table, and the deletion of objects that are not needed any more.

use std::collections::{BTreeSet, VecDeque};

use zone::{Life, Result, ZoneId};

use crate::device::ObjectDevice;
use crate::format::{Shape, decode_bundle};
use crate::store::StoreError;
use crate::table::Table;

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
enum Unneeded {
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
    fn next(&mut self, now_ns: u64) -> Option<Unneeded> {
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
}

impl ObjectDevice {
    /// Does one piece of background work. Returns whether there was any.
    pub(crate) fn do_background_work(&self) -> bool {
        match self.background_step() {
            Ok(was_any) => was_any,
            Err(error) => {
                tracing::warn!("{}: {error}", self.store.describe());
                false
            }
        }
    }

    fn background_step(&self) -> Result<bool> {
        if self.write_chunk()? {
            return Ok(true);
        }
        let now = self.clock.monotonic_ns();
        let Some(unneeded) = self.garbage.lock().next(now) else { return Ok(false) };
        if let Err(error) = self.delete(&unneeded) {
            let mut garbage = self.garbage.lock();
            match unneeded {
                Unneeded::Bundle(sequence) => garbage.add_bundle(now, sequence),
                unneeded => garbage.add(now, unneeded),
            }
            return Err(self.not_deleted(&error));
        }
        Ok(true)
    }

    fn not_deleted(&self, error: &StoreError) -> zone::DeviceError {
        zone::DeviceError::Unusable(format!("objects that are not needed could not be deleted: {error}"))
    }

    /// Deletes objects that a bundle of the chain has made unnecessary. That stays so, so a request that is executed late does
    /// no harm, even if another process owns the volume by then.
    fn delete(&self, unneeded: &Unneeded) -> crate::StoreResult<()> {
        match unneeded {
            Unneeded::Bundle(sequence) => self.delete_bundle(*sequence),
            Unneeded::Zone(zone, life) => self.delete_parts(*zone, *life),
            Unneeded::Chunks(named) => self.delete_chunks(named),
        }
    }

    fn delete_chunks(&self, named: &[u64]) -> crate::StoreResult<()> {
        for name in self.store.list(&self.names.chunks(), "")? {
            let newest = |chunk: u32| named.get(chunk as usize).copied().unwrap_or(0);
            if self.names.chunk_of(&name).is_some_and(|(chunk, number)| number < newest(chunk)) {
                self.store.delete(&name)?;
            }
        }
        Ok(())
    }

    fn delete_bundle(&self, sequence: u64) -> crate::StoreResult<()> {
        let name = self.names.bundle(sequence);
        let is_owner = match self.store.read(&name, None) {
            Ok(object) => match decode_bundle(&self.shape, sequence, &object) {
                Ok(bundle) => bundle.is_owner,
                // A bundle that cannot be read may be an owner bundle.
                Err(_) => true,
            },
            Err(StoreError::NotFound(_)) => false,
            Err(error) => return Err(error),
        };
        if !is_owner || rt::is_planted("object-keep-owners") {
            self.store.delete(&name)?;
        }
        self.chain.lock().bundles.remove(&sequence);
        Ok(())
    }

    fn delete_parts(&self, zone: ZoneId, life: Life) -> crate::StoreResult<()> {
        let life = match rt::is_planted("object-life-of-garbage") {
            true => self.state.lock().table.life(zone),
            false => life,
        };
        let is_before = |of: Life| of.0.wrapping_sub(life.0).cast_signed() < 0;
        for name in self.store.list(&self.names.parts_of_zone(zone), "")? {
            if self.names.life(zone, &name).is_some_and(is_before) {
                self.store.delete(&name)?;
            }
        }
        let mut state = self.state.lock();
        let is_in_flight = state.in_flight.keys().any(|part| part.zone == zone && is_before(part.life));
        if state.table.life(zone) == life && !is_in_flight {
            state.table.set_clean(zone);
            state.noted.insert(zone);
            state.differing.insert(zone);
        }
        Ok(())
    }
}
