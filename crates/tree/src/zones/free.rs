//! Free zones of each kind in the order in which they became free: what was reset just now may keep its part of the
//! device busy for a while, and zones wear alike.
//!
//! Lists through the table, because nearly all zones of a large volume may be free, and each word for a zone counts.

use std::collections::BTreeMap;

use zone::{Blocks, ZoneId};

use super::{Run, Use};
use crate::log::LOG_ZONES_WITHIN;

/// No zone.
const NONE: u32 = u32::MAX;

/// A zone's place in its list, if it is there: its neighbours.
#[derive(Clone, Copy)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// Of a zone that is not there.
    pub(super) const NOWHERE: Links = Links { before: NONE, after: NONE };
}

/// What counts of a free zone before how long it has been free. A list for each kind, of which a volume has few: opening
/// a zone must not take longer because more of them are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// One of the first zones, which a log may need.
    is_log_reserve: bool,
    is_conventional: bool,
    capacity: Blocks,
    /// It has to be reset before it can be opened.
    is_used: bool,
}

/// The ends of a list.
struct Ends {
    first: u32,
    last: u32,
}

/// The lists, how many zones are in them, and how large these are.
pub(super) struct FreeZones {
    lists: BTreeMap<Kind, Ends>,
    count: u32,
    /// Of them, those that are neither conventional nor one of the first.
    ordinary: u32,
    /// How many there are of each capacity: of few, as a rule of one.
    by_capacity: BTreeMap<Blocks, u32>,
    /// Zones from this one on are conventional: they come back full from every mount.
    sequential: u32,
}

impl FreeZones {
    pub(super) fn new() -> Self {
        FreeZones {
            lists: BTreeMap::new(),
            count: 0,
            ordinary: 0,
            by_capacity: BTreeMap::new(),
            sequential: u32::MAX,
        }
    }

    /// All zones but so many are conventional. Before any is free.
    pub(super) fn set_sequential(&mut self, sequential: u32) {
        assert_eq!(self.count, 0, "zones keep their kind while they are free");
        self.sequential = sequential;
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// How many of them hold so many blocks behind their headers, the largest first, and where all of them do not,
    /// how many more it would take of zones of that size.
    pub(super) fn holding(&self, blocks: u64, of_zone: u64) -> u32 {
        let (mut left, mut zones) = (blocks, 0);
        for (&capacity, &count) in self.by_capacity.iter().rev() {
            let (count, each) = (u64::from(count), u64::from(capacity - 1));
            let wanted = left.div_ceil(each);
            if wanted <= count {
                return (zones + wanted) as u32;
            }
            zones += count;
            left -= count * each;
        }
        (zones + left.div_ceil(of_zone)) as u32
    }

    /// Blocks that they hold behind their headers, in whole pages of so many.
    pub(super) fn room(&self, page_blocks: Blocks) -> u64 {
        let each = |capacity: Blocks| u64::from((capacity - 1) / page_blocks * page_blocks);
        self.by_capacity.iter().map(|(&capacity, &count)| each(capacity) * u64::from(count)).sum()
    }

    /// How many there are that data and metadata take first.
    pub(super) fn ordinary(&self) -> u32 {
        self.ordinary
    }

    /// Of the smallest of these behind the first zones one that is empty if there is, the longest free first.
    pub(super) fn smallest(&self, is_conventional: bool) -> Option<ZoneId> {
        self.oldest_of(false, is_conventional, 0)
    }

    /// The same of the largest.
    pub(super) fn largest(&self, is_conventional: bool) -> Option<ZoneId> {
        let [from, to] = [0, Blocks::MAX].map(|capacity| first_kind(false, is_conventional, capacity));
        let (kind, _) = self.lists.range(from..to).next_back()?;
        self.oldest_of(false, is_conventional, kind.capacity)
    }

    /// One of the first zones.
    pub(super) fn log_reserve(&self) -> Option<ZoneId> {
        [false, true].into_iter().find_map(|is_conventional| self.oldest_of(true, is_conventional, 0))
    }

    /// The smallest of all, and of such as are alike one of the first zones last.
    pub(super) fn smallest_of_all(&self) -> Option<ZoneId> {
        let groups = [(false, false), (false, true), (true, false), (true, true)];
        let smallest = groups.into_iter().filter_map(|(is_log_reserve, is_conventional)| {
            self.oldest_from(first_kind(is_log_reserve, is_conventional, 0))
        });
        smallest
            .min_by_key(|(kind, _)| (kind.capacity, kind.is_log_reserve, kind.is_used))
            .map(|(_, zone)| zone)
    }

    fn oldest_of(&self, is_log_reserve: bool, is_conventional: bool, from: Blocks) -> Option<ZoneId> {
        self.oldest_from(first_kind(is_log_reserve, is_conventional, from)).map(|(_, zone)| zone)
    }

    /// The zone that has been free longest of the first kind from this one on in its group.
    fn oldest_from(&self, from: Kind) -> Option<(Kind, ZoneId)> {
        let to = first_kind(from.is_log_reserve, from.is_conventional, Blocks::MAX);
        self.lists.range(from..to).next().map(|(&kind, ends)| (kind, ZoneId(ends.first)))
    }

    fn kind(&self, run: &[Run], zone: ZoneId) -> Kind {
        let Run { info, usage, .. } = &run[zone.0 as usize];
        Kind {
            is_log_reserve: zone.0 < LOG_ZONES_WITHIN,
            is_conventional: zone.0 >= self.sequential,
            capacity: info.capacity,
            is_used: *usage != Use::Free { empty: true },
        }
    }

    /// A zone that is not there becomes the newest of its kind.
    pub(super) fn push(&mut self, run: &mut [Run], zone: ZoneId) {
        let kind = self.kind(run, zone);
        let ends = self.lists.entry(kind).or_insert(Ends { first: NONE, last: NONE });
        run[zone.0 as usize].links = Links { before: ends.last, after: NONE };
        match ends.last {
            NONE => ends.first = zone.0,
            last => run[last as usize].links.after = zone.0,
        }
        ends.last = zone.0;
        self.count += 1;
        self.ordinary += u32::from(kind.is_ordinary());
        *self.by_capacity.entry(kind.capacity).or_default() += 1;
    }

    /// Takes out a zone that is there.
    pub(super) fn remove(&mut self, run: &mut [Run], zone: ZoneId) {
        let kind = self.kind(run, zone);
        let links = std::mem::replace(&mut run[zone.0 as usize].links, Links::NOWHERE);
        let ends = self.lists.get_mut(&kind).expect("a zone keeps its kind while it is free");
        match links.before {
            NONE => ends.first = links.after,
            before => run[before as usize].links.after = links.after,
        }
        match links.after {
            NONE => ends.last = links.before,
            after => run[after as usize].links.before = links.before,
        }
        if ends.first == NONE {
            self.lists.remove(&kind);
        }
        self.count -= 1;
        self.ordinary -= u32::from(kind.is_ordinary());
        let alike = self.by_capacity.get_mut(&kind.capacity).expect("a zone keeps its kind while it is free");
        *alike -= 1;
        if *alike == 0 {
            self.by_capacity.remove(&kind.capacity);
        }
    }
}

impl Kind {
    fn is_ordinary(self) -> bool {
        !self.is_log_reserve && !self.is_conventional
    }
}

/// The first kind of this capacity in order.
fn first_kind(is_log_reserve: bool, is_conventional: bool, capacity: Blocks) -> Kind {
    Kind { is_log_reserve, is_conventional, capacity, is_used: false }
}
