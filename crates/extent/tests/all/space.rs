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

/// The growth of metadata by new extents was available to files: reported space could not be written. It is subtracted,
/// and metadata is collected before a refusal.
#[test]
fn the_available_space_can_be_written() {
    for (name, spec) in shapes() {
        for blocks in [1, 64] {
            let volume = Volume::new(spec.clone());
            let piece = blocks * volume.block_size();
            for round in 0..3 {
                let available = volume.extents.budget().space().available;
                assert!(available > 0, "{name}: an empty volume takes something");
                if let Err(error) = fill(&volume, 1, (0, available), piece) {
                    panic!(
                        "{name}: {blocks}: {round}: {error}: {available} {:?}",
                        volume.extents.budget().space()
                    );
                }
                volume.check();
                let more = volume.extents.budget().space().available + volume.block_size();
                let error =
                    volume.extents.append(Object(2), Hint::default(), 0, &vec![1; more as usize], 0).err();
                let error = error.expect("more than the available space does not fit");
                assert!(matches!(error, ExtentError::NoSpace), "{name}: {error}");
                volume.truncate(1, 0).unwrap();
            }
        }
    }
}

#[test]
fn a_full_volume_can_be_overwritten_block_by_block() {
    for (name, spec) in shapes() {
        let volume = Volume::new(spec);
        let size = volume.block_size();
        let mut rng = Rng::with_seed(2);
        let available = volume.extents.budget().space().available;
        let most = available / size * 9 / 10;
        fill(&volume, 1, (0, most * size), 16 * size).unwrap();
        for round in 0..most.min(700) {
            let at = rng.u64(0..most) * size;
            let data: Vec<u8> = (at..at + size).map(|byte| (byte / 512 + 1) as u8).collect();
            volume.write(1, at, &data, most * size).unwrap_or_else(|error| {
                panic!("{name}: {round}: {error}: {:?}", volume.extents.budget().space())
            });
        }
        let mut found = vec![0; (most * size) as usize];
        volume.extents.maps().read(Object(1), 0, &mut found).unwrap();
        let is_equal = found.iter().enumerate().all(|(at, &byte)| byte == (at / 512 + 1) as u8);
        assert!(is_equal, "{name}");
        volume.check();
    }
}

/// Writers alone, without a background task: no write moves much, and few blocks are moved in all.
#[test]
fn gc_starts_late_and_moves_few_blocks_at_once() {
    const BLOCKS: u64 = 16;
    let zone = 512;
    let volume = Volume::new(Spec::new(4096, 64, zone));
    let zone = u64::from(zone);
    let size = volume.block_size();
    let objects = volume.extents.budget().space().available / size / BLOCKS * 81 / 100;
    let write = |object: u64| {
        let before = volume.extents.collector().stats().blocks_moved;
        volume.write(object, 0, &vec![object as u8; (BLOCKS * size) as usize], BLOCKS * size).unwrap();
        volume.extents.collector().stats().blocks_moved - before
    };
    (1..=objects).for_each(|object| assert!(write(object) <= zone / 8));
    let (mut rng, mut moved, mut most) = (Rng::with_seed(4), 0, 0);
    for _ in 0..4 * objects {
        let some = write(1 + rng.u64(0..objects));
        (moved, most) = (moved + some, most.max(some));
    }
    let written = 4 * objects * BLOCKS;
    assert!(most <= zone / 4, "one write moved {most} of a zone's {zone} blocks");
    // Three quarters of data's zones are live: greedy GC moves a little more blocks than are written.
    assert!(moved <= written * 3 / 2, "{moved} blocks were moved for {written} that were written");
    assert!(moved > written / 4, "GC moved blocks");
    volume.check();
}

#[test]
fn blocks_that_are_not_inserted_become_available_again() {
    let volume = Volume::new(Spec::power_of_two());
    let before = volume.extents.budget().space().available;
    for _ in 0..100 {
        let data = vec![9; 100 * 4096];
        drop(volume.extents.append(Object(1), Hint::default(), 0, &data, 0).unwrap());
    }
    assert_eq!(volume.extents.budget().space().pending, 0);
    assert!(volume.extents.budget().space().available + (4 << 20) >= before);
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

/// Closed data zones with live blocks.
fn closed(volume: &Volume) -> Vec<zone::ZoneId> {
    let zones = volume.store.pool().in_role(zone::Role::Data);
    let is_closed = |zone: &zone::ZoneId| !volume.store.pool().is_open(*zone) && live(volume, *zone) > 0;
    zones.into_iter().filter(is_closed).collect()
}

fn live(volume: &Volume, zone: zone::ZoneId) -> u32 {
    volume.store.pool().entry(zone).live
}

/// Most blocks of a zone are dead, and it becomes read-only: its dead blocks cannot be reclaimed. If they counted as
/// available, a writer with a reservation would be refused in the end.
#[test]
fn dead_blocks_of_a_read_only_zone_are_not_available() {
    let (volume, device) = filled();
    (1..9).for_each(|object| volume.truncate(object, 10).unwrap());
    volume.sync();
    let read_only =
        closed(&volume).into_iter().min_by_key(|&zone| live(&volume, zone)).expect("some are full");
    let dead = u64::from(256 - live(&volume, read_only));
    assert!(dead > 200, "{dead} blocks are dead");
    drop(volume);
    let before = Volume::open(Arc::clone(&device)).extents.budget().space().available;
    device.set_zone_state(read_only, zone::ZoneState::ReadOnly);
    let volume = Volume::open(device);
    let (available, size) = (volume.extents.budget().space().available, volume.block_size());
    assert!(available + (dead - 40) * size <= before, "{available} of {before}, {dead} blocks less");
    fill(&volume, 20, (0, available), 16 * size).unwrap();
    volume.check();
}

/// Live blocks of read-only zones are moved to other zones little by little. They counted as if they stayed: the moves
/// took preallocated space of a file, and writing there failed.
#[test]
fn the_space_for_live_blocks_of_read_only_zones_is_not_available() {
    let (volume, device) = filled();
    let read_only: Vec<_> = closed(&volume).into_iter().take(6).collect();
    let live_blocks: u32 = read_only.iter().map(|&zone| live(&volume, zone)).sum();
    assert!(read_only.len() == 6 && live_blocks > 1000, "{live_blocks} live blocks in {read_only:?}");
    drop(volume);
    read_only.iter().for_each(|&zone| device.set_zone_state(zone, zone::ZoneState::ReadOnly));
    let volume = Volume::open(device);
    let (available, size) = (volume.extents.budget().space().available, volume.block_size());
    let preallocated = available / size - 64;
    volume.preallocate(20, 0..preallocated).unwrap();
    let moved = || read_only.iter().all(|&zone| live(&volume, zone) == 0);
    (0..1000).take_while(|_| !moved()).for_each(|_| {
        volume.extents.step().unwrap();
        volume.sync();
    });
    assert!(moved(), "they have no live blocks");
    fill(&volume, 20, (0, preallocated * size), 16 * size).unwrap();
    volume.check();
}
