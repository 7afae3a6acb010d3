//! The store without crashes: all entries are there, in order, over mounts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use emulated::timed::{CommandClass, Model, Timed};
use rt::sync::Mutex;
use rt::{ManualClock, Timestamp};
use zone::{Cause, Role, ZoneId};

use super::*;

#[test]
fn a_new_volume_is_empty_and_opens_clean() {
    for (name, spec) in Spec::all() {
        let page_size = spec.block_size.max(4096);
        let device = formatted(spec, &FormatOptions { page_size, ..options() });
        let (store, recovery) = open(&device).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(recovery.clean, "{name}: {recovery:?}");
        assert_eq!(contents(&store), Contents::new(), "{name}");
    }
}

#[test]
fn a_history_is_the_same_in_a_map_over_many_mounts() {
    for (name, spec) in Spec::all() {
        let page_size = spec.block_size.max(4096);
        let device = formatted(spec, &FormatOptions { page_size, ..options() });
        let mut rng = fastrand::Rng::with_seed(11);
        let mut model = Contents::new();
        for mount in 0..6 {
            let (store, _) = open(&device).unwrap_or_else(|error| panic!("{name}: mount {mount}: {error}"));
            assert_eq!(contents(&store), model, "{name}: mount {mount}");
            for _ in 0..300 {
                let tx = random_tx(&mut rng, &mut model, 400, 500);
                store.commit(tx).unwrap();
                if rng.u8(0..20) == 0 {
                    store.step().unwrap();
                }
            }
            assert_eq!(contents(&store), model, "{name}: mount {mount}");
            if mount % 2 == 0 {
                store.close().unwrap();
            } else {
                store.sync(store.last_lsn()).unwrap();
            }
        }
    }
}

/// A leaf that a transaction empties must not lead its further writes to nodes that are not in memory.
#[test]
fn a_leaf_is_emptied_and_written_to_in_one_transaction() {
    let device = formatted(Spec::power_of_two(), &options());
    let key = |number: u32| format!("key {number:08}").into_bytes();
    let put = |tx: &mut Tx, number| tx.put(Group(0), Table(1), key(number), vec![7; 300]);
    let (store, _) = open(&device).unwrap();
    for number in 0..2000 {
        let mut tx = Tx::new();
        put(&mut tx, number);
        store.commit(tx).unwrap();
    }
    drop(store);
    for first in 1000..1030 {
        // Memory has only what the mount needed.
        let (store, _) = open(&device).unwrap();
        let mut tx = Tx::new();
        (first..first + 60).for_each(|number| tx.delete(Group(0), Table(1), key(number)));
        put(&mut tx, first + 1);
        store.commit(tx).unwrap();
        let left = store.range(Group(0), Table(1), &key(first), &key(first + 60), 100).unwrap();
        assert_eq!(left, [(key(first + 1).into(), vec![7; 300])]);
        let mut again = Tx::new();
        (first..first + 60).for_each(|number| put(&mut again, number));
        store.commit(again).unwrap();
        store.close().unwrap();
    }
}

/// The counters of a checkpoint are those at its cut, and the journal after it changes them.
#[test]
fn counters_survive_mounts_and_checkpoints() {
    let device = formatted(Spec::power_of_two(), &options());
    let mut rng = fastrand::Rng::with_seed(9);
    let mut model = [0_i64; 2];
    for mount in 0..8 {
        let (store, _) = open(&device).unwrap();
        assert_eq!([0, 1].map(|counter| store.counter(counter) as i64), model, "mount {mount}");
        for _ in 0..100 {
            let counter = rng.u8(0..2);
            let change = rng.i64(-model[usize::from(counter)]..=20);
            let mut tx = Tx::new();
            tx.put(Group(0), Table(1), b"other", b"changes");
            tx.counter(counter, change);
            store.commit(tx).unwrap();
            model[usize::from(counter)] += change;
            if rng.u8(0..30) == 0 {
                store.checkpoint().unwrap();
            }
        }
        store.sync(store.last_lsn()).unwrap();
    }
}

