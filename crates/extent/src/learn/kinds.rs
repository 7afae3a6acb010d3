//! How long data of a kind lives: from what was written, what died, and how long what did not die has lived.
//!
//! A *kind* is a number that the user of this crate derives from what it knows of a file when it makes it. Kinds
//! share slots, of which there is a fixed number: two that meet in one are taken for one. Each slot knows its live
//! blocks, its *exposure* (blocks times clock) and how many died. Exposure over deaths is the mean lifetime, also
//! while most of the data still lives. What lives half as long as data does on average is short-lived, what lives
//! twice as long is long-lived; and where nothing differs that much, or too little was seen, nothing is said.
//!
//! Writers touch one or two atomic counters; sums are made when a zone is filled. What was counted since the last
//! zone was filled is lost in a crash, so that counts of live blocks may be off by as much: they only predict.

use rt::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use zone::Blocks;

use crate::Lifetime;

/// Slots for particular kinds; and as many for general ones.
const SLOTS: usize = 2048;
/// After as many zones filled as there are, this is left of what was seen.
const KEPT: f64 = 0.7;
/// Part of a zone that must have died, or should have, before anything is said.
const EVIDENCE_SHARE: f64 = 4.0;
/// How much shorter or longer than others' a life is that is worth a zone of its own.
const APART: f64 = 2.0;

/// What placement may know of the origin of data, other than what somebody says of its lifetime: 0 where
/// nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Files of the same kind in the same place.
    pub particular: u16,
    /// Files of the same kind anywhere.
    pub general: u16,
}

impl Kind {
    fn slots(self) -> impl Iterator<Item = usize> {
        let slot = |number: u16, first: usize| (number != 0).then(|| first + usize::from(number) % SLOTS);
        [slot(self.particular, 0), slot(self.general, SLOTS)].into_iter().flatten()
    }
}

/// What is said of a slot.
const NOTHING_SEEN: u8 = 0;
const LIKE_OTHERS: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;

#[derive(Default)]
struct Counts {
    live: AtomicI64,
    /// Since the last look.
    died: AtomicU64,
    said: AtomicU8,
}

/// Counters that writers touch.
pub(crate) struct Kinds {
    counts: Vec<Counts>,
}

/// What was seen of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lives {
    pub(crate) live: i64,
    pub(crate) exposure: f64,
    pub(crate) died: f64,
}

/// What was seen of all of them.
pub(crate) struct Sums {
    lives: Vec<Lives>,
    looks: usize,
}

impl Kinds {
    pub(crate) fn new() -> Kinds {
        Kinds { counts: (0..2 * SLOTS).map(|_| Counts::default()).collect() }
    }

    pub(crate) fn wrote(&self, kind: Kind, blocks: u64) {
        kind.slots().for_each(|slot| {
            self.counts[slot].live.fetch_add(blocks as i64, Ordering::Relaxed);
        });
    }

    pub(crate) fn died(&self, kind: Kind, blocks: u64) {
        for slot in kind.slots() {
            self.counts[slot].live.fetch_sub(blocks as i64, Ordering::Relaxed);
            self.counts[slot].died.fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// Blocks of this kind that live, and that have died since the last look.
    #[cfg(test)]
    pub(crate) fn counted(&self, kind: Kind) -> Vec<(i64, u64)> {
        let counts = kind.slots().map(|slot| &self.counts[slot]);
        counts.map(|of| (of.live.load(Ordering::Relaxed), of.died.load(Ordering::Relaxed))).collect()
    }

    /// What is expected of data of this kind.
    pub(crate) fn expect(&self, kind: Kind) -> Lifetime {
        let said = kind.slots().map(|slot| self.counts[slot].said.load(Ordering::Relaxed));
        match said.into_iter().find(|&said| said != NOTHING_SEEN) {
            Some(SHORT) => Lifetime::Short,
            Some(LONG) => Lifetime::Long,
            _ => Lifetime::Unknown,
        }
    }
}

impl Sums {
    pub(crate) fn new() -> Sums {
        Sums { lives: vec![Lives::default(); 2 * SLOTS], looks: 0 }
    }

    /// So much time has passed since the last look, in which `zones` zones are filled before all have been.
    pub(crate) fn look(&mut self, kinds: &Kinds, passed: u64, zones: usize, zone_blocks: Blocks) {
        for (lives, counts) in self.lives.iter_mut().zip(&kinds.counts) {
            lives.died += counts.died.swap(0, Ordering::Relaxed) as f64;
            lives.live = counts.live.load(Ordering::Relaxed).max(0);
            lives.exposure += lives.live as f64 * passed as f64;
        }
        self.say(kinds, f64::from(zone_blocks) / EVIDENCE_SHARE);
        self.looks += 1;
        if self.looks >= zones {
            self.looks = 0;
            let all = self.lives.iter_mut();
            all.for_each(|seen| (seen.exposure, seen.died) = (seen.exposure * KEPT, seen.died * KEPT));
        }
    }

    /// Every file has a general kind: together they are all that was written.
    fn say(&self, kinds: &Kinds, evidence: f64) {
        let all = &self.lives[SLOTS..];
        let (exposure, died) = all.iter().fold((0.0, 0.0), |(e, d), l| (e + l.exposure, d + l.died));
        let mean = exposure / (died + evidence);
        for (lives, counts) in self.lives.iter().zip(&kinds.counts) {
            counts.said.store(lives.compared(mean, evidence), Ordering::Relaxed);
        }
    }

    pub(crate) fn lives(&self) -> &[Lives] {
        &self.lives
    }

    /// Goes on from what was seen before, in the same order.
    pub(crate) fn remember(&mut self, kinds: &Kinds, before: &[(usize, Lives)]) {
        for &(slot, lives) in before {
            let Some(known) = self.lives.get_mut(slot) else { continue };
            *known = lives;
            kinds.counts[slot].live.store(lives.live.max(0), Ordering::Relaxed);
        }
    }
}

impl Lives {
    fn compared(&self, mean: f64, evidence: f64) -> u8 {
        let expected_died = if mean > 0.0 { self.exposure / mean } else { 0.0 };
        if self.died < evidence && expected_died < evidence {
            return NOTHING_SEEN;
        }
        if self.exposure > APART * mean * (self.died + evidence) {
            LONG
        } else if self.died >= evidence && self.exposure * APART < mean * self.died {
            SHORT
        } else {
            LIKE_OTHERS
        }
    }
}

#[cfg(test)]
mod tests;
