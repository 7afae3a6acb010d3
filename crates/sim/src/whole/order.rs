//! Whether the found states of several clients are one prefix of the log.
//!
//! The transactions of an operation lie between the newest LSN before it and the newest after it. If a client is
//! found in some state, everything that led there is in the log, and the next operation is not, or not completely. So
//! the last surviving LSN lies after the start of the one and before the end of the other. If a client may have been
//! in that state several times, each is possible. There must be an LSN that is possible for all clients.

use std::sync::Arc;

use tree::Lsn;

use crate::allowed::{FilesState, places};
use crate::files::Spans;

/// The operations of a client in a mount that may be found.
#[derive(Clone, Debug)]
pub struct Deeds {
    /// The states.
    pub states: Vec<Arc<FilesState>>,
    /// The index of the first state in the client's history.
    pub first: usize,
    /// The spans of LSNs, by index in the history.
    pub spans: Spans,
}

/// Ranges that contain the last surviving LSN, ends included.
type Ranges = Vec<(u64, u64)>;

impl Deeds {
    fn ranges(&self, found: &FilesState) -> Ranges {
        places(&self.states, found).into_iter().map(|place| (self.from(place), self.until(place))).collect()
    }

    /// The minimum, if everything up to here is found. A state without changes gives no bound.
    fn from(&self, place: usize) -> u64 {
        let last = (1..=place).rev().find(|&place| self.changed(place));
        last.and_then(|place| self.span(place)).map_or(0, |(before, _)| before.0 + 1)
    }

    /// The maximum, if the next operation is not found, or not completely.
    fn until(&self, place: usize) -> u64 {
        let next = (place + 1..self.states.len()).find(|&place| self.changed(place));
        next.and_then(|place| self.span(place)).map_or(u64::MAX, |(_, after)| after.0.saturating_sub(1))
    }

    fn changed(&self, place: usize) -> bool {
        self.states[place].snapshot != self.states[place - 1].snapshot
    }

    fn span(&self, place: usize) -> Option<(Lsn, Lsn)> {
        self.spans.get(&(self.first + place)).copied()
    }
}

/// A possible end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// An LSN that may be the last surviving one.
    pub lsn: Lsn,
    /// Whether the check was effective: one client lost something, and another did not.
    pub is_bounded: bool,
}

/// A possible end of the log, given the found state of each client. `None` if there is none.
pub fn end_of_log(found: &[(Deeds, FilesState)]) -> Option<End> {
    let ranges: Vec<Ranges> = found.iter().map(|(deeds, found)| deeds.ranges(found)).collect();
    let lacks = |ranges: &Ranges| ranges.iter().all(|&(_, until)| until < u64::MAX);
    let has = |ranges: &Ranges| ranges.iter().all(|&(from, _)| from > 0);
    let others = |one: usize| ranges.iter().enumerate().any(|(other, ranges)| other != one && has(ranges));
    let is_bounded = ranges.iter().enumerate().any(|(one, ranges)| lacks(ranges) && others(one));
    let may_be = |lsn: u64| {
        let holds = |ranges: &Ranges| ranges.iter().any(|&(from, until)| (from..=until).contains(&lsn));
        ranges.iter().all(holds)
    };
    let lsn = ranges.iter().flatten().map(|&(from, _)| from).find(|&from| may_be(from)).map(Lsn)?;
    Some(End { lsn, is_bounded })
}
