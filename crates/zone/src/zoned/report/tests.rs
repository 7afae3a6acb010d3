use super::*;

/// A zone as the kernel lays it out: 64 bytes, host byte order.
fn raw(start: u64, length: u64, pointer: u64, kind: u8, condition: u8, capacity: u64) -> Zone {
    let mut bytes = [0xa5; 64];
    bytes[0..8].copy_from_slice(&start.to_ne_bytes());
    bytes[8..16].copy_from_slice(&length.to_ne_bytes());
    bytes[16..24].copy_from_slice(&pointer.to_ne_bytes());
    bytes[24] = kind;
    bytes[25] = condition;
    bytes[32..40].copy_from_slice(&capacity.to_ne_bytes());
    Zone::read_from_bytes(&bytes).unwrap()
}

fn report(flags: u32, zones: &[Zone]) -> Report {
    let mut report = Report::new(0, zones.len());
    report.flags = flags;
    report.zones[..zones.len()].copy_from_slice(zones);
    report
}

fn reported(zone: Zone) -> Result<ReportedZone, String> {
    report(1, &[zone]).zones().map(|zones| zones[0])
}

#[test]
fn zones_are_reported_in_bytes() {
    let zone = reported(raw(65536, 65536, 65536 + 24, 2, 2, 49152)).unwrap();
    let open = Some(ZoneState::Open);
    assert_eq!((zone.start, zone.length, zone.capacity), (32 << 20, 32 << 20, 24 << 20));
    assert_eq!((zone.pointer, zone.state), (24 * 512, open));
}

#[test]
fn without_the_flag_the_capacity_is_the_length() {
    let zone = report(0, &[raw(0, 8192, 0, 2, 1, 77)]).zones().unwrap()[0];
    assert_eq!(zone.capacity, zone.length);
}

#[test]
fn every_condition_has_a_state() {
    use ZoneState::*;
    let states =
        [(1, Empty), (2, Open), (3, Open), (4, Closed), (0xd, ReadOnly), (0xe, Full), (0xf, Offline)];
    for (condition, state) in states {
        for kind in [2, 3] {
            // Without a pointer, the kernel's value is arbitrary.
            let pointer = if state.has_pointer() { 64 } else { u64::MAX };
            let zone = reported(raw(64, 64, pointer, kind, condition, 64)).unwrap();
            assert_eq!((zone.state, zone.pointer, zone.is_conventional), (Some(state), 0, false));
        }
    }
}

#[test]
fn writable_conventional_zones_have_no_state() {
    let read_only = Some(ZoneState::ReadOnly);
    for (condition, state) in
        [(0x0, None), (0x2, None), (0xe, None), (0xd, read_only), (0xf, Some(ZoneState::Offline))]
    {
        let zone = reported(raw(0, 64, u64::MAX, 1, condition, 64)).unwrap();
        assert_eq!((zone.state, zone.pointer, zone.is_conventional), (state, 0, true));
    }
}

/// A zoned device that reported an empty zone with its write pointer not at the start was trusted. It is refused. Zone
/// positions that fit as sectors and not as bytes caused an overflow. Such a device is refused.
#[test]
fn inconsistent_reports_are_refused() {
    for (zone, complaint) in [
        (raw(0, 0, 0, 2, 1, 0), "impossible length"),
        (raw(0, 64, 0, 2, 1, 65), "impossible length"),
        (raw(u64::MAX, 64, 0, 2, 1, 64), "impossible length"),
        // Its place fits into 64 bits in sectors and not in bytes.
        (raw(u64::MAX / SECTOR, 64, 0, 2, 1, 64), "impossible length"),
        (raw(64, 64, 63, 2, 2, 64), "pointer outside"),
        (raw(64, 64, 129, 2, 2, 64), "pointer outside"),
        // It has data, or it is not empty: a write at its beginning would fail.
        (raw(64, 64, 65, 2, 1, 64), "pointer outside"),
        (raw(64, 64, 64, 2, 7, 64), "unknown condition (0x7)"),
        (raw(64, 64, 64, 2, 0, 64), "unknown condition (0x0)"),
    ] {
        let error = reported(zone).unwrap_err();
        assert!(error.contains(complaint), "{error}");
    }
    let mut large = report(1, &[]);
    large.count = ZONES as u32 + 1;
    assert!(large.zones().unwrap_err().contains("more zones than were requested"));
}
