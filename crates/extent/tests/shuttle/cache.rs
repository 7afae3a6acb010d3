//! The cache of nodes: whoever looks up finds what was committed last, while others make room, change the same nodes,
//! and write them out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use emulated::{Emulated, Spec};
use tree::{Group, Store};

use crate::tables::{Account, TABLE, contents, key, open};
use crate::{Seen, explore, prepared, rng, spawn};

/// Less than this no cache is given: 24 nodes.
const CACHE_BYTES: u64 = 1;
/// Leaves of three keys each: twice as many as there is room for, and three times as many as may be dirty.
const KEYS: u32 = 150;
const VALUE: usize = 1100;

/// Versions of each key: of the newest transaction that was begun, and of the newest that has returned. No seams: what
/// is known of the threads is no part of what they do.
struct Versions(Vec<(AtomicU8, AtomicU8)>);

impl Versions {
    fn new() -> Arc<Self> {
        Arc::new(Versions((0..KEYS).map(|_| Default::default()).collect()))
    }

    fn of(&self, number: u32) -> &(AtomicU8, AtomicU8) {
        &self.0[number as usize]
    }
}

/// Changes every `step`th key from `first` on, one after the other: each in another leaf, so that there are too many
/// dirty ones now and then, and whoever changes the next has to wait.
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
fn look_ups_find_what_was_committed_last() {
    let (read, written) = (Seen::default(), Seen::default());
    let counted = (read.clone(), written.clone());
    let device = prepared(Spec::new(4096, 24, 64), 1, |device| {
        let (store, _) = open(device, CACHE_BYTES);
        (0..KEYS).for_each(|number| {
            Account::default().commit(&store, vec![(0, key(number), Some(vec![0; VALUE]))]);
        });
        store.close().unwrap();
    });
    explore("cache::look_ups_find_what_was_committed_last", 300, device, move |device| {
        let store = work(&device);
        counted.0.add(store.stats().nodes_read);
        counted.1.add(store.stats().nodes_written + store.stats().deltas_written);
        assert_eq!(contents(&store).len(), KEYS as usize);
    });
    read.report("nodes read");
    written.report("nodes written");
}
