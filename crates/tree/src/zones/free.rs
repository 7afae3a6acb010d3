//! Free zones in the order in which they became free: what was reset just now may keep its part of the device busy for
//! a while, and zones wear alike.
//!
//! A list through the table, because nearly all zones of a large volume may be free, and each word for a zone counts.

use std::collections::BTreeMap;

use zone::{Blocks, ZoneId};

use super::Run;

/// No zone.
const NONE: u32 = u32::MAX;

/// A zone's place in the list, if it is there: its neighbours.
#[derive(Clone, Copy)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// Of a zone that is not there.
    pub(super) const NOWHERE: Links = Links { before: NONE, after: NONE };
}

/// The ends of the list, its length, and how large those in it are.
pub(super) struct FreeZones {
    first: u32,
    last: u32,
    count: u32,
    /// How many there are of each capacity: of few, as a rule of one.
    by_capacity: BTreeMap<Blocks, u32>,
}

impl FreeZones {
    pub(super) fn new() -> Self {
        FreeZones { first: NONE, last: NONE, count: 0, by_capacity: BTreeMap::new() }
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

    /// The zone that became free last.
    pub(super) fn newest(&self) -> Option<ZoneId> {
        (self.last != NONE).then_some(ZoneId(self.last))
    }

    /// All of them, the longest free first.
    pub(super) fn iter<'r>(&self, run: &'r [Run]) -> impl Iterator<Item = ZoneId> + use<'r> {
        let zone = |index: u32| (index != NONE).then_some(ZoneId(index));
        std::iter::successors(zone(self.first), move |at| zone(run[at.0 as usize].links.after))
    }

    /// A zone that is not there becomes the newest.
    pub(super) fn push(&mut self, run: &mut [Run], zone: ZoneId) {
        run[zone.0 as usize].links = Links { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = zone.0,
            last => run[last as usize].links.after = zone.0,
        }
        self.last = zone.0;
        self.count += 1;
        *self.by_capacity.entry(run[zone.0 as usize].info.capacity).or_default() += 1;
    }

    /// Takes out a zone that is there.
    pub(super) fn remove(&mut self, run: &mut [Run], zone: ZoneId) {
        let links = std::mem::replace(&mut run[zone.0 as usize].links, Links::NOWHERE);
        match links.before {
            NONE => self.first = links.after,
            before => run[before as usize].links.after = links.after,
        }
        match links.after {
            NONE => self.last = links.before,
            after => run[after as usize].links.before = links.before,
        }
        self.count -= 1;
        let capacity = run[zone.0 as usize].info.capacity;
        let alike = self.by_capacity.get_mut(&capacity).expect("a zone that is free keeps its capacity");
        *alike -= 1;
        if *alike == 0 {
            self.by_capacity.remove(&capacity);
        }
    }
}
