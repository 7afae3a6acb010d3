//! A workload of a set, and the states that the contract of the device allows after a loss of power.

use std::collections::BTreeMap;

use crate::zone::format::{ZoneIdentity, encode_header_of};
use crate::zone::{Blocks, Device, DeviceError, Life, Role, ZoneId, ZoneInfo, ZoneState};

use super::VOLUME;

/// One operation of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The header of an empty zone, or blocks behind it.
    Append(u32, Blocks),
    Finish(u32),
    Reset(u32),
    Flush,
}

/// An operation that a set has executed, with the number of changes before and after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) op: Op,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// One life of a zone.
#[derive(Clone, Debug, Default)]
struct OneLife {
    life: u32,
    /// The contents of the blocks that were appended; `None` for any.
    blocks: Vec<Option<Vec<u8>>>,
    finished: bool,
    /// Its reset failed, so it may be gone.
    may_be_erased: bool,
}

/// One zone: its lives, and the part of them that is durable.
#[derive(Clone, Debug)]
struct Zone {
    lives: Vec<OneLife>,
    /// The life, and how many of its blocks are durable, and whether its end is.
    durable: (usize, usize, bool),
}

/// What a set must have.
#[derive(Clone, Debug)]
pub(super) struct Model {
    zones: Vec<Zone>,
    block_size: usize,
}

/// Executes a workload, whose operations all succeed, and returns when each of them happened.
pub(super) fn execute(set: &dyn Device, model: &Model, ops: &[Op], commands: impl Fn() -> u64) -> Vec<Done> {
    let mut now = model.clone();
    let one = |&op: &Op| {
        let begin = commands();
        now.execute(set, op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        Done { op, begin, end: commands() }
    };
    ops.iter().map(one).collect()
}

/// Operations that are possible one after the other.
pub(super) fn workload(model: &Model, set: &dyn Device, count: usize, seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut now, mut ops) = (model.clone(), Vec::new());
    let zones = now.zones.len() as u32;
    let capacity = |zone: u32| set.report_zone(ZoneId(zone)).unwrap().capacity;
    while ops.len() < count {
        let zone = rng.u32(0..zones);
        let written = now.last(zone).blocks.len() as u32;
        let is_full = now.last(zone).finished || written == capacity(zone);
        let op = match rng.u32(0..20) {
            0..=2 => Op::Flush,
            3 if !is_full && written > 0 => Op::Finish(zone),
            4..=5 if written > 0 => Op::Reset(zone),
            6 if !is_full && written > 0 => Op::Append(zone, (capacity(zone) - written).min(8)),
            _ if written == 0 => Op::Append(zone, 1),
            _ if !is_full => Op::Append(zone, rng.u32(1..=(capacity(zone) - written).min(5))),
            _ => Op::Reset(zone),
        };
        now.note(op, set);
        ops.push(op);
    }
    ops
}

/// The same with as many active zones as the set allows, most of the time, and small appends.
pub(super) fn crowded_workload(model: &Model, set: &dyn Device, count: usize, seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut now, mut ops) = (model.clone(), Vec::new());
    let zones = now.zones.len() as u32;
    let capacity = |zone: u32| set.report_zone(ZoneId(zone)).unwrap().capacity;
    while ops.len() < count {
        let state = |zone: u32| {
            let written = now.last(zone).blocks.len() as u32;
            (written, now.last(zone).finished || written == capacity(zone))
        };
        let active = (0..zones).filter(|&zone| matches!(state(zone), (1.., false))).count() as u32;
        let zone = rng.u32(0..zones);
        let op = match (state(zone), rng.u32(0..10)) {
            ((0, _), _) if active >= set.geometry().max_active => continue,
            ((0, _), _) => Op::Append(zone, 1),
            (_, 0) => Op::Flush,
            ((_, true), 1..5) => Op::Reset(zone),
            ((_, false), 1) => Op::Finish(zone),
            ((_, false), 2) => Op::Reset(zone),
            ((_, false), 3..5) => Op::Append(zone, 1),
            _ => continue,
        };
        now.note(op, set);
        ops.push(op);
    }
    ops
}

impl Model {
    /// An empty set.
    pub(super) fn new(set: &dyn Device) -> Model {
        let zone = Zone { lives: vec![OneLife { life: 1, ..OneLife::default() }], durable: (0, 0, false) };
        let geometry = set.geometry();
        Model { zones: vec![zone; geometry.zones as usize], block_size: geometry.block_size as usize }
    }

