//! Every single command that fails: a short history of writes, removals, garbage collection and mounts
//! in which the first, the second, the third … reset, finish, open or read fails.
//!
//! The user is told in a typed error or not at all; the next mount is sound, and every object that was
//! acknowledged holds what was acknowledged.

use super::*;
use emulated::{CommandKind, CrashPlan, Effect, Fault};
use polder_extent::ExtentError;

/// Objects that are written over all the time, and one that is only read.
const OBJECTS: u64 = 6;
const KEPT: u64 = 9;
const BLOCKS: usize = 24;

/// What a run came to.
struct Ran {
    /// What was done is what is there, as far as it was not refused.
    model: Model,
    /// Objects of which a change was refused or not acknowledged.
    unsure: Vec<u64>,
    error: Option<ExtentError>,
    /// Blocks that garbage collection has moved.
    moved: u64,
}

fn try_open(device: &Arc<Emulated>) -> Result<Volume> {
    let as_device: Arc<dyn Device> = device.clone();
    let mut recovering = Recovering::new(as_device.clone());
    let config = Config { cache_bytes: 8 << 20, read_only: false, accept_loss: false };
    let (store, recovery) = Store::open(as_device, &config, &mut recovering)?;
    let store = Arc::new(store);
    let extents = Extents::open(Arc::clone(&store), recovering)?;
    Ok(Volume { device: Arc::clone(device), store, extents, recovered: recovery.last })
}

/// Mounts, writes, collects and mounts again, until something is refused.
fn run(device: &Arc<Emulated>, base: &Model) -> Ran {
    let mut ran = Ran { model: base.clone(), unsure: Vec::new(), error: None, moved: 0 };
    let mut rng = Rng::with_seed(6);
    for closes in [false, true] {
        if let Err(error) = mounted(device, &mut rng, &mut ran, closes) {
            ran.error = Some(error);
            break;
        }
    }
    ran
}

fn mounted(device: &Arc<Emulated>, rng: &mut Rng, ran: &mut Ran, closes: bool) -> Result<()> {
    let volume = try_open(device)?;
    let size = volume.block_size() as usize;
    for round in 0..100 {
        let object = 1 + rng.u64(0..OBJECTS);
        ran.unsure.push(object);
        let from = rng.usize(0..BLOCKS) * size;
        // What is read at an unaligned edge is part of the work.
        let (offset, length) = if round % 4 == 0 { (from + 7, 5 * size) } else { (from, 20 * size) };
        let data = noise(rng, length);
        write(&volume, &mut ran.model, object, offset, &data)?;
        match round % 8 {
            1 => drop(volume.extents.step()?),
            3 => drop(volume.store.step()?),
            5 => volume.store.checkpoint()?,
            7 => {
                volume.store.sync(volume.store.last_lsn())?;
                ran.unsure.clear();
                volume.store.reclaim(true)?;
            }
            _ => {}
        }
        if round % 10 == 9 {
            volume.extents.read(Object(KEPT), 0, &mut vec![0; size])?;
        }
    }
    ran.moved += volume.extents.gc_stats().blocks_moved;
    if closes {
        volume.store.close()?;
    } else {
        volume.store.sync(volume.store.last_lsn())?;
    }
    ran.unsure.clear();
    Ok(())
}

/// A volume that is nearly full of what is mostly dead, to be copied for each run.
fn base() -> (Arc<Emulated>, Model) {
    let volume = Volume::new(Spec::tiny());
    let (mut model, mut rng) = (Model::new(), Rng::with_seed(1));
    let size = volume.block_size() as usize;
    write(&volume, &mut model, KEPT, 0, &noise(&mut rng, 3 * size)).unwrap();
    for round in 0..30 {
        let data = noise(&mut rng, BLOCKS * size);
        write(&volume, &mut model, 1 + round % OBJECTS, 0, &data).unwrap();
    }
    volume.verify(&model);
    volume.store.close().unwrap();
    volume.device.record();
    (Arc::clone(&volume.device), model)
}

/// Runs with the `nth` command failing; whether there was one.
fn with_fault(base: &(Arc<Emulated>, Model), kind: CommandKind, effect: Effect, nth: u64) -> (bool, Ran) {
    let told = format!("{kind:?} {nth}, {effect:?}");
    let device = Arc::new(base.0.image_at(0, &CrashPlan::KeepAll));
    device.inject(Fault::nth(kind, nth, effect));
    let ran = run(&device, &base.1);
    let struck = device.counters().of(kind) >= nth;
    device.clear_faults();
    let volume = try_open(&device).unwrap_or_else(|error| panic!("{told}: {error}"));
    for (&object, bytes) in ran.model.iter().filter(|(object, _)| !ran.unsure.contains(object)) {
        let mut found = vec![0xee; bytes.len()];
        let read = volume.extents.read(Object(object), 0, &mut found);
        read.unwrap_or_else(|error| panic!("{told}: object {object}: {error}"));
        assert!(found == *bytes, "{told}: object {object} holds what was acknowledged");
    }
    assert_eq!(volume.extents.check().unwrap(), vec![], "{told}");
    assert_eq!(volume.store.check(&mut |_, _, _, _| {}).unwrap(), vec![], "{told}");
    let again = volume.write(77, 0, &[7; 4096], 0).unwrap_or_else(|error| panic!("{told}: {error}"));
    volume.store.sync(again).unwrap_or_else(|error| panic!("{told}: {error}"));
    volume.store.close().unwrap_or_else(|error| panic!("{told}: {error}"));
    (struck, ran)
}

/// Until there is no such command left; how many failed, and what the user was told.
fn every(kind: CommandKind, effect: Effect) -> (u64, Vec<ExtentError>) {
    let (base, mut seen) = (base(), Vec::new());
    for nth in 1.. {
        let (struck, ran) = with_fault(&base, kind, effect, nth);
        if !struck {
            assert!(ran.error.is_none(), "nothing failed: {:?}", ran.error);
            assert!(ran.moved > 0, "garbage was collected");
            println!("{kind:?} {effect:?}: {} failed, {} were seen", nth - 1, seen.len());
            return (nth - 1, seen);
        }
        seen.extend(ran.error);
    }
    unreachable!("a run ends");
}

#[test]
fn resets_that_fail_are_nobodys_business() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (failed, seen) = every(CommandKind::Reset, effect);
        assert!(failed > 5 && seen.is_empty(), "{failed} failed: {seen:?}");
    }
}

#[test]
fn finishes_that_fail_are_nobodys_business() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (failed, seen) = every(CommandKind::Finish, effect);
        assert!(failed > 2 && seen.is_empty(), "{failed} failed: {seen:?}");
    }
}

#[test]
fn reads_that_fail_once_lose_no_more_than_they_say() {
    let (failed, seen) = every(CommandKind::Read, Effect::Error);
    assert!(failed > 20 && !seen.is_empty(), "{failed} failed: {seen:?}");
}

#[test]
fn no_command_opens_a_zone_but_an_append() {
    assert_eq!(every(CommandKind::Open, Effect::Error).0, 0, "an open has no place in what may fail");
}
