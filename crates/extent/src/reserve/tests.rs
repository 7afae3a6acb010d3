use super::*;

const PAGE: u32 = 16 << 10;

fn geometry(zones: u32, zone_bytes: u64) -> Geometry {
    let zone_blocks = (zone_bytes / 4096) as Blocks;
    Geometry {
        block_size: 4096,
        zones,
        zone_blocks,
        max_open: 14,
        max_active: 14,
        max_append: 64,
        conventional: 0,
        seek_bytes: Geometry::SEEK_BYTES,
    }
}

/// What a new volume offers, in percent.
fn offers(zones: u32, zone_bytes: u64) -> f64 {
    100.0 - f64::from(least_reserve(&geometry(zones, zone_bytes), PAGE).0) / 100.0
}

#[test]
fn the_least_is_a_few_zones_and_what_each_block_takes_elsewhere() {
    const GIB: u64 = 1 << 30;
    let (few, more, many) = (offers(32, 2 * GIB), offers(128, 2 * GIB), offers(4000, 2 * GIB));
    assert!((72.0..76.0).contains(&few), "{few} % of 32 zones");
    assert!((90.5..92.5).contains(&more), "{more} % of 128 zones");
    assert!((96.5..98.0).contains(&many), "{many} % of 4,000 zones");
}

#[test]
fn less_than_the_least_is_refused_with_the_least() {
    let geometry = geometry(64, 16 << 20);
    let least = least_reserve(&geometry, PAGE);
    for fine in [Reserve::default(), Reserve::LEAST, least, Reserve(least.0 + 1), Reserve(9_000)] {
        check_reserve(&geometry, PAGE, fine).unwrap();
    }
    for wrong in [Reserve(2), Reserve(least.0 - 1), Reserve(9_001), Reserve::ALL] {
        let error = check_reserve(&geometry, PAGE, wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("choose from {least} to 90.00 %")), "{error}");
    }
}

/// Metadata that takes more than was foreseen takes it from data, and never less is kept than there must be.
#[test]
fn what_lives_in_metadata_is_paid_by_data() {
    let shape =
        Shape { packing: Packing { block_size: 4096 }, zone_blocks: 4096, node_blocks: 4, left_free: 3 };
    let raw = 100 * 4096;
    let found = |metadata: i64| {
        let metadata_zones = metadata / 4096 + 1;
        let payload = (100 - 3 - metadata_zones) * shape.largest();
        Found { raw, payload, live: payload / 2, metadata, metadata_zones }
    };
    let offered = |found: Found, reserve| found.payload - shape.kept(&found, reserve);
    for reserve in [Reserve::default(), Reserve::LEAST, Reserve(2_000)] {
        let mut before = i64::MAX;
        for metadata in (0..40 * 4096).step_by(1000) {
            let now = offered(found(metadata), reserve);
            assert!(now <= before, "{metadata} blocks of metadata: {now}, and {before} with fewer");
            assert!(now <= raw - share(raw, reserve));
            before = now;
        }
        assert!(before < offered(found(0), reserve));
    }
}
