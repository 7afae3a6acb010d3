//! Leaves that are written as delta records.

use std::collections::BTreeSet;

use rt::sync::atomic::Ordering;
use zone::{Address, Cause, Life, ZoneId};

use super::*;
use crate::headroom::Need;
use crate::mat::Place;
use crate::types::NodeId;
use crate::{FindingKind, StoreError};

fn put(store: &Store, model: &mut Contents, number: u32, value: Vec<u8>) {
    let (key, mut tx) = (format!("key {number:08}").into_bytes(), Tx::new());
    tx.put(Group(0), Table(1), key.clone(), value.clone());
    store.commit(tx).unwrap();
    model.insert((0, 1, key), value);
}

fn filled(device: &Arc<Emulated>, entries: u32) -> (Store, Contents) {
    let (store, mut model) = (open(device).unwrap().0, Contents::new());
    for number in 0..entries {
        put(&store, &mut model, number, vec![1; 100]);
    }
    store.checkpoint().unwrap();
    (store, model)
}

/// Many leaves, each with a small delta record.
fn with_small_changes() -> (Arc<Emulated>, Store, Contents) {
    let device = formatted(Spec::new(4096, 48, 64), &options());
    let (store, mut model) = filled(&device, 6000);
    for round in 0..3 {
        for number in (round..6000).step_by(60) {
            put(&store, &mut model, number, vec![2; 100]);
        }
        store.checkpoint().unwrap();
    }
    (device, store, model)
}

#[test]
fn a_few_changes_cost_a_few_pages() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, mut model) = filled(&device, 6000);
    let written = || device.report().unwrap().iter().map(|info| info.pointer).sum::<u32>();
    let (before, blocks) = (store.stats(), written());
    for number in (0..6000).step_by(60) {
        put(&store, &mut model, number, vec![2; 100]);
    }
    store.checkpoint().unwrap();
    let (after, blocks) = (store.stats(), written() - blocks);
    let (whole, deltas) =
        (after.nodes_written - before.nodes_written, after.deltas_written - before.deltas_written);
    assert!(deltas >= 90 && whole <= 10, "{deltas} leaves are written as delta records, {whole} whole");
    assert!(blocks < 40, "{blocks} blocks for 100 leaves, with journal, MAT and ZIT");
    assert_eq!(contents(&store), model);
    drop(store);
    let (store, recovery) = open(&device).unwrap();
    assert!(recovery.clean, "everything is in the checkpoint: {recovery:?}");
    assert_eq!(contents(&store), model);
    // Written again, they are changes to the same base page, because the read record has the changed keys.
    for number in (30..6000).step_by(60) {
        put(&store, &mut model, number, vec![3; 100]);
    }
    store.checkpoint().unwrap();
    assert!(store.stats().deltas_written >= 90);
    store.close().unwrap();
    assert_eq!(contents(&open(&device).unwrap().0), model);
}

#[test]
fn leaves_with_many_changes_are_written_whole_again() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, mut model) = filled(&device, 2000);
    let mut before = store.stats();
    let (mut whole, mut deltas) = (0, 0);
    for round in 0..12 {
        // One entry in each leaf, another one each time.
        for number in (round..2000).step_by(30) {
            put(&store, &mut model, number, vec![round as u8; 100]);
        }
        store.checkpoint().unwrap();
        let now = store.stats();
        whole += now.nodes_written - before.nodes_written;
        deltas += now.deltas_written - before.deltas_written;
        before = now;
    }
    assert!(whole * 2 < deltas && deltas < whole * 8, "{whole} whole, {deltas} as delta records");
    assert_eq!(contents(&store), model);
}

/// If a part of a zone was written before the last checkpoint and base pages were moved into the rest since, only the
/// larger part was counted. Then GC began without enough space for its target.
fn cleaning_takes_no_more_than_is_counted(store: &Store) {
    let core = &store.core;
    let mut pages: BTreeSet<Address> = BTreeSet::new();
    for id in (0..core.nodes.mat.next_node()).map(NodeId) {
        let place = core.nodes.find(id).unwrap().0;
        pages.extend((!place.is_nowhere()).then(|| place.whole_page()));
    }
    for zone in core.volume.pool.closed_metadata() {
        let live =
            pages.iter().filter(|at| at.zone() == zone.zone).count() as u32 * core.volume.pool.page_blocks();
        assert!(zone.live >= live, "{zone:?}, where {live} blocks are live");
    }
}