#[test]
fn ranges_and_floors_agree_with_a_map() {
    let device = formatted(Spec::power_of_two(), &options());
    let (store, _) = open(&device).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut model = Contents::new();
    for _ in 0..1500 {
        let tx = random_tx(&mut rng, &mut model, 3000, 200);
        store.commit(tx).unwrap();
    }
    for _ in 0..500 {
        let (group, table) = (rng.u16(0..3), rng.u8(1..3));
        let from = format!("key {:08}", rng.u32(0..3000)).into_bytes();
        let to = format!("key {:08}", rng.u32(0..3000)).into_bytes();
        let limit = rng.usize(1..100);
        let wanted: Vec<_> = if from <= to {
            let range = model.range((group, table, from.clone())..(group, table, to.clone()));
            range.take(limit).map(|((_, _, key), value)| (key.clone().into(), value.clone())).collect()
        } else {
            Vec::new()
        };
        assert_eq!(store.range(Group(group), Table(table), &from, &to, limit).unwrap(), wanted);
        let floor = model.range(..=(group, table, from.clone())).next_back();
        let floor = floor.filter(|((g, t, _), _)| (*g, *t) == (group, table));
        let floor = floor.map(|((_, _, key), value)| (key.clone(), value.clone()));
        let found =
            store.floor(Group(group), Table(table), &from, |key, value| (key.to_vec(), value.to_vec()));
        assert_eq!(found.unwrap(), floor);
    }
}

#[test]
fn deletions_leave_no_nodes_behind() {
    let device = formatted(Spec::power_of_two(), &options());
    let (store, _) = open(&device).unwrap();
    for round in 0..3 {
        for number in 0..4000_u32 {
            let mut tx = Tx::new();
            tx.put(Group(0), Table(1), number.to_be_bytes(), vec![round; 100]);
            store.commit(tx).unwrap();
        }
        for number in 0..4000_u32 {
            let mut tx = Tx::reclaiming();
            tx.delete(Group(0), Table(1), number.to_be_bytes());
            store.commit(tx).unwrap();
        }
        assert_eq!(contents(&store), Contents::new());
        store.checkpoint().unwrap();
        while store.step().unwrap() == crate::Step::Worked {}
    }
    // Three zones are the log's and one is open. GC of dead nodes in up to two more is not worth its cost.
    let free = store.pool().free();
    assert!(free >= store.pool().count() - 3 - 3, "{free} zones are free again");
}

/// Random overwrites leave a few dead blocks in every metadata zone. GC collected a zone as soon as a third of it was
/// dead. Although three quarters of the volume were free, it moved nearly as many nodes as were written, and a
/// directory of a million names was made at half the rate.
#[test]
fn while_many_zones_are_free_few_nodes_are_moved() {
    let device = formatted(Spec::new(4096, 400, 64), &options());
    let (store, _) = open(&device).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut put = |number: u32| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes(), vec![rng.u8(..); 100]);
        store.commit(tx).unwrap();
        store.step().unwrap();
        rng.u32(0..20_000)
    };
    for number in 0..20_000 {
        put(number);
    }
    let written = |cause| store.traffic().bytes_written(cause);
    let before = (written(Cause::Checkpoint), written(Cause::MetadataGc));
    let mut number = 0;
    for _ in 0..30_000 {
        number = put(number);
    }
    let (written, moved) = (written(Cause::Checkpoint) - before.0, written(Cause::MetadataGc) - before.1);
    println!("{written} bytes written, {moved} moved");
    assert!(moved > 0 && moved < written / 3, "{moved} bytes are moved for {written} written");
    assert!(store.pool().free() > store.pool().count() / 2, "free zones abound");
}

#[test]
fn a_full_store_refuses_writes_and_still_deletes() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut written = 0_u32;
    let error = loop {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), written.to_be_bytes(), vec![1; 900]);
        match store.commit(tx) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, crate::StoreError::NoSpace), "{error}");
    assert!(written > 2000, "{written} entries of 900 bytes on 6 MiB");
    for number in 0..written {
        let mut tx = Tx::reclaiming();
        tx.delete(Group(0), Table(1), number.to_be_bytes());
        store.commit(tx).unwrap();
    }
    assert_eq!(contents(&store), Contents::new());
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), *b"again", *b"there is space");
    store.commit(tx).unwrap();
}

