//! The store on a device whose commands fail, or whose blocks cannot be read.

use emulated::{CommandKind, Effect, Fault};
use pool::MetadataZone;
use rt::sync::atomic::Ordering;
use zone::{Address, Role, ZoneId, ZoneState};

use super::*;
use crate::types::NodeId;
use crate::{StoreError, ZoneEntry};

fn put(store: &Store, model: &mut Contents, number: u32, value: u8) {
    let (key, value) = (number.to_be_bytes().to_vec(), vec![value; 900]);
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), key.clone(), value.clone());
    model.insert((0, 1, key), value);
    store.commit(tx).unwrap();
}

/// A store with nodes in several metadata zones, many of them dead, all written by a checkpoint.
fn with_dead_nodes() -> (Arc<Emulated>, Store, Contents) {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    (0..1200).for_each(|number| put(&store, &mut model, number, 1));
    store.checkpoint().unwrap();
    (0..300).for_each(|round: u32| put(&store, &mut model, round * 7919 % 1200, 2));
    store.checkpoint().unwrap();
    (device, store, model)
}

/// Where each node lies.
fn places(store: &Store) -> BTreeMap<Address, NodeId> {
    let ids = (0..store.core.nodes.mat.next_node()).map(NodeId);
    let placed = ids.flat_map(|id| {
        let place = store.core.nodes.find(id).unwrap().0;
        [(place.at, id), (place.base, id)]
    });
    placed.filter(|(at, _)| !at.is_none()).collect()
}

/// The next victim of GC, and the addresses of the pages written there.
fn next_to_clean(store: &Store) -> (ZoneId, Vec<Address>) {
    let zones = store.core.volume.pool.closed_metadata();
    let MetadataZone { zone, life, .. } =
        zones.into_iter().min_by_key(|zone| (zone.live, zone.zone)).unwrap();
    let (end, step) = (store.core.volume.pool.info(zone).capacity, store.core.volume.pool.page_blocks());
    let pages = (1..=end - step).step_by(step as usize).map(|block| Address::new(zone, block, life));
    (zone, pages.collect())
}

fn collect_one(store: &Store) -> bool {
    let was_collected = store
        .core
        .gc
        .collect_one_zone(&mut store.core.checkpoints.saving.lock(), crate::headroom::Need::Should)
        .unwrap();
    store.checkpoint().unwrap();
    was_collected
}

/// One unreadable block of metadata, even a dead one, shut the volume down when its zone was collected, and again after
/// each mount. Garbage collection skips it.
#[test]
fn unreadable_dead_pages_do_not_keep_a_zone_from_gc() {
    let (device, store, model) = with_dead_nodes();
    let (zone, pages) = next_to_clean(&store);
    let live = places(&store);
    let chunks = store.core.nodes.mat.chunks();
    let is_live = |at: &Address| live.contains_key(at) || chunks.iter().any(|chunk| chunk.address == *at);
    let dead: Vec<_> = pages.into_iter().filter(|at| !is_live(at)).collect();
    assert!(dead.len() > 2, "some pages are dead there");
    dead.iter().for_each(|at| device.make_unreadable(zone, at.block()));
    assert!(collect_one(&store));
    assert_eq!(store.shutdown_reason(), None);
    assert!(store.core.volume.pool.usage(zone) == pool::Usage::Free { empty: true }, "it was emptied");
    assert_eq!(contents(&store), model);
}

/// One unreadable block of metadata, even a dead one, shut the volume down when its zone was collected, and again after
/// each mount. Garbage collection skips it.
#[test]
fn a_live_page_that_cannot_be_read_pins_its_zone_and_nothing_else() {
    let (device, store, mut model) = with_dead_nodes();
    let (zone, pages) = next_to_clean(&store);
    let live = places(&store);
    let level = |at: &Address| store.core.nodes.load(live[at]).unwrap().unwrap().page().level();
    let at = pages.into_iter().find(|at| live.contains_key(at) && level(at) == 0).unwrap();
    let before = live.keys().filter(|at| at.zone() == zone).count();
    device.make_unreadable(zone, at.block());
    drop(store);
    // Memory has only what the mount needed.
    let (store, _) = open(&device).unwrap();
    assert!(collect_one(&store), "GC tries it in each mount");
    let left: Vec<_> = places(&store).into_iter().filter(|(at, _)| at.zone() == zone).collect();
    assert_eq!(left, [(at, live[&at])], "of {before} nodes those that can be read were moved");
    assert_eq!(store.core.volume.pool.entry(zone).live, store.core.volume.pool.page_blocks());
    while collect_one(&store) {
        assert_eq!(store.core.volume.pool.usage(zone), pool::Usage::Closed);
    }
    (2000..2200).for_each(|number| put(&store, &mut model, number, 3));
    assert_eq!(store.shutdown_reason(), None, "no look-up needed the node");
    store.close().unwrap();
    assert!(store.core.nodes.load(live[&at]).is_err(), "a look-up of the node gets the error");
    assert!(store.shutdown_reason().is_some());
}

