//! The zones in memory: their lives, and which owner wrote their parts.

use std::collections::BTreeMap;

use zone::machine::Machine;
use zone::{Blocks, Life, ZoneId, ZoneInfo, ZoneState};

use crate::format::{OWNERS_MANY, Run, Shape, ZoneEntry};

/// All zones.
pub(crate) struct Table {
    machine: Machine,
    zones: Vec<Zone>,
    /// The runs of zones whose parts are those of several owners.
    runs: BTreeMap<ZoneId, Vec<Run>>,
}

/// The state of a zone in addition to its [`ZoneInfo`].
#[derive(Clone, Copy)]
struct Zone {
    life: Life,
    /// The owner that wrote all parts; 0 if there are none.
    owner: u32,
    has_garbage: bool,
}

impl Table {
    pub(crate) fn new(shape: &Shape) -> Table {
        let geometry = &shape.geometry;
        let empty = ZoneInfo { state: ZoneState::Empty, capacity: geometry.zone_blocks, pointer: 0 };
        let zone = Zone { life: Life(0), owner: 0, has_garbage: false };
        Table {
            machine: Machine::new(geometry.clone(), vec![empty; geometry.zones as usize]),
            zones: vec![zone; geometry.zones as usize],
            runs: BTreeMap::new(),
        }
    }

    /// The states and limits.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The states and limits, for changes of the state and the pointer alone.
    pub(crate) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    pub(crate) fn info(&self, zone: ZoneId) -> ZoneInfo {
        self.machine.zones()[zone.0 as usize]
    }

    pub(crate) fn life(&self, zone: ZoneId) -> Life {
        self.zones[zone.0 as usize].life
    }

    /// Replaces everything that is known about a zone.
    pub(crate) fn load(&mut self, zone: ZoneId, entry: ZoneEntry) {
        let info = ZoneInfo { state: entry.state, pointer: entry.pointer, ..self.info(zone) };
        self.machine.force(zone, info);
        let owner = match entry.runs[..] {
            [] => 0,
            [Run { part: 0, owner }] => owner,
            _ => OWNERS_MANY,
        };
        match owner {
            OWNERS_MANY => self.runs.insert(zone, entry.runs),
            _ => self.runs.remove(&zone),
        };
        self.zones[zone.0 as usize] = Zone { life: entry.life, owner, has_garbage: entry.has_garbage };
    }

    /// What is to be recorded about a zone.
    pub(crate) fn entry(&self, zone: ZoneId) -> ZoneEntry {
        let (info, known) = (self.info(zone), self.zones[zone.0 as usize]);
        let state = match (info.state, info.pointer) {
            (ZoneState::Open | ZoneState::Closed, 0) => ZoneState::Empty,
            (ZoneState::Open, _) => ZoneState::Closed,
            (state, _) => state,
        };
        ZoneEntry {
            life: known.life,
            state,
            pointer: info.pointer,
            has_garbage: known.has_garbage,
            runs: match known.owner {
                0 => Vec::new(),
                OWNERS_MANY => self.runs[&zone].clone(),
                owner => vec![Run { part: 0, owner }],
            },
        }
    }

    /// The owner that wrote a part.
    pub(crate) fn owner(&self, zone: ZoneId, part: u32) -> u32 {
        match self.zones[zone.0 as usize].owner {
            OWNERS_MANY => {
                let runs = &self.runs[&zone];
                let next = runs.partition_point(|run| run.part <= part);
                next.checked_sub(1).map_or(0, |index| runs[index].owner)
            }
            owner => owner,
        }
    }

    /// Notes that `owner` writes the parts of a zone from `part` on.
    pub(crate) fn set_owner(&mut self, zone: ZoneId, part: u32, owner: u32) {
        let known = &mut self.zones[zone.0 as usize];
        match known.owner {
            same if same == owner => {}
            0 if part == 0 => known.owner = owner,
            OWNERS_MANY => {
                let runs = self.runs.get_mut(&zone).expect("a zone of several owners has runs");
                if runs.last().is_none_or(|run| run.owner != owner) {
                    runs.push(Run { part, owner });
                }
            }
            first => {
                assert!(first != 0 && part > 0, "{zone:?}: part 0 is the first one");
                self.runs.insert(zone, vec![Run { part: 0, owner: first }, Run { part, owner }]);
                known.owner = OWNERS_MANY;
            }
        }
    }

    /// Begins the next life of a zone.
    pub(crate) fn reset(&mut self, zone: ZoneId) -> zone::Result<()> {
        self.machine.reset(zone, None)?;
        self.runs.remove(&zone);
        let known = &mut self.zones[zone.0 as usize];
        *known = Zone { life: known.life.next(), owner: 0, has_garbage: true };
        Ok(())
    }

    pub(crate) fn has_garbage(&self, zone: ZoneId) -> bool {
        self.zones[zone.0 as usize].has_garbage
    }

    /// Notes that the zone has no parts of earlier lives any more.
    pub(crate) fn set_clean(&mut self, zone: ZoneId) {
        self.zones[zone.0 as usize].has_garbage = false;
    }

    /// The entries of a range of zones.
    pub(crate) fn entries(&self, zones: std::ops::Range<u32>) -> Vec<ZoneEntry> {
        zones.map(|zone| self.entry(ZoneId(zone))).collect()
    }

    /// The zones that are active.
    pub(crate) fn active(&self) -> Vec<ZoneId> {
        let zones = self.machine.zones().iter().zip(0..);
        zones.filter(|(info, _)| info.state.is_active()).map(|(_, zone)| ZoneId(zone)).collect()
    }
}

/// The first block of the unfinished part at this pointer.
pub(crate) fn tail_start(shape: &Shape, pointer: Blocks) -> Blocks {
    pointer - pointer % shape.part_blocks
}
