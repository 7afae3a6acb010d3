//! How fast the contents of zones die, by what was written to them and how long ago they were filled.
//!
//! A *stream* is what goes into the same zones: fresh data of one lifetime class, or what garbage collection moves.
//! Its *age* is told in blocks that users have written since the zone was filled. For each stream and each power of two
//! of the age two sums are kept: how many blocks lived while how many others died, anywhere (*exposure*), and how many
//! of them died themselves. Their ratio is the *hazard*: of all that dies, the share that falls to one block. So a time
//! in which nothing dies, as when files are only added, says nothing of who dies first, nor do zones that are being
//! written, which only gain. How many blocks die is known better than when: what matters is who does.
//!
//! A victim costs the blocks that live in it, and wins the others. Who waits instead saves what dies meanwhile,
//! and does without the zone as long. So the best victim is the one with the most dead / (alive × hazard). Where
//! the hazard falls as one over the age, that is the cost-benefit rule of Rosenblum and Ousterhout (TOCS 1992,
//! section 3.5); where it does not depend on the age, it is the greedy rule. What has not been seen is taken to be
//! half of the hazard at half of the age: so zones are left to grow old until it is known how that is.
//!
//! Memory: 12 bytes a zone. This file chooses no victims and knows no device.

use rt::sync::atomic::{AtomicU64, Ordering};
use zone::{Blocks, ZoneId};

use super::told::Expected;
use crate::Lifetime;

/// Streams: one for each lifetime class, and garbage collection's.
pub(crate) const STREAMS: usize = Lifetime::ALL.len() + 1;
/// Powers of two of an age.
pub(crate) const AGES: usize = 48;
/// Instead of what lived in a zone at the last look: it is being emptied, and what leaves it does not die.
const EMPTIED: Blocks = Blocks::MAX;
/// Part of a zone that an expectation weighs beside what was seen.
const EXPECTED_SHARE: f64 = 8.0;
/// After as many zones filled as there are, this is left of what was seen.
const KEPT: f64 = 0.7;

/// What goes into the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(u8);

impl Stream {
    /// What garbage collection moves.
    pub(crate) const MOVED: Stream = Stream(Lifetime::ALL.len() as u8);

    /// Fresh data of a class.
    pub(crate) fn fresh(lifetime: Lifetime) -> Stream {
        Stream(lifetime.number())
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The stream of this number; of any other one, that of fresh data of which nothing is known.
    pub(crate) fn from_number(number: u8) -> Stream {
        Stream(if usize::from(number) < STREAMS { number } else { 0 })
    }
}

/// What it is by either clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Blocks that users have written: it tells how old something is.
    pub(crate) written: u64,
    /// Blocks that have died: it tells what was survived.
    pub(crate) died: u64,
}

/// For each stream and power of two of the age.
type Hazards = [[f64; AGES]; STREAMS];

/// What was seen of one stream at one age.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Blocks times blocks that died meanwhile, anywhere.
    pub(crate) exposure: f64,
    /// Blocks.
    pub(crate) died: f64,
}

/// When each zone was filled, and with what. Writers may ask at any time.
pub(crate) struct Filled(Vec<AtomicU64>);

/// Below the time, a word has the stream.
const STREAM_BITS: u32 = 3;

impl Filled {
    pub(crate) fn new(zones: u32) -> Filled {
        Filled((0..zones).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, zone: ZoneId, stream: Stream, at: u64) {
        let word = at << STREAM_BITS | u64::from(stream.0);
        self.0[zone.0 as usize].store(word, Ordering::Relaxed);
    }

    /// Time since the zone was filled, and with what.
    pub(crate) fn of(&self, zone: ZoneId, now: u64) -> (u64, Stream) {
        let word = self.0[zone.0 as usize].load(Ordering::Relaxed);
        let stream = Stream::from_number((word & ((1 << STREAM_BITS) - 1)) as u8);
        (now.saturating_sub(word >> STREAM_BITS), stream)
    }
}

/// What was seen of all zones that were filled.
pub(crate) struct Ages {
    /// Blocks that lived in each zone at the last look, or [`EMPTIED`]; 0: it is not looked at.
    live: Vec<Blocks>,
    seen: [[Seen; AGES]; STREAMS],
    /// What became of what was expected, since the mount.
    expected: [Expected; STREAMS],
    looked_at: Moment,
    looks: usize,
    /// Deaths that an expectation weighs beside what was seen.
    weight: f64,
}

impl Ages {
    pub(crate) fn new(zones: u32, zone_blocks: Blocks) -> Ages {
        Ages {
            live: vec![0; zones as usize],
            seen: [[Seen::default(); AGES]; STREAMS],
            expected: [Expected::default(); STREAMS],
            looked_at: Moment::default(),
            looks: 0,
            weight: f64::from(zone_blocks.max(1)) / EXPECTED_SHARE,
        }
    }

