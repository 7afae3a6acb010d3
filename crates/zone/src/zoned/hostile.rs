//! Passes arbitrary bytes to the decoders of zone reports, as a malicious device would. No device is used: the input
//! is the device's answer. For fuzzing.

use zerocopy::{FromBytes, IntoBytes};

use super::nvme::format::{self, IDENTIFY_BYTES, REPORT_BYTES};
use super::port::{Limits, ReportedZone, check_order};
use super::report::{Report, Zone};
use super::shape::Shape;
use crate::{ZoneInfo, ZoneState};

/// A kernel's report of the zones of a block device. Its start sector is not decoded, so the block size is there in
/// the input.
pub(crate) fn report(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    whole.resize(size_of::<Report>(), 0);
    let report = Report::read_from_bytes(&whole).expect("as many bytes as a report has");
    let Ok(reported) = report.zones() else { return };
    let block_size = 512 << (report.sector % 8);
    take_up(&Limits { block_size, max_open: None, max_active: None, ..LIMITS }, reported);
}

const LIMITS: Limits = Limits {
    block_size: 512,
    max_open: None,
    max_active: None,
    transfer_bytes: 1 << 19,
    append_bytes: None,
    seeks: false,
};

/// The decoded bytes of an answer about a namespace.
const FIELDS: usize = 32;

/// The description of a namespace by an NVMe controller, then a report of its zones. All block formats are the same.
pub(crate) fn nvme_zones(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    whole.resize(FIELDS + REPORT_BYTES, 0);
    let (fields, report) = whole.split_at(FIELDS);
    let (mut common, mut zoned) = ([0; IDENTIFY_BYTES], [0; IDENTIFY_BYTES]);
    (common[26], common[77], zoned[0]) = (fields[0], fields[1], fields[2]);
    zoned[4..12].copy_from_slice(&fields[4..12]);
    common[128..384].chunks_exact_mut(4).for_each(|format| format.copy_from_slice(&fields[12..16]));
    zoned[2816..3840].chunks_exact_mut(16).for_each(|format| format.copy_from_slice(&fields[16..32]));
    let _ = format::transfer_bytes(&common, &zoned);
    let Ok(namespace) = format::namespace(&common, &zoned) else { return };
    let report = report.first_chunk().expect("as many bytes as a report has");
    let Ok(reported) = format::zones(report, &namespace) else { return };
    let (max_open, max_active) = (namespace.max_open, namespace.max_active);
    take_up(&Limits { block_size: namespace.block_size, max_open, max_active, ..LIMITS }, reported);
}

/// Decoded zones must be consistent, and a shape is derived from them or they are refused.
fn take_up(limits: &Limits, mut reported: Vec<ReportedZone>) {
    let mut end = 0_u64;
    let _ = check_order(end, &reported);
    for zone in &mut reported {
        assert!(zone.start.checked_add(zone.length).is_some(), "a zone has an end");
        assert!(zone.length > 0 && zone.capacity <= zone.length, "the capacity is at most the length");
        assert!(zone.pointer <= zone.length, "its pointer is in it");
        // One behind the other, as a careful malicious device would report them.
        zone.start = end;
        let Some(next) = end.checked_add(zone.length) else { return };
        end = next;
    }
    assert_eq!(check_order(0, &reported), Ok(()), "they were just put in order");
    let Ok(shape) = Shape::of(limits, &reported) else { return };
    let geometry = shape.geometry.clone();
    assert_eq!(shape.ranges.len(), geometry.zones as usize, "each zone has a place");
    for zone in &reported {
        let ZoneInfo { state, capacity, pointer } = shape.info(zone);
        assert!(pointer <= capacity && capacity <= geometry.zone_blocks, "a possible state");
        assert!(state != ZoneState::Empty || pointer == 0, "nothing is in an empty zone");
    }
    let Ok(old) = shape.of_volume(limits, geometry.sequential()) else { return };
    assert_eq!(old.geometry.conventional, 0, "zones that can be written anywhere are left out");
}

/// A report of a few zones of each kind.
pub(crate) fn report_seed() -> Vec<u8> {
    let states = [ZoneState::Empty, ZoneState::Open, ZoneState::Closed, ZoneState::Full, ZoneState::Offline];
    let mut report = Report::new(3, 20);
    report.flags = 1;
    for index in 0..20 {
        let (start, state) = (index as u64 * 65536, states[index % states.len()]);
        let pointer = start + if state == ZoneState::Empty { 0 } else { 24 };
        let zone = Zone::sequential([start, 65536, pointer, 49152], state);
        let anywhere = Zone { kind: 1, condition: 0, capacity: 65536, ..zone };
        report.zones[index] = if index < 4 { anywhere } else { zone };
    }
    report.as_bytes()[..16 + 20 * size_of::<Zone>()].to_vec()
}

/// A namespace with blocks of 4 KiB and zones of 96 MiB, and its first zones.
pub(crate) fn nvme_seed() -> Vec<u8> {
    const ZONES: u64 = 20;
    let mut bytes = vec![0; FIELDS];
    (bytes[0], bytes[1], bytes[2]) = (4, 7, 5);
    bytes[4..12].copy_from_slice(&[[13, 0, 0, 0], [0xff; 4]].concat());
    bytes[14] = 12;
    bytes[16..24].copy_from_slice(&24576_u64.to_le_bytes());
    let mut report = vec![0; 64];
    report[..8].copy_from_slice(&ZONES.to_le_bytes());
    for index in 0..ZONES {
        let start = index * 24576;
        report.extend_from_slice(&[2, [0x10, 0x20, 0x40, 0xe0, 0xd0][index as usize % 5], 0, 0, 0, 0, 0, 0]);
        let written = if index % 5 == 0 { 0 } else { 3 };
        [24000, start, start + written].iter().for_each(|word: &u64| report.extend(word.to_le_bytes()));
        report.extend([0; 32]);
    }
    [bytes, report].concat()
}
