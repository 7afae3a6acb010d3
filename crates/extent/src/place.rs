//! Which open zone a write goes to.
//!
//! A file has an empty zone of its own while the limit on open zones and the free zones allow;
//! otherwise it shares the least recently used open zone of a lifetime class that goes with its own
//! (`lifetime.rs`), takes one over from a class that has several, or shares any. When every
//! open zone is full and none can be opened, the writer reclaims and collects garbage itself. What
//! garbage collection writes never comes here: it has a zone of its own.
//!
//! A zone leaves the placement when it takes no more; whoever ends the last append in flight to it
//! closes it: rest of the reverse map, footer, finish, and the record in the ZIT.

use std::collections::HashMap;
use std::sync::Arc;

use rt::sync::{Condvar, Mutex};
use tree::{StoreError, Tx};
use zone::{Blocks, Cause, DeviceError, Lease, Role, ZoneId};

use crate::format::{Unfinished, ZoneName, ZoneUser};
use crate::reverse::{Closed, Summary, ZoneMap};
use crate::{ExtentError, Extents, Hint, Lifetime, Object, Result};

/// Objects whose last zone is remembered.
const AFFINITIES_MAX: usize = 4096;
/// Zones tried one after the other when their headers cannot be written.
const OPEN_ATTEMPTS: usize = 4;

/// A zone that takes data.
pub(crate) struct OpenZone {
    // In this order they are dropped: who is told that a lease is back must find it back.
    pub(crate) lease: Lease,
    pub(crate) map: Arc<Mutex<ZoneMap>>,
    _told: Told,
}

/// Counts the open zones, for those who wait until there is one less.
#[derive(Default)]
struct Alive {
    /// Open zones now, and how many there have been that are no more.
    counts: Mutex<(usize, u64)>,
    changed: Condvar,
}

/// Tells `Alive` when it is dropped.
struct Told(Arc<Alive>);

impl Told {
    fn new(alive: &Arc<Alive>) -> Self {
        alive.counts.lock().0 += 1;
        Told(Arc::clone(alive))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut counts = self.0.counts.lock();
        counts.0 -= 1;
        counts.1 += 1;
        self.0.changed.notify_all();
    }
}

impl Alive {
    fn gone(&self) -> u64 {
        self.counts.lock().1
    }

    /// Waits until an open zone has gone since `seen` was read; false when there is none that could.
    fn wait(&self, seen: u64) -> bool {
        let mut counts = self.counts.lock();
        while counts.1 == seen && counts.0 > 0 {
            self.changed.wait(&mut counts);
        }
        counts.1 != seen
    }
}

struct Slot {
    open: Arc<OpenZone>,
    lifetime: Lifetime,
    /// When it was last chosen.
    used: u64,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    /// The zone that an object was last written to.
    affinity: HashMap<Object, ZoneId>,
    /// Counts choices.
    now: u64,
    /// How many zones are to be open at once.
    open_max: usize,
}

/// The open zones of fresh data.
#[derive(Default)]
pub(crate) struct Placement {
    /// A leaf lock.
    state: Mutex<State>,
    alive: Arc<Alive>,
    /// Held while a zone is opened, so that two writers in need open one. Before all map locks.
    opening: Mutex<()>,
}

/// What opening a zone came to.
pub(crate) enum Opened {
    Zone(Arc<OpenZone>),
    /// All leases are out.
    NoLease,
    /// No free zone that this role may take.
    NoZone,
}

impl State {
    fn take(&mut self, object: Object, index: usize) -> Arc<OpenZone> {
        self.now += 1;
        let slot = &mut self.slots[index];
        slot.used = self.now;
        if self.affinity.len() >= AFFINITIES_MAX {
            self.affinity.clear();
        }
        self.affinity.insert(object, slot.open.lease.zone());
        Arc::clone(&slot.open)
    }

    fn own(&self, object: Object) -> Option<usize> {
        let zone = self.affinity.get(&object)?;
        self.slots.iter().position(|slot| slot.open.lease.zone() == *zone)
    }

