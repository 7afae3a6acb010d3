//! What goes into the log for its kind only once.
//!
//! A region of a device that cannot be read must not fill the log, with one line for each file that has a block
//! there or each time that somebody reads it. Two lines are of one kind when their words are the same but for
//! numbers.

use std::collections::BTreeSet;

use rt::sync::Mutex;

/// Kinds that are remembered; when there are more, all are forgotten, and each is logged once more.
const KINDS_MAX: usize = 1000;

/// The kinds that were logged.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<BTreeSet<String>>);

impl Complaints {
    /// Whether a line with these words is the first of its kind. Of others no more than a debugger wants to know.
    pub(crate) fn is_new(&self, why: &str) -> bool {
        let mut kind: String = why.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        while kind.contains("##") {
            kind = kind.replace("##", "#");
        }
        let mut known = self.0.lock();
        if known.len() >= KINDS_MAX {
            known.clear();
        }
        known.insert(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_is_new() {
        let complaints = Complaints::default();
        assert!(complaints.is_new("object 17 block 3 cannot be read"));
        assert!(!complaints.is_new("object 8 block 1234 cannot be read"));
        assert!(complaints.is_new("a flush failed"));
        let letters = |kind: usize| "x".repeat(kind + 1);
        assert!((0..KINDS_MAX - 2).all(|kind| complaints.is_new(&letters(kind))));
        assert!(complaints.is_new("one more") && complaints.is_new("object 1 block 1 cannot be read"));
    }
}
