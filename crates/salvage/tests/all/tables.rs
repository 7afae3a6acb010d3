//! Tables of a metadata store without its log, undamaged otherwise or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec};
use rt::random::Rng;
use salvage::Tables;
use tree::decode::{PageKind, page_header};
use tree::{
    Bytes, Client, Config, FormatOptions, Group, Lsn, NodeEntry, NodeView, Op, Recovery, Replay, Reserve,
    Result, Store, Table, Tx,
};
use zone::format::ZoneIdentity;
use zone::{Device, FsId, Life, Role, ZoneId, ZoneInfo, ZoneState};

/// All rows of a store.
type Contents = BTreeMap<(u16, u8, Bytes), Bytes>;

/// The rows that salvage finds, each with whether it is certain.
type Found = BTreeMap<(u16, u8, Bytes), (Bytes, bool)>;

const FS_ID: FsId = FsId([7; 16]);
/// So small that nodes are written between checkpoints, whenever 16 are dirty.
const CACHE_BYTES: u64 = 64 << 10;

/// A user of the store that has no data of its own.
struct Plain;

impl Client for Plain {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        Bytes::new()
    }
}

impl Replay for Plain {
    fn checkpoint(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self, _ops: &[Op]) -> Result<bool> {
        Ok(true)
    }

    fn apply(&mut self, _ops: &[Op]) {}
}

fn formatted(spec: Spec) -> Arc<Emulated> {
    let device = Arc::new(Emulated::new(spec));
    let as_device: Arc<dyn Device> = device.clone();
    let (label, reserve) = ("test".into(), Reserve::default());
    let options = FormatOptions { fs_id: FS_ID, label, page_size: 4096, groups: 3, created_ns: 5, reserve };
    Store::format(&as_device, &options).unwrap();
    device
}

fn open(device: &Arc<Emulated>) -> Result<(Store, Recovery)> {
    let config = Config { cache_bytes: CACHE_BYTES, read_only: false, accept_loss: false };
    let (store, recovery) = Store::open(device.clone(), &config, &mut Plain)?;
    store.set_client(Arc::new(Plain));
    Ok((store, recovery))
}

/// Reads all rows through the checker, which must find nothing.
fn contents(store: &Store) -> Contents {
    let mut all = Contents::new();
    let mut each = |group: Group, table: Table, key: &[u8], value: &[u8]| {
        all.insert((group.0, table.0, key.to_vec()), value.to_vec());
    };
    assert_eq!(store.check(&mut each).unwrap(), vec![], "the checker finds nothing");
    all
}

/// A random transaction with so few different keys that some are used again. Applies it to the model.
fn random_tx(rng: &mut Rng, model: &mut Contents, keys: u32, value_max: usize) -> Tx {
    let mut tx = Tx::new();
    for _ in 0..rng.usize(1..6) {
        let (group, table) = (rng.u16(0..3), rng.u8(1..3));
        let key = format!("key {:08}", rng.u32(0..keys)).into_bytes();
        if rng.u8(0..3) == 0 {
            tx.delete(Group(group), Table(table), key);
        } else {
            tx.put(Group(group), Table(table), key, vec![rng.u8(..); rng.usize(0..value_max)]);
        }
    }
    apply(model, &tx);
    tx
}

fn apply(model: &mut Contents, tx: &Tx) {
    for op in tx.ops().iter().cloned() {
        match op {
            Op::Put { group, table, key, value } => {
                drop(model.insert((group.0, table.0, key.into_vec()), value))
            }
            Op::Delete { group, table, key } => drop(model.remove(&(group.0, table.0, key.into_vec()))),
            _ => {}
        }
    }
}

/// Nodes that were written so far, whole or as delta records.
fn written_nodes(store: &Store) -> u64 {
    let stats = store.stats();
    stats.nodes_written + stats.deltas_written
}

fn salvage(device: &Arc<Emulated>) -> Tables {
    Tables::scan(device.clone(), &mut |_, _| ()).unwrap()
}

