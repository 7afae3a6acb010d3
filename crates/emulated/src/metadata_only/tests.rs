use super::*;

#[test]
fn zeros_are_readable_and_not_stored() {
    let geometry = Geometry {
        block_size: 4096,
        zones: 8,
        zone_blocks: 64,
        max_open: 6,
        max_active: 6,
        max_append: 16,
        conventional: 0,
        seek_bytes: Geometry::SEEK_BYTES,
    };
    let device = MetadataOnly::new(geometry, tempfile::tempfile().unwrap());
    let (zone, mut found) = (ZoneId(3), vec![9; 3 * 4096]);
    let written = [vec![0; 4096], vec![7; 4096], vec![0; 4096]].concat();
    assert_eq!([0, 1].map(|_| device.append(zone, &written).unwrap()), [0, 3]);
    assert_eq!(device.stored_bytes(), 2 * 4096);
    device.read(zone, 3, &mut found).unwrap();
    assert_eq!(found, written);
    let beyond = device.read(zone, 4, &mut found);
    assert!(matches!(beyond, Err(DeviceError::Unwritten { zone: ZoneId(3), block: 6 })), "{beyond:?}");
    device.reset(zone).unwrap();
    assert_eq!((device.stored_bytes(), device.report_zone(zone).unwrap().pointer), (0, 0));
    // The stored blocks of the last life are reused.
    device.append(zone, &[5; 4096]).unwrap();
    device.append(ZoneId(4), &[6; 4096]).unwrap();
    assert_eq!(device.state.lock().blocks, 2);
    device.read(zone, 0, &mut found[..4096]).unwrap();
    assert_eq!(found[..4096], [5; 4096]);
}
