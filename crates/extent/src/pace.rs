//! How fast garbage is collected: as late as it can be, and in step with what is written.
//!
//! Two numbers decide. *Room* is what fresh data can still take before it needs a zone that is not there: the rest of the
//! open zones, and the zones that may be opened. *Debt* is what must be moved until that zone is there. While room is
//! plenty, or the zone is there, nothing is owed: what dies meanwhile need not be. Below a room to begin with, every
//! block that is written owes debt / room, so that the zone is won shortly before the room ends, if nothing changes. No
//! writer finds everything still to be done.
//!
//! Debt is counted as it will happen: a victim is a zone won when all that lives in it has been moved, and not before; and
//! what is moved takes a zone whenever the one that garbage collection writes is full. It takes that of those that are
//! kept for it, and the next victims give it back before fresh data needs one. So nothing else is set aside for it: with
//! few zones each that stands free is missing among the dead. Only metadata's next zone is foreseen, little by little, by
//! a part of what one zone more would take: metadata takes it whatever is left. Where two classes of lifetime have zones
//! of their own, two zones are looked at as well: they may end one right after the other.
//!
//! The background step pays as soon as anything is owed, one or two chunks at once, and has what it moved beyond that to
//! its credit. A writer pays when more is owed than a small allowance: he waits until whoever is at it has moved what he
//! has in hand, and if still more is owed, and what comes next has been read, he moves a chunk with what he appends, in the
//! same batch. So writers are held up as much as garbage collection lags. Where more is owed than there is room, or no
//! background step moves anything, he also looks up and reads what is to be moved, and in the second case pays his whole
//! share. Whoever writes so little that less than a chunk is to be moved for it is let go until so much has come together
//! from such writes: a block that is written beside somebody's megabytes does not wait for their sake, unless there is no
//! room left. If nothing has been read by then, nothing is moved for it and it stays owed. The collector's lock is let go
//! fairly after each piece of work: who waits for it has it next. Nobody else pays: not a reader, not an fsync; and nobody
//! pays with a lock of an object.
//!
//! What is moved while nobody writes, before any of it is owed, is in `pace/ahead.rs`; how metadata's next zone is
//! foreseen, in `pace/foreseen.rs`.
//!
//! This file does no moving (`gc.rs`) and promises no space (`space.rs`). When a writer finds no zone at
//! all (others took the room faster than they paid, or what was to be moved could not be), `place.rs`
//! collects until there is one.

mod ahead;
mod foreseen;

use rt::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use zone::{Blocks, Life, Role, ZoneId};

use crate::format::Entry;
use crate::gc::{Aim, Along, GcState, Progress};
use crate::write::{Appending, Piece};
use crate::{Extents, Result};

use ahead::Ahead;
pub use ahead::Writing;
use foreseen::EpochSeen;

