//! Prefetch: a replay and callers that announce their look-ups read nodes at depth.

use emulated::timed::{CommandClass, Model, Timed};
use rt::{Clock, ManualClock, Timestamp};

use super::*;

pub(super) const ENTRIES: u32 = 50_000;
const RECORDS: u32 = 3000;

pub(super) fn key(number: u32) -> Bytes {
    number.to_be_bytes().to_vec()
}

/// A device with thousands of leaves. The journal has as many records that change one entry each, all over these
/// leaves, and no checkpoint has them.
pub(super) fn with_a_long_journal() -> Arc<Emulated> {
    let device = formatted(Spec::new(4096, 128, 2048), &options());
    let (store, _) = open_with(&device, &Config { cache_bytes: 64 << 20, ..config() }).unwrap();
    for first in (0..ENTRIES).step_by(20) {
        let mut tx = Tx::new();
        (first..first + 20).for_each(|number| tx.put(Group(0), Table(1), key(number), vec![1; 200]));
        store.commit(tx).unwrap();
    }
    store.checkpoint().unwrap();
    let checkpoints = store.stats().checkpoints;
    let mut rng = fastrand::Rng::with_seed(6);
    for _ in 0..RECORDS {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), key(rng.u32(0..ENTRIES)), vec![2; 200]);
        store.commit(tx).unwrap();
    }
    store.sync(store.last_lsn()).unwrap();
    assert_eq!(store.stats().checkpoints, checkpoints, "no node was written");
    device
}

struct Mounted {
    store: Store,
    timed: Arc<Timed>,
    ns: u64,
}

impl Mounted {
    fn of(device: &Arc<Emulated>, model: Model, read_only: bool) -> Mounted {
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let timed = Arc::new(Timed::new(device.clone(), clock, model));
        let config = Config { read_only, ..config() };
        let (store, _) = Store::open(timed.clone(), &config, &mut Plain).unwrap();
        store.set_client(Arc::new(Plain));
        Mounted { store, ns: timed.clock().monotonic_ns(), timed }
    }

    /// The device time, and the number of nodes that were read.
    fn measure(&self, work: impl FnOnce(&Store)) -> (u64, u64) {
        let now = || (self.timed.clock().monotonic_ns(), self.store.stats().nodes_read);
        let before = now();
        work(&self.store);
        (now().0 - before.0, now().1 - before.1)
    }
}

/// Replay waited for each leaf separately. For a few thousand records over as many leaves, a disk with an arm took
/// twenty seconds, during which the volume could not be used.
#[test]
fn a_replay_reads_leaves_at_depth() {
    let device = with_a_long_journal();
    for (name, model, each_ns) in [("ssd", Model::ssd(), 70_000), ("disk", Model::shingled(), 8_000_000)] {
        let Mounted { store, timed, ns } = Mounted::of(&device, model, true);
        let (nodes, reads) = (store.stats().nodes_read, timed.times().of(CommandClass::Read).commands);
        println!("{name}: {} ms for {RECORDS} records, {nodes} nodes, {reads} reads", ns / 1_000_000);
        assert!(nodes > 1500, "the records are spread over the tree: {nodes} nodes");
        let alone_ns = nodes * each_ns;
        assert!(
            if model.seek_ns > 0 { ns * 20 < alone_ns } else { ns * 10 < alone_ns * 12 },
            "{name}: {ns} ns"
        );
        assert!(ns < 1_000_000_000, "{name}: {ns} ns");
        // Each node once, although the cache holds only a fraction of them.
        assert!(store.stats().pages_cached_max * 5 < nodes && reads < nodes + 100, "{name}: {reads} reads");
    }
}

/// The prefetch for a replay is bounded for any number of records, and records that do not count are skipped.
#[test]
fn the_prefetch_of_a_replay_is_bounded() {
    let device = with_a_long_journal();
    let mounted = Mounted::of(&device, Model::ssd(), true);
    let put = |group, number| Op::Put {
        group: Group(group),
        table: Table(1),
        key: key(number).into(),
        value: vec![3],
    };
    let records: Vec<_> = (0..ENTRIES).map(|number| (Lsn(u64::from(number)), vec![put(0, number)])).collect();
    let mut held = Vec::new();
    let count = mounted.store.core.trees.read_for_replay(&records, &mut held);
    assert_eq!(count, 4096, "of 16 MiB of leaves at worst");
    let odd = [(Lsn(1), vec![put(700, 1)]), (Lsn(2), vec![Op::Counter { counter: 0, change: 1 }])];
    assert_eq!(mounted.store.core.trees.read_for_replay(&odd, &mut held), 2);
    assert_eq!(mounted.store.core.trees.read_for_replay(&[], &mut held), 0);
}

