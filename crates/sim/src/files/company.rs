//! Several clients at once on one volume, each below a directory of its own and with a driver of its own.
//!
//! No client knows the operations of the others, so each keeps its own model and history. The log connects them: its
//! transactions have one order, and a loss of power leaves a prefix of that order. While the clients work, each notes
//! * the promises and when they were made. A promise is the LSN that the store reports as durable. When a sync or
//!   fsync of the client returns, it is the newest LSN from before that call. That LSN may belong to another client,
//!   because an fsync promises all transactions before it;
//! * between which LSNs the transactions of each of its operations lie ([`Spans`]).
//!
//! Afterwards [`book`] enters all promises into each history, in order.

use std::collections::BTreeMap;

use tree::Lsn;

use super::driver::Driver;

/// For the index of each state that an operation led to: the newest LSN before the operation, and after it.
pub type Spans = BTreeMap<usize, (Lsn, Lsn)>;

/// The notes of one client.
#[derive(Debug, Default)]
pub(super) struct Account {
    spans: Spans,
    /// (commands, LSN): after this many commands, everything up to this LSN was promised.
    durable: Vec<(u64, Lsn)>,
}

impl Account {
    /// Notes that everything up to this LSN is promised.
    pub(super) fn durable(&mut self, commands: u64, lsn: Lsn) {
        self.durable.push((commands, lsn));
    }
}

impl Driver {
    /// Notes that an operation has led to the newest state. `lsn` was the newest LSN before it.
    pub(super) fn note_span(&mut self, lsn: Lsn) {
        let (state, newest) = (self.history.last(), self.fs.store().last_lsn());
        if let Some(account) = &mut self.account {
            account.spans.insert(state, (lsn, newest));
        }
    }

    /// Between which LSNs the transactions of each operation lie.
    pub fn spans(&self) -> Spans {
        self.account.as_ref().map(|account| account.spans.clone()).unwrap_or_default()
    }
}

/// Called when all clients have finished. Enters the promises to all clients into each history.
pub fn book(drivers: &mut [Driver]) {
    let accounts = drivers.iter().filter_map(|driver| driver.account.as_ref());
    let mut durable: Vec<(u64, Lsn)> = accounts.flat_map(|account| account.durable.iter().copied()).collect();
    durable.sort_unstable();
    for driver in drivers {
        for &(commands, lsn) in &durable {
            let state =
                driver.commits.iter().rev().find(|(commit, _)| *commit <= lsn).map(|(_, state)| *state);
            if let Some(state) = state {
                driver.history.promise(commands, state);
            }
        }
    }
}