fn rows(tables: &Tables) -> Found {
    let mut found = Found::new();
    for group in 0..tables.groups() {
        for table in 1..3 {
            let mut last: Option<Bytes> = None;
            tables
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

/// These rows, all of them certain or none.
fn certain(model: &Contents, certain: bool) -> Found {
    model.iter().map(|(key, value)| (key.clone(), (value.clone(), certain))).collect()
}

/// Destroys all blocks of the log zones.
fn wipe_log(device: &Emulated) {
    for zone in 0..4 {
        let info = device.report_zone(ZoneId(zone)).unwrap();
        let mut block = vec![0; 4096];
        let is_log = device.read(ZoneId(zone), 0, &mut block).is_ok()
            && zone::format::decode_header(&block).is_ok_and(|(identity, _)| identity.role == Role::Log);
        let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
        (0..if is_log { end } else { 0 }).for_each(|block| device.make_unreadable(ZoneId(zone), block));
    }
}

/// A store after some use: nodes were moved by garbage collection, and written before the checkpoint that includes them.
/// Also the contents of its last checkpoint.
fn used(seed: u64, spec: Spec) -> (Arc<Emulated>, Contents) {
    let device = formatted(spec);
    let (store, _) = open(&device).unwrap();
    let (mut rng, mut model) = (Rng::with_seed(seed), Contents::new());
    let (mut saved, mut since) = (Contents::new(), Vec::new());
    let mut early = 0;
    for round in 0..6 {
        for _ in 0..rng.usize(50..400) {
            let (tx, before) = (random_tx(&mut rng, &mut model, 900, 300), store.stats());
            store.commit(tx.clone()).unwrap();
            // A checkpoint that a commit takes does not include the commit.
            if store.stats().checkpoints > before.checkpoints {
                since.drain(..).for_each(|tx| apply(&mut saved, &tx));
            } else {
                early += written_nodes(&store) - before.nodes_written - before.deltas_written;
            }
            since.push(tx);
        }
        if round < 5 {
            store.checkpoint().unwrap();
            since.drain(..).for_each(|tx| apply(&mut saved, &tx));
            let is_moved = store.collect_garbage().unwrap();
            assert!(is_moved || round < 4, "garbage collection moves nodes");
        }
    }
    assert!(early > 100, "{early} nodes are written between checkpoints");
    (device, saved)
}

#[test]
fn the_last_checkpoint_is_found_without_the_log() {
    for seed in 0..8 {
        let (device, model) = used(seed, Spec::new(4096, 64, 64));
        wipe_log(&device);
        assert!(open(&device).is_err());
        let commands = device.commands();
        let tables = salvage(&device);
        assert!(tables.is_newest() && tables.cut() > Lsn(0), "seed {seed}");
        assert_eq!(tables.lost(), [], "seed {seed}");
        assert!(rows(&tables) == certain(&model, true), "seed {seed}");
        assert_eq!(tables.counts().nodes_lost, 0);
        assert_eq!(device.commands(), commands, "nothing is written");
    }
}

/// Garbage collection has moved nodes, and the power is cut before a checkpoint names their new places.
#[test]
fn rows_stay_certain_while_garbage_collection_moves_nodes() {
    let (device, _) = used(1, Spec::new(4096, 64, 64));
    let (store, _) = open(&device).unwrap();
    store.checkpoint().unwrap();
    let (model, moved) = (contents(&store), store.stats().nodes_moved);
    device.record();
    assert!(store.collect_garbage().unwrap() && store.stats().nodes_moved > moved);
    for n in 0..=device.commands() {
        let image = Arc::new(device.image_at(n, &CrashPlan::KeepAll));
        assert!(rows(&salvage(&image)) == certain(&model, true), "after command {n}");
    }
}

/// A metadata zone without a header is recognised by the pages in it. So the loss of one block makes no row missing.
#[test]
fn pages_in_a_zone_without_a_header_are_found() {
    let (device, model) = used(3, Spec::new(4096, 64, 64));
    device.record();
    let mut zones: Vec<ZoneId> = written(&device).into_iter().map(|(zone, _)| zone).collect();
    zones.dedup();
    assert!(zones.len() > 2);
    for zone in zones {
        let image = Arc::new(device.image(&CrashPlan::KeepAll));
        image.make_unreadable(zone, 0);
        let tables = salvage(&image);
        assert_eq!(tables.lost(), [], "{zone:?}");
        let values =
            |found: Found| found.into_iter().map(|(key, (value, _))| (key, value)).collect::<Contents>();
        assert!(values(rows(&tables)) == model, "{zone:?}");
    }
}

#[test]
fn rows_of_a_range_are_returned_until_the_caller_stops() {
    let (device, model) = used(3, Spec::new(4096, 64, 64));
    let tables = salvage(&device);
    let (from, to) = (b"key 00000300".to_vec(), b"key 00000500".to_vec());
    let mut found = Vec::new();
    tables
        .rows(Group(1), Table(2), (&from, &to), &mut |(key, ..)| {
            found.push(key.to_vec());
            found.len() < 30
        })
        .unwrap();
    let keys = model.range((1, 2, from)..(1, 2, to)).map(|((.., key), _)| key.clone());
    assert_eq!(found, keys.take(30).collect::<Vec<_>>());
}

/// The positions of pages of a kind in metadata zones.
fn pages(device: &Emulated, kind: PageKind) -> Vec<(ZoneId, u32)> {
    let mut found = Vec::new();
    for (zone, block) in written(device) {
        let mut page = vec![0; 4096];
        device.read(zone, block, &mut page).unwrap();
        let is_one = page_header(&page, FS_ID).is_some_and(|header| header.kind == kind as u8);
        found.extend(is_one.then_some((zone, block)));
    }
    found
}

/// All written blocks of the metadata zones, headers included.
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

/// Without a MAT, the newest copies of the nodes give the right rows, but nothing proves that they are right.
#[test]
fn newest_copies_are_used_without_a_mat() {
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

/// Random blocks of metadata are destroyed. Rows that are certain are right, and missing rows are in a range that is
/// reported.
#[test]
fn certain_rows_are_right_and_missing_rows_are_reported() {
    let (mut certain, mut uncertain, mut missing, mut newest) = (0, 0, 0, 0);
    for seed in 0..150 {
        let (device, model) = used(seed % 15, Spec::new(4096, 64, 64));
        let mut rng = Rng::with_seed(seed);
        let blocks = written(&device);
        for _ in 0..1 + seed % 12 {
            let (zone, block) = blocks[rng.usize(..blocks.len())];
            match rng.bool() {
                true => device.make_unreadable(zone, block),
                false => device.corrupt(zone, block, rng.u32(0..4096), 1 << rng.u8(0..8)),
            }
        }
        let tables = salvage(&device);
        let (found, lost) = (rows(&tables), tables.lost());
        newest += u32::from(tables.is_newest());
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
            let is_reported = !tables.is_newest()
                || (lost.iter()).any(|range| range.group.0 == *group && range.touches(Table(*table), bytes));
            assert!(is_reported, "seed {seed}: {key:?} is missing and not reported");
        }
    }
    assert!(certain > 10_000 && uncertain > 100 && missing > 100, "{certain} {uncertain} {missing}");
    assert!(newest > 20, "{newest} of 150 checkpoints are known to be the newest");
}

/// A tree of three levels at a checkpoint, and a node of the middle level.
fn with_three_levels() -> (Arc<Emulated>, Contents, NodeView) {
    let device = formatted(Spec::new(4096, 128, 64));
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
    let root = store.view_node(1).unwrap().unwrap();
    assert!(root.level == 2, "three levels");
    let NodeEntry::Child(_, id) = root.entries[1] else { panic!("an inner node leads to others") };
    (device, model, store.view_node(id).unwrap().unwrap())
}

/// An inner node is lost. Its leaves are there, and the MAT names them.
#[test]
fn leaves_are_found_without_the_node_above_them() {
    let (device, model, inner) = with_three_levels();
    device.make_unreadable(inner.address.zone(), inner.address.block());
    let tables = salvage(&device);
    assert!(rows(&tables) == certain(&model, true));
    assert_eq!((tables.lost(), tables.counts().nodes_lost), (vec![], 1));
}

/// An inner node and the MAT are lost. Each leaf shows by its keys where it belongs: all rows are found, but none is
/// certain.
#[test]
fn leaves_are_found_without_the_node_above_them_and_without_a_mat() {
    let (device, model, inner) = with_three_levels();
    let is_of_it = |&(zone, block): &(ZoneId, u32)| {
        let mut page = vec![0; 4096];
        device.read(zone, block, &mut page).unwrap();
        page_header(&page, FS_ID).is_some_and(|header| header.id == inner.id)
    };
    // All copies of that node.
    let of_it = pages(&device, PageKind::Node).into_iter().filter(is_of_it);
    let lost: Vec<_> = of_it.chain(pages(&device, PageKind::MatChunk)).collect();
    lost.into_iter().for_each(|(zone, block)| device.make_unreadable(zone, block));
    let tables = salvage(&device);
    assert!(rows(&tables) == certain(&model, false));
    assert!(!tables.lost().is_empty(), "ranges in which rows may be missing are reported");
}

/// A crash undoes changes whose nodes were already written. These nodes are still on the device, and must not be used.
#[test]
fn changes_that_a_crash_has_undone_are_not_found() {
    let device = formatted(Spec::new(4096, 64, 64));
    let put = |store: &Store, number: u32, value: u8| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes(), vec![value; 200]);
        store.commit(tx).unwrap();
    };
    let (store, _) = open(&device).unwrap();
    (0..300).for_each(|number| put(&store, number, 1));
    store.checkpoint().unwrap();
    // Never synced, but some nodes are written.
    let (nodes, checkpoints) = (written_nodes(&store), store.stats().checkpoints);
    (0..300).for_each(|number| put(&store, number, 9));
    assert!(written_nodes(&store) > nodes + 10 && store.stats().checkpoints == checkpoints);
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
fn a_device_without_a_volume_is_refused() {
    let device = Arc::new(Emulated::new(Spec::new(4096, 64, 64)));
    let refused =
        |device: Arc<Emulated>| Tables::scan(device, &mut |_, _| ()).map(drop).unwrap_err().to_string();
    assert!(refused(device).contains("no zone has a Polder header"));
    let (device, _) = used(1, Spec::new(4096, 64, 64));
    written(&device).into_iter().for_each(|(zone, block)| device.make_unreadable(zone, block));
    assert!(refused(device).contains("no metadata page"));
}

/// A volume was made on a disk that still has most zones of an older volume, and the states of the zones are lost: every
/// zone reads as it was last written. Salvage saved the older volume, or nothing.
#[test]
fn the_volume_with_a_log_counts_and_not_the_one_with_most_zones() {
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
    let tables = salvage(&device);
    assert_eq!(tables.fs_id(), FS_ID);
    assert!(rows(&tables) == certain(&model, true));
}

/// The power is cut after each command, and then the log is lost. A checkpoint that is reported as the newest is not older
/// than the last one that was acknowledged. Certain rows are those at its cut. Missing rows are reported.
#[test]
fn certain_rows_after_a_crash_are_those_of_a_checkpoint() {
    let device = formatted(Spec::tiny());
    device.record();
    let (store, recovery) = open(&device).unwrap();
    let (mut rng, mut model) = (Rng::with_seed(11), Contents::new());
    let mut after = BTreeMap::from([(recovery.last, Contents::new())]);
    let mut acknowledged = vec![(0, Lsn(0))];
    for round in 0..60 {
        let lsn = store.commit(random_tx(&mut rng, &mut model, 60, 700)).unwrap();
        after.insert(lsn, model.clone());
        if round % 10 == 9 {
            store.checkpoint().unwrap();
            acknowledged.push((device.commands(), lsn));
        }
    }
    drop(store);
    let (mut states, mut newest, mut whole) = (0, 0, 0);
    for n in 0..=device.commands() {
        let oldest = acknowledged.iter().rev().find(|(commands, _)| *commands <= n).unwrap().1;
        for plan in device.plans_at(n) {
            let image = Arc::new(device.image_at(n, &plan));
            let case = format!("after command {n}, {plan:?}");
            let tables = salvage(&image);
            let (found, lost) = (rows(&tables), tables.lost());
            states += 1;
            if !tables.is_newest() {
                assert!(found.values().all(|(_, certain)| !certain), "{case}");
                continue;
            }
            newest += 1;
            assert!(tables.cut() >= oldest, "{case}: {:?} is older than {oldest:?}", tables.cut());
            let at_cut = after.range(..=tables.cut()).next_back().unwrap().1;
            let is_lost = |(group, table, key): &(u16, u8, Bytes)| {
                lost.iter().any(|range| range.group.0 == *group && range.touches(Table(*table), key))
            };
            for (key, (value, _)) in found.iter().filter(|(_, (_, certain))| *certain) {
                assert!(at_cut.get(key) == Some(value), "{case}: {key:?} is certain and wrong");
            }
            assert!(at_cut.keys().all(|key| found.contains_key(key) || is_lost(key)), "{case}");
            whole += u32::from(lost.is_empty());
        }
    }
    assert!(newest > states / 2 && whole > states / 2, "{states} states, {newest} newest, {whole} whole");
}