/// Ids that were free before the mount are found in the chunks of the MAT. If none were used again, the MAT would grow
/// with all nodes that ever existed, and every large checkpoint would write more of it.
#[test]
fn unused_ids_are_used_again_after_a_mount() {
    let device = formatted(Spec::power_of_two(), &options());
    let fill = |store: &Store| {
        for number in 0..1000_u32 {
            let mut tx = Tx::new();
            tx.put(Group(0), Table(1), number.to_be_bytes(), vec![7; 300]);
            store.commit(tx).unwrap();
        }
    };
    let (store, _) = open(&device).unwrap();
    fill(&store);
    store.checkpoint().unwrap();
    let next = store.core.nodes.mat.next_node();
    for number in 0..1000_u32 {
        let mut tx = Tx::reclaiming();
        tx.delete(Group(0), Table(1), number.to_be_bytes());
        store.commit(tx).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let (store, _) = open(&device).unwrap();
    while store.step().unwrap() == crate::Step::Worked {}
    fill(&store);
    assert!(next > 50, "{next} ids belong to many nodes");
    assert_eq!(store.core.nodes.mat.next_node(), next, "all of them have ids that were used before");
}

/// On a full store, each deletion ran as much GC as possible, with a checkpoint for each zone. On 64 zones of 1 MiB, 8
/// MB were written for one entry, and more for larger zones.
#[test]
fn deleting_from_a_full_store_writes_in_proportion() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, _) = open(&device).unwrap();
    let entry = |tx: &mut Tx, number: u32| tx.put(Group(0), Table(1), number.to_be_bytes(), vec![1; 900]);
    let mut numbers: Vec<u32> = (0..)
        .take_while(|&number| {
            let mut tx = Tx::new();
            entry(&mut tx, number);
            store.commit(tx).is_ok()
        })
        .collect();
    fastrand::Rng::with_seed(6).shuffle(&mut numbers);
    let written = || {
        store.traffic().bytes_written(Cause::Checkpoint) + store.traffic().bytes_written(Cause::MetadataGc)
    };
    let before = written();
    for &number in &numbers {
        let mut tx = Tx::reclaiming();
        tx.delete(Group(0), Table(1), number.to_be_bytes());
        store.commit(tx).unwrap();
    }
    let each = (written() - before) / numbers.len() as u64;
    println!("{} entries, {each} bytes written for each that was deleted", numbers.len());
    assert!(numbers.len() > 30_000 && each < 64 << 10, "{each} bytes for each of {} entries", numbers.len());
}

/// The next checkpoint frees the zones that GC has emptied. A transaction that needed a zone before that found no
/// further victim and got an error for lack of space.
#[test]
fn emptied_zones_are_freed_before_a_transaction_is_refused() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    for number in 0..1500_u32 {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), (number * 7919 % 1200).to_be_bytes(), vec![1; 900]);
        store.commit(tx).unwrap();
    }
    store.checkpoint().unwrap();
    let core = &store.core;
    let mut saving = core.checkpoints.saving.lock();
    assert!(
        core.gc.collect_one_zone(&mut saving, crate::headroom::Need::Should).unwrap(),
        "there was a victim"
    );
    // The other zones hold pages that cannot be moved.
    let others = core.volume.pool.closed_metadata();
    saving.last_gc.extend(others.into_iter().map(|other| (other.zone, other.life)));
    drop(saving);
    while core.volume.pool.free() >= core.volume.pool.metadata_reserve() {
        core.volume.pool.take(zone::Role::Metadata).unwrap();
    }
    let short = core.volume.pool.free();
    core.gc.space_for_metadata(crate::types::Draw::Free, true).unwrap();
    assert!(core.volume.pool.free() > short, "the emptied zones are free");
}

/// The zone table has a page for zones that were never used, which `mkfs` has written. GC of its zone must rewrite
/// this page, and not another one. Otherwise the zone would not be freed in this mount.
#[test]
fn a_part_of_the_zone_table_that_does_not_change_is_moved() {
    let device = formatted(Spec::new(4096, 300, 64), &options());
    let (store, _) = open(&device).unwrap();
    let core = &store.core;
    let place = || core.checkpoints.saving.lock().tables.zit_chunks().nth(2).unwrap();
    let zone = place().zone();
    let is_closed = (0..100_u32).any(|round| {
        store.commit(put_one(u64::from(round % 7), 900)).unwrap();
        store.checkpoint().unwrap();
        core.volume.pool.closed_metadata().iter().any(|closed| closed.zone == zone)
    });
    assert!(is_closed && place().zone() == zone, "it is in a closed zone");
    assert!(
        core.gc.collect_one_zone(&mut core.checkpoints.saving.lock(), crate::headroom::Need::Must).unwrap()
    );
    store.checkpoint().unwrap();
    assert_ne!(place().zone(), zone);
    assert!(
        matches!(core.volume.pool.usage(zone), pool::Usage::Free { .. }),
        "{:?}",
        core.volume.pool.usage(zone)
    );
}

