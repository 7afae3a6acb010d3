//! Several clients of one store at once, and one thread that takes checkpoints and background steps.
//!
//! They are threads of an [`rt::schedule`], so that their interleaving follows from the seed and can be repeated. A
//! client that waits for the commit lock while a leader flushes is a follower. The next flush contains its records
//! and those of all other followers, and the scenarios require this as a sign.
//!
//! No client knows what the others have done when it commits. The store reports an LSN to each. From the LSNs the
//! history is put together afterwards:
//! * The states are those after each transaction in the order of LSNs, over all clients. The recovered state must be
//!   one of them. So a prefix of each client's transactions survives, and no transaction survives without all earlier
//!   transactions of all clients (I-TREE-1).
//! * A transaction can be on the device only after it and all earlier transactions were begun. That is the ceiling.
//! * A sync that has returned promises its LSN and all before. That is the floor, exact to the command.

use std::sync::Arc;

use emulated::Emulated;
use rt::random::Rng;
use rt::schedule::{self, Body};
use tree::{Lsn, Store, StoreError, Tx};

use super::entries::{Entries, Key};
use super::scenarios::Profile;
use super::session::{Session, random_writes};
use crate::caught::{Wrong, caught};
use crate::digest::mix;

/// A put, or a delete if there is no value.
pub(super) type Write = (Key, Option<Vec<u8>>);

/// A committed transaction of a client.
struct Written {
    /// Device commands before it began.
    begun: u64,
    lsn: Lsn,
    writes: Vec<Write>,
}

/// A sync or a checkpoint that has returned.
struct Acknowledged {
    /// Device commands at that moment.
    commands: u64,
    /// The last transaction that it promises.
    lsn: Lsn,
}

/// The record of one client, in its order.
#[derive(Default)]
struct Account {
    written: Vec<Written>,
    acknowledged: Vec<Acknowledged>,
}

impl Session<'_> {
    /// Runs all clients at once, each with this many transactions.
    pub(super) fn crew(&mut self, transactions: u32) -> Result<(), Wrong> {
        let (seed, clients) = (self.rng.u64(..), self.subject.profile.clients);
        let body = |number: u32| -> Body<'_, Result<Account, Wrong>> {
            let client = Client {
                store: &self.store,
                device: self.device,
                profile: &self.subject.profile,
                rng: Rng::with_seed(mix(&[seed, u64::from(number)])),
                account: Account::default(),
            };
            let scenario = self.subject.profile.name;
            if number == clients {
                return (
                    "keeper".to_owned(),
                    Box::new(move || caught(scenario, || client.keep(transactions))),
                );
            }
            let work = move || caught(scenario, || client.write(transactions));
            (format!("client {number}"), Box::new(work))
        };
        let bodies = (0..=clients).map(body).collect();
        let accounts = schedule::run(seed, bodies).returned.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.book(accounts)
    }

    /// Puts the history together.
    fn book(&mut self, accounts: Vec<Account>) -> Result<(), Wrong> {
        let in_order = |account: &Account| account.written.is_sorted_by(|a, b| a.lsn < b.lsn);
        if !accounts.iter().all(in_order) {
            return Err(Wrong("the transactions of one client got LSNs out of their order".to_owned()));
        }
        let (mut written, mut acknowledged) = (Vec::new(), Vec::new());
        for account in accounts {
            written.extend(account.written);
            acknowledged.extend(account.acknowledged);
        }
        written.sort_by_key(|written| written.lsn);
        acknowledged.sort_by_key(|acknowledged| acknowledged.commands);
        let mut begun = 0;
        for Written { begun: at, lsn, writes } in written {
            begun = begun.max(at);
            writes.into_iter().for_each(|write| self.entries.write(write));
            self.history.begin(begun, self.entries.clone());
            self.commits.push((lsn, self.history.last()));
        }
        for Acknowledged { commands, lsn } in acknowledged {
            let index = self.commits.partition_point(|(commit, _)| *commit <= lsn);
            if let Some((_, state)) = index.checked_sub(1).map(|last| self.commits[last]) {
                self.history.promise(commands, state);
            }
        }
        self.note_durable();
        Ok(())
    }
}

/// One of the threads.
struct Client<'a> {
    store: &'a Arc<Store>,
    device: &'a Emulated,
    profile: &'a Profile,
    rng: Rng,
    account: Account,
}

impl Client<'_> {
    /// Commits, and sometimes syncs the committed transactions.
    fn write(mut self, transactions: u32) -> Result<Account, Wrong> {
        let weights = self.profile.weights;
        let mut newest = None;
        for _ in 0..transactions {
            newest = self.commit()?.or(newest);
            if self.rng.u32(0..weights.commit + weights.sync) >= weights.commit
                && let Some(lsn) = newest
            {
                self.store.sync(lsn).map_err(|error| Wrong::at("sync", error))?;
                self.acknowledged(lsn);
            }
        }
        Ok(self.account)
    }

    /// `None` if there was no space.
    fn commit(&mut self) -> Result<Option<Lsn>, Wrong> {
        let writes = random_writes(self.profile, self.store.value_max(), &mut self.rng);
        let begun = self.device.commands();
        match self.store.commit(transaction(&writes)) {
            Ok(lsn) => {
                self.account.written.push(Written { begun, lsn, writes });
                Ok(Some(lsn))
            }
            Err(StoreError::NoSpace) => Ok(None),
            Err(error) => Err(Wrong::at("commit", error)),
        }
    }

    fn acknowledged(&mut self, lsn: Lsn) {
        self.account.acknowledged.push(Acknowledged { commands: self.device.commands(), lsn });
    }

    /// Takes checkpoints and background steps while the clients commit.
    fn keep(mut self, rounds: u32) -> Result<Account, Wrong> {
        let weights = self.profile.weights;
        let sum = weights.checkpoint + weights.step;
        for _ in 0..if sum == 0 { 0 } else { rounds } {
            if self.rng.u32(0..sum) >= weights.checkpoint {
                self.store.step().map_err(|error| Wrong::at("step", error))?;
                continue;
            }
            // The checkpoint contains all transactions up to here.
            let lsn = self.store.last_lsn();
            self.store.checkpoint().map_err(|error| Wrong::at("checkpoint", error))?;
            self.acknowledged(lsn);
        }
        Ok(self.account)
    }
}

/// A transaction of these writes.
pub(super) fn transaction(writes: &[Write]) -> Tx {
    let mut tx = Tx::new();
    for ((group, table, key), value) in writes {
        let (group, table) = (tree::Group(*group), tree::Table(*table));
        match value {
            Some(value) if key.ends_with(b"7") => tx.put(group, table, key.clone(), value.clone()),
            Some(value) => tx.update(group, table, key.clone(), value.clone()),
            None => tx.delete(group, table, key.clone()),
        }
    }
    tx
}

impl Entries {
    /// Performs one write.
    pub(super) fn write(&mut self, (key, value): Write) {
        match value {
            Some(value) => self.put(key, value),
            None => self.delete(&key),
        }
    }
}
