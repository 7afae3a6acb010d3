use super::*;
use emulated::{CommandKind, Effect, Fault};
use polder_extent::ExtentError;
use zone::{ZoneId, ZoneState};

fn data_zone(volume: &Volume) -> ZoneId {
    let zones = volume.store.pool().in_role(zone::Role::Data);
    *zones.iter().max_by_key(|&&zone| volume.store.pool().entry(zone).live).unwrap()
}

/// The block in the zone that holds the object's first block.
fn first_block_of(volume: &Volume, object: u64) -> (ZoneId, u32) {
    let group = volume.store.group_of(object);
    let key = extent::format::key(Object(object), 0);
    let value = volume.store.get(group, extent::format::EXTENT, &key).unwrap().unwrap();
    let extent = extent::format::Extent::decode(&value).unwrap();
    (extent.address.zone(), extent.address.block())
}

#[test]
fn a_failed_append_is_unseen_by_the_writer() {
    for effect in [Effect::Error, Effect::Torn(3), Effect::TurnReadOnly(1)] {
        let volume = Volume::new(Spec::power_of_two());
        let mut rng = Rng::with_seed(9);
        let mut model = Model::new();
        write(&volume, &mut model, 1, 0, &noise(&mut rng, 100_000)).unwrap();
        let zone = data_zone(&volume);
        volume.device.inject(Fault::nth(CommandKind::Append, 2, effect).on(zone));
        for _ in 0..10 {
            let data = noise(&mut rng, 700_000);
            let offset = rng.usize(0..200_000);
            write(&volume, &mut model, 1, offset, &data).unwrap();
        }
        volume.verify(&model);
        assert!(!volume.store.pool().is_open(zone));
    }
}

#[test]
fn a_zone_is_closed_when_its_host_is_full() {
    let volume = Volume::new(Spec::power_of_two());
    let mut model = Model::new();
    write(&volume, &mut model, 1, 0, &[5; 10 * 4096]).unwrap();
    let zone = data_zone(&volume);
    volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).on(zone));
    let written = volume.extents.append(Object(1), Hint::default(), 0, &[6; 4096], 10 * 4096);
    assert!(matches!(written, Err(ExtentError::NoSpace)));
    assert!(!volume.store.pool().is_open(zone), "the lease was returned");
    write(&volume, &mut model, 1, 4096, &[7; 4096]).unwrap();
    volume.verify(&model);
}

/// A host had no room for the next zone, and programs were told that the disk is broken; so was `fsync`, by what moves
/// data in the background.
#[test]
fn a_zone_that_the_host_has_no_room_for_is_no_space() {
    let volume = Volume::new(Spec::power_of_two());
    let is_free = |zone: &ZoneId| volume.device.report_zone(*zone).unwrap().state == ZoneState::Empty;
    for zone in (0..volume.device.geometry().zones).map(ZoneId).filter(is_free) {
        volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).on(zone).forever());
    }
    let written = volume.extents.append(Object(1), Hint::default(), 0, &[6; 4096], 4096);
    assert!(matches!(written, Err(ExtentError::NoSpace)), "{:?}", written.err());
    assert_eq!(volume.store.shutdown_reason(), None);
    volume.device.clear_faults();
    let mut model = Model::new();
    write(&volume, &mut model, 1, 0, &[7; 4096]).unwrap();
    volume.verify(&model);
}

/// The host had no room for another zone, and files of a class that had none of its own were told that nothing is left,
/// though the open zone was nearly empty.
#[test]
fn where_the_host_has_no_room_for_another_zone_the_open_one_takes_everything() {
    let volume = Volume::new(Spec::power_of_two());
    let mut model = Model::new();
    write(&volume, &mut model, 1, 0, &[5; 4096]).unwrap();
    let is_free = |zone: &ZoneId| volume.device.report_zone(*zone).unwrap().state == ZoneState::Empty;
    for zone in (0..volume.device.geometry().zones).map(ZoneId).filter(is_free) {
        volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).on(zone).forever());
    }
    let long = Hint { lifetime: extent::Lifetime::Extreme, ..Hint::default() };
    let written = volume.extents.append(Object(2), long, 0, &[6; 8192], 8192);
    assert!(written.is_ok(), "{:?}", written.err());
    assert_eq!(volume.store.shutdown_reason(), None);
}

