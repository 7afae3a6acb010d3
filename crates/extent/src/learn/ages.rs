//! How fast the contents of zones die, by stream and age.
//!
//! A *stream* is the data that goes to the same zones: user writes of one lifetime class, or blocks that GC moves. The *age*
//! of a zone is the number of blocks that users have written since it was filled. For each stream and each power of two of
//! the age there are two sums. The *exposure* is the sum of live blocks × blocks that died meanwhile in all zones. The other
//! sum is the number of blocks that died in the zones of this stream and age. Their ratio is the *hazard*: the share of all
//! deaths that falls to one block. So a time without any death, as when files are only added, has no effect. Open zones do
//! not count either, because they only gain blocks. How many blocks die is known better than when they die, and only their
//! distribution matters.
//!
//! A victim costs the moves of its live blocks, and reclaims the dead ones. If GC waits, it saves the blocks that die
//! meanwhile, and does without the zone for as long. So the best victim is the one with the most dead / (live × hazard). If
//! the hazard is inverse to the age, this is the cost-benefit rule of Rosenblum and Ousterhout (TOCS 1992, section 3.5). If it
//! does not depend on the age, this is the greedy rule. Before there are observations, the hazard is assumed to halve when
//! the age doubles. So zones are left to grow old until their hazard is known.
//!
//! Memory: 12 bytes for each zone. This file chooses no victims and knows no device.

use rt::sync::atomic::{AtomicU64, Ordering};
use zone::{Blocks, ZoneId};

use super::prediction_error::PredictionError;
use crate::Lifetime;

/// Streams: one for each lifetime class, and one for blocks that GC moves.
pub(crate) const STREAMS: usize = Lifetime::ALL.len() + 1;
/// Number of powers of two of an age.
pub(crate) const AGES: usize = 48;
/// Stands for the live blocks of a zone in GC: blocks that leave it have not died.
const IN_GC: Blocks = Blocks::MAX;
/// The prior hazard weighs as much as this share of a zone.
const PRIOR_SHARE: f64 = 8.0;
/// After as many filled zones as there are zones, this part of the sums remains.
const DECAY: f64 = 0.7;

/// Data that goes to the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(u8);

impl Stream {
    /// Blocks that GC moves.
    pub(crate) const MOVED: Stream = Stream(Lifetime::ALL.len() as u8);

    /// User writes of a lifetime class.
    pub(crate) fn user_writes(lifetime: Lifetime) -> Stream {
        Stream(lifetime.number())
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The stream of this number. An unknown number stands for user writes of unknown lifetime.
    pub(crate) fn from_number(number: u8) -> Stream {
        Stream(if usize::from(number) < STREAMS { number } else { 0 })
    }
}

/// A point in time, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// Blocks that users have written. Measures ages.
    pub(crate) written: u64,
    /// Blocks that have died. Measures exposure.
    pub(crate) died: u64,
}

/// By stream and power of two of the age.
type Hazards = [[f64; AGES]; STREAMS];

/// The sums of one stream at one age.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// Live blocks × blocks that died meanwhile in all zones.
    pub(crate) exposure: f64,
    /// Blocks that died.
    pub(crate) died: f64,
}

/// When each zone was filled, and its stream. Writers may ask at any time.
pub(crate) struct FillTimes(Vec<AtomicU64>);

/// A word has the stream in these low bits, and the time above them.
const STREAM_BITS: u32 = 3;

impl FillTimes {
    pub(crate) fn new(zones: u32) -> FillTimes {
        FillTimes((0..zones).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, zone: ZoneId, stream: Stream, at: u64) {
        let word = at << STREAM_BITS | u64::from(stream.0);
        self.0[zone.0 as usize].store(word, Ordering::Relaxed);
    }

    /// Time since the zone was filled, and its stream.
    pub(crate) fn of(&self, zone: ZoneId, now: u64) -> (u64, Stream) {
        let word = self.0[zone.0 as usize].load(Ordering::Relaxed);
        let stream = Stream::from_number((word & ((1 << STREAM_BITS) - 1)) as u8);
        (now.saturating_sub(word >> STREAM_BITS), stream)
    }
}

/// The sums of all filled zones.
pub(crate) struct Ages {
    /// The live blocks of each zone at the last scan, or [`IN_GC`]. 0: the zone does not count.
    live: Vec<Blocks>,
    observed: [[Observed; AGES]; STREAMS],
    /// Deaths and predictions since the mount.
    prediction_errors: [PredictionError; STREAMS],
    scanned_at: Clocks,
    scans: usize,
    /// Deaths that the prior hazard weighs.
    weight: f64,
}

impl Ages {
    pub(crate) fn new(zones: u32, zone_blocks: Blocks) -> Ages {
        Ages {
            live: vec![0; zones as usize],
            observed: [[Observed::default(); AGES]; STREAMS],
            prediction_errors: [PredictionError::default(); STREAMS],
            scanned_at: Clocks::default(),
            scans: 0,
            weight: f64::from(zone_blocks.max(1)) / PRIOR_SHARE,
        }
    }