    /// A class that has no open zone gets one of those of a class that has several: what is in there already
    /// stays mixed, but nothing that follows does.
    fn take_over(&mut self, lifetime: Lifetime) -> Option<usize> {
        let has_several = |slot: &Slot| {
            self.slots.iter().filter(|other| other.lifetime.shares_with(slot.lifetime)).count() > 1
        };
        let index = self.least_used(has_several)?;
        self.slots[index].lifetime = lifetime;
        Some(index)
    }

    fn least_used(&self, fits: impl Fn(&Slot) -> bool) -> Option<usize> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| fits(slot));
        slots.min_by_key(|(_, slot)| slot.used).map(|(index, _)| index)
    }
}

impl Placement {
    /// The zone to write to without opening one; `may_open`: rather none than a shared one.
    fn choose(&self, object: Object, hint: Hint, may_open: bool) -> Option<Arc<OpenZone>> {
        let mut state = self.state.lock();
        let fits = |slot: &Slot| slot.lifetime.shares_with(hint.lifetime);
        let own = state.own(object);
        let index = match own.filter(|&own| fits(&state.slots[own])) {
            Some(index) => Some(index),
            None if may_open => None,
            None => {
                let alike = state.least_used(fits).or_else(|| state.take_over(hint.lifetime));
                alike.or(own).or_else(|| state.least_used(|_| true))
            }
        };
        index.map(|index| state.take(object, index))
    }

    pub(crate) fn add(&self, open: Arc<OpenZone>, hint: Hint) {
        let mut state = self.state.lock();
        state.slots.push(Slot { open, lifetime: hint.lifetime, used: 0 });
    }

    /// Adds a zone and chooses it at once: from then on others may fill and retire it.
    fn add_for(&self, object: Object, open: Arc<OpenZone>, hint: Hint) {
        let mut state = self.state.lock();
        let index = state.slots.len();
        state.slots.push(Slot { open, lifetime: hint.lifetime, used: 0 });
        state.take(object, index);
    }

    /// The zone takes no more. Not by number: it may be open again in a later life.
    fn retire(&self, open: &OpenZone) {
        self.state.lock().slots.retain(|slot| !std::ptr::eq(&*slot.open, open));
    }

    /// Blocks that are left in each open zone.
    pub(crate) fn rooms(&self) -> impl Iterator<Item = Blocks> {
        let rooms: Vec<Blocks> = self.state.lock().slots.iter().map(|slot| slot.open.lease.room()).collect();
        rooms.into_iter()
    }

    /// The lifetime class of each open zone.
    pub(crate) fn classes(&self) -> Vec<(ZoneId, Lifetime)> {
        self.state.lock().slots.iter().map(|slot| (slot.open.lease.zone(), slot.lifetime)).collect()
    }

    /// How many zones are to be open at once.
    pub(crate) fn open_max(&self) -> usize {
        self.state.lock().open_max.max(1)
    }

    pub(crate) fn set_open_max(&self, zones: usize) {
        self.state.lock().open_max = zones;
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().slots.len()
    }
}

impl Extents {
    /// An open zone for this write. Makes room when there is none; no space only when there is none to
    /// be made.
    pub(crate) fn place(&self, object: Object, hint: Hint) -> Result<Arc<OpenZone>> {
        loop {
            let seen = self.placement.alive.gone();
            let plenty = self.placement.count() < self.placement.open_max() && !self.is_out_of_zones();
            if let Some(open) = self.placement.choose(object, hint, plenty) {
                return Ok(open);
            }
            let opening = self.placement.opening.lock();
            if let Some(open) = self.placement.choose(object, hint, plenty) {
                return Ok(open);
            }
            let opened = self.open_zone(Role::Data)?;
            self.placement.set_open_max(self.count_open_wanted());
            self.pace.rest();
            if let Opened::Zone(open) = &opened {
                self.placement.add_for(object, Arc::clone(open), hint);
                return Ok(Arc::clone(open));
            }
            drop(opening);
            if let Some(open) = self.placement.choose(object, hint, false) {
                return Ok(open);
            }
            match opened {
                Opened::NoLease if self.placement.alive.wait(seen) => {}
                Opened::NoLease => return Err(self.no_lease()),
                _ if self.make_room()? => {}
                _ => return Err(ExtentError::NoSpace),
            }
        }
    }

