use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Tx;
use zone::Role;

use super::*;
use crate::gc::tests::write;
use crate::place::OpenAttempt;
use crate::place::tests::{extents_on, request};
use crate::{Extents, FileClass, Object, map};

const OBJECTS: u64 = 40;
const BLOCKS: u64 = 100;

/// Objects whose blocks lie apart. Every second object is removed.
fn scattered() -> Arc<Extents> {
    scattered_on(Spec::power_of_two(), OBJECTS, BLOCKS)
}

fn scattered_on(spec: Spec, objects: u64, blocks: u64) -> Arc<Extents> {
    let extents = extents_on(Arc::new(Emulated::new(spec)));
    for block in 0..blocks {
        (1..=objects).for_each(|object| write(&extents, object, block, 1, block * 4096));
    }
    for object in (2..=objects).step_by(2).map(Object) {
        let mut tx = Tx::new();
        drop(extents.remove(&mut tx, object, (0, blocks), blocks as usize, FileClass::default()).unwrap());
        extents.store().commit(tx).unwrap();
    }
    let open = extents.supply().place(request()).unwrap();
    extents.placer().retire(&open).unwrap();
    extents
}

fn fragments(extents: &Extents, object: u64) -> usize {
    let found = map::extents(extents.store(), Object(object), (0, u64::MAX), usize::MAX).unwrap();
    let follows = |one: &(u64, crate::format::Extent), other: &(u64, crate::format::Extent)| {
        one.1.address.offset(one.1.blocks) == other.1.address
    };
    found.chunk_by(follows).count()
}

/// With as many victims at once as two zones take, each set of victims left a fragment of every file.
#[test]
fn manual_gc_joins_the_pieces_of_files() {
    let extents = scattered();
    assert!(fragments(&extents, 1) > BLOCKS as usize / 2);
    while extents.collector().manual_gc().unwrap() {}
    let zones = OBJECTS / 2 * BLOCKS / u64::from(extents.payload_min()) + 2;
    let all: usize = (1..=OBJECTS).step_by(2).map(|object| fragments(&extents, object)).sum();
    assert!(all as u64 <= OBJECTS / 2 + zones, "{all} fragments of {} objects", OBJECTS / 2);
}

/// A device executes concurrent appends in any order: the pieces of a file of several appends would lie out of order.
#[test]
fn manual_gc_leaves_pieces_of_files_in_order() {
    for seed in 0..3 {
        let extents = scattered_on(Spec::new(4096, 32, 4096).seed(seed), 8, 2200);
        assert!(
            extents.collector().mover().reader().piece_blocks()
                > 2 * extents.maps().piece_blocks_max() as usize,
            "several appends at once"
        );
        while extents.collector().manual_gc().unwrap() {}
        // All of the first file is in worthwhile victims. Zones end, and summaries lie in between.
        let fragments = fragments(&extents, 1);
        assert!(fragments <= 4, "it lies in {fragments} fragments, with seed {seed}");
    }
}

/// None of many victims is reclaimed before the last has been moved. A writer that needs a zone does not wait for that,
/// and the free zones for the victims may be in use by then.
#[test]
fn a_writer_without_a_zone_releases_the_victims_of_manual_gc() {
    let extents = scattered();
    while !extents.collector().lock().exceeds_reserve() {
        assert!(extents.collector().manual_gc().unwrap());
    }
    let victims = extents.collector().lock().victims().count();
    assert!(victims > 2);
    let blocks = extents.budget().space().available as usize / 4096;
    assert!(blocks as i64 > extents.collector().headroom().blocks(), "GC has to free some of it");
    for block in 0..blocks {
        write(&extents, OBJECTS + 1, block as u64, 1, block as u64 * 4096);
    }
    assert!(!extents.collector().lock().exceeds_reserve(), "GC still has {victims} victims");
    let mut found = vec![0; blocks * 4096];
    extents.maps().read(Object(OBJECTS + 1), 0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == OBJECTS as u8 + 1));
    while extents.collector().manual_gc().unwrap() {}
    for object in (1..=OBJECTS).step_by(2) {
        let mut found = vec![0; BLOCKS as usize * 4096];
        extents.maps().read(Object(object), 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == object as u8), "object {object}");
    }
}

/// Other threads take the free zones for the victims before GC needs them.
#[test]
fn manual_gc_releases_its_victims_when_its_zones_are_taken() {
    let extents = scattered();
    while !extents.collector().lock().exceeds_reserve() {
        assert!(extents.collector().manual_gc().unwrap());
    }
    let mut taken = Vec::new();
    while extents.collector().mover().has_zone_for_all() {
        let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() else {
            panic!("zones are free")
        };
        taken.push(open);
    }
    extents.throttle().charges().want_background();
    assert!(!extents.throttle().collect_in_background().unwrap(), "manual GC goes on");
    assert!(extents.collector().lock().exceeds_reserve());
    let mut steps = 0;
    while extents.collector().lock().exceeds_reserve() {
        assert!(extents.collector().manual_gc().unwrap(), "GC can reclaim more");
        steps += 1;
        assert!(steps < 100);
    }
    assert_eq!(extents.collector().lock().victims().count(), 0, "all were released");
    taken.iter().for_each(|open| extents.placer().retire(open).unwrap());
    while extents.collector().manual_gc().unwrap() {}
    for object in (1..=OBJECTS).step_by(2) {
        let mut found = vec![0; BLOCKS as usize * 4096];
        extents.maps().read(Object(object), 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == object as u8), "object {object}");
    }
    assert_eq!(crate::check(&extents).unwrap(), vec![]);
}

#[test]
fn live_blocks_need_the_largest_zones() {
    assert_eq!(free_zones_beside(vec![11; 4], 0), 4);
    assert_eq!(free_zones_beside(vec![11; 4], 10), 3);
    assert_eq!(free_zones_beside(vec![11; 4], 11), 2);
    assert_eq!(free_zones_beside(vec![5, 21, 11], 21), 1);
    assert_eq!(free_zones_beside(vec![11; 2], 100), 0);
}

/// The bound is reported before manual GC, and holds after it.
#[test]
fn manual_gc_never_exceeds_the_reported_bound() {
    let extents = scattered();
    let most = crate::free_zones_max(extents.store().pool());
    assert!(extents.store().pool().free() < most && most < extents.store().pool().count());
    while extents.collector().manual_gc().unwrap() {}
    assert!(extents.store().pool().free() <= most);
    assert_eq!(crate::free_zones_max(extents.store().pool()), most, "nothing was deleted");
}
