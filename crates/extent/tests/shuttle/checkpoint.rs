//! Checkpoints beside writers: a power loss before, during or after a checkpoint leaves the state after some
//! transaction, and no transaction before the last checkpoint is missing.

use std::sync::{Arc, mpsc};

use emulated::{Emulated, Spec};
use tree::{Step, Store};

use crate::tables::{Account, Contents, contents, open, random_writes};
use crate::{DELAYED_OFTEN, Seen, cut, explore, explore_in, prepared, rng, spawn};

const GROUPS: u16 = 2;
const KEYS: u32 = 24;
const VALUE_MAX: usize = 700;

fn write(store: &Store, transactions: u32) -> Account {
    let (mut account, mut rng) = (Account::default(), rng());
    for _ in 0..transactions {
        account.commit(store, random_writes(&mut rng, GROUPS, KEYS, VALUE_MAX));
    }
    account
}

/// Takes checkpoints. A checkpoint contains all earlier commits.
fn save(store: &Store, device: &Emulated) -> Account {
    let mut account = Account::default();
    for _ in 0..2 {
        let lsn = store.last_lsn();
        store.checkpoint().unwrap();
        account.acknowledge(device, lsn);
    }
    account
}

/// Two writers, and a thread that takes checkpoints.
fn work(device: &Arc<Emulated>, during: &Seen) -> Account {
    let (store, _) = open(device, 1 << 20);
    let mut threads = Vec::new();
    for _ in 0..2 {
        let store = Arc::clone(&store);
        threads.push(spawn("writer", move || write(&store, 6)));
    }
    let saver = {
        let (store, device) = (Arc::clone(&store), Arc::clone(device));
        spawn("saver", move || save(&store, &device))
    };
    let mut account = saver.join().unwrap();
    let last = account.acknowledged.last().map(|(_, lsn)| *lsn);
    threads.into_iter().for_each(|thread| account.add(thread.join().unwrap()));
    during.add(u64::from(last < Some(store.last_lsn())));
    account
}

#[test]
fn recovery_finds_a_prefix() {
    let during = Seen::default();
    let counted = during.clone();
    // Leaves that are changed beside a checkpoint have existed before it.
    let device = prepared(Spec::tiny(), GROUPS, |device| {
        let (store, _) = open(device, 1 << 20);
        write(&store, 40);
        store.close().unwrap();
    });
    explore("checkpoint::recovery_finds_a_prefix", 1200, device, move |device| {
        let before = contents(&open(&crate::image(&device, &emulated::CrashPlan::KeepAll), 1 << 20).0);
        assert_ne!(before, Contents::new());
        let mut account = work(&device, &counted);
        let mut rng = rng();
        for _ in 0..2 {
            let (at, found) = cut(&device, &mut rng);
            account.judge(&before, at, &found);
        }
    });
    during.report("schedules with transactions after the last checkpoint began");
}

/// Two threads make a transaction durable, one takes checkpoints, and one writes a durable mark when nothing else is to
/// be done: the mark never has a later epoch than the next batch.
fn work_when_quiet(device: &Arc<Emulated>) -> Account {
    let (store, _) = open(device, 1 << 20);
    let mut account = Account::default();
    let first = account.commit(&store, random_writes(&mut rng(), GROUPS, KEYS, VALUE_MAX));
    store.sync(first).unwrap();
    // The next step after one without work writes the mark.
    while store.step().unwrap() == Step::Worked {}
    let mut threads = Vec::new();
    for _ in 0..2 {
        let (store, device) = (Arc::clone(&store), Arc::clone(device));
        threads.push(spawn("client", move || {
            let mut account = Account::default();
            let lsn = account.commit(&store, random_writes(&mut rng(), GROUPS, KEYS, VALUE_MAX));
            store.sync(lsn).unwrap();
            account.acknowledge(&device, lsn);
            account
        }));
    }
    let keeper = Arc::clone(&store);
    let keeper = spawn("keeper", move || keeper.step().unwrap());
    store.checkpoint().unwrap();
    threads.into_iter().for_each(|thread| account.add(thread.join().unwrap()));
    keeper.join().unwrap();
    account
}

/// A mark of the durable LSN was written in a later epoch than the transaction that it covered. Recovery assigned that
/// transaction to an older life, and an acknowledged change was lost.
#[test]
fn durable_marks_hide_no_transaction() {
    let (sender, befores) = mpsc::channel();
    let device = prepared(Spec::tiny(), GROUPS, move |device| {
        let (store, _) = open(device, 1 << 20);
        write(&store, 40);
        sender.send(contents(&store)).unwrap();
        store.close().unwrap();
    });
    let before = befores.recv().unwrap();
    let test = "checkpoint::durable_marks_hide_no_transaction";
    explore_in(DELAYED_OFTEN, test, 12_000, device, move |device| {
        let mut account = work_when_quiet(&device);
        // At the moment of the acknowledgement, with everything that was written.
        for (at, _) in account.acknowledged.clone() {
            let found = device.image_at(at, &emulated::CrashPlan::KeepAll);
            account.judge(&before, at, &Arc::new(found));
        }
    });
}
