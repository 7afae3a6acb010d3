//! The state of an emulated device after a power loss.
//!
//! Everything up to the last flush is present. The changes since then, the *window*, depend on a [`CrashPlan`]. Each
//! append may be present, torn or missing, independently of the others, with the pointer beyond it or not. Each reset
//! may be undone; then nothing that was written to the zone after it exists. Damage and permanent state changes are
//! never undone.
//!
//! A conventional zone has no pointer any more. It is empty if block 0 is missing, and then nothing of that life is
//! present. Otherwise it is full.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rt::random::Rng;

use super::medium::{Block, Medium, Payload, mix};
use super::states::States;
use zone::{Blocks, ZoneId, ZoneInfo, ZoneState};

/// The state in which a device comes back after a power loss. Appends are counted from 0, over all zones, since the
/// last flush.
///
/// As text (`Display`, `FromStr`) a plan is one word, with which a failure can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CrashPlan {
    /// Everything is present.
    KeepAll,
    /// No append since the last flush is present, and the pointers are before them; resets are kept.
    LoseAll,
    /// No append since the last flush is present, but the pointers are beyond them; resets are kept.
    LoseContents,
    /// One append is missing, with the pointer beyond it.
    LoseOne(u32),
    /// One append and all later ones to its zone are missing, and the pointer is before them.
    BackFrom(u32),
    /// Of one append only the first blocks are present, with the pointer beyond all of it.
    TearOne {
        /// Which append.
        k: u32,
        /// The number of its blocks that survive.
        blocks: Blocks,
    },
    /// Every reset since the last flush is undone: the zone has its old contents and pointer, and later writes to it
    /// are lost. Everything else is present.
    UndoResets,
    /// Every reset is undone and no append is present.
    LoseAllUndoResets,
    /// Any state that the contract allows, chosen by this seed.
    Subset(u64),
    /// One of all states that the contract allows, by its number, which is below [`super::Emulated::states_at`].
    State(u64),
    /// As the inner plan, but every zone that would be active is `Full`.
    FullActive(Box<CrashPlan>),
}

impl CrashPlan {
    /// The same with active zones `Full`.
    pub fn full_active(self) -> Self {
        CrashPlan::FullActive(Box::new(self))
    }

    fn split(&self) -> (&CrashPlan, bool) {
        match self {
            CrashPlan::FullActive(plan) => (plan.split().0, true),
            plan => (plan, false),
        }
    }

    fn seed(&self) -> u64 {
        match self {
            CrashPlan::KeepAll => 10,
            CrashPlan::LoseAll => 11,
            CrashPlan::LoseContents => 12,
            CrashPlan::LoseOne(k) => mix(13, u64::from(*k)),
            CrashPlan::TearOne { k, blocks } => mix(mix(14, u64::from(*k)), u64::from(*blocks)),
            CrashPlan::UndoResets => 15,
            CrashPlan::LoseAllUndoResets => 16,
            CrashPlan::Subset(seed) => mix(17, *seed),
            CrashPlan::FullActive(plan) => mix(18, plan.seed()),
            CrashPlan::BackFrom(k) => mix(19, u64::from(*k)),
            CrashPlan::State(number) => mix(20, *number),
        }
    }
}

impl fmt::Display for CrashPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashPlan::KeepAll => f.write_str("keep-all"),
            CrashPlan::LoseAll => f.write_str("lose-all"),
            CrashPlan::LoseContents => f.write_str("lose-contents"),
            CrashPlan::LoseOne(k) => write!(f, "lose-one:{k}"),
            CrashPlan::BackFrom(k) => write!(f, "back-from:{k}"),
            CrashPlan::TearOne { k, blocks } => write!(f, "tear-one:{k}:{blocks}"),
            CrashPlan::UndoResets => f.write_str("undo-resets"),
            CrashPlan::LoseAllUndoResets => f.write_str("lose-all-undo-resets"),
            CrashPlan::Subset(seed) => write!(f, "subset:{seed}"),
            CrashPlan::State(number) => write!(f, "state:{number}"),
            CrashPlan::FullActive(plan) => write!(f, "full:{plan}"),
        }
    }
}

/// The text is not a crash plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a crash plan; examples are keep-all, tear-one:3:1, subset:77 or full:lose-all")]
pub struct InvalidCrashPlan(String);

