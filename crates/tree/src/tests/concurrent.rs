//! Many threads at once: each group's contents are what its own thread put there, over checkpoints,
//! cleaning, eviction and the freeing of nodes by others meanwhile.

use std::time::Duration;

use rt::thread::Stop;

use super::*;

const GROUPS: u16 = 4;

/// Fills a group and empties it again, so that nodes are made and freed all the time; what is left.
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
    // A cache that holds a part of the nodes.
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
