//! How long data of a file class lives: by the blocks that were written and have died, and the age of those that live.
//!
//! A *file class* is a number that the user of this crate derives from the attributes of a new file. File classes share a
//! fixed number of slots. Two classes with the same slot are not distinguished. Each slot counts its live blocks, its
//! *exposure* (live blocks × blocks written by users) and its deaths. Exposure / deaths is the mean lifetime, also while most
//! of the data still lives. Data that lives half as long as average is short-lived. Data that lives twice as long is
//! long-lived. If the difference is smaller, or the evidence is not enough, nothing is predicted.
//!
//! Writers increment one or two atomic counters. Sums are updated when a zone is full. A crash loses the counts since the
//! last update, so the live counts may be off by as much. They are only used for predictions.

use rt::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use zone::Blocks;

use crate::Lifetime;

/// Slots for classes of one place, and as many for classes anywhere.
const SLOTS: usize = 2048;
/// After as many filled zones as there are zones, this part of the sums remains.
const DECAY: f64 = 0.7;
/// This share of a zone must have died, or should have at the mean rate, before anything is predicted.
const EVIDENCE_SHARE: f64 = 4.0;
/// A lifetime that differs from the mean by this factor is worth a zone of its own.
const LIFETIME_RATIO: f64 = 2.0;

/// What is known of the origin of data, beside a hint of its lifetime. 0 if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileClass {
    /// Files of the same class in the same place.
    pub particular: u16,
    /// Files of the same class anywhere.
    pub general: u16,
}

impl FileClass {
    fn slots(self) -> impl Iterator<Item = usize> {
        let slot = |number: u16, first: usize| (number != 0).then(|| first + usize::from(number) % SLOTS);
        [slot(self.particular, 0), slot(self.general, SLOTS)].into_iter().flatten()
    }
}

/// The prediction for a slot.
const NO_EVIDENCE: u8 = 0;
const AVERAGE: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;

#[derive(Default)]
struct Counts {
    live: AtomicI64,
    /// Since the last scan.
    died: AtomicU64,
    prediction: AtomicU8,
}

/// Counters that writers increment.
pub(crate) struct FileClassCounters {
    counts: Vec<Counts>,
}

/// The sums of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ObservedClass {
    pub(crate) live: i64,
    pub(crate) exposure: f64,
    pub(crate) died: f64,
}

/// The sums of all slots.
pub(crate) struct FileClassSums {
    slots: Vec<ObservedClass>,
    scans: usize,
}

impl FileClassCounters {
    pub(crate) fn new() -> FileClassCounters {
        FileClassCounters { counts: (0..2 * SLOTS).map(|_| Counts::default()).collect() }
    }

    pub(crate) fn wrote(&self, file_class: FileClass, blocks: u64) {
        file_class.slots().for_each(|slot| {
            self.counts[slot].live.fetch_add(blocks as i64, Ordering::Relaxed);
        });
    }

    pub(crate) fn died(&self, file_class: FileClass, blocks: u64) {
        for slot in file_class.slots() {
            self.counts[slot].live.fetch_sub(blocks as i64, Ordering::Relaxed);
            self.counts[slot].died.fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// Live blocks of this class, and those that have died since the last scan.
    #[cfg(test)]
    pub(crate) fn counted(&self, file_class: FileClass) -> Vec<(i64, u64)> {
        let counts = file_class.slots().map(|slot| &self.counts[slot]);
        counts.map(|of| (of.live.load(Ordering::Relaxed), of.died.load(Ordering::Relaxed))).collect()
    }

    /// The lifetime class that is predicted for data of this file class.
    pub(crate) fn predict(&self, file_class: FileClass) -> Lifetime {
        let prediction = file_class.slots().map(|slot| self.counts[slot].prediction.load(Ordering::Relaxed));
        match prediction.into_iter().find(|&prediction| prediction != NO_EVIDENCE) {
            Some(SHORT) => Lifetime::Short,
            Some(LONG) => Lifetime::Long,
            _ => Lifetime::Unknown,
        }
    }
}

impl FileClassSums {
    pub(crate) fn new() -> FileClassSums {
        FileClassSums { slots: vec![ObservedClass::default(); 2 * SLOTS], scans: 0 }
    }

    /// Updates the sums. `passed` blocks were written since the last scan. After `zones` scans, all zones were filled once.
    pub(crate) fn scan(
        &mut self,
        file_classes: &FileClassCounters,
        passed: u64,
        zones: usize,
        zone_blocks: Blocks,
    ) {
        for (observed, counts) in self.slots.iter_mut().zip(&file_classes.counts) {
            observed.died += counts.died.swap(0, Ordering::Relaxed) as f64;
            observed.live = counts.live.load(Ordering::Relaxed).max(0);
            observed.exposure += observed.live as f64 * passed as f64;
        }
        self.predict_all(file_classes, f64::from(zone_blocks) / EVIDENCE_SHARE);
        self.scans += 1;
        if self.scans >= zones {
            self.scans = 0;
            let all = self.slots.iter_mut();
            all.for_each(|observed| {
                (observed.exposure, observed.died) = (observed.exposure * DECAY, observed.died * DECAY)
            });
        }
    }

    /// Every file has a general class, so the general slots together have all data.
    fn predict_all(&self, file_classes: &FileClassCounters, evidence: f64) {
        let all = &self.slots[SLOTS..];
        let (exposure, died) = all.iter().fold((0.0, 0.0), |(e, d), l| (e + l.exposure, d + l.died));
        let mean = exposure / (died + evidence);
        for (observed, counts) in self.slots.iter().zip(&file_classes.counts) {
            counts.prediction.store(observed.prediction(mean, evidence), Ordering::Relaxed);
        }
    }

    pub(crate) fn slots(&self) -> &[ObservedClass] {
        &self.slots
    }

    /// Loads such sums, by slot.
    pub(crate) fn load(&mut self, file_classes: &FileClassCounters, before: &[(usize, ObservedClass)]) {
        for &(slot, observed) in before {
            let Some(known) = self.slots.get_mut(slot) else { continue };
            *known = observed;
            file_classes.counts[slot].live.store(observed.live.max(0), Ordering::Relaxed);
        }
    }
}

impl ObservedClass {
    fn prediction(&self, mean: f64, evidence: f64) -> u8 {
        let deaths_at_mean = if mean > 0.0 { self.exposure / mean } else { 0.0 };
        if self.died < evidence && deaths_at_mean < evidence {
            return NO_EVIDENCE;
        }
        if self.exposure > LIFETIME_RATIO * mean * (self.died + evidence) {
            LONG
        } else if self.died >= evidence && self.exposure * LIFETIME_RATIO < mean * self.died {
            SHORT
        } else {
            AVERAGE
        }
    }
}

#[cfg(test)]
mod tests;