impl FromStr for CrashPlan {
    type Err = InvalidCrashPlan;

    fn from_str(text: &str) -> Result<Self, InvalidCrashPlan> {
        let wrong = || InvalidCrashPlan(text.to_owned());
        if let Some(inner) = text.strip_prefix("full:") {
            return Ok(inner.parse::<CrashPlan>()?.full_active());
        }
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let small = |number: u64| u32::try_from(number).map_err(|_| wrong());
        Ok(match (name, numbers.as_slice()) {
            ("keep-all", []) => CrashPlan::KeepAll,
            ("lose-all", []) => CrashPlan::LoseAll,
            ("lose-contents", []) => CrashPlan::LoseContents,
            ("lose-one", [k]) => CrashPlan::LoseOne(small(*k)?),
            ("back-from", [k]) => CrashPlan::BackFrom(small(*k)?),
            ("tear-one", [k, blocks]) => CrashPlan::TearOne { k: small(*k)?, blocks: small(*blocks)? },
            ("undo-resets", []) => CrashPlan::UndoResets,
            ("lose-all-undo-resets", []) => CrashPlan::LoseAllUndoResets,
            ("subset", [seed]) => CrashPlan::Subset(*seed),
            ("state", [number]) => CrashPlan::State(*number),
            _ => return Err(wrong()),
        })
    }
}

/// One change of the medium.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// An append or a write.
    Append {
        zone: ZoneId,
        at: Blocks,
        payload: Arc<Payload>,
    },
    Open(ZoneId),
    Close(ZoneId),
    Finish(ZoneId),
    Reset {
        zone: ZoneId,
        capacity: Option<Blocks>,
    },
    Flush,
    /// Another process opens the device.
    Reopen,
    /// The zone changed its state permanently.
    SetState {
        zone: ZoneId,
        state: ZoneState,
    },
    /// A block was damaged.
    Damage {
        zone: ZoneId,
        block: Blocks,
        to: Block,
    },
}

/// Which blocks of one append survive, and whether the pointer is beyond them.
enum AppendOutcome {
    Kept,
    /// The first blocks, up to this number.
    Torn(Blocks),
    /// These blocks, by their bits, 64 at a time.
    Scattered(u64),
    /// Neither blocks nor pointer.
    Gone,
}

impl AppendOutcome {
    /// Chooses any outcome that the contract allows for an append of `blocks` blocks.
    fn draw(rng: &mut Rng, blocks: Blocks) -> AppendOutcome {
        match rng.u32(0..6) {
            0 | 1 => AppendOutcome::Kept,
            2 => AppendOutcome::Torn(0),
            3 => AppendOutcome::Torn(rng.u32(0..blocks)),
            4 => AppendOutcome::Scattered(rng.u64(..)),
            _ => AppendOutcome::Gone,
        }
    }

    /// Whether this block of the append survives.
    fn keeps(&self, block: Blocks) -> bool {
        match *self {
            AppendOutcome::Kept => true,
            AppendOutcome::Torn(first) => block < first,
            AppendOutcome::Scattered(bits) => bits >> (block % 64) & 1 == 1,
            AppendOutcome::Gone => false,
        }
    }
}

/// The distinct plans for this window that need no seed.
pub(super) fn plans(window: &[Change], active: bool, block_size: usize) -> Vec<CrashPlan> {
    let mut plans = vec![CrashPlan::KeepAll];
    let appends = lasting_appends(window, block_size);
    let resets = window.iter().any(|change| matches!(change, Change::Reset { .. }));
    if !appends.is_empty() {
        plans.push(CrashPlan::LoseAll);
    }
    if appends.len() > 1 {
        plans.push(CrashPlan::LoseContents);
    }
    if resets {
        plans.push(CrashPlan::UndoResets);
    }
    if resets && !appends.is_empty() {
        plans.push(CrashPlan::LoseAllUndoResets);
    }
    if active {
        plans.extend(plans.clone().into_iter().map(CrashPlan::full_active));
    }
    for &(zone, k, blocks) in &appends {
        plans.push(CrashPlan::LoseOne(k));
        // If it begins with the first append of the only zone, nothing is left: that is `LoseAll`.
        if appends.iter().any(|&(other, before, _)| other != zone || before < k) {
            plans.push(CrashPlan::BackFrom(k));
        }
        let mut tears = vec![1, blocks / 2];
        tears.dedup();
        tears.retain(|&tear| 0 < tear && tear < blocks);
        plans.extend(tears.into_iter().map(|blocks| CrashPlan::TearOne { k, blocks }));
    }
    plans
}

