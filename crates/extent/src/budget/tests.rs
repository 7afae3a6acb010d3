use emulated::{Emulated, Spec};
use rt::schedule::{self, Body};
use rt::sync::atomic::{AtomicI64, Ordering};
use tree::{Group, Table, Tx};
use zone::{Role, ZoneId, ZoneState};

use super::*;
use crate::place::OpenAttempt;
use crate::place::tests::{extents, extents_on};
use crate::retry_limit::RetryLimit;
use crate::{Extents, FileClass, Hint, Object};

/// The test's own sum decreases before the reservation does.
fn return_blocks(reserved: &AtomicI64, one: Option<(i64, Reservation)>) {
    let Some((blocks, reservation)) = one else { return };
    reserved.fetch_sub(blocks, Ordering::AcqRel);
    drop(reservation);
}

/// A count of space that was stored late overwrote blocks that other writers had taken: blocks were promised twice.
#[test]
fn concurrent_reservations_never_exceed_the_available_space() {
    let extents = extents();
    let most = unreserved(&extents);
    let reserved = Arc::new(AtomicI64::new(0));
    let refused = Arc::new(AtomicI64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (extents, reserved, refused) = (&extents, &reserved, &refused);
            scope.spawn(move || {
                let mut rng = rt::random::Rng::with_seed(seed);
                let mut reservations = Vec::new();
                for _ in 0..5000 {
                    if reservations.len() == 4 {
                        return_blocks(reserved, reservations.pop());
                    }
                    let blocks = rng.i64(1..most / 2);
                    let Ok(reservation) = extents.budget().reserve(blocks as u64) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        return_blocks(reserved, reservations.pop());
                        continue;
                    };
                    let now = reserved.fetch_add(blocks, Ordering::AcqRel) + blocks;
                    assert!(now <= most, "{now} of {most} blocks are reserved");
                    reservations.push((blocks, reservation));
                }
                reservations.into_iter().for_each(|one| return_blocks(reserved, Some(one)));
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "some reservations were refused");
    assert_eq!(unreserved(&extents), most);
}

fn unreserved(extents: &Extents) -> i64 {
    extents.budget().census_now().unreserved()
}

/// Nodes that transactions reserve reduce the available space. No node can be reserved when all space is reserved for
/// data.
#[test]
fn nodes_and_data_reserve_from_one_sum() {
    let extents = extents();
    let (most, shape) = (unreserved(&extents), extents.budget().shape());
    let cost = extents.budget().blocks_to_grow_by(&shape, 3);
    let available = |asked| {
        extents.budget().at_one_moment(|moment, _| extents.budget().census(moment, asked).available())
    };
    assert_eq!([available(0), available(3)], [most, most - cost]);
    let all_but = |left: i64| extents.budget().reserve((most - left) as u64).unwrap();
    let may_grow =
        |asked| extents.budget().at_one_moment(|moment, _| extents.budget().may_grow(moment, asked));
    let reservation = all_but(cost);
    assert!(may_grow(3) && !may_grow(4) && extents.budget().may_trees_grow());
    drop(reservation);
    let _all = all_but(0);
    assert!(!may_grow(1) && !extents.budget().may_trees_grow());
    assert!(
        extents.budget().reserve(1).is_err() && extents.budget().reserve(0).is_ok(),
        "a reservation of no blocks is never refused"
    );
}

/// The space of a lost zone may have been reserved. Operations that need no space are not refused.
#[test]
fn after_the_loss_of_a_zone_only_operations_that_need_space_are_refused() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    let _all = extents.budget().reserve(unreserved(&extents) as u64).unwrap();
    let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() else {
        panic!("a zone is free")
    };
    let zone = open.lease.zone();
    drop(open);
    extents.store().pool().close(zone);
    device.set_zone_state(zone, ZoneState::ReadOnly);
    extents.store().reclaim(true).unwrap();
    assert!(unreserved(&extents) < 0, "{}", unreserved(&extents));
    assert!(extents.budget().reserve(1).is_err() && extents.budget().reserve(0).is_ok());
    assert_eq!(extents.budget().space().available, 0);
}

/// Every zone is in use, and no block is dead. The call must return that no zone was freed. Otherwise the writer would
/// look for a zone, find none, and call again without end.
#[test]
fn without_dead_blocks_no_caller_is_told_that_a_zone_was_freed() {
    let extents = extents_without_zones();
    let mut retry_limit = RetryLimit::default();
    // Metadata can give up one zone.
    let mut frees_a_zone =
        || extents.supply().free_a_zone(&mut retry_limit, extents.store().resets_over()).unwrap();
    let freed = (0..50).take_while(|_| frees_a_zone()).count();
    assert!(freed < 10, "{freed} zones are said to be freed");
}