    /// The model of a set as it is found, all of it durable. Its next lives are later than those of `before`.
    pub(super) fn found(set: &dyn Device, before: &Model) -> Model {
        let mut found = before.clone();
        for (number, zone) in (0..).zip(&mut found.zones) {
            let info = set.report_zone(ZoneId(number)).unwrap();
            let written = if info.state.has_pointer() { info.pointer } else { info.capacity };
            let contents = |block| {
                let bytes = read(set, number, block).unwrap();
                before.is_valid(number, block, &bytes).then_some(bytes)
            };
            let life = zone.lives.last().unwrap().life + 1;
            let blocks: Vec<Option<Vec<u8>>> = (0..written).map(contents).collect();
            let finished = !info.state.has_pointer();
            zone.durable = (0, blocks.len(), finished);
            let may_be_erased = info.state == ZoneState::ReadOnly && before.last(number).blocks.is_empty();
            zone.lives = vec![OneLife { life, blocks, finished, may_be_erased }];
        }
        found
    }

    fn last(&self, zone: u32) -> &OneLife {
        self.zones[zone as usize].lives.last().expect("a zone has a life")
    }

    /// Executes an operation on the set and notes it.
    pub(super) fn execute(&mut self, set: &dyn Device, op: Op) -> Result<(), DeviceError> {
        match op {
            Op::Append(zone, blocks) => {
                let pointer = self.last(zone).blocks.len() as Blocks;
                let at = set.append(ZoneId(zone), &self.contents(set, zone, blocks).concat())?;
                assert_eq!(at, pointer, "the append to zone {zone} lands at its pointer");
            }
            Op::Finish(zone) => set.finish(ZoneId(zone))?,
            Op::Reset(zone) => set.reset(ZoneId(zone))?,
            Op::Flush => set.flush()?,
        }
        self.note(op, set);
        Ok(())
    }

    /// The effect of an operation that succeeded.
    pub(super) fn note(&mut self, op: Op, set: &dyn Device) {
        self.begin(op, set);
        if op == Op::Flush {
            for zone in &mut self.zones {
                let last = zone.lives.last().expect("a zone has a life");
                zone.durable = (zone.lives.len() - 1, last.blocks.len(), last.finished);
            }
        }
    }

    /// The greatest effect that an operation may have had if the power was lost during it.
    pub(super) fn begin(&mut self, op: Op, set: &dyn Device) {
        match op {
            Op::Append(zone, blocks) => {
                let contents = self.contents(set, zone, blocks).into_iter().map(Some);
                self.zones[zone as usize]
                    .lives
                    .last_mut()
                    .expect("a zone has a life")
                    .blocks
                    .extend(contents);
            }
            Op::Finish(zone) => {
                self.zones[zone as usize].lives.last_mut().expect("a zone has a life").finished = true;
            }
            Op::Reset(zone) => {
                let life = self.last(zone).life + 1;
                self.zones[zone as usize].lives.push(OneLife { life, ..OneLife::default() });
            }
            Op::Flush => {}
        }
    }

    /// The contents of the next blocks of a zone.
    fn contents(&self, set: &dyn Device, zone: u32, blocks: Blocks) -> Vec<Vec<u8>> {
        let (last, geometry) = (self.last(zone), set.geometry());
        let first = last.blocks.len() as Blocks;
        let identity =
            ZoneIdentity { fs_id: VOLUME, zone: ZoneId(zone), life: Life(last.life), role: Role::Data };
        let block = |block: Blocks| match block {
            0 => encode_header_of(&identity, geometry, geometry.zone_blocks),
            _ => tag(zone, block, last.life, self.block_size),
        };
        (first..first + blocks).map(block).collect()
    }

    /// The model when `n` changes had happened: what was done by then, and what was begun.
    pub(super) fn at(&self, set: &dyn Device, done: &[Done], n: u64) -> Model {
        let mut model = self.clone();
        for one in done.iter().take_while(|one| one.end <= n || one.begin < n) {
            match one.end <= n {
                true => model.note(one.op, set),
                false => model.begin(one.op, set),
            }
        }
        model
    }

    /// Whether a block was written at this place, in any life.
    fn is_valid(&self, zone: u32, block: Blocks, bytes: &[u8]) -> bool {
        let known =
            |life: &OneLife| life.blocks.get(block as usize).is_some_and(|one| one.as_deref() == Some(bytes));
        self.zones[zone as usize].lives.iter().any(known)
    }

    /// Compares a set with what it may have after a loss of power.
    pub(super) fn check(&self, set: &dyn Device) -> Result<(), String> {
        let infos = set.report().map_err(|error| error.to_string())?;
        for (number, (zone, info)) in (0..).zip(self.zones.iter().zip(infos)) {
            let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
            let mut blocks = Vec::new();
            for block in 0..end {
                let bytes = read(set, number, block).map_err(|error| format!("zone {number}: {error}"))?;
                if let Some(place) = place_of(&bytes).filter(|place| *place != (number, block)) {
                    return Err(format!("zone {number} block {block} has the contents of {place:?}"));
                }
                blocks.push(bytes);
            }
            let reasons: Vec<String> = (zone.durable.0..zone.lives.len())
                .filter_map(|life| zone.is_allowed(life, &info, &blocks).err())
                .collect();
            if reasons.len() == zone.lives.len() - zone.durable.0 {
                return Err(format!("zone {number} is {info:?}: {}", reasons.join("; ")));
            }
        }
        Ok(())
    }

