//! The tables without the log, on devices that are whole but for it, and on devices that are not.

use zone::format::ZoneIdentity;
use zone::{Address, Life, Role, ZoneId, ZoneInfo, ZoneState};

use super::*;
use crate::Salvaged;
use crate::format::{PageKind, decode_page};
use crate::reclaim::Need;
use crate::types::NodeId;

/// What a salvage finds: contents with whether they are certain.
type Found = BTreeMap<(u16, u8, Bytes), (Bytes, bool)>;

fn salvage(device: &Arc<Emulated>) -> Salvaged {
    Salvaged::scan(device.clone(), &mut |_, _| ()).unwrap()
}

fn rows(salvaged: &Salvaged) -> Found {
    let mut found = Found::new();
    for group in 0..salvaged.groups() {
        for table in 1..3 {
            let mut last: Option<Bytes> = None;
            salvaged
                .rows(Group(group), Table(table), (&[], &[]), &mut |(key, value, certain)| {
                    assert!(last.as_ref().is_none_or(|last| last.as_slice() < key), "rows come in order");
                    last = Some(key.to_vec());
                    found.insert((group, table, key.to_vec()), (value.to_vec(), certain));
                    true
                })
                .unwrap();
        }
    }
    found
}

fn certain(model: &Contents, certain: bool) -> Found {
    model.iter().map(|(key, value)| (key.clone(), (value.clone(), certain))).collect()
}

/// Destroys everything in the zones of the log.
fn wipe_log(device: &Emulated) {
    for zone in 0..4 {
        let info = device.report_zone(ZoneId(zone)).unwrap();
        let mut block = vec![0; 4096];
        let is_log = device.read(ZoneId(zone), 0, &mut block).is_ok()
            && zone::format::decode_header(&block).is_ok_and(|(identity, _)| identity.role == Role::Log);
        let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
        (0..if is_log { end } else { 0 }).for_each(|block| device.spoil(ZoneId(zone), block));
    }
}

fn apply(model: &mut Contents, tx: &Tx) {
    for op in tx.ops().iter().cloned() {
        match op {
            Op::Put { group, table, key, value } => drop(model.insert((group.0, table.0, key), value)),
            Op::Delete { group, table, key } => drop(model.remove(&(group.0, table.0, key))),
            _ => {}
        }
    }
}

/// A store that has been used for a while: nodes cleaned, written out early, changed since. Returns what was
/// in the last checkpoint.
fn used(seed: u64, spec: Spec) -> (Arc<Emulated>, Contents) {
    let device = formatted(spec, &options());
    let (store, _) = open(&device).unwrap();
    let (mut rng, mut model) = (fastrand::Rng::with_seed(seed), Contents::new());
    let (mut saved, mut since) = (Contents::new(), Vec::new());
    for round in 0..6 {
        for _ in 0..rng.usize(50..400) {
            let (tx, taken) = (random_tx(&mut rng, &mut model, 900, 300), store.stats().checkpoints);
            store.commit(tx.clone()).unwrap();
            // A checkpoint that a commit has to take comes before its own effects.
            if store.stats().checkpoints > taken {
                since.drain(..).for_each(|tx| apply(&mut saved, &tx));
            }
            since.push(tx);
            if rng.u8(0..60) == 0 {
                store.core.write_out(&mut store.core.saving.lock()).unwrap();
            }
        }
        if round < 5 {
            store.checkpoint().unwrap();
            since.drain(..).for_each(|tx| apply(&mut saved, &tx));
            let cleaned = store.core.clean(&mut store.core.saving.lock(), Need::Should).unwrap();
            assert!(cleaned || round < 4, "something is moved");
        }
    }
    store.core.write_out(&mut store.core.saving.lock()).unwrap();
    (device, saved)
}

#[test]
fn without_the_log_the_last_checkpoint_is_found() {
    for seed in 0..8 {
        let (device, model) = used(seed, Spec::new(4096, 64, 64));
        wipe_log(&device);
        assert!(open(&device).is_err());
        let commands = device.commands();
        let salvaged = salvage(&device);
        assert!(salvaged.is_newest() && salvaged.cut() > Lsn(0), "seed {seed}");
        assert_eq!(salvaged.lost(), [], "seed {seed}");
        assert!(rows(&salvaged) == certain(&model, true), "seed {seed}");
        assert_eq!(salvaged.counts().nodes_lost, 0);
        assert_eq!(device.commands(), commands, "nothing is written");
    }
}