/// Bytes that may be owed before writers pay themselves when room ends …
const ALLOWANCE_BYTES: u64 = 1 << 20;
/// … or a share of a zone, if that is less.
const ALLOWANCE_SHARE: i64 = 16;
/// So many times as much while there is room, and no more than such a share of it: a background that is held up for a
/// moment, by a reset say, has the time to pay.
const ALLOWANCE_TIMES: i64 = 4;
const ALLOWANCE_OF_ROOM: i64 = 4;
/// The background moves at once what is owed, but a chunk at least and no more than so many …
const CHUNKS_IN_BACKGROUND: usize = 2;
/// … and a writer such a share of what is owed for a chunk's worth that is written, …
const WRITER_SHARE: f64 = 0.6;
/// … but a chunk at least, and no more than so many.
const CHUNKS_MAX: f64 = 5.0;
/// Writers have found so often that nothing was read since the background did something: it is not there, or does not
/// come to it.
const ALONE_AFTER: u64 = 32;
/// What a block owes is counted in such parts of a block.
const PARTS: i64 = 1024;
/// The rate is found anew whenever such a share of a zone has gone.
const ROOM_SHARE: i64 = 32;
/// A part of a zone: with less room than that, no write owes more than with as much.
const END_SHARE: i64 = 24;
/// A zone is won when there is still room for so many bytes, or such a share of a zone if that is less: it has to be
/// reset, and writes come in pieces.
const AHEAD_BYTES: i64 = 2 << 20;
const AHEAD_SHARE: i64 = 8;
/// Half a zone before it must have been won, and so much before that, collection begins: later, and more would have died;
/// sooner, and less is moved at once.
const BEGIN_BYTES: i64 = 8 << 20;
/// Spare zones for each open zone: what is free in an open zone is not to be had elsewhere.
const SPARE_PER_OPEN: i64 = 8;
/// The share of a log zone that entries of open zones take at most.
const ENTRIES_SHARE: i64 = 8;
/// With such a share of a zone left fresh data is about to open the next one.
const ABOUT_TO_OPEN: i64 = 2;
/// No extent is taken to be longer than such a share of a zone.
const EXTENT_SHARE: Blocks = 8;
/// What is moved at once is at least such a share of a chunk.
const PIECE_SHARE: i64 = 4;
/// What the zone costs that a class without one is to have, each block owes as if such a part of the room were all.
const SHARED_SHARE: i64 = 8;
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
    /// How often writers have found that nothing was read to be moved, since the background moved something.
    unread: AtomicU64,
    /// The background is to be called when something is owed: it sleeps, or may find that it can.
    sleeps: AtomicBool,
    /// Who writes, and what has been moved ahead.
    ahead: Ahead,
    /// The epoch by which metadata's next zone is foreseen.
    epoch: EpochSeen,
    /// Blocks that those who write little were to move and were not asked for; less than none where several have
    /// completed a chunk at once, until as much has come together.
    gathered: AtomicI64,
}

impl Pace {
    /// Nothing is owed, and nothing will be until the rate is found anew.
    pub(crate) fn rest(&self) {
        self.rate.store(0, Ordering::Relaxed);
        self.owed.store(0, Ordering::Relaxed);
    }

    /// Nobody owes more than the debt, and all of it when it is due.
    fn set(&self, due: Due, room: i64) {
        self.room.store(room, Ordering::Relaxed);
        self.rate.store(due.rate.max(1), Ordering::Relaxed);
        self.owed.fetch_min(due.debt * PARTS, Ordering::Relaxed);
        if due.is_now {
            self.owed.fetch_max(due.debt * PARTS, Ordering::Relaxed);
        }
    }

    /// Whether the rate is to be found anew: there is none, or so much of the room has gone since.
    fn is_outdated(&self, room: i64, step: i64) -> bool {
        self.is_resting() || self.room.load(Ordering::Relaxed) - room >= step
    }

    fn is_resting(&self) -> bool {
        self.rate.load(Ordering::Relaxed) == 0
    }

    /// Somebody is to move less than a chunk: whether those before him and he are to move one by now, which he does.
    fn gather(&self, blocks: usize, chunk: usize) -> bool {
        let (blocks, chunk) = (blocks as i64, chunk as i64);
        let is_whole = self.gathered.fetch_add(blocks, Ordering::Relaxed) + blocks >= chunk;
        if is_whole {
            self.gathered.fetch_sub(chunk, Ordering::Relaxed);
        }
        is_whole
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

    /// Somebody writes, until what this returns is dropped.
    pub(crate) fn writing(&self) -> Writing<'_> {
        self.ahead.writing()
    }

    /// Blocks to be moved for each that is written.
    pub(crate) fn moved_per_written(&self) -> f64 {
        self.rate.load(Ordering::Relaxed) as f64 / PARTS as f64
    }

    /// Whether the background is to be woken: something is owed, or nobody writes any more.
    pub(crate) fn take_call(&self) -> bool {
        self.owed_blocks() > 0 && take(&self.sleeps) || self.ahead.take_call()
    }

