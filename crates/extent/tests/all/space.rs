use super::*;
use polder_extent::ExtentError;

fn shapes() -> Vec<(&'static str, Spec)> {
    let mut shapes = Spec::all();
    shapes.push(("16 zones", Spec::new(4096, 16, 256).limits(6, 6)));
    shapes
}

/// Writes a file of `bytes` from `from` on, in pieces of `piece`.
fn fill(volume: &Volume, object: u64, (from, bytes): (u64, u64), piece: u64) -> Result<u64> {
    let mut at = from;
    while at < bytes {
        let length = piece.min(bytes - at);
        let data: Vec<u8> = (at..at + length).map(|byte| (byte / 512 + object) as u8).collect();
        volume.write(object, at, &data, at)?;
        at += length;
    }
    Ok(at)
}

#[test]
fn what_is_offered_can_be_written() {
    for (name, spec) in shapes() {
        for blocks in [1, 64] {
            let volume = Volume::new(spec.clone());
            let piece = blocks * volume.block_size();
            for round in 0..3 {
                let offered = volume.extents.space().available;
                assert!(offered > 0, "{name}: an empty volume takes something");
                if let Err(error) = fill(&volume, 1, (0, offered), piece) {
                    panic!("{name}: {blocks}: {round}: {error}: {offered} {:?}", volume.extents.space());
                }
                volume.check();
                let more = volume.extents.space().available + volume.block_size();
                let error =
                    volume.extents.append(Object(2), Hint::default(), 0, &vec![1; more as usize], 0).err();
                let error = error.expect("more than is offered does not fit");
                assert!(matches!(error, ExtentError::NoSpace), "{name}: {error}");
                volume.truncate(1, 0).unwrap();
            }
        }
    }
}

#[test]
fn a_full_volume_can_be_overwritten_bit_by_bit() {
    for (name, spec) in shapes() {
        let volume = Volume::new(spec);
        let size = volume.block_size();
        let mut rng = Rng::with_seed(2);
        let offered = volume.extents.space().available;
        let most = offered / size * 9 / 10;
        fill(&volume, 1, (0, most * size), 16 * size).unwrap();
        for round in 0..most.min(700) {
            let at = rng.u64(0..most) * size;
            let data: Vec<u8> = (at..at + size).map(|byte| (byte / 512 + 1) as u8).collect();
            volume
                .write(1, at, &data, most * size)
                .unwrap_or_else(|error| panic!("{name}: {round}: {error}: {:?}", volume.extents.space()));
        }
        let mut found = vec![0; (most * size) as usize];
        volume.extents.read(Object(1), 0, &mut found).unwrap();
        let right = found.iter().enumerate().all(|(at, &byte)| byte == (at / 512 + 1) as u8);
        assert!(right, "{name}");
        volume.check();
    }
}

/// Writers alone, without a background step: no write has to move much, and little is moved in all.
#[test]
fn garbage_is_collected_late_and_in_small_parts() {
    const BLOCKS: u64 = 16;
    let zone = 512;
    let volume = Volume::new(Spec::new(4096, 64, zone));
    let zone = u64::from(zone);
    let size = volume.block_size();
    let objects = volume.extents.space().available / size / BLOCKS * 81 / 100;
    let write = |object: u64| {
        let before = volume.extents.gc_stats().blocks_moved;
        volume.write(object, 0, &vec![object as u8; (BLOCKS * size) as usize], BLOCKS * size).unwrap();
        volume.extents.gc_stats().blocks_moved - before
    };
    (1..=objects).for_each(|object| assert!(write(object) <= zone / 8));
    let (mut rng, mut moved, mut most) = (Rng::with_seed(4), 0, 0);
    for _ in 0..4 * objects {
        let some = write(1 + rng.u64(0..objects));
        (moved, most) = (moved + some, most.max(some));
    }
    let written = 4 * objects * BLOCKS;
    assert!(most <= zone / 4, "one write moved {most} of a zone's {zone} blocks");
    // Three quarters of the zones left for data are live: a greedy cleaner moves a little more than it is given.
    assert!(moved <= written * 3 / 2, "{moved} blocks were moved for {written} that were written");
    assert!(moved > written / 4, "there was something to collect");
    volume.check();
}

