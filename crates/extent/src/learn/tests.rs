use std::sync::Arc;

use emulated::{Emulated, Spec};
use zone::Device;

use super::*;
use crate::{Extents, Recovering, place};

const ZONE: Blocks = 1000;
const BRIEF: FileClass = FileClass { particular: 70, general: 3 };

fn learned() -> Learned {
    let learned = Learned::new(8, ZONE);
    for number in 0..40 {
        learned.wrote(Object(number), BRIEF, 0..1000);
        learned.died(BRIEF, 900);
        let zone = ZoneId((number % 8) as u32);
        let (stream, filled_at) = learned.stamp(Role::Data, Lifetime::Unknown);
        learned.set_filled(zone, &ZoneUser { footer: 1, closed: true, stream, filled_at });
        let mut observations = learned.observations.lock();
        let now = learned.clocks();
        observations.file_classes.scan(&learned.file_classes, 1000, 8, ZONE);
        observations.ages.scan(&learned.fill_times, zone, now, &[100, 200, 300, 400, 500, 600, 700, 800]);
    }
    learned
}

#[test]
fn loaded_rows_are_the_saved_ones() {
    let before = learned();
    let rows = before.rows();
    assert!(rows.len() < stored::ROWS_MAX && rows.iter().all(|(_, value)| value.len() <= 512));
    let after = Learned::new(8, ZONE);
    after.load(&rows);
    assert_eq!(after.rows(), rows);
    assert_eq!(after.now(), 40_000);
}

#[test]
fn invalid_rows_are_skipped() {
    let rows = learned().rows();
    for (at, (key, value)) in rows.iter().enumerate() {
        for length in 0..value.len() {
            Learned::new(8, ZONE).load(&[(key.clone(), value[..length].to_vec())]);
        }
        let mut damaged = rows.clone();
        damaged[at].1.iter_mut().for_each(|byte| *byte = 0xff);
        damaged.push((vec![9, 9, 9, 9], vec![1; 40]));
        let after = Learned::new(8, ZONE);
        after.load(&damaged);
        let mut victims = vec![(ZoneId(1), 5), (ZoneId(2), 900)];
        after.rank(&mut victims, ZONE);
        assert_eq!(victims[0].0, ZoneId(1));
    }
}

/// Sums as large as numbers can be. What follows from them need not make sense, but it is a finite number, and zones stay
/// for some time.
#[test]
fn any_sums_and_an_endless_stay_can_be_loaded() {
    let rows = learned().rows();
    for (large, small) in [(f64::MAX, 0.0), (0.0, f64::MAX), (f64::MAX, f64::MAX)] {
        let sums = [large.to_le_bytes(), small.to_le_bytes()].concat();
        let damaged: Vec<_> = rows
            .iter()
            .map(|(key, value)| match key.len() {
                // Rows by age: the version, and pairs of sums.
                2 => (key.clone(), [&value[..1], &sums.repeat(value.len() / sums.len())].concat()),
                // The general row: how long zones stay is its last field.
                1 => (key.clone(), [&value[..value.len() - 8], &[0xff; 8]].concat()),
                _ => (key.clone(), value.clone()),
            })
            .collect();
        use_rows(&damaged);
        let after = Learned::new(8, ZONE);
        after.load(&damaged);
        assert_eq!(after.overwrite_history.stay(), u64::MAX);
        after.overwrite_history.add_stay(1 << 20);
        assert!(after.overwrite_history.stay() > u64::MAX / 2);
    }
}

#[test]
fn ranking_that_is_switched_off_changes_no_order() {
    let learned = learned();
    let greedy = [(ZoneId(3), 10), (ZoneId(1), 20), (ZoneId(2), 900)];
    learned.set_switches(Switches::without_learning());
    let mut victims = greedy;
    learned.rank(&mut victims, ZONE);
    assert_eq!(victims, greedy);
}

