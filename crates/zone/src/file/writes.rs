//! The writes of one zone that are under way.
//!
//! They are given places one after the other and carried out at once. When one fails, those behind it
//! that are still under way fail too, whatever became of them, and so does every new one until all
//! are back; then the pointer stands behind the last that was reported as done, or where the first
//! failed one began, whichever is further.

use crate::Blocks;

/// What is known of the writes of one zone in its present life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// The end of the furthest write that was reported as done: the pointer that is recorded.
    pub(super) done: Blocks,
    under_way: u32,
    /// Where the first of the failed ones began, until all are back.
    failed_from: Option<Blocks>,
}

/// What follows from the end of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Whether it may be reported as done.
    pub(super) accepted: bool,
    /// Where the pointer goes now that a failure is over.
    pub(super) pointer: Option<Blocks>,
}

impl Writes {
    /// What is known of a zone that was written up to `pointer` before.
    pub(super) fn up_to(pointer: Blocks) -> Self {
        Writes { done: pointer, ..Writes::default() }
    }

    /// Whether a failure is not over yet.
    pub(super) fn are_failing(&self) -> bool {
        self.failed_from.is_some()
    }

    /// Whether any are under way.
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    pub(super) fn begin(&mut self) {
        assert!(!self.are_failing(), "no write begins while others fail");
        self.under_way += 1;
    }

    pub(super) fn end(&mut self, at: Blocks, blocks: Blocks, succeeded: bool) -> Ended {
        assert!(self.under_way > 0, "a write ends once");
        self.under_way -= 1;
        let accepted = succeeded && self.failed_from.is_none_or(|failed| at < failed);
        if accepted {
            self.done = self.done.max(at + blocks);
        } else {
            self.failed_from = Some(self.failed_from.map_or(at, |failed| failed.min(at)));
        }
        let pointer = match self.failed_from {
            Some(failed) if self.under_way == 0 => {
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
