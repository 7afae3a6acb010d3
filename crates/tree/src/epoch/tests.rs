use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec};
use zone::{Cause, Device, Geometry};

use super::*;
use crate::Store;
use crate::core::Core;
use crate::limits::Limits;
use crate::tests::{Contents, config, contents, formatted, open, open_with, options, random_tx};

/// The number and the weight of all dirty nodes, added up node by node.
fn weighed(core: &Core) -> (usize, Weight) {
    let (mut nodes, mut weight) = (0, Weight::default());
    for node in
        core.trees.groups.iter().flat_map(|group| group.read().dirty.values().cloned().collect::<Vec<_>>())
    {
        let state = node.look();
        let now = Weight::of_changes(&state.changes, core.nodes.mat.has_deltas(), core.volume.page_size());
        assert_eq!(state.counted, now, "node {} is counted with its weight", node.id.0);
        (nodes, weight) = (nodes + 1, weight + now);
    }
    (nodes, weight)
}

fn is_counted_right(store: &Store) {
    let dirty = &store.core.running.dirty;
    assert_eq!((dirty.nodes(), dirty.weight()), weighed(&store.core));
}

/// The reserve has space for the weight of an epoch. If a checkpoint wrote more than that, a nearly full volume could
/// not take one.
#[test]
fn a_checkpoint_writes_no_more_than_the_dirty_weight() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, _) = open_with(&device, &crate::Config { cache_bytes: 16 << 20, ..config() }).unwrap();
    let (mut rng, mut model, mut nearest) = (fastrand::Rng::with_seed(9), Contents::new(), 0.0_f64);
    for round in 0..120 {
        // Many leaves with small changes, few with large ones, and splits and merges.
        let (count, value_max) = (rng.usize(1..400), [20, 100, 700][round % 3]);
        for _ in 0..count {
            store.commit(random_tx(&mut rng, &mut model, 4000, value_max)).unwrap();
        }
        is_counted_right(&store);
        if round % 4 == 3 {
            store.core.checkpoints.write_out(&mut store.core.checkpoints.saving.lock()).unwrap();
            assert_eq!(weighed(&store.core), (0, Weight::default()));
            is_counted_right(&store);
            continue;
        }
        let most = store.core.running.dirty_pages();
        let tables = store.core.headroom.table_blocks(&store.core.checkpoints.saving.lock(), 0);
        let before = store.traffic().bytes_written(Cause::Checkpoint);
        store.checkpoint().unwrap();
        // The record goes to the log.
        let written = (store.traffic().bytes_written(Cause::Checkpoint) - before) / 4096 - 1;
        assert!(written <= most as u64 + tables, "round {round}: {written} pages, of {most} and {tables}");
        nearest = nearest.max(written as f64 / (most as u64 + tables) as f64);
        assert_eq!((store.core.running.dirty().nodes(), store.core.running.dirty_pages()), (0, 0));
    }
    assert!(nearest > 0.8, "the bound is near: {nearest}");
    assert_eq!(contents(&store), model);
}

/// After a crash too, the reserve has space for the weight of two epochs.
#[test]
fn replayed_nodes_weigh_no_more_than_changed_ones() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, _) = open_with(&device, &crate::Config { cache_bytes: 16 << 20, ..config() }).unwrap();
    let (mut rng, mut model) = (fastrand::Rng::with_seed(3), Contents::new());
    let mut change = |store: &Store, model: &mut Contents, count: u32| {
        for _ in 0..count {
            store.commit(random_tx(&mut rng, model, 4000, 100)).unwrap();
        }
    };
    change(&store, &mut model, 2000);
    store.checkpoint().unwrap();
    device.record();
    for round in 0..6 {
        change(&store, &mut model, 150);
        if round % 2 == 0 {
            store.core.checkpoints.write_out(&mut store.core.checkpoints.saving.lock()).unwrap();
        }
        store.sync(store.last_lsn()).unwrap();
        let changed = store.core.nodes.mat.running_weight() + store.core.running.dirty().weight();
        let (replayed, recovery) = open(&Arc::new(device.image(&CrashPlan::LoseAll))).unwrap();
        let weight = replayed.core.running.dirty().weight();
        assert!(
            !recovery.clean && Weight::default() < weight && weight <= changed,
            "{weight:?}, {changed:?}"
        );
        is_counted_right(&replayed);
        assert_eq!(contents(&replayed), model);
    }
}