    /// This zone was filled just now: looks at all zones, how many blocks live in each that is filled, and 0 for all
    /// others. Some of those that it was filled with may not be counted in it yet: it is watched from the next look on.
    pub(crate) fn look(&mut self, filled: &Filled, just: ZoneId, now: Moment, live: &[Blocks]) {
        let hazards = self.hazards();
        // Whatever it was emptied of was in another life.
        self.live[just.0 as usize] = 0;
        for (zone, &live) in (0..).map(ZoneId).zip(live) {
            self.account(filled, &hazards, zone, now, live);
            let seen = &mut self.live[zone.0 as usize];
            if zone != just && (*seen != EMPTIED || live == 0) {
                *seen = live;
            }
        }
        self.looked_at = now;
        self.looks += 1;
        if self.looks >= self.live.len() {
            self.looks = 0;
            let all = self.seen.iter_mut().flatten();
            all.for_each(|seen| (seen.exposure, seen.died) = (seen.exposure * KEPT, seen.died * KEPT));
        }
    }

    /// This zone was filled just now, and it is not time to look at all zones: what the last look has seen of it was
    /// another life.
    pub(crate) fn pass_over(&mut self, just: ZoneId) {
        self.live[just.0 as usize] = 0;
        self.looks += 1;
    }

    /// What lives in this zone is about to be moved, which may take long: it does not die. Whether it was looked at.
    pub(crate) fn evacuated(&mut self, filled: &Filled, zone: ZoneId, now: Moment, live: Blocks) -> bool {
        let hazards = self.hazards();
        self.account(filled, &hazards, zone, now, live);
        let before = std::mem::replace(&mut self.live[zone.0 as usize], EMPTIED);
        before > 0 && before != EMPTIED
    }

    /// All hazards as they are learned now.
    fn hazards(&self) -> Hazards {
        std::array::from_fn(|stream| {
            let mut hazard = 1.0;
            std::array::from_fn(|power| {
                hazard = self.next_hazard(stream, power, hazard);
                hazard
            })
        })
    }

    fn account(&mut self, filled: &Filled, hazards: &Hazards, zone: ZoneId, now: Moment, live: Blocks) {
        let before = self.live[zone.0 as usize];
        if before == 0 || before == EMPTIED {
            return;
        }
        let (age, stream) = filled.of(zone, now.written);
        let since = now.written.saturating_sub(self.looked_at.written);
        // Of what died since the last look, only what died after the zone was filled.
        let part = if age < since { age as f64 / since as f64 } else { 1.0 };
        let passed = now.died.saturating_sub(self.looked_at.died) as f64 * part;
        let died = f64::from(before.saturating_sub(live));
        let seen = &mut self.seen[usize::from(stream.0)][power(age)];
        seen.exposure += f64::from(before) * passed;
        seen.died += died;
        let survive = (-hazards[usize::from(stream.0)][power(age)] * passed).exp();
        self.expected[usize::from(stream.0)].add(died, f64::from(before) * (1.0 - survive));
    }

    /// What became of what was expected of each stream, since the mount.
    pub(crate) fn expected(&self) -> &[Expected; STREAMS] {
        &self.expected
    }

    /// Of all that dies, the share that falls to one block of this stream and age.
    pub(crate) fn hazard(&self, stream: Stream, age: u64) -> f64 {
        let powers = 0..=power(age);
        powers.fold(1.0, |hazard, power| self.next_hazard(usize::from(stream.0), power, hazard))
    }

    /// The hazard at a power of two of the age, given that at the one before.
    fn next_hazard(&self, stream: usize, power: usize, before: f64) -> f64 {
        let seen = self.seen[stream][power];
        let expected = if power == 0 { 1.0 } else { before / 2.0 };
        // It is a share, and more than nothing, also of sums that somebody stored and nobody has seen.
        let hazard = (seen.died + self.weight) / (seen.exposure + self.weight / expected);
        hazard.clamp(f64::MIN_POSITIVE, 1.0)
    }

    /// How good a victim is: the more, the better.
    pub(crate) fn worth(&self, (age, stream): (u64, Stream), live: Blocks, payload: Blocks) -> f64 {
        let dead = f64::from(payload.saturating_sub(live));
        dead / (f64::from(live.max(1)) * self.hazard(stream, age))
    }

    /// What was seen, stream by stream and age by age.
    pub(crate) fn seen(&self) -> impl Iterator<Item = Seen> {
        self.seen.iter().flatten().copied()
    }

    /// Goes on from what was seen before, in the same order.
    pub(crate) fn remember(&mut self, now: Moment, before: impl Iterator<Item = Seen>) {
        self.seen.iter_mut().flatten().zip(before).for_each(|(seen, before)| *seen = before);
        self.looked_at = now;
    }
}

/// The power of two below which an age is.
fn power(age: u64) -> usize {
    ((u64::BITS - age.leading_zeros()) as usize).min(AGES - 1)
}

#[cfg(test)]
mod tests;
