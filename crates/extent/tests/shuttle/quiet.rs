//! What is moved while nobody writes, beside those who begin to: what was written last is there afterwards, and the
//! checkers find nothing.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Step;
use zone::Role;

use crate::collection::{BLOCKS, objects};
use crate::objects::{Volume, Written};
use crate::{Seen, explore, prepared, rng, spawn};

/// A volume in which the next zone for data has to be won.
fn short_of_zones() -> Arc<Emulated> {
    prepared(Spec::tiny(), 2, |device| {
        let volume = Volume::open(device);
        let (objects, mut rng, zones) = (objects(&volume), rng(), volume.store.pool());
        for at in (0..BLOCKS).step_by(8) {
            objects.iter().for_each(|object| object.write(&volume, at, 8));
        }
        while zones.free_soon() > zones.reserved_from(Role::Data) {
            objects.iter().for_each(|object| object.write(&volume, rng.u64(0..BLOCKS - 2), 2));
        }
        volume.store.close().unwrap();
    })
}

fn write(volume: &Volume, object: &Written) {
    let mut rng = rng();
    for _ in 0..3 {
        let count = rng.u64(1..8);
        object.write(volume, rng.u64(0..BLOCKS - count), count);
    }
}

/// Steps of the background as long as there is something to do, or is in a moment if nobody writes; how many of those
/// moments something was moved after.
fn work(volume: &Volume) -> u64 {
    let (mut looked, mut moved) = (false, 0);
    loop {
        match volume.extents.step_space().unwrap() {
            Step::Worked => moved += u64::from(std::mem::take(&mut looked)),
            Step::Idle if volume.extents.waits_for_quiet() => looked = true,
            Step::Idle => return moved,
        }
    }
}

#[test]
fn nobody_misses_what_is_moved_ahead() {
    let moved = Seen::default();
    let counted = moved.clone();
    explore("quiet::nobody_misses_what_is_moved_ahead", 450, short_of_zones(), move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects = objects(&volume);
        let start = |object: &Arc<Written>| {
            let (volume, object) = (Arc::clone(&volume), Arc::clone(object));
            spawn("writer", move || write(&volume, &object))
        };
        let writers: Vec<_> = objects.iter().map(start).collect();
        let theirs = Arc::clone(&volume);
        let background = spawn("background", move || work(&theirs));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        counted.add(background.join().unwrap());
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
    });
    moved.report("times that something was moved when nobody had written for a moment");
}