#[test]
fn a_wrong_block_fails_its_own_range_only() {
    let volume = Volume::new(Spec::power_of_two());
    volume.write(1, 0, &vec![5; 10 * 4096], 0).unwrap();
    let (zone, block) = first_block_of(&volume, 1);
    volume.device.corrupt(zone, block + 3, 100, 1);
    volume.device.make_unreadable(zone, block + 5);
    let mut found = vec![0; 3 * 4096];
    volume.extents.read(Object(1), 0, &mut found).unwrap();
    for (at, bad) in [(0, 3), (3, 3), (4, 5)] {
        let mut found = vec![0; 4 * 4096];
        match volume.extents.read(Object(1), at * 4096, &mut found) {
            Err(ExtentError::Lost { object: 1, block, .. }) => {
                assert!(block == bad || block == 4 && bad == 5)
            }
            other => panic!("{other:?}"),
        }
    }
    volume.extents.read(Object(1), 6 * 4096, &mut vec![0; 4 * 4096]).unwrap();
    let found = volume.extents.check_data(true).unwrap();
    let told: Vec<_> = found.into_iter().map(|finding| (finding.kind, finding.of.unwrap())).collect();
    let data = extent::FindingKind::Data;
    assert_eq!(told, [(data, (Object(1), 3..4)), (data, (Object(1), 5..6))]);
}

/// All pieces of a scrub; between them `meanwhile` is called.
fn scrub(volume: &Volume, bytes: u64, mut meanwhile: impl FnMut()) -> extent::Scrubbed {
    let (mut at, mut all) = (extent::DataScrub::default(), extent::Scrubbed::default());
    while !all.done {
        let some = volume.extents.scrub_step(&mut at, bytes).unwrap();
        all.bytes += some.bytes;
        all.findings.extend(some.findings);
        all.done = some.done;
        meanwhile();
    }
    all
}

#[test]
fn a_scrub_reads_every_live_block_once() {
    let volume = Volume::new(Spec::power_of_two());
    for object in 1..20 {
        volume.write(object, 0, &vec![object as u8; 4096 * object as usize], 0).unwrap();
    }
    let live: u64 = (1..20).map(|object| object * 4096).sum();
    for bytes in [1, 5000, 1 << 20] {
        let found = scrub(&volume, bytes, || ());
        assert_eq!((found.bytes, found.findings), (live, vec![]));
    }
    let (zone, block) = first_block_of(&volume, 7);
    volume.device.corrupt(zone, block + 1, 5, 1);
    volume.device.corrupt(zone, block + 2, 5, 1);
    volume.device.make_unreadable(zone, block + 5);
    let found = scrub(&volume, 5000, || ()).findings;
    let told: Vec<_> = found.iter().map(|finding| finding.of.clone().unwrap()).collect();
    assert_eq!(told, [(Object(7), 1..3), (Object(7), 5..6)]);
    assert!(found[0].what.starts_with("object 7 blocks 1 to 2 cannot be read"), "{found:?}");
    volume.write(7, 4096, &vec![1; 5 * 4096], 7 * 4096).unwrap();
    assert_eq!(scrub(&volume, 5000, || ()).findings, [], "it was overwritten");
}