    pub(crate) fn owed_blocks(&self) -> i64 {
        self.owed.load(Ordering::Relaxed) / PARTS
    }

    #[cfg(test)]
    pub(crate) fn owe(&self, blocks: i64) {
        self.owed.fetch_add(blocks * PARTS, Ordering::Relaxed);
    }
}

/// Takes a flag down: whether it was up.
fn take(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst) && flag.swap(false, Ordering::SeqCst)
}

/// What is to be moved, and how fast.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// Parts of a block for each block that is written.
    rate: i64,
    /// Blocks.
    debt: i64,
    /// There is no more room in which to do it little by little.
    is_now: bool,
}

/// The next zone that fresh data needs, or the one after that.
#[derive(Clone, Copy)]
struct Need {
    /// Blocks that it can take before.
    room: i64,
    /// Blocks by which what they cost is divided: less than the room where data of one class goes to the other's zone.
    due_in: i64,
    /// Zones to be won, with a part of what is foreseen; none, or less: it is there.
    zones: f64,
    /// By then no zone is open any more that takes this data, if need be: one of the other class does.
    is_hard: bool,
}

impl Need {
    /// Whether data goes to the other class's zone until then.
    fn is_soon(&self) -> bool {
        self.due_in < self.room
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
        let needs = self.needs();
        if self.short(&needs, 0).is_empty() {
            self.pace.rest();
            return None;
        }
        let room = needs[0].room;
        if self.pace.is_outdated(room, self.step_of_room())
            && let Some(gc) = self.gc.try_lock()
        {
            self.set_pace(&gc);
        }
        self.pace.wrote(blocks);
        let share = (self.pace.moved_per_written() * blocks as f64).ceil() as usize;
        let (owed, chunk) = (self.pace.owed_blocks(), self.chunk_blocks());
        if owed <= self.allowance_with(room)
            || owed <= room && share < chunk && !self.pace.gather(share, chunk)
        {
            return None;
        }
        Some(share.max(chunk))
    }

    /// Blocks that are written before what was found is looked at anew.
    fn step_of_room(&self) -> i64 {
        i64::from(self.payload_min) / ROOM_SHARE
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
        // What was not moved is met again by whoever moves it.
        paid.unwrap_or_else(|error| tracing::warn!("garbage collection: {error}"));
        match along.end() {
            Ok(appended) => appended,
            Err(fresh) => self.append_some(fresh, Vec::new()),
        }
    }

    fn pay_along(&self, most: usize, along: &mut Along<'_, '_, '_>) -> Result<()> {
        let mut gc = self.gc.lock();
        // What comes next has still to be read: the background has time for that, if it is there.
        let waited = match gc.is_read() {
            true => self.pace.unread.load(Ordering::Relaxed),
            false => self.pace.unread.fetch_add(1, Ordering::Relaxed),
        };
        let is_alone = waited >= ALONE_AFTER;
        if !gc.is_read() && !is_alone && self.pace.owed_blocks() <= self.room() {
            return Ok(());
        }
        let before = gc.blocks_moved();
        let paid = loop {
            let moved = gc.blocks_moved() - before;
            let left = (most as u64).saturating_sub(moved) as usize;
            let is_enough =
                moved > 0 && !is_alone || left == 0 || self.pace.owed_blocks() <= self.allowance();
            if is_enough {
                break Ok(());
            }
            match self.pay_some(&mut gc, self.writers_chunk().min(left), Some(along)) {
                Ok(true) => {}
                ended => break ended.map(|_| ()),
            }
        };
        rt::order::unlock_fair(gc);
        paid
    }

    /// Blocks that a writer moves at once: such a share of what is owed for as many that are written.
    fn writers_chunk(&self) -> usize {
        let times = (self.pace.moved_per_written() * WRITER_SHARE).clamp(1.0, CHUNKS_MAX);
        (self.chunk_blocks() as f64 * times) as usize
    }

