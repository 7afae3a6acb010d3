use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Tx;
use zone::Role;

use super::*;
use crate::gc::Progress;
use crate::gc::tests::write;
use crate::place::OpenAttempt;
use crate::place::tests::{extents_on, request};
use crate::{Extents, FileClass, Object};

pub(crate) const BLOCKS: u64 = 200;

fn fill_a_zone(extents: &Extents, object: u64) {
    write(extents, object, 0, BLOCKS as usize, 0);
    let zone = extents.supply().place(request()).unwrap();
    extents.placer().retire(&zone).unwrap();
}

/// Fills zones until user writes may open no more than this number.
pub(crate) fn leave_spare(extents: &Extents, zones: i64) {
    for object in 100.. {
        if extents.collector().headroom().spare_zones() <= zones {
            return;
        }
        fill_a_zone(extents, object);
    }
}

/// Closed zones, each of which holds one object that was cut to this number of blocks.
pub(crate) fn with_zones_of(live: &[u64]) -> Arc<Extents> {
    let extents = extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    for (object, &live) in (1..).zip(live) {
        fill_a_zone(&extents, object);
        let mut tx = Tx::new();
        let gone = (live, BLOCKS);
        drop(extents.remove(&mut tx, Object(object), gone, BLOCKS as usize, FileClass::default()).unwrap());
        extents.store().commit(tx).unwrap();
    }
    extents
}

/// A victim is freed when all of its live blocks have been moved, and a zone is taken when GC's open zone is full. Counted
/// in parts of zones, two zones that are half live would free one in any case.
#[test]
fn debt_is_counted_in_whole_zones() {
    let extents = with_zones_of(&[100, 110, 120]);
    let mut gc = extents.collector().lock();
    // GC has no open zone: the first victim returns the zone that it takes.
    assert_eq!(extents.collector().debt(&gc, 1.0), Some(210));
    assert_eq!(extents.collector().debt(&gc, 2.0), None, "the third would take another zone");
    let OpenAttempt::Zone(target) = extents.placer().open_zone(Role::Gc).unwrap() else {
        panic!("zones are free")
    };
    *gc = GcState::with_target(Some(target));
    let headroom = gc.target_headroom(extents.maps().packing());
    assert!((220..330).contains(&headroom), "{headroom}");
    assert_eq!(extents.collector().debt(&gc, 1.0), Some(100));
    assert_eq!(extents.collector().debt(&gc, 2.0), Some(210));
    assert_eq!(extents.collector().debt(&gc, 1.5), Some(155), "half of the moves for the second");
    assert_eq!(extents.collector().debt(&gc, 3.0), None);
}

#[test]
fn the_live_blocks_of_victims_in_hand_are_debt_and_count_once() {
    let extents = with_zones_of(&[100, 110, 120]);
    let mut gc = extents.collector().lock();
    while gc.victims().next().is_none() {
        assert_eq!(extents.collector().collect(&mut gc, Goal::OneZone).unwrap(), Progress::Moved);
    }
    let lived: i64 = gc.victims().map(|zone| i64::from(extents.store().pool().entry(zone).live)).sum();
    assert_eq!(extents.collector().collect(&mut gc, Goal::OneZone).unwrap(), Progress::Moved);
    let left = lived - gc.blocks_moved() as i64;
    assert!((1..lived).contains(&left));
    // GC has an open zone now that takes the rest of the victims. They are empty together.
    assert!(gc.target_headroom(extents.maps().packing()) >= left);
    assert_eq!(extents.collector().debt(&gc, 1.0), Some(left));
    drop(gc);
    let pressure = extents.throttle().pressure();
    let debt = pressure.debt.unwrap() / u64::from(extents.block_size());
    let freed = pressure.freed_per_moved.unwrap() * debt as f64;
    assert!((freed - f64::from(extents.payload_min())).abs() < 1e-6, "{freed} blocks instead of one zone");
}

/// Nothing is charged while the zone that is needed next is free, however much GC has to move for the zone after it.
#[test]
fn nothing_is_charged_while_a_zone_is_free() {
    let extents = with_zones_of(&[100, 110, 120]);
    assert!(extents.collector().headroom().spare_zones() > 0);
    assert!(!extents.collector().headroom().is_low());
    extents.throttle().charge(100);
    assert!(extents.throttle().charges().charged() <= 0);
    let open_headroom =
        extents.placer().placement().open_headroom(|free| extents.maps().packing().payload(free));
    let spare = extents.collector().headroom().spare_zones() * i64::from(extents.payload_min());
    assert_eq!(extents.collector().headroom().blocks(), open_headroom.until[0] + spare);
}

/// The last extent of a piece is moved whole, so GC stops before that could take the last zone. With pieces of full length
/// it took the zone after all, or stopped long before it had to.
#[test]
fn gc_moves_less_than_a_piece_or_waits_where_it_would_take_the_last_zone() {
    let extents = with_zones_of(&[100, 110, 120]);
    let OpenAttempt::Zone(target) = extents.placer().open_zone(Role::Gc).unwrap() else {
        panic!("zones are free")
    };
    let gc = GcState::with_target(Some(Arc::clone(&target)));
    assert_eq!(extents.collector().left_to_move(&gc), None, "there are others");
    leave_spare(&extents, 1);
    let longest = i64::from(extents.maps().piece_blocks_max().min(extents.payload_min() / EXTENT_SHARE));
    let least = extents.collector().mover().reader().piece_blocks() as i64 / PIECE_SHARE;
    assert!(longest > 1 && least > 1);
    let mut waits = 0;
    while gc.target_headroom(extents.maps().packing()) > 0 {
        let headroom = gc.target_headroom(extents.maps().packing());
        assert_eq!(extents.collector().left_to_move(&gc), Some(headroom - longest));
        let is_held = extents.collector().would_take_the_last_zone(&gc);
        assert_eq!(is_held, headroom < least + longest, "{headroom} blocks of headroom");
        waits += i64::from(is_held);
        assert!(target.lease.admit(1, 0));
    }
    assert!(waits >= longest);
}

#[test]
fn moved_blocks_take_whole_zones_once_gcs_open_zone_is_full() {
    let mut gain = Gain::new(10, 100);
    gain.add(10);
    assert_eq!(gain.zones(), 1, "the open zone takes all of it");
    gain.add(100);
    assert_eq!(gain.zones(), 1, "one zone is emptied, and another filled");
    gain.add(1);
    assert_eq!(gain.zones(), 1, "for one more block a zone is opened");
    gain.add(99);
    assert_eq!(gain.zones(), 2);
}
