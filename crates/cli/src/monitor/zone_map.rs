//! The map of all zones, kept step by step.
//!
//! A volume can have millions of zones, so no sample looks at all of them. A step looks at the next
//! [`ZONES_IN_A_STEP`] zones, in memory, and begins again after the last one. With up to that many zones the map is
//! always new. With 4 million zones, a cell is at most 128 steps old.

use std::collections::BTreeMap;

use fs::Fs;
use polder::stats::{BAD, ROLES, counted_role};
use tree::{Pool, Usage};
use zone::{Role, ZoneId, ZoneState};

use super::sample::{Map, ZoneFaults};

/// The number of zones that a step looks at: a few milliseconds.
pub(crate) const ZONES_IN_A_STEP: u32 = 32_768;

/// The largest number of cells.
const CELLS_MAX: u32 = 4096;

/// The letters of the roles, in the order of [`ROLES`].
const LETTERS: [char; 6] = ['.', 'L', 'M', 'D', 'G', 'X'];

pub(crate) struct ZoneMap {
    zones: u32,
    zones_per_cell: u32,
    cells: Vec<Cell>,
    /// The next cell to look at.
    next: usize,
}

/// Sums over the zones of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// The number of zones of each role, in the order of [`ROLES`].
    roles: [u32; ROLES.len()],
    /// Live blocks and capacity of the zones that are not free. Closed zones of the log count as live.
    live: u64,
    capacity: u64,
    is_open: bool,
    faults: ZoneFaults,
}

impl ZoneMap {
    pub(crate) fn new(zones: u32) -> ZoneMap {
        let zones_per_cell = zones.div_ceil(CELLS_MAX).max(1);
        let cells = vec![Cell::default(); zones.div_ceil(zones_per_cell) as usize];
        ZoneMap { zones, zones_per_cell, cells, next: 0 }
    }

    /// Looks at the next zones. Numbers of a larger volume are too small until it has looked at all of them.
    pub(crate) fn step(&mut self, fs: &Fs) {
        let steps = (ZONES_IN_A_STEP / self.zones_per_cell).max(1) as usize;
        for _ in 0..steps.min(self.cells.len()) {
            let first = self.next as u32 * self.zones_per_cell;
            let end = (first + self.zones_per_cell).min(self.zones);
            let mut cell = Cell::default();
            (first..end).for_each(|zone| cell.add(fs.store().pool(), ZoneId(zone)));
            self.cells[self.next] = cell;
            self.next = (self.next + 1) % self.cells.len();
        }
    }

    pub(crate) fn shown(&self) -> Map {
        let cells = self.cells.iter().flat_map(Cell::shown).collect();
        Map { zones: self.zones, zones_per_cell: self.zones_per_cell, cells }
    }

    pub(crate) fn by_role(&self) -> BTreeMap<String, u32> {
        let count = |role| self.cells.iter().map(|cell| cell.roles[role]).sum();
        ROLES.iter().enumerate().map(|(role, name)| ((*name).to_owned(), count(role))).collect()
    }

    pub(crate) fn faults(&self) -> ZoneFaults {
        let sum = |of: fn(&ZoneFaults) -> u32| self.cells.iter().map(|cell| of(&cell.faults)).sum();
        ZoneFaults {
            retired: sum(|faults| faults.retired),
            read_only: sum(|faults| faults.read_only),
            offline: sum(|faults| faults.offline),
        }
    }
}

impl Cell {
    fn add(&mut self, pool: &Pool, zone: ZoneId) {
        let (entry, usage, info) = (pool.entry(zone), pool.usage(zone), pool.info(zone));
        let role = counted_role(pool, zone);
        let index = ROLES.iter().position(|name| *name == role).unwrap_or(0);
        self.roles[index] += 1;
        self.is_open |= usage == Usage::Open;
        if entry.role != Role::Free {
            // The pool does not know how much of a log zone is written.
            let is_full = entry.role == Role::Log && usage == Usage::Closed;
            self.live += u64::from(if is_full { info.capacity } else { entry.live });
            self.capacity += u64::from(info.capacity);
        }
        self.faults.retired += u32::from(usage == Usage::Retired || role == BAD);
        self.faults.read_only += u32::from(info.state == ZoneState::ReadOnly);
        self.faults.offline += u32::from(info.state == ZoneState::Offline);
    }

    /// The letter of the most frequent role, and how many tenths of the blocks are live. A zone that cannot be written any
    /// more is shown whatever is around it.
    fn shown(&self) -> [char; 2] {
        let zones: u32 = self.roles.iter().sum();
        let bad = ROLES.len() - 1;
        if self.roles[bad] > 0 {
            return ['X', 'X'];
        }
        let most = (0..bad).rev().max_by_key(|&role| self.roles[role]).unwrap_or(0);
        match (self.live * 10).checked_div(self.capacity) {
            _ if most == 0 && zones > 0 => ['.', '.'],
            None => [LETTERS[most], '.'],
            _ if self.is_open && zones == 1 => [LETTERS[most], '+'],
            Some(10..) => [LETTERS[most], '*'],
            Some(tenths) => [LETTERS[most], char::from(b'0' + tenths as u8)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(role: usize, zones: u32, live: u64, capacity: u64) -> Cell {
        let mut cell = Cell { live, capacity, ..Cell::default() };
        cell.roles[role] = zones;
        cell
    }

    #[test]
    fn the_map_has_a_limited_number_of_cells() {
        for zones in [1, 16, 4095, 4096, 4097, 1_000_000, 4_000_000] {
            let map = ZoneMap::new(zones);
            assert!(map.cells.len() <= CELLS_MAX as usize, "{zones}");
            assert!(map.cells.len() as u32 * map.zones_per_cell >= zones, "{zones}");
            assert_eq!(map.shown().cells.len(), 2 * map.cells.len());
        }
    }

    #[test]
    fn cells_are_shown_as_in_the_map_of_zones() {
        let text = |cell: Cell| cell.shown().iter().collect::<String>();
        assert_eq!(text(cell(0, 1, 0, 0)), "..");
        assert_eq!(text(cell(1, 1, 0, 0)), "L.");
        assert_eq!(text(cell(3, 1, 79, 100)), "D7");
        assert_eq!(text(cell(4, 1, 100, 100)), "G*");
        assert_eq!(text(Cell { is_open: true, ..cell(2, 1, 9, 100) }), "M+");
        assert_eq!(text(Cell { is_open: true, ..cell(3, 8, 9, 100) }), "D0", "one of many");
        assert_eq!(text(cell(5, 1, 5, 100)), "XX");
    }

    #[test]
    fn a_cell_of_many_zones_shows_the_most_frequent_role_and_every_bad_zone() {
        let mut mixed = cell(3, 5, 50, 100);
        mixed.roles[4] = 6;
        assert_eq!(mixed.shown(), ['G', '5']);
        mixed.roles[5] = 1;
        assert_eq!(mixed.shown(), ['X', 'X']);
    }
}
