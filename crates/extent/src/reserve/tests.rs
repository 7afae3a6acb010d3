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

/// What a new volume offers, in percent.
fn offers(zones: u32, zone_bytes: u64) -> f64 {
    100.0 - f64::from(least_reserve(&geometry(zones, zone_bytes), PAGE, GROUPS).0) / 100.0
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
    let least = least_reserve(&geometry, PAGE, GROUPS);
    for fine in [Reserve::default(), least, Reserve(least.0 + 1), Reserve(9_000)] {
        check_reserve(&geometry, PAGE, GROUPS, fine).unwrap();
    }
    for wrong in [Reserve(1), Reserve(2), Reserve(least.0 - 1), Reserve(9_001), Reserve::ALL] {
        let error = check_reserve(&geometry, PAGE, GROUPS, wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("choose from {least} to 90.00 %")), "{error}");
    }
}

/// It was made, and nothing could be written.
#[test]
fn a_device_on_which_nothing_is_left_for_files_is_refused() {
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

/// Each has nodes of its own, which were not counted before they were there.
#[test]
fn many_groups_take_their_nodes() {
    let geometry = geometry(64, 16 << 20);
    let offered = |groups| {
        let (shape, found) = new_volume(&geometry, PAGE, groups);
        found.payload - shape.kept(&found, Reserve::default())
    };
    assert_eq!(offered(1), offered(GROUPS));
    let nodes = 3 * (4096 - i64::from(GROUPS)) * 4;
    let taken = offered(GROUPS) - offered(4096);
    assert!((nodes..nodes + nodes / 4).contains(&taken), "{taken} blocks for {nodes}");
    assert!(least_reserve(&geometry, PAGE, 4096) > least_reserve(&geometry, PAGE, GROUPS));
}

/// What writing files may add to names is foreseen where names are few, and only there.
#[test]
fn less_is_shown_beside_many_names() {
    for (groups, few) in [(1, 1), (8, 24), (64, 192), (4096, 3 * 4096)] {
        let (shape, found) = new_volume(&geometry(64, 64 << 20), PAGE, groups);
        let left_out = |nodes: i64| {
            let found = Found { names: nodes * 4, metadata: nodes * 4, ..found };
            shape.kept(&shape.with_more_names(&found), Reserve::default())
                - shape.kept(&found, Reserve::default())
        };
        assert_eq!(left_out(few), 0, "{groups} groups");
        let most = shape.with_garbage(24 * 4);
        assert!((24 * 4..=most).contains(&left_out(3 * 4096 + 200)), "{groups} groups");
    }
}

/// The groups' nodes are no part of the table of zones.
#[test]
fn many_groups_do_not_hide_a_large_table() {
    let kept = |groups, zone_table| {
        let shape = Shape { groups, zone_table, ..shape_of(4096, 4096, PAGE) };
        let payload = 1000 * shape.largest();
        shape.kept(&Found { raw: 1000 * 4096, payload, ..Found::default() }, Reserve::default())
    };
    let [few, many] = [GROUPS, 256].map(|groups| kept(groups, 4000) - kept(groups, 0));
    assert!(few > 3000 && (few - many).abs() < 8, "{few} and {many}");
}

/// Metadata that takes more than was foreseen takes it from data, and never less is kept than there must be.
#[test]
fn what_lives_in_metadata_is_paid_by_data() {
    let shape = Shape::new(&geometry(100, 16 << 20), PAGE, GROUPS, 3);
    let raw = 100 * 4096;
    let found = |metadata: i64| {
        let metadata_zones = metadata / 4096 + 1;
        let payload = (100 - 3 - metadata_zones) * shape.largest();
        let metadata_payload = metadata_zones * shape.largest();
        Found { raw, payload, live: payload / 2, metadata, names: 0, metadata_payload }
    };
    let offered = |found: Found, reserve| found.payload - shape.kept(&found, reserve);
    for reserve in [Reserve::default(), Reserve(2_000)] {
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

/// What a new volume offers by default, in blocks, and what it would if the table of zones took nothing.
fn offered_with_and_without_table(zones: u32, zone_bytes: u64) -> [i64; 2] {
    let geometry = geometry(zones, zone_bytes);
    let (log, left_free) = tree::Store::zones_kept(&geometry, PAGE);
    let shape = Shape::new(&geometry, PAGE, GROUPS, left_free);
    let found = Found {
        raw: i64::from(zones) * i64::from(geometry.zone_blocks),
        payload: i64::from(zones - log) * shape.largest(),
        ..Found::default()
    };
    [shape, Shape { zone_table: 0, ..shape }]
        .map(|shape| found.payload - shape.kept(&found, Reserve::default()))
}

/// The table of zones lives, and is written anew by checkpoints, like any other metadata; where there are millions of
/// zones nothing was kept for it. A volume of few is offered to the block what it was.
#[test]
fn the_table_of_zones_is_paid_where_it_is_large() {
    const MIB: u64 = 1 << 20;
    for (zones, zone_bytes) in
        [(64, 64 * MIB), (256, 16 * MIB), (64, 16 * MIB), (1024, MIB), (1024, 256 * MIB), (8000, 256 * MIB)]
    {
        let [with, without] = offered_with_and_without_table(zones, zone_bytes);
        assert_eq!(with, without, "{zones} zones of {zone_bytes} bytes");
    }
    for zone_bytes in [MIB, 16 * MIB, 256 * MIB] {
        let [with, without] = offered_with_and_without_table(4_000_000, zone_bytes);
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
fn the_part_of_all_blocks_is_counted_in_hundredths_of_a_percent() {
    assert_eq!(share(50_000, Reserve(2_000)), 10_000);
    assert_eq!(share(50_000, Reserve::ALL), 50_000);
}

/// With a larger share than fits, cleaning a small zone would be counted on to win what is not there.
#[test]
fn beside_what_lives_in_a_small_zone_what_is_dead_has_room() {
    let dead = (i64::from(tree::GAIN_PAGES) + 1) * 4;
    for zone_blocks in 2 * dead..20 * dead {
        let packing = Packing { block_size: 4096 };
        let zone_blocks = zone_blocks as Blocks;
        let shape = Shape {
            packing,
            zone_blocks,
            zone_blocks_mean: zone_blocks,
            node_blocks: 4,
            left_free: 3,
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

/// What a volume of so many equal zones offers when metadata has so many of them, so much lives in it, and so much data.
fn offered_when(shape: &Shape, zones: i64, metadata_zones: i64, metadata: i64, live: i64) -> i64 {
    offered_beside(shape, zones, metadata_zones, (metadata, 0), live)
}

/// The same where so much of the metadata is names.
fn offered_beside(
    shape: &Shape,
    zones: i64,
    metadata_zones: i64,
    (metadata, names): (i64, i64),
    live: i64,
) -> i64 {
    let largest = shape.largest();
    let found = Found {
        raw: zones * i64::from(shape.zone_blocks),
        payload: (zones - 3 - metadata_zones) * largest,
        live,
        metadata,
        names,
        metadata_payload: metadata_zones * largest,
    };
    found.payload - shape.kept(&found, Reserve::default()) - live
}

fn shape_of(block_size: u32, zone_blocks: Blocks, node_bytes: u32) -> Shape {
    let packing = Packing { block_size };
    Shape {
        packing,
        zone_blocks,
        zone_blocks_mean: zone_blocks,
        node_blocks: node_bytes.div_ceil(block_size),
        left_free: 8,
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

/// Metadata had many zones when all was deleted, and gave them back while what was offered was being written: then so
/// much was kept for the map of what data could have in them that the last writes were refused.
#[test]
fn what_is_offered_does_not_depend_on_how_many_zones_metadata_has() {
    for (zones, block_size, zone_blocks) in SHAPES {
        let shape = shape_of(block_size, zone_blocks, PAGE);
        let few = 9 * i64::from(shape.node_blocks);
        let with_one = offered_when(&shape, zones, 1, few, 0);
        for metadata_zones in 2..30 {
            let now = offered_when(&shape, zones, metadata_zones, few, 0);
            assert_eq!(now, with_one, "{zones} zones of {zone_blocks}, {metadata_zones} of metadata");
        }
    }
}

/// Written block by block in any order, each block is an extent of its own: what lives in metadata, and an eighth more,
/// came to be more than was foreseen, and the last writes were refused. And what was deleted leaves a few nodes.
#[test]
fn what_is_offered_does_not_depend_on_what_the_map_takes() {
    for (zones, block_size, zone_blocks) in SHAPES {
        let shape = shape_of(block_size, zone_blocks, PAGE);
        let empty = offered_when(&shape, zones, 1, 9 * i64::from(shape.node_blocks), 0);
        for live in (0..=empty).step_by(1 + empty as usize / 100) {
            let map = shape.metadata_at_worst(live) as i64;
            for metadata in [0, map / 10, map].map(|map| map + 30 * i64::from(shape.node_blocks)) {
                let now = offered_when(&shape, zones, 20, metadata, live);
                assert_eq!(now, empty - live, "{zones} zones of {zone_blocks}, {metadata} of metadata");
            }
        }
    }
}

/// A volume with many names was filled in order, and its map was small: what was kept for the map at its worst counted as
/// kept for the names too, and written over in any order there was no room for both.
#[test]
fn names_do_not_hide_behind_a_map_that_takes_little() {
    for (zones, block_size, zone_blocks) in SHAPES {
        let shape = shape_of(block_size, zone_blocks, PAGE);
        let raw = zones * i64::from(zone_blocks);
        for names in [0, raw / 200, raw / 30] {
            let few = offered_beside(&shape, zones, 1, (names, names), 0);
            for live in (0..=few).step_by(1 + few.max(0) as usize / 10) {
                let map = shape.metadata_at_worst(live) as i64;
                for map in [0, map / 10, map] {
                    let now = offered_beside(&shape, zones, 20, (names + map, names), live);
                    assert_eq!(now, few - live, "{zones} zones of {zone_blocks}, {names} and {map}");
                }
            }
        }
    }
}

/// Few names leave room for some pages of the table of zones; many had it for themselves, and the table had none.
#[test]
fn many_names_do_not_hide_the_table_of_zones() {
    let of_few = NODES_OF_FEW_NAMES * i64::from(PAGE / 4096);
    for table in [of_few / 2, of_few, 3 * of_few] {
        let without = shape_of(4096, 256, PAGE);
        let shape = Shape { zone_table: table as u64, ..without };
        let kept = |shape: &Shape, names: i64| {
            shape.needed(1 << 20, shape.names(&Found { names, metadata: names, ..Found::default() }))
        };
        assert!(kept(&shape, 4 * of_few) - kept(&without, 4 * of_few) >= table, "{table} blocks");
    }
}

/// Where zones are small more of them is dead beside what lives, and an allowance took an eighth as elsewhere: of what was
/// promised beside it less was left.
#[test]
fn what_trees_are_allowed_to_grow_by_is_paid_in_full() {
    for (zones, block_size, zone_blocks) in SHAPES {
        for node_bytes in [4096, PAGE] {
            let shape = shape_of(block_size, zone_blocks, node_bytes);
            let (node, few) = (i64::from(shape.node_blocks), shape.few_names());
            let offered = |names: i64| offered_beside(&shape, zones, 20, (names, names), 0);
            for nodes in [1, 2, 64, 200] {
                let before = offered(few);
                let after = offered(few + nodes * node);
                let paid = shape.with_garbage(nodes * node);
                assert!(before - after <= paid, "{zones} zones of {zone_blocks}: {nodes} nodes, {paid} paid");
            }
        }
    }
}
