//! Two processes want to own the volume.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::{ManualClock, Timestamp};
use zone::{Device, ZoneId};

use crate::crashes::{must_have, rounds};
use crate::model::{Contents, GRACE_NS, Owner, make};
use crate::simulated::{At, Plan, World};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(0)))
}

/// What the other process found and left.
#[derive(Default)]
struct Other {
    found: Option<Contents>,
    left: Option<Contents>,
    owner: Option<Owner>,
}

/// Another process takes over, and works for `flushes` flushes. If these are many, a third one takes over from it, and
/// does the same. The last one stays the owner, or closes the volume.
fn take_over(world: &World, seed: u64, flushes: u64, stays: bool) -> Other {
    let clock = clock();
    let process = world.process(Plan { seed, ..Plan::default() });
    let mut owner = Owner::open(&process, &clock, 50, seed).expect("it takes over");
    let found = Some(owner.contents.clone());
    // The second one deletes what the first one has left, if that had no time to do so.
    assert!(work(&mut owner, seed, if seed.is_multiple_of(3) { flushes.min(1) } else { flushes }));
    if flushes >= MANY {
        owner.process.end();
        owner = Owner::open(&world.process(Plan { seed, ..Plan::default() }), &clock, 51, seed)
            .expect("so does this");
        assert!(work(&mut owner, seed, flushes));
    }
    let left = Some(owner.contents.clone());
    Other { found, left, owner: stays.then_some(owner) }
}

/// Enough flushes that bundles are deleted, and their names are free again.
const MANY: u64 = 20;

/// Writes, and deletes objects that are not needed any more. Returns whether the writes succeeded.
fn work(owner: &mut Owner, seed: u64, flushes: u64) -> bool {
    for round in 0..flushes {
        let zone = ZoneId((seed + round) as u32 % 12);
        if !(owner.reset(zone) && owner.append(zone) && owner.flush()) {
            return false;
        }
        owner.clock.advance(2 * GRACE_NS);
        while owner.device.discard_one_zone() {}
    }
    owner.verify();
    true
}

/// A process wants to own the volume, and stands still at each of its requests, while the owner works on. It must not
/// take a name for free that was deleted.
#[test]
fn a_process_that_opens_slowly_has_what_the_owner_wrote_meanwhile() {
    let (mut situations, mut opened) = (0, 0);
    for seed in 0..rounds(4) {
        for request in 1.. {
            let world = World::default();
            make(&world);
            let process = world.process(Plan { seed, ..Plan::default() });
            let mut owner = Owner::open(&process, &clock(), 1, seed).unwrap();
            assert!(work(&mut owner, seed, 3));
            let owner = Arc::new(Mutex::new(owner));
            let meanwhile = {
                let owner = Arc::clone(&owner);
                Box::new(move || {
                    work(&mut owner.lock(), seed, MANY);
                })
            };
            let at = if request % 2 == 0 { At::Before } else { At::After };
            let plan = Plan { seed, meanwhile: Some((request / 2, at, meanwhile)), ..Plan::default() };
            let candidate = world.process(plan);
            let result = Owner::open(&candidate, &clock(), 2, seed);
            let mut owner = owner.lock();
            if let Ok(candidate) = result {
                opened += 1;
                assert_eq!(candidate.contents, owner.durable);
                let is_changed = (0..12).all(|zone| owner.reset(ZoneId(zone))) && owner.append(ZoneId(0));
                assert!(!is_changed || !owner.flush(), "there are two owners");
                let (durable, _) = candidate.kill();
                owner.process.end();
                must_have(&world, &durable, None, 60, seed);
            } else {
                owner.process.end();
            }
            situations += 1;
            if candidate.requests() < request / 2 {
                break;
            }
        }
    }
    println!("{situations} situations, {opened} openings");
    assert!(situations > 50 && opened > 20);
}