/// The pages of an epoch, and the free zones that metadata needs. Volumes of few small zones leave more of them for
/// files. Epochs are longer if one zone has space for two of them.
#[test]
fn the_reserve_holds_two_epochs_in_whole_pages() {
    let limits = |zones: u32, zone_mib: u32| {
        let geometry = Geometry {
            block_size: 4096,
            zones,
            zone_blocks: zone_mib * 256,
            ..*formatted(Spec::tiny(), &options()).geometry()
        };
        let (limits, _) = Limits::new(&geometry, 16 << 10, 128 << 20);
        let kept = limits.metadata_reserve_of(&geometry, 16 << 10);
        let in_zone = u64::from((geometry.zone_blocks - 1) / 4);
        let pages = (limits.epoch_pages * 5 / 2 + 2 * limits.zone_table_beyond) as u64;
        assert!(pages <= u64::from(kept.zones(0) - 1) * in_zone, "{pages} pages, {in_zone} fit in a zone");
        (limits.epoch_pages, kept.zones(0))
    };
    assert_eq!(limits(4, 4), (32, 2));
    assert_eq!(limits(16, 4), (64, 2));
    assert_eq!(limits(64, 16), (512, 3));
    assert_eq!(limits(256, 16), (512, 3));
    assert_eq!(limits(64, 64), (1024, 2));
    assert_eq!(limits(1024, 256), (1024, 2));
    assert_eq!(limits(1024, 4), (512, 7));
    assert!(limits(1000, 1).1 > limits(100, 1).1);
}

/// A checkpoint writes the changed pages of the zone table, which may be all of them. With 640,000 zones of a mebibyte
/// or more, these were more than the reserve for two epochs. On a nearly full volume GC would have been refused, and
/// then a checkpoint would have found no zone, which shuts the volume down.
#[test]
fn the_reserve_has_space_for_the_zone_table() {
    let geometry = |zones: u32, zone_mib: u32| Geometry {
        block_size: 4096,
        zones,
        zone_blocks: zone_mib * 256,
        ..*formatted(Spec::tiny(), &options()).geometry()
    };
    let page_size = 16 << 10;
    for (zones, zone_mib) in
        [(64, 64), (256, 16), (64, 16), (1024, 1), (1024, 16), (1024, 1024), (29_000, 256), (40_000, 2)]
    {
        let (limits, _) = Limits::new(&geometry(zones, zone_mib), page_size, 128 << 20);
        let kept = limits.metadata_reserve_of(&geometry(zones, zone_mib), page_size);
        let as_ever = (limits.epoch_pages * 5 / 2 * 4) as u64;
        let few = zones < 30_000;
        assert!(!few || kept.blocks == as_ever, "{zones} zones of {zone_mib} MiB: {} blocks", kept.blocks);
        assert!(few || kept.blocks <= as_ever + 2 * 4 * 80, "{} blocks", kept.blocks);
    }
    let many = [640_000, 1_350_000, 4_000_000]
        .into_iter()
        .flat_map(|zones| [1, 4, 16, 64, 256].map(|mib| (zones, mib)));
    for (zones, zone_mib) in many {
        let geometry = geometry(zones, zone_mib);
        let (limits, _) = Limits::new(&geometry, page_size, 128 << 20);
        let kept = limits.metadata_reserve_of(&geometry, page_size);
        let chunks = (zones as usize).div_ceil(510);
        let table = chunks + chunks.div_ceil(1020);
        // The pages that may become dirty before the cut, with the pages of the MAT beyond its part, the rest of the
        // MAT, and the whole zone table: twice, and a zone as the target of GC beside the second.
        let checkpoint = limits.epoch_pages + limits.mat_pages + table;
        let needed = |checkpoints: usize| {
            ((checkpoints * checkpoint * 4) as u64).div_ceil(u64::from(geometry.zone_blocks - 1)) as u32
        };
        assert!(kept.zones(0) > needed(2), "{zones} zones of {zone_mib} MiB: {} reserved", kept.zones(0));
        let cleaning = checkpoint + limits.epoch_pages / 4;
        assert!(((kept.zones(0) - 1) * (geometry.zone_blocks - 1)) as usize >= cleaning * 4);
        assert!(kept.zones(0) <= needed(2) + needed(2) / 2 + 2, "and not much more: {}", kept.zones(0));
        assert!(kept.zones(0) < zones / 1000, "{} of {zones} zones of {zone_mib} MiB", kept.zones(0));
    }
}

