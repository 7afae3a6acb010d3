//! The cache of nodes: a lookup finds the newest commit, while other threads drop nodes from the cache, change the same
//! nodes, and write them out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use emulated::{Emulated, Spec};
use tree::{Group, Store};

use crate::tables::{Account, TABLE, contents, key, open};
use crate::{Seen, explore, prepared, rng, spawn};

/// Every cache has at least 24 nodes.
const CACHE_BYTES: u64 = 1;
/// Leaves of three keys each: twice as many as the cache holds, and three times as many as may be dirty.
const KEYS: u32 = 150;
const VALUE: usize = 1100;

/// Versions of each key: of the newest transaction that has begun, and of the newest that has returned. These are no
/// seams, so that the test does not change the schedules.
struct Versions(Vec<(AtomicU8, AtomicU8)>);

impl Versions {
    fn new() -> Arc<Self> {
        Arc::new(Versions((0..KEYS).map(|_| Default::default()).collect()))
    }

    fn of(&self, number: u32) -> &(AtomicU8, AtomicU8) {
        &self.0[number as usize]
    }
}

/// Changes every `step`th key from `first` on, one after the other. Each is in another leaf, so that there are too many
/// dirty leaves now and then, and the next change has to wait.
fn change(store: &Store, versions: &Versions, (first, step): (u32, usize)) {
    for number in (first..KEYS).step_by(step) {
        let (begun, returned) = versions.of(number);
        let version = begun.fetch_add(1, Ordering::Relaxed) + 1;
        Account::default().commit(store, vec![(0, key(number), Some(vec![version; VALUE]))]);
        returned.store(version, Ordering::Relaxed);
    }
}

fn look(store: &Store, versions: &Versions, times: u32) {
    let mut rng = rng();
    for _ in 0..times {
        let number = rng.u32(0..KEYS);
        let (begun, returned) = versions.of(number);
        let at_least = returned.load(Ordering::Relaxed);
        let value = store.get(Group(0), TABLE, &key(number)).unwrap().unwrap();
        let at_most = begun.load(Ordering::Relaxed);
        assert!(value.iter().all(|byte| *byte == value[0]), "one version of a value");
        assert!((at_least..=at_most).contains(&value[0]), "{at_least} <= {} <= {at_most}", value[0]);
    }
}

fn work(device: &Arc<Emulated>) -> Arc<Store> {
    let versions = Versions::new();
    let (store, _) = open(device, CACHE_BYTES);
    let mut threads = Vec::new();
    for first in [0, 3] {
        let (store, versions) = (Arc::clone(&store), Arc::clone(&versions));
        threads.push(spawn("writer", move || change(&store, &versions, (first, 6))));
    }
    for _ in 0..2 {
        let (store, versions) = (Arc::clone(&store), Arc::clone(&versions));
        threads.push(spawn("reader", move || look(&store, &versions, 20)));
    }
    let keeper = Arc::clone(&store);
    threads.push(spawn("keeper", move || (0..3).for_each(|_| _ = keeper.step().unwrap())));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    look(&store, &versions, KEYS);
    store
}

#[test]
fn lookups_find_the_newest_commit() {
    let (read, written) = (Seen::default(), Seen::default());
    let counted = (read.clone(), written.clone());
    let device = prepared(Spec::new(4096, 24, 64), 1, |device| {
        let (store, _) = open(device, CACHE_BYTES);
        (0..KEYS).for_each(|number| {
            Account::default().commit(&store, vec![(0, key(number), Some(vec![0; VALUE]))]);
        });
        store.close().unwrap();
    });
    explore("cache::lookups_find_the_newest_commit", 300, device, move |device| {
        let store = work(&device);
        counted.0.add(store.stats().nodes_read);
        counted.1.add(store.stats().nodes_written + store.stats().deltas_written);
        assert_eq!(contents(&store).len(), KEYS as usize);
    });
    read.report("nodes read");
    written.report("nodes written");
}
