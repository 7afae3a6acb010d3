//! What the volume learns of lifetimes from what it has seen die, and what it says of them.
//!
//! Three things are learned, none from what programs say, and on one clock, the blocks that users have written, but for
//! what contents of zones have survived, which is told in blocks that have died meanwhile:
//!
//! * how fast the contents of zones die, by stream and age (`learn/ages.rs`): it decides which zones are emptied;
//! * how long data of a kind of file lives (`learn/kinds.rs`), and
//! * whether what is written over in place tells its next life by its last one (`learn/rewrites.rs`): they decide
//!   which open zone a write goes to, where nobody has said anything.
//!
//! Where the past says nothing of what lives how long, nothing is said of it; victims are ranked by what was seen all the
//! same (docs/decisions/0045 has what that costs). Sums are made when a zone is filled; writers only count. Now and
//! then, and at the unmount, what was learned is put into the store ([`LEARNED`]), so that the next mount begins with it;
//! what cannot be put there, or read, is learned anew. It is bounded: 140 KiB, 12 bytes a zone, and what is watched of
//! blocks.
//!
//! Nothing here is needed for correctness, and nothing that is wrong here can do more than waste writes.

mod ages;
mod kinds;
mod rewrites;
mod stored;
mod told;

use std::ops::Range;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tree::{StoreError, Tx};
use zone::{Blocks, Role, ZoneId};

use crate::amortized::Amortized;
use crate::format::ZoneUser;
use crate::{Extents, Hint, Lifetime, Object, Result, map};

pub use kinds::Kind;
pub use stored::LEARNED;
pub use told::{StreamTold, stream_names};

pub(crate) use ages::Stream;
use ages::{Ages, Filled, Moment};
use kinds::{Kinds, Sums};
use rewrites::Rewrites;
use told::Flows;

/// Blocks moved for each that is won: how many times those of the cheapest victim a better one may cost, and how
/// many beyond that.
const COST_TIMES: f64 = 3.0;
const COST_BEYOND: f64 = 2.0;
/// Zones that are filled before what was learned is put into the store again.
const FILLED_BETWEEN: u32 = 32;
/// Rows that are put there in one transaction.
const ROWS_AT_ONCE: usize = 8;

/// What placement makes use of; everything, unless it is switched off to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Large files have zones of their own.
    pub by_file: bool,
    /// What is learned of lifetimes counts.
    pub learning: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { by_file: true, learning: true }
    }
}

/// What was learned.
pub(crate) struct Learned {
    /// Whether anything is said.
    is_on: AtomicBool,
    /// Blocks that users have written.
    clock: AtomicU64,
    /// Blocks that have died since the mount.
    dead: AtomicU64,
    filled: Filled,
    kinds: Kinds,
    rewrites: Rewrites,
    flows: Flows,
    /// Looks at all zones, which those that are filled pay for.
    looks: Amortized,
    /// Zones filled since it was put into the store.
    filled_since: AtomicU64,
    /// What the store has was looked for.
    is_loaded: AtomicBool,
    /// Only the store's table of zones is locked within it.
    book: Mutex<Book>,
}

/// What looks at all zones add to.
struct Book {
    ages: Ages,
    kinds: Sums,
    looked_at: u64,
}

