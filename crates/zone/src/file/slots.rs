//! The recorded states of the zones: two tables of slots, in memory as on disk.
//!
//! A state goes to the table that does not hold the zone's newest one, so that there is always one
//! whole. A slot that is damaged may have been the newer of the two: what the other says of the
//! pointer may be too little, and the zone is `Full` for us, which any active zone may become.

use std::collections::BTreeSet;

use super::format::{Layout, SLOT_BYTES, decode_slot, encode_slot};
use crate::{FsId, ZoneId, ZoneInfo, ZoneState};

/// Both tables of a volume.
pub(super) struct Slots {
    fs_id: FsId,
    layout: Layout,
    tables: [Vec<u8>; 2],
    /// The newest state of each zone; its parity is the table it is in.
    generations: Vec<u64>,
    /// Pages that differ from the disk: table and index.
    changed: BTreeSet<(usize, usize)>,
}

/// A page to be written, and where.
pub(super) struct Page {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Slots {
    /// The tables of a new volume: all zones empty, in both.
    pub(super) fn new(fs_id: FsId, layout: Layout) -> Self {
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
            slots.put(zone, &info, 0);
            slots.put(zone, &info, 1);
            slots.generations[zone.0 as usize] = 1;
        }
        slots
    }

    /// The tables as they were found, and what they say.
    pub(super) fn load(fs_id: FsId, layout: Layout, tables: [Vec<u8>; 2]) -> (Self, Vec<ZoneInfo>) {
        let mut generations = Vec::new();
        let mut zones = Vec::new();
        for zone in (0..layout.geometry.zones).map(ZoneId) {
            let capacity = layout.capacity(zone);
            let found = [0, 1].map(|table: usize| {
                let slot = &tables[table][zone.0 as usize * SLOT_BYTES..][..SLOT_BYTES];
                decode_slot(fs_id, zone, slot, capacity)
                    .filter(|(generation, _)| generation % 2 == table as u64 && *generation < u64::MAX)
            });
            let (generation, info) = newest(found, capacity);
            generations.push(generation);
            zones.push(info);
        }
        (Slots { fs_id, layout, tables, generations, changed: BTreeSet::new() }, zones)
    }

    /// Notes a zone's new state, to be written with the next flush.
    pub(super) fn record(&mut self, zone: ZoneId, info: &ZoneInfo) {
        let generation = self.generations[zone.0 as usize] + 1;
        self.put(zone, info, generation);
        self.generations[zone.0 as usize] = generation;
    }

    fn put(&mut self, zone: ZoneId, info: &ZoneInfo, generation: u64) {
        let (table, start) = ((generation % 2) as usize, zone.0 as usize * SLOT_BYTES);
        let slot = encode_slot(self.fs_id, zone, info, generation);
        self.tables[table][start..start + SLOT_BYTES].copy_from_slice(&slot);
        self.changed.insert((table, start / self.layout.page_bytes()));
    }

    /// The pages that have to be written for all that was recorded.
    pub(super) fn take_changed(&mut self) -> Vec<Page> {
        let size = self.layout.page_bytes();
        let page = |(table, index): (usize, usize)| Page {
            offset: self.layout.table_offset(table) + (index * size) as u64,
            bytes: self.tables[table][index * size..][..size].to_vec(),
        };
        std::mem::take(&mut self.changed).into_iter().map(page).collect()
    }
}

/// The newer of two slots, or `Full` where it cannot be told which would have been.
fn newest(found: [Option<(u64, ZoneInfo)>; 2], capacity: u32) -> (u64, ZoneInfo) {
    let full = ZoneInfo { state: ZoneState::Full, capacity, pointer: capacity };
    match found {
        [Some(first), Some(second)] if second.0 > first.0 => second,
        [Some(first), Some(_)] => first,
        [Some((generation, info)), None] | [None, Some((generation, info))] => {
            let lasting = matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
            (generation, if lasting { info } else { full })
        }
        [None, None] => (0, full),
    }
}