/// At each request of the first process, another one takes over; then the first one continues.
#[test]
fn a_process_that_continues_after_another_has_taken_over_acknowledges_nothing() {
    let (mut situations, mut refused, mut lost_opening) = (0, 0, 0);
    for seed in 0..rounds(3) {
        let before = World::default();
        make(&before);
        let mut first = Owner::open(&before.process(Plan::default()), &clock(), 1, seed).unwrap();
        (0..30).for_each(|_| assert!(first.step()));
        assert!(first.flush());
        let (initial, _) = first.kill();
        let requests = {
            let world = before.copied();
            let mut owner =
                Owner::open(&world.process(Plan { seed, ..Plan::default() }), &clock(), 2, seed).unwrap();
            (0..30).for_each(|_| assert!(owner.step()));
            owner.process.requests()
        };
        for request in 1..=requests {
            for at in [At::Before, At::After] {
                for flushes in [0, 1, MANY] {
                    let world = before.copied();
                    let other = Arc::new(Mutex::new(Other::default()));
                    let meanwhile = {
                        let (world, other) = (world.clone(), Arc::clone(&other));
                        Box::new(move || {
                            *other.lock() = take_over(&world, request, flushes, request % 2 == 0);
                        })
                    };
                    let plan = Plan { seed, meanwhile: Some((request, at, meanwhile)), ..Plan::default() };
                    let process = world.process(plan);
                    situations += 1;
                    match Owner::open(&process, &clock(), 2, seed) {
                        Ok(owner) => refused += u64::from(continue_first(owner, &other, &initial)),
                        Err(_) => lost_opening += 1,
                    }
                    let other = std::mem::take(&mut *other.lock());
                    finish_other(&world, other, &initial, request);
                }
            }
        }
    }
    println!("{situations} situations, {refused} flushes refused, {lost_opening} openings lost");
    assert!(situations > 500 && refused > 100 && lost_opening > 5);
}

/// The first process works on. Returns whether a flush was refused.
fn continue_first(mut owner: Owner, other: &Mutex<Other>, initial: &Contents) -> bool {
    for _ in 0..30 {
        let was_taken = other.lock().found.is_some();
        let succeeded = owner.step();
        let found = other.lock().found.clone();
        if !succeeded {
            let found = found.expect("only another owner makes it fail");
            let is_known = found == owner.durable || Some(&found) == owner.maybe.as_ref();
            assert!(is_known, "the other one found {found:?}\nnot {:?}\nor {:?}", owner.durable, owner.maybe);
            let before = owner.durable.clone();
            assert!(!owner.flush() || owner.contents == before);
            owner.process.end();
            return true;
        }
        if let (false, Some(found)) = (was_taken, found) {
            // It was replaced in this step, which succeeded. The other one knows what this one has acknowledged.
            assert_eq!(found, owner.durable, "it began with {initial:?}");
            let is_changed = (0..12).all(|zone| owner.reset(ZoneId(zone))) && owner.append(ZoneId(0));
            assert!(!is_changed || !owner.flush(), "it has acknowledged what the other one does not know");
            owner.process.end();
            return true;
        }
    }
    // It has become the owner after the other one, or had nothing to flush.
    owner.process.end();
    false
}

/// The other process works on, if it is still there, and the volume has what it left.
fn finish_other(world: &World, other: Other, initial: &Contents, seed: u64) {
    let Some(left) = other.left else {
        return;
    };
    let Some(mut owner) = other.owner else {
        // It has closed the volume, so the first process may have become the owner since.
        let process = world.process(Plan::default());
        let now = Owner::open(&process, &clock(), 60, seed).expect("the volume can be opened");
        now.process.end();
        return;
    };
    assert!(other.found.is_some() && initial.0.len() == left.0.len());
    let emptied = (0..12).all(|zone| owner.reset(ZoneId(zone)));
    match emptied && owner.append(ZoneId(3)) && owner.flush() {
        true => {
            let (durable, maybe) = owner.kill();
            must_have(world, &durable, maybe.as_ref(), 60, seed);
        }
        // The first process became the owner after it.
        false => owner.process.end(),
    }
}