/// GC read each page only once. After one transient failure, or one wrong bit, a node stayed in its place, and so did
/// its zone, until the next mount. If metadata was short of zones, nothing could be changed until then.
#[test]
fn a_transient_read_failure_does_not_keep_a_zone_from_gc() {
    let (device, store, model) = with_dead_nodes();
    let bits = 8 * store.info().page_size;
    let (zone, pages) = next_to_clean(&store);
    assert!(store.core.volume.pool.entry(zone).live > 0, "the zone has live pages");
    drop(store);
    device.record();
    for page in 0..pages.len() as u32 {
        // The read of all pages at once and then of the page alone; or a bit of the page, when all are read at once.
        let alone = Fault::nth(CommandKind::Read, 2 + u64::from(page), Effect::Error);
        let wrong = Fault::nth(CommandKind::Read, 1, Effect::FlipBit(page * bits + 99));
        for faults in [vec![Fault::nth(CommandKind::Read, 1, Effect::Error), alone], vec![wrong]] {
            let image = Arc::new(device.image(&CrashPlan::KeepAll));
            let (store, _) = open(&image).unwrap();
            assert_eq!(next_to_clean(&store).0, zone);
            faults.iter().for_each(|fault| image.inject(fault.clone().on(zone)));
            assert!(collect_one(&store));
            assert_eq!(image.failed_zones().len(), faults.len(), "{faults:?}");
            let is_free = store.core.volume.pool.usage(zone) == pool::Usage::Free { empty: true };
            assert!(is_free, "{faults:?}");
            assert_eq!(contents(&store), model);
        }
    }
}

/// GC needed the next zone, the host had no space for it, and the volume was read-only until the next mount, although
/// nothing was half done.
#[test]
fn gc_on_a_full_host_ends_and_goes_on_later() {
    let (device, store, model) = with_dead_nodes();
    let is_empty = |zone: &ZoneId| device.report_zone(*zone).unwrap().state == ZoneState::Empty;
    for zone in (0..device.geometry().zones).map(ZoneId).filter(is_empty) {
        device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).on(zone).forever());
    }
    let collect_next = || {
        store
            .core
            .gc
            .collect_one_zone(&mut store.core.checkpoints.saving.lock(), crate::headroom::Need::Should)
            .unwrap()
    };
    let mut times = 0;
    while collect_next() {
        times += 1;
    }
    assert!(!device.failed_zones().is_empty(), "the next zone was needed after {times}");
    assert_eq!(store.shutdown_reason(), None);
    device.clear_faults();
    assert!(collect_one(&store), "GC tries the zone again");
    assert_eq!(contents(&store), model);
}

/// A log zone that could not be finished made the switch to the standby fail: one read-only zone shut the volume down.
#[test]
fn the_log_leaves_a_zone_that_cannot_be_finished() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0), Effect::TurnOffline] {
        let device = formatted(Spec::tiny(), &options());
        let (store, _) = open(&device).unwrap();
        let mut model = Contents::new();
        let in_use = |store: &Store| {
            let state = |zone: &ZoneId| device.report_zone(*zone).unwrap().state;
            store.pool().in_role(Role::Log).into_iter().find(|zone| state(zone).is_active()).unwrap()
        };
        let before = in_use(&store);
        device.inject(Fault::nth(CommandKind::Finish, 1, effect).on(before));
        let finished = device.counters().of(CommandKind::Finish);
        for number in 0.. {
            put(&store, &mut model, number % 50, number as u8);
            if device.counters().of(CommandKind::Finish) > finished && in_use(&store) != before {
                break;
            }
        }
        store.sync(store.last_lsn()).unwrap();
        assert_eq!(store.shutdown_reason(), None, "{effect:?}");
        store.checkpoint().unwrap();
        drop(store);
        let (store, _) = open(&device).unwrap();
        assert_eq!(contents(&store), model, "{effect:?}");
    }
}

/// A mount that needed an active zone tried to finish the same zone again and again, and failed. It tries the next
/// zone.
#[test]
fn a_mount_that_needs_a_slot_tries_more_than_one_zone() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let device = formatted(Spec::tiny(), &options());
        let (store, _) = open(&device).unwrap();
        let mut model = Contents::new();
        put(&store, &mut model, 1, 1);
        store.close().unwrap();
        let log = store.pool().in_role(Role::Log);
        drop(store);
        // The log cannot continue in its zone, and other zones take all slots.
        log.iter().for_each(|&zone| device.set_zone_state(zone, ZoneState::ReadOnly));
        let geometry = device.geometry().clone();
        let mut zone = geometry.zones;
        while (device.report().unwrap().iter().filter(|info| info.state.is_active()).count() as u32)
            < geometry.max_active
        {
            zone -= 1;
            device.append(ZoneId(zone), &vec![7; geometry.block_size as usize]).unwrap();
            device.close(ZoneId(zone)).unwrap();
        }
        device.inject(Fault::nth(CommandKind::Finish, 1, effect).on(ZoneId(zone)));
        let (store, _) = open(&device).unwrap();
        put(&store, &mut model, 2, 2);
        store.close().unwrap();
        assert_eq!(contents(&store), model, "{effect:?}");
    }
}