/// A store whose epochs write up to a 64th of its pages while zones are free, and much less otherwise. It has more
/// leaves than either bound. Also returns a function that changes random entries.
fn store_with_long_epochs(cache_bytes: u64) -> (Store, impl FnMut(&Store)) {
    store_on_its_device((256, 512), 50_000, cache_bytes).1
}

fn store_on_its_device(
    (zones, zone_blocks): (u32, zone::Blocks),
    entries: u32,
    cache_bytes: u64,
) -> (Arc<Emulated>, (Store, impl FnMut(&Store))) {
    let device = formatted(Spec::new(4096, zones, zone_blocks).limits(zones, zones), &options());
    let (store, _) = open_with(&device, &Config { cache_bytes, ..config() }).unwrap();
    // Few records, so that no checkpoint becomes due because the log is full.
    let put = |store: &Store, numbers: &mut dyn Iterator<Item = u32>| {
        let mut tx = Tx::new();
        for number in numbers.take(CHANGES) {
            tx.put(Group(0), Table(1), number.to_be_bytes(), vec![number as u8; 200]);
        }
        store.commit(tx).unwrap();
    };
    let mut all = (0..entries).peekable();
    while all.peek().is_some() {
        put(&store, &mut all);
    }
    store.checkpoint().unwrap();
    let mut rng = fastrand::Rng::with_seed(4);
    (device, (store, move |store: &Store| put(store, &mut std::iter::repeat_with(|| rng.u32(0..entries)))))
}
/// How many entries a transaction changes.
const CHANGES: usize = 20;

/// Each random change dirties another leaf. Epochs of 1,024 nodes wrote nearly one leaf for each change.
#[test]
fn while_zones_are_free_a_large_cache_makes_epochs_longer() {
    let written = [8 << 20, 64 << 20].map(|cache_bytes| {
        let (store, mut change) = store_with_long_epochs(cache_bytes);
        let before = store.traffic().bytes_written(Cause::Checkpoint);
        (0..1500).for_each(|_| change(&store));
        store.traffic().bytes_written(Cause::Checkpoint) - before
    });
    println!("{written:?} bytes of checkpoints with a small and a large cache");
    assert!(written[1] < written[0] * 4 / 5, "{written:?}: a long epoch saves nothing");
}

/// The dirty nodes of a long epoch must be written before data takes the zones that they need.
#[test]
fn a_long_epoch_ends_when_zones_become_few() {
    let (store, mut change) = store_with_long_epochs(64 << 20);
    let dirty = |store: &Store| store.core.running.dirty_pages();
    let bound = store.core.running.limits.epoch_pages;
    let is_long = (0..500).any(|_| {
        change(&store);
        dirty(&store) >= 2 * bound
    });
    assert!(is_long, "no epoch is long");
    let mut leases = Vec::new();
    while let Some(lease) = store.core.transactions.open_data_zone(Role::Data).unwrap() {
        leases.push(lease);
        let free = store.pool().free();
        assert!(free >= 256 / 4 - 1 || dirty(&store) < bound, "{free} zones free, {} dirty", dirty(&store));
    }
    assert!(store.pool().free() < 256 / 8, "{} zones are free", store.pool().free());
    (0..500).for_each(|_| change(&store));
    assert!(dirty(&store) <= bound, "{} pages are dirty", dirty(&store));
    store.close().unwrap();
}

/// A client that takes all zones that it may for data while a checkpoint is taken, after its cut.
struct Greedy {
    store: std::sync::Weak<Store>,
    asked: std::sync::atomic::AtomicU32,
    left: std::sync::atomic::AtomicU32,
}

impl Client for Greedy {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        let is_cut = self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1;
        if let Some(store) = self.store.upgrade().filter(|_| is_cut) {
            while store.core.volume.pool.take(Role::Data).is_some() {}
            self.left.store(store.pool().free(), std::sync::atomic::Ordering::Relaxed);
        }
        Bytes::new()
    }
}

