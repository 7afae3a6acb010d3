//! Every finding of the checker and of the scrub, each with the damage that causes it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use zone::{Address, Role};

use super::*;
use crate::mat::Place;
use crate::page::Page;
use crate::types::NodeId;
use crate::{FindingKind, NodeScrub, PREPAID, Scrubbed};

/// A store with a tree of two levels in group 0, all of it written by a checkpoint.
fn with_leaves() -> (Arc<Emulated>, Store) {
    let device = formatted(Spec::new(4096, 64, 64), &options());
    let (store, _) = open(&device).unwrap();
    for number in 0..200u32 {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes(), vec![7; 200]);
        store.commit(tx).unwrap();
    }
    store.checkpoint().unwrap();
    (device, store)
}

/// The kinds of the findings, each once.
fn kinds(store: &Store) -> Vec<FindingKind> {
    let mut kinds: Vec<_> =
        store.check(&mut |_, _, _, _| ()).unwrap().iter().map(|finding| finding.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    PLANTED.with_borrow_mut(|planted| planted.extend(kinds.iter().map(|kind| format!("{kind:?}"))));
    kinds
}

thread_local! {
    /// The kinds that tests of this thread have found.
    static PLANTED: RefCell<BTreeSet<String>> = RefCell::default();
}

/// The variants of an enum in a source, by their names.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names.map(|line| line.split([' ', ',']).next().unwrap().to_owned()).collect()
}

/// Changes the root of group 0 in memory only.
fn change_root(store: &Store, change: impl FnOnce(&mut Page)) {
    let root = store.core.nodes.load(NodeId(1)).unwrap().unwrap();
    let mut state = root.state.write();
    assert!(state.page.level() == 1 && state.page.count() > 3);
    change(Arc::make_mut(&mut state.page));
}

/// Sets the child of an entry.
fn set_child(page: &mut Page, index: usize, child: u64) {
    let key = page.key(index).to_vec();
    page.remove(index);
    page.insert(index, &key, &child.to_le_bytes());
}

fn place(store: &Store, id: u64) -> Address {
    store.core.nodes.find(NodeId(id)).unwrap().0.whole_page()
}

/// The first leaf of group 0.
fn a_leaf(store: &Store) -> u64 {
    store.core.nodes.load(NodeId(1)).unwrap().unwrap().page().child(1).0
}

fn scrub(store: &Store) -> Scrubbed {
    let (mut at, mut all) = (NodeScrub::default(), Scrubbed::default());
    while !all.done {
        let some = store.scrub_step(&mut at, 10_000).unwrap();
        all.bytes += some.bytes;
        all.findings.extend(some.findings);
        all.done = some.done;
    }
    all
}

/// A new kind must have a test that plants it.
#[test]
fn every_kind_of_finding_is_planted() {
    let plants = [
        a_node_of_another_tree,
        keys_out_of_bounds,
        a_node_named_twice_and_one_not_named,
        a_wrong_count_of_live_pages,
        a_wrong_count_of_prepaid_nodes,
        a_damaged_chunk_of_the_tables,
    ];
    plants.iter().for_each(|plant| plant());
    let kinds = variants(include_str!("../check.rs"), "FindingKind");
    assert!(kinds.len() >= 6, "{kinds:?}");
    assert_eq!(PLANTED.take(), kinds);
}

#[test]
fn a_sound_store_has_no_findings_and_is_read_as_a_whole() {
    let (_device, store) = with_leaves();
    assert_eq!(kinds(&store), []);
    let scrubbed = scrub(&store);
    let nodes = store.core.nodes.mat.next_node() - 1;
    assert_eq!(scrubbed.findings, []);
    assert!(scrubbed.bytes >= nodes * 4096 && store.scrub_bytes() >= nodes * 4096, "{scrubbed:?}");
}

/// The progress of a scrub is shown as a share of this number. If it were less than the bytes that are read, the
/// progress would exceed the total.
#[test]
fn a_scrub_reads_as_many_bytes_as_announced() {
    let (_device, store) = with_leaves();
    let announced = store.scrub_bytes();
    let mut at = NodeScrub::default();
    let tables = store.scrub_step(&mut at, u64::MAX).unwrap();
    let nodes = store.scrub_step(&mut at, u64::MAX).unwrap();
    assert!(!tables.done && nodes.done);
    assert_eq!(announced, nodes.bytes, "all nodes lie in whole pages, and a chunk says where");
}

