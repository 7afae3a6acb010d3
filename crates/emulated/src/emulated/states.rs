//! Every state that a device may be found in after a loss of power, by number.
//!
//! What happened since the last flush leaves each zone by itself a choice: how many of its resets hold; where
//! the pointer is found, at any block from where it was to where it had come; which of the blocks below it are
//! there; and whether the zone comes back full, in which case the pointer tells nothing. The number of a state
//! is written in mixed radix with a digit for each zone, so that all numbers below the count are all states.
//! The count doubles with each block that is not flushed: where it does not fit into 64 bits there is none.
//!
//! Of a conventional zone there is no pointer: several numbers stand for the same, all those without its first
//! block for an empty zone.
//!
//! What is *not* numbered: what is read at a block that was lost (zeros, what was there before the last reset,
//! noise), which follows from the seed.

use std::sync::Arc;

use rt::random::Rng;

use super::crash::{Change, keep_within_limit};
use super::medium::{Block, Medium, Payload};
use zone::{Blocks, ZoneId, ZoneInfo, ZoneState};

/// Blocks of one zone that are not flushed, at most: with more there are too many states to number.
const BLOCKS_MAX: usize = 60;

/// All states after one window.
pub(super) struct States<'a> {
    durable: &'a Medium,
    window: &'a [Change],
    /// For each zone its lives in the window: the one that was durable, and one after each reset.
    zones: Vec<Vec<ZoneLife<'a>>>,
}

/// One life of a zone, as far as it is not durable.
#[derive(Default)]
struct ZoneLife<'a> {
    /// The capacity from the reset on that it begins with, when that changed it.
    capacity: Option<Blocks>,
    /// The pointer where the window, or the life, begins.
    begin: Blocks,
    /// What was appended: each block by its write and its place in that.
    written: Vec<(&'a Arc<Payload>, Blocks)>,
    /// It can be found full although blocks are free: it is active, or was finished.
    may_be_full: bool,
}

impl ZoneLife<'_> {
    /// With the pointer told: for each place of the pointer every subset of what is below. Full: every subset.
    fn count(&self) -> Option<u64> {
        let blocks = self.written.len();
        (blocks <= BLOCKS_MAX).then(|| self.pointer_told() + if self.may_be_full { 1 << blocks } else { 0 })
    }

    fn pointer_told(&self) -> u64 {
        (2 << self.written.len()) - 1
    }

    /// How many of the blocks the pointer is beyond, which of them are there, and whether the zone is full.
    fn choice(&self, digit: u64) -> (u32, u64, bool) {
        match digit.checked_sub(self.pointer_told()) {
            Some(there) => (self.written.len() as u32, there, true),
            None => {
                let beyond = (digit + 1).ilog2();
                (beyond, digit + 1 - (1 << beyond), false)
            }
        }
    }
}

impl<'a> States<'a> {
    /// Of what was durable and the changes since.
    pub(super) fn of(durable: &'a Medium, window: &'a [Change], block_size: usize) -> Self {
        let first = |info: &ZoneInfo| ZoneLife {
            begin: info.pointer,
            may_be_full: info.state.is_active(),
            ..ZoneLife::default()
        };
        let mut zones: Vec<Vec<ZoneLife<'a>>> =
            durable.machine.zones().iter().map(|info| vec![first(info)]).collect();
        for change in window {
            match change {
                Change::Append { zone, payload, .. } => {
                    let life = newest(&mut zones, *zone);
                    life.written.extend((0..payload.blocks(block_size)).map(|at| (payload, at)));
                    life.may_be_full = true;
                }
                Change::Finish(zone) => newest(&mut zones, *zone).may_be_full = true,
                Change::Reset { zone, capacity } => {
                    zones[zone.0 as usize].push(ZoneLife { capacity: *capacity, ..ZoneLife::default() });
                }
                _ => {}
            }
        }
        States { durable, window, zones }
    }

    /// How many there are; none when that is no number of 64 bits.
    pub(super) fn count(&self) -> Option<u64> {
        self.zones.iter().try_fold(1_u64, |count, lives| count.checked_mul(radix(lives)?))
    }

    /// The device in one of them.
    pub(super) fn state(&self, number: u64, mut rng: Rng) -> Medium {
        let mut medium = self.durable.clone();
        let mut rest = number;
        for (zone, lives) in (0..).map(ZoneId).zip(&self.zones) {
            let radix = radix(lives).expect("a state has a number only where all states have one");
            self.settle(&mut medium, zone, lives, rest % radix, &mut rng);
            rest /= radix;
        }
        self.apply_for_good(&mut medium);
        medium.forget_pointers();
        keep_within_limit(&mut medium, &mut rng);
        medium
    }

    /// Takes a zone to the life that the digit says, and leaves of it what the rest of the digit says.
    fn settle(
        &self,
        medium: &mut Medium,
        zone: ZoneId,
        lives: &[ZoneLife<'_>],
        mut digit: u64,
        rng: &mut Rng,
    ) {
        for (number, life) in lives.iter().enumerate() {
            if number > 0 {
                medium.machine.reset(zone, life.capacity).expect("only what can be written was ever reset");
                medium.contents_mut(zone).reset();
            }
            let count = life.count().expect("a state has a number only where all states have one");
            if digit < count {
                return leave(medium, zone, life, life.choice(digit), rng);
            }
            digit -= count;
            for &(payload, at) in &life.written {
                let end = medium.contents[zone.0 as usize].blocks.len() as Blocks;
                medium.contents_mut(zone).put(end, Block::Data { payload: Arc::clone(payload), at });
            }
        }
        unreachable!("a digit is below the sum of its lives' counts");
    }

    /// Damage and zones that changed their state for good are never undone.
    fn apply_for_good(&self, medium: &mut Medium) {
        for change in self.window {
            match change {
                Change::SetState { zone, state } => medium.set_state(*zone, *state),
                Change::Damage { zone, block, to } => {
                    let contents = medium.contents_mut(*zone);
                    if (*block as usize) < contents.blocks.len() {
                        contents.put(*block, to.clone());
                    }
                }
                _ => {}
            }
        }
    }
}

fn newest<'z, 'a>(zones: &'z mut [Vec<ZoneLife<'a>>], zone: ZoneId) -> &'z mut ZoneLife<'a> {
    zones[zone.0 as usize].last_mut().expect("a zone has a life")
}

fn radix(lives: &[ZoneLife<'_>]) -> Option<u64> {
    lives.iter().try_fold(0_u64, |sum, life| sum.checked_add(life.count()?))
}

fn leave(medium: &mut Medium, zone: ZoneId, life: &ZoneLife<'_>, choice: (u32, u64, bool), rng: &mut Rng) {
    let (beyond, there, full) = choice;
    let pointer = life.begin + beyond;
    let contents = medium.contents_mut(zone);
    contents.extend(pointer, rng.u64(..));
    for (number, &(payload, at)) in (0..beyond).zip(&life.written) {
        if there >> number & 1 == 1 {
            contents.put(life.begin + number, Block::Data { payload: Arc::clone(payload), at });
        }
    }
    let info = medium.machine.zones()[zone.0 as usize];
    let state = match info.state {
        ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => info.state,
        _ if pointer == 0 => ZoneState::Empty,
        _ if full || pointer == info.capacity => ZoneState::Full,
        _ => ZoneState::Closed,
    };
    medium.machine.force(zone, ZoneInfo { state, pointer, ..info });
    if life.begin == 0 && beyond > 0 && there & 1 == 0 {
        medium.lose_first_block(zone);
    }
}
