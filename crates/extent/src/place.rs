//! Which open zone a write goes to.
//!
//! Each lifetime class that is written has an open zone, which its small files share in the order in which they
//! are written: what is written together often dies together. A file that has become large has a zone of its own
//! while the limit on open zones and the free zones allow. Otherwise it shares an open zone of a class that goes with its
//! own (`lifetime.rs`): the one that it was written to last, or the one that anybody used last, or, where all of them are
//! other large files', the one that was not used for longest. Where there is none it takes one over from a class that
//! has several, shares with a class that lives about as long, or with any.
//! What is put together stays in the zone that its file was written to last, whoever else is to have that, so that
//! nothing but the zone's end comes in between.
//! When every open zone is full and none can be opened, the writer reclaims and collects garbage itself. What
//! garbage collection writes never comes here: it has a zone of its own.
//!
//! A zone leaves the placement when it takes no more; whoever ends the last append in flight to it
//! closes it: rest of the reverse map, footer, finish, and the record in the ZIT.

use std::collections::HashMap;
use std::sync::Arc;

use rt::order::{LockOrder, Ordered};
use rt::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex};
use tree::{StoreError, Tx};
use zone::{Blocks, Cause, DeviceError, Lease, Role, ZoneId};

use crate::format::{Entry, Unfinished, ZoneName, ZoneUser};
use crate::patience::Patience;
use crate::reverse::{Closed, Summary, ZoneMap};
use crate::{ExtentError, Extents, Lifetime, Object, Result};

/// Objects whose last zone is remembered.
const AFFINITIES_MAX: usize = 4096;
/// Zones tried one after the other when their headers cannot be written.
const OPEN_ATTEMPTS: usize = 4;
/// The part of a zone that a file has been given when it is large.
const LARGE_SHARE: u64 = 4;
/// A zone that its file has not used for so many choices is anybody's.
const OWNED_FOR: u64 = 64;
/// A class is written when it has such a share of what is.
const WRITTEN_SHARE: u64 = 16;
/// Spare zones for each open zone: space in an open zone is not available elsewhere.
const SPARE_PER_OPEN: i64 = 8;
/// The share of a log zone that entries of open zones take at most.
const ENTRIES_SHARE: i64 = 8;
/// Open zones for classes that are kept apart, at most.
const CLASSES_MAX: usize = 2;

/// A zone that takes data.
pub(crate) struct OpenZone {
    // In this order they are dropped: who is told that a lease is back must find it back.
    pub(crate) lease: Lease,
    pub(crate) map: Arc<Mutex<ZoneMap>>,
    /// The number of the lifetime class that it was last chosen for.
    class: AtomicU8,
    _told: Told,
}

impl OpenZone {
    fn lifetime(&self) -> Lifetime {
        Lifetime::from_number(self.class.load(Ordering::Relaxed)).unwrap_or_default()
    }
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
    /// The large file that it was opened for.
    owner: Option<Object>,
}

/// Where an object was last written, and how many blocks it was given.
#[derive(Clone, Copy)]
struct Affinity {
    zone: ZoneId,
    blocks: u64,
}

/// A write that wants a zone.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) object: Object,
    pub(crate) lifetime: Lifetime,
    pub(crate) blocks: u64,
    /// Goes on in the zone that the object was written to last while that takes it, whoever else is to have it.
    pub(crate) stays: bool,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    affinity: HashMap<Object, Affinity>,
    /// Counts choices.
    now: u64,
    /// How many zones are to be open at once.
    open_max: usize,
    /// Blocks written of late: of what lives long, and of everything else.
    written: [u64; 2],
    /// Files that are large have zones of their own.
    by_file: bool,
}

/// The open zones of fresh data.
pub(crate) struct Placement {
    /// A leaf lock.
    state: Mutex<State>,
    alive: Arc<Alive>,
    /// Held while a zone is opened, so that two writers in need open one. Before all map locks.
    opening: Ordered<Mutex<()>>,
    /// A zone is being opened.
    is_opening: AtomicBool,
    /// Blocks of data of the smallest zone.
    zone_blocks: AtomicU64,
}

/// What the open zones of fresh data can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rooms {
    /// Blocks until one more zone is needed than is open, and until two are, if there are two classes.
    pub(crate) until: Vec<i64>,
    /// One of the two classes has no zone: it shares with the other, or takes over what the other has begun, which it
    /// should for as little as can be.
    pub(crate) is_shared: bool,
}

/// What opening a zone came to.
pub(crate) enum Opened {
    Zone(Arc<OpenZone>),
    /// All leases are out.
    NoLease,
    /// No free zone that this role may take.
    NoZone,
}

/// Which of the two that are kept apart, if room is scarce.
fn apart(lifetime: Lifetime) -> usize {
    usize::from(matches!(lifetime, Lifetime::Long | Lifetime::Extreme))
}

