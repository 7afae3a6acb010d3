//! Garbage collection beside writers and readers: nobody reads what is not the object's newest, or not the object's at
//! all; and the checkers find nothing afterwards, nor after a loss of power at any moment of it.

use std::sync::Arc;

use emulated::{CommandKind, Emulated, Spec};
use polder_extent::Lifetime;

use crate::objects::{Snapshot, Volume, Written};
use crate::{Seen, cut, explore, prepared, rng, spawn};

const OBJECTS: u64 = 2;
/// Of each object: together two thirds of what there is for data.
pub(crate) const BLOCKS: u64 = 200;

pub(crate) fn objects(volume: &Volume) -> Vec<Arc<Written>> {
    (1..=OBJECTS).map(|object| Written::found(volume, object, Lifetime::Unknown, BLOCKS)).collect()
}

/// A volume in which many blocks have been written over, so that zones are half dead.
fn aged() -> Arc<Emulated> {
    prepared(Spec::tiny(), 2, |device| {
        let volume = Volume::open(device);
        let objects = objects(&volume);
        for at in (0..BLOCKS).step_by(8) {
            objects.iter().for_each(|object| object.write(&volume, at, 8));
        }
        let mut rng = rng();
        for _ in 0..40 {
            objects.iter().for_each(|object| object.write(&volume, rng.u64(0..BLOCKS - 2), 2));
        }
        volume.store.close().unwrap();
    })
}

/// What a writer made durable, and after how many commands of the device that was.
type Durable = Vec<(u64, Snapshot)>;

fn note_durable(volume: &Volume, object: &Written, durable: &mut Durable) {
    let snapshot = object.returned();
    volume.sync();
    durable.push((volume.device.commands(), snapshot));
}

fn write(volume: &Volume, object: &Written) -> Durable {
    let (mut rng, mut durable) = (rng(), vec![(0, object.returned())]);
    for round in 0..6 {
        let count = rng.u64(1..8);
        object.write(volume, rng.u64(0..BLOCKS - count), count);
        if round % 3 == 2 {
            note_durable(volume, object, &mut durable);
        }
    }
    durable
}

fn read(volume: &Volume, objects: &[Arc<Written>]) {
    let mut rng = rng();
    for _ in 0..10 {
        let (object, count) = (&objects[rng.usize(..objects.len())], rng.u64(1..24));
        object.read(volume, rng.u64(0..BLOCKS - count), count);
    }
}

/// Moves what lives in zones of garbage, and resets the zones: until some are empty, however many are emptied at once.
fn collect(volume: &Volume) {
    while volume.extents.compact().unwrap() && volume.extents.gc_stats().zones_evacuated == 0 {}
    volume.extents.compact().unwrap();
}

/// Everybody at once; what each writer made durable.
fn work(volume: &Arc<Volume>, objects: &[Arc<Written>]) -> Vec<Durable> {
    let start = |object: &Arc<Written>| {
        let (volume, object) = (Arc::clone(volume), Arc::clone(object));
        spawn("writer", move || write(&volume, &object))
    };
    let writers: Vec<_> = objects.iter().map(start).collect();
    let (readable, all) = (Arc::clone(volume), objects.to_vec());
    let reader = spawn("reader", move || read(&readable, &all));
    let collected = Arc::clone(volume);
    let collector = spawn("collector", move || collect(&collected));
    let durable = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    reader.join().unwrap();
    collector.join().unwrap();
    durable
}

/// The power was lost after so many commands, and this was found.
fn judge(found: &Arc<Emulated>, at: u64, objects: &[Arc<Written>], durable: &[Durable]) {
    let volume = Volume::open(found);
    for (object, durable) in objects.iter().zip(durable) {
        let (_, snapshot) = durable.iter().rfind(|(commands, _)| *commands <= at).unwrap();
        object.verify(&volume, snapshot);
    }
    volume.check();
}

#[test]
fn nobody_reads_what_was_moved_or_reset() {
    let (moved, reset) = (Seen::default(), Seen::default());
    let counted = (moved.clone(), reset.clone());
    explore("collection::nobody_reads_what_was_moved_or_reset", 450, aged(), move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects = objects(&volume);
        let durable = work(&volume, &objects);
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
        counted.0.add(volume.extents.gc_stats().blocks_moved);
        counted.1.add(device.counters().of(CommandKind::Reset));
        let (at, found) = cut(&device, &mut rng());
        judge(&found, at, &objects, &durable);
    });
    moved.report("blocks moved");
    reset.report("zones reset");
}

/// Objects that are written over as a whole: zones die as fast as they are filled.
const SMALL: u64 = 12;

/// Writes, and resets zones in which nothing lives. Nobody else does: one who only resets would have to wait for the
/// others, and whoever waits goes last.
fn write_over(volume: &Volume, object: &Written, times: u32) -> Durable {
    let (mut rng, mut durable) = (rng(), vec![(0, object.returned())]);
    for _ in 0..times {
        object.write(volume, 0, SMALL);
        if rng.bool() {
            note_durable(volume, object, &mut durable);
        }
        volume.store.reclaim(rng.bool()).unwrap();
    }
    durable
}

/// What each writer made durable.
fn write_and_read(volume: &Arc<Volume>, objects: &[Arc<Written>]) -> Vec<Durable> {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (object, times) in objects.iter().zip([1, 24]) {
        let (written, read) = (Arc::clone(object), Arc::clone(object));
        let (ours, theirs) = (Arc::clone(volume), Arc::clone(volume));
        writers.push(spawn("writer", move || write_over(&ours, &written, times)));
        readers.push(spawn("reader", move || (0..8).for_each(|_| read.read(&theirs, 0, SMALL))));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
}

#[test]
fn nobody_uses_a_zone_that_is_reset() {
    let resets = Seen::default();
    let counted = resets.clone();
    // So few zones that one at a time is open, and everybody shares it.
    let spec = Spec::new(4096, 18, 64).limits(6, 6);
    let device = prepared(spec, 2, |device| Volume::open(device).store.close().unwrap());
    explore("collection::nobody_uses_a_zone_that_is_reset", 1200, device, move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects = [1, 2].map(|object| Written::found(&volume, object, Lifetime::Unknown, SMALL));
        let durable = write_and_read(&volume, &objects);
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
        counted.add(device.counters().of(CommandKind::Reset));
        let (at, found) = cut(&device, &mut rng());
        judge(&found, at, &objects, &durable);
    });
    resets.report("zones reset");
}