/// Delta records share pages, and each page has a rest that the next record does not fit into.
#[test]
fn delta_records_take_no_more_pages_than_their_weight() {
    for page_size in [4096, 16 << 10, 64 << 10] {
        for bytes in [60, page_size / crate::delta::SHARE] {
            for count in [1, 7, 8, 100, 1000] {
                let weight = (0..count).fold(Weight::default(), |sum, _| sum + Weight::packed(bytes));
                let pages = usize::div_ceil(count, (page_size - crate::format::PAGE_HEADER) / bytes);
                let weighed = weight.pages(page_size);
                assert!(pages <= weighed, "{count} times {bytes} bytes: {pages} pages, weighed as {weighed}");
                assert!(weighed <= pages * 5 / 4 + 2, "{weighed} is far more than {pages}");
            }
        }
    }
    assert_eq!([0, 1, 4096, 4097].map(|bytes| Weight::of_bytes(bytes).pages(4096)), [0, 2, 2, 3]);
}

/// The reserve has space for the pages of two epochs, and after a crash replay has their nodes in memory. With a small
/// cache dirty nodes are written early, which frees memory but does not end the epoch. An epoch that never ended would
/// change more nodes than there is space for.
#[test]
fn an_epoch_is_bounded_although_no_node_stays_dirty() {
    let device = formatted(Spec::new(4096, 128, 256), &options());
    let (store, _) = open(&device).unwrap();
    let put = |number: u32, bytes: usize| {
        let mut tx = crate::Tx::new();
        tx.put(crate::Group(0), crate::Table(1), number.to_be_bytes(), vec![7; bytes]);
        store.commit(tx).unwrap();
    };
    (0..45_000).for_each(|number| put(number, 100));
    let (core, mut rng) = (&store.core, fastrand::Rng::with_seed(6));
    let limits = core.running.limits;
    // Small changes of most leaves, which share pages. And changes so large that each leaf takes a page of its own.
    for (bytes, bound_by_nodes) in [(100, true), (600, false)] {
        store.checkpoint().unwrap();
        let (mut nodes, mut pages, before) = (0, 0, store.stats().checkpoints);
        for _ in 0..3000 {
            put(rng.u32(0..45_000), bytes);
            nodes = nodes.max(core.running.changed_nodes());
            pages = pages.max(core.running.changed_pages());
        }
        let context =
            format!("{nodes} of {} nodes, {pages} of {} pages", limits.epoch_nodes, core.running.pages_now());
        println!("{bytes} bytes: {context}");
        assert!(store.stats().checkpoints > before, "{context}");
        assert!(
            nodes <= limits.epoch_nodes + limits.dirty && pages <= core.running.pages_now() * 5 / 4,
            "{context}"
        );
        let is_met =
            if bound_by_nodes { nodes >= limits.epoch_nodes } else { pages >= core.running.pages_now() };
        assert!(is_met, "the bound is met: {context}");
    }
}

/// A thread that reserves space for a checkpoint asks how much of the epoch has passed.
#[test]
fn an_epoch_passes_until_a_checkpoint_begins() {
    let device = formatted(Spec::new(4096, 128, 256), &options());
    let (store, _) = open(&device).unwrap();
    let share = || store.epoch().1;
    store.checkpoint().unwrap();
    let (checkpoints, mut before) = (store.stats().checkpoints, share());
    assert!(before < 0.2, "{before}: it has just begun");
    for number in 0..100_000_u32 {
        let mut tx = crate::Tx::new();
        tx.put(crate::Group(0), crate::Table(1), (number * 7919).to_be_bytes(), vec![7; 100]);
        store.commit(tx).unwrap();
        let _ = store.step().unwrap();
        if store.stats().checkpoints > checkpoints {
            assert!(before >= 0.9, "{before} of it had passed");
            assert!(share() < 0.5, "{}: another has begun", share());
            return;
        }
        before = share();
    }
    panic!("there was no checkpoint, and {before} of an epoch has passed");
}

/// Hundreds of leaves, all written by a checkpoint.
fn with_leaves(zones: u32) -> (Arc<Emulated>, Store) {
    let device = formatted(Spec::new(4096, zones, 256), &options());
    let (store, _) = open_with(&device, &with_cache()).unwrap();
    for first in (0..24_000_u32).step_by(20) {
        let mut tx = crate::Tx::new();
        (first..first + 20).for_each(|number| put(&mut tx, number, 100));
        store.commit(tx).unwrap();
    }
    store.checkpoint().unwrap();
    (device, store)
}