#[test]
fn the_next_mount_loads_what_was_learned() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let before = place::tests::extents_on(Arc::clone(&device) as _);
    let size = before.block_size() as usize;
    for round in 0..4 {
        for object in (1..40).map(Object) {
            let hint = Hint { file_class: BRIEF, ..Hint::default() };
            let data = vec![round; 16 * size];
            let written = before.append(object, hint, 0, &data, data.len() as u64).unwrap();
            let mut tx = Tx::new();
            let _map = before.insert(&mut tx, written).unwrap();
            before.store().commit(tx).unwrap();
        }
    }
    assert!(before.learned().now() >= 4 * 39 * 16);
    assert!(before.learned().save(before.store(), true).unwrap(), "zones were filled");
    assert!(!before.learned().save(before.store(), true).unwrap(), "there is nothing new");
    before.store().sync(before.store().last_lsn()).unwrap();
    before.store().close().unwrap();
    let rows = before.learned().rows();
    drop(before);
    let mut recovering = Recovering::new(Arc::clone(&device) as Arc<dyn Device>);
    let config = tree::Config { cache_bytes: 8 << 20, read_only: false, accept_loss: false };
    let (store, _) = tree::Store::open(device, &config, &mut recovering).unwrap();
    let after = Extents::open(Arc::new(store), recovering).unwrap();
    after.step().unwrap();
    assert_eq!(after.learned().rows(), rows);
}

/// Written blocks add to the live ones. Overwritten and removed blocks die. Each append of a write counts. With wrong
/// counts, file classes would be predicted to live long or short without a reason.
#[test]
fn overwritten_and_removed_blocks_have_died() {
    let extents = place::tests::extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    let (object, hint) = (Object(1), Hint { file_class: BRIEF, ..Hint::default() });
    let size = extents.block_size() as usize;
    let write = |at: usize, blocks: usize| {
        let data = vec![1; blocks * size];
        let written = extents.append(object, hint, (at * size) as u64, &data, 0).unwrap();
        let mut tx = Tx::new();
        let _map = extents.insert(&mut tx, written).unwrap();
        extents.store().commit(tx).unwrap();
    };
    let counted = || extents.learned().file_classes.counted(BRIEF);
    // More than one append takes.
    write(0, 300);
    assert_eq!(counted(), [(300, 0); 2]);
    write(10, 5);
    assert_eq!(counted(), [(300, 5); 2]);
    write(295, 10);
    assert_eq!(counted(), [(305, 10); 2]);
    let mut tx = Tx::new();
    drop(extents.remove(&mut tx, object, (0, 20), 9, BRIEF).unwrap());
    extents.store().commit(tx).unwrap();
    assert_eq!(counted(), [(285, 30); 2]);
}

/// An open zone only gains blocks, and still has the age of its last life. Old zones seemed to lose less than they do.
#[test]
fn open_zones_are_not_scanned() {
    let extents = place::tests::extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    let payload = extents.payload_min() as usize;
    let write = |object, blocks: usize| {
        let data = vec![1; blocks * extents.block_size() as usize];
        let written = extents.append(Object(object), Hint::default(), 0, &data, 0).unwrap();
        let mut tx = Tx::new();
        let _map = extents.insert(&mut tx, written).unwrap();
        extents.store().commit(tx).unwrap();
    };
    let counted = || live_in_filled(extents.store()).into_iter().filter(|&live| live > 0).count();
    write(1, payload / 2);
    assert_eq!(counted(), 0);
    write(2, payload);
    assert_eq!(counted(), 1, "one is filled, and the next is being written");
}

/// A hint of a file is not counted as learned.
#[test]
fn hints_do_not_count_as_learned() {
    let learned = learned();
    let hint_of = |lifetime| Hint { lifetime, ..Hint::default() };
    learned.placed(Lifetime::Short, hint_of(Lifetime::Short), 5);
    learned.placed(Lifetime::Short, hint_of(Lifetime::Unknown), 7);
    learned.placed(Lifetime::Unknown, hint_of(Lifetime::Unknown), 11);
    let stats = learned.stream_counters.stats(learned.observations.lock().ages.prediction_errors());
    let of = |lifetime| &stats[usize::from(Stream::user_writes(lifetime).number())];
    assert_eq!((of(Lifetime::Short).written, of(Lifetime::Short).by_learning), (12, 7));
    assert_eq!((of(Lifetime::Unknown).written, of(Lifetime::Unknown).by_learning), (11, 0));
}
