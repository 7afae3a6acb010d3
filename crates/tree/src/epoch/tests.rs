use std::sync::Arc;

use zone::emulated::{CrashPlan, Spec};
use zone::{Cause, Device, Geometry};

use super::*;
use crate::Store;
use crate::tests::{Contents, config, contents, formatted, open, open_with, options, random_tx};

/// What all dirty nodes weigh, one by one.
fn weighed(core: &Core) -> (usize, Weight) {
    let (mut nodes, mut weight) = (0, Weight::default());
    for node in core.groups.iter().flat_map(|group| group.read().dirty.values().cloned().collect::<Vec<_>>())
    {
        let state = node.look();
        let now = Weight::of_changes(&state.changes, core.mat.has_deltas(), core.page_size());
        assert_eq!(state.counted, now, "node {} is counted as what it weighs", node.id.0);
        (nodes, weight) = (nodes + 1, weight + now);
    }
    (nodes, weight)
}

fn is_counted_right(store: &Store) {
    let dirty = &store.core.count.dirty;
    assert_eq!((dirty.nodes(), dirty.weight()), weighed(&store.core));
}

/// The reserve has room for what an epoch weighs. Were it less than what the checkpoint writes, a volume that is nearly
/// full could not write one.
#[test]
fn a_checkpoint_writes_no_more_than_what_was_weighed() {
    let device = formatted(Spec::new(4096, 64, 256), &options());
    let (store, _) = open_with(&device, &crate::Config { cache_bytes: 16 << 20, ..config() }).unwrap();
    let (mut rng, mut model, mut nearest) = (fastrand::Rng::with_seed(9), Contents::new(), 0.0_f64);
    for round in 0..120 {
        // Many leaves that change a little, few that change much, and splits and merges.
        let (count, value_max) = (rng.usize(1..400), [20, 100, 700][round % 3]);
        for _ in 0..count {
            store.commit(random_tx(&mut rng, &mut model, 4000, value_max)).unwrap();
        }
        is_counted_right(&store);
        if round % 4 == 3 {
            store.core.write_out(&mut store.core.saving.lock()).unwrap();
            assert_eq!(weighed(&store.core), (0, Weight::default()));
            is_counted_right(&store);
            continue;
        }
        let most = store.core.dirty_pages();
        let tables = store.core.written_beside(&store.core.saving.lock(), 0);
        let before = store.traffic().bytes_written(Cause::Checkpoint);
        store.checkpoint().unwrap();
        // The record goes to the log.
        let written = (store.traffic().bytes_written(Cause::Checkpoint) - before) / 4096 - 1;
        assert!(written <= most as u64 + tables, "round {round}: {written} pages, of {most} and {tables}");
        nearest = nearest.max(written as f64 / (most as u64 + tables) as f64);
        assert_eq!((store.core.count.dirty.nodes(), store.core.dirty_pages()), (0, 0));
    }
    assert!(nearest > 0.8, "the bound is near: {nearest}");
    assert_eq!(contents(&store), model);
}

/// The reserve has room for what two epochs weigh after a crash as well.
#[test]
fn what_is_replayed_weighs_no_more_than_what_was_changed() {
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
            store.core.write_out(&mut store.core.saving.lock()).unwrap();
        }
        store.sync(store.last_lsn()).unwrap();
        let changed = store.core.mat.running_weight() + store.core.count.dirty.weight();
        let (replayed, recovery) = open(&Arc::new(device.image(&CrashPlan::LoseAll))).unwrap();
        let weight = replayed.core.count.dirty.weight();
        assert!(
            !recovery.clean && Weight::default() < weight && weight <= changed,
            "{weight:?}, {changed:?}"
        );
        is_counted_right(&replayed);
        assert_eq!(contents(&replayed), model);
    }
}

/// Zones kept for what two epochs write, with pages of 16 KiB: volumes of few small zones have more for files, and where a
/// zone has the room anyway epochs are longer.
#[test]
fn an_epoch_is_as_long_as_the_zones_kept_for_it_allow() {
    let limits = |zones: u32, zone_mib: u32| {
        let geometry = Geometry {
            block_size: 4096,
            zones,
            zone_blocks: zone_mib * 256,
            ..*formatted(Spec::tiny(), &options()).geometry()
        };
        let (limits, _) = Limits::new(&geometry, 16 << 10, 128 << 20);
        let kept = limits.kept_for_metadata(&geometry, 16 << 10);
        (limits.epoch_pages, kept.zones(0))
    };
    assert_eq!(limits(4, 4), (32, 2));
    assert_eq!(limits(16, 4), (64, 2));
    assert_eq!(limits(64, 16), (512, 3));
    assert_eq!(limits(256, 16), (512, 3));
    assert_eq!(limits(64, 64), (1024, 2));
    assert_eq!(limits(1024, 256), (1024, 2));
}
