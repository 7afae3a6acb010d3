//! Errors of the volume in the log: the first of each kind.
//!
//! A damaged block that somebody reads again and again must not fill the log. Two errors are of one kind when
//! their words are the same but for numbers.

use std::collections::BTreeSet;

use rt::sync::Mutex;

/// Kinds that are remembered; what comes after them is not logged at all.
const KINDS_MAX: usize = 64;

/// The kinds that were logged.
pub(crate) struct Complaints(Mutex<BTreeSet<String>>);

/// Of this process, which serves one mount.
pub(crate) static COMPLAINTS: Complaints = Complaints::new();

impl Complaints {
    const fn new() -> Self {
        Complaints(Mutex::new(BTreeSet::new()))
    }

    /// Whether an error with these words is the first of its kind.
    pub(crate) fn is_new(&self, why: &str) -> bool {
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
