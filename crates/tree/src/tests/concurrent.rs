//! Many threads at once: each group has the entries that its own thread put there. Meanwhile there are checkpoints,
//! GC, evictions, and threads that free nodes.

use std::time::Duration;

use emulated::timed::{Model, Timed};
use rt::Clock;
use rt::schedule::{self, Body};
use rt::thread::Stop;

use super::*;

const GROUPS: u16 = 4;

/// Fills a group and empties it again, so that nodes are made and freed all the time. Returns the remaining entries.
fn fill_and_empty(store: &Store, group: u16, rounds: u32) -> Contents {
    let mut rng = fastrand::Rng::with_seed(u64::from(group));
    let mut model = Contents::new();
    for round in 0..rounds {
        for number in 0..60_u32 {
            let key = format!("key {:06}", rng.u32(0..300)).into_bytes();
            let mut tx = Tx::new();
            if round % 3 == 2 {
                tx.delete(Group(group), Table(1), key.clone());
                model.remove(&(group, 1, key));
            } else {
                let value = vec![number as u8; rng.usize(100..700)];
                tx.put(Group(group), Table(1), key.clone(), value.clone());
                model.insert((group, 1, key), value);
            }
            let lsn = store.commit(tx).unwrap();
            if number % 20 == 0 {
                store.sync(lsn).unwrap();
            }
        }
        let keys: Vec<_> = if round % 3 == 1 { model.keys().cloned().collect() } else { Vec::new() };
        for (_, _, key) in keys {
            let mut tx = Tx::new();
            tx.delete(Group(group), Table(1), key.clone());
            store.commit(tx).unwrap();
            model.remove(&(group, 1, key));
        }
    }
    model
}

#[test]
fn groups_change_beside_each_other_and_beside_the_background() {
    let spec = Spec::new(4096, 64, 256);
    let device = formatted(spec, &FormatOptions { groups: GROUPS, ..options() });
    // A cache that holds only some of the nodes.
    let config = Config { cache_bytes: 64 << 10, ..config() };
    let (store, _) = open_with(&device, &config).unwrap();
    let store = Arc::new(store);
    let writers: Vec<_> = (0..GROUPS)
        .map(|group| {
            let store = Arc::clone(&store);
            rt::thread::spawn("writer", move || fill_and_empty(&store, group, 900)).unwrap()
        })
        .collect();
    let stop = Arc::new(Stop::default());
    let background = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        let work = move || {
            let mut checkpoints = 0;
            while !stop.wait(Duration::from_millis(1)) {
                store.step().unwrap();
                store.checkpoint().unwrap();
                checkpoints += 1;
            }
            checkpoints
        };
        rt::thread::spawn("background", work).unwrap()
    };
    let model: Contents = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    stop.stop();
    assert!(background.join().unwrap() > 0, "checkpoints were taken meanwhile");
    assert_eq!(contents(&store), model);
    store.close().unwrap();
    drop(store);
    let (store, _) = open(&device).unwrap();
    assert_eq!(contents(&store), model, "after a mount");
}

/// The leader of a sync also appended all that other threads committed meanwhile, and went on as long as they did.
/// Writers waited behind the journal of GC.
#[test]
fn a_sync_does_not_wait_for_later_commits_of_others() {
    const COMMITS: u32 = 400;
    let device = formatted(Spec::new(4096, 64, 1024), &options());
    let timed = Arc::new(Timed::new(device, Arc::default(), Model::ssd()));
    let (store, _) = Store::open(timed.clone(), &config(), &mut Plain).unwrap();
    store.set_client(Arc::new(Plain));
    let clock = timed.clock();
    let write = |number: u32| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), number.to_be_bytes(), vec![1; 200]);
        store.commit(tx).unwrap()
    };
    write(0);
    let began = clock.monotonic_ns();
    // One commit for each microsecond, which is many for each append.
    let others = || {
        for number in 1..=COMMITS {
            write(number);
            schedule::sleep_until(clock.monotonic_ns() + 1_000);
        }
        clock.monotonic_ns() - began
    };
    let one = || {
        schedule::sleep_until(began + 10_000);
        store.sync(write(0)).unwrap();
        clock.monotonic_ns() - began
    };
    let bodies: Vec<Body<'_, u64>> =
        vec![("others".to_owned(), Box::new(others)), ("one".to_owned(), Box::new(one))];
    let took = schedule::run_in_time(clock, 1, bodies).returned;
    assert_eq!(took, [400_000, 40_000], "an append and a flush, without later commits of the others");
}

/// Dirty nodes are written to free memory. One of them is changed at the moment when it has been written, and is dirty
/// again. If it were taken for clean, the next checkpoint would not write it, and would state that replay begins
/// later: an acknowledged transaction would be lost.
#[test]
fn a_node_changed_while_it_is_written_early_stays_dirty() {
    const KEYS: u8 = 6;
    let mut changed = 0;
    for seed in 0..600 {
        let device = formatted(Spec::tiny(), &options());
        let (store, _) = open(&device).unwrap();
        let put = |number: u8, value: u8| {
            let mut tx = Tx::new();
            tx.put(Group(u16::from(number % 2)), Table(1), vec![number], vec![value; 100]);
            store.commit(tx).unwrap();
        };
        (0..KEYS).for_each(|number| put(number, 1));
        let write_out =
            || store.core.checkpoints.write_out(&mut store.core.checkpoints.saving.lock()).unwrap();
        let change = || (0..KEYS).for_each(|number| put(number, 2));
        let bodies: Vec<Body<'_, ()>> =
            vec![("write".into(), Box::new(write_out)), ("change".into(), Box::new(change))];
        schedule::run(seed, bodies);
        changed +=
            u32::from(store.core.nodes.mat.running_len() > 0 && store.core.running.dirty().nodes() > 0);
        store.checkpoint().unwrap();
        drop(store);
        let (store, recovery) = open(&device).unwrap();
        assert!(recovery.clean, "seed {seed}: all of it is in the checkpoint");
        let found = contents(&store);
        assert!(found.values().all(|value| value[0] == 2), "seed {seed}: {found:?}");
        assert_eq!(found.len(), usize::from(KEYS), "seed {seed}");
    }
    assert!(changed > 100, "in {changed} of 600 schedules a node was written and is dirty again");
}
