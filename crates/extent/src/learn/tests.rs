use std::sync::Arc;

use emulated::{Emulated, Spec};
use zone::Device;

use super::*;
use crate::{Recovering, place};

const ZONE: Blocks = 1000;
const BRIEF: Kind = Kind { particular: 70, general: 3 };

fn learned() -> Learned {
    let learned = Learned::new(8, ZONE);
    for number in 0..40 {
        learned.wrote(Object(number), BRIEF, 0..1000);
        learned.died(BRIEF, 900);
        let zone = ZoneId((number % 8) as u32);
        let (stream, filled_at) = learned.stamp(Role::Data, Lifetime::Unknown);
        learned.filled(zone, &ZoneUser { footer: 1, closed: true, stream, filled_at });
        let mut book = learned.book.lock();
        let now = learned.moment();
        book.kinds.look(&learned.kinds, 1000, 8, ZONE);
        book.ages.look(&learned.filled, zone, now, &[100, 200, 300, 400, 500, 600, 700, 800]);
    }
    learned
}

#[test]
fn rows_lead_back() {
    let before = learned();
    let rows = before.rows();
    assert!(rows.len() < stored::ROWS_MAX && rows.iter().all(|(_, value)| value.len() <= 512));
    let after = Learned::new(8, ZONE);
    after.remember(&rows);
    assert_eq!(after.rows(), rows);
    assert_eq!(after.now(), 40_000);
}

#[test]
fn rows_that_mean_nothing_are_passed_over() {
    let rows = learned().rows();
    for (at, (key, value)) in rows.iter().enumerate() {
        for length in 0..value.len() {
            Learned::new(8, ZONE).remember(&[(key.clone(), value[..length].to_vec())]);
        }
        let mut damaged = rows.clone();
        damaged[at].1.iter_mut().for_each(|byte| *byte = 0xff);
        damaged.push((vec![9, 9, 9, 9], vec![1; 40]));
        let after = Learned::new(8, ZONE);
        after.remember(&damaged);
        let mut victims = vec![(ZoneId(1), 5), (ZoneId(2), 900)];
        after.rank(&mut victims, ZONE);
        assert_eq!(victims[0].0, ZoneId(1));
    }
}

/// Sums that are as large as numbers can be, as if they had been seen: what follows from them need mean nothing, but it is
/// a number, and blocks stay for some time.
#[test]
fn one_can_go_on_from_any_sums_of_deaths_and_from_a_stay_without_end() {
    let rows = learned().rows();
    for (large, small) in [(f64::MAX, 0.0), (0.0, f64::MAX), (f64::MAX, f64::MAX)] {
        let sums = [large.to_le_bytes(), small.to_le_bytes()].concat();
        let damaged: Vec<_> = rows
            .iter()
            .map(|(key, value)| match key.len() {
                // By age: the version, and pairs of sums.
                2 => (key.clone(), [&value[..1], &sums.repeat(value.len() / sums.len())].concat()),
                // In general: how long zones stay comes last.
                1 => (key.clone(), [&value[..value.len() - 8], &[0xff; 8]].concat()),
                _ => (key.clone(), value.clone()),
            })
            .collect();
        offer(&damaged);
        let after = Learned::new(8, ZONE);
        after.remember(&damaged);
        assert_eq!(after.rewrites.stay(), u64::MAX);
        after.rewrites.stayed(1 << 20);
        assert!(after.rewrites.stay() > u64::MAX / 2);
    }
}

#[test]
fn switched_off_it_leaves_the_order_as_it_is() {
    let learned = learned();
    let greedy = [(ZoneId(3), 10), (ZoneId(1), 20), (ZoneId(2), 900)];
    learned.set_switches(Switches::default().without_learning());
    let mut victims = greedy;
    learned.rank(&mut victims, ZONE);
    assert_eq!(victims, greedy);
}

