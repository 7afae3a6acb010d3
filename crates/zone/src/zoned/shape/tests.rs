use super::*;
use crate::ZoneId;

const MIB: u64 = 1 << 20;

fn limits() -> Limits {
    Limits {
        block_size: 4096,
        max_open: Some(8),
        max_active: Some(10),
        transfer_bytes: 1 << 19,
        append_bytes: None,
        seeks: false,
    }
}

/// Consecutive zones with these sizes in MiB, each with its kind.
fn zones(lengths: &[(u64, Option<ZoneState>)]) -> Vec<ReportedZone> {
    let mut start = 0;
    let mut reported = Vec::new();
    for &(length, state) in lengths {
        let length = length * MIB;
        reported.push(ReportedZone {
            start,
            length,
            capacity: length * 3 / 4,
            pointer: 0,
            state,
            is_conventional: state.is_none(),
        });
        start += length;
    }
    reported
}

const EMPTY: Option<ZoneState> = Some(ZoneState::Empty);

#[test]
fn conventional_zones_have_the_last_numbers() {
    let offline = Some(ZoneState::Offline);
    let reported = zones(&[(32, None), (32, None), (32, EMPTY), (32, offline), (32, EMPTY), (20, EMPTY)]);
    let shape = Shape::of(&limits(), &reported).unwrap();
    let geometry = &shape.geometry;
    assert_eq!((geometry.zones, geometry.conventional, geometry.zone_blocks), (6, 2, 24 * 256));
    assert_eq!((geometry.max_open, geometry.max_active, geometry.max_append), (8, 10, 256));
    let starts: Vec<u64> = shape.ranges.iter().map(|place| place.start / MIB).collect();
    assert_eq!(starts, [64, 96, 128, 160, 0, 32]);
    assert_eq!(shape.unused_zones, UnusedZones::default());
    assert!(!geometry.is_conventional(ZoneId(3)) && geometry.is_conventional(ZoneId(4)));
    // No capacity is above that of the largest sequential zone.
    assert_eq!(shape.info(&ReportedZone { capacity: 32 * MIB, ..reported[0] }).capacity, 24 * 256);
}

/// Releases that did not use conventional zones have created volumes whose headers count only the others.
#[test]
fn a_volume_created_without_conventional_zones_continues_without_them() {
    let reported = zones(&[(32, None), (32, None), (32, EMPTY), (32, EMPTY), (32, EMPTY)]);
    let without_limit = Limits { max_open: None, max_active: None, ..limits() };
    let shape = || Shape::of(&without_limit, &reported).unwrap();
    let as_before = Shape::of(&without_limit, &reported[2..]).unwrap();
    let old = shape().of_volume(&without_limit, 3).unwrap();
    assert_eq!((&old.geometry, &old.ranges), (&as_before.geometry, &as_before.ranges));
    assert_eq!(
        old.unused_zones,
        UnusedZones { conventional: 2, conventional_bytes: 64 * MIB, small_bytes: 0 }
    );
    // The volume is of another device, or the device has grown: the reader of the headers decides that.
    for zones in [4, 5, 6] {
        assert_eq!(shape().of_volume(&without_limit, zones).unwrap(), shape());
    }
}

#[test]
fn zones_of_less_than_half_the_size_are_not_used() {
    let reported = zones(&[(15, None), (32, EMPTY), (32, EMPTY), (15, EMPTY)]);
    let shape = Shape::of(&limits(), &reported).unwrap();
    assert_eq!((shape.geometry.zones, shape.geometry.conventional), (2, 0));
    let expected = UnusedZones { conventional: 1, conventional_bytes: 15 * MIB, small_bytes: 15 * MIB };
    assert_eq!(shape.unused_zones, expected);
}

/// The capacity of a conventional zone was truncated to the lowest 32 bits of its blocks: 2^32 became 0.
#[test]
fn a_zone_with_too_many_blocks_has_the_capacity_of_the_others() {
    let mut reported = zones(&[(32, EMPTY), (32, None)]);
    reported[1].length = 4096 << 32;
    reported[1].capacity = reported[1].length;
    let shape = Shape::of(&limits(), &reported).unwrap();
    assert_eq!(shape.info(&reported[1]).capacity, shape.geometry.zone_blocks);
}

#[test]
fn a_zone_with_its_pointer_within_a_block_is_full() {
    let mut reported = zones(&[(32, Some(ZoneState::Closed))]);
    let shape = Shape::of(&limits(), &reported).unwrap();
    reported[0].pointer = 8192;
    assert_eq!((shape.info(&reported[0]).state, shape.info(&reported[0]).pointer), (ZoneState::Closed, 2));
    reported[0].pointer = 8192 + 512;
    assert_eq!(shape.info(&reported[0]).state, ZoneState::Full);
}

#[test]
fn missing_limits_get_defaults() {
    let many = zones(&[(32, EMPTY); 100]);
    let open = |max_open, max_active, zones: &[ReportedZone]| {
        let shape = Shape::of(&Limits { max_open, max_active, ..limits() }, zones).unwrap();
        (shape.geometry.max_open, shape.geometry.max_active)
    };
    assert_eq!(open(None, None, &many), (32, 32));
    assert_eq!(open(None, None, &many[..20]), (10, 10));
    assert_eq!(open(None, Some(12), &many), (12, 12));
    assert_eq!(open(Some(9), None, &many), (9, 9));
    assert_eq!(open(Some(16), Some(12), &many), (12, 12));
}

#[test]
fn unsupported_devices_are_refused_with_a_reason() {
    let fine = zones(&[(32, EMPTY); 20]);
    let refusal = |limits: &Limits, zones: &[ReportedZone]| Shape::of(limits, zones).unwrap_err();
    for (found, expected) in [
        (refusal(&limits(), &zones(&[(32, None); 20])), "it has no sequential zones"),
        (
            refusal(&Limits { max_open: Some(4), ..limits() }, &fine),
            "it permits only 4 open zones; Polder needs at least 6",
        ),
        (
            refusal(&Limits { block_size: 520, ..limits() }, &fine),
            "its blocks have 520 bytes; Polder supports powers of two from 512 to 65536",
        ),
        (
            refusal(&limits(), &zones(&[(1 << 21, EMPTY)])),
            "its zones of 2199023255552 bytes are too large; Polder supports at most 2^28 blocks in a zone",
        ),
    ] {
        assert_eq!(found, expected);
    }
}
