//! Learned lifetimes: what a volume predicts from the blocks that it has observed die.
//!
//! Three things are learned. Hints of programs play no part in it:
//!
//! * how fast the contents of zones die, by stream and age (`learn/ages.rs`). GC ranks victims by it.
//! * how long data of a file class lives (`learn/file_classes.rs`).
//! * whether a short life of blocks that are overwritten in place follows a short one (`learn/overwrite_history.rs`).
//!
//! The last two choose the open zone of a write without a hint. If they have too little evidence, they predict nothing. GC
//! ranks victims by the observed deaths in any case (`docs/decisions/0045` says what that costs).
//!
//! Ages are counted in blocks that users have written. The time that contents of zones have survived is counted in blocks
//! that have died meanwhile. Writers only increment counters; sums are computed when a zone is full. From time to time, and
//! at the unmount, what was learned is saved in the store ([`LEARNED`]), and the next mount loads it. Rows that cannot be
//! saved or read are learned anew. Memory is bounded: 140 KiB, 12 bytes for each zone, and the sampled blocks.
//!
//! Correctness does not depend on anything here. A wrong prediction only wastes writes.

mod ages;
mod file_classes;
mod overwrite_history;
mod prediction_error;
mod stored;

use std::ops::Range;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tree::{Store, StoreError, Tx};
use zone::{Blocks, Role, ZoneId};

use crate::amortized::Amortized;
use crate::format::ZoneUser;
use crate::{Hint, Lifetime, Object, Result};

pub use file_classes::FileClass;
pub use prediction_error::{StreamStats, stream_names};
pub use stored::LEARNED;

pub(crate) use ages::Stream;
use ages::{Ages, Clocks, FillTimes};
use file_classes::{FileClassCounters, FileClassSums};
use overwrite_history::OverwriteHistory;
use prediction_error::StreamCounters;

/// Blocks moved for each reclaimed block. A better victim may cost this many times as much as the cheapest one, plus a
/// constant.
const COST_RATIO: f64 = 3.0;
const COST_EXTRA: f64 = 2.0;
/// Number of zones that are filled between two saves.
const ZONES_BETWEEN_SAVES: u32 = 32;
/// Rows that are saved in one transaction.
const ROWS_PER_TX: usize = 8;

/// What placement and GC use. Everything is on, except when it is switched off for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// GC ranks victims by how fast zones of their stream and age lose live blocks.
    pub ages: bool,
    /// The lifetime class of a file's class decides in which open zone a write goes.
    pub file_classes: bool,
    /// The last life of overwritten blocks decides it.
    pub overwrite_history: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { ages: true, file_classes: true, overwrite_history: true }
    }
}

impl Switches {
    /// Nothing uses learned lifetimes.
    pub fn without_learning() -> Switches {
        Switches { ages: false, file_classes: false, overwrite_history: false }
    }

    /// Whether anything that uses learned lifetimes is on.
    pub fn is_learning(self) -> bool {
        self.ages || self.file_classes || self.overwrite_history
    }
}

/// Everything that was learned.
pub struct Learned {
    uses_ages: AtomicBool,
    uses_file_classes: AtomicBool,
    uses_overwrite_history: AtomicBool,
    /// Blocks that users have written.
    clock: AtomicU64,
    /// Blocks that have died since the mount.
    dead: AtomicU64,
    fill_times: FillTimes,
    file_classes: FileClassCounters,
    overwrite_history: OverwriteHistory,
    stream_counters: StreamCounters,
    /// When all zones are scanned. Zones that are filled pay for the scans.
    scans: Amortized,
    /// Zones filled since the last save.
    filled_since_save: AtomicU64,
    /// The rows in the store were loaded, or could not be.
    is_loaded: AtomicBool,
    /// Under this lock only the lock of the zone table is taken.
    observations: Mutex<Observations>,
}

/// Sums that each scan of all zones updates.
struct Observations {
    ages: Ages,
    file_classes: FileClassSums,
    scanned_at: u64,
}

