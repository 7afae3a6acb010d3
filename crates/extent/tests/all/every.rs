//! Failure of every single command: a short history of writes, removals, GC and mounts, in which the first, the second,
//! the third … reset, finish, open or read fails.
//!
//! The user gets a typed error or none. The next mount finds no damage, and every acknowledged object has its
//! acknowledged contents.

use super::*;
use emulated::{CommandKind, CrashPlan, Effect, Fault};
use polder_extent::ExtentError;

/// Objects that are overwritten all the time, and one that is only read.
const OBJECTS: u64 = 6;
const READ_ONLY_OBJECT: u64 = 9;
const BLOCKS: usize = 24;

/// The result of a run.
struct Ran {
    /// The contents after all operations that were not refused.
    model: Model,
    /// Objects with a change that was refused or not acknowledged.
    unsure: Vec<u64>,
    error: Option<ExtentError>,
    /// Blocks that GC has moved.
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

/// Mounts, writes, runs GC and mounts again, until an operation is refused.
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
        // Writes with unaligned ends read the blocks there.
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
            volume.extents.maps().read(Object(READ_ONLY_OBJECT), 0, &mut vec![0; size])?;
        }
    }
    ran.moved += volume.extents.collector().stats().blocks_moved;
    if closes {
        volume.store.close()?;
    } else {
        volume.store.sync(volume.store.last_lsn())?;
    }
    ran.unsure.clear();
    Ok(())
}

/// A volume that is nearly full of mostly dead blocks, to be copied for each run.
fn base() -> (Arc<Emulated>, Model) {
    let volume = Volume::new(Spec::tiny());
    let (mut model, mut rng) = (Model::new(), Rng::with_seed(1));
    let size = volume.block_size() as usize;
    write(&volume, &mut model, READ_ONLY_OBJECT, 0, &noise(&mut rng, 3 * size)).unwrap();
    for round in 0..30 {
        let data = noise(&mut rng, BLOCKS * size);
        write(&volume, &mut model, 1 + round % OBJECTS, 0, &data).unwrap();
    }
    volume.verify(&model);
    volume.store.close().unwrap();
    volume.device.record();
    (Arc::clone(&volume.device), model)
}

/// Runs with a failure of the `nth` command. Returns whether there was one.
fn with_fault(base: &(Arc<Emulated>, Model), kind: CommandKind, effect: Effect, nth: u64) -> (bool, Ran) {
    let name = format!("{kind:?} {nth}, {effect:?}");
    let device = Arc::new(base.0.image_at(0, &CrashPlan::KeepAll));
    device.inject(Fault::nth(kind, nth, effect));
    let ran = run(&device, &base.1);
    let has_failed = device.counters().of(kind) >= nth;
    device.clear_faults();
    let volume = try_open(&device).unwrap_or_else(|error| panic!("{name}: {error}"));
    for (&object, bytes) in ran.model.iter().filter(|(object, _)| !ran.unsure.contains(object)) {
        let mut found = vec![0xee; bytes.len()];
        let read = volume.extents.maps().read(Object(object), 0, &mut found);
        read.unwrap_or_else(|error| panic!("{name}: object {object}: {error}"));
        assert!(found == *bytes, "{name}: object {object} has its acknowledged contents");
    }
    assert_eq!(extent::check(&volume.extents).unwrap(), vec![], "{name}");
    assert_eq!(volume.store.check(&mut |_, _, _, _| {}).unwrap(), vec![], "{name}");
    let again = volume.write(77, 0, &[7; 4096], 0).unwrap_or_else(|error| panic!("{name}: {error}"));
    volume.store.sync(again).unwrap_or_else(|error| panic!("{name}: {error}"));
    volume.store.close().unwrap_or_else(|error| panic!("{name}: {error}"));
    (has_failed, ran)
}

/// Repeats this for all commands. Returns the number of failures, and the errors that the user got.
fn every(kind: CommandKind, effect: Effect) -> (u64, Vec<ExtentError>) {
    let (base, mut errors) = (base(), Vec::new());
    for nth in 1.. {
        let (has_failed, ran) = with_fault(&base, kind, effect, nth);
        if !has_failed {
            assert!(ran.error.is_none(), "nothing failed: {:?}", ran.error);
            assert!(ran.moved > 0, "GC moved blocks");
            println!("{kind:?} {effect:?}: {} failed, {} errors", nth - 1, errors.len());
            return (nth - 1, errors);
        }
        errors.extend(ran.error);
    }
    unreachable!("a run ends");
}

#[test]
fn failed_resets_cause_no_error() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (failed, errors) = every(CommandKind::Reset, effect);
        assert!(failed > 5 && errors.is_empty(), "{failed} failed: {errors:?}");
    }
}

#[test]
fn failed_finishes_cause_no_error() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (failed, errors) = every(CommandKind::Finish, effect);
        assert!(failed > 2 && errors.is_empty(), "{failed} failed: {errors:?}");
    }
}

/// One transient read error during a mount lost acknowledged transactions: records that could not be read were
/// discarded for good. Such reads are repeated.
#[test]
fn reads_that_fail_once_lose_no_more_than_they_report() {
    let (failed, errors) = every(CommandKind::Read, Effect::Error);
    assert!(failed > 20 && !errors.is_empty(), "{failed} failed: {errors:?}");
}

#[test]
fn only_appends_open_zones() {
    assert_eq!(every(CommandKind::Open, Effect::Error).0, 0, "there is no open command");
}
