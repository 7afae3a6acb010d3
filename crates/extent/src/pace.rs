//! How fast garbage is collected: as late as it can be, and in step with what is written.
//!
//! Two numbers decide. *Room* is what fresh data can still take: the rest of the open zones and the zones
//! that may be opened. *Debt* is what must be moved until one more zone can be opened than now. While room is
//! plenty nothing is moved: what dies meanwhile need not be. Below a room to begin with, every block that
//! is written owes debt / room, less what moving will take of the room: as much as it takes for a zone to be won when
//! the room ends, if nothing changes. No writer finds everything still to be done.
//!
//! Both are counted in blocks, not in zones, so that neither jumps when a zone is opened or is going to be: the room
//! left in garbage collection's zone counts like that of a free one, and what metadata will need soon is kept back
//! little by little. Where two classes of lifetime have zones of their own, room for two zones is looked at as
//! well: they may end one right after the other.
//!
//! The background step pays as soon as anything is owed, and has what it moved beyond that to its credit. A writer pays
//! when more is owed than a small allowance: with what he appends he moves a chunk, in the same batch, if what comes
//! next has been read and nobody else is at it. He insists when more is owed than there is room, and where no background
//! step moves anything he pays his whole share. Nobody else pays: not a reader, not an fsync; and nobody pays with a
//! lock of an object.
//!
//! This file does no moving (`gc.rs`) and promises no space (`space.rs`). When a writer finds no zone at
//! all (others took the room faster than they paid, or what was to be moved could not be), `place.rs`
//! collects until there is one.

use rt::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use zone::{Blocks, Life, ZoneId};

use crate::format::Entry;
use crate::gc::{Aim, Along, GcState, Progress};
use crate::write::{Appending, Piece};
use crate::{Extents, Result};

/// Bytes that may be owed before writers pay themselves when room ends …
const ALLOWANCE_BYTES: u64 = 1 << 20;
/// … or a share of a zone, if that is less.
const ALLOWANCE_SHARE: i64 = 16;
/// So many times as much while there is room, and no more than such a share of it: a background that is held up for a
/// moment, by a reset say, has the time to pay.
const ALLOWANCE_TIMES: i64 = 4;
const ALLOWANCE_OF_ROOM: i64 = 4;
/// The background moves at once such a share of what is owed for a chunk's worth that is written …
const BACKGROUND_SHARE: f64 = 0.8;
/// … and a writer such a one, …
const WRITER_SHARE: f64 = 0.4;
/// … but a chunk at least, and no more than so many.
const CHUNKS_MAX: f64 = 5.0;
/// Writers have paid so often since the background did: it is not there, or does not come to it.
const ALONE_AFTER: u64 = 32;
/// What a block owes is counted in such parts of a block.
const PARTS: i64 = 1024;
/// The rate is found anew whenever such a share of a zone has gone.
const ROOM_SHARE: i64 = 32;
/// A part of a zone: with less room than that, no write owes more than with as much.
const END_SHARE: i64 = 24;
/// Spare zones for each open zone: what is free in an open zone is not to be had elsewhere.
const SPARE_PER_OPEN: i64 = 8;
/// The share of a log zone that entries of open zones take at most.
const ENTRIES_SHARE: i64 = 8;
/// In the part of a zone before metadata needs one more, that is kept as well.
const METADATA_PART: u32 = 2;
/// Candidates looked at to find out what a zone costs.
const CANDIDATES_MAX: usize = 256;

/// What is owed, and how much each written block adds.
#[derive(Default)]
pub(crate) struct Pace {
    /// Parts of a block that each written block owes; 0 while room is plenty.
    rate: AtomicI64,
    /// Parts of a block.
    owed: AtomicI64,
    /// The room for which the rate was found.
    room: AtomicI64,
    /// Room in the zone that garbage collection writes, when it was last looked at.
    target_room: AtomicI64,
    /// How often writers have paid since the background moved something.
    paid_alone: AtomicU64,
    /// The background is to be called when something is owed: it sleeps, or may find that it can.
    sleeps: AtomicBool,
}

impl Pace {
    /// Nothing is owed, and nothing will be until the rate is found anew.
    pub(crate) fn rest(&self) {
        self.rate.store(0, Ordering::Relaxed);
        self.owed.store(0, Ordering::Relaxed);
    }

    /// Nobody owes more than the debt.
    fn set(&self, rate: i64, debt: i64, room: i64) {
        self.room.store(room, Ordering::Relaxed);
        self.rate.store(rate.max(1), Ordering::Relaxed);
        self.owed.fetch_min(debt * PARTS, Ordering::Relaxed);
    }

    /// Whether the rate is to be found anew: there is none, or so much of the room has gone since.
    fn is_outdated(&self, room: i64, step: i64) -> bool {
        self.is_resting() || self.room.load(Ordering::Relaxed) - room >= step
    }

