//! Memory for caches, which a simulator can refuse.
//!
//! Code that allocates pages by the thousand asks [`grants`] before it asks the system. The answer is yes, except for
//! threads that have called [`make_scarce`]. For them the `n`-th request and a chosen number after it are refused,
//! and each request is for no more than is needed, so that each lack of memory is a request of its own.

use std::cell::Cell;

thread_local! {
    static SCARCE: Cell<Option<Scarce>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Default)]
struct Scarce {
    /// Requests that are granted before.
    after: u64,
    /// Requests that are refused then.
    times: u64,
    /// Requests that were refused.
    refused: u64,
}

/// From now on this thread's requests are for one page each. None is refused yet.
pub fn make_scarce() {
    SCARCE.set(Some(Scarce::default()));
}

/// Ends the shortage: the memory of the system is available.
pub fn make_plenty() {
    SCARCE.set(None);
}

/// Refuses the `nth` request of this thread from now on, counted from 1, and the following ones, `times` in total.
pub fn refuse(nth: u64, times: u64) {
    assert!(nth > 0, "requests are counted from 1");
    SCARCE.set(Some(Scarce { after: nth - 1, times, refused: 0 }));
}

/// Whether this thread has called [`make_scarce`] or [`refuse`].
pub fn is_scarce() -> bool {
    SCARCE.get().is_some()
}

/// Whether the caller may ask the system for more memory.
pub fn grants() -> bool {
    let Some(mut scarce) = SCARCE.get() else { return true };
    let is_granted = scarce.after > 0 || scarce.times == 0;
    if scarce.after > 0 {
        scarce.after -= 1;
    } else if scarce.times > 0 {
        scarce.times -= 1;
        scarce.refused += 1;
    }
    SCARCE.set(Some(scarce));
    is_granted
}

/// How many requests of this thread were refused since [`refuse`].
pub fn refused() -> u64 {
    SCARCE.get().map_or(0, |scarce| scarce.refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_requests_are_refused() {
        assert!(grants() && !is_scarce());
        refuse(3, 2);
        assert_eq!((0..6).map(|_| grants()).collect::<Vec<_>>(), [true, true, false, false, true, true]);
        assert_eq!(refused(), 2);
        refuse(1, u64::MAX);
        assert!((0..9).all(|_| !grants()));
        make_plenty();
        assert!(grants() && refused() == 0);
    }
}