/// A zone of metadata without a header is told by the pages in it, and so nothing is missing for want of one block.
#[test]
fn what_is_in_a_zone_without_a_header_is_found() {
    let (device, model) = used(3, Spec::new(4096, 64, 64));
    device.record();
    let mut zones: Vec<ZoneId> = written(&device).into_iter().map(|(zone, _)| zone).collect();
    zones.dedup();
    assert!(zones.len() > 2);
    for zone in zones {
        let image = Arc::new(device.image(&CrashPlan::KeepAll));
        image.spoil(zone, 0);
        let salvaged = salvage(&image);
        assert_eq!(salvaged.lost(), [], "{zone:?}");
        let values =
            |found: Found| found.into_iter().map(|(key, (value, _))| (key, value)).collect::<Contents>();
        assert!(values(rows(&salvaged)) == model, "{zone:?}");
    }
}

#[test]
fn ranges_are_shown_as_asked_for() {
    let (device, model) = used(3, Spec::new(4096, 64, 64));
    let salvaged = salvage(&device);
    let (from, to) = (b"key 00000300".to_vec(), b"key 00000500".to_vec());
    let mut found = Vec::new();
    salvaged
        .rows(Group(1), Table(2), (&from, &to), &mut |(key, ..)| {
            found.push(key.to_vec());
            found.len() < 30
        })
        .unwrap();
    let keys = model.range((1, 2, from)..(1, 2, to)).map(|((.., key), _)| key.clone());
    assert_eq!(found, keys.take(30).collect::<Vec<_>>());
}

/// Pages of a kind in metadata zones.
fn pages(device: &Emulated, kind: PageKind) -> Vec<(ZoneId, u32)> {
    let mut found = Vec::new();
    for (zone, block) in written(device) {
        let mut page = vec![0; 4096];
        device.read(zone, block, &mut page).unwrap();
        let is_one = decode_page(&page, options().fs_id).is_some_and(|header| header.kind == kind as u8);
        found.extend(is_one.then_some((zone, block)));
    }
    found
}

/// Every block of the metadata zones that was written, headers too.
fn written(device: &Emulated) -> Vec<(ZoneId, u32)> {
    let mut found = Vec::new();
    for (index, info) in device.report().unwrap().into_iter().enumerate() {
        let (zone, mut block) = (ZoneId(index as u32), vec![0; 4096]);
        let header =
            device.read(zone, 0, &mut block).ok().and_then(|()| zone::format::decode_header(&block).ok());
        let is_one = header.is_some_and(|(identity, _)| identity.role == Role::Metadata);
        let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
        found.extend((0..if is_one { end } else { 0 }).map(|block| (zone, block)));
    }
    found
}

/// Without a MAT the nodes themselves tell where they belong; that is all right, but nobody can say so.
#[test]
fn without_a_mat_the_newest_copies_are_taken() {
    for seed in 0..6 {
        for kinds in [
            &[PageKind::MatChunk][..],
            &[PageKind::MatDirectory],
            &[PageKind::MatChunk, PageKind::MatDirectory],
        ] {
            let (device, model) = used(seed, Spec::new(4096, 64, 64));
            for (zone, block) in kinds.iter().flat_map(|kind| pages(&device, *kind)) {
                device.corrupt(zone, block, 2000, 255);
            }
            let found = rows(&salvage(&device));
            assert!(found == certain(&model, false), "seed {seed}, {kinds:?}");
        }
    }
}

/// Any blocks of metadata are destroyed. What is called certain is right, and what is missing is told.
#[test]
fn what_is_certain_is_right_and_what_is_missing_is_told() {
    let (mut certain, mut uncertain, mut missing, mut newest) = (0, 0, 0, 0);
    for seed in 0..150 {
        let (device, model) = used(seed % 15, Spec::new(4096, 64, 64));
        let mut rng = fastrand::Rng::with_seed(seed);
        let blocks = written(&device);
        for _ in 0..1 + seed % 12 {
            let (zone, block) = blocks[rng.usize(..blocks.len())];
            match rng.bool() {
                true => device.spoil(zone, block),
                false => device.corrupt(zone, block, rng.u32(0..4096), 1 << rng.u8(0..8)),
            }
        }
        let salvaged = salvage(&device);
        let (found, lost) = (rows(&salvaged), salvaged.lost());
        newest += u32::from(salvaged.is_newest());
        for (key, (value, is_certain)) in &found {
            if *is_certain {
                assert!(model.get(key) == Some(value), "seed {seed}: {key:?} is certain and wrong");
                certain += 1;
            } else {
                uncertain += 1;
            }
        }
        for key in model.keys().filter(|key| !found.contains_key(key)) {
            missing += 1;
            let (group, table, bytes) = key;
            let is_told = !salvaged.is_newest()
                || (lost.iter()).any(|range| range.group.0 == *group && range.touches(Table(*table), bytes));
            assert!(is_told, "seed {seed}: {key:?} is missing and nobody says so");
        }
    }
    assert!(certain > 10_000 && uncertain > 100 && missing > 100, "{certain} {uncertain} {missing}");
    assert!(newest > 20, "{newest} of 150 are known to be the newest");
}

