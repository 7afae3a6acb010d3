//! The store when the machine has no more memory for pages.

use rt::order::Ordered;
use rt::sync::RwLock;

use super::prefetch::{ENTRIES, key, with_a_long_journal};
use super::*;
use crate::StoreError;

/// Makes changes while requests for memory are refused. A refused transaction has changed nothing. Returns how many
/// were refused.
fn work(store: &Store, model: &mut Contents, seed: u64, transactions: u32) -> u32 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..transactions {
        let mut after = model.clone();
        let tx = random_tx(&mut rng, &mut after, 1000, 700);
        match store.commit(tx) {
            Ok(_) => *model = after,
            Err(StoreError::NoMemory(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if rng.u8(0..20) == 0 {
            match store.step() {
                Ok(_) | Err(StoreError::NoMemory(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    refused
}

/// If the machine had no memory for one more node, the process ended, and all changes that were not synced were lost.
#[test]
fn a_cache_that_cannot_grow_works_as_a_smaller_one() {
    let device = formatted(Spec::power_of_two(), &options());
    rt::memory::make_scarce();
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    work(&store, &mut model, 1, 300);
    rt::memory::refuse(1, u64::MAX);
    assert_eq!(work(&store, &mut model, 2, 6000), 0, "dirty nodes are written out and dropped");
    assert!(rt::memory::refused() > 1000, "{} requests were refused", rt::memory::refused());
    assert_eq!(contents(&store), model);
    store.checkpoint().unwrap();
    store.close().unwrap();
    rt::memory::make_plenty();
    let (store, _) = open(&device).unwrap();
    assert_eq!(contents(&store), model);
}

/// A request for memory is refused, alone or with all that follow it. Callers get only errors for lack of memory. A
/// refused transaction has changed nothing, and the store continues when there is memory again.
#[test]
fn a_lack_of_memory_is_reported_and_does_no_harm() {
    let device = formatted(Spec::tiny(), &options());
    device.record();
    for times in [1, u64::MAX] {
        let (mut nth, mut refused) = (1, 0);
        loop {
            let image = Arc::new(device.image(&CrashPlan::KeepAll));
            rt::memory::refuse(nth, times);
            let Ok((store, _)) = open(&image) else {
                nth += 1;
                continue;
            };
            let mut model = Contents::new();
            refused += work(&store, &mut model, 3, 1000);
            let is_over = rt::memory::refused() == 0;
            rt::memory::refuse(1, 0);
            assert_eq!((store.shutdown_reason(), contents(&store)), (None, model.clone()), "request {nth}");
            work(&store, &mut model, 4, 10);
            store.checkpoint().unwrap();
            store.close().unwrap();
            drop(store);
            assert_eq!(contents(&open(&image).unwrap().0), model, "request {nth}");
            if is_over {
                break;
            }
            nth += 3;
        }
        assert!(nth > 30 && (refused > 0 || times == 1), "{nth} requests, {refused} refused");
    }
}

/// Takes all available pages, so the machine has no more.
fn nothing_is_left(store: &Store) -> Vec<zone::PageBuffer> {
    rt::memory::refuse(1, u64::MAX);
    let core = &store.core;
    while core.nodes.unused_pages.clear() || core.nodes.cache.shrink() || core.nodes.chunks.shrink() {}
    std::iter::from_fn(|| core.nodes.pages.try_take().ok()).collect()
}

/// Several leaves are read together for a walk in the order of the tree. The leaves behind took the available memory,
/// so that none remained for the delta record of the leaf that the walk had reached.
#[test]
fn readahead_takes_no_memory_that_the_walk_needs() {
    let device = with_a_long_journal();
    rt::memory::make_scarce();
    // The changes are written as delta records.
    let (store, _) = open(&device).unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    for free in [30, 12, 8, 6, 5, 4] {
        rt::memory::make_scarce();
        let (store, _) = open(&device).unwrap();
        // The most memory that a walk takes.
        contents(&store);
        let mut pages = nothing_is_left(&store);
        assert!(store.get(Group(0), Table(1), &key(0)).is_err(), "a tree has two levels");
        // The path, a leaf and its delta record, a chunk of the MAT, and some more.
        drop(pages.drain(..free));
        let mut entries = 0;
        let walked = store.visit(Group(0), Table(1), &[], &[], |_, _| {
            entries += 1;
            std::ops::ControlFlow::Continue(())
        });
        assert!(walked.is_ok() && entries == ENTRIES, "{walked:?} with {free} pages after {entries} entries");
        store.read_ahead_of(Table(1), (0..ENTRIES).step_by(100).map(|number| (Group(0), key(number))));
        for number in (0..ENTRIES).step_by(1000) {
            assert!(store.get(Group(0), Table(1), &key(number)).unwrap().is_some(), "{number}");
        }
    }
    rt::memory::make_plenty();
}

/// Prefetched nodes of a replay stay in memory until its records have been replayed, even nodes that the records do
/// not change. A mount fails only if memory lacks for the dirty nodes and for the temporary pages of one transaction.
#[test]
fn a_replay_releases_prefetched_nodes() {
    let device = with_a_long_journal();
    // The number of dirty pages after a mount, if this number of requests for memory succeed.
    let mount = |requests: u64| {
        rt::memory::refuse(requests + 1, u64::MAX);
        let opened = open_with(&device, &Config { read_only: true, ..config() });
        rt::memory::make_plenty();
        match opened {
            Ok((store, _)) => {
                let dirty = |group: &Ordered<RwLock<crate::trees::Tree>>| group.read().dirty.len() as u64;
                Some(store.core.trees.groups.iter().map(dirty).sum::<u64>())
            }
            Err(StoreError::NoMemory(_)) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let (mut too_few, mut enough) = (0, 1 << 16);
    assert_eq!(mount(too_few), None);
    let dirty = mount(enough).unwrap();
    while enough - too_few > 1 {
        let requests = (too_few + enough) / 2;
        *(if mount(requests).is_some() { &mut enough } else { &mut too_few }) = requests;
    }
    assert!(enough > 1500 && enough <= dirty + 12, "{enough} requests for {dirty} pages");
}

/// When the machine had no memory left, the pages of a checkpoint stayed in memory as chunks. If a reader held them
/// while a later checkpoint wrote these chunks again, that checkpoint needed as many pages once more, and the process
/// ended.
#[test]
fn each_checkpoint_has_its_reserved_pages() {
    let device = formatted(Spec::new(4096, 128, 2048), &options());
    rt::memory::make_scarce();
    let (store, _) = open_with(&device, &Config { cache_bytes: 64 << 20, ..config() }).unwrap();
    for first in (0..25_000).step_by(20) {
        let mut tx = Tx::new();
        (first..first + 20).for_each(|number| tx.put(Group(0), Table(1), key(number), vec![1; 1000]));
        store.commit(tx).unwrap();
    }
    store.checkpoint().unwrap();
    let all = contents(&store);
    let chunks = store.core.nodes.mat.chunks_len();
    assert!((40..=64).contains(&chunks), "{chunks} chunks, which are written together");
    let mut pages = nothing_is_left(&store);
    for _ in 0..4 {
        store.core.checkpoints.saving.lock().tables.move_mat_chunks(0..chunks);
        store.core.checkpoints.checkpoint().unwrap();
    }
    // A reader looks up places of nodes, and the chunks that it holds leave no memory for another one.
    let per_chunk = store.core.nodes.mat.per_chunk();
    let ids: Vec<_> = (1..chunks).map(|number| crate::types::NodeId(number * per_chunk)).collect();
    drop(pages.drain(..8));
    let mut held = store.core.nodes.pin_chunks(&ids);
    assert!(
        matches!(store.core.nodes.find(*ids.last().unwrap()), Err(StoreError::NoMemory(_))),
        "{}",
        held.len()
    );
    store.core.nodes.find_with_chunks(&mut held, *ids.last().unwrap()).unwrap();
    assert!(held.is_empty());
    rt::memory::make_plenty();
    assert_eq!(contents(&store), all);
    store.close().unwrap();
}

/// Dropping a chunk in use frees no memory. It would have to be read again, and there is no memory for that.
#[test]
fn a_chunk_in_use_stays_in_the_cache() {
    let device = formatted(Spec::tiny(), &options());
    rt::memory::make_scarce();
    let (store, _) = open(&device).unwrap();
    work(&store, &mut Contents::new(), 5, 100);
    store.checkpoint().unwrap();
    let root = Group(0).root();
    let held = store.core.nodes.pin_chunks(&[root]);
    assert_eq!(held.len(), 1);
    let pages = nothing_is_left(&store);
    assert!(store.core.nodes.find(root).is_ok(), "the chunk is in memory");
    drop((held, pages));
    let pages = nothing_is_left(&store);
    assert!(
        matches!(store.core.nodes.find(root), Err(StoreError::NoMemory(_))),
        "the chunk is no longer in use"
    );
    drop(pages);
    rt::memory::make_plenty();
}
