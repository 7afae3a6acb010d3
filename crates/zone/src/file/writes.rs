//! The writes in flight of one zone.
//!
//! They are assigned consecutive blocks and executed concurrently. When one fails, the writes behind it that are
//! still in flight fail too, whatever their results are. New writes fail until none is in flight. Then the pointer is
//! behind the last completed write, or at the first failed write if that is further.

use crate::Blocks;

/// The writes of one zone in its present life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// The end of the furthest write that was reported as completed: the pointer that is recorded.
    pub(super) done: Blocks,
    in_flight: u32,
    /// The start of the first failed write, until none is in flight.
    failed_from: Option<Blocks>,
}

/// The consequence of the end of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Whether it may be reported as completed.
    pub(super) accepted: bool,
    /// The new pointer, if this ended a failure.
    pub(super) pointer: Option<Blocks>,
}

impl Writes {
    /// A zone that was written up to `pointer` before.
    pub(super) fn up_to(pointer: Blocks) -> Self {
        Writes { done: pointer, ..Writes::default() }
    }

    /// Whether writes fail because an earlier one failed.
    pub(super) fn are_failing(&self) -> bool {
        self.failed_from.is_some()
    }

    /// Whether any write is in flight.
    pub(super) fn are_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    pub(super) fn begin(&mut self) {
        assert!(!self.are_failing(), "no write begins while others fail");
        self.in_flight += 1;
    }

    pub(super) fn end(&mut self, at: Blocks, blocks: Blocks, succeeded: bool) -> Ended {
        assert!(self.in_flight > 0, "a write ends once");
        self.in_flight -= 1;
        let accepted = succeeded && self.failed_from.is_none_or(|failed| at < failed);
        if accepted {
            self.done = self.done.max(at + blocks);
        } else {
            self.failed_from = Some(self.failed_from.map_or(at, |failed| failed.min(at)));
        }
        let pointer = match self.failed_from {
            Some(failed) if self.in_flight == 0 => {
                self.failed_from = None;
                Some(failed.max(self.done))
            }
            _ => None,
        };
        Ended { accepted, pointer }
    }
}

#[cfg(test)]
mod tests;
