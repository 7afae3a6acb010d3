//! Every state of a device after a power loss, by number.
//!
//! The changes since the last flush leave independent choices for each zone: how many of its resets are kept; the
//! pointer, at any block from the durable to the latest one; which of the blocks below it are present; and whether
//! the zone becomes full, in which case the pointer has no meaning. The number of a state has one digit for each zone
//! in mixed radix. So the numbers below the count are exactly the states. The count doubles with each block that is
//! not flushed. If it does not fit into 64 bits, there are no numbers.
//!
//! A conventional zone has no pointer. So several numbers stand for the same state: all those without its first block
//! are an empty zone.
//!
//! *Not* numbered are the contents of lost blocks (zeros, the contents before the last reset, noise), which follow
//! from the seed.

use std::sync::Arc;

use rt::random::Rng;

use super::crash::{Change, keep_within_limit};
use super::medium::{Block, Medium, Payload};
use zone::{Blocks, ZoneId, ZoneInfo, ZoneState};

/// The largest number of unflushed blocks of one zone: with more, there are too many states to number.
const BLOCKS_MAX: usize = 60;

/// All states after one window.
pub(super) struct States<'a> {
    durable: &'a Medium,
    window: &'a [Change],
    /// For each zone its lives in the window: the durable one, and one after each reset.
    zones: Vec<Vec<ZoneLife<'a>>>,
}

/// The part of one life of a zone that is not durable.
#[derive(Default)]
struct ZoneLife<'a> {
    /// The capacity after the reset with which it begins, if that changed it.
    capacity: Option<Blocks>,
    /// The pointer at the beginning of the window or of the life.
    begin: Blocks,
    /// The appended blocks: each with its write and its index in the write.
    written: Vec<(&'a Arc<Payload>, Blocks)>,
    /// It may become full although blocks are free: it is active, or was finished.
    may_be_full: bool,
}

impl ZoneLife<'_> {
    /// With a pointer: for each pointer every subset of the blocks below it. Full: every subset.
    fn count(&self) -> Option<u64> {
        let blocks = self.written.len();
        (blocks <= BLOCKS_MAX)
            .then(|| self.count_with_pointer() + if self.may_be_full { 1 << blocks } else { 0 })
    }

    fn count_with_pointer(&self) -> u64 {
        (2 << self.written.len()) - 1
    }

    /// How many of the blocks are below the pointer, which of them are present, and whether the zone is full.
    fn choice(&self, digit: u64) -> (u32, u64, bool) {
        match digit.checked_sub(self.count_with_pointer()) {
            Some(there) => (self.written.len() as u32, there, true),
            None => {
                let beyond = (digit + 1).ilog2();
                (beyond, digit + 1 - (1 << beyond), false)
            }
        }
    }
}

impl<'a> States<'a> {
    /// The states that follow from the durable state and the changes since.
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

    /// The number of states; `None` if it does not fit into 64 bits.
    pub(super) fn count(&self) -> Option<u64> {
        self.zones.iter().try_fold(1_u64, |count, lives| count.checked_mul(radix(lives)?))
    }

    /// The device in one of the states.
    pub(super) fn state(&self, number: u64, mut rng: Rng) -> Medium {
        let mut medium = self.durable.clone();
        let mut rest = number;
        for (zone, lives) in (0..).map(ZoneId).zip(&self.zones) {
            let radix = radix(lives).expect("a state has a number only where all states have one");
            self.settle(&mut medium, zone, lives, rest % radix, &mut rng);
            rest /= radix;
        }
        self.apply_permanent_changes(&mut medium);
        medium.forget_pointers();
        keep_within_limit(&mut medium, &mut rng);
        medium
    }

    /// Puts a zone into the life that the digit selects, and keeps the blocks that the rest of the digit selects.
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
                medium.machine.reset(zone, life.capacity).expect("only a writable zone was reset");
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

    /// Applies damage and permanent state changes, which are never undone.
    fn apply_permanent_changes(&self, medium: &mut Medium) {
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