#[test]
fn the_next_mount_knows_what_this_one_has_learned() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let before = place::tests::extents_on(Arc::clone(&device) as _);
    let size = before.block_size() as usize;
    for round in 0..4 {
        for object in (1..40).map(Object) {
            let hint = Hint { kind: BRIEF, ..Hint::default() };
            let data = vec![round; 16 * size];
            let written = before.append(object, hint, 0, &data, data.len() as u64).unwrap();
            let mut tx = Tx::new();
            let _map = before.insert(&mut tx, written).unwrap();
            before.store.commit(tx).unwrap();
        }
    }
    assert!(before.learned.now() >= 4 * 39 * 16);
    assert!(before.save_learned(true).unwrap(), "zones were filled");
    assert!(!before.save_learned(true).unwrap(), "there is nothing new");
    before.store.sync(before.store.last_lsn()).unwrap();
    before.store.close().unwrap();
    let rows = before.learned.rows();
    drop(before);
    let mut recovering = Recovering::new(Arc::clone(&device) as Arc<dyn Device>);
    let config = tree::Config { cache_bytes: 8 << 20, read_only: false, accept_loss: false };
    let (store, _) = tree::Store::open(device, &config, &mut recovering).unwrap();
    let after = Extents::open(Arc::new(store), recovering).unwrap();
    after.step().unwrap();
    assert_eq!(after.learned.rows(), rows);
}

/// What is written adds to what lives, what it writes over dies, and what is removed dies too: of several pieces each
/// counts. Counted otherwise, kinds would be told to live long or short for nothing.
#[test]
fn what_is_written_over_or_removed_has_died() {
    let extents = place::tests::extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    let (object, hint) = (Object(1), Hint { kind: BRIEF, ..Hint::default() });
    let size = extents.block_size() as usize;
    let write = |at: usize, blocks: usize| {
        let data = vec![1; blocks * size];
        let written = extents.append(object, hint, (at * size) as u64, &data, 0).unwrap();
        let mut tx = Tx::new();
        let _map = extents.insert(&mut tx, written).unwrap();
        extents.store.commit(tx).unwrap();
    };
    let counted = || extents.learned.kinds.counted(BRIEF);
    // More than one piece takes.
    write(0, 300);
    assert_eq!(counted(), [(300, 0); 2]);
    write(10, 5);
    assert_eq!(counted(), [(300, 5); 2]);
    write(295, 10);
    assert_eq!(counted(), [(305, 10); 2]);
    let mut tx = Tx::new();
    drop(extents.remove(&mut tx, object, (0, 20), 9, BRIEF).unwrap());
    extents.store.commit(tx).unwrap();
    assert_eq!(counted(), [(285, 30); 2]);
}

/// A zone that is written only gains, and still has the age of its life before: old zones seemed to lose less than they do.
#[test]
fn zones_that_are_being_written_are_not_looked_at() {
    let extents = place::tests::extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    let payload = extents.payload_min as usize;
    let write = |object, blocks: usize| {
        let data = vec![1; blocks * extents.block_size() as usize];
        let written = extents.append(Object(object), Hint::default(), 0, &data, 0).unwrap();
        let mut tx = Tx::new();
        let _map = extents.insert(&mut tx, written).unwrap();
        extents.store.commit(tx).unwrap();
    };
    let counted = || extents.live_in_filled().into_iter().filter(|&live| live > 0).count();
    write(1, payload / 2);
    assert_eq!(counted(), 0);
    write(2, payload);
    assert_eq!(counted(), 1, "one is filled, and the next is being written");
}

/// What was said of a file is not to the credit of what was learned.
#[test]
fn what_somebody_has_said_was_not_learned() {
    let learned = learned();
    let said = |lifetime| Hint { lifetime, ..Hint::default() };
    learned.placed(Lifetime::Short, said(Lifetime::Short), 5);
    learned.placed(Lifetime::Short, said(Lifetime::Unknown), 7);
    learned.placed(Lifetime::Unknown, said(Lifetime::Unknown), 11);
    let told = learned.flows.told(learned.book.lock().ages.expected());
    let of = |lifetime| &told[usize::from(Stream::fresh(lifetime).number())];
    assert_eq!((of(Lifetime::Short).written, of(Lifetime::Short).by_learning), (12, 7));
    assert_eq!((of(Lifetime::Unknown).written, of(Lifetime::Unknown).by_learning), (11, 0));
}
