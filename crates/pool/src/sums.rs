//! Sums over all zones, so that space is counted without a walk.
//!
//! A zone counts by its *part*: what its row and its usage say at this moment. Each change of a zone subtracts its old part
//! and adds the new one, under the mutex of the pool. The sums begin with a count when they are first asked for, because a
//! mount changes every zone once.

use std::collections::BTreeMap;

use zone::{Blocks, Role, ZoneState};

use crate::types::ZoneNow;

/// Zones of one capacity, by what they can be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Zones that have room for a header and a page.
    pub of_use: u32,
    /// Zones of user data that can be written again once they are dead.
    pub data: u32,
    /// Zones that hold nothing and can be opened for data or metadata, or are being opened.
    pub free: u32,
    /// The same for a mount that opens none: zones that hold nothing, whatever became of their last reset.
    pub unused: u32,
    /// Zones of metadata that can be written again.
    pub metadata: u32,
}

/// Sums over all zones at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Blocks of all zones.
    pub raw: u64,
    /// Blocks of zones of user data.
    pub data_capacity: u64,
    /// Live blocks in zones of user data.
    pub live: u64,
    /// Those of them that lie in zones which went offline.
    pub live_offline: u64,
    /// Live delta records in zones of metadata.
    pub deltas: u64,
    /// The number of zones by capacity: one capacity as a rule, and few at most.
    pub by_capacity: BTreeMap<Blocks, Uses>,
}

/// What one zone adds to the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    capacity: Blocks,
    uses: Uses,
    data_capacity: Blocks,
    live: Blocks,
    live_offline: Blocks,
    deltas: u32,
}

impl Part {
    /// `can_be_free`: it is not one of the log's.
    pub(crate) fn of(zone: &ZoneNow, can_be_free: bool) -> Part {
        let (role, capacity) = (zone.entry.role, zone.info.capacity);
        let is_data = role.holds_data();
        let is_offline = zone.info.state == ZoneState::Offline;
        let is_lasting = !is_offline && zone.info.state != ZoneState::ReadOnly && !zone.is_retired;
        let live = if is_data { zone.entry.live } else { 0 };
        let one = |counts: bool| u32::from(counts);
        Part {
            capacity,
            uses: Uses {
                of_use: one(zone.is_of_use),
                data: one(is_data && is_lasting),
                free: one(zone.is_free && is_lasting),
                unused: one(role == Role::Free && can_be_free && is_lasting),
                metadata: one(role == Role::Metadata && is_lasting),
            },
            data_capacity: if is_data { capacity } else { 0 },
            live,
            live_offline: if is_offline { live } else { 0 },
            deltas: if role == Role::Metadata { zone.entry.deltas } else { 0 },
        }
    }
}

impl Uses {
    fn change(&mut self, other: Uses, change: impl Fn(u32, u32) -> u32) {
        let Uses { of_use, data, free, unused, metadata } = self;
        let of = [of_use, data, free, unused, metadata];
        let by = [other.of_use, other.data, other.free, other.unused, other.metadata];
        of.into_iter().zip(by).for_each(|(count, by)| *count = change(*count, by));
    }
}

impl Sums {
    pub(crate) fn add(&mut self, part: &Part) {
        self.raw += u64::from(part.capacity);
        self.data_capacity += u64::from(part.data_capacity);
        self.live += u64::from(part.live);
        self.live_offline += u64::from(part.live_offline);
        self.deltas += u64::from(part.deltas);
        // A zone of no use adds nothing: its capacity may be that of no other.
        if part.uses != Uses::default() {
            self.by_capacity.entry(part.capacity).or_default().change(part.uses, |count, by| count + by);
        }
    }

    pub(crate) fn subtract(&mut self, part: &Part) {
        let less = |sum: u64, by: Blocks| sum.checked_sub(by.into()).expect("the sums have each zone's part");
        self.raw = less(self.raw, part.capacity);
        self.data_capacity = less(self.data_capacity, part.data_capacity);
        self.live = less(self.live, part.live);
        self.live_offline = less(self.live_offline, part.live_offline);
        self.deltas = less(self.deltas, part.deltas);
        if part.uses == Uses::default() {
            return;
        }
        let uses =
            self.by_capacity.get_mut(&part.capacity).expect("the sums have the capacity of each zone of use");
        uses.change(part.uses, |count, by| count.checked_sub(by).expect("the sums have each zone's use"));
        if *uses == Uses::default() {
            self.by_capacity.remove(&part.capacity);
        }
    }
}
