//! Overwrite history: whether the lifetime of a block's contents predicts that of its next contents.
//!
//! It often does (Wang and others, *SepBIT*, FAST 2022, sections 3 and 4): a block that was overwritten soon is overwritten
//! soon again. If all blocks are equally likely to be overwritten, it does not. Then a separate zone costs an open zone and
//! gains nothing. So a sample of blocks is observed, chosen by a hash of their number. Each sample has the time of its last
//! write and its last lifetime. Predictions are made only while short lives follow short ones clearly more often than they
//! follow long ones. A life is *short* if a zone of user writes stays longer before GC reclaims it. This limit is fixed while
//! pairs of lives are counted. With a moving limit, both lives of a pair would be short while it is high, and long while it
//! is low, although neither predicts the other.
//!
//! Memory: at most [`SAMPLES_MAX`] blocks are observed. Beyond that, half of them are dropped.

use std::collections::HashMap;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Lifetime, Object};

/// Most samples.
const SAMPLES_MAX: usize = 1 << 14;
/// Mask of the hash at the start: one block of 16 is a sample.
const MASK_AT_START: u64 = 15;
/// Pairs after short lives, and after long lives, that are needed to start predictions …
const EVIDENCE_TO_BEGIN: u32 = 32;
/// … and to stop them.
const EVIDENCE_TO_END: u32 = 256;
/// A short life must follow a short one this many times as often as it follows a long one, to start predictions …
const RATIO_TO_BEGIN: f64 = 1.25;
/// … and to continue them.
const RATIO_TO_GO_ON: f64 = 1.1;
/// The shares must also differ by this number of standard errors to start.
const STANDARD_ERRORS: f64 = 4.0;
/// After this number of pairs, counting starts again with the current limit.
const PAIRS_MAX: u32 = 4096;
/// One zone has 1 / `STAY_WEIGHT` of the weight in how long zones stay.
const STAY_WEIGHT: u64 = 8;

#[derive(Clone, Copy)]
struct Sample {
    written: u64,
    lived: Option<u64>,
}

/// Lives that followed others, by whether they were short.
#[derive(Clone, Copy, Debug, Default)]
struct NextLives {
    short: u32,
    long: u32,
}

impl NextLives {
    fn all(self) -> u32 {
        self.short + self.long
    }

    fn share_of_short(self) -> f64 {
        f64::from(self.short) / f64::from(self.all().max(1))
    }
}

struct Samples {
    mask: u64,
    blocks: HashMap<(Object, u64), Sample>,
    after_short: NextLives,
    after_long: NextLives,
    /// The limit of short lives in these counts. 0 before there are any.
    limit: u64,
}

/// What was observed of overwritten blocks.
pub(crate) struct OverwriteHistory {
    /// A block is a sample if these bits of its hash are zero. A copy of the mask in `samples`.
    mask: AtomicU64,
    /// How long a zone of user writes stays until it is reclaimed. 0 until the first one was.
    stay: AtomicU64,
    is_predictive: AtomicBool,
    /// A leaf lock.
    samples: Mutex<Samples>,
}

impl OverwriteHistory {
    pub(crate) fn new() -> OverwriteHistory {
        let samples = Samples {
            mask: MASK_AT_START,
            blocks: HashMap::new(),
            after_short: NextLives::default(),
            after_long: NextLives::default(),
            limit: 0,
        };
        OverwriteHistory {
            mask: AtomicU64::new(MASK_AT_START),
            stay: AtomicU64::new(0),
            is_predictive: AtomicBool::new(false),
            samples: Mutex::new(samples),
        }
    }

    /// Whether predictions are made.
    pub(crate) fn is_predictive(&self) -> bool {
        self.is_predictive.load(Ordering::Relaxed)
    }

    /// The lifetime class of data that overwrites contents of this age.
    pub(crate) fn predict(&self, age: u64) -> Lifetime {
        let is_short = age < self.stay.load(Ordering::Relaxed);
        if is_short { Lifetime::Short } else { Lifetime::Long }
    }