fn with_cache() -> crate::Config {
    crate::Config { cache_bytes: 8 << 20, ..config() }
}

fn put(tx: &mut crate::Tx, number: u32, bytes: usize) {
    tx.put(crate::Group(0), crate::Table(1), number.to_be_bytes(), vec![7; bytes]);
}

/// Entries at this distance are in different leaves.
fn change_leaf(store: &Store, leaf: u32, bytes: usize) {
    let mut tx = crate::Tx::new();
    put(&mut tx, leaf * 40, bytes);
    store.commit(tx).unwrap();
}

/// Dirty nodes are written without a checkpoint only if the epoch has space for as many again, as nodes and as pages,
/// and many zones are free. Otherwise a checkpoint would follow at once, and the tables would be written for few
/// changes.
#[test]
fn an_epoch_is_ending_without_space_for_as_many_dirty_nodes_again() {
    // Small changes of many leaves. And changes so large that each leaf takes a page.
    for (zones, bytes) in [(512, 100), (128, 600)] {
        let (_, store) = with_leaves(zones);
        let core = &store.core;
        let is_ending = (0..600).any(|leaf| {
            change_leaf(&store, leaf, bytes);
            core.running.epoch_is_ending()
        });
        let (nodes, pages) =
            (2 * core.running.changed_nodes(), core.running.changed_pages() + core.running.dirty_pages());
        let (most_nodes, most_pages) = (core.running.limits.epoch_nodes, core.running.limits.long_epoch);
        let context = format!("{nodes} of {most_nodes} nodes, {pages} of {most_pages} pages");
        println!("{bytes} bytes: {context}");
        let by_nodes = (most_nodes..most_nodes + 2).contains(&nodes) && pages < most_pages;
        let by_pages = (most_pages..most_pages + 4).contains(&pages) && nodes < most_nodes;
        assert!(is_ending && if bytes == 100 { by_nodes } else { by_pages }, "{context}");

        store.checkpoint().unwrap();
        assert!(!core.running.epoch_is_ending(), "another has begun");
        while core.volume.pool.free() >= core.volume.device.geometry().zones / 4 {
            core.volume.pool.take(zone::Role::Metadata).unwrap();
        }
        assert!(core.running.epoch_is_ending(), "zones are few");
    }
}

/// An eighth of the pages is for transactions until the cut. A checkpoint begins before that.
#[test]
fn an_epoch_has_passed_when_its_pages_request_a_checkpoint() {
    let (_, store) = with_leaves(128);
    let core = &store.core;
    let is_pressed = (0..600).any(|leaf| {
        assert!(core.running.epoch_share() < 1.0, "{} of it with {leaf} leaves", core.running.epoch_share());
        change_leaf(&store, leaf, 600);
        core.running.is_pressed()
    });
    let (pages, most) = (core.running.changed_pages(), core.running.pages_now());
    assert!(
        is_pressed && core.running.changed_nodes() < core.running.nodes_until_pressed(),
        "{pages} of {most} pages"
    );
    assert!(
        core.running.epoch_share() >= 1.0,
        "{} of it, {pages} of {most} pages",
        core.running.epoch_share()
    );
}

/// After another crash, a second epoch on top of one that was not saved would need more space than there is.
#[test]
fn a_mount_that_finds_many_pages_changed_begins_with_a_checkpoint() {
    let (device, store) = with_leaves(128);
    device.record();
    for (leaves, are_many) in [(0..100, false), (100..200, true)] {
        leaves.for_each(|leaf| change_leaf(&store, leaf, 600));
        store.sync(store.last_lsn()).unwrap();
        let image = Arc::new(device.image(&CrashPlan::LoseAll));
        let (found, recovery) = open_with(&image, &with_cache()).unwrap();
        let (nodes, pages, limits) = (
            found.core.running.changed_nodes(),
            found.core.running.changed_pages(),
            found.core.running.limits,
        );
        assert!(recovery.records > 0 && nodes < limits.epoch_nodes, "{nodes} nodes");
        assert_eq!(pages > limits.epoch_pages, are_many, "{pages} of {} pages", limits.epoch_pages);
        change_leaf(&found, 500, 100);
        assert_eq!(found.stats().checkpoints, u64::from(are_many), "with {pages} pages");
    }
}
