//! Writers that wait for GC and do its work, beside the background task: the last writes are there afterwards, and the
//! checkers find nothing.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Step;
use zone::Role;

use crate::gc::{BLOCKS, objects};
use crate::objects::{Volume, Written};
use crate::{Seen, explore, prepared, rng, spawn};

/// A volume in which GC has to free the next zone for user writes.
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
        volume.extents.begin_write(count << 20, None).unwrap();
        object.write(volume, rng.u64(0..BLOCKS - count), count);
    }
}

/// The background task works until a writer has ended and there is nothing more to do. Returns the number of pieces.
fn work(volume: &Volume) -> u64 {
    let mut pieces = 0;
    while volume.extents.step_space().unwrap() == Step::Worked {
        pieces += 1;
    }
    pieces
}

#[test]
fn writers_that_do_gc_in_turn_lose_nothing() {
    let (by_task, by_writers) = (Seen::default(), Seen::default());
    let counted = (by_task.clone(), by_writers.clone());
    let name = "throttle::writers_that_do_gc_in_turn_lose_nothing";
    explore(name, 450, short_of_zones(), move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects = objects(&volume);
        let start = |object: &Arc<Written>| {
            let (volume, object) = (Arc::clone(&volume), Arc::clone(object));
            spawn("writer", move || write(&volume, &object))
        };
        let writers: Vec<_> = objects.iter().map(start).collect();
        let of_task = Arc::clone(&volume);
        let background = spawn("background", move || work(&of_task) + work(&of_task));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let pieces = background.join().unwrap();
        counted.0.add(pieces);
        counted.1.add(u64::from(volume.extents.collector().stats().blocks_moved > 0 && pieces == 0));
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
    });
    by_task.report("pieces of GC by the background task");
    by_writers.report("schedules in which only writers did GC");
}
