use emulated::{Emulated, Spec};
use zone::{Leases, Role, Traffic};

use super::*;
use crate::Object;

/// An open zone whose map has this number of entries of one block each.
fn open_zone(entries: u32) -> (Lease, ZoneMap) {
    let name = ZoneName { fs_id: FsId([3; 16]), zone: ZoneId(7), life: Life(1) };
    let device: Arc<dyn Device> = Arc::new(Emulated::new(Spec::new(4096, 16, 1024)));
    let leases = Leases::new(device, name.fs_id, Arc::new(Traffic::default()));
    let lease = leases.begin(name.zone, name.life, Role::Data).unwrap();
    let entry =
        |block: Blocks| Entry { object: Object(1), offset: block.into(), sequence: 1, block, crcs: vec![0] };
    let entries = (1..=entries).map(entry).collect();
    let unfinished = Unfinished { life: name.life, summaries: Vec::new(), entries };
    (lease, ZoneMap::new(name, Packing { block_size: 4096 }, unfinished))
}

/// With fewer entries, a summary would waste parts of its blocks. With more, too little space would be left for the last
/// summary.
#[test]
fn a_summary_has_as_many_entries_as_its_blocks_hold() {
    let per_block = Packing { block_size: 4096 }.bytes_per_block() / Entry::bytes_for(1);
    let most = SUMMARY_BLOCKS_MAX * per_block;
    for (entries, expected) in [(2 * per_block + 3, 2 * per_block), (most + per_block + 3, most)] {
        let (lease, mut map) = open_zone(entries as u32);
        let summary = map.take_due(&lease).expect("there is a block's worth");
        assert!(
            (expected..expected + per_block).contains(&summary.entries),
            "{} of {entries}",
            summary.entries
        );
        assert!(summary.entries >= summary.bytes.len() / 4096 * per_block, "its blocks are full");
        assert!(map.take_due(&lease).is_none(), "one is being written");
        map.end_summary(&summary, Some(500));
        let left = entries - summary.entries;
        assert_eq!((map.entries.len(), map.entry_bytes), (left, left * Entry::bytes_for(1)));
        assert_eq!(map.take_due(&lease).is_some(), left >= per_block, "{left} entries are left");
    }
    let (lease, mut map) = open_zone(3);
    assert!(map.take_due(&lease).is_none(), "three entries are not worth a block");
    let rest = map.take_rest(&lease).expect("nothing is in flight").expect("something is left");
    assert_eq!(rest.entries, 3);
}

/// The next checkpoint must still carry the entries of a failed summary.
#[test]
fn entries_of_a_failed_summary_stay_in_memory() {
    let (lease, mut map) = open_zone(200);
    let bytes = map.entry_bytes;
    let summary = map.take_due(&lease).expect("there is a block's worth");
    assert!(map.entry_bytes < bytes);
    map.end_summary(&summary, None);
    assert_eq!((map.entries.len(), map.entry_bytes), (200, bytes));
    assert!(map.is_full() && map.summaries.is_empty());
}

/// A summary of three blocks.
fn summary(name: &ZoneName) -> (usize, Vec<u8>) {
    let entry = |block: Blocks| Entry {
        object: Object(u64::from(block)),
        offset: 0,
        sequence: 1,
        block,
        crcs: vec![block; 200],
    };
    let entries: Vec<Entry> = (0..10).map(|number| entry(1 + number * 200)).collect();
    let payload = format::encode_entries(entries.iter());
    (entries.len(), format::encode_summary(SUMMARY_MAGIC, name, 0, (entries.len(), &payload), 4096))
}

/// Whatever a footer says, reading it takes no more memory than the zone has blocks.
#[test]
fn a_summary_that_is_named_again_and_again_is_refused() {
    let device = Emulated::new(Spec::power_of_two());
    let name = ZoneName { fs_id: FsId([3; 16]), zone: ZoneId(7), life: Life(1) };
    let (count, bytes) = summary(&name);
    assert_eq!(bytes.len(), 3 * 4096);
    let place = device.append(name.zone, &bytes).unwrap();
    let end = device.geometry().zone_blocks;
    let read = |places: &[Blocks]| read_parts_of(&device, end, SUMMARY_MAGIC, &name, places);
    let entries = |places: &[Blocks]| Some(read(places)?.iter().map(|(count, _)| *count as usize).sum());
    assert_eq!(entries(&[place]), Some(count));
    assert_eq!(entries(&[]), Some(0));
    assert_eq!(entries(&vec![place; end as usize / 3 + 1]), None);
}
