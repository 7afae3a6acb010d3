use emulated::{Emulated, Spec};
use rt::schedule::{self, Body};
use tree::{Group, Table};
use zone::{Role, ZoneState};

use super::*;
use crate::place::Opened;
use crate::place::tests::{extents, extents_on};
use crate::{FileClass, Hint, Object};

/// The test's own sum goes down before the reservation does.
fn give_back(promised: &AtomicI64, held: Option<(i64, Reservation)>) {
    let Some((blocks, reservation)) = held else { return };
    promised.fetch_sub(blocks, Ordering::AcqRel);
    drop(reservation);
}

#[test]
fn no_more_is_promised_than_there_is() {
    let extents = extents();
    let most = offered(&extents);
    let promised = Arc::new(AtomicI64::new(0));
    let refused = Arc::new(AtomicI64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (extents, promised, refused) = (&extents, &promised, &refused);
            scope.spawn(move || {
                let mut rng = rt::random::Rng::with_seed(seed);
                let mut held = Vec::new();
                for _ in 0..5000 {
                    if held.len() == 4 {
                        give_back(promised, held.pop());
                    }
                    let blocks = rng.i64(1..most / 2);
                    let Ok(reservation) = extents.reserve(blocks as u64) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        give_back(promised, held.pop());
                        continue;
                    };
                    let now = promised.fetch_add(blocks, Ordering::AcqRel) + blocks;
                    assert!(now <= most, "{now} of {most} blocks are promised");
                    held.push((blocks, reservation));
                }
                held.into_iter().for_each(|held| give_back(promised, Some(held)));
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "the writers were in each other's way");
    assert_eq!(offered(&extents), most);
}

fn offered(extents: &Extents) -> i64 {
    extents.census_now().offered()
}

/// The nodes that transactions are about to make take of what is offered, and no node is reserved where data have been
/// promised all.
#[test]
fn nodes_and_data_share_what_is_offered() {
    let extents = extents();
    let (most, shape) = (offered(&extents), extents.shape());
    let cost = extents.blocks_to_grow_by(&shape, 3);
    let available = |asked| extents.at_one_moment(|moment, _| extents.census(moment, asked).available());
    assert_eq!([available(0), available(3)], [most, most - cost]);
    let all_but = |left: i64| extents.reserve((most - left) as u64).unwrap();
    let may_grow = |asked| extents.at_one_moment(|moment, _| extents.may_grow(moment, asked));
    let reservation = all_but(cost);
    assert!(may_grow(3) && !may_grow(4) && extents.may_trees_grow());
    drop(reservation);
    let _all = all_but(0);
    assert!(!may_grow(1) && !extents.may_trees_grow());
    assert!(
        extents.reserve(1).is_err() && extents.reserve(0).is_ok(),
        "what needs no space is never refused"
    );
}

/// A zone that is lost may have held what was promised. What needs no space goes on.
#[test]
fn where_more_is_promised_than_there_is_only_what_takes_space_is_refused() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    let _all = extents.reserve(offered(&extents) as u64).unwrap();
    let Opened::Zone(open) = extents.open_zone(Role::Data).unwrap() else { panic!("a zone is free") };
    let zone = open.lease.zone();
    drop(open);
    extents.store.pool().close(zone);
    device.set_zone_state(zone, ZoneState::ReadOnly);
    extents.store.reclaim(true).unwrap();
    assert!(offered(&extents) < 0, "{}", offered(&extents));
    assert!(extents.reserve(1).is_err() && extents.reserve(0).is_ok());
    assert_eq!(extents.space().available, 0);
}

/// Every zone is taken, and nothing is dead. Who waits for room is told that there is none: told that some
/// was made, he would look, find none, and ask again for ever.
#[test]
fn where_no_room_can_be_made_nobody_is_told_that_it_was() {
    let extents = extents_without_zones();
    let mut patience = Patience::default();
    // What is left to metadata is one.
    let mut makes_room = || extents.make_room(&mut patience, extents.store.resets_over()).unwrap();
    let made = (0..50).take_while(|_| makes_room()).count();
    assert!(made < 10, "room was made {made} times");
}

fn extents_without_zones() -> Arc<Extents> {
    let extents = extents();
    while let Opened::Zone(open) = extents.open_zone(Role::Data).unwrap() {
        extents.device.finish(open.lease.zone()).unwrap();
    }
    assert!(extents.is_out_of_zones());
    extents
}

