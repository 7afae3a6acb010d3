use super::*;

fn shape() -> Po2Shape {
    Po2Shape {
        block_size: 4096,
        zones: 16,
        zone_bytes: 128 << 20,
        device_zone_bytes: 96 << 20,
        capacity: 96 << 20,
        max_open: Some(8),
        max_active: None,
        write_bytes_max: 1 << 20,
        append_bytes_max: 128 << 10,
    }
}

#[test]
fn the_kernel_receives_the_shape_in_sectors() {
    let parameters = parameters(&shape()).unwrap();
    assert_eq!((parameters.zone_sectors, parameters.sectors), (1 << 18, 1 << 22));
    assert_eq!((parameters.sectors_max, parameters.append_sectors_max), (1024, 256));
    assert_eq!((parameters.open_zones_max, parameters.active_zones_max), (8, 0));
    assert_eq!((parameters.logical_block_shift, parameters.length), (12, 112));
}

/// Of 2,500 zones the kernel took those from the 1,024th on for conventional, because a report of all of them did not
/// fit into one request: nothing could be written there.
#[test]
fn all_zones_are_reported_in_one_request() {
    for zones in [1, 16, 2500, 8192, 8193, 43_690, 1 << 19] {
        let parameters = parameters(&Po2Shape { zones, ..shape() }).unwrap();
        assert!(u64::from(parameters.sectors_max) * SECTOR >= u64::from(zones) * 64, "{zones} zones");
        assert!(u64::from(parameters.sectors_max) * SECTOR <= 1 << 25, "{zones} zones");
    }
}

#[test]
fn unsupported_shapes_are_refused_with_the_reason() {
    let why = |shape: &Po2Shape| parameters(shape).unwrap_err().to_string();
    assert!(why(&Po2Shape { block_size: 8192, ..shape() }).contains("blocks have 8192 bytes"));
    assert!(why(&Po2Shape { append_bytes_max: 0, ..shape() }).contains("does not support zone append"));
    assert!(
        why(&Po2Shape { zones: (1 << 19) + 1, ..shape() }).contains("more than the kernel's driver supports")
    );
    assert!(why(&Po2Shape { zone_bytes: 1 << 42, ..shape() }).contains("larger than the kernel supports"));
}

/// The counter is set as long as there are answers, and no answer is lost or returned twice.
#[test]
fn every_answer_is_taken_once() {
    let finished = Finished::new().unwrap();
    assert!(finished.take().is_empty());
    for tag in 0..5 {
        finished.note(tag, answer::Answer { result: tag.into(), place: 0 });
    }
    let tags: Vec<u16> = finished.take().into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(tags, [0, 1, 2, 3, 4]);
    assert!(finished.take().is_empty());
}
