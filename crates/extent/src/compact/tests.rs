use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Tx;
use zone::Role;

use super::*;
use crate::gc::tests::write;
use crate::place::Opened;
use crate::place::tests::{extents_on, wanted};
use crate::{FileClass, Object, map};

const OBJECTS: u64 = 40;
const BLOCKS: u64 = 100;

/// Objects of which each block lies by itself, and every second object gone.
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
        extents.store.commit(tx).unwrap();
    }
    let open = extents.place(wanted(Object(1))).unwrap();
    extents.retire(&open).unwrap();
    extents
}

fn fragments(extents: &Extents, object: u64) -> usize {
    let found = map::extents(&extents.store, Object(object), (0, u64::MAX), usize::MAX).unwrap();
    let follows = |one: &(u64, crate::format::Extent), other: &(u64, crate::format::Extent)| {
        one.1.address.offset(one.1.blocks) == other.1.address
    };
    found.chunk_by(follows).count()
}

/// With as many victims at once as two zones take, each group left a fragment of every file.
#[test]
fn what_is_collected_by_hand_comes_together() {
    let extents = scattered();
    assert!(fragments(&extents, 1) > BLOCKS as usize / 2);
    while extents.compact().unwrap() {}
    let zones = OBJECTS / 2 * BLOCKS / u64::from(extents.payload_min) + 2;
    let all: usize = (1..=OBJECTS).step_by(2).map(|object| fragments(&extents, object)).sum();
    assert!(all as u64 <= OBJECTS / 2 + zones, "{all} fragments of {} objects", OBJECTS / 2);
}

/// A device carries out in any order what is appended to it at once: a file of several appends would lie in pieces that
/// have changed places.
#[test]
fn what_is_collected_by_hand_lies_in_its_order() {
    for seed in 0..3 {
        let extents = scattered_on(Spec::new(4096, 32, 4096).seed(seed), 8, 2200);
        assert!(extents.piece_blocks() > 2 * extents.piece_blocks_max as usize, "several appends at once");
        while extents.compact().unwrap() {}
        // The first file is in victims that are worth it, whole; zones end, and summaries come in between.
        let fragments = fragments(&extents, 1);
        assert!(fragments <= 4, "it lies in {fragments} fragments, with seed {seed}");
    }
}

/// None of many victims is empty before the last has been moved. Who needs a zone does not wait for that, and the zones
/// that there were for it may be gone.
#[test]
fn who_needs_a_zone_puts_back_what_was_begun_by_hand() {
    let extents = scattered();
    while !extents.gc.lock().is_wide() {
        assert!(extents.compact().unwrap());
    }
    let begun = extents.gc.lock().victims().count();
    assert!(begun > 2);
    let blocks = extents.space().available as usize / 4096;
    assert!(blocks as i64 > extents.headroom(), "some of it has to be won");
    for block in 0..blocks {
        write(&extents, OBJECTS + 1, block as u64, 1, block as u64 * 4096);
    }
    assert!(!extents.gc.lock().is_wide(), "{begun} victims are still in hand");
    let mut found = vec![0; blocks * 4096];
    extents.read(Object(OBJECTS + 1), 0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == OBJECTS as u8 + 1));
    while extents.compact().unwrap() {}
    for object in (1..=OBJECTS).step_by(2) {
        let mut found = vec![0; BLOCKS as usize * 4096];
        extents.read(Object(object), 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == object as u8), "object {object}");
    }
}

/// The zones that were there for all victims at once are somebody else's before they were needed.
#[test]
fn what_was_begun_by_hand_is_put_back_when_its_zones_are_gone() {
    let extents = scattered();
    while !extents.gc.lock().is_wide() {
        assert!(extents.compact().unwrap());
    }
    let mut taken = Vec::new();
    while extents.has_zone_for_all() {
        let Opened::Zone(open) = extents.open_zone(Role::Data).unwrap() else { panic!("zones are free") };
        taken.push(open);
    }
    extents.throttle.want_background();
    assert!(!extents.collect_in_background().unwrap(), "manual GC goes on");
    assert!(extents.gc.lock().is_wide());
    let mut steps = 0;
    while extents.gc.lock().is_wide() {
        assert!(extents.compact().unwrap(), "there is more to be won");
        steps += 1;
        assert!(steps < 100);
    }
    assert_eq!(extents.gc.lock().victims().count(), 0, "all were put back");
    taken.iter().for_each(|open| extents.retire(open).unwrap());
    while extents.compact().unwrap() {}
    for object in (1..=OBJECTS).step_by(2) {
        let mut found = vec![0; BLOCKS as usize * 4096];
        extents.read(Object(object), 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == object as u8), "object {object}");
    }
    assert_eq!(extents.check().unwrap(), vec![]);
}

#[test]
fn what_lives_needs_the_largest_zones() {
    assert_eq!(free_at_most(vec![11; 4], 0), 4);
    assert_eq!(free_at_most(vec![11; 4], 10), 3);
    assert_eq!(free_at_most(vec![11; 4], 11), 2);
    assert_eq!(free_at_most(vec![5, 21, 11], 21), 1);
    assert_eq!(free_at_most(vec![11; 2], 100), 0);
}

/// The bound is told before, and is kept.
#[test]
fn no_more_zones_come_free_than_can() {
    let extents = scattered();
    let most = extents.free_zones_most();
    assert!(extents.store.pool().free() < most && most < extents.store.pool().count());
    while extents.compact().unwrap() {}
    assert!(extents.store.pool().free() <= most);
    assert_eq!(extents.free_zones_most(), most, "nothing was deleted");
}
