use super::*;

/// The structures of a namespace with blocks of 4 KiB and zones of 96 MiB.
fn identified() -> ([u8; IDENTIFY_BYTES], [u8; IDENTIFY_BYTES]) {
    let (mut common, mut zoned) = ([0; IDENTIFY_BYTES], [0; IDENTIFY_BYTES]);
    common[26] = 4;
    common[128 + 4 * 4 + 2] = 12;
    zoned[4..8].copy_from_slice(&9u32.to_le_bytes());
    zoned[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    zoned[2816 + 16 * 4..][..8].copy_from_slice(&24576u64.to_le_bytes());
    (common, zoned)
}

fn report(count: u64, state: u8, capacity: u64, start: u64, pointer: u64) -> [u8; REPORT_BYTES] {
    let mut report = [0; REPORT_BYTES];
    report[..8].copy_from_slice(&count.to_le_bytes());
    let zone = &mut report[64..128];
    (zone[0], zone[1]) = (2, state << 4);
    for (at, number) in [(8, capacity), (16, start), (24, pointer)] {
        zone[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    report
}

#[test]
fn the_selected_format_determines_the_block_size() {
    let (common, zoned) = identified();
    let expected = Namespace { block_size: 4096, zone_blocks: 24576, max_active: Some(10), max_open: None };
    assert_eq!(namespace(&common, &zoned), Ok(expected));
}

#[test]
fn namespaces_that_cannot_be_used_are_refused() {
    let refusal = |change: fn(&mut [u8], &mut [u8])| {
        let (mut common, mut zoned) = identified();
        change(&mut common, &mut zoned);
        namespace(&common, &zoned).unwrap_err()
    };
    assert!(refusal(|common, _| common[128 + 16] = 8).contains("8 bytes of metadata"));
    assert!(refusal(|common, _| common[128 + 18] = 17).contains("2^17 bytes"));
    assert_eq!(refusal(|_, zoned| zoned[2816..].fill(0)), "it is formatted without zones");
}

#[test]
fn the_smaller_of_two_limits_applies() {
    let with = |largest, append| {
        let (mut common, mut zoned) = identified();
        (common[77], zoned[0]) = (largest, append);
        transfer_bytes(&common, &zoned)
    };
    assert_eq!(with(7, 5), 128 << 10);
    assert_eq!(with(5, 0), 128 << 10);
    assert_eq!(with(0, 0), u64::MAX);
    assert_eq!(with(255, 255), u64::MAX);
}

#[test]
fn zones_are_reported_in_bytes() {
    let (common, zoned) = identified();
    let namespace = namespace(&common, &zoned).unwrap();
    let found = zones(&report(1, 2, 24000, 24576, 24579), &namespace).unwrap();
    let expected = ReportedZone {
        is_conventional: false,
        start: 96 << 20,
        length: 96 << 20,
        capacity: 24000 * 4096,
        pointer: 3 * 4096,
        state: Some(ZoneState::Open),
    };
    assert_eq!(found, [expected]);
    let full = zones(&report(1, 0xe, 24000, 0, u64::MAX), &namespace).unwrap();
    assert_eq!((full[0].state, full[0].pointer), (Some(ZoneState::Full), 0));
    assert!(zones(&report(0, 2, 1, 0, 0), &namespace).unwrap().is_empty());
}

#[test]
fn inconsistent_reports_are_refused() {
    let (common, zoned) = identified();
    let namespace = namespace(&common, &zoned).unwrap();
    for (report, complaint) in [
        (report(1, 7, 100, 0, 0), "unknown state (0x7)"),
        (report(1, 2, 24577, 0, 0), "impossible capacity"),
        (report(1, 2, 100, u64::MAX - 3, 0), "impossible capacity"),
        (report(1, 2, 100, 24576, 24575), "pointer outside"),
        (report(1, 2, 100, 24576, 24576 + 101), "pointer outside"),
        (report(1, 1, 100, 24576, 24576 + 1), "pointer outside"),
        // The second zone of this one is all zeros.
        (report(u64::MAX, 2, 100, 0, 0), "unknown state (0x0)"),
    ] {
        let error = zones(&report, &namespace).unwrap_err();
        assert!(error.contains(complaint), "{error}");
    }
}