impl State {
    fn take(&mut self, wanted: Wanted, index: usize) -> Arc<OpenZone> {
        self.now += 1;
        self.written[apart(wanted.lifetime)] += wanted.blocks;
        let slot = &mut self.slots[index];
        slot.used = self.now;
        if self.affinity.len() >= AFFINITIES_MAX {
            self.affinity.clear();
        }
        slot.open.class.store(slot.lifetime.number(), Ordering::Relaxed);
        let zone = slot.open.lease.zone();
        let affinity = self.affinity.entry(wanted.object).or_insert(Affinity { zone, blocks: 0 });
        *affinity = Affinity { zone, blocks: affinity.blocks + wanted.blocks };
        Arc::clone(&slot.open)
    }

    fn own(&self, object: Object) -> Option<usize> {
        let zone = self.affinity.get(&object)?.zone;
        self.slots.iter().position(|slot| slot.open.lease.zone() == zone)
    }

    fn is_large(&self, object: Object, zone_blocks: u64) -> bool {
        let given = self.affinity.get(&object).map_or(0, |affinity| affinity.blocks);
        self.by_file && given >= zone_blocks / LARGE_SHARE
    }

    /// Whether it is another file's.
    fn is_anothers(&self, slot: &Slot, object: Object) -> bool {
        slot.owner.is_some_and(|owner| owner != object) && self.now - slot.used < OWNED_FOR
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

    fn most_used(&self, fits: impl Fn(&Slot) -> bool) -> Option<usize> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| fits(slot));
        slots.max_by_key(|(_, slot)| slot.used).map(|(index, _)| index)
    }

    /// How many of the two that are kept apart are written.
    fn classes(&self) -> usize {
        let all: u64 = self.written.iter().sum();
        self.written.iter().filter(|&&blocks| blocks > 0 && blocks * WRITTEN_SHARE >= all).count().max(1)
    }
}

impl Placement {
    /// For zones of so many blocks of data.
    pub(crate) fn new(zone_blocks: Blocks) -> Placement {
        let placement = Placement {
            state: Mutex::default(),
            alive: Arc::default(),
            opening: Ordered::mutex(LockOrder::OpenZone, ()),
            is_opening: AtomicBool::new(false),
            zone_blocks: AtomicU64::new(zone_blocks.into()),
        };
        placement.set_by_file(true);
        placement
    }

    /// The zone to write to without opening one; `may_open`: rather none than one that does not suit.
    fn choose(&self, wanted: Wanted, may_open: bool) -> Option<Arc<OpenZone>> {
        let mut state = self.state.lock();
        let Wanted { object, lifetime, .. } = wanted;
        let fits = |slot: &Slot| slot.lifetime.shares_with(lifetime);
        let own = state.own(object);
        let suits = |index: &usize| {
            let slot = &state.slots[*index];
            fits(slot) && (wanted.stays || !state.is_anothers(slot, object))
        };
        let wants_own = may_open && self.may_own(&state, object);
        let is_owned =
            |index: &usize| wanted.stays || !wants_own || state.slots[*index].owner == Some(object);
        let index = match own.filter(suits).filter(is_owned) {
            Some(index) => Some(index),
            None if wants_own => None,
            None => match state.most_used(|slot| fits(slot) && !state.is_anothers(slot, object)) {
                Some(index) => Some(index),
                None if may_open => None,
                None => {
                    let stays = own.filter(|_| wanted.stays);
                    let alike = state.least_used(fits).or(stays).or_else(|| state.take_over(lifetime));
                    let is_near = |slot: &Slot| apart(slot.lifetime) == apart(lifetime);
                    let near = alike.or_else(|| state.least_used(is_near));
                    near.or(own).or_else(|| state.least_used(|_| true))
                }
            },
        };
        index.map(|index| state.take(wanted, index))
    }

    /// Whether a file is to have a zone of its own: it is large, and there may be one beside those that each
    /// class needs.
    fn may_own(&self, state: &State, object: Object) -> bool {
        let owned = state.slots.iter().filter(|slot| slot.owner.is_some_and(|owner| owner != object)).count();
        state.is_large(object, self.zone_blocks.load(Ordering::Relaxed))
            && owned + state.classes() < state.open_max
    }

    pub(crate) fn add(&self, open: Arc<OpenZone>, lifetime: Lifetime) {
        let mut state = self.state.lock();
        state.slots.push(Slot { open, lifetime, used: 0, owner: None });
    }

    /// Adds a zone and chooses it at once: from then on others may fill and retire it.
    fn add_for(&self, wanted: Wanted, open: Arc<OpenZone>) {
        let mut state = self.state.lock();
        let owner = self.may_own(&state, wanted.object).then_some(wanted.object);
        let index = state.slots.len();
        state.slots.push(Slot { open, lifetime: wanted.lifetime, used: 0, owner });
        state.take(wanted, index);
        state.written.iter_mut().for_each(|blocks| *blocks -= *blocks / 4);
    }