    fn no_lease(&self) -> ExtentError {
        let why = "the device has no open zone left for data: zones that were not finished hold them all";
        StoreError::Device(DeviceError::Unusable(why.to_owned())).into()
    }

    /// Opens a zone for data or for garbage collection.
    pub(crate) fn open_zone(&self, role: Role) -> Result<Opened> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.store.zones().open(role) {
                Ok(Some(lease)) => return Ok(Opened::Zone(self.adopt(lease, Unfinished::default()))),
                Ok(None) => return Ok(Opened::NoZone),
                Err(StoreError::Device(DeviceError::TooManyOpen { .. })) => return Ok(Opened::NoLease),
                Err(StoreError::Device(error)) if error.ends_zone() && attempts < OPEN_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes a leased zone one that takes data.
    pub(crate) fn adopt(&self, lease: Lease, unfinished: Unfinished) -> Arc<OpenZone> {
        let name = ZoneName { fs_id: self.store.info().fs_id, zone: lease.zone(), life: lease.life() };
        let map = self.reverse.add(ZoneMap::new(name, self.packing, unfinished));
        // Nobody waits for garbage collection's zone: it gives way to no one.
        let alive = match lease.role() {
            Role::Data => Arc::clone(&self.placement.alive),
            _ => Arc::default(),
        };
        Arc::new(OpenZone { lease, map, _told: Told::new(&alive) })
    }

    /// Takes the zone out of the placement, and closes it if nothing is in flight to it.
    pub(crate) fn retire(&self, open: &OpenZone) -> Result<()> {
        open.map.lock().fill();
        self.placement.retire(open);
        self.close_when_idle(open)
    }

    /// After a batch of appends: summarises what is due, closes the zone if it is full.
    pub(crate) fn tend(&self, open: &OpenZone) -> Result<()> {
        let due = open.map.lock().take_due(&open.lease);
        if let Some(summary) = due {
            self.catch_up();
            self.append_summary(open, &summary);
        }
        if open.lease.has_failed() || open.map.lock().is_full() {
            self.retire(open)?;
        }
        Ok(())
    }

    fn append_summary(&self, open: &OpenZone, summary: &Summary) {
        let place = open.lease.append(Cause::ReverseMap, &summary.bytes).ok();
        open.map.lock().summarised(summary, place);
    }

    fn close_when_idle(&self, open: &OpenZone) -> Result<()> {
        let Some(rest) = open.map.lock().take_rest(&open.lease) else { return Ok(()) };
        self.catch_up();
        if let Some(summary) = rest {
            self.append_summary(open, &summary);
        }
        let footer = open.map.lock().take_footer(&open.lease);
        let place = footer.and_then(|bytes| open.lease.append(Cause::ReverseMap, &bytes).ok());
        let zone = open.lease.zone();
        if (open.lease.has_failed() || open.lease.room() > 0)
            && let Err(error) = self.device.finish(zone)
        {
            tracing::warn!("zone {} cannot be finished: {error}", zone.0);
        }
        let mut tx = Tx::reclaiming();
        tx.zone_user(zone, ZoneUser { footer: place.unwrap_or(0), closed: true }.encode());
        let committed = self.store.commit(tx);
        let how = match (&committed, place) {
            (Ok(lsn), Some(_)) => Closed::Footer(*lsn),
            _ => Closed::Without,
        };
        open.map.lock().close(how);
        self.store.zones().close(zone);
        self.space.outdated();
        self.reverse.prune(&self.store);
        committed?;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