/// The finding names the keys that a damaged leaf loses, and the check passes on the other leaves.
#[test]
fn a_node_that_is_damaged_or_cannot_be_read() {
    for by_device in [false, true] {
        let (device, store) = with_leaves();
        let leaf = a_leaf(&store);
        let (at, keys) = {
            let page = store.core.nodes.load(NodeId(leaf)).unwrap().unwrap().page();
            (place(&store, leaf), (page.key(0).to_vec(), page.count()))
        };
        drop(store);
        match by_device {
            true => device.make_unreadable(at.zone(), at.block()),
            false => device.corrupt(at.zone(), at.block(), 1000, 4),
        }
        let found = scrub(&open(&device).unwrap().0);
        assert_eq!(found.findings.iter().map(|found| found.kind).collect::<Vec<_>>(), [FindingKind::Node]);

        let store = open(&device).unwrap().0;
        let mut rows = 0;
        let findings = store.check(&mut |_, _, _, _| rows += 1).unwrap();
        assert_eq!(findings.iter().map(|found| found.kind).collect::<Vec<_>>(), [FindingKind::Node]);
        let lost = findings[0].lost.as_ref().unwrap();
        assert!(lost.low[..] <= keys.0[..] && lost.high.as_ref().is_some_and(|high| high[..] > keys.0[..]));
        assert!(lost.touches(Table(keys.0[0]), &keys.0[1..]) && !lost.touches(Table(2), b""));
        assert_eq!(rows, 200 - keys.1);
    }
}

#[test]
fn a_node_of_another_tree() {
    let (_device, store) = with_leaves();
    change_root(&store, |page| set_child(page, 1, 2));
    assert!(kinds(&store).contains(&FindingKind::Node));
}

/// A node names a leaf of another tree, or one of a wrong level. If its entries were taken for the expected ones, a
/// caller would learn that an entry does not exist, or would never get an answer, because the walk is endless.
#[test]
fn a_walk_to_a_misplaced_node_reports_damage() {
    // The root of another group, which is a leaf, and the root of this group.
    for child in [2, 1] {
        let (_device, store) = with_leaves();
        let mut key = Bytes::new();
        change_root(&store, |page| {
            key = page.key(1).to_vec();
            set_child(page, 1, child);
        });
        let error = store.get(Group(0), Table(key[0]), &key[1..]).unwrap_err();
        assert!(
            matches!(&error, crate::StoreError::Corrupt(what) if what.contains("is not at its address")),
            "{error}"
        );
    }
}

/// The fuzzer made a damaged node name a child with a huge id. A check marks the nodes that it has found in bits that
/// grow with the ids, so it requested 2 EiB and the process ended. A checkpoint that claims as many used ids had the
/// same effect, and caused a long search for chunks that do not exist.
#[test]
fn an_id_without_a_place_takes_neither_memory_nor_time() {
    for (next, child) in [(None, 1 << 62), (Some((1 << 40) - 1), (1 << 40) - 2)] {
        let (_device, store) = with_leaves();
        next.into_iter().for_each(|next| store.core.nodes.mat.set_next_node(next));
        change_root(&store, |page| set_child(page, 1, child));
        let findings = store.check(&mut |_, _, _, _| ()).unwrap();
        let [lost, unreachable] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((lost.kind, unreachable.kind), (FindingKind::Node, FindingKind::Unreachable));
        assert!(lost.what.contains(&child.to_string()) && lost.lost.is_some(), "{lost:?}");
        assert_eq!(scrub(&store).findings, []);
    }
}

/// The MAT has a place for each id up to the largest. For a new node of a volume whose checkpoint claims a huge number
/// of used ids, it would have taken 65 GiB.
#[test]
fn a_checkpoint_that_claims_too_many_ids_does_not_extend_the_mat() {
    let (device, store) = with_leaves();
    let (before, sound) = (store.core.nodes.mat.next_node(), store.core.nodes.mat.chunks_len());
    store.core.nodes.mat.set_next_node((1 << 40) - 1);
    store.checkpoint().unwrap();
    drop(store);
    let store = open(&device).unwrap().0;
    let next = store.core.nodes.mat.next_node();
    assert!((before..=sound * store.core.nodes.mat.per_chunk()).contains(&next), "{next}");
    for number in 200..2000u32 {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes(), vec![7; 200]);
        store.commit(tx).unwrap();
    }
    store.checkpoint().unwrap();
    assert!(store.core.nodes.mat.chunks_len() <= sound + 2);
    assert_eq!(kinds(&store), []);
}

#[test]
fn keys_out_of_bounds() {
    let (_device, store) = with_leaves();
    change_root(&store, |page| {
        let (key, child) = (page.key(1).to_vec(), page.child(1).0);
        page.remove(1);
        page.insert(1, &[&key[..], b"later"].concat(), &child.to_le_bytes());
    });
    assert_eq!(kinds(&store), [FindingKind::Order]);
}

#[test]
fn a_node_named_twice_and_one_not_named() {
    let (_device, store) = with_leaves();
    change_root(&store, |page| {
        let first = page.child(0).0;
        set_child(page, 1, first);
    });
    assert_eq!(kinds(&store), [FindingKind::Shared, FindingKind::Unreachable]);
}

#[test]
fn a_place_of_a_node_that_is_part_of_no_tree() {
    let (_device, store) = with_leaves();
    let id = store.core.nodes.mat.allocate();
    store.core.nodes.mat.place(id, Place::whole(place(&store, 1)), false);
    assert_eq!(kinds(&store), [FindingKind::Unreachable]);
}

