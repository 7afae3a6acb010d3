//! Planted bugs, which a build can be told to contain, so that the harnesses can show that they find them
//! (docs/testing.md).
//!
//! This needs the feature `planted`, which no other feature enables. In all other builds each question is answered
//! with no at compile time, and no code of the bug is left.

#[cfg(feature = "planted")]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Whether this bug is active.
#[cfg(feature = "planted")]
pub fn is_planted(bug: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == bug)
}

/// Whether this bug is active: no.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_bug: &str) -> bool {
    false
}

/// Activates a bug for the rest of the process. Called before anything else is done.
#[cfg(feature = "planted")]
pub fn plant(bug: String) {
    assert!(CHOSEN.set(bug).is_ok(), "one bug is planted, once");
}
