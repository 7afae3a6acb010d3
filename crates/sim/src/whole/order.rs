//! Whether what several clients are found to have done is one prefix of the log.
//!
//! The transactions of an operation lie between the newest LSN before it and the newest after it. Of a client that is
//! found in some state, all that led there is in the log and what comes next is not, or not whole: so the last LSN that
//! survived lies behind where the one begins and before where the other ends. Where a client may have been in that state
//! several times, each is possible. There must be an LSN that is possible for all.

use std::sync::Arc;

use tree::Lsn;

use crate::allowed::{FilesState, places};
use crate::files::Spans;

/// What a client did in a mount, as far as it may be found.
#[derive(Clone, Debug)]
pub struct Deeds {
    /// The states.
    pub states: Vec<Arc<FilesState>>,
    /// The index of the first of them in the client's history.
    pub first: usize,
    /// By index in the history.
    pub spans: Spans,
}

/// The last LSN that survived lies in one of these, ends included.
type Ranges = Vec<(u64, u64)>;

impl Deeds {
    fn ranges(&self, found: &FilesState) -> Ranges {
        places(&self.states, found).into_iter().map(|place| (self.from(place), self.until(place))).collect()
    }

    /// The least, when everything up to here is there: what changed nothing says nothing.
    fn from(&self, place: usize) -> u64 {
        let last = (1..=place).rev().find(|&place| self.changed(place));
        last.and_then(|place| self.span(place)).map_or(0, |(before, _)| before.0 + 1)
    }

    /// The most, when what comes next is not, or not whole.
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

/// Where the log may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// An LSN that may be the last one that survived.
    pub lsn: Lsn,
    /// Whether that says something: of one client something is missing, and of another something is there.
    pub is_bounded: bool,
}

/// Where the log may have ended when each client was found so; none when it can have ended nowhere.
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