/// After the cut no node was dirty any more, and data took zones down to the reserve. A long epoch writes more than
/// the reserve, so the checkpoint found no zone.
#[test]
fn the_cut_of_a_long_epoch_reserves_its_zones() {
    const ENTRIES: u32 = 100_000;
    let (_device, (store, _)) = store_on_its_device((256, 1024), ENTRIES, 64 << 20);
    let store = Arc::new(store);
    let dirty = || store.core.running.dirty_pages();
    // Each entry is in another leaf, which is then written whole. There are few records, so that the log has space for
    // all of them.
    let mut numbers = (0..ENTRIES).step_by(25);
    let is_long = (0..ENTRIES / 25 / 100).any(|_| {
        let mut tx = Tx::new();
        for number in numbers.by_ref().take(100) {
            tx.put(Group(0), Table(1), number.to_be_bytes(), vec![7; 500]);
        }
        store.commit(tx).unwrap();
        dirty() >= 3500
    });
    assert!(is_long, "no epoch is long");
    let greedy = Arc::new(Greedy { store: Arc::downgrade(&store), asked: 0.into(), left: 0.into() });
    store.set_client(greedy.clone());
    let needed = dirty() as u32 / 1023;
    store.checkpoint().unwrap();
    let left = greedy.left.load(std::sync::atomic::Ordering::Relaxed);
    assert!((needed..needed + 20).contains(&left), "{left} zones remained, and {needed} could be needed");
}

/// Beside the zones for a long epoch, the reserve for two further epochs must remain. These may find no other free
/// zone.
#[test]
fn a_long_epoch_leaves_the_reserve_to_later_epochs() {
    let (device, (store, _)) = store_on_its_device((256, 256), 50_000, 64 << 20);
    let (store, mut numbers) = (Arc::new(store), (0..50_000_u32).step_by(25));
    let core = &store.core;
    let is_long = (0..20).any(|_| {
        let mut tx = Tx::new();
        for number in numbers.by_ref().take(50) {
            tx.put(Group(0), Table(1), number.to_be_bytes(), vec![7; 500]);
        }
        store.commit(tx).unwrap();
        core.running.dirty_pages() > core.running.limits.epoch_pages * 7 / 4
    });
    assert!(is_long, "no epoch is long");
    let greedy = Arc::new(Greedy { store: Arc::downgrade(&store), asked: 0.into(), left: 0.into() });
    store.set_client(greedy.clone());
    let (checkpoints, free) = (store.stats().checkpoints, store.pool().free());
    store.checkpoint().unwrap();
    let left = greedy.left.load(std::sync::atomic::Ordering::Relaxed);
    assert!(store.stats().checkpoints == checkpoints + 1 && left < free, "data took all zones that it may");
    let room = store.pool().free() * 255 + core.volume.pool.open_headroom();
    let kept = core.running.limits.metadata_reserve_of(device.geometry(), core.volume.page_size()).blocks;
    println!("{left} of {free} zones remained, and then {}, {room} of {kept} blocks", store.pool().free());
    assert!(u64::from(room) >= kept, "{room} blocks remain of {kept} reserved ones");
}

/// The device has no version of the dirty nodes of a long epoch, and the next mount may have a small cache.
#[test]
fn a_long_epoch_that_loses_the_power_is_replayed_with_a_small_cache() {
    let (device, (store, mut change)) = store_on_its_device((256, 512), 50_000, 64 << 20);
    device.record();
    let dirty = |store: &Store| store.core.running.dirty_pages();
    let bound = store.core.running.limits.epoch_pages;
    let is_long = (0..500).any(|_| {
        change(&store);
        dirty(&store) >= 2 * bound
    });
    assert!(is_long, "no epoch is long");
    store.sync(store.last_lsn()).unwrap();
    let before = contents(&store);
    let image = Arc::new(device.image(&CrashPlan::LoseAll));
    drop(store);
    let (store, recovery) = open_with(&image, &config()).unwrap();
    assert!(!recovery.clean && dirty(&store) > bound, "{} pages are dirty: {recovery:?}", dirty(&store));
    assert!(store.pool().is_announced(), "a writer without a zone waits for the due checkpoint");
    assert_eq!(contents(&store), before);
    change(&store);
    assert!(!store.pool().is_announced(), "the checkpoint has ended");
    assert!(dirty(&store) <= bound, "{} pages are dirty", dirty(&store));
    store.close().unwrap();
}

fn put_one(number: u64, value: usize) -> Tx {
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), format!("key {}", number % 7).into_bytes(), vec![number as u8; value]);
    tx
}