/// A tree of three levels, all of it in a checkpoint; and a node of the middle one.
fn with_three_levels() -> (Arc<Emulated>, Contents, (NodeId, Address)) {
    let device = formatted(Spec::new(4096, 128, 64), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    for number in 0..40_000u32 {
        let mut tx = Tx::new();
        let key = [&number.to_be_bytes()[..], &[0; 300]].concat();
        tx.put(Group(0), Table(1), key.clone(), vec![1; 10]);
        if number % 10 == 0 {
            store.commit(tx).unwrap();
            model.insert((0, 1, key), vec![1; 10]);
        }
    }
    store.checkpoint().unwrap();
    let root = store.core.load(NodeId(1)).unwrap().unwrap().page();
    assert!(root.level() == 2, "three levels");
    let id = NodeId(root.child(1).0);
    let at = store.core.find(id).unwrap().0.at;
    (device, model, (id, at))
}

/// A node above the leaves is lost: all leaves are there, and the MAT names them.
#[test]
fn leaves_are_found_without_what_led_to_them() {
    let (device, model, (_, at)) = with_three_levels();
    device.spoil(at.zone(), at.block());
    let salvaged = salvage(&device);
    assert!(rows(&salvaged) == certain(&model, true));
    assert_eq!((salvaged.lost(), salvaged.counts().nodes_lost), (vec![], 1));
}

/// A node above the leaves is lost, and so is what says where nodes lie. The leaves tell by themselves where
/// they belong: nothing is certain, and still each row is there.
#[test]
fn leaves_are_found_without_what_led_to_them_and_without_a_mat() {
    let (device, model, (above, _)) = with_three_levels();
    let is_of_it = |&(zone, block): &(ZoneId, u32)| {
        let mut page = vec![0; 4096];
        device.read(zone, block, &mut page).unwrap();
        decode_page(&page, options().fs_id).is_some_and(|header| header.id.get() == above.0)
    };
    // All that was ever written of that node.
    let of_it = pages(&device, PageKind::Node).into_iter().filter(is_of_it);
    let lost: Vec<_> = of_it.chain(pages(&device, PageKind::MatChunk)).collect();
    lost.into_iter().for_each(|(zone, block)| device.spoil(zone, block));
    let salvaged = salvage(&device);
    assert!(rows(&salvaged) == certain(&model, false));
    assert!(!salvaged.lost().is_empty(), "and that something may be missing is told");
}

/// A crash undoes what an epoch wrote early; it stands there still, and is not taken for what followed.
#[test]
fn what_a_crash_has_undone_stays_undone() {
    let device = formatted(Spec::new(4096, 64, 64), &options());
    let put = |store: &Store, number: u32, value: u8| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes().to_vec(), vec![value; 200]);
        store.commit(tx).unwrap();
    };
    let (store, _) = open(&device).unwrap();
    (0..300).for_each(|number| put(&store, number, 1));
    store.checkpoint().unwrap();
    // Never synced, but its nodes are on the device.
    (0..300).for_each(|number| put(&store, number, 9));
    store.core.write_out(&mut store.core.saving.lock()).unwrap();
    drop(store);
    let (store, _) = open(&device).unwrap();
    let model = contents(&store);
    put(&store, 1000, 2);
    store.checkpoint().unwrap();
    let model: Contents =
        model.into_iter().chain([((0, 1, 1000u32.to_be_bytes().to_vec()), vec![2; 200])]).collect();
    drop(store);
    wipe_log(&device);
    assert!(rows(&salvage(&device)) == certain(&model, true));
}

