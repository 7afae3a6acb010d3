//! Several clients of one store, and the states that are allowed after a power loss.
//!
//! No client knows the other clients' commits when it commits. The store returns an LSN for each. The test orders the
//! transactions by LSN afterwards, and the recovered state must be the state after one of them (I-TREE-1).

use std::collections::BTreeMap;
use std::sync::Arc;

use emulated::Emulated;
use rt::random::Rng;
use tree::{Bytes, Client, Config, Group, Lsn, Op, Recovery, Replay, Result, Store, Table, Tx};

/// A client that stores nothing of its own in checkpoints.
struct Plain;

impl Client for Plain {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        b"plain".to_vec()
    }
}

impl Replay for Plain {
    fn checkpoint(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self, _ops: &[Op]) -> Result<bool> {
        Ok(true)
    }

    fn apply(&mut self, _ops: &[Op]) {}
}

pub(crate) const TABLE: Table = Table(1);

/// All rows of a store.
pub(crate) type Contents = BTreeMap<(u16, Bytes), Bytes>;
/// A put, or a delete where there is no value.
pub(crate) type Write = (u16, Bytes, Option<Bytes>);

/// The operations of all clients.
#[derive(Default)]
pub(crate) struct Account {
    /// Transactions.
    pub(crate) written: Vec<(Lsn, Vec<Write>)>,
    /// The LSNs that were acknowledged as durable, each with the number of device commands at that time.
    pub(crate) acknowledged: Vec<(u64, Lsn)>,
}

impl Account {
    pub(crate) fn add(&mut self, other: Account) {
        self.written.extend(other.written);
        self.acknowledged.extend(other.acknowledged);
    }

    pub(crate) fn commit(&mut self, store: &Store, writes: Vec<Write>) -> Lsn {
        let lsn = store.commit(transaction(&writes)).unwrap();
        self.written.push((lsn, writes));
        lsn
    }

    /// All commits up to `lsn` are durable.
    pub(crate) fn acknowledge(&mut self, device: &Emulated, lsn: Lsn) {
        self.acknowledged.push((device.commands(), lsn));
    }

    /// The rows after the transactions up to `last`.
    fn state(&mut self, before: &Contents, last: Lsn) -> Contents {
        self.written.sort_by_key(|(lsn, _)| *lsn);
        assert!(self.written.windows(2).all(|two| two[0].0 < two[1].0), "each has an LSN of its own");
        let mut state = before.clone();
        let writes = self.written.iter().take_while(|(lsn, _)| *lsn <= last).flat_map(|(_, writes)| writes);
        for (group, key, value) in writes.cloned() {
            match value {
                Some(value) => state.insert((group, key), value),
                None => state.remove(&(group, key)),
            };
        }
        state
    }

    /// Checks an image after a power loss after this number of commands.
    pub(crate) fn judge(&mut self, before: &Contents, at: u64, found: &Arc<Emulated>) {
        let (store, recovery) = open(found, 1 << 20);
        let acknowledged =
            self.acknowledged.iter().filter(|(commands, _)| *commands <= at).map(|(_, lsn)| *lsn).max();
        assert!(
            acknowledged <= Some(recovery.last),
            "{acknowledged:?} was durable, and {:?} was recovered",
            recovery.last
        );
        assert!(contents(&store) == self.state(before, recovery.last), "recovery finds a prefix (I-TREE-1)");
    }
}

fn transaction(writes: &[Write]) -> Tx {
    let mut tx = Tx::new();
    for (group, key, value) in writes {
        match value {
            Some(value) => tx.put(Group(*group), TABLE, key.clone(), value.clone()),
            None => tx.delete(Group(*group), TABLE, key.clone()),
        }
    }
    tx
}

pub(crate) fn open(device: &Arc<Emulated>, cache_bytes: u64) -> (Arc<Store>, Recovery) {
    let config = Config { cache_bytes, read_only: false, accept_loss: false };
    let (store, recovery) = Store::open(device.clone(), &config, &mut Plain).unwrap();
    store.set_client(Arc::new(Plain));
    (Arc::new(store), recovery)
}

/// Reads everything through the checker, which must find nothing.
pub(crate) fn contents(store: &Store) -> Contents {
    let mut all = Contents::new();
    let findings = store
        .check(&mut |group, _, key, value| {
            all.insert((group.0, key.to_vec()), value.to_vec());
        })
        .unwrap();
    assert_eq!(findings, vec![], "the checker finds nothing");
    all
}

pub(crate) fn key(number: u32) -> Bytes {
    format!("key {number:06}").into_bytes()
}

/// One to four writes to few keys, so that clients change the same keys.
pub(crate) fn random_writes(rng: &mut Rng, groups: u16, keys: u32, value_max: usize) -> Vec<Write> {
    let write = |rng: &mut Rng| {
        let value = (rng.u8(0..4) > 0).then(|| vec![rng.u8(..); rng.usize(1..value_max)]);
        (rng.u16(0..groups), key(rng.u32(0..keys)), value)
    };
    (0..rng.usize(1..=4)).map(|_| write(rng)).collect()
}