/// Writes an entry to the ZIT that contradicts the device.
fn plant(store: &Store, zone: ZoneId, change: impl Fn(&mut ZoneEntry)) {
    let mut entry = store.core.volume.pool.entry(zone);
    change(&mut entry);
    store.core.volume.pool.patch(zone, entry);
}

/// A wrong live count with a valid checksum caused a failed assertion in a merge or a mount.
#[test]
fn a_wrong_count_of_live_nodes_shuts_down_without_a_panic() {
    for live in [0, Address::BLOCKS_MAX] {
        let (device, store, mut model) = with_dead_nodes();
        let zones = store.pool().in_role(Role::Metadata);
        zones.iter().for_each(|&zone| plant(&store, zone, |entry| entry.live = live));
        let wrong = (0..1200).find_map(|number| {
            let mut tx = Tx::new();
            tx.put(Group(0), Table(1), u32::to_be_bytes(number), vec![9; 900]);
            model.insert((0, 1, number.to_be_bytes().to_vec()), vec![9; 900]);
            store.commit(tx).err().or_else(|| store.checkpoint().err())
        });
        assert!(matches!(wrong, Some(StoreError::Corrupt(_))), "{live}: {wrong:?}");
        assert!(store.shutdown_reason().is_some());
        assert!(matches!(store.writable(), Err(StoreError::ShutDown(_))));
        drop(store);
        // The wrong count is not on the device.
        contents(&open(&device).unwrap().0);
    }
}

/// A wrong live count with a valid checksum caused a failed assertion in a merge or a mount.
#[test]
fn a_zit_that_cannot_be_right_is_refused_at_the_mount() {
    type Change = fn(&mut ZoneEntry);
    let changes: [(Role, Change); 4] = [
        (Role::Log, |entry| entry.live = 4),
        (Role::Log, |entry| (entry.role, entry.live) = (Role::Data, 4)),
        (Role::Free, |entry| entry.live = 4),
        (Role::Metadata, |entry| entry.live = u32::MAX),
    ];
    for (role, change) in changes {
        let (device, store, _) = with_dead_nodes();
        let zone = *store.pool().in_role(role).last().unwrap();
        plant(&store, zone, change);
        // One more checkpoint, so that the entry is only written.
        if store.checkpoint().is_ok() {
            drop(store);
            let error = open(&device).err();
            assert!(matches!(error, Some(StoreError::Corrupt(_))), "{role:?}: {error:?}");
        } else {
            panic!("{role:?}: the checkpoint was refused");
        }
    }
}

/// A durable block of the log that cannot be read any more. Records that were acknowledged later can be read, but the
/// records in this block cannot.
#[test]
fn a_hole_in_what_was_durable_is_not_written_over() {
    let device = formatted(Spec::power_of_two(), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    let log = |device: &Emulated| {
        let zones = (0..3).map(ZoneId);
        let written = zones.map(|zone| (device.report_zone(zone).unwrap().pointer, zone));
        written.max().unwrap()
    };
    let mut ends = Vec::new();
    for number in 0..6 {
        put(&store, &mut model, number, 1);
        store.sync(store.last_lsn()).unwrap();
        ends.push(log(&device));
    }
    drop(store);
    let (end, zone) = ends[2];
    device.make_unreadable(zone, end - 1);
    let digest = device.digest();
    let error = open(&device).map(|_| ()).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(what) if what.contains("-o ro")), "{error}");
    assert_eq!(device.digest(), digest, "nothing was changed");
    let (store, recovery) = open_with(&device, &crate::Config { read_only: true, ..config() }).unwrap();
    assert_eq!(recovery.records, 2, "those before the hole");
    assert_eq!(contents(&store).len(), 2);
}

/// A store with a few transactions in its journal, its recording, and its contents.
fn with_journal() -> (Arc<Emulated>, Vec<ZoneId>, Contents) {
    let device = formatted(Spec::power_of_two(), &options());
    let (store, _) = open(&device).unwrap();
    device.record();
    let mut model = Contents::new();
    for number in 0..6 {
        put(&store, &mut model, number, 1);
        store.sync(store.last_lsn()).unwrap();
    }
    let log = store.pool().in_role(Role::Log);
    (device, log, model)
}

