//! The free list: free zones of each kind, in the order in which they were freed. A zone that was reset just now may keep
//! its part of the device busy for a while, and zones shall wear alike.
//!
//! The lists are linked by zone numbers, because nearly all zones of a large volume may be free, and each word for a zone
//! counts.

use std::collections::BTreeMap;

use zone::{Blocks, ZoneId};

use crate::types::LOG_ZONES_WITHIN;

/// No zone.
const NONE: u32 = u32::MAX;

/// The neighbours of a zone in its list.
#[derive(Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// Of a zone that is in no list.
    const NOWHERE: Links = Links { before: NONE, after: NONE };
}

/// Bytes that the list takes for each zone.
pub(crate) const BYTES_PER_ZONE: usize = size_of::<Links>();

/// What the list needs to know of a free zone. It does not change while the zone is in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeZone {
    pub(crate) zone: ZoneId,
    pub(crate) capacity: Blocks,
    /// The device reports it empty: it needs no reset before it is opened.
    pub(crate) is_empty: bool,
}

/// What counts before the time since when a zone is free. There is a list for each kind, and a volume has few kinds: opening
/// a zone must not take longer because more zones are free.
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

/// The lists, the number of zones in them, and how much these hold.
pub(crate) struct FreeList {
    lists: BTreeMap<Kind, Ends>,
    /// Of each zone.
    links: Vec<Links>,
    count: u32,
    /// Zones in the lists that are neither conventional nor among the first.
    ordinary: u32,
    /// Zones in the lists by capacity: one capacity as a rule, and few at most.
    by_capacity: BTreeMap<Blocks, u32>,
    /// Zones from this one on are conventional: they are full after every mount.
    sequential: u32,
    page_blocks: Blocks,
}

impl FreeList {
    pub(crate) fn new(zones: usize, sequential: u32, page_blocks: Blocks) -> Self {
        FreeList {
            lists: BTreeMap::new(),
            links: vec![Links::NOWHERE; zones],
            count: 0,
            ordinary: 0,
            by_capacity: BTreeMap::new(),
            sequential,
            page_blocks,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// How many of the free zones hold this number of blocks in whole pages behind their headers, the largest first. If all
    /// of them do not suffice, the rest is counted in zones of `of_zone` blocks.
    pub(crate) fn holding(&self, blocks: u64, of_zone: u64) -> u32 {
        let (mut rest, mut zones) = (blocks, 0);
        for (&capacity, &count) in self.by_capacity.iter().rev() {
            let (count, each) = (u64::from(count), self.in_pages(capacity));
            let wanted = rest.div_ceil(each);
            if wanted <= count {
                return (zones + wanted) as u32;
            }
            zones += count;
            rest -= count * each;
        }
        (zones + rest.div_ceil(of_zone)) as u32
    }

    /// Blocks that free zones hold in whole pages behind their headers.
    pub(crate) fn headroom(&self) -> u64 {
        let of = |(&capacity, &count): (&Blocks, &u32)| self.in_pages(capacity) * u64::from(count);
        self.by_capacity.iter().map(of).sum()
    }

    fn in_pages(&self, capacity: Blocks) -> u64 {
        u64::from((capacity - 1) / self.page_blocks * self.page_blocks)
    }

    /// The number of zones that data and metadata take first.
    pub(crate) fn ordinary(&self) -> u32 {
        self.ordinary
    }

    /// The smallest zone behind the first ones; an empty one if there is one, the one that has been free longest first.
    pub(crate) fn smallest(&self, is_conventional: bool) -> Option<ZoneId> {
        self.oldest_of(false, is_conventional, 0)
    }

    /// The largest zone, in the same order.
    pub(crate) fn largest(&self, is_conventional: bool) -> Option<ZoneId> {
        let [from, to] = [0, Blocks::MAX].map(|capacity| first_kind(false, is_conventional, capacity));
        let (kind, _) = self.lists.range(from..to).next_back()?;
        self.oldest_of(false, is_conventional, kind.capacity)
    }

    /// One of the first zones.
    pub(crate) fn log_reserve(&self) -> Option<ZoneId> {
        [false, true].into_iter().find_map(|is_conventional| self.oldest_of(true, is_conventional, 0))
    }

    /// The smallest zone of all. Among zones of one capacity, the first zones come last.
    pub(crate) fn smallest_of_all(&self) -> Option<ZoneId> {
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

    /// The zone that has been free longest, of the first kind from this one on in its group.
    fn oldest_from(&self, from: Kind) -> Option<(Kind, ZoneId)> {
        let to = first_kind(from.is_log_reserve, from.is_conventional, Blocks::MAX);
        self.lists.range(from..to).next().map(|(&kind, ends)| (kind, ZoneId(ends.first)))
    }

    fn kind(&self, free: FreeZone) -> Kind {
        Kind {
            is_log_reserve: free.zone.0 < LOG_ZONES_WITHIN,
            is_conventional: free.zone.0 >= self.sequential,
            capacity: free.capacity,
            is_used: !free.is_empty,
        }
    }

    /// A zone that is in no list becomes the newest of its kind.
    pub(crate) fn push(&mut self, free: FreeZone) {
        let (kind, zone) = (self.kind(free), free.zone);
        let ends = self.lists.entry(kind).or_insert(Ends { first: NONE, last: NONE });
        assert_ne!(ends.last, zone.0, "zone {} is freed once", zone.0);
        self.links[zone.0 as usize] = Links { before: ends.last, after: NONE };
        match ends.last {
            NONE => ends.first = zone.0,
            last => self.links[last as usize].after = zone.0,
        }
        ends.last = zone.0;
        self.count += 1;
        self.ordinary += u32::from(kind.is_ordinary());
        *self.by_capacity.entry(kind.capacity).or_default() += 1;
    }

    /// Takes out a zone that is in a list.
    pub(crate) fn remove(&mut self, free: FreeZone) {
        let (kind, zone) = (self.kind(free), free.zone);
        let links = std::mem::replace(&mut self.links[zone.0 as usize], Links::NOWHERE);
        let ends = self.lists.get_mut(&kind).expect("a zone keeps its kind while it is free");
        assert!(links.before != NONE || ends.first == zone.0, "zone {} is taken once", zone.0);
        match links.before {
            NONE => ends.first = links.after,
            before => self.links[before as usize].after = links.after,
        }
        match links.after {
            NONE => ends.last = links.before,
            after => self.links[after as usize].before = links.before,
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
