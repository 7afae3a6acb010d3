use std::sync::Arc;

use tree::Tx;
use zone::emulated::{Emulated, Spec};

use super::*;
use crate::gc::tests::write;
use crate::place::Opened;
use crate::place::tests::{extents_on, wanted};
use crate::{Kind, Object, Switches};

const BLOCKS: u64 = 200;

/// Closed zones, of which each holds one object, cut to so many blocks.
fn with_zones_of(live: &[u64]) -> Arc<Extents> {
    let extents = extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    extents.set_switches(Switches { by_file: false, learning: true });
    for (object, &live) in (1..).zip(live) {
        write(&extents, object, 0, BLOCKS as usize, 0);
        let zone = extents.place(wanted(Object(object))).unwrap();
        extents.retire(&zone).unwrap();
        let mut tx = Tx::new();
        let gone = (live, BLOCKS);
        drop(extents.remove(&mut tx, Object(object), gone, BLOCKS as usize, Kind::default()).unwrap());
        extents.store.commit(tx).unwrap();
    }
    extents
}

/// A zone is won when all that lives in it has been moved, and one is taken when that of garbage collection is full.
/// Counted in parts of zones, two that are half alive would have come to one in any case, and one that was about to be
/// there was worked for once more.
#[test]
fn debt_is_counted_in_whole_zones() {
    let extents = with_zones_of(&[100, 110, 120]);
    let mut gc = extents.gc.lock();
    // Nothing is open to move to: the first victim gives back what it takes.
    assert_eq!(extents.debt(&gc, 1.0), Some(210));
    assert_eq!(extents.debt(&gc, 2.0), None, "the third would take another zone");
    let Opened::Zone(target) = extents.open_zone(zone::Role::Gc).unwrap() else { panic!("zones are free") };
    *gc = GcState::with_target(Some(target));
    let room = gc.target_room(extents.packing);
    assert!((220..330).contains(&room), "{room}");
    assert_eq!(extents.debt(&gc, 1.0), Some(100));
    assert_eq!(extents.debt(&gc, 2.0), Some(210));
    assert_eq!(extents.debt(&gc, 1.5), Some(155), "half of what the second takes");
    assert_eq!(extents.debt(&gc, 3.0), None);
}

/// Nothing is owed as long as the zone that is needed next is there, whoever has to move how much for the one after it.
#[test]
fn a_zone_that_is_there_needs_no_moving() {
    let extents = with_zones_of(&[100, 110, 120]);
    assert!(extents.spare_zones() > 0);
    assert!(!extents.is_room_short());
    assert_eq!(extents.owes(1), None);
    let rooms = extents.placement.rooms(|room| extents.packing.payload(room));
    let spare = extents.spare_zones() * i64::from(extents.payload_min);
    assert_eq!(extents.room(), rooms[0] + spare);
}
