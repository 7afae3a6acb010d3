use super::*;
use emulated::{CommandKind, Effect, Fault};
use polder_extent::ExtentError;
use zone::{ZoneId, ZoneState};

fn data_zone(volume: &Volume) -> ZoneId {
    let zones = volume.store.pool().in_role(zone::Role::Data);
    *zones.iter().max_by_key(|&&zone| volume.store.pool().entry(zone).live).unwrap()
}

/// The address of the object's first block.
fn first_block_of(volume: &Volume, object: u64) -> (ZoneId, u32) {
    let group = volume.store.group_of(object);
    let key = extent::format::key(Object(object), 0);
    let value = volume.store.get(group, extent::format::EXTENT, &key).unwrap().unwrap();
    let extent = extent::format::Extent::decode(&value).unwrap();
    (extent.address.zone(), extent.address.block())
}

#[test]
fn a_failed_append_causes_no_error() {
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

/// The append that found the host full left its failed zone open.
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

/// A host had no space for the next zone, and programs got EIO. So did `fsync`, because of background moves.
#[test]
fn no_space_on_the_host_for_a_zone_is_no_space_on_the_volume() {
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

/// The host had no space for another zone, and files of a class without a zone got ENOSPC, though the open zone was
/// nearly empty.
#[test]
fn if_the_host_has_no_space_for_another_zone_the_open_zone_takes_all_writes() {
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
    volume.extents.maps().read(Object(1), 0, &mut found).unwrap();
    for (at, bad) in [(0, 3), (3, 3), (4, 5)] {
        let mut found = vec![0; 4 * 4096];
        match volume.extents.maps().read(Object(1), at * 4096, &mut found) {
            Err(ExtentError::Lost { object: 1, block, .. }) => {
                assert!(block == bad || block == 4 && bad == 5)
            }
            other => panic!("{other:?}"),
        }
    }
    volume.extents.maps().read(Object(1), 6 * 4096, &mut vec![0; 4 * 4096]).unwrap();
    let found = extent::check_data(&volume.extents, true).unwrap();
    let reported: Vec<_> = found.into_iter().map(|finding| (finding.kind, finding.of.unwrap())).collect();
    let data = extent::FindingKind::Data;
    assert_eq!(reported, [(data, (Object(1), 3..4)), (data, (Object(1), 5..6))]);
}

/// Does all pieces of a scrub, and calls `meanwhile` between them.
fn scrub(volume: &Volume, bytes: u64, mut meanwhile: impl FnMut()) -> extent::Scrubbed {
    let (mut at, mut all) = (extent::DataScrub::default(), extent::Scrubbed::default());
    while !all.done {
        let some = extent::scrub_step(volume.extents.maps(), &mut at, bytes).unwrap();
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
    let reported: Vec<_> = found.iter().map(|finding| finding.of.clone().unwrap()).collect();
    assert_eq!(reported, [(Object(7), 1..3), (Object(7), 5..6)]);
    assert!(found[0].what.starts_with("object 7 blocks 1 to 2 cannot be read"), "{found:?}");
    volume.write(7, 4096, &vec![1; 5 * 4096], 7 * 4096).unwrap();
    assert_eq!(scrub(&volume, 5000, || ()).findings, [], "it was overwritten");
}

/// Writers and GC change everything during the scrub.
#[test]
fn blocks_that_are_overwritten_or_moved_during_a_scrub_are_no_finding() {
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
    assert!(volume.extents.collector().stats().blocks_moved > 0, "{:?}", volume.extents.collector().stats());
    volume.check();
}

/// A full zone has a footer and needs no repair. But if it becomes read-only, GC moves its live blocks before it goes
/// offline, and it is never written again.
#[test]
fn live_blocks_of_a_full_read_only_zone_are_moved_after_the_next_mount() {
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
    assert!(volume.extents.collector().stats().blocks_moved > 0);
    volume.verify(&model);
    volume.device.set_zone_state(zone, ZoneState::Offline);
    volume.verify(&model);
}

/// A buffer that still has the right bytes from another read does not make a failed read succeed.
#[test]
fn a_block_of_an_offline_zone_cannot_be_read_whatever_the_buffer_contains() {
    let volume = Volume::new(Spec::power_of_two());
    let data = [7; 10 * 4096];
    volume.write(1, 0, &data, 0).unwrap();
    volume.sync();
    let mut buffer = data;
    volume.extents.maps().read(Object(1), 0, &mut buffer).unwrap();
    let (zone, _) = first_block_of(&volume, 1);
    volume.device.set_zone_state(zone, ZoneState::Offline);
    assert_eq!(buffer, data);
    for length in [1, 4096, 3 * 4096, data.len()] {
        volume.extents.maps().read(Object(1), 0, &mut buffer[..length]).unwrap_err();
        buffer = data;
    }
}

/// Objects of ten blocks. There are enough of them that a full volume needs their zones.
const PINNING: [u64; 6] = [11, 12, 13, 14, 15, 16];

/// A volume with each of these objects in another zone, from which not all blocks can be moved. Returns the address of
/// each object.
fn with_pinned_zones(pin: impl Fn(&Volume, ZoneId, u32)) -> (Volume, Vec<(ZoneId, u32)>) {
    let (volume, mut places) = (Volume::new(Spec::power_of_two()), Vec::new());
    // Other writes go to the same zones, and fill them.
    for object in PINNING {
        // The first write may have taken the rest of a zone, and two extents.
        for _ in 0..2 {
            volume.write(object, 0, &[object as u8; 10 * 4096], 0).unwrap();
            if extent::view_object(volume.extents.maps(), Object(object)).unwrap().len() == 1 {
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
    // GC would not choose the zone of these blocks while other zones die as a whole.
    while volume.extents.collector().manual_gc().unwrap() {}
}

/// The unreadable blocks among the first ten of each object. The others are compared.
fn unreadable(volume: &Volume) -> Vec<(u64, u64)> {
    let is_lost = |&(object, block): &(u64, u64)| {
        let mut found = vec![0; 4096];
        match volume.extents.maps().read(Object(object), block * 4096, &mut found) {
            Err(ExtentError::Lost { .. }) => return true,
            read => read.unwrap(),
        }
        assert!(found.iter().all(|&found| found == object as u8), "object {object} block {block}");
        false
    };
    PINNING.iter().flat_map(|&object| (0..10).map(move |block| (object, block))).filter(is_lost).collect()
}

/// Writes until the volume is full. Returns the number of blocks.
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

/// Overwrites the object until GC must have reclaimed every zone.
fn write_over(volume: &Volume, object: u64, blocks: u64) {
    let mut rng = Rng::with_seed(5);
    for _ in 0..4 * blocks {
        let block = rng.u64(0..blocks);
        volume.write(object, block * 4096, &[9; 4096], blocks * 4096).unwrap();
    }
}

/// A cable was loose during two reads, and all blocks that GC moved in this moment became lost for good: files that
/// could be read before and after had holes of EIO. Now unreadable blocks stay until their zone is needed.
#[test]
fn blocks_that_are_unreadable_for_a_while_are_not_lost() {
    let (volume, places) = with_pinned_zones(|volume, zone, _| {
        volume.device.inject(Fault::nth(CommandKind::Read, 1, Effect::Error).on(zone).forever());
    });
    assert_eq!(unreadable(&volume).len(), 10 * PINNING.len());
    let places_now = || PINNING.iter().map(|&object| first_block_of(&volume, object)).collect::<Vec<_>>();
    assert_eq!(places_now(), places, "they were not moved");
    assert_eq!(volume.extents.collector().outlook_now().zones_to_reclaim, 0, "GC reports no zone to reclaim");
    volume.device.clear_faults();
    assert_eq!(unreadable(&volume), [], "no block is lost");
    // When no other zone is left, they are read again, and moved.
    let blocks = fill(&volume, 3);
    write_over(&volume, 3, blocks);
    assert_ne!(places_now(), places, "a zone was needed");
    assert_eq!(volume.extents.collector().stats().blocks_lost, 0);
    assert_eq!(unreadable(&volume), []);
    assert_eq!(extent::check_data(&volume.extents, true).unwrap(), []);
    assert_eq!(extent::check(&volume.extents).unwrap(), []);
}

#[test]
fn unreadable_blocks_become_lost_when_their_zone_is_needed() {
    let (volume, places) = with_pinned_zones(|volume, zone, block| {
        volume.device.make_unreadable(zone, block + 3);
        volume.device.corrupt(zone, block + 7, 9, 64);
    });
    let damaged: Vec<_> = PINNING.iter().flat_map(|&object| [(object, 3), (object, 7)]).collect();
    assert_eq!(unreadable(&volume), damaged);
    assert_eq!(extent::lost(volume.extents.maps()).unwrap(), [], "the zones are not needed");
    let live: Vec<_> = places.iter().map(|&(zone, _)| volume.store.pool().entry(zone).live).collect();
    assert_eq!(live, [2; PINNING.len()], "readable blocks were moved");
    let blocks = fill(&volume, 3);
    write_over(&volume, 3, blocks);
    assert_eq!(unreadable(&volume), damaged);
    let lost = extent::lost(volume.extents.maps()).unwrap();
    let reported = lost.iter().map(|finding| finding.of.clone().unwrap());
    let reported: Vec<_> = reported.map(|(object, blocks)| (object.0, blocks.start)).collect();
    assert!(!lost.is_empty() && lost.iter().all(|finding| finding.kind == extent::FindingKind::Lost));
    assert!(reported.iter().all(|block| damaged.contains(block)), "{reported:?}");
    assert_eq!(volume.extents.collector().stats().blocks_lost, reported.len() as u64);
    // After an overwrite, it can be read again.
    let (object, block) = reported[0];
    volume.truncate(3, 0).unwrap();
    volume.write(object, block * 4096, &[object as u8; 4096], 10 * 4096).unwrap();
    assert_eq!(unreadable(&volume).len(), damaged.len() - 1);
    volume.check();
}

/// Every second zone has unreadable blocks. They do not become lost as long as other zones can be reclaimed. They do
/// when GC has no other victim, so that no writer with a reservation is refused.
#[test]
fn many_unreadable_zones_do_not_reduce_the_space_of_writers() {
    let volume = Volume::new(Spec::power_of_two());
    let blocks = fill(&volume, 3);
    let mut zones = volume.store.pool().in_role(zone::Role::Data);
    zones.retain(|zone| volume.store.pool().entry(*zone).live > 0);
    zones
        .iter()
        .step_by(2)
        .for_each(|&zone| (1..8).for_each(|at| volume.device.make_unreadable(zone, at * 20)));
    write_over(&volume, 3, blocks);
    assert!(volume.extents.collector().stats().blocks_moved > 0);
    assert!(volume.extents.collector().stats().blocks_lost > 0, "their zones were needed");
    assert_eq!(extent::check(&volume.extents).unwrap(), vec![], "the checker finds nothing");
}

/// A volume with zones that are half dead, and one without a footer that has object 1.
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
fn while_zones_are_plentiful_gc_reclaims_only_the_zone_without_footer() {
    let (volume, zone) = with_a_zone_without_footer();
    volume.step(50);
    assert_eq!(volume.extents.collector().stats().zones_reclaimed, 1);
    assert_ne!(first_block_of(&volume, 1).0, zone);
    assert_eq!(volume.extents.step().unwrap(), tree::Step::Idle);
    volume.check();
}

/// A zone whose garbage collection failed was selected again at once, and for ever. It is left alone.
#[test]
fn a_victim_whose_moves_fail_is_postponed() {
    use polder_extent::format::{EXTENT, Extent, key};
    let (volume, zone) = with_a_zone_without_footer();
    let group = volume.store.group_of(1);
    let value = volume.store.get(group, EXTENT, &key(Object(1), 0)).unwrap().unwrap();
    let extent = Extent::decode(&value).unwrap();
    let beyond_device = zone::Address::new(ZoneId(volume.store.pool().count()), 5, zone::Life(1));
    let mut tx = Tx::new();
    tx.put(group, EXTENT, key(Object(1), 3), Extent { address: beyond_device, ..extent }.encode());
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
        let mut kinds: Vec<_> =
            extent::check(&volume.extents).unwrap().iter().map(|finding| finding.kind).collect();
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

/// An extent in a zone that does not exist passed the decoder, and caused an index out of bounds later. It is damage.
#[test]
fn an_extent_outside_of_all_zones_is_damage() {
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
            let read = volume.extents.maps().read(Object(1), block * 4096, &mut vec![0; 4096]);
            let corrupt = matches!(&read, Err(ExtentError::Store(tree::StoreError::Corrupt(_))));
            assert!(corrupt, "{read:?}");
        }
        let removed = volume
            .extents
            .remove(&mut Tx::new(), Object(1), (15, u64::MAX), 7, FileClass::default())
            .map(|(_, done)| done);
        let corrupt = matches!(&removed, Err(ExtentError::Store(tree::StoreError::Corrupt(_))));
        assert!(corrupt, "{removed:?}");
        assert!(!extent::check_data(&volume.extents, true).unwrap().is_empty());
        volume.extents.maps().read(Object(1), 0, &mut vec![0; 10 * 4096]).unwrap();
        let mut tx = Tx::new();
        tx.delete(group, EXTENT, key(Object(1), block));
        volume.store.commit(tx).unwrap();
    }
    volume.check();
}

#[test]
fn records_that_contradict_each_other_are_damage_for_every_operation() {
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
            let read = volume.extents.maps().read(object, 0, &mut vec![0; 13 * size]);
            assert!(read.is_err_and(|error| is_corrupt(&error)), "block {block} is read");
            let preallocated =
                volume.extents.preallocate(&mut Tx::new(), object, (0, 13), 64, None).map(|_| ());
            assert!(preallocated.is_err_and(|error| is_corrupt(&error)), "block {block} is preallocated");
            let written = volume.extents.append(object, Hint::default(), 0, &vec![7; 13 * size], 0);
            let inserted =
                written.and_then(|written| volume.extents.insert(&mut Tx::new(), written).map(|_| ()));
            assert!(inserted.is_err_and(|error| is_corrupt(&error)), "block {block} is written");
        }
        let removed =
            volume.extents.remove(&mut Tx::new(), object, (0, u64::MAX), 7, FileClass::default()).map(|_| ());
        assert!(removed.is_err_and(|error| is_corrupt(&error)), "block {block} is removed");
        let next = volume.extents.maps().next_data(object, 11 * size as u64);
        assert!(block == 3 || next.is_err_and(|error| is_corrupt(&error)), "data is looked for at {block}");
        assert!(!extent::check(&volume.extents).unwrap().is_empty(), "the checker finds block {block}");
        let mut tx = Tx::new();
        tx.delete(group, table, key(object, block));
        volume.store.commit(tx).unwrap();
        volume.check();
    }
}

/// A mount after a crash verifies the data of the newest transactions, because it may not have reached the medium. If
/// one read of a block was wrong, or if its zone went offline at this moment, the transaction was undone for good,
/// although it had been acknowledged.
#[test]
fn a_block_that_is_wrong_in_one_read_undoes_no_transaction() {
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
            match again.extents.maps().read(Object(1), 0, &mut found) {
                Ok(()) => assert!(found == [5; 3 * 4096], "{effect:?} at read {nth}"),
                Err(error) => assert_eq!(effect, Effect::TurnOffline, "read {nth}: {error}"),
            }
        }
    }
}