impl Learned {
    pub(crate) fn new(zones: u32, zone_blocks: Blocks) -> Learned {
        let observations = Observations {
            ages: Ages::new(zones, zone_blocks),
            file_classes: FileClassSums::new(),
            scanned_at: 0,
        };
        Learned {
            uses_ages: AtomicBool::new(true),
            uses_file_classes: AtomicBool::new(true),
            uses_overwrite_history: AtomicBool::new(true),
            clock: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            fill_times: FillTimes::new(zones),
            file_classes: FileClassCounters::new(),
            overwrite_history: OverwriteHistory::new(),
            stream_counters: StreamCounters::default(),
            scans: Amortized::new(zones),
            filled_since_save: AtomicU64::new(0),
            is_loaded: AtomicBool::new(false),
            observations: Mutex::new(observations),
        }
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn clocks(&self) -> Clocks {
        Clocks { written: self.now(), died: self.dead.load(Ordering::Relaxed) }
    }

    pub(crate) fn set_switches(&self, switches: Switches) {
        self.uses_ages.store(switches.ages, Ordering::Relaxed);
        self.uses_file_classes.store(switches.file_classes, Ordering::Relaxed);
        self.uses_overwrite_history.store(switches.overwrite_history, Ordering::Relaxed);
    }

    /// A user wrote blocks of an object.
    pub(crate) fn wrote(&self, object: Object, file_class: FileClass, blocks: Range<u64>) {
        let count = blocks.end - blocks.start;
        let now = self.clock.fetch_add(count, Ordering::Relaxed);
        self.file_classes.wrote(file_class, count);
        self.overwrite_history.wrote(object, blocks, now);
    }

    /// Blocks in zones that belonged to data of this file class have died.
    pub(crate) fn died(&self, file_class: FileClass, blocks: u64) {
        self.file_classes.died(file_class, blocks);
        self.dead.fetch_add(blocks, Ordering::Relaxed);
    }

    /// The stream of a zone that is now full, and the time, for the zone's entry.
    pub(crate) fn stamp(&self, role: Role, lifetime: Lifetime) -> (u8, u64) {
        let stream = if role == Role::Gc { Stream::MOVED } else { Stream::user_writes(lifetime) };
        (stream.number(), self.now())
    }

    /// A zone is full. Its entry says when it was filled. Also called at the mount for each zone with data.
    pub(crate) fn set_filled(&self, zone: ZoneId, user: &ZoneUser) {
        self.fill_times.set(zone, Stream::from_number(user.stream), user.filled_at);
        self.clock.fetch_max(user.filled_at, Ordering::Relaxed);
    }

    /// GC is about to move the live blocks out of these zones.
    pub(crate) fn gc_begins(&self, zones: impl Iterator<Item = (ZoneId, Blocks)>) {
        let mut observations = self.observations.lock();
        let now = self.clocks();
        for (zone, live) in zones {
            let (age, stream) = self.fill_times.of(zone, now.written);
            if observations.ages.gc_begins(&self.fill_times, zone, now, live) && stream != Stream::MOVED {
                self.overwrite_history.add_stay(age);
            }
        }
    }

    /// Blocks are written to open zones of a lifetime class. The class is from the hint, or was learned.
    pub(crate) fn placed(&self, lifetime: Lifetime, hint: Hint, blocks: u64) {
        let learned = lifetime != Lifetime::Unknown && hint.lifetime == Lifetime::Unknown;
        self.stream_counters.wrote(lifetime, blocks, learned);
    }

    /// Blocks were moved out of this zone.
    pub(crate) fn moved_out_of(&self, zone: ZoneId, blocks: u64) {
        self.stream_counters.moved(self.fill_times.of(zone, self.now()).1, blocks);
    }

    /// Sorts victims: the best first. Victims that cost too much now come last. The first victim in the argument must
    /// have the fewest live blocks.
    pub(crate) fn rank(&self, victims: &mut [(ZoneId, Blocks)], payload: Blocks) {
        let (Some(&(_, fewest)), true) = (victims.first(), self.uses_ages.load(Ordering::Relaxed)) else {
            return;
        };
        let cost = |live: Blocks| f64::from(live) / f64::from(payload.saturating_sub(live).max(1));
        let most = cost(fewest) * COST_RATIO + COST_EXTRA;
        let (now, observations) = (self.now(), self.observations.lock());
        let rank = |&(zone, live): &(ZoneId, Blocks)| {
            let worth = observations.ages.worth(self.fill_times.of(zone, now), live, payload);
            (cost(live) > most, -worth)
        };
        victims.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
    }
}

impl Learned {
    /// The lifetime class that is predicted for data of this file class.
    pub(crate) fn predict_for_file(&self, file_class: FileClass) -> Lifetime {
        match self.uses_file_classes.load(Ordering::Relaxed) {
            true => self.file_classes.predict(file_class),
            false => Lifetime::Unknown,
        }
    }