/// A caller that announces its look-ups waits once for many leaves.
#[test]
fn announced_keys_are_read_at_once() {
    let device = with_a_long_journal();
    Mounted::of(&device, Model::shingled(), false).store.close().unwrap();
    let wanted: Vec<u32> = (0..ENTRIES).step_by(500).collect();
    let look_up = |store: &Store, number: u32| {
        assert!(store.get(Group(0), Table(1), &key(number)).unwrap().is_some(), "entry {number}");
    };
    let one_by_one = Mounted::of(&device, Model::shingled(), false);
    let (alone_ns, alone) =
        one_by_one.measure(|store| wanted.iter().for_each(|&number| look_up(store, number)));
    let together = Mounted::of(&device, Model::shingled(), false);
    let (ns, nodes) = together.measure(|store| {
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let count = store.read_ahead_of(Table(1), rest.iter().map(|&number| (Group(0), key(number))));
            let most = store.stats().pages_cached_max as usize / 4;
            assert!(count == rest.len() || (1..=most).contains(&count), "{count} keys of {}", rest.len());
            let (now, later) = rest.split_at(count);
            let (_, read) = together.measure(|store| now.iter().for_each(|&number| look_up(store, number)));
            assert_eq!(read, 0, "all announced nodes are in memory");
            rest = later;
        }
    });
    println!("{alone} nodes in {alone_ns} ns one by one, {nodes} in {ns} ns together");
    assert!(alone > 100 && nodes <= alone && ns * 3 < alone_ns);
}

/// Chunks of the MAT that are held stay in memory, even if the cache may have few. Afterwards it has few. GC looks up
/// the places of the nodes in a zone. Without the chunks in memory each look-up was a read.
#[test]
fn chunks_that_are_held_stay_in_memory() {
    let device = with_a_long_journal();
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let timed = Arc::new(Timed::new(device, clock, Model::shingled()));
    let config = Config { cache_bytes: 1, ..config() };
    let (store, _) = Store::open(timed.clone(), &config, &mut Plain).unwrap();
    store.set_client(Arc::new(Plain));
    store.checkpoint().unwrap();
    let (core, chunks) = (&store.core, store.core.nodes.mat.chunks_len());
    let mut ids: Vec<_> = (1..core.nodes.mat.next_node()).step_by(20).map(crate::types::NodeId).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut ids);
    ids.truncate(core.nodes.pages_at_once());
    assert!(chunks > 10 && ids.len() > 100, "{chunks} chunks, {} nodes", ids.len());
    let reads = |work: &dyn Fn()| {
        let before = (timed.times().of(CommandClass::Read).commands, timed.clock().monotonic_ns());
        work();
        let now = (timed.times().of(CommandClass::Read).commands, timed.clock().monotonic_ns());
        (now.0 - before.0, now.1 - before.1)
    };
    let find_all = || {
        for &id in &ids {
            core.nodes.find(id).unwrap();
        }
    };
    let alone = reads(&find_all);
    let together = reads(&|| {
        let held = core.nodes.pin_chunks(&ids);
        assert_eq!((held.len(), core.nodes.chunks.pages()), (chunks as usize, chunks as usize));
        assert_eq!(reads(&find_all).0, 0, "all announced nodes are in memory");
    });
    println!("{alone:?} reads and ns for {} nodes, {together:?} together", ids.len());
    assert!(together.0 <= chunks && together.0 * 3 < alone.0 && together.1 * 10 < alone.1);
    core.nodes.chunks.put(u64::MAX, zone::Address::NONE, Arc::new(core.nodes.pages.zeroed()));
    assert_eq!(core.nodes.chunks.pages(), 8, "the limit holds again");
}