/// A log zone that came back full has no pointer, and all of it must be read: once, and once more the blocks that
/// belong to no batch. It was read four times, and was in memory as a whole, even the parts that the checkpoint had
/// replaced.
#[test]
fn a_full_log_zone_is_read_once_and_only_needed_bodies_are_retained() {
    const ZONE_BYTES: u64 = 1024 * 4096;
    let device = formatted(Spec::new(4096, 32, 1024), &options());
    let (store, _) = open(&device).unwrap();
    for number in 0..650 {
        store.sync(store.commit(put_one(number, 1000)).unwrap()).unwrap();
        if number == 600 {
            store.checkpoint().unwrap();
        }
    }
    let pointer_of = |zone| (device.report_zone(ZoneId(zone)).unwrap().pointer, zone);
    let (pointer, zone) = (0..3).map(pointer_of).max().unwrap();
    assert!(pointer > 640, "all is in one zone: {pointer} blocks");
    let before = contents(&store);
    drop(store);
    let zone = ZoneId(zone);
    device.finish(zone).unwrap();
    let read = device.counters().bytes_read;
    let (store, recovery) = open_with(&device, &Config { read_only: true, ..config() }).unwrap();
    let read = device.counters().bytes_read - read;
    assert!(!recovery.clean && recovery.records < 200, "{recovery:?}");
    assert!((ZONE_BYTES..ZONE_BYTES * 9 / 5).contains(&read), "{read} bytes are read");
    assert_eq!(contents(&store), before);
    let info = device.report_zone(zone).unwrap();
    let (identity, _) = crate::read_header(&*device, zone).unwrap().unwrap();
    let log = crate::scan::LogZone::new(&*device, identity.fs_id, zone, identity.life, info);
    let (all, _) = log.batches_with(1, &|found| found.last > recovery.last.0 - 5).unwrap();
    let kept = all.iter().filter(|found| !found.body.is_empty()).count();
    assert!(all.len() > 500 && (5..50).contains(&kept), "{kept} of {} batches", all.len());
}

/// A checkpoint states where in its log zone replay begins. Without that, a mount would still find everything, but it
/// would read all batches of the zone. The work after a crash would no longer depend only on the changes since the
/// checkpoint.
#[test]
fn a_mount_reads_only_the_log_after_the_checkpoint() {
    let device = formatted(Spec::new(4096, 32, 1024), &options());
    device.record();
    let (store, _) = open(&device).unwrap();
    let bytes_read = |checkpoints: u64| {
        for number in 0..checkpoints {
            store.commit(put_one(number % 4, 100)).unwrap();
            store.checkpoint().unwrap();
        }
        let image = Arc::new(device.image(&CrashPlan::KeepAll));
        let before = image.counters().bytes_read;
        open(&image).unwrap();
        image.counters().bytes_read - before
    };
    let (few, many) = (bytes_read(5), bytes_read(100));
    assert!(many <= few + few / 4, "{many} bytes are read after many checkpoints, and {few} after a few");
}

/// Each record reserved two blocks until a sync. After some thousand small records the log was full of reservations,
/// and the next transaction took a checkpoint.
#[test]
fn small_records_take_no_more_of_the_log_than_they_have() {
    let device = formatted(Spec::new(4096, 16, 256), &options());
    let (store, _) = open(&device).unwrap();
    let before = store.stats().checkpoints;
    for number in 0..4000 {
        store.commit(put_one(number, 40)).unwrap();
    }
    assert_eq!(store.stats().checkpoints, before, "a fifth of a zone is written");
    store.sync(store.last_lsn()).unwrap();
    drop(store);
    let (store, recovery) = open(&device).unwrap();
    assert!(recovery.records >= 4000, "{recovery:?}");
    assert_eq!(contents(&store).len(), 7);
}

/// Batches that no thread waited for stayed in memory, up to the size of a log zone.
#[test]
fn full_batches_are_appended_in_the_background() {
    let device = formatted(Spec::new(4096, 16, 2048), &options());
    let (store, _) = open(&device).unwrap();
    let before = store.stats();
    let mut number = 0;
    while !store.is_pressed() {
        store.commit(put_one(number, 1000)).unwrap();
        number += 1;
        assert!(number < 2000, "two mebibytes are not appended");
    }
    assert_eq!(store.stats().log_batches, before.log_batches, "no thread has waited for a batch");
    store.step().unwrap();
    let after = store.stats();
    assert!(after.log_batches >= before.log_batches + 4 && !store.is_pressed());
    assert_eq!(after.checkpoints, before.checkpoints);
}

