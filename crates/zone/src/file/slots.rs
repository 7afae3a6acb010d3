//! The recorded states of the zones: two tables of slots, which are equal in memory and on disk.
//!
//! A new state of a zone is written to the table that does not contain its newest state, so that one state is always
//! intact. If one slot of a zone is damaged, it may have been the newer one. The pointer in the other slot may then
//! be too small. So the zone counts as `Full`, a state that any active zone may change to. If both tables are lost,
//! all zones are full, and the store knows which of them are free.

use std::collections::BTreeSet;

use super::format::{Layout, Recorded, SLOT_BYTES, decode_slot, encode_slot};
use crate::{FsId, ZoneId, ZoneInfo, ZoneState};

/// Both tables of a volume.
pub(super) struct Slots {
    fs_id: FsId,
    layout: Layout,
    tables: [Vec<u8>; 2],
    /// The generation of the newest state of each zone; its parity is the number of the table.
    generations: Vec<u64>,
    /// Pages that differ from the disk: table and index.
    changed: BTreeSet<(usize, usize)>,
}

/// The contents of the tables.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) zones: Vec<ZoneInfo>,
    /// For each zone, whether the host has no blocks for it.
    pub(super) discarded: Vec<bool>,
    /// Zones with a damaged slot. The first flush writes a new one if the state of the zone is recorded again.
    pub(super) unsure: Vec<ZoneId>,
    /// The number of damaged slots in each table.
    pub(super) damaged: [u32; 2],
}

impl Loaded {
    /// Whether no slot of both tables is intact.
    pub(super) fn is_empty(&self) -> bool {
        self.damaged.iter().all(|&damaged| damaged as usize == self.zones.len())
    }
}

/// A page to be written, and its offset.
pub(super) struct Page {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Slots {
    /// The tables of a new volume, in which all zones are empty; `is_discarded`: the host has no blocks for them.
    pub(super) fn new(fs_id: FsId, layout: Layout, is_discarded: bool) -> Self {
        let empty = || vec![0; layout.table_bytes()];
        let zones = layout.geometry.zones;
        let mut slots = Slots {
            fs_id,
            tables: [empty(), empty()],
            generations: vec![0; zones as usize],
            changed: BTreeSet::new(),
            layout,
        };
        for zone in (0..zones).map(ZoneId) {
            let info =
                ZoneInfo { state: ZoneState::Empty, capacity: slots.layout.capacity(zone), pointer: 0 };
            [0, 1].into_iter().for_each(|generation| slots.put(zone, &info, is_discarded, generation));
            slots.generations[zone.0 as usize] = 1;
        }
        slots
    }

    /// The tables as they were read, and their contents.
    pub(super) fn load(fs_id: FsId, layout: Layout, tables: [Vec<u8>; 2]) -> (Self, Loaded) {
        let mut slots = Slots { fs_id, layout, tables, generations: Vec::new(), changed: BTreeSet::new() };
        let mut loaded = Loaded::default();
        for zone in (0..slots.layout.geometry.zones).map(ZoneId) {
            let capacity = slots.layout.capacity(zone);
            let found = [0, 1].map(|table| find(fs_id, &slots.layout, table, &slots.tables[table], zone));
            for (count, found) in loaded.damaged.iter_mut().zip(&found) {
                *count += u32::from(found.is_none());
            }
            if found.iter().any(Option::is_none) {
                loaded.unsure.push(zone);
            }
            let newest = newest(found, capacity);
            slots.generations.push(newest.generation);
            if found == [None, None] {
                // The next state is written to the other table.
                slots.put(zone, &newest.info, false, newest.generation);
            }
            loaded.zones.push(newest.info);
            loaded.discarded.push(newest.is_discarded);
        }
        (slots, loaded)
    }

    /// The number of zones without an intact slot in a table.
    pub(super) fn damaged(fs_id: FsId, layout: &Layout, table: usize, bytes: &[u8]) -> u32 {
        let zones = (0..layout.geometry.zones).map(ZoneId);
        zones.filter(|zone| find(fs_id, layout, table, bytes, *zone).is_none()).count() as u32
    }

    /// Records a zone's new state, to be written by the next flush.
    pub(super) fn record(&mut self, zone: ZoneId, info: &ZoneInfo, is_discarded: bool) {
        let generation = self.generations[zone.0 as usize] + 1;
        self.put(zone, info, is_discarded, generation);
        self.generations[zone.0 as usize] = generation;
    }

    fn put(&mut self, zone: ZoneId, info: &ZoneInfo, is_discarded: bool, generation: u64) {
        let (table, start) = ((generation % 2) as usize, zone.0 as usize * SLOT_BYTES);
        let slot = encode_slot(self.fs_id, zone, &Recorded { generation, info: *info, is_discarded });
        self.tables[table][start..start + SLOT_BYTES].copy_from_slice(&slot);
        self.changed.insert((table, start / self.layout.page_bytes()));
    }

    /// Returns the pages to be written for all recorded states.
    pub(super) fn take_changed(&mut self) -> Vec<Page> {
        let size = self.layout.page_bytes();
        let page = |(table, index): (usize, usize)| Page {
            offset: self.layout.table_offset(table) + (index * size) as u64,
            bytes: self.tables[table][index * size..][..size].to_vec(),
        };
        std::mem::take(&mut self.changed).into_iter().map(page).collect()
    }
}

/// A zone's slot in one of the tables, if it is intact.
fn find(fs_id: FsId, layout: &Layout, table: usize, bytes: &[u8], zone: ZoneId) -> Option<Recorded> {
    let slot = &bytes[zone.0 as usize * SLOT_BYTES..][..SLOT_BYTES];
    decode_slot(fs_id, zone, slot, layout.capacity(zone))
        .filter(|found| found.generation % 2 == table as u64 && found.generation < u64::MAX)
}

/// The newer of two slots, or `Full` if the newer one may be damaged.
fn newest(found: [Option<Recorded>; 2], capacity: u32) -> Recorded {
    let full = ZoneInfo { state: ZoneState::Full, capacity, pointer: capacity };
    match found {
        [Some(first), Some(second)] if second.generation > first.generation => second,
        [Some(first), Some(_)] => first,
        [Some(one), None] | [None, Some(one)] => {
            let lasting = matches!(one.info.state, ZoneState::ReadOnly | ZoneState::Offline);
            Recorded { info: if lasting { one.info } else { full }, is_discarded: false, ..one }
        }
        [None, None] => Recorded { generation: 0, info: full, is_discarded: false },
    }
}