/// Writers and garbage collection change everything under the scrub's feet.
#[test]
fn what_is_overwritten_or_moved_meanwhile_is_no_finding() {
    let volume = Volume::new(Spec::power_of_two());
    let mut rng = Rng::with_seed(3);
    for object in 1..9 {
        volume.write(object, 0, &noise(&mut rng, 300 * 4096), 0).unwrap();
    }
    for _ in 0..5 {
        let found = scrub(&volume, 100_000, || {
            for _ in 0..4 {
                let (object, at) = (rng.u64(1..9), rng.u64(0..250) * 4096);
                let data = noise(&mut rng, 50 * 4096);
                volume.write(object, at, &data, 300 * 4096).unwrap();
                volume.step(3);
            }
        });
        assert_eq!(found.findings, []);
    }
    assert!(volume.extents.gc_stats().blocks_moved > 0, "{:?}", volume.extents.gc_stats());
    volume.check();
}

/// A full zone has a footer and need not be emptied for that; but when it can only be read it is, before it goes offline,
/// and is never written again.
#[test]
fn a_full_zone_that_can_only_be_read_is_emptied_after_the_next_mount() {
    let volume = Volume::new(Spec::power_of_two());
    let mut model = Model::new();
    for object in 1..9 {
        let data = vec![object as u8; 300 * 4096];
        volume.write(object, 0, &data, 0).unwrap();
        model.insert(object, data);
    }
    let (zone, _) = first_block_of(&volume, 1);
    assert!(!volume.store.pool().is_open(zone), "it is full");
    volume.sync();
    let device = Arc::clone(&volume.device);
    drop(volume);
    device.set_zone_state(zone, ZoneState::ReadOnly);
    let volume = Volume::open(device);
    assert!(volume.store.pool().entry(zone).live > 0);
    for _ in 0..50 {
        volume.step(1);
        volume.sync();
    }
    assert_eq!(volume.store.pool().entry(zone).live, 0);
    assert!(volume.extents.gc_stats().blocks_moved > 0);
    volume.verify(&model);
    volume.device.set_zone_state(zone, ZoneState::Offline);
    volume.verify(&model);
}

/// Objects of ten blocks, and so many that their zones are needed when a volume is full.
const PINNING: [u64; 6] = [11, 12, 13, 14, 15, 16];

/// A volume with each of these objects in another zone, of which not all can be moved; and where each was written.
fn with_pinned_zones(pin: impl Fn(&Volume, ZoneId, u32)) -> (Volume, Vec<(ZoneId, u32)>) {
    let (volume, mut places) = (Volume::new(Spec::power_of_two()), Vec::new());
    // What else is written goes to the same zones, and fills them.
    volume.extents.set_switches(extent::Switches { by_file: false, ..Default::default() });
    for object in PINNING {
        // The first may lie in what was left of a zone, and only in part.
        for _ in 0..2 {
            volume.write(object, 0, &[object as u8; 10 * 4096], 0).unwrap();
            if volume.extents.view_object(Object(object)).unwrap().len() == 1 {
                break;
            }
        }
        let (zone, block) = first_block_of(&volume, object);
        pin(&volume, zone, block);
        places.push((zone, block));
        churn(&volume);
    }
    (volume, places)
}

/// Overwrites another object until all zones have been victims.
fn churn(volume: &Volume) {
    for round in 0..60 {
        volume.write(2, 0, &vec![round; 200 * 4096], 200 * 4096).unwrap();
        volume.step(4);
    }
    // What is all that lives in its zone would be left there while others die as a whole.
    while volume.extents.compact().unwrap() {}
}

/// Which of the first ten blocks of each cannot be read; the others are compared.
fn unreadable(volume: &Volume) -> Vec<(u64, u64)> {
    let is_lost = |&(object, block): &(u64, u64)| {
        let mut found = vec![0; 4096];
        match volume.extents.read(Object(object), block * 4096, &mut found) {
            Err(ExtentError::Lost { .. }) => return true,
            read => read.unwrap(),
        }
        assert!(found.iter().all(|&found| found == object as u8), "object {object} block {block}");
        false
    };
    PINNING.iter().flat_map(|&object| (0..10).map(move |block| (object, block))).filter(is_lost).collect()
}