/// With a cache of a few hundred pages, a checkpoint was taken for every thirty changed leaves. After random changes
/// it writes nearly all of the MAT: most of what such a volume wrote.
#[test]
fn with_a_small_cache_an_epoch_has_more_nodes_than_may_be_dirty() {
    let device = formatted(Spec::new(4096, 32, 1024), &options());
    let (store, _) = open(&device).unwrap();
    let (mut model, mut rng) = (Contents::new(), fastrand::Rng::with_seed(8));
    let mut change = |store: &Store, count: u32| {
        for _ in 0..count {
            store.commit(random_tx(&mut rng, &mut model, 3000, 600)).unwrap();
            store.step().unwrap();
        }
    };
    change(&store, 4000);
    let before = store.stats();
    change(&store, 4000);
    let after = store.stats();
    let written = after.nodes_written + after.deltas_written - before.nodes_written - before.deltas_written;
    let (checkpoints, bound) =
        (after.checkpoints - before.checkpoints, store.core.running.limits.dirty as u64);
    assert!(store.core.running.limits.epoch_nodes as u64 > 4 * bound, "the cache is small");
    assert!(checkpoints > 2 && written > 4 * bound * checkpoints, "{checkpoints} for {written} nodes");
    let is_open = (0..4000).any(|_| {
        change(&store, 1);
        store.core.running.epoch_is_large()
    });
    assert!(is_open, "the epoch is open");
    store.sync(store.last_lsn()).unwrap();
    for _ in 0..100 {
        store.step().unwrap();
    }
    assert!(!store.core.running.epoch_is_large(), "an idle store has no long replay");
    store.close().unwrap();
    drop(store);
    let (store, _) = open(&device).unwrap();
    assert_eq!(contents(&store), model);
}

/// A mount would have to replay the whole journal, although it has changed few nodes.
#[test]
fn a_long_journal_ends_an_epoch_in_which_little_has_changed() {
    let device = formatted(Spec::new(4096, 32, 1024), &options());
    let (store, _) = open(&device).unwrap();
    let limit = store.core.running.limits.replay_bytes;
    let mut bytes = 0;
    while bytes < limit {
        assert!(!store.core.running.epoch_is_long(), "after {bytes} of {limit} bytes");
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), vec![1], vec![7; 1000]);
        let encoded = tx.encoded_bytes() as u64;
        assert!((1000..1100).contains(&encoded), "{encoded} bytes");
        store.commit(tx).unwrap();
        bytes += encoded;
    }
    assert!(store.core.running.epoch_is_long());
}

/// The headroom for a checkpoint is counted in blocks, and a page has several.
#[test]
fn nodes_take_as_many_blocks_as_their_pages() {
    let device = formatted(Spec::power_of_two(), &FormatOptions { page_size: 16 << 10, ..options() });
    let (store, _) = open(&device).unwrap();
    let blocks = u64::from(store.pool().page_blocks());
    assert_eq!(blocks, 4);
    let least = store.core.running.limits.dirty.min(store.core.running.limits.epoch_pages);
    assert_eq!(store.core.headroom.blocks_for_nodes(0), least as u64 * blocks);
    assert_eq!(store.core.headroom.blocks_for_nodes(least + 7), (least as u64 + 7) * blocks);
}

/// With a background reader, a walk through a tree waits for a read only at its beginning and at each new parent.
#[test]
fn the_next_leaves_of_a_walk_are_read_ahead() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, mut keys) = (open(&device).unwrap().0, Vec::new());
    for number in 0..6000_u32 {
        let (key, mut tx) = (format!("key {number:08}").into_bytes(), Tx::new());
        tx.put(Group(0), Table(1), key.clone(), vec![1; 100]);
        store.commit(tx).unwrap();
        keys.push(key);
    }
    store.close().unwrap();
    drop(store);
    let waits = |is_read_ahead: bool| {
        let (store, _) = open(&device).unwrap();
        let asked = Arc::new(AtomicBool::new(false));
        if is_read_ahead {
            let asked = asked.clone();
            store.set_reader(Arc::new(move || asked.store(true, Ordering::Relaxed)));
        }
        let mut waits = 0;
        for key in &keys {
            let before = store.stats().nodes_read;
            assert_eq!(store.get(Group(0), Table(1), key).unwrap(), Some(vec![1; 100]));
            waits += usize::from(store.stats().nodes_read > before);
            if asked.swap(false, Ordering::Relaxed) {
                assert!(store.read_ahead(), "there is a request");
            }
            assert!(!store.read_ahead(), "there is no further request");
        }
        (waits, store.stats().nodes_read)
    };
    let ((without, read), (with, read_ahead)) = (waits(false), waits(true));
    assert!(without > 20 && with * 3 < without, "{with} waits, {without} without reading ahead");
    assert!(read_ahead <= read + 16, "{read_ahead} nodes read, {read} without reading ahead");
}