/// Opens copies in which the first, second, third … read of the log fails. Returns how many open, all with the whole
/// contents, and how many are refused.
fn reads_of_the_log(effect: Effect) -> (u32, u32) {
    let (device, log, model) = with_journal();
    let (mut opened, mut refused) = (0, 0);
    for nth in 1.. {
        let copy = Arc::new(device.image(&CrashPlan::KeepAll));
        log.iter().for_each(|&zone| copy.inject(Fault::nth(CommandKind::Read, nth, effect).on(zone)));
        match open(&copy) {
            Ok((store, _)) => {
                assert!(contents(&store) == model, "{effect:?} at read {nth}");
                opened += 1;
            }
            Err(_) => refused += 1,
        }
        if copy.failed_zones().is_empty() {
            break;
        }
    }
    (opened, refused)
}

/// The log's zone went offline after recovery had read its checkpoint, and before it had read the journal. Unreadable
/// blocks are no batches, so the journal was empty, and the volume continued from the checkpoint without the records
/// acknowledged since.
#[test]
fn a_log_that_goes_offline_while_it_is_read_is_not_taken_for_empty() {
    let (opened, refused) = reads_of_the_log(Effect::TurnOffline);
    assert!(opened > 0 && refused > 4, "{opened} and {refused}");
}

/// The header of the log's zone cannot be read. The error said only that there is no volume, and advised to make one.
#[test]
fn a_log_whose_header_cannot_be_read_is_not_taken_for_none() {
    let (device, log, _) = with_journal();
    let [zone] = log[..] else { panic!("{log:?}") };
    for effect in [Effect::Error, Effect::TurnOffline] {
        let copy = Arc::new(device.image(&CrashPlan::KeepAll));
        copy.inject(Fault { kind: CommandKind::Read, zone: Some(zone), after: 0, times: u64::MAX, effect });
        let message = open(&copy).err().expect("there is no other log zone").to_string();
        assert!(message.contains("cannot be read") && message.contains("salvage"), "{effect:?}: {message}");
    }
}

/// A bit of the log was read wrong once and would have been right the next time. It ended the log there, and records
/// acknowledged later were given up for good.
#[test]
fn a_log_that_is_read_wrong_once_loses_nothing() {
    for bit in (0..4096 * 8).step_by(1117) {
        let (opened, refused) = reads_of_the_log(Effect::FlipBit(bit));
        assert!(opened > 4 && refused == 0, "bit {bit}: {opened} and {refused}");
    }
}

/// Nodes that a failed checkpoint had not written were evicted for other nodes, and were then read in their earlier
/// state.
#[test]
fn nodes_that_a_failed_checkpoint_has_not_written_are_read_from_memory() {
    for after in 0.. {
        let (device, store, mut model) = with_dead_nodes();
        (0..40).for_each(|number| put(&store, &mut model, number * 30, 3));
        let times = u64::MAX;
        device.inject(Fault { kind: CommandKind::Append, zone: None, after, times, effect: Effect::Error });
        if store.checkpoint().is_ok() {
            assert!(after > 2, "it fails in more than one place");
            return;
        }
        assert!(store.shutdown_reason().is_some());
        // Twice: by then all nodes that may be evicted have been evicted.
        for ((group, table, key), value) in model.iter().chain(&model) {
            let found = store.get(Group(*group), Table(*table), key).unwrap();
            assert!(found.as_ref() == Some(value), "after {after} appends: {key:?}");
        }
    }
}

/// If much data is not durable, a transaction makes it durable after it has taken effect. A failure of this was
/// reported as a failure of the transaction. A caller that keeps related state, such as a file's size, continued with
/// the earlier state, and read other bytes than the store had.
#[test]
fn a_transaction_that_has_taken_effect_is_not_reported_as_failed() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    let lease = store.open_zone(Role::Data).unwrap().unwrap();
    put(&store, &mut model, 1, 1);
    store.sync(store.last_lsn()).unwrap();
    device.inject(Fault::nth(CommandKind::Flush, 1, Effect::Error).forever());
    store.core.transactions.unflushed_data().store(crate::commit::UNFLUSHED_DATA_MAX, Ordering::Relaxed);
    let mut tx = Tx::new();
    let (key, value) = (2u32.to_be_bytes().to_vec(), vec![2; 900]);
    tx.put(Group(0), Table(1), key.clone(), value.clone());
    tx.zone_live(lease.zone(), 1);
    let lsn = store.commit(tx).expect("from its LSN on a transaction cannot fail");
    model.insert((0, 1, key), value);
    assert_eq!((lsn, device.failed_zones().len()), (store.last_lsn(), 1), "the data was to be made durable");
    assert_eq!(contents(&store), model);
    assert!(store.sync(lsn).is_err(), "a sync gets the error");
    assert!(store.shutdown_reason().is_some() && store.commit(Tx::new()).is_err());
}