#[test]
fn what_is_no_volume_is_refused() {
    let device = Arc::new(Emulated::new(Spec::new(4096, 64, 64)));
    let refused =
        |device: Arc<Emulated>| Salvaged::scan(device, &mut |_, _| ()).map(drop).unwrap_err().to_string();
    assert!(refused(device).contains("no zone has a header"));
    let (device, _) = used(1, Spec::new(4096, 64, 64));
    written(&device).into_iter().for_each(|(zone, block)| device.spoil(zone, block));
    assert!(refused(device).contains("no page of metadata"));
}

/// A volume was made on a disk that still holds most zones of an older one, and the states of the zones are lost: every
/// zone reads as it was last written. Salvage gave back the older volume, or nothing.
#[test]
fn zones_of_an_older_volume_do_not_outvote_the_one_with_a_log() {
    let (device, model) = used(1, Spec::new(4096, 64, 64));
    let report = device.report().unwrap();
    let is_empty = |(zone, info): &(ZoneId, &ZoneInfo)| zone.0 >= 4 && info.state == ZoneState::Empty;
    let stale: Vec<ZoneId> = (0..).map(ZoneId).zip(&report).filter(is_empty).map(|(zone, _)| zone).collect();
    let ours = report.iter().filter(|info| info.state != ZoneState::Empty).count();
    assert!(stale.len() > ours, "{} zones of the older volume, {ours} of the other", stale.len());
    for zone in stale {
        let (fs_id, role) = (FsId([8; 16]), if zone.0 % 2 == 0 { Role::Metadata } else { Role::Data });
        let identity = ZoneIdentity { fs_id, zone, life: Life(1), role };
        device.append(zone, &zone::format::encode_header(&identity, device.geometry())).unwrap();
        device.finish(zone).unwrap();
    }
    let salvaged = salvage(&device);
    assert_eq!(salvaged.fs_id(), FsId([7; 16]));
    assert!(rows(&salvaged) == certain(&model, true));
}

/// The power goes after any command, and then the log is lost. What is called the newest is not older than the
/// last checkpoint that was acknowledged; what is certain is what stood at that cut; what is missing is told.
#[test]
fn after_any_crash_what_is_certain_is_what_a_checkpoint_had() {
    let device = formatted(Spec::tiny(), &options());
    device.record();
    let (store, recovery) = open(&device).unwrap();
    let (mut rng, mut model) = (fastrand::Rng::with_seed(11), Contents::new());
    let mut after = BTreeMap::from([(recovery.last, Contents::new())]);
    let mut acknowledged = vec![(0, Lsn(0))];
    for round in 0..60 {
        let lsn = store.commit(random_tx(&mut rng, &mut model, 60, 700)).unwrap();
        after.insert(lsn, model.clone());
        match round % 10 {
            4 => store.core.write_out(&mut store.core.saving.lock()).unwrap(),
            9 => {
                store.checkpoint().unwrap();
                acknowledged.push((device.commands(), lsn));
            }
            _ => {}
        }
    }
    drop(store);
    let (mut states, mut newest, mut whole) = (0, 0, 0);
    for n in 0..=device.commands() {
        let oldest = acknowledged.iter().rev().find(|(commands, _)| *commands <= n).unwrap().1;
        for plan in device.plans_at(n) {
            let image = Arc::new(device.image_at(n, &plan));
            let told = format!("after command {n}, {plan:?}");
            let salvaged = salvage(&image);
            let (found, lost) = (rows(&salvaged), salvaged.lost());
            states += 1;
            if !salvaged.is_newest() {
                assert!(found.values().all(|(_, certain)| !certain), "{told}");
                continue;
            }
            newest += 1;
            assert!(salvaged.cut() >= oldest, "{told}: {:?} is older than {oldest:?}", salvaged.cut());
            let at_cut = after.range(..=salvaged.cut()).next_back().unwrap().1;
            let is_lost = |(group, table, key): &(u16, u8, Bytes)| {
                lost.iter().any(|range| range.group.0 == *group && range.touches(Table(*table), key))
            };
            for (key, (value, _)) in found.iter().filter(|(_, (_, certain))| *certain) {
                assert!(at_cut.get(key) == Some(value), "{told}: {key:?} is certain and wrong");
            }
            assert!(at_cut.keys().all(|key| found.contains_key(key) || is_lost(key)), "{told}");
            whole += u32::from(lost.is_empty());
        }
    }
    assert!(newest > states / 2 && whole > states / 2, "{states} states, {newest} newest, {whole} whole");
}
