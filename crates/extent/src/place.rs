//! The choice of an open zone for a write.
//!
//! Each lifetime class that is written has an open zone. The files of the class share it in the order in which they are
//! written, because data that is written together often dies together. A class without a zone takes over one of a class
//! that has several, or shares with a class of a similar lifetime, or with any class. Zones for single large files were
//! measured and removed: they cost 7 % write amplification with RocksDB (decision 0057).
//!
//! If no open zone takes the write and none can be opened, the writer reclaims zones and runs GC itself. The target of
//! GC is no zone of the placement.
//!
//! A zone leaves the placement when it takes no more. The thread that ends the last append in flight closes it: rest of
//! the reverse map, footer, finish, and the record in the ZIT.

use std::sync::Arc;

use rt::order::{LockOrder, Ordered};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};
use tree::{Store, StoreError, Tx};
use zone::{Blocks, Cause, DeviceError, Lease, Role, ZoneId, ZoneState};

use crate::amortized::Amortized;
use crate::budget::Budget;
use crate::charges::Charges;
use crate::format::{Entry, Packing, Unfinished, ZoneName, ZoneUser};
use crate::maps::ObjectMaps;
use crate::open_zone::{OpenCount, OpenZone};
use crate::reverse::{Closed, ReverseMaps, Summary, ZoneMap};
use crate::{ExtentError, Lifetime, Result};

/// Zones that are tried one after the other if their headers cannot be written.
const OPEN_ATTEMPTS: usize = 4;
/// A class counts as written if it has this share of the written blocks.
const WRITTEN_SHARE: u64 = 16;
/// Zones of free or dead blocks for each open zone, because the rest of an open zone is available only to its class.
const FREE_PER_OPEN: i64 = 8;
/// Entries of open zones take at most this share of a log zone.
const ENTRIES_SHARE: i64 = 8;
/// Classes that have open zones of their own.
const CLASSES_MAX: usize = 2;

struct Slot {
    open: Arc<OpenZone>,
    lifetime: Lifetime,
    /// The number of the choice that last took it.
    used: u64,
}

/// A write that needs a zone.
#[derive(Clone, Copy)]
pub(crate) struct PlaceRequest {
    pub(crate) lifetime: Lifetime,
    pub(crate) blocks: u64,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    /// Counts choices.
    now: u64,
    /// The number of zones that should be open.
    open_max: usize,
    /// Recently written blocks: of the long-lived classes, and of the other ones.
    written: [u64; 2],
}

/// The open zones of user writes.
pub(crate) struct Placement {
    /// A leaf lock.
    state: Mutex<State>,
    open_count: Arc<OpenCount>,
    /// Locked while a zone is opened, so that two writers open only one. Before all map locks.
    opening: Ordered<Mutex<()>>,
    /// A zone is being opened.
    is_opening: AtomicBool,
}

/// The headroom of the open zones of user writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenHeadroom {
    /// Blocks until one more zone is needed, and until two more are needed if two classes are written.
    pub(crate) until: Vec<i64>,
    /// One of the two classes has no zone. It shares with the other, or takes over a zone of the other, which should
    /// last as short as possible.
    pub(crate) is_shared: bool,
}

/// The result of an attempt to open a zone.
pub(crate) enum OpenAttempt {
    Zone(Arc<OpenZone>),
    /// All leases are in use.
    NoLease,
    /// There is no free zone that this role may take.
    NoZone,
}

/// The result of a search for an open zone.
pub(crate) enum Search {
    Found(Arc<OpenZone>),
    /// Another zone was closed meanwhile.
    Again,
    /// No zone takes the write, and none can be opened.
    NoZone,
}

/// The class, of the two that have zones of their own: 1 for long-lived data, 0 for other data.
fn class_of(lifetime: Lifetime) -> usize {
    usize::from(matches!(lifetime, Lifetime::Long | Lifetime::Extreme))
}

impl State {
    fn take(&mut self, request: PlaceRequest, index: usize) -> Arc<OpenZone> {
        self.now += 1;
        self.written[class_of(request.lifetime)] += request.blocks;
        let slot = &mut self.slots[index];
        slot.used = self.now;
        slot.open.set_lifetime(slot.lifetime);
        Arc::clone(&slot.open)
    }

    /// Gives a class without an open zone one of a class with several. Its present contents stay mixed, but later ones
    /// do not.
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

    /// The number of classes that are written.
    fn classes(&self) -> usize {
        let all: u64 = self.written.iter().sum();
        self.written.iter().filter(|&&blocks| blocks > 0 && blocks * WRITTEN_SHARE >= all).count().max(1)
    }
}