    fn is_resting(&self) -> bool {
        self.rate.load(Ordering::Relaxed) == 0
    }

    fn wrote(&self, blocks: u64) {
        let owes = self.rate.load(Ordering::Relaxed).saturating_mul(blocks as i64);
        self.owed.fetch_add(owes, Ordering::Relaxed);
    }

    /// Blocks were moved.
    pub(crate) fn paid(&self, blocks: u64, credit: i64) {
        // Who has paid a whole piece of work ahead has the rest of it to his credit.
        let less = |owed: i64| Some((owed - blocks as i64 * PARTS).max(-credit * PARTS));
        let _ = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Blocks to be moved for each that is written.
    pub(crate) fn moved_per_written(&self) -> f64 {
        self.rate.load(Ordering::Relaxed) as f64 / PARTS as f64
    }

    /// Whether the background is to be woken.
    pub(crate) fn take_call(&self) -> bool {
        self.owed_blocks() > 0
            && self.sleeps.load(Ordering::SeqCst)
            && self.sleeps.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn owed_blocks(&self) -> i64 {
        self.owed.load(Ordering::Relaxed) / PARTS
    }

    #[cfg(test)]
    pub(crate) fn owe(&self, blocks: i64) {
        self.owed.fetch_add(blocks * PARTS, Ordering::Relaxed);
    }
}

/// What emptying some zones wins.
pub(crate) struct Gain {
    /// Blocks that go to the zone that is written already.
    into: i64,
    /// Blocks that another zone takes.
    payload: i64,
    freed: i64,
    moved: i64,
}

impl Gain {
    /// One more zone is emptied, in which so many blocks live.
    pub(crate) fn add(&mut self, live: Blocks) {
        self.freed += 1;
        self.moved += i64::from(live);
    }

    /// Zones that are free afterwards, less those that what is moved needs.
    pub(crate) fn zones(&self) -> i64 {
        let beyond = (self.moved - self.into).max(0);
        self.freed - (beyond + self.payload - 1) / self.payload
    }
}

impl Extents {
    /// A writer is about to append so many blocks: how many he may be asked to move with them, if he is to pay.
    pub(crate) fn owes(&self, blocks: u64) -> Option<usize> {
        if !self.is_room_short() {
            self.pace.rest();
            return None;
        }
        let step = i64::from(self.payload_min) / ROOM_SHARE;
        if self.pace.is_outdated(self.room(), step)
            && let Some(gc) = self.gc.try_lock()
        {
            self.set_pace(&gc);
        }
        self.pace.wrote(blocks);
        let share = (self.pace.moved_per_written() * blocks as f64).ceil() as usize;
        (self.pace.owed_blocks() > self.allowance()).then_some(share.max(self.chunk_blocks()))
    }

    /// Appends what a writer has, and moves a chunk with it; if nobody else moves anything all that he owes, but no more
    /// than so many blocks. Call with no map lock.
    pub(crate) fn pay(&self, most: usize, fresh: &mut Appending<'_, '_>) -> Result<Vec<Piece>> {
        let mut along = Along::new(fresh);
        // Who had to make room has paid already.
        let paid = match self.pace.owed_blocks() > self.allowance() {
            true => self.pay_along(most, &mut along),
            false => Ok(()),
        };
        match along.end() {
            // It was appended: that something else was not moved is met again by whoever moves it.
            Ok(appended) => {
                paid.unwrap_or_else(|error| tracing::warn!("garbage collection: {error}"));
                appended
            }
            Err(fresh) => paid.and_then(|()| self.append_some(fresh, Vec::new())),
        }
    }

    fn pay_along(&self, most: usize, along: &mut Along<'_, '_, '_>) -> Result<()> {
        let is_alone = self.pace.paid_alone.load(Ordering::Relaxed) >= ALONE_AFTER;
        let must = is_alone || self.pace.owed_blocks() > self.room();
        let payer = if must { Some(self.gc.lock()) } else { self.gc.try_lock() };
        // Others are at it, or what comes next is still to be read: there is time for that.
        let Some(mut gc) = payer.filter(|gc| must || gc.is_read()) else { return Ok(()) };
        self.pace.paid_alone.fetch_add(1, Ordering::Relaxed);
        let before = gc.blocks_moved();
        loop {
            let moved = gc.blocks_moved() - before;
            let left = (most as u64).saturating_sub(moved) as usize;
            let is_enough =
                moved > 0 && !is_alone || left == 0 || self.pace.owed_blocks() <= self.allowance();
            if is_enough || !self.pay_some(&mut gc, self.chunk(WRITER_SHARE).min(left), Some(along))? {
                return Ok(());
            }
        }
    }

    /// Blocks that are moved at once: such a share of what is owed for as many that are written.
    fn chunk(&self, share: f64) -> usize {
        let times = (self.pace.moved_per_written() * share).clamp(1.0, CHUNKS_MAX);
        (self.chunk_blocks() as f64 * times) as usize
    }

    /// The same when the background moves them.
    pub(crate) fn chunk_in_background(&self) -> usize {
        self.chunk(BACKGROUND_SHARE)
    }

    /// The background step's part: whether it did something.
    pub(crate) fn pay_in_background(&self) -> Result<bool> {
        // Before it is looked at what is owed: who adds something afterwards calls.
        self.pace.sleeps.store(true, Ordering::SeqCst);
        match self.gc.try_lock() {
            // Victims that are empty need only be given up: the next writer may wait for their zones.
            Some(mut gc) if self.pace.owed_blocks() > 0 || gc.is_moved() => {
                let worked = self.pay_some(&mut gc, self.chunk_in_background(), None);
                self.pace.paid_alone.store(0, Ordering::Relaxed);
                // What fails is tried again after a while, whoever calls.
                if !matches!(worked, Ok(false)) {
                    self.pace.sleeps.store(false, Ordering::SeqCst);
                }
                worked
            }
            _ => Ok(false),
        }
    }

    /// Moves so much, and appends what comes along with it, if anything is moved; false when nothing more can be won or
    /// need be.
    fn pay_some(
        &self,
        gc: &mut GcState,
        blocks: usize,
        along: Option<&mut Along<'_, '_, '_>>,
    ) -> Result<bool> {
        // Victims that are empty are given up all the same: only then are they reset.
        if !gc.is_moved() && !self.is_room_short() {
            self.pace.rest();
            return Ok(false);
        }
        if self.collect_some(gc, Aim::Pace, blocks, along)? == Progress::Nothing {
            self.pace.rest();
            return Ok(false);
        }
        self.set_pace(gc);
        Ok(!self.pace.is_resting())
    }

    /// What each block owes from now on.
    fn set_pace(&self, gc: &GcState) {
        if self.store.zones().dead() > 0 {
            self.emptied.store(true, Ordering::Relaxed);
        }
        self.pace.target_room.store(gc.target_room(self.packing), Ordering::Relaxed);
        let begin = self.room_to_begin();
        let spare = self.spare(gc.target_room(self.packing)).max(0);
        let mut fastest: Option<(i64, i64)> = None;
        let rooms = self.rooms();
        for (&room, zones) in rooms.iter().zip(1..) {
            let Some(debt) = self.debt(gc, zones) else { continue };
            if room <= begin * zones {
                // What is moved takes of the spare zones until the first victim is empty.
                let for_data = room - debt.min(spare % i64::from(self.payload_min.max(1)));
                let rate = PARTS * debt / for_data.max(self.room_to_end());
                fastest = fastest.max(Some((rate, debt)));
            }
        }
        match fastest {
            Some((rate, debt)) => self.pace.set(rate, debt, rooms[0]),
            None => self.pace.rest(),
        }
    }

    /// Whether it is time to collect garbage.
    pub(crate) fn is_room_short(&self) -> bool {
        let begin = self.room_to_begin();
        self.rooms().iter().zip(1..).any(|(&room, zones)| room <= begin * zones)
    }

    /// Blocks that fresh data can take before a zone must have been emptied.
    pub(crate) fn room(&self) -> i64 {
        self.rooms()[0]
    }

    /// The same for one zone, and for two if there are two classes of data.
    fn rooms(&self) -> Vec<i64> {
        let spare = self.spare(self.pace.target_room.load(Ordering::Relaxed));
        let mut rooms = self.placement.rooms(|room| self.packing.payload(room));
        rooms.iter_mut().for_each(|room| *room += spare.max(0));
        rooms
    }

    /// With one open zone for each class: when the last one that could be opened has been. With more of them
    /// about as much as is left in the others when that happens.
    pub(crate) fn room_to_begin(&self) -> i64 {
        let beyond = self.placement.open_beyond() as i64;
        i64::from(self.payload_min) * (beyond + 2) / 2
    }

    /// The room below which writes do not owe more and more.
    fn room_to_end(&self) -> i64 {
        (i64::from(self.payload_min) / END_SHARE).max(1)
    }

    /// Blocks to be moved until so many more zones can be opened than now: of the victims in hand, and of as many
    /// more as it takes. None: however many are emptied, their contents need as many.
    pub(crate) fn debt(&self, gc: &GcState, more: i64) -> Option<i64> {
        let zones = self.store.zones();
        let payload = i64::from(self.payload_min.max(1));
        let mut lacking = more * payload - self.spare(gc.target_room(self.packing));
        // One that has been reset already is among the free ones.
        let is_there = |&(zone, life): &(ZoneId, Life)| {
            let entry = zones.entry(zone);
            entry.life == life && entry.role.holds_data()
        };
        let in_hand: Vec<ZoneId> = gc.victims_as_chosen().filter(is_there).map(|(zone, _)| zone).collect();
        let candidates = self.ranked_victims(Aim::Pace, CANDIDATES_MAX + in_hand.len());
        let others = candidates
            .into_iter()
            .filter(|&(zone, _)| !in_hand.contains(&zone) && !self.is_waiting(gc, zone));
        let victims = in_hand.iter().map(|&zone| (zone, zones.entry(zone).live)).chain(others);
        // Those in which nothing lives count as free.
        let victims = victims.filter(|&(_, live)| live > 0);
        let (mut moved, mut wins) = (0, false);
        for (live, won) in victims.map(|(_, live)| (i64::from(live), payload - i64::from(live))) {
            wins |= won > 0;
            if lacking <= 0 && wins {
                return Some(moved);
            }
            if won > 0 {
                moved += live;
                lacking -= won;
            }
        }
        (lacking <= 0 && wins).then_some(moved)
    }

    /// Blocks to be moved for one zone more than there are now.
    pub(crate) fn debt_of_one_more(&self, gc: &GcState) -> Option<i64> {
        let spare = self.spare(gc.target_room(self.packing)).max(0);
        self.debt(gc, 1 + spare / i64::from(self.payload_min.max(1)))
    }

    /// Blocks of zones that fresh data may open, beside those for what garbage collection moves: when its zone
    /// is full it opens one, and that is to be no surprise. Less than none when some are lacking.
    fn spare(&self, target_room: i64) -> i64 {
        let payload = i64::from(self.payload_min.max(1));
        self.free_soon() * payload - self.room_kept() - (payload - target_room).max(0)
    }

    /// Zones that are free, or need only be reset, or are being reset.
    fn free_soon(&self) -> i64 {
        i64::from(self.store.zones().free_soon())
    }

    /// Room in free zones that fresh data is not to need: those that it must leave and, shortly before metadata
    /// needs one more, more and more of that: with less, garbage collection could not open a zone of its own any
    /// more when metadata has taken it.
    fn room_kept(&self) -> i64 {
        let zones = self.store.zones();
        let zone = i64::from(self.device.geometry().zone_blocks);
        let part = (zone / i64::from(METADATA_PART)).max(1);
        let payload = i64::from(self.payload_min);
        let until = zones.room_until_more_is_kept();
        let needed_soon = match until {
            0.. => payload * (part - until).max(0) / part,
            // One when the room is used up, and more for what does not fit into that.
            _ => payload + payload * -until / zone,
        };
        i64::from(zones.kept_from_data()) * payload + needed_soon
    }

    /// Zones that must be won so that there is one more than must be.
    pub(crate) fn zones_to_win(&self) -> i64 {
        let payload = i64::from(self.payload_min.max(1));
        let kept = (self.room_kept() + payload / 2) / payload;
        (kept - self.free_soon()).max(0) + 1
    }

    /// What emptying zones wins, beginning with the room in the zone that is written.
    pub(crate) fn gain_of(&self, gc: &GcState) -> Gain {
        let (into, payload) = (gc.target_room(self.packing), i64::from(self.payload_min.max(1)));
        Gain { into, payload, freed: 0, moved: 0 }
    }

    /// Blocks that may be owed before writers pay themselves.
    pub(crate) fn allowance(&self) -> i64 {
        let bytes = (ALLOWANCE_BYTES / u64::from(self.block_size())) as i64;
        let least = bytes.min(i64::from(self.payload_min) / ALLOWANCE_SHARE).max(1);
        (self.room() / ALLOWANCE_OF_ROOM).clamp(least, least * ALLOWANCE_TIMES)
    }

    /// How many zones of fresh data should be open at once: many while there is much that is free or
    /// dead, one when there is little.
    pub(crate) fn open_zones_wanted(&self, spare_blocks: i64) -> usize {
        let most = i64::from(self.store.zones().leases_for_data()).min(self.open_zones_of_log());
        let wanted = spare_blocks / (SPARE_PER_OPEN * i64::from(self.payload_min.max(1)));
        wanted.clamp(1, most.max(1)) as usize
    }

    /// How many zones may be open so that their entries leave the log room: a checkpoint carries what no summary has,
    /// about a block of each zone, and the log keeps room for twice the last checkpoint beside that one.
    fn open_zones_of_log(&self) -> i64 {
        let geometry = self.device.geometry();
        let log_bytes = i64::from(geometry.zone_blocks) * i64::from(geometry.block_size);
        let of_all_blocks = i64::from(self.payload_min) * Entry::bytes_for(1) as i64;
        let of_a_zone = of_all_blocks.clamp(1, i64::from(geometry.block_size));
        log_bytes / ENTRIES_SHARE / of_a_zone
    }
}