#[test]
fn gc_moves_base_pages_and_delta_records_separately() {
    let device = formatted(Spec::new(4096, 24, 64), &options());
    let (mut store, mut model) = filled(&device, 3000);
    let (mut rng, mut moved) = (fastrand::Rng::with_seed(8), (0, 0));
    for round in 0..40 {
        for _ in 0..200 {
            put(&store, &mut model, rng.u32(0..3000), vec![rng.u8(..); 100]);
            // Earlier than the store would, so that leaves have changed little.
            if rng.u8(0..8) == 0 {
                store.checkpoint().unwrap();
            }
            store.step().unwrap();
            if rng.u8(0..16) == 0 {
                let _saving = store.core.checkpoints.saving.lock();
                store.core.gc.count_deltas_exactly().unwrap();
            }
            cleaning_takes_no_more_than_is_counted(&store);
        }
        if round % 8 == 7 {
            let stats = store.stats();
            moved = (moved.0 + stats.nodes_moved, moved.1 + stats.deltas_moved);
            store.sync(store.last_lsn()).unwrap();
            drop(store);
            store = open(&device).unwrap().0;
            assert_eq!(contents(&store), model, "round {round}");
        }
    }
    assert!(moved.0 > 100 && moved.1 > 100, "{moved:?} nodes and delta records were moved");
}

/// New names were refused for a lack of dead blocks in zones of small delta records, each of which counted with the
/// maximal size.
#[test]
fn small_delta_records_are_counted_before_a_name_is_refused() {
    let (_device, store, mut model) = with_small_changes();
    let lacking = store.core.headroom.zones_lacking();
    lacking.store(100, Ordering::Relaxed);
    // Each insertion soon splits a leaf.
    for number in 6000..6100 {
        put(&store, &mut model, number, vec![3; 100]);
    }
    assert_eq!(lacking.load(Ordering::Relaxed), 0);
    assert_eq!(contents(&store), model);
    // All records have been counted exactly.
    lacking.store(100, Ordering::Relaxed);
    let refused = (6100..6200u32).find_map(|number| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes(), vec![3; 100]);
        store.commit(tx).err()
    });
    assert!(matches!(refused, Some(StoreError::NoSpace)), "{refused:?}");
}

/// Each record counted with the maximal size: zones of small records counted as full and were never collected, and a
/// full volume accepted no more writes.
#[test]
fn small_delta_records_are_counted_exactly_before_a_refusal() {
    let (_device, store, model) = with_small_changes();
    let core = &store.core;
    let mut saving = core.checkpoints.saving.lock();
    let live = || core.volume.pool.closed_metadata().iter().map(|zone| u64::from(zone.live)).sum::<u64>();
    let before = live();
    assert!(core.gc.count_deltas_exactly().unwrap() && live() < before, "{} of {before} live", live());
    assert!(!core.gc.count_deltas_exactly().unwrap(), "all zones have been read");
    let mut collected = 0;
    for _ in 0..8 {
        let moved = || core.volume.leases.traffic().bytes_written(Cause::MetadataGc) / 4096;
        let victims = core.volume.pool.closed_metadata();
        let counted = victims.iter().map(|zone| u64::from(zone.live)).max().unwrap_or_default();
        let before = moved();
        if !core.gc.collect_one_zone(&mut saving, Need::Must).unwrap() {
            break;
        }
        collected += 1;
        assert!(moved() - before <= counted, "{} blocks moved, {counted} counted", moved() - before);
        core.checkpoints.checkpoint_with(&mut saving).unwrap();
    }
    assert!(collected > 0);
    drop(saving);
    assert_eq!(contents(&store), model);
    assert_eq!(store.check(&mut |_, _, _, _| ()).unwrap(), []);
}

#[test]
fn the_checker_counts_delta_records() {
    let device = formatted(Spec::new(4096, 64, 64), &options());
    let (store, _) = filled(&device, 500);
    let zone = store.pool().in_role(zone::Role::Metadata)[0];
    let at = |block| Address::new(ZoneId(zone.0), block, Life(1));
    assert!(store.core.volume.pool.merge_copy(Place { at: at(5), base: at(9) }.copy(), 1));
    let findings = store.check(&mut |_, _, _, _| ()).unwrap();
    assert_eq!(findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::LiveCount]);
    assert!(findings[0].what.contains("and 1"), "{findings:?}");
}

/// Large delta records: seven in a page. If they counted as smaller than they are, zones full of them would count as
/// partly dead, and GC would collect them for ever.
#[test]
fn gc_ends_if_nothing_can_be_gained() {
    let device = formatted(Spec::new(4096, 60, 64).limits(60, 60), &options());
    let (store, mut model) = (open(&device).unwrap().0, Contents::new());
    for number in 0..8000 {
        put(&store, &mut model, number, vec![1; 450]);
    }
    store.checkpoint().unwrap();
    for number in (0..8000).step_by(8) {
        put(&store, &mut model, number, vec![2; 450]);
    }
    store.checkpoint().unwrap();
    assert!(store.stats().deltas_written > 900);
    // Data takes every zone that it may, until no more zones are freed.
    let mut data = Vec::new();
    loop {
        let before = data.len();
        while let Some(lease) = store.open_zone(zone::Role::Gc).unwrap() {
            data.push(lease);
        }
        let steps = (0..1000).take_while(|_| store.step().unwrap() != crate::Step::Idle).count();
        assert!(steps < 500, "{steps} steps of background work and still not idle");
        if data.len() == before {
            break;
        }
    }
    assert_eq!(contents(&store), model);
}