impl Learned {
    pub(crate) fn new(zones: u32, zone_blocks: Blocks) -> Learned {
        let book = Book { ages: Ages::new(zones, zone_blocks), kinds: Sums::new(), looked_at: 0 };
        Learned {
            is_on: AtomicBool::new(true),
            clock: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            filled: Filled::new(zones),
            kinds: Kinds::new(),
            rewrites: Rewrites::new(),
            flows: Flows::default(),
            looks: Amortized::new(zones),
            filled_since: AtomicU64::new(0),
            is_loaded: AtomicBool::new(false),
            book: Mutex::new(book),
        }
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn moment(&self) -> Moment {
        Moment { written: self.now(), died: self.dead.load(Ordering::Relaxed) }
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A user wrote blocks of an object.
    pub(crate) fn wrote(&self, object: Object, kind: Kind, blocks: Range<u64>) {
        let count = blocks.end - blocks.start;
        let now = self.clock.fetch_add(count, Ordering::Relaxed);
        self.kinds.wrote(kind, count);
        self.rewrites.wrote(object, blocks, now);
    }

    /// Blocks of this kind that were in zones are nobody's any more.
    pub(crate) fn died(&self, kind: Kind, blocks: u64) {
        self.kinds.died(kind, blocks);
        self.dead.fetch_add(blocks, Ordering::Relaxed);
    }

    /// What the zone's entry is to say when it takes no more.
    pub(crate) fn stamp(&self, role: Role, lifetime: Lifetime) -> (u8, u64) {
        let stream = if role == Role::Gc { Stream::MOVED } else { Stream::fresh(lifetime) };
        (stream.number(), self.now())
    }

    /// A zone takes no more, as its entry says; at the mount for each that is there.
    pub(crate) fn filled(&self, zone: ZoneId, user: &ZoneUser) {
        self.filled.set(zone, Stream::from_number(user.stream), user.filled_at);
        self.clock.fetch_max(user.filled_at, Ordering::Relaxed);
    }

    /// What lives in these zones is about to be moved.
    pub(crate) fn evacuated(&self, zones: impl Iterator<Item = (ZoneId, Blocks)>) {
        let mut book = self.book.lock();
        let now = self.moment();
        for (zone, live) in zones {
            let (age, stream) = self.filled.of(zone, now.written);
            if book.ages.evacuated(&self.filled, zone, now, live) && stream != Stream::MOVED {
                self.rewrites.stayed(age);
            }
        }
    }

    /// Blocks are given to the open zones of a class, which was said (`hint`) or learned.
    pub(crate) fn placed(&self, lifetime: Lifetime, hint: Hint, blocks: u64) {
        let learned = lifetime != Lifetime::Unknown && hint.lifetime == Lifetime::Unknown;
        self.flows.wrote(lifetime, blocks, learned);
    }

    /// Blocks were moved out of this zone.
    pub(crate) fn moved_out_of(&self, zone: ZoneId, blocks: u64) {
        self.flows.moved(self.filled.of(zone, self.now()).1, blocks);
    }

    /// Orders victims, of which the first has the fewest live blocks: the best first, and behind all those that
    /// cost too much now.
    pub(crate) fn rank(&self, victims: &mut [(ZoneId, Blocks)], payload: Blocks) {
        let (Some(&(_, fewest)), true) = (victims.first(), self.is_on()) else { return };
        let cost = |live: Blocks| f64::from(live) / f64::from(payload.saturating_sub(live).max(1));
        let most = cost(fewest) * COST_TIMES + COST_BEYOND;
        let (now, book) = (self.now(), self.book.lock());
        let rank = |&(zone, live): &(ZoneId, Blocks)| {
            let worth = book.ages.worth(self.filled.of(zone, now), live, payload);
            (cost(live) > most, -worth)
        };
        victims.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
    }
}

impl Extents {
    /// What placement makes use of from now on.
    pub fn set_switches(&self, switches: Switches) {
        self.learned.is_on.store(switches.learning, Ordering::Relaxed);
        self.placement.set_by_file(switches.by_file);
    }

    /// Whether what is learned of lifetimes counts.
    pub fn is_learning(&self) -> bool {
        self.learned.is_on.load(Ordering::Relaxed)
    }

    /// What each stream was given and cost since the mount, and how right what was expected of it has been, in the
    /// order of [`stream_names`].
    pub fn streams(&self) -> Vec<StreamTold> {
        self.learned.flows.told(self.learned.book.lock().ages.expected()).to_vec()
    }

    /// The lifetime class of what is written to an object from this block on: what was said of it, or else what
    /// was learned. `over`: there may be something.
    pub(crate) fn class_of(&self, object: Object, hint: Hint, block: u64, over: bool) -> Result<Lifetime> {
        let learned = &self.learned;
        if hint.lifetime != Lifetime::Unknown || !learned.is_on() {
            return Ok(hint.lifetime);
        }
        if over
            && learned.rewrites.tells()
            && let Some(zone) = self.zone_of(object, block)?
        {
            let (age, stream) = learned.filled.of(zone, learned.now());
            // What was moved has lived long, whenever that was; and what is in an open zone has only begun.
            return Ok(match stream {
                _ if self.store.pool().is_open(zone) => Lifetime::Short,
                Stream::MOVED => Lifetime::Long,
                _ => learned.rewrites.expect(age),
            });
        }
        Ok(learned.kinds.expect(hint.kind))
    }

    /// The zone that has this block of an object.
    fn zone_of(&self, object: Object, block: u64) -> Result<Option<ZoneId>> {
        let _shared = self.map_of(object).read();
        let found = map::extents(&self.store, object, (block, block + 1), 1)?;
        let stored = found.first().filter(|(_, extent)| extent.is_stored());
        Ok(stored.map(|(_, extent)| extent.address.zone()))
    }

    /// A zone takes no more: looks at all of them, or at some later time where there are very many.
    pub(crate) fn zone_was_filled(&self, zone: ZoneId, user: &ZoneUser) {
        self.load_learned();
        let learned = &self.learned;
        learned.filled(zone, user);
        // Whoever looks later looks at what is later.
        let mut book = learned.book.lock();
        let live = learned.looks.is_due().then(|| self.live_in_filled());
        let (now, geometry) = (learned.moment(), self.device.geometry());
        let passed = now.written.saturating_sub(book.looked_at);
        book.kinds.look(&learned.kinds, passed, geometry.zones as usize, geometry.zone_blocks);
        match live {
            Some(live) => book.ages.look(&learned.filled, zone, now, &live),
            None => book.ages.pass_over(zone),
        }
        book.looked_at = now.written;
        learned.filled_since.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks that live in each zone that was filled with data; 0 for all others.
    fn live_in_filled(&self) -> Vec<Blocks> {
        let is_filled =
            |entry: &tree::ZoneEntry| entry.role.holds_data() && ZoneUser::decode(&entry.user).closed;
        self.store.pool().at_one_moment(|moment| {
            let live_of = |zone: tree::ZoneNow| if is_filled(&zone.entry) { zone.entry.live } else { 0 };
            moment.zones().map(live_of).collect()
        })
    }

    /// Puts what was learned into the store when that is due, or if anything was learned and `now`.
    pub fn save_learned(&self, now: bool) -> Result<bool> {
        let least = if now { 1 } else { u64::from(FILLED_BETWEEN) };
        if self.learned.filled_since.load(Ordering::Relaxed) < least {
            return Ok(false);
        }
        self.learned.filled_since.store(0, Ordering::Relaxed);
        for rows in self.learned.rows().chunks(ROWS_AT_ONCE) {
            let mut tx = Tx::new();
            rows.iter()
                .for_each(|(key, value)| tx.put(self.store.group_of(0), LEARNED, &key[..], &value[..]));
            match self.store.commit(tx) {
                Ok(_) => {}
                // What there is little of has better uses.
                Err(StoreError::NoSpace | StoreError::NoMemory(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Goes on from what the store has, the first time that it is called; what means nothing is learned anew. Not
    /// at the mount, which reads no more than it must: what cannot be read latches.
    pub(crate) fn load_learned(&self) {
        if self.learned.is_loaded.swap(true, Ordering::Relaxed) {
            return;
        }
        match self.store.range(self.store.group_of(0), LEARNED, &[], &[], stored::ROWS_MAX) {
            Ok(rows) => self.learned.remember(&rows),
            Err(error) => tracing::warn!("what was learned of lifetimes cannot be read: {error}"),
        }
    }

    /// When each zone was filled, as its entry says.
    pub(crate) fn load_ages(&self) {
        for zone in (0..self.store.pool().count()).map(ZoneId) {
            let entry = self.store.pool().entry(zone);
            if entry.role.holds_data() {
                self.learned.filled(zone, &ZoneUser::decode(&entry.user));
            }
        }
        self.learned.book.lock().looked_at = self.learned.now();
    }
}

/// Rows of somebody who has learned a little.
pub(crate) fn rows_to_begin_with() -> Vec<(Vec<u8>, Vec<u8>)> {
    let learned = Learned::new(8, 64);
    learned.wrote(Object(2), Kind { particular: 3, general: 4 }, 0..900);
    learned.died(Kind { particular: 3, general: 4 }, 300);
    learned.book.lock().kinds.look(&learned.kinds, 900, 8, 64);
    learned.rewrites.remember(700, true);
    learned.rows().into_iter().filter(|(_, value)| value.len() < 256).collect()
}

/// Whatever was stored, one can go on from it.
pub(crate) fn offer(rows: &[(Vec<u8>, Vec<u8>)]) {
    let learned = Learned::new(8, 64);
    learned.remember(rows);
    learned.wrote(Object(2), Kind::default(), 0..9);
    learned.died(Kind::default(), 3);
    learned.filled(ZoneId(1), &ZoneUser::default());
    // Zones are watched from the look after they were filled; once with nothing dead in between, and once with some.
    for (zone, dead) in [(1, 0), (2, 0), (3, 3), (4, 1)] {
        learned.died(Kind::default(), dead);
        let (now, mut book) = (learned.moment(), learned.book.lock());
        book.kinds.look(&learned.kinds, 9, 8, 64);
        book.ages.look(&learned.filled, ZoneId(zone), now, &[7 - dead as Blocks; 8]);
    }
    learned.evacuated([(ZoneId(1), 7), (ZoneId(2), 3)].into_iter());
    learned.rank(&mut [(ZoneId(1), 7), (ZoneId(2), 3)], 60);
    let told = learned.flows.told(learned.book.lock().ages.expected());
    let errors = told.iter().filter_map(StreamTold::error);
    assert!(errors.into_iter().all(f64::is_finite), "how wrong it was is a number: {told:?}");
    assert!(learned.rows().len() <= stored::ROWS_MAX, "there are never more rows");
}

#[cfg(test)]
mod tests;