/// As others do who change names: zones of metadata are filled, left dead by the checkpoint, and reset.
fn change_names_until_a_zone_is_reset(extents: &Extents) {
    let (store, before) = (&extents.store, extents.store.resets_over());
    while store.resets_over() == before {
        let mut tx = Tx::new();
        for group in (0..store.info().groups).map(Group) {
            tx.put(group, Table(200), b"name".to_vec(), store.last_lsn().0.to_le_bytes().to_vec());
        }
        store.commit(tx).unwrap();
        store.checkpoint().unwrap();
    }
}

/// Each time he looks a zone of metadata has been reset since. The writer never came to an end while others changed
/// names, though none of those zones could ever be his.
#[test]
fn who_finds_no_zone_comes_to_an_end_while_metadata_is_reset() {
    let extents = extents_without_zones();
    let mut patience = Patience::default();
    let made = (0..200).take_while(|_| {
        let over = extents.store.resets_over();
        change_names_until_a_zone_is_reset(&extents);
        extents.make_room(&mut patience, over).unwrap()
    });
    let made = made.count();
    assert!(made < 100, "room was made {made} times");
}

/// Others are faster each time, and take the zone that was won.
#[test]
fn who_is_too_late_for_a_zone_goes_on_looking() {
    let extents = extents();
    let mut patience = Patience::default();
    for round in 0..200 {
        while let Opened::Zone(open) = extents.open_zone(Role::Data).unwrap() {
            extents.retire(&open).unwrap();
        }
        let over = extents.store.resets_over();
        assert!(extents.make_room(&mut patience, over).unwrap(), "round {round}");
    }
}

/// What is kept is what remains of all zones: whoever adds up what is shown finds all of them, whatever has become of them.
#[test]
fn what_is_shown_adds_up() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    let (size, total) = (u64::from(extents.block_size()), extents.space().total);
    let adds_up = |when: &str| {
        let space = extents.space();
        let of_files = space.live + space.pending + space.unwritten;
        assert_eq!(space.total, total, "{when}: {space:?}");
        assert_eq!(space.available, total.saturating_sub(space.kept + of_files), "{when}: {space:?}");
        assert!(space.kept > space.metadata, "{when}: {space:?}");
        space
    };
    let empty = adds_up("empty");
    (1..=30).for_each(|object| write(&extents, object, 40));
    (2..=30).step_by(2).for_each(|object| write(&extents, object, 40));
    assert_eq!(adds_up("half of it is dead").live, 30 * 40 * size);
    let mut tx = Tx::new();
    drop(extents.preallocate(&mut tx, Object(40), (0, 20), 64, None).unwrap());
    extents.store.commit(tx).unwrap();
    let promised = extents.reserve(10).unwrap();
    let space = adds_up("promised");
    assert_eq!((space.pending, space.unwritten), (10 * size, 20 * size));
    drop(promised);
    let all = extents.reserve(offered(&extents) as u64).unwrap();
    assert_eq!(adds_up("all is promised").available, 0);
    drop(all);
    extents.store.checkpoint().unwrap();
    assert_eq!(adds_up("metadata is written").kept, empty.kept, "the map takes of what is kept for it");
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let of_data = |&zone: &ZoneId| extents.store.pool().entry(zone).role == Role::Data;
        let mut zones = (0..extents.store.pool().count()).map(ZoneId);
        device.set_zone_state(zones.find(of_data).unwrap(), state);
        extents.evacuate(&mut extents.gc.lock()).unwrap();
        adds_up("a zone has failed");
    }
}

const SCHEDULES: u64 = 60;
const LOOKS: usize = 60;

fn write(extents: &Extents, object: u64, blocks: u64) {
    let size = extents.block_size() as u64;
    let data = vec![object as u8 + 1; (blocks * size) as usize];
    let written = extents.append(Object(object), Hint::default(), 0, &data, blocks * size).unwrap();
    let mut tx = Tx::new();
    let _lock = extents.insert(&mut tx, written).unwrap();
    extents.store.commit(tx).unwrap();
}

/// What a thread that only looks sees to be available while another does this.
fn seen_while(seed: u64, extents: &Extents, work: impl Fn() + Sync) -> Vec<i64> {
    let look = || (0..LOOKS).map(|_| offered(extents)).collect::<Vec<_>>();
    let work = || {
        work();
        Vec::new()
    };
    let bodies: Vec<Body<'_, Vec<i64>>> =
        vec![("work".into(), Box::new(work)), ("look".into(), Box::new(look))];
    schedule::run(seed, bodies).returned.swap_remove(1)
}

