use super::*;
use crate::Lifetime;
use crate::gc::debt::tests::{BLOCKS, leave_spare, with_zones_of};
use crate::gc::tests::{write, write_as};
use crate::place::OpenAttempt;

const SIZE: u64 = 4096;

#[test]
fn the_ratio_pays_the_debt_before_the_headroom_ends() {
    let limits = Limits { zone: 4096, ahead: 512 };
    for debt in [100, 1000, 4000, 12_000, 30_000] {
        let (mut left, mut headroom) = (f64::from(debt), 2048 + 1024);
        while headroom > limits.ahead {
            left -= limits.ratio(headroom, left.ceil() as i64);
            headroom -= 1;
        }
        assert!(left <= f64::from(debt) / 8.0, "{left} of {debt} blocks are left");
    }
    assert_eq!(limits.ratio(0, 1_000_000), RATIO_MAX);
    assert_eq!(limits.ratio(4096, 0), 0.0);
}

/// Without a background task, writers do all moves themselves, and before the headroom ends: with one lifetime class, and
/// with two of which one uses the other's zone now and then.
#[test]
fn writers_alone_keep_headroom() {
    for lifetimes in [[Lifetime::Unknown; 2], [Lifetime::Short, Lifetime::Long]] {
        let extents = with_zones_of(&[100; 12]);
        leave_spare(&extents, 1);
        let (mut most, mut random) = (0, rt::random::Rng::with_seed(1));
        for _ in 0..6 * extents.payload_min() {
            let object = random.u64(100..110);
            let lifetime = lifetimes[object as usize % 2];
            extents.throttle().wait(SIZE);
            let (needs, moved) =
                (extents.collector().headroom().needs(), extents.collector().stats().blocks_moved);
            assert!(needs.iter().any(|need| need.headroom > 0), "a write would have to free a zone now");
            write_as(lifetime, &extents, object, random.u64(..BLOCKS), 1, BLOCKS * SIZE);
            most = most.max(extents.collector().stats().blocks_moved - moved);
            extents.store().sync(extents.store().last_lsn()).unwrap();
            extents.store().reclaim(true).unwrap();
        }
        assert!(extents.collector().stats().zones_reclaimed > 3);
        assert_eq!(most, 0, "GC ran under the locks of a write");
    }
}

/// A short write beside long ones waited for the moves that those were charged.
#[test]
fn a_short_write_does_not_wait_while_there_is_headroom() {
    let extents = with_zones_of(&[100; 8]);
    leave_spare(&extents, 0);
    write(&extents, 90, 0, 1, 0);
    let piece = extents.collector().mover().reader().piece_blocks() as u64;
    extents.throttle().charges().set_debts([1000, 0], extents.collector().headroom().blocks());
    extents.throttle().charges().charge(2.0 * piece as f64, piece as i64);
    let charged = extents.throttle().charges().charged();
    assert!(charged >= piece as i64 && charged < extents.collector().headroom().blocks() / 2);
    let moved = || extents.collector().stats().blocks_moved;
    let before = moved();
    extents.throttle().wait(SIZE);
    assert_eq!(moved(), before);
    extents.throttle().wait(piece * SIZE);
    assert!(moved() > before && extents.throttle().charges().charged() < piece as i64);
}

/// Metadata lacks a zone because GC has taken it from the reserve. Moves that happen anyway return it, so a writer does not
/// empty another zone for it. But an operation that found no space without it waits until it is there.
#[test]
fn a_zone_that_gc_returns_is_not_collected_for_once_more() {
    let extents = with_zones_of(&[100; 8]);
    let pool = extents.store().pool();
    for object in 50.. {
        // The open metadata zone is nearly full.
        if extents.store().zones_needed_to_grow() > 1 {
            break;
        }
        write(&extents, object, 0, 1, 0);
        extents.store().checkpoint().unwrap();
    }
    leave_spare(&extents, 0);
    let mut taken = Vec::new();
    while pool.free() >= extents.store().zones_needed_to_grow() {
        let OpenAttempt::Zone(open) = extents.placer().open_zone(zone::Role::Gc).unwrap() else {
            panic!("GC has a zone")
        };
        taken.push(open);
    }
    *extents.collector().lock() = GcState::with_target(taken.pop());
    let moved = || extents.collector().stats().blocks_moved;
    extents.admit().unwrap();
    assert_eq!(moved(), 0);
    assert!(extents.reclaim_for_growth().unwrap());
    assert!(moved() > 0 && pool.free() >= extents.store().zones_needed_to_grow());
    assert!(!extents.reclaim_for_growth().unwrap(), "nothing is lacking any more");
}

