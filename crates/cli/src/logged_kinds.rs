//! The kinds of errors that were logged. Each kind is logged only once.
//!
//! An unreadable region of a device must not fill the log with a line for each file in it, or for each read. Two lines are
//! of the same kind if they differ only in numbers.

use std::collections::BTreeSet;

use rt::sync::Mutex;

/// The largest number of kinds in memory. When it is reached, all are forgotten, so each kind is logged once more.
const KINDS_MAX: usize = 1000;

/// The kinds that were logged.
#[derive(Debug, Default)]
pub(crate) struct LoggedKinds(Mutex<BTreeSet<String>>);

impl LoggedKinds {
    /// Whether a line with these words is the first of its kind.
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
        let kinds = LoggedKinds::default();
        assert!(kinds.is_new("object 17 block 3 cannot be read"));
        assert!(!kinds.is_new("object 8 block 1234 cannot be read"));
        assert!(kinds.is_new("a flush failed"));
        let letters = |kind: usize| "x".repeat(kind + 1);
        assert!((0..KINDS_MAX - 2).all(|kind| kinds.is_new(&letters(kind))));
        assert!(kinds.is_new("one more") && kinds.is_new("object 1 block 1 cannot be read"));
    }
}