fn extents_without_zones() -> Arc<Extents> {
    let extents = extents();
    while let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() {
        extents.maps().device().finish(open.lease.zone()).unwrap();
    }
    assert!(extents.placer().is_out_of_zones());
    extents
}

/// As other threads do that change names: metadata zones are filled, have no live node after the checkpoint, and are
/// reset.
fn change_names_until_a_zone_is_reset(extents: &Extents) {
    let (store, before) = (extents.store(), extents.store().resets_over());
    while store.resets_over() == before {
        let mut tx = Tx::new();
        for group in (0..store.info().groups).map(Group) {
            tx.put(group, Table(200), b"name", store.last_lsn().0.to_le_bytes().to_vec());
        }
        store.commit(tx).unwrap();
        store.checkpoint().unwrap();
    }
}

/// Before each retry a metadata zone has been reset. The writer never stopped while other threads changed names,
/// although it could not have any of these zones.
#[test]
fn a_writer_without_a_zone_stops_while_metadata_zones_are_reset() {
    let extents = extents_without_zones();
    let mut retry_limit = RetryLimit::default();
    let freed = (0..200).take_while(|_| {
        let over = extents.store().resets_over();
        change_names_until_a_zone_is_reset(&extents);
        extents.supply().free_a_zone(&mut retry_limit, over).unwrap()
    });
    let freed = freed.count();
    assert!(freed < 100, "{freed} zones are said to be freed");
}

/// Other threads are faster each time, and take the freed zone.
#[test]
fn a_writer_whose_freed_zone_was_taken_tries_again() {
    let extents = extents();
    let mut retry_limit = RetryLimit::default();
    for round in 0..200 {
        while let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() {
            extents.placer().retire(&open).unwrap();
        }
        let over = extents.store().resets_over();
        assert!(extents.supply().free_a_zone(&mut retry_limit, over).unwrap(), "round {round}");
    }
}

/// `reserved` is the rest of all zones: the reported values add up to the total, in any state of the zones.
#[test]
fn the_reported_space_adds_up() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    let (size, total) = (u64::from(extents.block_size()), extents.budget().space().total);
    let adds_up = |when: &str| {
        let space = extents.budget().space();
        let of_files = space.live + space.pending + space.unwritten;
        assert_eq!(space.total, total, "{when}: {space:?}");
        assert_eq!(space.available, total.saturating_sub(space.reserved + of_files), "{when}: {space:?}");
        assert!(space.reserved > space.metadata, "{when}: {space:?}");
        space
    };
    let empty = adds_up("empty");
    (1..=30).for_each(|object| write(&extents, object, 40));
    (2..=30).step_by(2).for_each(|object| write(&extents, object, 40));
    assert_eq!(adds_up("half of it is dead").live, 30 * 40 * size);
    let mut tx = Tx::new();
    drop(extents.preallocate(&mut tx, Object(40), (0, 20), 64, None).unwrap());
    extents.store().commit(tx).unwrap();
    let reservation = extents.budget().reserve(10).unwrap();
    let space = adds_up("some is reserved");
    assert_eq!((space.pending, space.unwritten), (10 * size, 20 * size));
    drop(reservation);
    let all = extents.budget().reserve(unreserved(&extents) as u64).unwrap();
    assert_eq!(adds_up("all is reserved").available, 0);
    drop(all);
    extents.store().checkpoint().unwrap();
    assert_eq!(adds_up("metadata is written").reserved, empty.reserved, "the map takes from its reserve");
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let of_data = |&zone: &ZoneId| extents.store().pool().entry(zone).role == Role::Data;
        let mut zones = (0..extents.store().pool().count()).map(ZoneId);
        device.set_zone_state(zones.find(of_data).unwrap(), state);
        extents.collector().reclaim_victims(&mut extents.collector().lock()).unwrap();
        adds_up("a zone has failed");
    }
}

const SCHEDULES: u64 = 60;
const OBSERVATIONS: usize = 60;

fn write(extents: &Extents, object: u64, blocks: u64) {
    let size = extents.block_size() as u64;
    let data = vec![object as u8 + 1; (blocks * size) as usize];
    let written = extents.append(Object(object), Hint::default(), 0, &data, blocks * size).unwrap();
    let mut tx = Tx::new();
    let _lock = extents.insert(&mut tx, written).unwrap();
    extents.store().commit(tx).unwrap();
}

/// The available space that an observing thread sees while another thread runs `work`.
fn seen_while(seed: u64, extents: &Extents, work: impl Fn() + Sync) -> Vec<i64> {
    let observe = || (0..OBSERVATIONS).map(|_| unreserved(extents)).collect::<Vec<_>>();
    let work = || {
        work();
        Vec::new()
    };
    let bodies: Vec<Body<'_, Vec<i64>>> =
        vec![("work".into(), Box::new(work)), ("observe".into(), Box::new(observe))];
    schedule::run(seed, bodies).returned.swap_remove(1)
}