/// The appends that no later reset in the window has erased: their zones, numbers and lengths.
fn lasting_appends(window: &[Change], block_size: usize) -> Vec<(ZoneId, u32, Blocks)> {
    let mut appends = Vec::new();
    let mut k = 0;
    for change in window {
        match change {
            Change::Append { zone, payload, .. } => {
                appends.push((*zone, k, payload.blocks(block_size)));
                k += 1;
            }
            Change::Reset { zone, .. } => appends.retain(|(written, ..)| written != zone),
            _ => {}
        }
    }
    appends
}

/// The state after a power loss, from the durable state and the window after it.
pub(super) fn after_power_loss(durable: Medium, window: &[Change], plan: &CrashPlan, seed: u64) -> Medium {
    let (plan, full_active) = plan.split();
    let zones = durable.contents.len();
    let rng = Rng::with_seed(mix(seed, plan.seed()));
    if let CrashPlan::State(number) = plan {
        let block_size = durable.machine.geometry().block_size as usize;
        return States::of(&durable, window, block_size).state(*number, rng);
    }
    let mut loss = PowerLoss {
        medium: durable,
        plan,
        rng,
        undone: vec![false; zones],
        first_block_lost: vec![false; zones],
        append: 0,
        back: None,
    };
    for change in window {
        loss.apply(change);
    }
    loss.settle(full_active);
    loss.medium
}

/// The contents of the device after the window without a power loss.
pub(super) fn with_power_on(mut medium: Medium, window: &[Change]) -> Medium {
    let possible = "recorded commands are possible";
    let block_size = medium.machine.geometry().block_size as usize;
    for change in window {
        match change {
            Change::Append { zone, at, payload } => {
                let blocks = payload.blocks(block_size);
                medium.machine.advance(*zone, blocks, Some(*at)).expect(possible);
                medium.contents_mut(*zone).append(payload, blocks);
            }
            Change::Open(zone) => medium.machine.open(*zone).expect(possible),
            Change::Close(zone) => medium.machine.close(*zone).expect(possible),
            Change::Finish(zone) => medium.machine.finish(*zone).expect(possible),
            Change::Reset { zone, capacity } => {
                medium.machine.reset(*zone, *capacity).expect(possible);
                medium.contents_mut(*zone).reset();
            }
            Change::Flush => {}
            Change::Reopen => medium.forget_pointers(),
            Change::SetState { zone, state } => medium.set_state(*zone, *state),
            Change::Damage { zone, block, to } => medium.contents_mut(*zone).put(*block, to.clone()),
        }
    }
    medium.forget_pointers();
    medium
}

/// A device while a crash plan is applied to the changes since its last flush.
struct PowerLoss<'a> {
    medium: Medium,
    plan: &'a CrashPlan,
    rng: Rng,
    /// Zones whose reset is undone: later changes do not affect them.
    undone: Vec<bool>,
    /// Zones whose block 0 was written and is lost.
    first_block_lost: Vec<bool>,
    /// The number of the next append of the window.
    append: u32,
    /// The zone whose later appends and finish are lost ([`CrashPlan::BackFrom`]).
    back: Option<ZoneId>,
}