    /// Whether the class of overwritten data is predicted from its last lifetime.
    pub(crate) fn predicts_overwrites(&self) -> bool {
        self.uses_overwrite_history.load(Ordering::Relaxed) && self.overwrite_history.is_predictive()
    }

    /// The lifetime class that is predicted for data that overwrites data in this zone.
    pub(crate) fn predict_for_overwrite(&self, zone: ZoneId, is_open: bool) -> Lifetime {
        let (age, stream) = self.fill_times.of(zone, self.now());
        // Moved data has lived long, whenever it was moved. Data in an open zone was written recently.
        match stream {
            _ if is_open => Lifetime::Short,
            Stream::MOVED => Lifetime::Long,
            _ => self.overwrite_history.predict(age),
        }
    }

    /// Whether learned lifetimes are used.
    pub fn is_learning(&self) -> bool {
        let Learned { uses_ages, uses_file_classes, uses_overwrite_history, .. } = self;
        [uses_ages, uses_file_classes, uses_overwrite_history]
            .into_iter()
            .any(|uses| uses.load(Ordering::Relaxed))
    }

    /// What each stream was given and cost since the mount, and how good its predictions were, in the order of
    /// [`stream_names`].
    pub fn streams(&self) -> Vec<StreamStats> {
        self.stream_counters.stats(self.observations.lock().ages.prediction_errors()).to_vec()
    }

    /// A zone is full. Scans all zones, or leaves that to a later call if there are very many.
    pub(crate) fn zone_was_filled(&self, store: &Store, zone: ZoneId, user: &ZoneUser) {
        self.load_once(store);
        self.set_filled(zone, user);
        // Under this lock, a thread that scans later has later counts.
        let mut observations = self.observations.lock();
        let live = self.scans.is_due().then(|| live_in_filled(store));
        let (now, geometry) = (self.clocks(), store.device().geometry());
        let passed = now.written.saturating_sub(observations.scanned_at);
        observations.file_classes.scan(
            &self.file_classes,
            passed,
            geometry.zones as usize,
            geometry.zone_blocks,
        );
        match live {
            Some(live) => observations.ages.scan(&self.fill_times, zone, now, &live),
            None => observations.ages.skip_scan(zone),
        }
        observations.scanned_at = now.written;
        self.filled_since_save.fetch_add(1, Ordering::Relaxed);
    }

