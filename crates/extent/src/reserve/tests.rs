use super::*;

const PAGE: u32 = 16 << 10;
const GROUPS: u16 = 8;

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

/// The available space of a new volume, in percent.
fn available_percent(zones: u32, zone_bytes: u64) -> f64 {
    100.0 - f64::from(least_reserve(&geometry(zones, zone_bytes), PAGE, GROUPS).0) / 100.0
}

#[test]
fn the_least_reserve_is_a_few_zones_and_the_metadata_of_each_block() {
    const GIB: u64 = 1 << 30;
    let (few, more, many) =
        (available_percent(32, 2 * GIB), available_percent(128, 2 * GIB), available_percent(4000, 2 * GIB));
    assert!((72.0..76.0).contains(&few), "{few} % of 32 zones");
    assert!((90.5..92.5).contains(&more), "{more} % of 128 zones");
    assert!((96.5..98.0).contains(&many), "{many} % of 4,000 zones");
}

#[test]
fn a_reserve_below_the_least_is_refused_and_the_least_is_named() {
    let geometry = geometry(64, 16 << 20);
    let least = least_reserve(&geometry, PAGE, GROUPS);
    for fine in [Reserve::default(), least, Reserve(least.0 + 1), Reserve(9_000)] {
        check_reserve(&geometry, PAGE, GROUPS, fine).unwrap();
    }
    for wrong in [Reserve(1), Reserve(2), Reserve(least.0 - 1), Reserve(9_001), Reserve::ALL] {
        let error = check_reserve(&geometry, PAGE, GROUPS, wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("choose from {least} to 90.00 %")), "{error}");
    }
}

/// `mkfs` succeeded, and nothing could be written.
#[test]
fn a_device_without_space_for_files_is_refused() {
    let geometry = |zones| Geometry { block_size: PAGE, zone_blocks: 31, ..geometry(zones, 31 * 4096) };
    let refusal = |zones| {
        let checked = check_reserve(&geometry(zones), PAGE, GROUPS, Reserve::default());
        checked.err().map(|e| e.to_string())
    };
    let least = (8..).find(|&zones| refusal(zones).is_none()).unwrap();
    assert!(least > 11, "{least} zones");
    assert!(refusal(11).unwrap().contains("use a larger one"));
    assert!(least_reserve(&geometry(least), PAGE, GROUPS) < Reserve::ALL);
}

/// Each group has nodes of its own, which did not count before they existed.
#[test]
fn the_nodes_of_many_groups_count() {
    let geometry = geometry(64, 16 << 20);
    let available = |groups| {
        let (shape, counts) = new_volume(&geometry, PAGE, groups);
        counts.payload - shape.reserve_in_blocks(&counts, Reserve::default())
    };
    assert_eq!(available(1), available(GROUPS));
    let nodes = 3 * (4096 - i64::from(GROUPS)) * 4;
    let taken = available(GROUPS) - available(4096);
    assert!((nodes..nodes + nodes / 4).contains(&taken), "{taken} blocks for {nodes}");
    assert!(least_reserve(&geometry, PAGE, 4096) > least_reserve(&geometry, PAGE, GROUPS));
}

/// The reported available space leaves out the nodes that files may add to names, only where there are many names.
#[test]
fn the_reported_space_is_less_beside_many_names() {
    for (groups, few) in [(1, 1), (8, 24), (64, 192), (4096, 3 * 4096)] {
        let (shape, counts) = new_volume(&geometry(64, 64 << 20), PAGE, groups);
        let left_out = |nodes: i64| {
            let counts = BlockCounts { names: nodes * 4, metadata: nodes * 4, ..counts };
            shape.reserve_in_blocks(&shape.with_more_names(&counts), Reserve::default())
                - shape.reserve_in_blocks(&counts, Reserve::default())
        };
        assert_eq!(left_out(few), 0, "{groups} groups");
        let most = shape.with_garbage(24 * 4);
        assert!((24 * 4..=most).contains(&left_out(3 * 4096 + 200)), "{groups} groups");
    }
}

/// The nodes of the groups do not belong to the table of zones.
#[test]
fn many_groups_do_not_hide_a_large_table() {
    let reserve = |groups, zone_table| {
        let shape = Shape { groups, zone_table, ..shape_of(4096, 4096, PAGE) };
        let payload = 1000 * shape.zone_payload();
        shape.reserve_in_blocks(
            &BlockCounts { raw: 1000 * 4096, payload, ..BlockCounts::default() },
            Reserve::default(),
        )
    };
    let [few, many] = [GROUPS, 256].map(|groups| reserve(groups, 4000) - reserve(groups, 0));
    assert!(few > 3000 && (few - many).abs() < 8, "{few} and {many}");
}