#[test]
fn a_wrong_count_of_live_pages() {
    let (_device, store) = with_leaves();
    assert!(store.core.volume.pool.merge_copy(Place::whole(place(&store, 1)).copy(), 1));
    assert_eq!(kinds(&store), [FindingKind::LiveCount]);
}

#[test]
fn a_wrong_count_of_prepaid_nodes() {
    let (_device, store) = with_leaves();
    assert_eq!(kinds(&store), []);
    let root = store.core.nodes.load(Group(0).root()).unwrap().unwrap();
    let mut page = Page::clone(&root.page());
    page.set_prepaid(false);
    store.core.trees.mark(&mut page);
    assert!(page.is_prepaid());
    assert_eq!(kinds(&store), [FindingKind::LiveCount]);
}

/// Nodes of other tables are counted separately. Nodes of both are split, merged and freed, and a crash in the middle
/// of an epoch follows.
#[test]
fn nodes_of_the_prepaid_table_are_counted_apart() {
    let (device, store) = with_leaves();
    let blocks = |store: &Store| store.blocks_of_nodes().unwrap();
    let (all, beside) = blocks(&store);
    assert!(all > 8 && beside <= all - 8, "{beside} of {all}");
    let change = |store: &Store, table: Table, numbers: std::ops::Range<u32>, value: Option<usize>| {
        for number in numbers {
            let (mut tx, key) = (Tx::reclaiming(), number.to_be_bytes().to_vec());
            match value {
                Some(bytes) => tx.put(Group(0), table, key, vec![number as u8; bytes]),
                None => tx.delete(Group(0), table, key),
            }
            store.commit(tx).unwrap();
        }
    };
    change(&store, Table(2), 0..300, Some(300));
    let (_, with_others) = blocks(&store);
    assert!(with_others >= beside + 300 * 300 / 4096, "{with_others}, {beside} before");
    change(&store, PREPAID, 200..2000, Some(200));
    let (all, still) = blocks(&store);
    assert!(still <= with_others + 2 && all >= still + 1800 * 200 / 4096, "{still} of {all}");
    assert_eq!(kinds(&store), []);
    store.sync(store.last_lsn()).unwrap();
    drop(store);
    device.reopen();
    let (store, _) = open(&device).unwrap();
    assert_eq!(kinds(&store), []);
    assert!(blocks(&store).1 <= still + 2);
    change(&store, PREPAID, 0..2000, None);
    change(&store, Table(2), 0..300, None);
    let (all, beside) = blocks(&store);
    assert!(all < 16 && beside <= all, "{beside} of {all}");
    assert_eq!(kinds(&store), []);
}

#[test]
fn a_damaged_chunk_of_the_tables() {
    let (device, store) = with_leaves();
    let mat = store.core.nodes.mat.chunk(0).address;
    let zit = store.core.checkpoints.saving.lock().tables.zit_chunks().next().unwrap();
    drop(store);
    let store = open(&device).unwrap().0;
    device.corrupt(mat.zone(), mat.block(), 2000, 1);
    device.corrupt(zit.zone(), zit.block(), 300, 1);
    let found = scrub(&store);
    assert_eq!(found.findings.iter().map(|found| found.kind).collect::<Vec<_>>(), [FindingKind::Table; 2]);
    let store = open_with(&device, &crate::Config { read_only: true, ..config() });
    assert!(store.is_err(), "the chunk of the ZIT is needed to open it");
    device.corrupt(zit.zone(), zit.block(), 300, 1);
    let store = open(&device).unwrap().0;
    assert!(kinds(&store).contains(&FindingKind::Table));
}

/// GC moves nodes between the look-up and the read. A page that is no longer in its place is not damaged.
#[test]
fn pages_rewritten_meanwhile_are_no_finding() {
    let (device, store) = with_leaves();
    let (mut at, mut rng) = (NodeScrub::default(), fastrand::Rng::with_seed(4));
    let first = store.pool().in_role(Role::Metadata);
    let mut rounds = 0;
    while rounds < 20 {
        let some = store.scrub_step(&mut at, 4096 * 5).unwrap();
        assert_eq!(some.findings, []);
        if some.done {
            (at, rounds) = (NodeScrub::default(), rounds + 1);
        }
        for _ in 0..20 {
            let mut tx = Tx::new();
            tx.put(Group(0), Table(1), rng.u32(0..200).to_be_bytes(), vec![rng.u8(..); 300]);
            store.commit(tx).unwrap();
            store.step().unwrap();
        }
        store.checkpoint().unwrap();
    }
    let is_metadata = |zone: &zone::ZoneId| store.pool().entry(*zone).role == Role::Metadata;
    assert!(!first.iter().any(is_metadata), "every page was moved at least once");
    // The failure of the whole device is no finding.
    device.record();
    device.lose_power_after(0);
    device.flush().unwrap_err();
    assert!(store.scrub_step(&mut NodeScrub::default(), 4096).is_err());
}
