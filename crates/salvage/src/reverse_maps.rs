//! The reverse maps of all data zones: for each block of an object, where it was written.
//!
//! Entries are read from the summaries that a zone's footer lists. In a zone without a footer, every block that looks
//! like a summary of this zone in this life is tried. A user's bytes may look like one. So nothing that only entries
//! state is certain. Memory: all entries.

use std::collections::BTreeMap;
use std::ops::Range;

use extent::format::{self, EXTENT_BLOCKS_MAX, Entry, FOOTER_MAGIC, SUMMARY_MAGIC, ZoneName, ZoneUser};
use extent::{Object, read_summary};
use zone::{Address, Blocks, Device, Role, ZoneId};

use crate::tables::Tables;

/// Bytes read at once in search of summaries.
const READ_AT_ONCE: usize = 1 << 20;

/// The entries of all data zones.
#[derive(Default)]
pub(crate) struct ReverseMaps {
    /// By object and first block.
    by_block: BTreeMap<(u64, u64), Vec<(ZoneName, Entry)>>,
}

impl ReverseMaps {
    /// Reads the reverse maps of all zones that may hold data.
    pub(crate) fn read(tables: &Tables) -> ReverseMaps {
        let mut all = ReverseMaps::default();
        for (index, zone) in tables.zones().iter().enumerate() {
            if zone.end <= 1 || matches!(zone.role, Role::Log | Role::Metadata) {
                continue;
            }
            let name = ZoneName { fs_id: tables.fs_id(), zone: ZoneId(index as u32), life: zone.life };
            for entry in entries(&**tables.device(), &name, zone.end, ZoneUser::decode(&zone.user)) {
                all.by_block.entry((entry.object.0, entry.offset)).or_default().push((name, entry));
            }
        }
        all
    }

    /// All objects for which there are entries, each with the greatest LSN of its entries.
    pub(crate) fn objects(&self) -> BTreeMap<u64, u64> {
        let mut objects: BTreeMap<u64, u64> = BTreeMap::new();
        for ((object, _), entries) in &self.by_block {
            let newest = objects.entry(*object).or_default();
            *newest = entries.iter().map(|(_, entry)| entry.sequence).fold(*newest, u64::max);
        }
        objects
    }

    /// The places where a block of an object may be, each with its checksum. The newest version is first.
    pub(crate) fn versions(&self, object: Object, block: u64) -> Vec<(Address, u32)> {
        let first = block.saturating_sub(u64::from(EXTENT_BLOCKS_MAX) - 1);
        let near = self.by_block.range((object.0, first)..=(object.0, block));
        let mut versions: Vec<(u64, Address, u32)> = Vec::new();
        for (name, entry) in near.flat_map(|(_, entries)| entries) {
            let index = block - entry.offset;
            if let Some(crc) = entry.crcs.get(index as usize) {
                let at = Address::new(name.zone, entry.block + index as Blocks, name.life);
                versions.push((entry.sequence, at, *crc));
            }
        }
        versions.sort_unstable_by(|one, other| other.cmp(one));
        versions.into_iter().map(|(_, at, crc)| (at, crc)).collect()
    }

    /// The blocks of an object within a range for which there are entries.
    pub(crate) fn blocks(&self, object: Object, range: &Range<u64>) -> Vec<u64> {
        let first = range.start.saturating_sub(u64::from(EXTENT_BLOCKS_MAX) - 1);
        let near = self.by_block.range((object.0, first)..(object.0, range.end));
        let mut blocks: Vec<u64> = near
            .flat_map(|((_, offset), entries)| {
                entries.iter().map(move |(_, entry)| (*offset, entry.blocks()))
            })
            .flat_map(|(offset, blocks)| offset..offset + u64::from(blocks))
            .filter(|block| range.contains(block))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

/// The entries of a zone.
fn entries(device: &dyn Device, name: &ZoneName, end: Blocks, user: ZoneUser) -> Vec<Entry> {
    let summary = |place: Blocks| {
        let (count, payload) = read_summary(device, end, SUMMARY_MAGIC, name, place)?;
        format::decode_entries(&payload, count)
    };
    let footer = (user.footer > 0)
        .then(|| read_summary(device, end, FOOTER_MAGIC, name, user.footer))
        .flatten()
        .and_then(|(count, payload)| format::decode_places(&payload, count));
    let places = footer.unwrap_or_else(|| summaries(device, name, end));
    places.into_iter().filter_map(summary).flatten().collect()
}

/// The blocks of a zone that look like the first block of a summary.
fn summaries(device: &dyn Device, name: &ZoneName, end: Blocks) -> Vec<Blocks> {
    let size = device.geometry().block_size as usize;
    let mut bytes = vec![0; (READ_AT_ONCE / size).max(1) * size];
    let (mut places, mut block) = (Vec::new(), 1);
    while block < end {
        let blocks = (end - block).min((bytes.len() / size) as Blocks);
        let some = &mut bytes[..blocks as usize * size];
        let at_once = device.read(name.zone, block, some).is_ok();
        for (index, one) in some.chunks_mut(size).enumerate() {
            let at = block + index as Blocks;
            let is_read = at_once || device.read(name.zone, at, one).is_ok();
            if is_read && format::summary_blocks_claimed(SUMMARY_MAGIC, one).is_some() {
                places.push(at);
            }
        }
        block += blocks;
    }
    places
}