/// Metadata that exceeds its reserve reduces the space of data, and the reserve never becomes too small.
#[test]
fn metadata_beyond_its_reserve_takes_space_from_data() {
    let shape = Shape::new(&geometry(100, 16 << 20), PAGE, GROUPS, 3);
    let raw = 100 * 4096;
    let counts = |metadata: i64| {
        let metadata_zones = metadata / 4096 + 1;
        let payload = (100 - 3 - metadata_zones) * shape.zone_payload();
        let metadata_payload = metadata_zones * shape.zone_payload();
        BlockCounts { raw, payload, live: payload / 2, metadata, names: 0, metadata_payload }
    };
    let available = |counts: BlockCounts, reserve| counts.payload - shape.reserve_in_blocks(&counts, reserve);
    for reserve in [Reserve::default(), Reserve(2_000)] {
        let mut before = i64::MAX;
        for metadata in (0..40 * 4096).step_by(1000) {
            let now = available(counts(metadata), reserve);
            assert!(now <= before, "{metadata} blocks of metadata: {now}, and {before} with fewer");
            assert!(now <= raw - share(raw, reserve));
            before = now;
        }
        assert!(before < available(counts(0), reserve));
    }
}

/// The available space of a new volume with the default reserve, in blocks, and the same if the table of zones were
/// empty.
fn available_with_and_without_table(zones: u32, zone_bytes: u64) -> [i64; 2] {
    let geometry = geometry(zones, zone_bytes);
    let (log, reserved_zones) = tree::Store::zones_kept(&geometry, PAGE);
    let shape = Shape::new(&geometry, PAGE, GROUPS, reserved_zones);
    let counts = BlockCounts {
        raw: i64::from(zones) * i64::from(geometry.zone_blocks),
        payload: i64::from(zones - log) * shape.zone_payload(),
        ..BlockCounts::default()
    };
    [shape, Shape { zone_table: 0, ..shape }]
        .map(|shape| counts.payload - shape.reserve_in_blocks(&counts, Reserve::default()))
}

/// The table of zones is live metadata, and checkpoints rewrite it. A device with millions of zones had no reserve for
/// it. A volume of few zones has the same available space as without it, to the block.
#[test]
fn a_large_table_of_zones_takes_space_from_data() {
    const MIB: u64 = 1 << 20;
    for (zones, zone_bytes) in
        [(64, 64 * MIB), (256, 16 * MIB), (64, 16 * MIB), (1024, MIB), (1024, 256 * MIB), (8000, 256 * MIB)]
    {
        let [with, without] = available_with_and_without_table(zones, zone_bytes);
        assert_eq!(with, without, "{zones} zones of {zone_bytes} bytes");
    }
    for zone_bytes in [MIB, 16 * MIB, 256 * MIB] {
        let [with, without] = available_with_and_without_table(4_000_000, zone_bytes);
        // 7,844 chunks, 8 pages of their directory, and one dead page for every eight of these.
        let table = 7852 * 4;
        assert!(
            without - with >= table && without - with < table + table / 8 + 2 * 65536,
            "{}",
            without - with
        );
    }
}

#[test]
fn the_share_of_all_blocks_is_counted_in_hundredths_of_a_percent() {
    assert_eq!(share(50_000, Reserve(2_000)), 10_000);
    assert_eq!(share(50_000, Reserve::ALL), 50_000);
}

/// With a larger share, the reserve would count on GC to free dead blocks that a small zone does not have.
#[test]
fn a_small_zone_can_hold_the_counted_dead_blocks() {
    let dead = (i64::from(tree::GAIN_PAGES) + 1) * 4;
    for zone_blocks in 2 * dead..20 * dead {
        let packing = Packing { block_size: 4096 };
        let zone_blocks = zone_blocks as Blocks;
        let shape = Shape {
            packing,
            zone_blocks,
            zone_blocks_mean: zone_blocks,
            node_blocks: 4,
            reserved_zones: 3,
            zone_table: 0,
            groups: GROUPS,
        };
        let share = shape.garbage_share(GARBAGE_SHARE);
        assert!((share + 1) * dead <= i64::from(zone_blocks), "{zone_blocks} blocks");
        assert!(
            share == GARBAGE_SHARE || (share + 2) * dead > i64::from(zone_blocks),
            "{zone_blocks} blocks"
        );
    }
}

/// The available space of a volume with this number of equal zones, of zones of metadata, of live blocks of metadata,
/// and of live blocks of data.
fn available_with(shape: &Shape, zones: i64, metadata_zones: i64, metadata: i64, live: i64) -> i64 {
    available_beside_names(shape, zones, metadata_zones, (metadata, 0), live)
}

/// The same, with this number of blocks of names in the metadata.
fn available_beside_names(
    shape: &Shape,
    zones: i64,
    metadata_zones: i64,
    (metadata, names): (i64, i64),
    live: i64,
) -> i64 {
    let zone_payload = shape.zone_payload();
    let counts = BlockCounts {
        raw: zones * i64::from(shape.zone_blocks),
        payload: (zones - 3 - metadata_zones) * zone_payload,
        live,
        metadata,
        names,
        metadata_payload: metadata_zones * zone_payload,
    };
    counts.payload - shape.reserve_in_blocks(&counts, Reserve::default()) - live
}

