use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Tx;

use super::ahead::Ahead;
use super::foreseen::{foreseen, of_epoch};
use super::*;
use crate::gc::tests::{write, write_as};
use crate::place::tests::{extents_on, wanted};
use crate::place::{Opened, Wanted};
use crate::{Kind, Lifetime, Object, Switches};

const BLOCKS: u64 = 200;
const SIZE: u64 = 4096;

fn fill_a_zone(extents: &Extents, object: u64) {
    fill_a_zone_with(extents, object, BLOCKS);
}

fn fill_a_zone_with(extents: &Extents, object: u64, blocks: u64) {
    write(extents, object, 0, blocks as usize, 0);
    let zone = extents.place(wanted(Object(object))).unwrap();
    extents.retire(&zone).unwrap();
}

/// Fills zones until fresh data may open no more than so many.
fn leave_spare(extents: &Extents, zones: i64) {
    for object in 100.. {
        if extents.spare_zones() <= zones {
            return;
        }
        fill_a_zone(extents, object);
    }
}

/// Closed zones, of which each holds one object, cut to so many blocks.
fn with_zones_of(live: &[u64]) -> Arc<Extents> {
    let extents = extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    extents.set_switches(Switches { by_file: false, learning: true });
    for (object, &live) in (1..).zip(live) {
        fill_a_zone(&extents, object);
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
    assert_eq!(extents.room(), rooms.until[0] + spare);
}

/// Whoever had to pay moved a chunk, a writer of one block too: beside somebody who wrote megabytes he waited for their
/// sake.
#[test]
fn who_writes_little_moves_a_chunk_when_as_much_has_come_together() {
    let extents = with_zones_of(&[100; 8]);
    leave_spare(&extents, 1);
    write(&extents, 90, 0, 1, 0);
    assert_eq!(extents.owes(1), None, "a zone has just been opened");
    let chunk = extents.chunk_blocks();
    let of_one = extents.pace.moved_per_written().ceil() as usize;
    assert!(of_one * 2 < chunk, "{of_one} of {chunk}");
    extents.pace.owe(extents.allowance() + 1);
    assert!(extents.pace.owed_blocks() + chunk as i64 <= extents.room());
    let asked: Vec<Option<usize>> = (0..chunk).map(|_| extents.owes(1)).collect();
    assert_eq!(asked.iter().position(Option::is_some), Some(chunk.div_ceil(of_one) - 1), "{asked:?}");
    extents.pace.owe(extents.room());
    assert_eq!(extents.owes(1), Some(chunk), "there is no room to let him go");
}

/// A class that shares the other's zone is to have one soon. That is no end of room: as long as it was taken for one,
/// whoever wrote little moved a chunk each time, and whoever paid read by himself what was to be moved.
#[test]
fn a_class_without_a_zone_is_to_have_one_soon_and_has_room_until_the_other_is_full() {
    let extents = with_zones_of(&[20; 8]);
    leave_spare(&extents, 1);
    // Neither is written so little that it does not count.
    for lifetime in [Lifetime::Unknown, Lifetime::Long] {
        extents.place(Wanted { object: Object(70), lifetime, blocks: 10_000, stays: false }).unwrap();
    }
    assert_eq!((extents.spare_zones(), extents.placement.count()), (0, 1), "one shares the other's");
    let needs = extents.needs();
    assert_eq!((needs.len(), needs[0].room), (2, needs[1].room));
    assert_eq!((needs[0].due_in, needs[1].due_in), (needs[0].room / SHARED_SHARE, needs[1].room));
    let [soon, hard] = {
        let gc = extents.gc.lock();
        [&needs[0], &needs[1]].map(|need| extents.due(&gc, need).map_or(0, |due| due.rate))
    };
    assert!(soon > hard, "{soon} parts of a block for each, and {hard}");
    assert!(extents.owes(1).is_none(), "the rate is found");
    let (room, chunk) = (extents.room(), extents.chunk_blocks());
    extents.pace.owe(room / 2 - extents.pace.owed_blocks());
    assert!(extents.pace.owed_blocks() > extents.allowance());
    assert_eq!(
        extents.owes(1),
        None,
        "{room} blocks of room for half as many, and less than {chunk} to move"
    );
}

/// Without anybody in the background, and nobody who writes much, what is owed is paid all the same, and before the room
/// has ended: of one class, and of two of which one shares the other's zone now and then.
#[test]
fn those_who_write_little_do_not_come_to_the_end_of_the_room_unpaid() {
    for lifetimes in [[Lifetime::Unknown; 2], [Lifetime::Short, Lifetime::Long]] {
        let extents = with_zones_of(&[100; 12]);
        leave_spare(&extents, 1);
        let (mut most, mut shared, mut random) = (0, 0, rt::random::Rng::with_seed(1));
        for _ in 0..6 * extents.payload_min {
            let object = random.u64(100..110);
            let lifetime = lifetimes[object as usize % 2];
            let (needs, moved) = (extents.needs(), extents.gc_stats().blocks_moved);
            assert!(needs.iter().any(|need| need.room > 0), "nobody could write now without making room");
            shared += u64::from(needs[0].is_soon());
            write_as(lifetime, &extents, object, random.u64(..BLOCKS), 1, BLOCKS * SIZE);
            most = most.max(extents.gc_stats().blocks_moved - moved);
            extents.store.sync(extents.store.last_lsn()).unwrap();
            extents.store.reclaim(true).unwrap();
        }
        assert!(extents.gc_stats().zones_evacuated > 3);
        assert_eq!(shared > 0, lifetimes[0] != lifetimes[1], "{shared} times one class had no zone");
        let piece = extents.chunk_blocks() as u64 + u64::from(extents.piece_blocks_max);
        assert!(most <= piece, "{most} blocks were moved with one, and a piece of work is {piece}");
    }
}

/// Metadata lacks a zone because garbage collection has it: it comes back by what is moved anyway. A writer does not empty
/// another for that; but who has found no space without it waits until it is there.
#[test]
fn what_garbage_collection_gives_back_is_not_collected_for_once_more() {
    let extents = with_zones_of(&[100; 8]);
    let pool = extents.store.pool();
    for object in 50.. {
        // Little of its open zone is left.
        if extents.store.zones_needed_to_grow() > 1 {
            break;
        }
        write(&extents, object, 0, 1, 0);
        extents.store.checkpoint().unwrap();
    }
    leave_spare(&extents, 0);
    let mut taken = Vec::new();
    while pool.free() >= extents.store.zones_needed_to_grow() {
        let Opened::Zone(open) = extents.open_zone(zone::Role::Gc).unwrap() else {
            panic!("one is left to it")
        };
        taken.push(open);
    }
    *extents.gc.lock() = GcState::with_target(taken.pop());
    let moved = || extents.gc_stats().blocks_moved;
    extents.admit().unwrap();
    assert_eq!(moved(), 0);
    assert!(extents.win_back().unwrap());
    assert!(moved() > 0 && pool.free() >= extents.store.zones_needed_to_grow());
    assert!(!extents.win_back().unwrap(), "nothing is lacking any more");
}

/// The last extent of a piece of work is moved whole: what is moved ends before that may be too much for the zone that is
/// written. With a piece as large as ever the last zone was taken after all, or collection waited long before it had to.
#[test]
fn a_piece_of_work_that_may_take_the_last_zone_is_smaller_or_waits_until_data_has_it() {
    let extents = with_zones_of(&[100, 110, 120]);
    let Opened::Zone(target) = extents.open_zone(zone::Role::Gc).unwrap() else { panic!("zones are free") };
    let gc = GcState::with_target(Some(Arc::clone(&target)));
    assert_eq!(extents.left_to_move(&gc, ABOUT_TO_OPEN), None, "there are others");
    leave_spare(&extents, 1);
    let longest = i64::from(extents.piece_blocks_max.min(extents.payload_min / EXTENT_SHARE));
    let least = extents.chunk_blocks() as i64 / PIECE_SHARE;
    assert!(longest > 1 && least > 1);
    let mut waits = 0;
    while gc.target_room(extents.packing) > 0 {
        let room = gc.target_room(extents.packing);
        assert_eq!(extents.left_to_move(&gc, ABOUT_TO_OPEN), Some(room - longest));
        let is_held = extents.would_take_the_last_zone(&gc, ABOUT_TO_OPEN);
        assert_eq!(is_held, room < least + longest, "{room} blocks of room");
        waits += i64::from(is_held);
        assert!(target.lease.admit(1, 0));
    }
    assert!(waits >= longest);
}

#[test]
fn what_is_moved_takes_whole_zones_once_the_open_one_is_full() {
    let mut gain = Gain { into: 10, payload: 100, freed: 0, moved: 0 };
    gain.add(10);
    assert_eq!(gain.zones(), 1, "all of it goes to the zone that is written already");
    gain.add(100);
    assert_eq!(gain.zones(), 1, "one zone is emptied, and another filled");
    gain.add(1);
    assert_eq!(gain.zones(), 1, "for one block more a zone is opened");
    gain.add(99);
    assert_eq!(gain.zones(), 2);
}

#[test]
fn who_moves_more_than_is_owed_has_that_to_his_credit_but_no_more_than_a_piece_of_work() {
    let pace = Pace::default();
    pace.owe(10);
    pace.paid(4, 3);
    assert_eq!(pace.owed_blocks(), 6);
    pace.paid(8, 3);
    assert_eq!(pace.owed_blocks(), -2);
    pace.paid(100, 3);
    assert_eq!(pace.owed_blocks(), -3);
}

/// A background that is called for nothing wakes for each write.
#[test]
fn the_background_is_called_once_and_when_something_is_owed() {
    let pace = Pace::default();
    pace.sleeps.store(true, Ordering::SeqCst);
    assert!(!pace.take_call());
    pace.owe(1);
    assert!(pace.take_call());
    assert!(!pace.take_call(), "it has been called");
}

/// A zone of 64 MiB was foreseen in the last 8 MiB of metadata, which may be what many zones of data come with: all that
/// time one more zone was worked for than anybody needed, and given up each time data took what was won.
#[test]
fn metadata_s_next_zone_is_foreseen_in_the_last_of_its_room() {
    assert_eq!(foreseen(512, 4096, 512), 0.0);
    assert_eq!(foreseen(256, 4096, 512), 0.5);
    assert_eq!(foreseen(0, 4096, 512), 1.0);
    assert_eq!(foreseen(-2048, 4096, 512), 1.5, "what does not fit into one takes a part of another");
    assert_eq!((foreseen(512, 16384, 512), foreseen(256, 16384, 512)), (0.0, 0.5), "however long zones are");
    assert_eq!((foreseen(32, 256, 512), foreseen(16, 256, 512)), (0.0, 0.5), "an eighth of short ones");
}

/// What a checkpoint will write was counted as long as it was dirty: for fifty zones of data and more one was worked for
/// that nothing took, again and again.
#[test]
fn what_an_epoch_s_end_takes_is_foreseen_in_the_last_of_it() {
    let of = |zones: f64| [0.0, 0.5, 0.75, 0.875, 1.0, 1.3].map(|share| of_epoch(share, zones * share));
    assert_eq!(of(100.0), [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]);
    assert_eq!(of(2.0), [0.0, 0.0, 0.5, 0.75, 1.0, 1.0], "a zone of data before it ends");
    assert_eq!(of(0.5), [0.0, 0.5, 0.75, 0.875, 1.0, 1.0], "all the time where no zone is written in it");
    assert_eq!(of_epoch(1.0, 0.0), 1.0);
    let epoch = EpochSeen::default();
    assert_eq!([(0, 70), (0, 100), (1, 120), (1, 125)].map(|(n, at)| epoch.written(n, at)), [0, 30, 0, 5]);
}

#[test]
fn it_is_quiet_when_nobody_has_written_between_two_looks() {
    let pace = Ahead::default();
    assert!(pace.is_quiet());
    let writing = pace.writing();
    assert!(!pace.is_quiet() && !pace.is_quiet(), "somebody writes");
    assert!(!pace.take_call(), "it goes on");
    drop(writing);
    assert!(pace.take_call(), "who looked is called");
    assert!(!pace.take_call());
    assert!(pace.is_quiet(), "nothing was begun since");
    drop(pace.writing());
    assert!(!pace.take_call(), "nobody waits");
    assert!(!pace.is_quiet(), "somebody has written");
    assert!(pace.is_quiet());
}

/// At half the rate that it could take, a device of large zones did nothing for half of each, and had too much to do in
/// the other half: a write waited for fifty times as long as one takes.
#[test]
fn while_nobody_writes_the_next_zone_is_won_before_anything_is_owed() {
    let extents = with_zones_of(&[20; 10]);
    let moved = || extents.gc_stats().blocks_moved;
    assert!(!extents.waits_for_quiet() && !extents.move_ahead().unwrap(), "zones are free");
    leave_spare(&extents, 0);
    write(&extents, 1000, 0, 1, 0);
    extents.pace.rest();
    let before = moved();
    assert!(!extents.pay_in_background().unwrap(), "nothing is owed");
    assert!(extents.waits_for_quiet());
    let writing = extents.pace.writing();
    assert!(!extents.waits_for_quiet() && !extents.take_call(), "somebody writes");
    drop(writing);
    assert!(extents.take_call(), "who waits for quiet is called");
    assert!(!extents.move_ahead().unwrap(), "somebody has written");
    assert_eq!(moved(), before);
    let mut steps = 0;
    while extents.move_ahead().unwrap() {
        steps += 1;
        assert!(steps < 100);
    }
    assert!(moved() > before);
    extents.store.sync(extents.store.last_lsn()).unwrap();
    extents.store.reclaim(true).unwrap();
    assert_eq!(extents.spare_zones(), 2, "a zone is there, and one more of 32, since it costs little");
    let before = moved();
    assert!(!extents.move_ahead().unwrap() && !extents.waits_for_quiet(), "that is enough");
    assert_eq!((moved(), extents.check().unwrap()), (before, Vec::new()));
}

/// Where nearly four fifths of the best victims live, moving them ahead would be much work that is for nothing if they
/// die: only the zone that will be needed soon is won then.
#[test]
fn zones_that_cost_much_are_not_won_before_they_are_needed() {
    for (live, wanted) in [(170, 2), (198, 1)] {
        let extents = with_zones_of(&[]);
        (1..).take_while(|_| extents.spare_zones() > 0).for_each(|n| fill_a_zone_with(&extents, n, live));
        for _ in 0..3 {
            write(&extents, 1000, 0, 1, 0);
            assert!(!extents.move_ahead().unwrap(), "somebody has written");
            while extents.move_ahead().unwrap() {}
            extents.store.sync(extents.store.last_lsn()).unwrap();
            extents.store.reclaim(true).unwrap();
        }
        assert!(extents.gc_stats().blocks_moved > 0);
        assert_eq!(extents.spare_zones(), wanted, "{live} blocks live in each");
        write(&extents, 1000, 0, 1, 0);
        assert!(!extents.waits_for_quiet(), "there are enough, or they are known to cost too much");
    }
}

/// What lives in the only victim takes a zone more than there is room for: moved, it would have worn out the device
/// whenever nobody wrote, and won nothing.
#[test]
fn what_wins_no_zone_is_not_moved_ahead() {
    let extents = with_zones_of(&[200]);
    let open = || match extents.open_zone(zone::Role::Gc).unwrap() {
        Opened::Zone(open) => open,
        Opened::NoLease | Opened::NoZone => panic!("zones are free"),
    };
    let target = open();
    while extents.spare_zones() > 0 {
        extents.device.finish(open().lease.zone()).unwrap();
    }
    let mut gc = extents.gc.lock();
    *gc = GcState::with_target(Some(Arc::clone(&target)));
    while gc.target_room(extents.packing) > 100 {
        assert!(target.lease.admit(1, 0));
    }
    assert_eq!((extents.debt(&gc, 1.0), extents.would_take_the_last_zone(&gc, ABOUT_TO_OPEN)), (None, false));
    drop(gc);
    assert!(extents.waits_for_quiet());
    extents.move_ahead().unwrap();
    assert!(!extents.move_ahead().unwrap() && !extents.waits_for_quiet());
    assert_eq!((extents.gc_stats().blocks_moved, extents.gc.lock().victims().count()), (0, 0));
}

/// Nothing can be moved: the background looks once, and not again every moment.
#[test]
fn what_cannot_be_moved_is_not_tried_again_until_somebody_has_written() {
    let extents = with_zones_of(&[100, 110, 120]);
    leave_spare(&extents, 0);
    // Garbage collection finds no zone to move anything to.
    let mut taken = Vec::new();
    while let Opened::Zone(open) = extents.open_zone(zone::Role::Gc).unwrap() {
        taken.push(open);
    }
    extents.move_ahead().unwrap();
    while extents.move_ahead().unwrap() {}
    assert_eq!(extents.gc_stats().blocks_moved, 0);
    assert!(!extents.waits_for_quiet(), "it was tried");
    drop(extents.pace.writing());
    assert!(extents.waits_for_quiet(), "what was written over may be what lived");
}

/// What is left in a victim that was begun is owed, and nothing of it twice.
#[test]
fn what_has_been_moved_is_owed_no_more() {
    let extents = with_zones_of(&[100, 110, 120]);
    let mut gc = extents.gc.lock();
    while gc.victims().next().is_none() {
        assert_eq!(extents.collect(&mut gc, Aim::Zone).unwrap(), Progress::Moved);
    }
    let lived: i64 = gc.victims().map(|zone| i64::from(extents.store.pool().entry(zone).live)).sum();
    assert_eq!(extents.collect(&mut gc, Aim::Zone).unwrap(), Progress::Moved);
    let left = lived - gc.blocks_moved() as i64;
    assert!((1..lived).contains(&left));
    // There is a zone to move to now, in which what is left of them has room. They are empty together.
    assert!(gc.target_room(extents.packing) >= left);
    assert_eq!(extents.debt(&gc, 1.0), Some(left));
    drop(gc);
    let told = extents.pressure();
    let won = told.won_per_moved.unwrap() * (told.debt.unwrap() / u64::from(extents.block_size())) as f64;
    assert!((won - f64::from(extents.payload_min)).abs() < 1e-6, "one zone is won by that: {won} blocks");
}