/// A client that delays a checkpoint. Before the cut it waits until the other thread approaches the bound, and after
/// the cut until that thread has finished.
struct Holding {
    asked: AtomicU32,
    near: Mutex<mpsc::Receiver<()>>,
    done: Mutex<mpsc::Receiver<()>>,
    /// Whether the other thread finished while the checkpoint was being written.
    in_time: AtomicBool,
}

impl Client for Holding {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        let wait = |receiver: &Mutex<mpsc::Receiver<()>>| {
            receiver.lock().recv_timeout(Duration::from_secs(60)).is_ok()
        };
        match self.asked.fetch_add(1, Ordering::SeqCst) {
            0 => assert!(wait(&self.near), "no thread approached the bound"),
            1 => self.in_time.store(wait(&self.done), Ordering::SeqCst),
            _ => {}
        }
        Bytes::new()
    }
}

#[test]
fn a_writer_at_the_bound_waits_for_the_cut_only() {
    let (_device, (store, mut change)) = store_on_its_device((256, 512), 50_000, 2 << 20);
    let bound = store.core.running.limits.dirty;
    let dirty = |store: &Store| store.core.running.dirty().nodes();
    store.checkpoint().unwrap();
    let (near, near_received) = mpsc::channel();
    let (done, done_received) = mpsc::channel();
    let holding = Arc::new(Holding {
        asked: AtomicU32::new(0),
        near: Mutex::new(near_received),
        done: Mutex::new(done_received),
        in_time: AtomicBool::new(false),
    });
    store.set_client(holding.clone());
    let store = Arc::new(store);
    let background = {
        let store = Arc::clone(&store);
        rt::thread::spawn("background", move || store.checkpoint()).unwrap()
    };
    while holding.asked.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    while dirty(&store) + 1 < bound {
        change(&store);
    }
    near.send(()).unwrap();
    // The bound has no space for these changes before the cut, and has it after the cut.
    (0..2).for_each(|_| change(&store));
    done.send(()).unwrap();
    background.join().unwrap().unwrap();
    assert!(holding.in_time.load(Ordering::SeqCst), "it waited for the whole checkpoint");
}

/// `polder stats` prints this number, and readahead depends on it.
#[test]
fn the_store_reports_how_many_pages_its_cache_may_hold() {
    let device = formatted(Spec::tiny(), &options());
    let pages_of = |cache_bytes: u64| {
        let (store, _) = open_with(&device, &Config { cache_bytes, ..config() }).unwrap();
        store.stats().pages_cached_max
    };
    let (small, large) = (pages_of(1 << 20), pages_of(4 << 20));
    assert!((128..=256).contains(&small), "{small} pages in a mebibyte");
    assert!((small * 7 / 2..=small * 5).contains(&large), "{large} pages in four");
}

/// A batch that is not flushed yet states already that an earlier transaction is durable. To make that known takes a
/// flush, and no further batch.
#[test]
fn known_durable_is_not_logged_twice() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let put = |value: u8| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), vec![1], vec![value]);
        store.commit(tx).unwrap()
    };
    let first = put(1);
    store.sync(first).unwrap();
    put(2);
    store.core.log.push().unwrap();
    let batches = store.stats().log_batches;
    assert!(store.core.log.make_known(first).unwrap());
    assert_eq!(store.stats().log_batches, batches);
    assert!(store.core.log.known_durable() >= first);
}

/// Each page of the zone table was read separately at a mount, even if they were consecutive. On a disk with an arm,
/// 100,000 zones took a second and a half.
#[test]
fn the_zone_table_is_read_in_few_pieces() {
    let reads = |zones| {
        let device = formatted(Spec::new(4096, zones, 64), &options());
        let timed = Arc::new(Timed::new(device, Arc::new(ManualClock::at(Timestamp(0))), Model::shingled()));
        let (store, _) = Store::open(timed.clone(), &config(), &mut Plain).unwrap();
        store.set_client(Arc::new(Plain));
        assert_eq!(contents(&store), Contents::new());
        timed.times().of(CommandClass::Read).commands
    };
    let (few, many) = (reads(100), reads(6000));
    assert!(many <= few + 2, "{few} reads, and {many} with sixty times as many zones");
}
