//! Two processes want to own the volume.

use std::sync::{Arc, Mutex};

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

/// Another process takes over, works for `flushes` flushes, and stays the owner, or ends.
fn take_over(world: &World, seed: u64, flushes: u64, stays: bool) -> Other {
    let clock = clock();
    let process = world.process(Plan { seed, ..Plan::default() });
    let mut owner = Owner::open(&process, &clock, 50, seed).expect("it takes over");
    let found = Some(owner.contents.clone());
    for round in 0..flushes {
        let zone = ZoneId((seed + round) as u32 % 12);
        assert!(owner.reset(zone) && owner.append(zone) && owner.flush());
        owner.clock.advance(2 * GRACE_NS);
        while owner.device.discard_one_zone() {}
    }
    owner.verify();
    let left = Some(owner.contents.clone());
    let owner = stays.then_some(owner).or_else(|| None);
    Other { found, left, owner }
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
                // Enough flushes that bundles are deleted, and their names are free again.
                for flushes in [0, 1, 20] {
                    let world = before.copied();
                    let other = Arc::new(Mutex::new(Other::default()));
                    let meanwhile = {
                        let (world, other) = (world.clone(), Arc::clone(&other));
                        Box::new(move || {
                            *other.lock().unwrap() = take_over(&world, request, flushes, request % 2 == 0);
                        })
                    };
                    let plan = Plan { seed, meanwhile: Some((request, at, meanwhile)), ..Plan::default() };
                    let process = world.process(plan);
                    situations += 1;
                    match Owner::open(&process, &clock(), 2, seed) {
                        Ok(owner) => refused += u64::from(continue_first(owner, &other, &initial)),
                        Err(_) => lost_opening += 1,
                    }
                    let other = std::mem::take(&mut *other.lock().unwrap());
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
    let at_open = owner.contents.clone();
    for _ in 0..30 {
        let was_taken = other.lock().unwrap().found.is_some();
        let before = owner.durable.clone();
        if !owner.step() {
            let other = other.lock().unwrap();
            let found = other.found.as_ref().expect("only another owner makes it fail");
            let is_known = *found == owner.durable || Some(found) == owner.maybe.as_ref();
            assert!(is_known, "the other one found {found:?}\nnot {:?}\nor {:?}", owner.durable, owner.maybe);
            drop(other);
            assert!(!owner.flush() || owner.contents == owner.durable);
            owner.process.end();
            return true;
        }
        let other = other.lock().unwrap();
        if let (false, Some(found)) = (was_taken, &other.found) {
            // It was replaced in this step, and the step succeeded. What it acknowledged is what the other one found.
            let is_late_owner = other.left.as_ref() == Some(&at_open);
            assert!(is_late_owner || *found == owner.durable || *found == before, "{found:?} of {initial:?}");
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