/// Space was counted at several moments: writers were refused available space, or were promised more than existed. It
/// is counted at one moment.
#[test]
fn a_reservation_is_spent_at_the_moment_at_which_its_blocks_become_live() {
    const BLOCKS: u64 = 40;
    for seed in 0..SCHEDULES {
        let extents = extents();
        write(&extents, 1, 2 * BLOCKS);
        let before = unreserved(&extents);
        let after = before - 2 * BLOCKS as i64;
        let seen = seen_while(seed, &extents, || {
            let mut tx = Tx::new();
            let range = (0, BLOCKS);
            let (lock, until) = extents.preallocate(&mut tx, Object(2), range, 64, None).unwrap();
            assert_eq!(until, BLOCKS);
            extents.store().commit(tx).unwrap();
            drop(lock);
            write(&extents, 3, BLOCKS);
            // Live blocks become preallocated ones, and preallocated ones are written: the sum is as before.
            let mut tx = Tx::new();
            let (lock, _) =
                extents.preallocate(&mut tx, Object(1), range, 64, Some(FileClass::default())).unwrap();
            extents.store().commit(tx).unwrap();
            drop(lock);
        });
        let steps = [before, before - BLOCKS as i64, after];
        assert!(seen.iter().all(|seen| steps.contains(seen)), "seed {seed}: {steps:?}: {seen:?}");
        assert!(seen.is_sorted_by(|a, b| a >= b), "seed {seed}: {seen:?}");
        assert_eq!(unreserved(&extents), after);
    }
}

/// Space was counted at several moments: writers were refused available space, or were promised more than existed. It
/// is counted at one moment.
#[test]
fn a_moved_block_counts_once() {
    let mut moved = 0;
    for seed in 0..SCHEDULES {
        let extents = extents();
        // Half of the blocks of each zone die.
        (1..=30).for_each(|object| write(&extents, object, 40));
        (2..=30).step_by(2).for_each(|object| write(&extents, object, 40));
        let before = unreserved(&extents);
        let seen = seen_while(seed, &extents, || {
            for _ in 0..3 {
                extents.collector().reclaim_victims(&mut extents.collector().lock()).unwrap();
                extents.store().reclaim(true).unwrap();
            }
        });
        let streams = extents.learned().streams();
        let count = |of: fn(&crate::StreamStats) -> u64| streams.iter().map(of).sum::<u64>();
        assert_eq!(count(|stream| stream.moved), extents.collector().stats().blocks_moved, "seed {seed}");
        assert_eq!(count(|stream| stream.written), 45 * 40, "seed {seed}");
        moved += extents.collector().stats().blocks_moved;
        assert!(seen.iter().all(|&seen| seen == before), "seed {seed}: {before}: {seen:?}");
    }
    assert!(moved > 0, "GC moved blocks");
}

#[test]
fn a_refused_reservation_causes_no_other_refusal() {
    for seed in 0..SCHEDULES {
        let extents = extents();
        let most = unreserved(&extents);
        let ask = |blocks: i64, fits: bool| {
            let extents = &extents;
            let body = move || {
                for _ in 0..30 {
                    assert_eq!(
                        extents.budget().reserve(blocks as u64).is_ok(),
                        fits,
                        "seed {seed}: {blocks} of {most}"
                    );
                }
            };
            (format!("{blocks}"), Box::new(body) as Box<dyn FnOnce() + Send>)
        };
        schedule::run(seed, vec![ask(most + 1, false), ask(most / 2, true), ask(most - most / 2, true)]);
    }
}

/// The used part of the overwrite reserve never exceeds it. If it did, the new blocks of overwrites would take the
/// zones that GC works with.
#[test]
fn concurrent_overwrites_never_exceed_the_overwrite_reserve() {
    for seed in 0..SCHEDULES {
        let extents = extents();
        let limit = extents.budget().shape().overwrite_reserve();
        let blocks = limit - limit / 4;
        (1..=3).for_each(|object| write(&extents, object, blocks));
        let _all = extents.budget().reserve(unreserved(&extents) as u64).unwrap();
        assert!(extents.budget().reserve(1).is_err(), "nothing is available");
        let write_over = |object: u64| {
            let extents = &extents;
            let body = move || {
                for _ in 0..5 {
                    let _reservation = extents.budget().reserve_over(Object(object), 0, blocks).unwrap();
                    for _ in 0..9 {
                        let used = extents.budget().reservations().overwriting();
                        assert!((blocks..=limit).contains(&(used as u64)), "seed {seed}: {used} of {limit}");
                    }
                }
            };
            (format!("{object}"), Box::new(body) as Box<dyn FnOnce() + Send>)
        };
        schedule::run(seed, (1..=3).map(write_over).collect());
        assert_eq!(extents.budget().reservations().overwriting(), 0, "seed {seed}: writers return all of it");
    }
}