    /// Blocks of an object are written.
    pub(crate) fn wrote(&self, object: Object, blocks: std::ops::Range<u64>, now: u64) {
        let mask = self.mask.load(Ordering::Relaxed);
        for block in blocks.filter(|&block| hash(object, block) & mask == 0) {
            let stay = self.stay.load(Ordering::Relaxed);
            let mut samples = self.samples.lock();
            samples.wrote((object, block), now, stay);
            self.mask.store(samples.mask, Ordering::Relaxed);
            self.is_predictive.store(samples.is_predictive(self.is_predictive()), Ordering::Relaxed);
        }
    }

    /// GC reclaims a zone of user writes this time after it was filled.
    pub(crate) fn add_stay(&self, time: u64) {
        let before = self.stay.load(Ordering::Relaxed);
        let now = match before {
            0 => time,
            _ => {
                let [before, time, weighed] = [before, time, STAY_WEIGHT].map(u128::from);
                ((before * (weighed - 1) + time) / weighed) as u64
            }
        };
        self.stay.store(now.max(1), Ordering::Relaxed);
    }

    pub(crate) fn stay(&self) -> u64 {
        self.stay.load(Ordering::Relaxed)
    }

    /// Loads the state of an earlier mount. It stays until the evidence is against it.
    pub(crate) fn load(&self, stay: u64, is_predictive: bool) {
        // A concurrent writer reads and stores the state under this lock.
        let _samples = self.samples.lock();
        self.stay.store(stay, Ordering::Relaxed);
        self.is_predictive.store(is_predictive, Ordering::Relaxed);
    }
}

impl Samples {
    fn wrote(&mut self, block: (Object, u64), now: u64, stay: u64) {
        let before = self.blocks.get(&block).copied();
        let lived = before.map(|before| now.saturating_sub(before.written));
        if let (Some(last), Some(lived)) = (before.and_then(|before| before.lived), lived)
            && stay > 0
        {
            self.add_pair(last, lived, stay);
        }
        self.blocks.insert(block, Sample { written: now, lived });
        if self.blocks.len() > SAMPLES_MAX {
            self.mask = self.mask * 2 + 1;
            let mask = self.mask;
            self.blocks.retain(|&(object, block), _| hash(object, block) & mask == 0);
        }
    }

    /// Counts a life that followed one of length `last`.
    fn add_pair(&mut self, last: u64, lived: u64, stay: u64) {
        if self.limit == 0 || self.after_short.all() + self.after_long.all() >= PAIRS_MAX {
            (self.after_short, self.after_long, self.limit) =
                (NextLives::default(), NextLives::default(), stay);
        }
        let add_pair = if last < self.limit { &mut self.after_short } else { &mut self.after_long };
        if lived < self.limit {
            add_pair.short += 1;
        } else {
            add_pair.long += 1;
        }
    }

    /// To stop predictions takes more evidence than to start them.
    fn is_predictive(&self, was_predictive: bool) -> bool {
        let (short, long) = (self.after_short, self.after_long);
        let evidence = if was_predictive { EVIDENCE_TO_END } else { EVIDENCE_TO_BEGIN };
        if short.all() < evidence || long.all() < evidence {
            return was_predictive;
        }
        let [after_short, after_long] = [short, long].map(NextLives::share_of_short);
        if was_predictive {
            return after_short > RATIO_TO_GO_ON * after_long;
        }
        let [of_short, of_long] = [short, long].map(|add_pair| f64::from(add_pair.all()));
        let share = (after_short * of_short + after_long * of_long) / (of_short + of_long);
        let error = (share * (1.0 - share) * (1.0 / of_short + 1.0 / of_long)).sqrt();
        after_short > RATIO_TO_BEGIN * after_long && after_short - after_long > STANDARD_ERRORS * error
    }
}

fn hash(object: Object, block: u64) -> u64 {
    let mixed = (object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests;