impl Placement {
    pub(crate) fn new() -> Placement {
        Placement {
            state: Mutex::default(),
            open_count: Arc::default(),
            opening: Ordered::mutex(LockOrder::OpenZone, ()),
            is_opening: AtomicBool::new(false),
        }
    }

    /// The open zone for the write, if there is one. With `may_open`, none rather than one of another class.
    fn choose(&self, request: PlaceRequest, may_open: bool) -> Option<Arc<OpenZone>> {
        let mut state = self.state.lock();
        let lifetime = request.lifetime;
        let is_near = |slot: &Slot| class_of(slot.lifetime) == class_of(lifetime);
        let index = match state.most_used(|slot| slot.lifetime.shares_with(lifetime)) {
            None if !may_open => state
                .take_over(lifetime)
                .or_else(|| state.least_used(is_near))
                .or_else(|| state.least_used(|_| true)),
            found => found,
        };
        index.map(|index| state.take(request, index))
    }

    pub(crate) fn add(&self, open: Arc<OpenZone>, lifetime: Lifetime) {
        let mut state = self.state.lock();
        state.slots.push(Slot { open, lifetime, used: 0 });
    }

    /// Adds a zone and chooses it at once. From then on other writers may fill and retire it.
    fn add_for(&self, request: PlaceRequest, open: Arc<OpenZone>) {
        let mut state = self.state.lock();
        assert_eq!(open.lease.role(), Role::Data, "GC's zone is not of the placement");
        let index = state.slots.len();
        state.slots.push(Slot { open, lifetime: request.lifetime, used: 0 });
        state.take(request, index);
        state.written.iter_mut().for_each(|blocks| *blocks -= *blocks / 4);
    }

    /// Removes the zone. It is compared by address, because the same zone may be open again in a later life.
    fn retire(&self, open: &OpenZone) {
        self.state.lock().slots.retain(|slot| !std::ptr::eq(&*slot.open, open));
    }

    /// Whether writes are sent to this zone.
    fn has(&self, open: &OpenZone) -> bool {
        self.state.lock().slots.iter().any(|slot| std::ptr::eq(&*slot.open, open))
    }

    /// What can be written, with the present mix of classes, before more zones are needed than are open. `payload`
    /// returns the payload of a zone with this number of free blocks.
    pub(crate) fn open_headroom(&self, payload: impl Fn(Blocks) -> Blocks) -> OpenHeadroom {
        let state = self.state.lock();
        let mut headroom = [0; CLASSES_MAX];
        for slot in &state.slots {
            headroom[class_of(slot.lifetime)] += i64::from(payload(slot.open.lease.free_blocks()));
        }
        let has_zone = |class| state.slots.iter().any(|slot| class_of(slot.lifetime) == class);
        let all: i64 = headroom.iter().sum();
        if state.classes() < CLASSES_MAX {
            return OpenHeadroom { until: vec![all], is_shared: false };
        }
        // A class without a zone shares with the other until there is a free zone, and takes it first. A zone that it
        // takes over until then is mixed as well.
        if !has_zone(0) || !has_zone(1) {
            return OpenHeadroom { until: vec![all; CLASSES_MAX], is_shared: true };
        }
        let written: u64 = state.written.iter().sum();
        let until = |class: usize| {
            let share = state.written[class] as f64 / written.max(1) as f64;
            (headroom[class] as f64 / share.max(1.0 / WRITTEN_SHARE as f64)) as i64
        };
        let (first, second) = (until(0).min(until(1)), until(0).max(until(1)));
        OpenHeadroom { until: vec![first.min(all), second.min(all)], is_shared: false }
    }

    /// Free blocks of the open zones.
    pub(crate) fn free_blocks(&self) -> i64 {
        self.state.lock().slots.iter().map(|slot| i64::from(slot.open.lease.free_blocks())).sum()
    }

    /// The lifetime class of each open zone.
    pub(crate) fn classes(&self) -> Vec<(ZoneId, Lifetime)> {
        self.state.lock().slots.iter().map(|slot| (slot.open.lease.zone(), slot.lifetime)).collect()
    }

    /// The open zones.
    fn open_zones(&self) -> Vec<Arc<OpenZone>> {
        self.state.lock().slots.iter().map(|slot| Arc::clone(&slot.open)).collect()
    }

    /// The number of zones that should be open, at least one for each class.
    pub(crate) fn open_max(&self) -> usize {
        let state = self.state.lock();
        state.open_max.max(state.classes())
    }

