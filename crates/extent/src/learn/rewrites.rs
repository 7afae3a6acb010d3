//! Blocks that are written over in place: whether how long a block's contents lived tells how long its next ones
//! will.
//!
//! It often does (Wang and others, *SepBIT*, FAST 2022, sections 3 and 4): what was written over soon will be
//! again. It does not where every block is as likely as any other, and then telling them apart costs an open zone and
//! wins nothing. So a sample of blocks is watched, chosen by a hash of their number: of each, when it was
//! written and how long it lived before. As long as short lives follow short ones clearly more often than they follow
//! long ones, predictions are made; otherwise none are. *Short* is what lives less long than a zone of fresh data
//! stays before it is emptied. While lives are compared that limit stands still: where it moves, both lives of a pair
//! are short as long as it is high, and both long as long as it is low, whether or not one tells the other.
//!
//! Memory: at most [`SAMPLES_MAX`] blocks are watched; when there would be more, every other one is given up.

use std::collections::HashMap;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Lifetime, Object};

/// Blocks that are watched.
const SAMPLES_MAX: usize = 1 << 14;
/// To begin with one in so many, less one.
const MASK: u64 = 15;
/// Pairs of lives that must have been seen of either kind, to begin to believe something, …
const EVIDENCE: u32 = 32;
/// … and not to believe it any more.
const EVIDENCE_AGAINST: u32 = 256;
/// How many times as often a short life must follow a short one as it follows a long one, to begin to believe it, …
const TIMES: f64 = 1.25;
/// … and to go on.
const TIMES_STILL: f64 = 1.1;
/// And by how many standard errors more often, to begin.
const SPREADS: f64 = 4.0;
/// When so many were seen, it is begun anew, with the limit as it is then.
const PAIRS_MAX: u32 = 4096;
/// A zone more weighs so much in how long zones stay.
const ZONES_WEIGHED: u64 = 8;

#[derive(Clone, Copy)]
struct Watched {
    written: u64,
    lived: Option<u64>,
}

/// Lives that followed, by whether they were short.
#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    short: u32,
    long: u32,
}

impl Followed {
    fn all(self) -> u32 {
        self.short + self.long
    }

    fn share_of_short(self) -> f64 {
        f64::from(self.short) / f64::from(self.all().max(1))
    }
}

struct Samples {
    mask: u64,
    blocks: HashMap<(Object, u64), Watched>,
    after_short: Followed,
    after_long: Followed,
    /// What is short in these; 0 before there are any.
    limit: u64,
}

/// What was seen of blocks that were written over.
pub(crate) struct Rewrites {
    /// Of a block's hash, which bits must be zero for it to be watched; also in `samples`.
    mask: AtomicU64,
    /// How long a zone of fresh data stays; 0 until one has been emptied.
    stay: AtomicU64,
    tells: AtomicBool,
    /// A leaf lock.
    samples: Mutex<Samples>,
}

impl Rewrites {
    pub(crate) fn new() -> Rewrites {
        let samples = Samples {
            mask: MASK,
            blocks: HashMap::new(),
            after_short: Followed::default(),
            after_long: Followed::default(),
            limit: 0,
        };
        Rewrites {
            mask: AtomicU64::new(MASK),
            stay: AtomicU64::new(0),
            tells: AtomicBool::new(false),
            samples: Mutex::new(samples),
        }
    }

    /// Whether anything can be said at all.
    pub(crate) fn tells(&self) -> bool {
        self.tells.load(Ordering::Relaxed)
    }

    /// What is expected of what is written over contents of this age.
    pub(crate) fn expect(&self, age: u64) -> Lifetime {
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
            self.tells.store(samples.tells(self.tells()), Ordering::Relaxed);
        }
    }

    /// A zone of fresh data was emptied so long after it was filled.
    pub(crate) fn stayed(&self, time: u64) {
        let before = self.stay.load(Ordering::Relaxed);
        let now = match before {
            0 => time,
            _ => {
                let [before, time, weighed] = [before, time, ZONES_WEIGHED].map(u128::from);
                ((before * (weighed - 1) + time) / weighed) as u64
            }
        };
        self.stay.store(now.max(1), Ordering::Relaxed);
    }

    pub(crate) fn stay(&self) -> u64 {
        self.stay.load(Ordering::Relaxed)
    }

    /// Goes on from what was seen and believed before: until enough is seen that speaks against it.
    pub(crate) fn remember(&self, stay: u64, tells: bool) {
        // Whoever writes meanwhile looks at what is believed, and stores what he comes to, under this lock.
        let _samples = self.samples.lock();
        self.stay.store(stay, Ordering::Relaxed);
        self.tells.store(tells, Ordering::Relaxed);
    }
}

impl Samples {
    fn wrote(&mut self, block: (Object, u64), now: u64, stay: u64) {
        let before = self.blocks.get(&block).copied();
        let lived = before.map(|before| now.saturating_sub(before.written));
        if let (Some(last), Some(lived)) = (before.and_then(|before| before.lived), lived)
            && stay > 0
        {
            self.followed(last, lived, stay);
        }
        self.blocks.insert(block, Watched { written: now, lived });
        if self.blocks.len() > SAMPLES_MAX {
            self.mask = self.mask * 2 + 1;
            let mask = self.mask;
            self.blocks.retain(|&(object, block), _| hash(object, block) & mask == 0);
        }
    }

    /// A life followed one that lasted so long.
    fn followed(&mut self, last: u64, lived: u64, stay: u64) {
        if self.limit == 0 || self.after_short.all() + self.after_long.all() >= PAIRS_MAX {
            (self.after_short, self.after_long, self.limit) =
                (Followed::default(), Followed::default(), stay);
        }
        let followed = if last < self.limit { &mut self.after_short } else { &mut self.after_long };
        if lived < self.limit {
            followed.short += 1;
        } else {
            followed.long += 1;
        }
    }

    /// Once it is believed, it takes more to stop believing it.
    fn tells(&self, believed: bool) -> bool {
        let (short, long) = (self.after_short, self.after_long);
        let evidence = if believed { EVIDENCE_AGAINST } else { EVIDENCE };
        if short.all() < evidence || long.all() < evidence {
            return believed;
        }
        let [after_short, after_long] = [short, long].map(Followed::share_of_short);
        if believed {
            return after_short > TIMES_STILL * after_long;
        }
        let [of_short, of_long] = [short, long].map(|followed| f64::from(followed.all()));
        let share = (after_short * of_short + after_long * of_long) / (of_short + of_long);
        let error = (share * (1.0 - share) * (1.0 / of_short + 1.0 / of_long)).sqrt();
        after_short > TIMES * after_long && after_short - after_long > SPREADS * error
    }
}

fn hash(object: Object, block: u64) -> u64 {
    let mixed = (object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests;
