//! Free zones in the order in which they became free: what was reset just now may keep its part of the device busy for
//! a while, and zones wear alike.
//!
//! A list through the table, because nearly all zones of a large volume may be free, and each word for a zone counts.

use zone::ZoneId;

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

/// The ends of the list, and its length.
pub(super) struct FreeZones {
    first: u32,
    last: u32,
    count: u32,
}

impl FreeZones {
    pub(super) fn new() -> Self {
        FreeZones { first: NONE, last: NONE, count: 0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
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
    }
}