    /// Saves what was learned if that is due. With `now`, it is due if a zone was filled since the last save.
    pub fn save(&self, store: &Store, now: bool) -> Result<bool> {
        let least = if now { 1 } else { u64::from(ZONES_BETWEEN_SAVES) };
        if self.filled_since_save.load(Ordering::Relaxed) < least {
            return Ok(false);
        }
        self.filled_since_save.store(0, Ordering::Relaxed);
        for rows in self.rows().chunks(ROWS_PER_TX) {
            let mut tx = Tx::new();
            rows.iter().for_each(|(key, value)| tx.put(store.group_of(0), LEARNED, &key[..], &value[..]));
            match store.commit(tx) {
                Ok(_) => {}
                // The scarce space is left to others.
                Err(StoreError::NoSpace | StoreError::NoMemory(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Loads the rows in the store, in the first call only. This is not done at the mount, which reads no more than it
    /// must. An error on reading them shuts the volume down.
    pub(crate) fn load_once(&self, store: &Store) {
        if self.is_loaded.swap(true, Ordering::Relaxed) {
            return;
        }
        match store.range(store.group_of(0), LEARNED, &[], &[], stored::ROWS_MAX) {
            Ok(rows) => self.load(&rows),
            Err(error) => tracing::warn!("the learned lifetimes cannot be read: {error}"),
        }
    }

    /// Loads the times at which zones were filled from their entries.
    pub(crate) fn load_ages(&self, store: &Store) {
        for zone in (0..store.pool().count()).map(ZoneId) {
            let entry = store.pool().entry(zone);
            if entry.role.holds_data() {
                self.set_filled(zone, &ZoneUser::decode(&entry.user));
            }
        }
        self.observations.lock().scanned_at = self.now();
    }
}

/// The live blocks of each filled data zone, and 0 for all other zones.
fn live_in_filled(store: &Store) -> Vec<Blocks> {
    let is_filled = |entry: &tree::ZoneEntry| entry.role.holds_data() && ZoneUser::decode(&entry.user).closed;
    store.pool().at_one_moment(|clocks| {
        let live_of = |zone: tree::ZoneNow| if is_filled(&zone.entry) { zone.entry.live } else { 0 };
        clocks.zones().map(live_of).collect()
    })
}

/// Rows of a volume that has learned a little. For fuzzing.
pub(crate) fn seed_rows() -> Vec<(Vec<u8>, Vec<u8>)> {
    let learned = Learned::new(8, 64);
    learned.wrote(Object(2), FileClass { particular: 3, general: 4 }, 0..900);
    learned.died(FileClass { particular: 3, general: 4 }, 300);
    learned.observations.lock().file_classes.scan(&learned.file_classes, 900, 8, 64);
    learned.overwrite_history.load(700, true);
    learned.rows().into_iter().filter(|(_, value)| value.len() < 256).collect()
}

/// Loads these rows and uses all that follows from them. Must not fail, whatever they hold. For fuzzing.
pub(crate) fn use_rows(rows: &[(Vec<u8>, Vec<u8>)]) {
    let learned = Learned::new(8, 64);
    learned.load(rows);
    learned.wrote(Object(2), FileClass::default(), 0..9);
    learned.died(FileClass::default(), 3);
    learned.set_filled(ZoneId(1), &ZoneUser::default());
    // Zones count from the scan after they were filled: once without deaths in between, and once with some.
    for (zone, dead) in [(1, 0), (2, 0), (3, 3), (4, 1)] {
        learned.died(FileClass::default(), dead);
        let (now, mut observations) = (learned.clocks(), learned.observations.lock());
        observations.file_classes.scan(&learned.file_classes, 9, 8, 64);
        observations.ages.scan(&learned.fill_times, ZoneId(zone), now, &[7 - dead as Blocks; 8]);
    }
    learned.gc_begins([(ZoneId(1), 7), (ZoneId(2), 3)].into_iter());
    learned.rank(&mut [(ZoneId(1), 7), (ZoneId(2), 3)], 60);
    let stats = learned.stream_counters.stats(learned.observations.lock().ages.prediction_errors());
    let errors = stats.iter().filter_map(StreamStats::prediction_error);
    assert!(errors.into_iter().all(f64::is_finite), "a prediction error is a finite number: {stats:?}");
    assert!(learned.rows().len() <= stored::ROWS_MAX, "the number of rows is bounded");
}

#[cfg(test)]
mod tests;
