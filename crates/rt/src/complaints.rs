//! What goes into the log for its kind only once.
//!
//! A region of a device that cannot be read must not fill the log, with one line for each file that has a block
//! there or each time that somebody reads it. Two lines are of one kind when their words are the same but for
//! numbers.

use std::collections::BTreeSet;

use crate::sync::Mutex;

/// Kinds that are remembered; what comes after them is not logged at all.
const KINDS_MAX: usize = 64;

/// The kinds that were logged.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<BTreeSet<String>>);

impl Complaints {
    /// Nothing was logged.
    pub const fn new() -> Self {
        Complaints(Mutex::new(BTreeSet::new()))
    }

    /// Whether a line with these words is the first of its kind. Of others no more than a debugger wants to know.
    pub fn is_new(&self, why: &str) -> bool {
        let mut kind: String = why.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        while kind.contains("##") {
            kind = kind.replace("##", "#");
        }
        let mut known = self.0.lock();
        known.len() < KINDS_MAX && known.insert(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_is_new() {
        let complaints = Complaints::new();
        assert!(complaints.is_new("object 17 block 3 cannot be read"));
        assert!(!complaints.is_new("object 8 block 1234 cannot be read"));
        assert!(complaints.is_new("a flush failed"));
        let letters = |kind: usize| "x".repeat(kind + 1);
        assert_eq!((0..100).filter(|&kind| complaints.is_new(&letters(kind))).count(), KINDS_MAX - 2);
    }
}
