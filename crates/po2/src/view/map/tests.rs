//! Every small shape, byte by byte.

use super::*;
use zone::ZoneState;

/// Zones of a device whose bytes are its blocks.
fn zones(count: u64, length: u64, capacity: u64, last: u64) -> Vec<ReportedZone> {
    let told = |zone| ReportedZone {
        start: zone * length,
        length,
        capacity: if zone + 1 == count { last } else { capacity },
        pointer: 0,
        state: Some(ZoneState::Empty),
        is_conventional: false,
    };
    (0..count).map(told).collect()
}

/// All maps of up to four zones of up to nine bytes.
fn maps() -> Vec<(Map, u64)> {
    let mut maps = Vec::new();
    for length in [3, 5, 6, 7, 9] {
        for capacity in 1..=length {
            for last in 1..=capacity {
                for count in 1..=4 {
                    let zones = zones(count, length, if count == 1 { last } else { capacity }, last);
                    maps.push((Map::of(1, &zones).unwrap(), count));
                }
            }
        }
    }
    maps
}

/// The place of a byte of the view, computed from the definition of the view alone.
fn place(map: &Map, byte: u64) -> Option<u64> {
    let mut size = 1;
    while size < map.length {
        size *= 2;
    }
    let (mut zone, mut offset) = (0, byte);
    while offset >= size {
        (zone, offset) = (zone + 1, offset - size);
    }
    (offset < map.capacity(zone)).then_some(zone * map.length + offset)
}

#[test]
fn every_range_is_made_of_its_bytes() {
    let mut ranges = 0;
    for (map, count) in maps() {
        let end = count * map.rounded;
        let places: Vec<Option<u64>> = (0..end).map(|byte| place(&map, byte)).collect();
        for at in 0..=end {
            for bytes in 0..=end - at {
                let range = at as usize..(at + bytes) as usize;
                let mut made = Vec::new();
                for piece in map.pieces(at, bytes).unwrap() {
                    assert!(piece.bytes > 0, "{map:?}: {at} {bytes}");
                    made.extend((0..piece.bytes).map(|byte| piece.on_device.map(|place| place + byte)));
                }
                assert!(made == places[range], "{map:?}: {bytes} bytes from {at}");
                ranges += 1;
            }
            assert!(map.pieces(at, end - at + 1).is_none());
        }
        assert!(map.pieces(u64::MAX, 1).is_none() && map.pieces(1, u64::MAX).is_none());
    }
    println!("{} maps, {ranges} ranges", maps().len());
}

/// A write reaches the device if all its bytes are on it and in one zone, and only then.
#[test]
fn every_write_is_in_its_zone_or_refused() {
    for (map, count) in maps() {
        let end = count * map.rounded;
        for at in 0..end + 2 {
            for bytes in 1..=end + 2 - at {
                let first = if at < end { place(&map, at) } else { None };
                let is_whole = at + bytes <= end
                    && at / map.rounded == (at + bytes - 1) / map.rounded
                    && (at..at + bytes).all(|byte| place(&map, byte).is_some());
                let expected = first.filter(|_| is_whole);
                assert_eq!(map.write_on_device(at, bytes), expected, "{map:?}: {bytes} bytes at {at}");
            }
        }
        assert_eq!(map.write_on_device(0, u64::MAX), None);
    }
}

#[test]
fn the_maps_of_places_are_inverse_to_each_other() {
    for (map, count) in maps() {
        for byte in 0..count * map.rounded {
            if let Some(place) = place(&map, byte) {
                assert_eq!(map.in_view(place), Some(byte), "{map:?}");
            }
            let zone = byte / map.rounded;
            let expected = (byte == zone * map.rounded).then_some(zone * map.length);
            assert_eq!(map.zone_at(byte), expected, "{map:?}: {byte}");
        }
        assert_eq!(map.in_view(count * map.length), None);
        assert_eq!((map.zone_at(count * map.rounded), map.zone_on_device(count as usize)), (None, None));
    }
}

#[test]
fn unsupported_devices_are_refused_with_the_reason() {
    let usual = zones(3, 6, 5, 5);
    assert!(Map::of(1, &usual).is_ok());
    assert_eq!(Map::of(1, &[]), Err(Po2Error::Uncountable));
    assert_eq!(Map::of(1, &zones(3, 8, 5, 5)), Err(Po2Error::NotNeeded(8)));
    assert_eq!(Map::of(4, &zones(3, 6, 4, 4)), Err(Po2Error::Unlike(0)), "no whole blocks");
    assert_eq!(Map::of(1, &zones(u64::from(u16::MAX), (1 << 47) + 1, 1, 1)), Err(Po2Error::Uncountable));
    let changed = |zone: usize, change: &dyn Fn(&mut ReportedZone)| {
        let mut zones = usual.clone();
        change(&mut zones[zone]);
        Map::of(1, &zones)
    };
    assert_eq!(changed(1, &|zone| zone.is_conventional = true), Err(Po2Error::Conventional));
    assert_eq!(changed(1, &|zone| zone.capacity = 4), Err(Po2Error::Unlike(1)));
    assert_eq!(changed(1, &|zone| zone.length = 5), Err(Po2Error::Unlike(1)));
    assert_eq!(changed(1, &|zone| zone.start = 7), Err(Po2Error::Unlike(1)));
    assert_eq!(changed(2, &|zone| zone.capacity = 6), Err(Po2Error::Unlike(2)));
    assert_eq!(changed(2, &|zone| zone.length = 7), Err(Po2Error::Unlike(2)));
    // A smaller last zone.
    assert!(changed(2, &|zone| (zone.length, zone.capacity) = (2, 2)).is_ok());
    assert_eq!(changed(2, &|zone| (zone.length, zone.capacity) = (2, 3)), Err(Po2Error::Unlike(2)));
}