/// Writes until nothing more fits; how many blocks.
fn fill(volume: &Volume, object: u64) -> u64 {
    let size = 4096;
    for block in 0.. {
        match volume.write(object, block * size, &vec![object as u8; size as usize], block * size) {
            Ok(_) => {}
            Err(ExtentError::NoSpace) => return block,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("volumes end")
}

/// Writes over what was filled, until every zone must have been emptied.
fn write_over(volume: &Volume, object: u64, blocks: u64) {
    let mut rng = Rng::with_seed(5);
    for _ in 0..4 * blocks {
        let block = rng.u64(0..blocks);
        volume.write(object, block * 4096, &[9; 4096], blocks * 4096).unwrap();
    }
}

/// A cable was loose for as long as it takes to ask twice, and everything that was moved in that moment was given up
/// for good: files that could be read before and after had holes of EIO. What cannot be read is put off now, until
/// its zone is needed.
#[test]
fn what_cannot_be_read_for_a_while_is_not_lost() {
    let (volume, places) = with_pinned_zones(|volume, zone, _| {
        volume.device.inject(Fault::nth(CommandKind::Read, 1, Effect::Error).on(zone).forever());
    });
    assert_eq!(unreadable(&volume).len(), 10 * PINNING.len());
    let places_now = || PINNING.iter().map(|&object| first_block_of(&volume, object)).collect::<Vec<_>>();
    assert_eq!(places_now(), places, "they stay");
    assert_eq!(volume.extents.gc_outlook().zones_to_win, 0, "nobody is told that there is more to win");
    volume.device.clear_faults();
    assert_eq!(unreadable(&volume), [], "nothing was given up");
    // When there is no other zone they are read again, and moved.
    let offered = fill(&volume, 3);
    write_over(&volume, 3, offered);
    assert_ne!(places_now(), places, "one was needed");
    assert_eq!(volume.extents.gc_stats().blocks_lost, 0);
    assert_eq!(unreadable(&volume), []);
    assert_eq!(volume.extents.check_data(true).unwrap(), []);
    assert_eq!(volume.extents.check().unwrap(), []);
}

#[test]
fn what_cannot_be_moved_is_lost_when_its_zone_is_needed_and_pins_nothing() {
    let (volume, places) = with_pinned_zones(|volume, zone, block| {
        volume.device.make_unreadable(zone, block + 3);
        volume.device.corrupt(zone, block + 7, 9, 64);
    });
    let spoilt: Vec<_> = PINNING.iter().flat_map(|&object| [(object, 3), (object, 7)]).collect();
    assert_eq!(unreadable(&volume), spoilt);
    assert_eq!(volume.extents.lost().unwrap(), [], "nobody needs the zones");
    let live: Vec<_> = places.iter().map(|&(zone, _)| volume.store.pool().entry(zone).live).collect();
    assert_eq!(live, [2; PINNING.len()], "what can be read was moved");
    let offered = fill(&volume, 3);
    write_over(&volume, 3, offered);
    assert_eq!(unreadable(&volume), spoilt);
    let lost = volume.extents.lost().unwrap();
    let told = lost.iter().map(|finding| finding.of.clone().unwrap());
    let told: Vec<_> = told.map(|(object, blocks)| (object.0, blocks.start)).collect();
    assert!(!lost.is_empty() && lost.iter().all(|finding| finding.kind == extent::FindingKind::Lost));
    assert!(told.iter().all(|block| spoilt.contains(block)), "{told:?}");
    assert_eq!(volume.extents.gc_stats().blocks_lost, told.len() as u64);
    // Overwritten, it can be read again.
    let (object, block) = told[0];
    volume.truncate(3, 0).unwrap();
    volume.write(object, block * 4096, &[object as u8; 4096], 10 * 4096).unwrap();
    assert_eq!(unreadable(&volume).len(), spoilt.len() - 1);
    volume.check();
}

/// Every second zone has a block that cannot be read. As long as others can be emptied nothing is given up; and when
/// garbage collection has nothing to go on with, it is, so that no writer is refused what he was promised.
#[test]
fn many_zones_that_wait_cost_nobody_his_space() {
    let volume = Volume::new(Spec::power_of_two());
    let offered = fill(&volume, 3);
    let mut zones = volume.store.pool().in_role(zone::Role::Data);
    zones.retain(|zone| volume.store.pool().entry(*zone).live > 0);
    zones
        .iter()
        .step_by(2)
        .for_each(|&zone| (1..8).for_each(|at| volume.device.make_unreadable(zone, at * 20)));
    write_over(&volume, 3, offered);
    assert!(volume.extents.gc_stats().blocks_moved > 0);
    assert!(volume.extents.gc_stats().blocks_lost > 0, "it was needed");
    assert_eq!(volume.extents.check().unwrap(), vec![], "the checker finds nothing");
}

/// A volume with zones that are half dead, and one without a footer that holds object 1.
fn with_a_zone_without_footer() -> (Volume, ZoneId) {
    let volume = Volume::new(Spec::power_of_two());
    let zone_bytes = u64::from(volume.device.geometry().zone_blocks) * 4096;
    for at in (0..3 * zone_bytes).step_by(64 * 4096) {
        volume.write(2, at, &vec![2; 64 * 4096], at).unwrap();
    }
    for at in (0..3 * zone_bytes).step_by(128 * 4096) {
        volume.write(3, at, &vec![3; 4096], at).unwrap();
    }
    volume.write(1, 0, &vec![5; 10 * 4096], 0).unwrap();
    let (zone, _) = first_block_of(&volume, 1);
    volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(zone));
    volume.write(1, 10 * 4096, &vec![5; 4096], 10 * 4096).unwrap();
    assert_eq!(first_block_of(&volume, 1).0, zone);
    assert!(volume.store.pool().victims(9).len() > 1, "there are other victims");
    (volume, zone)
}

#[test]
fn while_zones_are_plentiful_only_the_zone_without_footer_is_evacuated() {
    let (volume, zone) = with_a_zone_without_footer();
    volume.step(50);
    assert_eq!(volume.extents.gc_stats().zones_evacuated, 1);
    assert_ne!(first_block_of(&volume, 1).0, zone);
    assert_eq!(volume.extents.step().unwrap(), tree::Step::Idle);
    volume.check();
}

#[test]
fn a_zone_that_cannot_be_evacuated_is_left_alone() {
    use polder_extent::format::{EXTENT, Extent, key};
    let (volume, zone) = with_a_zone_without_footer();
    let group = volume.store.group_of(1);
    let value = volume.store.get(group, EXTENT, &key(Object(1), 0)).unwrap().unwrap();
    let extent = Extent::decode(&value).unwrap();
    let nowhere = zone::Address::new(ZoneId(volume.store.pool().count()), 5, zone::Life(1));
    let mut tx = Tx::new();
    tx.put(group, EXTENT, key(Object(1), 3), Extent { address: nowhere, ..extent }.encode());
    volume.store.commit(tx).unwrap();
    let steps: Vec<_> = (0..20).map(|_| volume.extents.step()).collect();
    assert_eq!(steps.iter().filter(|step| step.is_err()).count(), 1, "{steps:?}");
    assert!(matches!(steps.last(), Some(Ok(tree::Step::Idle))), "{steps:?}");
    assert_eq!(first_block_of(&volume, 1).0, zone);
    let mut tx = Tx::new();
    tx.delete(group, EXTENT, key(Object(1), 3));
    volume.store.commit(tx).unwrap();
    volume.check();
}

#[test]
fn planted_damage_is_found() {
    use polder_extent::FindingKind::*;
    use polder_extent::format::{EXTENT, INLINE_BLOCK, key};
    // Blocks that are smaller than the longest value, so that an inline block can be too long.
    let volume = Volume::new(Spec::blocks_of_512());
    volume.write(1, 0, &vec![5; 10 * 512], 0).unwrap();
    let group = volume.store.group_of(1);
    let value = volume.store.get(group, EXTENT, &key(Object(1), 0)).unwrap().unwrap();
    let plant = |table, block, value: Vec<u8>, live: i32| {
        let mut tx = Tx::new();
        tx.put(group, table, key(Object(1), block), value);
        tx.zone_live(first_block_of(&volume, 1).0, live);
        volume.store.commit(tx).unwrap();
        let mut kinds: Vec<_> = volume.extents.check().unwrap().iter().map(|finding| finding.kind).collect();
        kinds.dedup();
        let mut tx = Tx::new();
        tx.delete(group, table, key(Object(1), block));
        tx.zone_live(first_block_of(&volume, 1).0, -live);
        volume.store.commit(tx).unwrap();
        volume.check();
        kinds
    };
    assert_eq!(plant(EXTENT, 3, value.clone(), 10), [Overlap, Shared]);
    assert_eq!(plant(EXTENT, 30, value.clone(), 10), [Shared]);
    assert_eq!(plant(EXTENT, 30, value.clone(), 0), [Shared, LiveCount]);
    assert_eq!(plant(EXTENT, 30, vec![1; 7], 0), [Record]);
    assert_eq!(plant(INLINE_BLOCK, 4, vec![1; 7], 0), [Overlap]);
    assert_eq!(plant(INLINE_BLOCK, 40, vec![1; 513], 0), [Record]);
    assert_eq!(plant(INLINE_BLOCK, 40, vec![1; 7], 1), [LiveCount]);
    let mut far = value;
    far[7] = 0xff;
    assert_eq!(plant(EXTENT, 30, far, 0), [Place]);
}

#[test]
fn an_extent_that_no_zone_has_is_damage() {
    use polder_extent::format::{EXTENT, Extent, key};
    let volume = Volume::new(Spec::power_of_two());
    volume.write(1, 0, &vec![5; 10 * 4096], 0).unwrap();
    let group = volume.store.group_of(1);
    let value = volume.store.get(group, EXTENT, &key(Object(1), 0)).unwrap().unwrap();
    let good = Extent::decode(&value).unwrap();
    let geometry = volume.device.geometry();
    let at = |zone, block| Extent {
        address: zone::Address::new(ZoneId(zone), block, volume.store.pool().entry(good.address.zone()).life),
        ..good.clone()
    };
    let (zone, end) = (good.address.zone().0, geometry.zone_blocks);
    for (block, extent) in
        [(20, at(geometry.zones, 5)), (20, at(zone, end - 9)), (u64::MAX - 9, at(zone, end - 10))]
    {
        let mut tx = Tx::new();
        tx.put(group, EXTENT, key(Object(1), block), extent.encode());
        volume.store.commit(tx).unwrap();
        if block == 20 {
            let read = volume.extents.read(Object(1), block * 4096, &mut vec![0; 4096]);
            let corrupt = matches!(&read, Err(ExtentError::Store(tree::StoreError::Corrupt(_))));
            assert!(corrupt, "{read:?}");
        }
        let removed = volume
            .extents
            .remove(&mut Tx::new(), Object(1), (15, u64::MAX), 7, FileClass::default())
            .map(|(_, done)| done);
        let corrupt = matches!(&removed, Err(ExtentError::Store(tree::StoreError::Corrupt(_))));
        assert!(corrupt, "{removed:?}");
        assert!(!volume.extents.check_data(true).unwrap().is_empty());
        volume.extents.read(Object(1), 0, &mut vec![0; 10 * 4096]).unwrap();
        let mut tx = Tx::new();
        tx.delete(group, EXTENT, key(Object(1), block));
        volume.store.commit(tx).unwrap();
    }
    volume.check();
}

#[test]
fn records_that_contradict_each_other_are_damage_wherever_they_are_met() {
    use polder_extent::format::{EXTENT, INLINE_BLOCK, key};
    let is_corrupt = |error: &ExtentError| matches!(error, ExtentError::Store(tree::StoreError::Corrupt(_)));
    // Blocks that are smaller than the longest value, so that an inline block can be too long.
    let volume = Volume::new(Spec::blocks_of_512());
    let (size, object) = (512, Object(1));
    volume.write(1, 0, &vec![5; 10 * size], 0).unwrap();
    let group = volume.store.group_of(1);
    let value = volume.store.get(group, EXTENT, &key(object, 0)).unwrap().unwrap();
    let too_far = u64::MAX / size as u64;
    for (table, block, value) in [
        (EXTENT, 3, value.clone()),
        (INLINE_BLOCK, 12, vec![1; size + 1]),
        (INLINE_BLOCK, too_far, vec![1; 7]),
    ] {
        let mut tx = Tx::new();
        tx.put(group, table, key(object, block), value);
        volume.store.commit(tx).unwrap();
        if block < too_far {
            let read = volume.extents.read(object, 0, &mut vec![0; 13 * size]);
            assert!(read.is_err_and(|error| is_corrupt(&error)), "block {block} is read");
            let kept = volume.extents.preallocate(&mut Tx::new(), object, (0, 13), 64, None).map(|_| ());
            assert!(kept.is_err_and(|error| is_corrupt(&error)), "space is kept at block {block}");
            let written = volume.extents.append(object, Hint::default(), 0, &vec![7; 13 * size], 0);
            let inserted =
                written.and_then(|written| volume.extents.insert(&mut Tx::new(), written).map(|_| ()));
            assert!(inserted.is_err_and(|error| is_corrupt(&error)), "block {block} is written");
        }
        let removed =
            volume.extents.remove(&mut Tx::new(), object, (0, u64::MAX), 7, FileClass::default()).map(|_| ());
        assert!(removed.is_err_and(|error| is_corrupt(&error)), "block {block} is removed");
        let next = volume.extents.next_data(object, 11 * size as u64);
        assert!(block == 3 || next.is_err_and(|error| is_corrupt(&error)), "data is looked for at {block}");
        assert!(!volume.extents.check().unwrap().is_empty(), "the checker finds block {block}");
        let mut tx = Tx::new();
        tx.delete(group, table, key(object, block));
        volume.store.commit(tx).unwrap();
        volume.check();
    }
}

/// The data of the newest transaction are verified by the mount after a crash, for they may not have reached the
/// medium. A block that came wrong once, or whose zone went offline at this moment, made the transaction undone for
/// good, though it had been acknowledged.
#[test]
fn a_block_that_is_verified_wrong_once_undoes_nothing() {
    for effect in [Effect::Error, Effect::FlipBit(5), Effect::FlipBit(4096 * 8 + 3), Effect::TurnOffline] {
        let volume = Volume::new(Spec::power_of_two());
        volume.device.record();
        volume.write(1, 0, &[5; 3 * 4096], 0).unwrap();
        volume.sync();
        let zone = data_zone(&volume);
        for nth in 1.. {
            let copy = Arc::new(volume.device.image(&emulated::CrashPlan::KeepAll));
            copy.inject(Fault::nth(CommandKind::Read, nth, effect).on(zone));
            let again = Volume::open(Arc::clone(&copy));
            if copy.failed_zones().is_empty() {
                assert!(nth > 2, "header and block are read: {effect:?}");
                break;
            }
            let mut found = vec![0; 3 * 4096];
            match again.extents.read(Object(1), 0, &mut found) {
                Ok(()) => assert!(found == [5; 3 * 4096], "{effect:?} at read {nth}"),
                Err(error) => assert_eq!(effect, Effect::TurnOffline, "read {nth}: {error}"),
            }
        }
    }
}