    /// Blocks that the background moves at once.
    pub(crate) fn chunk_in_background(&self) -> usize {
        let (owed, chunk) = (self.pace.owed_blocks().max(0) as usize, self.chunk_blocks());
        owed.clamp(chunk, chunk * CHUNKS_IN_BACKGROUND)
    }

    /// The background step's part: whether it did something.
    pub(crate) fn pay_in_background(&self) -> Result<bool> {
        // Before it is looked at what is owed: who adds something afterwards calls.
        self.pace.sleeps.store(true, Ordering::SeqCst);
        let payer = if self.pace.owed_blocks() > 0 { Some(self.gc.lock()) } else { self.gc.try_lock() };
        match payer {
            // Victims that are empty need only be given up: the next writer may wait for their zones.
            Some(mut gc) if self.pace.owed_blocks() > 0 || gc.is_moved() => {
                let worked = self.pay_some(&mut gc, self.chunk_in_background(), None);
                rt::order::unlock_fair(gc);
                self.pace.unread.store(0, Ordering::Relaxed);
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
        if !gc.is_moved() && (!self.is_room_short() || self.would_take_the_last_zone(gc, ABOUT_TO_OPEN)) {
            self.pace.rest();
            return Ok(false);
        }
        if self.move_some(gc, blocks, ABOUT_TO_OPEN, along)? == Progress::Nothing {
            self.pace.rest();
            return Ok(false);
        }
        self.set_pace(gc);
        Ok(!self.pace.is_resting())
    }

    /// Moves so much, or less where it might take the last zone.
    fn move_some(
        &self,
        gc: &mut GcState,
        blocks: usize,
        about: i64,
        along: Option<&mut Along<'_, '_, '_>>,
    ) -> Result<Progress> {
        let left = self.left_to_move(gc, about).map_or(usize::MAX, |left| left.max(1) as usize);
        self.collect_some(gc, Aim::Pace, blocks.min(left), along)
    }

    /// What each block owes from now on.
    fn set_pace(&self, gc: &GcState) {
        if self.store.pool().dead_count() > 0 {
            self.emptied.store(true, Ordering::Relaxed);
        }
        if self.would_take_the_last_zone(gc, ABOUT_TO_OPEN) {
            return self.pace.rest();
        }
        match self.short_needs().iter().filter_map(|need| self.due(gc, need)).max() {
            Some(due) => self.pace.set(due, self.room()),
            None => self.pace.rest(),
        }
    }

    /// Whether what is moved next takes the only zone that fresh data may open, and will soon: it has it first, and then
    /// there is time.
    fn would_take_the_last_zone(&self, gc: &GcState, about: i64) -> bool {
        self.left_to_move(gc, about).is_some_and(|left| left < self.chunk_blocks() as i64 / PIECE_SHARE)
    }

    /// Blocks that can be moved before the only zone that fresh data may open is taken, which it will need soon: with such a
    /// share of a zone left, or because one of its classes has none. None: it is not like that.
    fn left_to_move(&self, gc: &GcState, about: i64) -> Option<i64> {
        let rooms = self.placement.rooms(|room| self.packing.payload(room));
        let opens_soon = rooms.is_shared || rooms.until[0] <= i64::from(self.payload_min) / about;
        let is_last = self.spare_zones() == 1 && opens_soon;
        // Of the last extent of a piece all is moved.
        let beyond = i64::from(self.piece_blocks_max.min(self.payload_min / EXTENT_SHARE));
        is_last.then(|| gc.target_room(self.packing) - beyond)
    }

    /// What has to be moved for that need; none: nothing, or nothing can be won.
    fn due(&self, gc: &GcState, need: &Need) -> Option<Due> {
        let debt = self.debt(gc, need.zones).filter(|debt| *debt > 0)?;
        // Where the other class's zone takes what finds none, nothing ends that one would have to be ahead of.
        let ahead = if need.is_soon() { 0 } else { self.room_ahead() };
        let room = need.due_in - ahead;
        let least = (i64::from(self.payload_min) / END_SHARE).max(1);
        let is_now = need.is_hard && room <= self.chunk_blocks() as i64;
        Some(Due { rate: PARTS * debt / room.max(least), debt, is_now })
    }

    /// Whether it is time to collect garbage.
    pub(crate) fn is_room_short(&self) -> bool {
        !self.short_needs().is_empty()
    }

    /// The needs for which it is time to collect garbage.
    fn short_needs(&self) -> Vec<Need> {
        self.short(&self.needs(), 0)
    }

    /// Of these needs, those for which it is, or will be when so many blocks have been written.
    fn short(&self, needs: &[Need], ahead: i64) -> Vec<Need> {
        let begin = self.room_to_begin();
        let until = (1..).map(|which| ahead + which * begin);
        let is_short = |(need, until): &(&Need, i64)| need.zones > 0.0 && need.due_in <= *until;
        needs.iter().zip(until).filter(is_short).map(|(need, _)| *need).collect()
    }

    /// Whether fresh data will soon wait for zones that need only be reset.
    pub(crate) fn are_resets_urgent(&self) -> bool {
        let pool = self.store.pool();
        pool.dead_count() > 0 && (pool.free() <= pool.reserved_from(Role::Data) || self.is_room_short())
    }

    /// Blocks that fresh data can take before a zone must have been emptied.
    pub(crate) fn room(&self) -> i64 {
        self.needs()[0].room
    }

    /// The next zone that fresh data needs, and the next two if there are two classes of data.
    fn needs(&self) -> Vec<Need> {
        let (spare, payload) = (self.spare_zones() as f64 - self.foreseen(), f64::from(self.payload_min));
        let rooms = self.placement.rooms(|room| self.packing.payload(room));
        let last = rooms.until.len() as i64;
        let need = |(room, zones): (i64, i64)| {
            let (is_hard, zones) = (zones == last, zones as f64 - spare);
            let due_in = if rooms.is_shared && !is_hard { room / SHARED_SHARE } else { room };
            let beyond = ((1.0 - zones).max(0.0) * payload) as i64;
            Need { room: room + beyond, due_in: due_in + beyond, zones, is_hard }
        };
        rooms.until.iter().copied().zip(1..).map(need).collect()
    }

    /// As late as it can be with one open zone; with more of them about as much as is left in the others by then.
    pub(crate) fn room_to_begin(&self) -> i64 {
        let beyond = self.placement.count().saturating_sub(1).min(self.placement.open_beyond()) as i64;
        let sooner = (BEGIN_BYTES / i64::from(self.block_size())).min(i64::from(self.payload_min) / 2);
        i64::from(self.payload_min) * (beyond + 1) / 2 + sooner
    }

    /// Blocks of room that are left when a zone is to have been won.
    fn room_ahead(&self) -> i64 {
        (AHEAD_BYTES / i64::from(self.block_size())).min(i64::from(self.payload_min) / AHEAD_SHARE)
    }

    /// Blocks to be moved until so many zones have been won; of a part of one, that part of what it takes. None: however
    /// many are emptied, their contents need as many.
    fn debt(&self, gc: &GcState, zones: f64) -> Option<i64> {
        let debts = self.debts(gc, zones.ceil() as usize);
        let of = |zones: usize| if zones == 0 { Some(0) } else { debts.get(zones - 1).copied() };
        let whole = of(zones as usize)?;
        let next = of(zones.ceil() as usize).unwrap_or(whole);
        Some(whole + ((next - whole) as f64 * zones.fract()) as i64)
    }

    /// Blocks to be moved until one zone has been won, two, and so on: of the victims in hand, none of which may be empty
    /// before all are, and of as many more as it takes. Fewer where no more can be won.
    fn debts(&self, gc: &GcState, zones: usize) -> Vec<i64> {
        let (mut gain, mut debts) = (self.gain_of(gc), Vec::new());
        let (in_hand, others) = self.victims_to_come(gc);
        in_hand.into_iter().for_each(|live| gain.add(live));
        let mut note = |gain: &Gain| {
            let won = (gain.zones().max(0) as usize).min(zones);
            debts.resize(won.max(debts.len()), gain.moved);
            debts.len() >= zones
        };
        let mut is_enough = note(&gain);
        for live in others {
            if is_enough {
                break;
            }
            gain.add(live);
            is_enough = note(&gain);
        }
        debts
    }

    /// What lives in each of the victims in hand, and in those that would be next. Those in which nothing lives are free.
    fn victims_to_come(&self, gc: &GcState) -> (Vec<Blocks>, Vec<Blocks>) {
        let pool = self.store.pool();
        // One that has been reset already is among the free ones.
        let is_there = |&(zone, life): &(ZoneId, Life)| {
            let entry = pool.entry(zone);
            entry.life == life && entry.role.holds_data()
        };
        let in_hand: Vec<ZoneId> = gc.victims_as_chosen().filter(is_there).map(|(zone, _)| zone).collect();
        let mut others = self.ranked_victims(Aim::Pace, CANDIDATES_MAX + in_hand.len());
        others.retain(|&(zone, live)| {
            (1..self.payload_min).contains(&live)
                && !in_hand.contains(&zone)
                // It is not written again when it is empty.
                && !self.worn.contains(&zone)
                && !gc.is_stuck(zone)
                && !self.is_waiting(gc, zone)
        });
        let in_hand = in_hand.into_iter().map(|zone| pool.entry(zone).live).filter(|&live| live > 0);
        (in_hand.collect(), others.into_iter().map(|(_, live)| live).collect())
    }

    /// Blocks to be moved for one zone more than there must be.
    pub(crate) fn debt_of_one_more(&self, gc: &GcState) -> Option<i64> {
        self.debt(gc, self.zones_to_win() as f64)
    }

    /// Zones that fresh data may open; less than none while garbage collection has one that is to come back.
    fn spare_zones(&self) -> i64 {
        self.free_soon() - i64::from(self.store.pool().reserved_from(Role::Data))
    }

    /// Zones that are free, or need only be reset, or are being reset.
    fn free_soon(&self) -> i64 {
        i64::from(self.store.pool().free_soon())
    }

    /// Zones that must be won so that there is one more than must be.
    pub(crate) fn zones_to_win(&self) -> i64 {
        (self.foreseen().round() as i64 - self.spare_zones()).max(0) + 1
    }

    /// What emptying zones wins, beginning with the room in the zone that is written.
    pub(crate) fn gain_of(&self, gc: &GcState) -> Gain {
        let (into, payload) = (gc.target_room(self.packing), i64::from(self.payload_min.max(1)));
        Gain { into, payload, freed: 0, moved: 0 }
    }

    /// Blocks that may be owed before writers pay themselves.
    pub(crate) fn allowance(&self) -> i64 {
        self.allowance_with(self.room())
    }

    fn allowance_with(&self, room: i64) -> i64 {
        let bytes = (ALLOWANCE_BYTES / u64::from(self.block_size())) as i64;
        let least = bytes.min(i64::from(self.payload_min) / ALLOWANCE_SHARE).max(1);
        (room / ALLOWANCE_OF_ROOM).clamp(least, least * ALLOWANCE_TIMES)
    }

    /// How many zones of fresh data should be open at once: many while there is much that is free or
    /// dead, one when there is little.
    pub(crate) fn open_zones_wanted(&self, spare_blocks: i64) -> usize {
        let most = i64::from(self.store.leases_for_data()).min(self.open_zones_of_log());
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

#[cfg(test)]
mod tests;