    /// Checks that blocks that were found to be valid are so on each copy.
    pub(super) fn check_copies(&self, set: &dyn Device) -> Result<usize, String> {
        let mut checked = 0;
        for (number, info) in (0..).zip(set.report().map_err(|error| error.to_string())?) {
            let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
            for block in 0..end {
                let bytes = read(set, number, block).map_err(|error| error.to_string())?;
                // In a stripe, only headers have copies. They do not replace a member.
                let copies = set.copies(ZoneId(number), 1);
                if copies < 2 || !self.is_valid(number, block, &bytes) {
                    continue;
                }
                for copy in 0..copies {
                    let mut other = vec![0; self.block_size];
                    let done = set.read_copy(ZoneId(number), block, copy, &mut other);
                    if done.is_err() || other != bytes {
                        return Err(format!("copy {copy} of zone {number} block {block} differs: {done:?}"));
                    }
                    checked += 1;
                }
            }
        }
        Ok(checked)
    }

    /// The operations that are possible in a set as it was found: each zone is used once more.
    pub(super) fn next_ops(&self, set: &dyn Device) -> Vec<Op> {
        let mut ops = Vec::new();
        let active = |number: &u32| set.report_zone(ZoneId(*number)).unwrap().state.is_active();
        let mut slots =
            set.geometry().max_active as usize - (0..self.zones.len() as u32).filter(active).count();
        for number in 0..self.zones.len() as u32 {
            let info = set.report_zone(ZoneId(number)).unwrap();
            match info.state {
                ZoneState::Full => ops.push(Op::Reset(number)),
                ZoneState::Empty if slots > 0 => {
                    slots -= 1;
                    ops.extend([Op::Append(number, 1), Op::Append(number, 2)]);
                }
                ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline => {}
                _ => ops.push(Op::Append(number, 1)),
            }
        }
        let middle = ops.len() / 2;
        ops.insert(middle, Op::Flush);
        ops
    }
}

impl Zone {
    /// Whether the zone may be as found if this life was the last one of which anything is left.
    fn is_allowed(&self, index: usize, info: &ZoneInfo, found: &[Vec<u8>]) -> Result<(), String> {
        let life = &self.lives[index];
        if life.may_be_erased {
            return Ok(());
        }
        let (durable, ended) = match index == self.durable.0 {
            true => (self.durable.1, self.durable.2),
            false => (0, false),
        };
        let written = life.blocks.len();
        let pointer = info.pointer as usize;
        let fits = match info.state {
            ZoneState::Empty => durable == 0 && !ended,
            ZoneState::Full => written > 0 || life.finished,
            ZoneState::Open | ZoneState::Closed => durable <= pointer && pointer <= written && !ended,
            // A zone of a member has ended, or the members could not be made to agree.
            ZoneState::ReadOnly => true,
            ZoneState::Offline => false,
        };
        if !fits {
            return Err(format!("life {} has {durable} durable blocks of {written}", life.life));
        }
        let is_wrong = |at: &usize| life.blocks[*at].as_ref().is_some_and(|one| *one != found[*at]);
        match (0..durable).find(is_wrong) {
            Some(at) => Err(format!("life {} has lost its durable block {at}", life.life)),
            None => Ok(()),
        }
    }
}

fn read(set: &dyn Device, zone: u32, block: Blocks) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; set.geometry().block_size as usize];
    set.read(ZoneId(zone), block, &mut bytes).map(|()| bytes)
}

const TAG: &[u8; 4] = b"TAG.";

/// The contents of a block, different for each place and life.
fn tag(zone: u32, block: Blocks, life: u32, block_size: usize) -> Vec<u8> {
    let mut one = TAG.to_vec();
    one.extend([zone, block, life].iter().flat_map(|number| number.to_le_bytes()));
    one.repeat(block_size / one.len())
}

/// The place for which a block was written, if it is a whole one.
fn place_of(bytes: &[u8]) -> Option<(u32, Blocks)> {
    let (one, is_whole) = (&bytes[..16], bytes.chunks(16).all(|chunk| chunk == &bytes[..16]));
    let number = |at: usize| u32::from_le_bytes(one[at..at + 4].try_into().expect("four bytes"));
    (is_whole && one.starts_with(TAG)).then(|| (number(4), number(8)))
}

/// Counts of a run of cuts.
#[derive(Debug, Default)]
pub(super) struct Counts(pub(super) BTreeMap<&'static str, usize>);

impl Counts {
    pub(super) fn add(&mut self, name: &'static str, count: usize) {
        *self.0.entry(name).or_default() += count;
    }
}