    /// Scans all zones after the zone `just` was filled. `live` has the live blocks of each filled zone, and 0 for all
    /// other zones. The last blocks of `just` may be inserted later, so it counts from the next scan on.
    pub(crate) fn scan(&mut self, fill_times: &FillTimes, just: ZoneId, now: Clocks, live: &[Blocks]) {
        let hazards = self.hazards();
        // Its last sum was of an earlier life.
        self.live[just.0 as usize] = 0;
        for (zone, &live) in (0..).map(ZoneId).zip(live) {
            self.account(fill_times, &hazards, zone, now, live);
            let observed = &mut self.live[zone.0 as usize];
            if zone != just && (*observed != IN_GC || live == 0) {
                *observed = live;
            }
        }
        self.scanned_at = now;
        self.scans += 1;
        if self.scans >= self.live.len() {
            self.scans = 0;
            let all = self.observed.iter_mut().flatten();
            all.for_each(|observed| {
                (observed.exposure, observed.died) = (observed.exposure * DECAY, observed.died * DECAY)
            });
        }
    }

    /// A zone was filled, and a scan of all zones is not due. The last sum of this zone was of an earlier life.
    pub(crate) fn skip_scan(&mut self, just: ZoneId) {
        self.live[just.0 as usize] = 0;
        self.scans += 1;
    }

    /// GC begins to move the live blocks of this zone, which may take long. They do not die. Returns whether the zone
    /// counted.
    pub(crate) fn gc_begins(
        &mut self,
        fill_times: &FillTimes,
        zone: ZoneId,
        now: Clocks,
        live: Blocks,
    ) -> bool {
        let hazards = self.hazards();
        self.account(fill_times, &hazards, zone, now, live);
        let before = std::mem::replace(&mut self.live[zone.0 as usize], IN_GC);
        before > 0 && before != IN_GC
    }

    /// All hazards, as learned so far.
    fn hazards(&self) -> Hazards {
        std::array::from_fn(|stream| {
            let mut hazard = 1.0;
            std::array::from_fn(|power| {
                hazard = self.next_hazard(stream, power, hazard);
                hazard
            })
        })
    }

    fn account(
        &mut self,
        fill_times: &FillTimes,
        hazards: &Hazards,
        zone: ZoneId,
        now: Clocks,
        live: Blocks,
    ) {
        let before = self.live[zone.0 as usize];
        if before == 0 || before == IN_GC {
            return;
        }
        let (age, stream) = fill_times.of(zone, now.written);
        let since = now.written.saturating_sub(self.scanned_at.written);
        // Only deaths since the zone was filled count.
        let part = if age < since { age as f64 / since as f64 } else { 1.0 };
        let passed = now.died.saturating_sub(self.scanned_at.died) as f64 * part;
        let died = f64::from(before.saturating_sub(live));
        let observed = &mut self.observed[usize::from(stream.0)][power(age)];
        observed.exposure += f64::from(before) * passed;
        observed.died += died;
        let survive = (-hazards[usize::from(stream.0)][power(age)] * passed).exp();
        self.prediction_errors[usize::from(stream.0)].add(died, f64::from(before) * (1.0 - survive));
    }

    /// Deaths and predictions of each stream since the mount.
    pub(crate) fn prediction_errors(&self) -> &[PredictionError; STREAMS] {
        &self.prediction_errors
    }

    /// The share of all deaths that falls to one block of this stream and age.
    pub(crate) fn hazard(&self, stream: Stream, age: u64) -> f64 {
        let powers = 0..=power(age);
        powers.fold(1.0, |hazard, power| self.next_hazard(usize::from(stream.0), power, hazard))
    }

    /// The hazard at a power of two of the age, from the hazard at the power before.
    fn next_hazard(&self, stream: usize, power: usize, before: f64) -> f64 {
        let observed = self.observed[stream][power];
        let prior = if power == 0 { 1.0 } else { before / 2.0 };
        // Stored sums can be anything. The result is a share, and not zero.
        let hazard = (observed.died + self.weight) / (observed.exposure + self.weight / prior);
        hazard.clamp(f64::MIN_POSITIVE, 1.0)
    }

    /// The value of a victim. More is better.
    pub(crate) fn worth(&self, (age, stream): (u64, Stream), live: Blocks, payload: Blocks) -> f64 {
        let dead = f64::from(payload.saturating_sub(live));
        dead / (f64::from(live.max(1)) * self.hazard(stream, age))
    }

    /// The sums by stream and age.
    pub(crate) fn observed(&self) -> impl Iterator<Item = Observed> {
        self.observed.iter().flatten().copied()
    }

    /// Loads such sums, in the same order.
    pub(crate) fn load(&mut self, now: Clocks, before: impl Iterator<Item = Observed>) {
        self.observed.iter_mut().flatten().zip(before).for_each(|(observed, before)| *observed = before);
        self.scanned_at = now;
    }
}

/// The power of two above an age.
fn power(age: u64) -> usize {
    ((u64::BITS - age.leading_zeros()) as usize).min(AGES - 1)
}

#[cfg(test)]
mod tests;
