//! A driver beside others: several clients at once on one volume, each below a directory of its own.
//!
//! Nobody knows what the others do, so each keeps its own model and history. What ties them together is the log: its
//! transactions have one order, and a loss of power leaves a prefix of that. While they work each notes
//! * what was promised, and when: the LSN that the store calls durable, and, when a sync or fsync of its own returns, the
//!   newest LSN before that began, whoever's it was: an fsync promises all that came before it;
//! * between which LSNs the transactions of each of its operations lie ([`Spans`]).
//!
//! Afterwards [`book`] tells each history all promises, in order.

use std::collections::BTreeMap;

use tree::Lsn;

use super::driver::Driver;

/// By the index of the state that an operation led to: the newest LSN before it, and after it.
pub type Spans = BTreeMap<usize, (Lsn, Lsn)>;

/// What one client notes.
#[derive(Debug, Default)]
pub(super) struct Account {
    spans: Spans,
    /// After so many commands everything up to there was promised.
    durable: Vec<(u64, Lsn)>,
}

impl Account {
    /// Everything up to here is promised.
    pub(super) fn durable(&mut self, commands: u64, lsn: Lsn) {
        self.durable.push((commands, lsn));
    }
}

impl Driver {
    /// An operation has led to the newest state, before which `lsn` was the newest.
    pub(super) fn note_span(&mut self, lsn: Lsn) {
        let (state, newest) = (self.history.last(), self.fs.store().last_lsn());
        if let Some(account) = &mut self.account {
            account.spans.insert(state, (lsn, newest));
        }
    }

    /// Between which LSNs each of its operations lies.
    pub fn spans(&self) -> Spans {
        self.account.as_ref().map(|account| account.spans.clone()).unwrap_or_default()
    }
}

/// All have done their work: tells each what was promised to anybody.
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
