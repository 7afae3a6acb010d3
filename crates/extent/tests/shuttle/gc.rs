//! GC beside writers and readers: each read returns the newest block of its object. The checkers find nothing
//! afterwards, nor after a power loss at any moment.

use std::sync::Arc;

use emulated::{CommandKind, Emulated, Spec};
use polder_extent::Lifetime;

use crate::objects::{Snapshot, Volume, Written};
use crate::{Seen, cut, explore, prepared, rng, spawn};

const OBJECTS: u64 = 2;
/// Blocks of each object: together two thirds of the available space.
pub(crate) const BLOCKS: u64 = 200;

pub(crate) fn objects(volume: &Volume) -> Vec<Arc<Written>> {
    (1..=OBJECTS).map(|object| Written::found(volume, object, Lifetime::Unknown, BLOCKS)).collect()
}

/// A volume in which many blocks have been overwritten, so that zones are half dead.
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

/// The durable states of a writer, each with the number of device commands when it was durable.
type Durable = Vec<(u64, Snapshot)>;

fn sync_and_note(volume: &Volume, object: &Written, durable: &mut Durable) {
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
            sync_and_note(volume, object, &mut durable);
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

/// Runs GC until victims are reclaimed, and resets them.
fn collect(volume: &Volume) {
    while volume.extents.collector().manual_gc().unwrap()
        && volume.extents.collector().stats().zones_reclaimed == 0
    {}
    volume.extents.collector().manual_gc().unwrap();
}

/// Runs all threads at once. Returns the durable states of each writer.
fn work(volume: &Arc<Volume>, objects: &[Arc<Written>]) -> Vec<Durable> {
    let start = |object: &Arc<Written>| {
        let (volume, object) = (Arc::clone(volume), Arc::clone(object));
        spawn("writer", move || write(&volume, &object))
    };
    let writers: Vec<_> = objects.iter().map(start).collect();
    let (readable, all) = (Arc::clone(volume), objects.to_vec());
    let reader = spawn("reader", move || read(&readable, &all));
    let of_gc = Arc::clone(volume);
    let gc = spawn("collector", move || collect(&of_gc));
    let durable = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    reader.join().unwrap();
    gc.join().unwrap();
    durable
}

/// Checks an image after a power loss after this number of commands.
fn judge(found: &Arc<Emulated>, at: u64, objects: &[Arc<Written>], durable: &[Durable]) {
    let volume = Volume::open(found);
    for (object, durable) in objects.iter().zip(durable) {
        let (_, snapshot) = durable.iter().rfind(|(commands, _)| *commands <= at).unwrap();
        object.verify(&volume, snapshot);
    }
    volume.check();
}

#[test]
fn reads_return_no_moved_or_reset_blocks() {
    let (moved, reset) = (Seen::default(), Seen::default());
    let counted = (moved.clone(), reset.clone());
    explore("gc::reads_return_no_moved_or_reset_blocks", 450, aged(), move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects = objects(&volume);
        let durable = work(&volume, &objects);
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
        counted.0.add(volume.extents.collector().stats().blocks_moved);
        counted.1.add(device.counters().of(CommandKind::Reset));
        let (at, found) = cut(&device, &mut rng());
        judge(&found, at, &objects, &durable);
    });
    moved.report("blocks moved");
    reset.report("zones reset");
}

/// Objects that are overwritten as a whole: zones die as fast as they are filled.
const SMALL: u64 = 12;

/// Writes, and resets zones without live blocks. No other thread resets zones: it would have to wait for the writers,
/// and the scheduler runs waiting threads last.
fn overwrite(volume: &Volume, object: &Written, times: u32) -> Durable {
    let (mut rng, mut durable) = (rng(), vec![(0, object.returned())]);
    for _ in 0..times {
        object.write(volume, 0, SMALL);
        if rng.bool() {
            sync_and_note(volume, object, &mut durable);
        }
        volume.store.reclaim(rng.bool()).unwrap();
    }
    durable
}

/// Returns the durable states of each writer.
fn write_and_read(volume: &Arc<Volume>, objects: &[Arc<Written>]) -> Vec<Durable> {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (object, times) in objects.iter().zip([1, 24]) {
        let (written, read) = (Arc::clone(object), Arc::clone(object));
        let (of_writer, of_reader) = (Arc::clone(volume), Arc::clone(volume));
        writers.push(spawn("writer", move || overwrite(&of_writer, &written, times)));
        readers.push(spawn("reader", move || (0..8).for_each(|_| read.read(&of_reader, 0, SMALL))));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
}

#[test]
fn no_thread_uses_a_zone_that_is_reset() {
    let resets = Seen::default();
    let counted = resets.clone();
    // There are so few zones that only one is open at a time, and all threads share it.
    let spec = Spec::new(4096, 18, 64).limits(6, 6);
    let device = prepared(spec, 2, |device| Volume::open(device).store.close().unwrap());
    explore("gc::no_thread_uses_a_zone_that_is_reset", 1200, device, move |device| {
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