    /// The zone takes no more. Not by number: it may be open again in a later life.
    fn retire(&self, open: &OpenZone) {
        self.state.lock().slots.retain(|slot| !std::ptr::eq(&*slot.open, open));
    }

    /// What can be written, as things are going, before more zones are needed than are open. `payload`: what a zone with
    /// so much room takes of data.
    pub(crate) fn rooms(&self, payload: impl Fn(Blocks) -> Blocks) -> Rooms {
        let state = self.state.lock();
        let mut rooms = [0; CLASSES_MAX];
        for slot in &state.slots {
            rooms[apart(slot.lifetime)] += i64::from(payload(slot.open.lease.free_blocks()));
        }
        let has_zone = |class| state.slots.iter().any(|slot| apart(slot.lifetime) == class);
        let all: i64 = rooms.iter().sum();
        if state.classes() < CLASSES_MAX {
            return Rooms { until: vec![all], is_shared: false };
        }
        // One that has none shares with the other until there is a zone, and takes the first; one that it takes over
        // until then is a mixed one as well.
        if !has_zone(0) || !has_zone(1) {
            return Rooms { until: vec![all; CLASSES_MAX], is_shared: true };
        }
        let written: u64 = state.written.iter().sum();
        let until = |class: usize| {
            let share = state.written[class] as f64 / written.max(1) as f64;
            (rooms[class] as f64 / share.max(1.0 / WRITTEN_SHARE as f64)) as i64
        };
        let (first, second) = (until(0).min(until(1)), until(0).max(until(1)));
        Rooms { until: vec![first.min(all), second.min(all)], is_shared: false }
    }

    /// Blocks that the open zones still take, of whatever kind.
    pub(crate) fn room(&self) -> i64 {
        self.state.lock().slots.iter().map(|slot| i64::from(slot.open.lease.free_blocks())).sum()
    }

    /// The lifetime class of each open zone.
    pub(crate) fn classes(&self) -> Vec<(ZoneId, Lifetime)> {
        self.state.lock().slots.iter().map(|slot| (slot.open.lease.zone(), slot.lifetime)).collect()
    }

    /// The zones that take fresh data.
    fn open_zones(&self) -> Vec<Arc<OpenZone>> {
        self.state.lock().slots.iter().map(|slot| Arc::clone(&slot.open)).collect()
    }

    /// How many zones are to be open at once: as many as are wanted, but one for each class.
    pub(crate) fn open_max(&self) -> usize {
        let state = self.state.lock();
        state.open_max.max(state.classes())
    }

    /// Open zones beside those that each class needs.
    pub(crate) fn open_beyond(&self) -> usize {
        let state = self.state.lock();
        state.open_max.saturating_sub(state.classes())
    }

    /// Whether large files have zones of their own.
    pub(crate) fn set_by_file(&self, by_file: bool) {
        self.state.lock().by_file = by_file;
    }

    pub(crate) fn set_open_max(&self, zones: usize) {
        self.state.lock().open_max = zones;
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().slots.len()
    }

    /// Zones that are being opened.
    pub(crate) fn opening_count(&self) -> i64 {
        self.is_opening.load(Ordering::Relaxed).into()
    }
}

impl Extents {
    /// An open zone for this write. Makes room when there is none; no space only when there is none to
    /// be made.
    pub(crate) fn place(&self, wanted: Wanted) -> Result<Arc<OpenZone>> {
        let open = self.find_place(wanted)?;
        open.lease.set_lifetime_class(open.lifetime().number());
        Ok(open)
    }

    fn find_place(&self, wanted: Wanted) -> Result<Arc<OpenZone>> {
        let mut patience = Patience::default();
        loop {
            let (seen, over) = (self.placement.alive.gone(), self.store.resets_over());
            let plenty = self.placement.count() < self.placement.open_max() && !self.is_out_of_zones();
            if let Some(open) = self.placement.choose(wanted, plenty) {
                return Ok(open);
            }
            let opening = self.placement.opening.lock();
            if let Some(open) = self.placement.choose(wanted, plenty) {
                return Ok(open);
            }
            self.placement.is_opening.store(true, Ordering::Relaxed);
            let opened = self.open_zone(Role::Data);
            if let Ok(Opened::Zone(open)) = &opened {
                self.placement.add_for(wanted, Arc::clone(open));
            }
            self.placement.is_opening.store(false, Ordering::Relaxed);
            let opened = match opened {
                // The device has no room for one: what is open has to do.
                Err(ExtentError::NoSpace) => {
                    drop(opening);
                    return self.placement.choose(wanted, false).ok_or(ExtentError::NoSpace);
                }
                opened => opened?,
            };
            if self.openings.is_due() {
                self.placement.set_open_max(self.count_open_wanted());
            }
            self.throttle.forgive();
            if let Opened::Zone(open) = opened {
                return Ok(open);
            }
            drop(opening);
            if let Some(open) = self.placement.choose(wanted, false) {
                return Ok(open);
            }
            match opened {
                Opened::NoLease if self.placement.alive.wait(seen) => {}
                Opened::NoLease => return Err(self.no_lease()),
                _ if self.make_room(&mut patience, over)? => {}
                // Others may have opened what they have won.
                _ => return self.placement.choose(wanted, false).ok_or(ExtentError::NoSpace),
            }
        }
    }