fn shape_of(block_size: u32, zone_blocks: Blocks, node_bytes: u32) -> Shape {
    let packing = Packing { block_size };
    Shape {
        packing,
        zone_blocks,
        zone_blocks_mean: zone_blocks,
        node_blocks: node_bytes.div_ceil(block_size),
        reserved_zones: 8,
        zone_table: 0,
        groups: GROUPS,
    }
}

const SHAPES: [(i64, u32, Blocks); 8] = [
    (123, 512, 512),
    (103, 512, 975),
    (200, 1024, 1024),
    (772, 4096, 64),
    (340, 8192, 73),
    (1000, 4096, 4096),
    (5000, 4096, 64),
    (20_000, 4096, 64),
];

/// Metadata had many zones when all files were deleted, and returned them while the available space was being written.
/// Then the reserve grew by the map of the data that these zones can hold, and the last writes were refused.
#[test]
fn the_available_space_does_not_depend_on_the_number_of_metadata_zones() {
    for (zones, block_size, zone_blocks) in SHAPES {
        let shape = shape_of(block_size, zone_blocks, PAGE);
        let few = 9 * i64::from(shape.node_blocks);
        let with_one = available_with(&shape, zones, 1, few, 0);
        for metadata_zones in 2..30 {
            let now = available_with(&shape, zones, metadata_zones, few, 0);
            assert_eq!(now, with_one, "{zones} zones of {zone_blocks}, {metadata_zones} of metadata");
        }
    }
}

/// When blocks are written one by one in any order, each block is an extent of its own. The live metadata, and an
/// eighth more, exceeded the reserve, and the last writes were refused. Deleted files leave a few nodes.
#[test]
fn the_available_space_does_not_depend_on_the_size_of_the_map() {
    for (zones, block_size, zone_blocks) in SHAPES {
        let shape = shape_of(block_size, zone_blocks, PAGE);
        let empty = available_with(&shape, zones, 1, 9 * i64::from(shape.node_blocks), 0);
        for live in (0..=empty).step_by(1 + empty as usize / 100) {
            let map = shape.map_blocks_max(live) as i64;
            for metadata in [0, map / 10, map].map(|map| map + 30 * i64::from(shape.node_blocks)) {
                let now = available_with(&shape, zones, 20, metadata, live);
                assert_eq!(now, empty - live, "{zones} zones of {zone_blocks}, {metadata} of metadata");
            }
        }
    }
}

/// A volume with many names was filled in order, so its map was small. The reserve for the largest map counted as the
/// reserve for names too. When the files were overwritten in any order, there was no space for both.
#[test]
fn a_small_map_does_not_hide_names() {
    for (zones, block_size, zone_blocks) in SHAPES {
        let shape = shape_of(block_size, zone_blocks, PAGE);
        let raw = zones * i64::from(zone_blocks);
        for names in [0, raw / 200, raw / 30] {
            let few = available_beside_names(&shape, zones, 1, (names, names), 0);
            for live in (0..=few).step_by(1 + few.max(0) as usize / 10) {
                let map = shape.map_blocks_max(live) as i64;
                for map in [0, map / 10, map] {
                    let now = available_beside_names(&shape, zones, 20, (names + map, names), live);
                    assert_eq!(now, few - live, "{zones} zones of {zone_blocks}, {names} and {map}");
                }
            }
        }
    }
}

/// The minimum for names has place for some pages of the table of zones. With many names there was no place for the
/// table.
#[test]
fn many_names_do_not_hide_the_table_of_zones() {
    let of_few = NODES_OF_FEW_NAMES * i64::from(PAGE / 4096);
    for table in [of_few / 2, of_few, 3 * of_few] {
        let without = shape_of(4096, 256, PAGE);
        let shape = Shape { zone_table: table as u64, ..without };
        let reserve = |shape: &Shape, names: i64| {
            shape.metadata_max(
                1 << 20,
                shape.names(&BlockCounts { names, metadata: names, ..BlockCounts::default() }),
            )
        };
        assert!(reserve(&shape, 4 * of_few) - reserve(&without, 4 * of_few) >= table, "{table} blocks");
    }
}

/// In small zones, GC leaves more dead blocks beside the live ones. But reserved nodes counted an eighth as elsewhere,
/// so the space that was reserved beside them became too small.
#[test]
fn the_cost_of_reserved_nodes_covers_the_loss_of_available_space() {
    for (zones, block_size, zone_blocks) in SHAPES {
        for node_bytes in [4096, PAGE] {
            let shape = shape_of(block_size, zone_blocks, node_bytes);
            let (node, few) = (i64::from(shape.node_blocks), shape.names_min());
            let available = |names: i64| available_beside_names(&shape, zones, 20, (names, names), 0);
            for nodes in [1, 2, 64, 200] {
                let before = available(few);
                let after = available(few + nodes * node);
                let cost = shape.with_garbage(nodes * node);
                assert!(before - after <= cost, "{zones} zones of {zone_blocks}: {nodes} nodes cost {cost}");
            }
        }
    }
}