    /// The number of zones that should be open beside one for each class.
    pub(crate) fn open_max_beyond_classes(&self) -> usize {
        let state = self.state.lock();
        state.open_max.saturating_sub(state.classes())
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

/// Finds and opens zones for data, and closes them.
pub(crate) struct Placer {
    maps: Arc<ObjectMaps>,
    budget: Arc<Budget>,
    reverse: Arc<ReverseMaps>,
    charges: Arc<Charges>,
    placement: Placement,
    /// Spreads counts of space over openings of zones.
    openings: Amortized,
    /// The smallest payload of the zones that could be written at the mount.
    payload_min: Blocks,
}

impl Placer {
    pub(crate) fn new(
        maps: &Arc<ObjectMaps>,
        budget: &Arc<Budget>,
        reverse: &Arc<ReverseMaps>,
        charges: &Arc<Charges>,
    ) -> Placer {
        let payload_min = payload_min(maps.store(), maps.packing());
        Placer {
            maps: Arc::clone(maps),
            budget: Arc::clone(budget),
            reverse: Arc::clone(reverse),
            charges: Arc::clone(charges),
            placement: Placement::new(),
            openings: Amortized::new(maps.device().geometry().zones),
            payload_min,
        }
    }

    pub(crate) fn maps(&self) -> &Arc<ObjectMaps> {
        &self.maps
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    pub(crate) fn reverse(&self) -> &Arc<ReverseMaps> {
        &self.reverse
    }

    pub(crate) fn payload_min(&self) -> Blocks {
        self.payload_min
    }

    /// An open zone for this write, opened if there is none and one is free. Waits for another zone to be closed if all
    /// leases are in use.
    pub(crate) fn search(&self, request: PlaceRequest) -> Result<Search> {
        let closed = self.placement.open_count.closed();
        let may_open = self.placement.count() < self.placement.open_max() && !self.is_out_of_zones();
        if let Some(open) = self.placement.choose(request, may_open) {
            return Ok(Search::Found(open));
        }
        let opening = self.placement.opening.lock();
        if let Some(open) = self.placement.choose(request, may_open) {
            return Ok(Search::Found(open));
        }
        self.placement.is_opening.store(true, Ordering::Relaxed);
        let opened = self.open_zone(Role::Data);
        if let Ok(OpenAttempt::Zone(open)) = &opened {
            self.placement.add_for(request, Arc::clone(open));
        }
        self.placement.is_opening.store(false, Ordering::Relaxed);
        let opened = match opened {
            // The device has no space for another zone: an open one has to do.
            Err(ExtentError::NoSpace) => {
                drop(opening);
                return self.any(request).map(Search::Found);
            }
            opened => opened?,
        };
        if self.openings.is_due() {
            self.placement.set_open_max(self.count_open_wanted());
        }
        // The next zone is another one, and so is the debt.
        self.charges.forgive();
        if let OpenAttempt::Zone(open) = opened {
            return Ok(Search::Found(open));
        }
        drop(opening);
        match (self.placement.choose(request, false), opened) {
            (Some(open), _) => Ok(Search::Found(open)),
            (None, OpenAttempt::NoLease) if self.placement.open_count.wait(closed) => Ok(Search::Again),
            (None, OpenAttempt::NoLease) => Err(self.no_lease()),
            (None, _) => Ok(Search::NoZone),
        }
    }

    /// Any open zone, suitable or not.
    pub(crate) fn any(&self, request: PlaceRequest) -> Result<Arc<OpenZone>> {
        self.placement.choose(request, false).ok_or(ExtentError::NoSpace)
    }

    /// Whether there is no zone that data may open now.
    pub(crate) fn is_out_of_zones(&self) -> bool {
        self.maps.pool().free() <= self.maps.pool().reserved_from(Role::Data)
    }

    /// The number of zones that should be open for user writes.
    pub(crate) fn count_open_wanted(&self) -> usize {
        self.open_zones_wanted(self.budget.blocks_unused())
    }

    /// How many zones of user data should be open at once: many while many blocks are free or dead, one when there are few.
    pub(crate) fn open_zones_wanted(&self, unused_blocks: i64) -> usize {
        let most = i64::from(self.maps.store().leases_for_data()).min(self.open_zones_of_log());
        let request = unused_blocks / (FREE_PER_OPEN * i64::from(self.payload_min.max(1)));
        request.clamp(1, most.max(1)) as usize
    }

    /// How many zones may be open so that their entries leave the log headroom. A checkpoint carries the entries that no
    /// summary has, about a block for each zone. Beside that, the log reserves twice the size of the last checkpoint.
    fn open_zones_of_log(&self) -> i64 {
        let geometry = self.maps.device().geometry();
        let log_bytes = i64::from(geometry.zone_blocks) * i64::from(geometry.block_size);
        let of_all_blocks = i64::from(self.payload_min) * Entry::bytes_for(1) as i64;
        let of_a_zone = of_all_blocks.clamp(1, i64::from(geometry.block_size));
        log_bytes / ENTRIES_SHARE / of_a_zone
    }

    fn no_lease(&self) -> ExtentError {
        let why = "the device has no open zone left for data: unfinished zones use them all";
        StoreError::Device(DeviceError::Unusable(why.to_owned())).into()
    }

    /// Opens a zone for data or for garbage collection.
    pub(crate) fn open_zone(&self, role: Role) -> Result<OpenAttempt> {
        assert!(role.holds_data(), "the store opens its own zones");
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.maps.store().open_zone(role) {
                Ok(Some(lease)) => return Ok(OpenAttempt::Zone(self.adopt(lease, Unfinished::default()))),
                Ok(None) => return Ok(OpenAttempt::NoZone),
                Err(StoreError::Device(DeviceError::TooManyOpen { .. })) => return Ok(OpenAttempt::NoLease),
                Err(StoreError::Device(error)) if error.ends_zone() && attempts < OPEN_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes an open zone of a leased one.
    pub(crate) fn adopt(&self, lease: Lease, unfinished: Unfinished) -> Arc<OpenZone> {
        let name = ZoneName { fs_id: self.maps.store().info().fs_id, zone: lease.zone(), life: lease.life() };
        let map = self.reverse.add(ZoneMap::new(name, self.maps.packing(), unfinished));
        // No thread waits for GC's target to close.
        let open_count = match lease.role() {
            Role::Data => Arc::clone(&self.placement.open_count),
            _ => Arc::default(),
        };
        Arc::new(OpenZone::new(lease, map, &open_count))
    }

    /// Removes the zone from the placement, and closes it if no append is in flight to it.
    pub(crate) fn retire(&self, open: &OpenZone) -> Result<()> {
        open.map.lock().fill();
        self.placement.retire(open);
        self.close_when_idle(open)
    }

    /// Closes the open conventional zones, and this one.
    pub(crate) fn close_conventional(&self, target: Option<Arc<OpenZone>>) {
        let is_conventional =
            |open: &Arc<OpenZone>| self.maps.device().geometry().is_conventional(open.lease.zone());
        for open in self.placement.open_zones().into_iter().filter(is_conventional).chain(target) {
            if let Err(error) = self.retire(&open) {
                tracing::warn!(zone = open.lease.zone().0, %error, "a zone is left without a footer");
            }
        }
    }

    /// After a batch of appends, retires the zone if it is full or has failed.
    pub(crate) fn retire_if_full(&self, open: &OpenZone) -> Result<()> {
        if open.lease.has_failed() || open.map.lock().is_full() {
            self.retire(open)?;
        }
        Ok(())
    }

    fn append_summary(&self, open: &OpenZone, summary: &Summary) {
        let place = open.lease.append_in_pieces(Cause::ReverseMap, &summary.bytes).ok();
        open.map.lock().end_summary(summary, place);
    }

    fn close_when_idle(&self, open: &OpenZone) -> Result<()> {
        let Some(rest) = open.map.lock().take_rest(&open.lease) else { return Ok(()) };
        self.maps.appends().submit_deferred();
        if let Some(summary) = rest {
            self.append_summary(open, &summary);
        }
        assert!(!self.placement.has(open), "a zone that is closed takes no more writes");
        let footer = open.map.lock().take_footer(&open.lease);
        let place = footer.and_then(|bytes| open.lease.append_in_pieces(Cause::ReverseMap, &bytes).ok());
        let zone = open.lease.zone();
        if (open.lease.has_failed() || open.lease.free_blocks() > 0)
            && let Err(error) = self.maps.device().finish(zone)
        {
            tracing::warn!("zone {} cannot be finished: {error}", zone.0);
        }
        let (stream, filled_at) = self.maps.learned().stamp(open.lease.role(), open.lifetime());
        let user = ZoneUser { footer: place.unwrap_or(0), closed: true, stream, filled_at };
        let mut tx = Tx::reclaiming();
        tx.zone_user(zone, user.encode());
        let committed = self.maps.store().commit(tx);
        let how = match (&committed, place) {
            (Ok(lsn), Some(_)) => Closed::Footer(*lsn),
            _ => Closed::Without,
        };
        open.map.lock().close(how);
        self.maps.pool().close(zone);
        self.maps.learned().zone_was_filled(self.maps.store(), zone, &user);
        self.reverse.prune(self.maps.store());
        committed?;
        Ok(())
    }
}

/// The smallest payload of the zones that can be written.
fn payload_min(store: &Store, packing: Packing) -> Blocks {
    let zones = (0..store.pool().count()).map(ZoneId).filter(|&zone| store.pool().is_of_use(zone));
    let reported = zones.map(|zone| store.pool().info(zone));
    let writable = reported.filter(|info| !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline));
    writable.map(|info| packing.payload(info.capacity)).min().unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests;