impl PowerLoss<'_> {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Append { zone, at, payload } => self.append(*zone, *at, payload),
            Change::Reset { zone, capacity } => self.reset(*zone, *capacity),
            Change::Finish(zone)
                if !self.undone[zone.0 as usize] && self.back != Some(*zone) && self.keeps_finish() =>
            {
                self.medium.set_state(*zone, ZoneState::Full);
            }
            Change::SetState { zone, state } => self.medium.set_state(*zone, *state),
            Change::Damage { zone, block, to } => {
                let contents = self.medium.contents_mut(*zone);
                if (*block as usize) < contents.blocks.len() {
                    contents.put(*block, to.clone());
                }
            }
            // A power loss closes all zones.
            Change::Finish(_) | Change::Open(_) | Change::Close(_) | Change::Flush | Change::Reopen => {}
        }
    }

    fn append(&mut self, zone: ZoneId, at: Blocks, payload: &Arc<Payload>) {
        let blocks = payload.blocks(self.medium.machine.geometry().block_size as usize);
        if matches!(self.plan, CrashPlan::BackFrom(k) if *k == self.append) {
            self.back = Some(zone);
        }
        let outcome = if self.back == Some(zone) { AppendOutcome::Gone } else { self.outcome(blocks) };
        self.append += 1;
        // The length of the random stream must not depend on the zone.
        let seed = self.rng.u64(..);
        if self.undone[zone.0 as usize] {
            return;
        }
        self.first_block_lost[zone.0 as usize] |= at == 0 && !outcome.keeps(0);
        if matches!(outcome, AppendOutcome::Gone) {
            return;
        }
        let contents = self.medium.contents_mut(zone);
        contents.extend(at + blocks, seed);
        for block in 0..blocks {
            if outcome.keeps(block) {
                contents.put(at + block, Block::Data { payload: Arc::clone(payload), at: block });
            }
        }
    }

    fn outcome(&mut self, blocks: Blocks) -> AppendOutcome {
        match *self.plan {
            CrashPlan::LoseAll | CrashPlan::LoseAllUndoResets => AppendOutcome::Gone,
            CrashPlan::LoseContents => AppendOutcome::Torn(0),
            CrashPlan::LoseOne(k) if k == self.append => AppendOutcome::Torn(0),
            CrashPlan::TearOne { k, blocks } if k == self.append => AppendOutcome::Torn(blocks),
            CrashPlan::Subset(_) => AppendOutcome::draw(&mut self.rng, blocks),
            _ => AppendOutcome::Kept,
        }
    }

    fn reset(&mut self, zone: ZoneId, capacity: Option<Blocks>) {
        let undo = match self.plan {
            CrashPlan::UndoResets | CrashPlan::LoseAllUndoResets => true,
            CrashPlan::Subset(_) => self.rng.bool(),
            _ => false,
        };
        let undone = &mut self.undone[zone.0 as usize];
        *undone |= undo;
        if *undone {
            return;
        }
        self.first_block_lost[zone.0 as usize] = false;
        self.medium.contents_mut(zone).reset();
        self.medium.machine.reset(zone, capacity).expect("only a zone that can be written was ever reset");
    }

    fn keeps_finish(&mut self) -> bool {
        match self.plan {
            CrashPlan::LoseAll | CrashPlan::LoseAllUndoResets => false,
            CrashPlan::Subset(_) => self.rng.bool(),
            _ => true,
        }
    }

    /// Sets the state of each zone when the power is back: no zone is open.
    fn settle(&mut self, full_active: bool) {
        for number in 0..self.undone.len() {
            if self.first_block_lost[number] {
                self.medium.lose_first_block(ZoneId(number as u32));
            }
            let (zone, info) = (ZoneId(number as u32), self.medium.machine.zones()[number]);
            let pointer = self.medium.contents[number].blocks.len() as Blocks;
            let state = match info.state {
                ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => info.state,
                _ if pointer == 0 => ZoneState::Empty,
                _ if pointer == info.capacity || full_active || self.comes_back_full() => ZoneState::Full,
                _ => ZoneState::Closed,
            };
            self.medium.machine.force(zone, ZoneInfo { state, pointer, ..info });
        }
        self.medium.forget_pointers();
        keep_within_limit(&mut self.medium, &mut self.rng);
    }

    /// Whether an active zone becomes full, which any of them may.
    fn comes_back_full(&mut self) -> bool {
        matches!(self.plan, CrashPlan::Subset(_)) && self.rng.u32(0..8) == 0
    }
}

/// If a reset or a finish is undone, the zone is active again, and there may be one active zone too many. A device
/// never exceeds its own limit, and any active zone may become full.
pub(super) fn keep_within_limit(medium: &mut Medium, rng: &mut Rng) {
    let limit = medium.machine.geometry().max_active;
    while medium.machine.active() > limit {
        let zones = medium.machine.zones();
        let active: Vec<usize> = (0..zones.len()).filter(|&n| zones[n].state.is_active()).collect();
        let chosen = active[rng.usize(..active.len())];
        medium.set_state(ZoneId(chosen as u32), ZoneState::Full);
    }
}
