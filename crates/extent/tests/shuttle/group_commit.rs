//! Group commit: an acknowledged transaction survives a power loss, whichever thread led the flush. One flush serves
//! several transactions.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use tree::Store;

use crate::tables::{Account, Contents, open, random_writes};
use crate::{Seen, cut, explore, prepared, rng, spawn};

const GROUPS: u16 = 2;
const COMMITTERS: u32 = 3;

fn commit_and_sync(store: &Store, device: &Emulated) -> Account {
    let (mut account, mut rng) = (Account::default(), rng());
    for _ in 0..4 {
        let lsn = account.commit(store, random_writes(&mut rng, GROUPS, 12, 60));
        if rng.u8(0..3) > 0 {
            store.sync(lsn).unwrap();
            account.acknowledge(device, lsn);
        }
    }
    account
}

/// A few committers at once.
fn work(device: &Arc<Emulated>, shared: &Seen) -> Account {
    let (store, _) = open(device, 1 << 20);
    let committers = (0..COMMITTERS).map(|_| {
        let (store, device) = (Arc::clone(&store), Arc::clone(device));
        spawn("committer", move || commit_and_sync(&store, &device))
    });
    let committers: Vec<_> = committers.collect();
    let mut account = Account::default();
    committers.into_iter().for_each(|committer| account.add(committer.join().unwrap()));
    shared.add(store.stats().sync_followers);
    account
}

#[test]
fn acknowledged_transactions_survive() {
    let shared = Seen::default();
    let counted = shared.clone();
    let device = prepared(Spec::tiny(), GROUPS, |_| {});
    explore("group_commit::acknowledged_transactions_survive", 1500, device, move |device| {
        let mut account = work(&device, &counted);
        let mut rng = rng();
        for _ in 0..2 {
            let (at, found) = cut(&device, &mut rng);
            account.judge(&Contents::new(), at, &found);
        }
    });
    shared.report("syncs that shared a flush with one before them");
}