/// The background task starts when a zone is lacking, frees it, and stops.
#[test]
fn the_background_task_frees_a_zone_and_stops() {
    let extents = with_zones_of(&[20; 10]);
    let moved = || extents.collector().stats().blocks_moved;
    assert!(!extents.throttle().collect_in_background().unwrap(), "zones are free");
    leave_spare(&extents, 0);
    write(&extents, 1000, 0, 1, 0);
    extents.throttle().charge(1);
    assert!(extents.take_call());
    while extents.throttle().collect_in_background().unwrap() {}
    assert!(moved() > 0);
    extents.store().sync(extents.store().last_lsn()).unwrap();
    extents.store().reclaim(true).unwrap();
    assert!(extents.collector().headroom().spare_zones() >= 1);
    let before = moved();
    extents.throttle().charge(1);
    assert!(!extents.take_call() && !extents.throttle().collect_in_background().unwrap());
    assert_eq!((moved(), crate::check(&extents).unwrap()), (before, Vec::new()));
    assert_eq!(extents.throttle().pressure().charged, 0);
}

/// While writers did moves, they kept the background task asleep, and did all of them.
#[test]
fn the_background_task_does_its_share_beside_writers() {
    let extents = with_zones_of(&[100; 12]);
    leave_spare(&extents, 0);
    let moved = || extents.collector().stats().blocks_moved;
    let (mut by_task, mut by_writers, mut random) = (0, 0, rt::random::Rng::with_seed(1));
    let mut is_awake = extents.throttle().collect_in_background().unwrap();
    let piece = extents.collector().mover().reader().piece_blocks();
    for _ in 0..3 * u64::from(extents.payload_min()) / piece as u64 {
        let before = moved();
        extents.throttle().wait(piece as u64 * SIZE);
        by_writers += moved() - before;
        write(&extents, random.u64(100..105), 0, piece, 0);
        let before = moved();
        if extents.take_call() || is_awake {
            is_awake = extents.throttle().collect_in_background().unwrap();
        }
        by_task += moved() - before;
        extents.store().sync(extents.store().last_lsn()).unwrap();
        extents.store().reclaim(true).unwrap();
    }
    assert!(by_task > by_writers / 4, "{by_task} blocks by the task, {by_writers} by writers");
}

/// Two zones more are freed while they cost next to nothing, and none that cost much.
#[test]
fn only_cheap_zones_are_freed_in_advance() {
    for (live, spare) in [(10, 3), (150, 1)] {
        let extents = with_zones_of(&[live; 12]);
        leave_spare(&extents, 0);
        for _ in 0..40 {
            write(&extents, 1000, 0, 1, SIZE);
            while extents.throttle().collect_in_background().unwrap() {}
            extents.store().sync(extents.store().last_lsn()).unwrap();
            extents.store().reclaim(true).unwrap();
        }
        assert_eq!(extents.collector().headroom().spare_zones(), spare, "{live} blocks live in each");
    }
}

/// If GC can move nothing, the background task looks once, and not again before headroom has changed.
#[test]
fn the_background_task_does_not_repeat_what_was_futile() {
    let extents = with_zones_of(&[100, 110, 120]);
    leave_spare(&extents, 0);
    // GC finds no zone to move blocks to.
    let mut taken = Vec::new();
    while let OpenAttempt::Zone(open) = extents.placer().open_zone(zone::Role::Gc).unwrap() {
        taken.push(open);
    }
    extents.throttle().charge(1);
    while extents.throttle().collect_in_background().unwrap() {}
    assert_eq!(extents.collector().stats().blocks_moved, 0);
    extents.throttle().charge(1);
    assert!(!extents.take_call(), "it was tried");
    let share = i64::from(extents.payload_min()) / HEADROOM_SHARE;
    extents.throttle().charges().note_futile(extents.collector().headroom().blocks() + share);
    extents.throttle().charge(1);
    assert!(extents.take_call(), "blocks that were live may be dead now");
}