#[test]
fn what_was_not_inserted_is_given_back() {
    let volume = Volume::new(Spec::power_of_two());
    let before = volume.extents.space().available;
    for _ in 0..100 {
        let data = vec![9; 100 * 4096];
        drop(volume.extents.append(Object(1), Hint::default(), 0, &data, 0).unwrap());
    }
    assert_eq!(volume.extents.space().pending, 0);
    assert!(volume.extents.space().available + (4 << 20) >= before);
    volume.check();
}

/// Some objects, and the device.
fn filled() -> (Volume, Arc<Emulated>) {
    let volume = Volume::new(Spec::power_of_two());
    for object in 1..9 {
        volume.write(object, 0, &vec![1; 300 * volume.block_size() as usize], 0).unwrap();
    }
    volume.sync();
    let device = Arc::clone(&volume.device);
    (volume, device)
}

/// Zones of data to which nobody appends any more.
fn closed(volume: &Volume) -> Vec<zone::ZoneId> {
    let zones = volume.store.pool().in_role(zone::Role::Data);
    let is_closed = |zone: &zone::ZoneId| !volume.store.pool().is_open(*zone) && live(volume, *zone) > 0;
    zones.into_iter().filter(is_closed).collect()
}

fn live(volume: &Volume, zone: zone::ZoneId) -> u32 {
    volume.store.pool().entry(zone).live
}

/// Most of what a zone had is dead, and it can only be read from now on: what is dead there is not won. Were
/// it offered all the same, a writer who was promised it would be refused in the end.
#[test]
fn what_is_dead_in_a_zone_that_can_only_be_read_is_not_offered() {
    let (volume, device) = filled();
    (1..9).for_each(|object| volume.truncate(object, 10).unwrap());
    volume.sync();
    let worn = closed(&volume).into_iter().min_by_key(|&zone| live(&volume, zone)).expect("some are full");
    let dead = u64::from(256 - live(&volume, worn));
    assert!(dead > 200, "{dead} blocks are dead");
    drop(volume);
    let before = Volume::open(Arc::clone(&device)).extents.space().available;
    device.set_zone_state(worn, zone::ZoneState::ReadOnly);
    let volume = Volume::open(device);
    let (offered, size) = (volume.extents.space().available, volume.block_size());
    assert!(offered + (dead - 40) * size <= before, "{offered} of {before}, {dead} blocks less");
    fill(&volume, 20, (0, offered), 16 * size).unwrap();
    volume.check();
}

/// What lives in zones that can only be read goes to others by and by. It counted as if it stayed: what had
/// been promised to a file was taken by what was moved, and writing there failed.
#[test]
fn what_will_be_moved_out_of_zones_that_can_only_be_read_is_not_offered() {
    let (volume, device) = filled();
    let worn: Vec<_> = closed(&volume).into_iter().take(6).collect();
    let lives: u32 = worn.iter().map(|&zone| live(&volume, zone)).sum();
    assert!(worn.len() == 6 && lives > 1000, "{lives} blocks live in {worn:?}");
    drop(volume);
    worn.iter().for_each(|&zone| device.set_zone_state(zone, zone::ZoneState::ReadOnly));
    let volume = Volume::open(device);
    let (offered, size) = (volume.extents.space().available, volume.block_size());
    let kept = offered / size - 64;
    volume.keep(20, 0..kept).unwrap();
    let moved = || worn.iter().all(|&zone| live(&volume, zone) == 0);
    (0..1000).take_while(|_| !moved()).for_each(|_| {
        volume.extents.step().unwrap();
        volume.sync();
    });
    assert!(moved(), "they are empty");
    fill(&volume, 20, (0, kept * size), 16 * size).unwrap();
    volume.check();
}
