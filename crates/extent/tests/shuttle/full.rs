//! A full volume: several writers at once can overwrite allocated blocks, though each has to free a zone first, and a
//! writer that finds no space waits for blocks that another returns. No writer waits forever, and no writer gets
//! ENOSPC.

use std::sync::Arc;

use emulated::{CommandKind, Emulated, Spec};
use polder_extent::Lifetime;

use crate::objects::{BLOCK, Volume, Written};
use crate::{Seen, explore, prepared, rng, spawn};

const WRITERS: u64 = 3;

/// An object for each writer. Together they take all available space.
fn objects(volume: &Volume, blocks: u64) -> Vec<Arc<Written>> {
    (1..=WRITERS).map(|number| Written::found(volume, number, Lifetime::Unknown, blocks)).collect()
}

/// The blocks of each object.
fn share(volume: &Volume) -> u64 {
    volume.extents.budget().space().available / BLOCK as u64 / WRITERS
}

/// A full volume, and the blocks of each of its objects.
fn full() -> (Arc<Emulated>, u64) {
    let blocks = Seen::default();
    let noted = blocks.clone();
    let device = prepared(Spec::tiny(), 2, move |device| {
        let volume = Volume::open(device);
        let blocks = share(&volume);
        for object in objects(&volume, blocks) {
            (0..blocks).step_by(16).for_each(|at| object.write(&volume, at, 16.min(blocks - at)));
        }
        assert_eq!(share(&volume), 0, "nothing is available");
        volume.store.close().unwrap();
        noted.add(blocks);
    });
    (device, blocks.count())
}

fn write(volume: &Volume, object: &Written) {
    let mut rng = rng();
    for _ in 0..16 {
        let count = rng.u64(1..16);
        object.write(volume, rng.u64(0..object.blocks() - count), count);
    }
}

#[test]
fn allocated_blocks_can_be_overwritten() {
    let (moved, reset) = (Seen::default(), Seen::default());
    let counted = (moved.clone(), reset.clone());
    let (device, blocks) = full();
    explore("full::allocated_blocks_can_be_overwritten", 300, device, move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects = objects(&volume, blocks);
        let start = |object: &Arc<Written>| {
            let (volume, object) = (Arc::clone(&volume), Arc::clone(object));
            spawn("writer", move || write(&volume, &object))
        };
        let mut threads: Vec<_> = objects.iter().map(start).collect();
        let of_keeper = Arc::clone(&volume);
        threads.push(spawn("keeper", move || (0..3).for_each(|_| _ = of_keeper.extents.step().unwrap())));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
        counted.0.add(volume.extents.collector().stats().blocks_moved);
        counted.1.add(device.counters().of(CommandKind::Reset));
    });
    moved.report("blocks moved");
    reset.report("zones reset");
}
