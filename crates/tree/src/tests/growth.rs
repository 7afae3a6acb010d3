//! The space of nodes: what a transaction reserves, for how long, and its refusal without space.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::sync::Mutex;
use zone::Role;

use super::*;
use crate::{Growth, Moment};

/// Four of them fill a leaf.
fn a_large_row(number: u32) -> Tx {
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), number.to_be_bytes(), vec![1; 900]);
    tx
}

/// Has space for a number of nodes that are not made yet, and notes the largest number requested.
#[derive(Default)]
struct Space {
    nodes: AtomicU64,
    asked_max: AtomicU64,
}

impl Growth for Space {
    fn may_grow(&self, _: &Moment<'_>, asked: u64) -> bool {
        self.asked_max.fetch_max(asked, Ordering::SeqCst);
        asked <= self.nodes.load(Ordering::SeqCst)
    }
}

/// A store with space for this number of nodes at once.
fn with_space(nodes: u64) -> (Arc<crate::Store>, Arc<Space>) {
    let device = formatted(Spec::tiny(), &options());
    let store = Arc::new(open(&device).unwrap().0);
    let space = Arc::new(Space { nodes: nodes.into(), ..Space::default() });
    let growth: Weak<Space> = Arc::downgrade(&space);
    store.set_growth(growth);
    (store, space)
}

#[test]
fn a_transaction_that_splits_a_leaf_is_refused_where_there_is_no_space_for_a_node() {
    let (store, space) = with_space(0);
    let fits = (0..20_u32).take_while(|&number| store.commit(a_large_row(number)).is_ok()).count() as u32;
    assert!((3..20).contains(&fits), "{fits} rows split no leaf");
    assert!(matches!(store.commit(a_large_row(fits)), Err(crate::StoreError::NoSpace)));
    assert_eq!(store.nodes_reserved(), 0, "a refusal reserves nothing");
    let mut tx = Tx::new();
    tx.delete(Group(0), Table(1), 0_u32.to_be_bytes());
    store.commit(tx).unwrap();
    space.nodes.store(1, Ordering::SeqCst);
    store.commit(a_large_row(fits)).unwrap();
}

/// Notes how many nodes are reserved at the moment when a transaction takes effect, before it has made a node.
struct Noted(Weak<crate::Store>, Mutex<Vec<u64>>);

impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noted")
    }
}

impl crate::Reserved for Noted {
    fn spend(&self) {
        let store = self.0.upgrade().unwrap();
        self.1.lock().push(store.nodes_reserved());
    }
}

/// A count must find a node as reserved or as existing. Otherwise data would be promised the space of a node that was
/// not found.
#[test]
fn nodes_are_reserved_when_a_transaction_takes_effect() {
    let (store, _space) = with_space(50);
    let noted = Arc::new(Noted(Arc::downgrade(&store), Default::default()));
    let mut splits = 0;
    for number in 0..20_u32 {
        let before = store.core.nodes.mat.next_node();
        let mut tx = a_large_row(number);
        tx.reserved.push(noted.clone());
        store.commit(tx).unwrap();
        let (made, reserved) = (store.core.nodes.mat.next_node() > before, *noted.1.lock().last().unwrap());
        assert_eq!(made, reserved > 0, "row {number}: a node is reserved where one is made");
        assert_eq!(store.nodes_reserved(), 0, "and no longer after it was made");
        splits += u32::from(made);
    }
    assert!(splits > 2, "leaves were split");
}

/// The space for the growth of trees is not assigned to a transaction. The second of two transactions that requested it
/// got ENOSPC on a nearly empty volume. The request is repeated until it is refused.
#[test]
fn no_more_nodes_are_reserved_at_once_than_there_is_space_for() {
    let (store, _space) = with_space(5);
    let growing = store.core.trees.reserve_nodes(4).unwrap();
    assert!(store.core.trees.reserve_nodes(2).is_none() && store.core.trees.reserve_nodes(0).is_some());
    assert_eq!(store.nodes_reserved(), 4);
    let last = store.core.trees.reserve_nodes(1).unwrap();
    drop(growing);
    assert!(store.core.trees.reserve_nodes(4).is_some());
    drop(last);
    assert_eq!(store.nodes_reserved(), 0);
}

/// A zone of the reserve is in use, which is the purpose of the reserve. While metadata has enough garbage, or needs
/// none, trees grow anyway. Otherwise no name could be made although there is space.
#[test]
fn while_no_garbage_is_lacking_trees_grow_into_the_reserve() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    store.checkpoint().unwrap();
    let pool = store.pool();
    assert_eq!(
        store.zones_needed_to_grow(),
        store.core.volume.pool.metadata_reserve(),
        "no garbage is lacking"
    );
    while pool.free() >= store.zones_needed_to_grow() {
        store.core.volume.pool.take(Role::Metadata).unwrap();
    }
    let before = store.core.nodes.mat.next_node();
    for number in 0..20_u32 {
        store.commit(a_large_row(number)).unwrap();
    }
    assert!(store.core.nodes.mat.next_node() > before + 3, "leaves were split");
    assert!(pool.free_or_outstanding() < store.zones_needed_to_grow(), "and a zone was missing all the time");
}

/// Each row behind the one that filled a leaf counted as another split of it. A clone of a few blocks was to make two
/// hundred nodes, and found no space for them.
#[test]
fn many_rows_in_one_leaf_split_it_a_few_times() {
    let device = formatted(Spec::new(4096, 16, 256), &options());
    let (store, _) = open(&device).unwrap();
    let put = |tx: &mut Tx, number: u32| {
        tx.put(Group(0), Table(1), format!("key {number:04}").into_bytes(), vec![7; 30]);
    };
    // The only leaf has little free space.
    let mut tx = Tx::new();
    (0..80).for_each(|number| put(&mut tx, 10 * number));
    store.commit(tx).unwrap();
    let space = Arc::new(Space::default());
    let growth: Weak<Space> = Arc::downgrade(&space);
    store.set_growth(growth);
    let mut tx = Tx::new();
    (0..200).for_each(|number| put(&mut tx, 2000 + number));
    assert!(matches!(store.commit(tx), Err(crate::StoreError::NoSpace)), "there is no space");
    let nodes = space.asked_max.load(Ordering::SeqCst);
    // Two hundred rows of some fifty bytes, in pages of 4 KiB.
    assert!((2..=8).contains(&nodes), "{nodes} nodes");
}