#[test]
fn a_promise_is_kept_at_the_moment_at_which_its_blocks_come_to_life() {
    const BLOCKS: u64 = 40;
    for seed in 0..SCHEDULES {
        let extents = extents();
        write(&extents, 1, 2 * BLOCKS);
        let before = offered(&extents);
        let after = before - 2 * BLOCKS as i64;
        let seen = seen_while(seed, &extents, || {
            let mut tx = Tx::new();
            let range = (0, BLOCKS);
            let (lock, until) = extents.preallocate(&mut tx, Object(2), range, 64, None).unwrap();
            assert_eq!(until, BLOCKS);
            extents.store.commit(tx).unwrap();
            drop(lock);
            write(&extents, 3, BLOCKS);
            // What lived is kept, what was kept is written: as much as before.
            let mut tx = Tx::new();
            let (lock, _) =
                extents.preallocate(&mut tx, Object(1), range, 64, Some(FileClass::default())).unwrap();
            extents.store.commit(tx).unwrap();
            drop(lock);
        });
        let steps = [before, before - BLOCKS as i64, after];
        assert!(seen.iter().all(|seen| steps.contains(seen)), "seed {seed}: {steps:?}: {seen:?}");
        assert!(seen.is_sorted_by(|a, b| a >= b), "seed {seed}: {seen:?}");
        assert_eq!(offered(&extents), after);
    }
}

#[test]
fn what_is_moved_is_counted_once() {
    let mut moved = 0;
    for seed in 0..SCHEDULES {
        let extents = extents();
        // Half of what is in each zone dies.
        (1..=30).for_each(|object| write(&extents, object, 40));
        (2..=30).step_by(2).for_each(|object| write(&extents, object, 40));
        let before = offered(&extents);
        let seen = seen_while(seed, &extents, || {
            for _ in 0..3 {
                extents.evacuate(&mut extents.gc.lock()).unwrap();
                extents.store.reclaim(true).unwrap();
            }
        });
        let streams = extents.streams();
        let count = |of: fn(&crate::StreamStats) -> u64| streams.iter().map(of).sum::<u64>();
        assert_eq!(count(|stream| stream.moved), extents.gc_stats().blocks_moved, "seed {seed}");
        assert_eq!(count(|stream| stream.written), 45 * 40, "seed {seed}");
        moved += extents.gc_stats().blocks_moved;
        assert!(seen.iter().all(|&seen| seen == before), "seed {seed}: {before}: {seen:?}");
    }
    assert!(moved > 0, "there was something to move");
}

#[test]
fn who_asks_for_too_much_keeps_nobody_from_what_there_is() {
    for seed in 0..SCHEDULES {
        let extents = extents();
        let most = offered(&extents);
        let ask = |blocks: i64, fits: bool| {
            let extents = &extents;
            let body = move || {
                for _ in 0..30 {
                    assert_eq!(
                        extents.reserve(blocks as u64).is_ok(),
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

/// What is lent of the slack is left out of what is offered, and no more than that: were more lent, what writers put beside
/// what they write over would take the zones that garbage collection works with.
#[test]
fn no_more_is_lent_at_once_than_the_slack() {
    for seed in 0..SCHEDULES {
        let extents = extents();
        let slack = extents.shape().slack();
        let blocks = slack - slack / 4;
        (1..=3).for_each(|object| write(&extents, object, blocks));
        let _all = extents.reserve(offered(&extents) as u64).unwrap();
        assert!(extents.reserve(1).is_err(), "nothing is left");
        let write_over = |object: u64| {
            let extents = &extents;
            let body = move || {
                for _ in 0..5 {
                    let _lent = extents.reserve_over(Object(object), 0, blocks).unwrap();
                    for _ in 0..9 {
                        let lent = *extents.promises.overdrawn.lock();
                        assert!((blocks..=slack).contains(&(lent as u64)), "seed {seed}: {lent} of {slack}");
                    }
                }
            };
            (format!("{object}"), Box::new(body) as Box<dyn FnOnce() + Send>)
        };
        schedule::run(seed, (1..=3).map(write_over).collect());
        assert_eq!(*extents.promises.overdrawn.lock(), 0, "seed {seed}: writers return all slack");
    }
}
