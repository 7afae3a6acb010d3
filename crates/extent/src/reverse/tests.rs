use zone::emulated::{Emulated, Spec};

use super::*;
use crate::Object;

/// Three blocks long.
fn summary(name: &ZoneName) -> (usize, Vec<u8>) {
    let entry = |block| Entry {
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

/// What is made of a footer takes no more memory than a zone has blocks, whatever it says.
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