    /// How many zones of user data should be open at once: many while many blocks are free or dead, one when there are few.
    pub(crate) fn open_zones_wanted(&self, spare_blocks: i64) -> usize {
        let most = i64::from(self.store.leases_for_data()).min(self.open_zones_of_log());
        let wanted = spare_blocks / (SPARE_PER_OPEN * i64::from(self.payload_min.max(1)));
        wanted.clamp(1, most.max(1)) as usize
    }

    /// How many zones may be open so that their entries leave the log headroom. A checkpoint carries the entries that no
    /// summary has, about a block for each zone. Beside that, the log reserves twice the size of the last checkpoint.
    fn open_zones_of_log(&self) -> i64 {
        let geometry = self.device.geometry();
        let log_bytes = i64::from(geometry.zone_blocks) * i64::from(geometry.block_size);
        let of_all_blocks = i64::from(self.payload_min) * Entry::bytes_for(1) as i64;
        let of_a_zone = of_all_blocks.clamp(1, i64::from(geometry.block_size));
        log_bytes / ENTRIES_SHARE / of_a_zone
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
            match self.store.open_zone(role) {
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
        Arc::new(OpenZone { lease, map, class: AtomicU8::new(0), _told: Told::new(&alive) })
    }

    /// Takes the zone out of the placement, and closes it if nothing is in flight to it.
    pub(crate) fn retire(&self, open: &OpenZone) -> Result<()> {
        open.map.lock().fill();
        self.placement.retire(open);
        self.close_when_idle(open)
    }

    /// Before the volume is closed: closes the zones with which nobody can go on afterwards. With a footer nothing has
    /// to be moved out of them, and only what they have left is lost.
    pub fn close_conventional(&self) {
        let is_conventional =
            |open: &Arc<OpenZone>| self.device.geometry().is_conventional(open.lease.zone());
        let target = self.gc.lock().take_target_if(is_conventional);
        for open in self.placement.open_zones().into_iter().filter(is_conventional).chain(target) {
            if let Err(error) = self.retire(&open) {
                tracing::warn!(zone = open.lease.zone().0, %error, "a zone is left without a footer");
            }
        }
    }

    /// After a batch of appends: closes the zone if it is full.
    pub(crate) fn tend(&self, open: &OpenZone) -> Result<()> {
        if open.lease.has_failed() || open.map.lock().is_full() {
            self.retire(open)?;
        }
        Ok(())
    }

    fn append_summary(&self, open: &OpenZone, summary: &Summary) {
        let place = open.lease.append(Cause::ReverseMap, &summary.bytes).ok();
        open.map.lock().end_summary(summary, place);
    }

    fn close_when_idle(&self, open: &OpenZone) -> Result<()> {
        let Some(rest) = open.map.lock().take_rest(&open.lease) else { return Ok(()) };
        self.submit_deferred();
        if let Some(summary) = rest {
            self.append_summary(open, &summary);
        }
        let footer = open.map.lock().take_footer(&open.lease);
        let place = footer.and_then(|bytes| open.lease.append(Cause::ReverseMap, &bytes).ok());
        let zone = open.lease.zone();
        if (open.lease.has_failed() || open.lease.free_blocks() > 0)
            && let Err(error) = self.device.finish(zone)
        {
            tracing::warn!("zone {} cannot be finished: {error}", zone.0);
        }
        let (stream, filled_at) = self.learned.stamp(open.lease.role(), open.lifetime());
        let user = ZoneUser { footer: place.unwrap_or(0), closed: true, stream, filled_at };
        let mut tx = Tx::reclaiming();
        tx.zone_user(zone, user.encode());
        let committed = self.store.commit(tx);
        let how = match (&committed, place) {
            (Ok(lsn), Some(_)) => Closed::Footer(*lsn),
            _ => Closed::Without,
        };
        open.map.lock().close(how);
        self.store.pool().close(zone);
        self.zone_was_filled(zone, &user);
        self.reverse.prune(&self.store);
        committed?;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
