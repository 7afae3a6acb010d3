//! Planted bugs: mistakes that a build can be told to make, so that the harnesses can show that they would
//! notice (docs/testing.md).
//!
//! Only a build with the feature `planted`, which nothing switches on by itself, can be told; everywhere else
//! each question is answered with no when it is compiled, and nothing of the mistake is left.

#[cfg(feature = "planted")]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Whether this mistake is to be made.
#[cfg(feature = "planted")]
pub fn is_planted(bug: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == bug)
}

/// Whether this mistake is to be made: no.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_bug: &str) -> bool {
    false
}

/// From now on, and for as long as the process runs, this mistake is made; before anything else is done.
#[cfg(feature = "planted")]
pub fn plant(bug: String) {
    assert!(CHOSEN.set(bug).is_ok(), "one bug is planted, once");
}
