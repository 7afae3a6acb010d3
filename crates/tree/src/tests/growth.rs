//! What trees may grow by: who is asked, what is granted, taken and counted.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::sync::Mutex;
use zone::Role;

use super::*;

/// Four of them fill a leaf.
fn a_large_row(number: u32) -> Tx {
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), number.to_be_bytes(), vec![1; 900]);
    tx
}

/// Says how many nodes trees were to grow by, at most.
#[derive(Default)]
struct Asked(AtomicU64);

impl crate::Growth for Asked {
    fn allow(&self, nodes: u64) -> bool {
        self.0.fetch_max(nodes, Ordering::SeqCst);
        false
    }
}

/// Grants what is asked for, and has others take it at once, the first few times.
struct Robbed(Weak<crate::Store>, AtomicU64);

impl crate::Growth for Robbed {
    fn allow(&self, nodes: u64) -> bool {
        let store = self.0.upgrade().unwrap();
        store.zones().allow_nodes(nodes);
        if self.1.fetch_add(1, Ordering::SeqCst) < 5 {
            store.zones().allow_no_nodes();
        }
        true
    }
}

/// What was granted is nobody's in particular: who had asked for it and came second was told that there is no space, on a
/// volume that was all but empty.
#[test]
fn who_is_robbed_of_what_was_granted_asks_again() {
    let device = formatted(Spec::tiny(), &options());
    let store = Arc::new(open(&device).unwrap().0);
    store.zones().allow_no_nodes();
    let robbed = Arc::new(Robbed(Arc::downgrade(&store), Default::default()));
    let growth: Weak<Robbed> = Arc::downgrade(&robbed);
    store.set_growth(growth);
    let before = store.core.mat.next_node();
    for number in 0..6_u32 {
        store.commit(a_large_row(number)).unwrap();
    }
    assert!(store.core.mat.next_node() > before + 1, "a leaf was split");
    assert!(robbed.1.load(Ordering::SeqCst) > 5);
    assert_eq!(
        store.zones().allowed_or_growing_nodes(),
        store.zones().allowed_nodes(),
        "nothing is under way"
    );
}

/// Notes what trees may grow by at the moment at which a transaction takes effect, before it has made a node.
struct Noted(Weak<crate::Store>, Mutex<Vec<[u64; 2]>>);

impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noted")
    }
}

impl crate::Promise for Noted {
    fn kept(&self) {
        let store = self.0.upgrade().unwrap();
        let zones = store.zones();
        self.1.lock().push([zones.allowed_nodes(), zones.allowed_or_growing_nodes()]);
    }
}

/// Whoever counts between the two finds them: they were in neither number, and data had as much more.
#[test]
fn what_trees_are_growing_by_is_counted_until_it_is_there() {
    let device = formatted(Spec::tiny(), &options());
    let store = Arc::new(open(&device).unwrap().0);
    store.zones().allow_no_nodes();
    store.zones().allow_nodes(50);
    let noted = Arc::new(Noted(Arc::downgrade(&store), Default::default()));
    let mut before = 50;
    for number in 0..20_u32 {
        let mut tx = a_large_row(number);
        tx.promises.push(noted.clone());
        store.commit(tx).unwrap();
        let [allowed, with_growing] = *noted.1.lock().last().unwrap();
        assert_eq!(with_growing, before, "all that there was is counted while a node is made");
        before = allowed;
        assert_eq!(
            (store.zones().allowed_nodes(), store.zones().allowed_or_growing_nodes()),
            (allowed, allowed)
        );
    }
    assert!(before < 50, "leaves were split");
    let growing = store.core.take_allowance(before).unwrap();
    assert!(store.core.take_allowance(1).is_none() && store.core.take_allowance(0).is_some());
    assert_eq!((store.zones().allowed_nodes(), store.zones().allowed_or_growing_nodes()), (0, before));
    drop(growing);
    assert_eq!(store.zones().allowed_or_growing_nodes(), 0);
}

/// One of the zones that are kept is in use, which is what they are kept for. As long as metadata has garbage
/// enough, or needs none, trees grow all the same: otherwise nobody could make a name though there is room.
#[test]
fn while_no_garbage_is_lacking_trees_grow_into_what_is_kept() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    store.checkpoint().unwrap();
    let zones = store.zones();
    assert_eq!(zones.needed_to_grow(), store.core.zones.kept_for_metadata(), "no garbage is lacking");
    while zones.free() >= zones.needed_to_grow() {
        store.core.zones.take_free(Role::Metadata).unwrap();
    }
    let before = store.core.mat.next_node();
    for number in 0..20_u32 {
        store.commit(a_large_row(number)).unwrap();
    }
    assert!(store.core.mat.next_node() > before + 3, "leaves were split");
    assert!(zones.free_or_lent() < zones.needed_to_grow(), "and a zone was missing all the time");
}

/// Each row behind the one that filled a leaf counted as another split of it: a clone of a few blocks was to make two
/// hundred nodes, and found no space for them.
#[test]
fn many_rows_in_one_leaf_split_it_a_few_times() {
    let device = formatted(Spec::new(4096, 16, 256), &options());
    let (store, _) = open(&device).unwrap();
    let put = |tx: &mut Tx, number: u32| {
        tx.put(Group(0), Table(1), format!("key {number:04}").into_bytes(), vec![7; 30]);
    };
    // Little room is left in the only leaf.
    let mut tx = Tx::new();
    (0..80).for_each(|number| put(&mut tx, 10 * number));
    store.zones().allow_nodes(50);
    store.commit(tx).unwrap();
    store.zones().allow_no_nodes();
    let asked = Arc::new(Asked::default());
    let growth: Weak<Asked> = Arc::downgrade(&asked);
    store.set_growth(growth);
    let mut tx = Tx::new();
    (0..200).for_each(|number| put(&mut tx, 2000 + number));
    assert!(matches!(store.commit(tx), Err(crate::StoreError::NoSpace)), "nothing was allowed");
    let nodes = asked.0.load(Ordering::SeqCst);
    // Two hundred rows of some fifty bytes, in pages of 4 KiB.
    assert!((2..=8).contains(&nodes), "{nodes} nodes");
}
