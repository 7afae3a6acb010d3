//! A process ends at any request, and a later one finds what was durable.

use std::sync::Arc;

use fastrand::Rng;
use rt::{ManualClock, Timestamp};

use zone::{Device, ZoneId};

use crate::model::{Contents, GRACE_NS, Owner, make};
use crate::simulated::{At, Plan, World};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(0)))
}

/// How many programs are tried. More with `POLDER_OBJECT_ROUNDS`.
pub(crate) fn rounds(usual: u64) -> u64 {
    let times = std::env::var("POLDER_OBJECT_ROUNDS").ok().and_then(|text| text.parse().ok());
    usual * times.unwrap_or(1)
}

/// Fails unless the volume has one of these contents. Then works with it, and opens it again.
pub(crate) fn must_have(world: &World, durable: &Contents, maybe: Option<&Contents>, number: u32, seed: u64) {
    let clock = clock();
    let mut rng = Rng::with_seed(seed);
    world.execute_late(&mut rng);
    let process = world.process(Plan { seed, ..Plan::default() });
    let mut owner = Owner::open(&process, &clock, number, seed).expect("the volume can be opened");
    assert!(
        owner.contents == *durable || Some(&owner.contents) == maybe,
        "found {:?}\ndurable {durable:?}\nperhaps {maybe:?}",
        owner.contents
    );
    for step in 0..12 {
        assert!(owner.step(), "nothing fails now");
        if step % 4 == 0 {
            world.execute_late(&mut rng);
        }
    }
    owner.verify();
    assert!(owner.flush());
    let (durable, maybe) = owner.kill();
    assert_eq!(maybe, None);
    world.execute_late(&mut rng);
    let again = Owner::open(&world.process(Plan::default()), &clock, number + 1, seed).unwrap();
    assert_eq!(again.contents, durable);
}

/// The program of one owner: as many steps as it does before it fails.
fn work(owner: &mut Owner, steps: u64) {
    for _ in 0..steps {
        if !owner.step() || owner.process.is_ended() {
            return;
        }
    }
}

#[test]
fn a_process_may_end_at_any_request() {
    let (mut cuts, mut both) = (0, 0);
    for seed in 0..rounds(12) {
        let before = World::default();
        make(&before);
        let mut first = Owner::open(&before.process(Plan::default()), &clock(), 1, seed).unwrap();
        work(&mut first, 40);
        assert!(first.flush());
        let (durable, _) = first.kill();
        let requests = {
            let world = before.copied();
            let mut owner =
                Owner::open(&world.process(Plan { seed, ..Plan::default() }), &clock(), 2, seed + 1000)
                    .unwrap();
            work(&mut owner, 60);
            owner.process.requests()
        };
        for request in 1..=requests {
            for at in [At::Before, At::After, At::Late] {
                let world = before.copied();
                let process = world.process(Plan { seed, end: Some((request, at)), ..Plan::default() });
                let (durable, maybe) = match Owner::open(&process, &clock(), 2, seed + 1000) {
                    Ok(mut owner) => {
                        work(&mut owner, 60);
                        owner.kill()
                    }
                    Err(_) => (durable.clone(), None),
                };
                both += u64::from(maybe.is_some());
                must_have(&world, &durable, maybe.as_ref(), 3, request * 3 + at as u64);
                cuts += 1;
            }
        }
    }
    println!("{cuts} ends, {both} of them during a flush");
    assert!(cuts > 1000 && both > 100);
}

/// Parts of one life are deleted, while the reset that ends the next life is not durable yet.
#[test]
fn parts_are_deleted_up_to_the_life_that_is_durable() {
    let world = World::default();
    make(&world);
    let mut owner = Owner::open(&world.process(Plan::default()), &clock(), 1, 1).unwrap();
    let fill = |owner: &mut Owner| (0..4).all(|_| owner.append(ZoneId(2)));
    assert!(fill(&mut owner) && owner.flush() && owner.reset(ZoneId(2)) && owner.flush());
    assert!(fill(&mut owner) && owner.flush());
    let durable = owner.contents.clone();
    assert!(owner.reset(ZoneId(2)));
    owner.clock.advance(2 * GRACE_NS);
    while owner.device.discard_one_zone() {}
    owner.kill();
    must_have(&world, &durable, None, 2, 1);
}

#[test]
fn replies_are_lost_and_requests_fail() {
    let (mut failures, mut runs) = (0, 0);
    for seed in 0..rounds(400) {
        let world = World::default();
        make(&world);
        let plan = Plan { seed, fault_each: Some(1 + seed as u32 % 12), ..Plan::default() };
        let mut rng = Rng::with_seed(seed);
        let (mut durable, mut maybe) = (Contents::new(), None);
        let process = world.process(plan);
        if let Ok(mut owner) = Owner::open(&process, &clock(), 1, seed) {
            for _ in 0..60 {
                world.execute_late(&mut rng);
                if !owner.step() {
                    failures += 1;
                    let before = owner.durable.clone();
                    assert!(!owner.flush() || owner.contents == before, "nothing is acknowledged any more");
                    break;
                }
            }
            (durable, maybe) = owner.kill();
        }
        must_have(&world, &durable, maybe.as_ref(), 2, seed);
        runs += 1;
    }
    println!("{runs} runs, {failures} failed");
    assert!(failures > runs / 8 && failures < runs);
}
