//! Memory for caches, which a simulator can refuse.
//!
//! Whoever keeps pages by the thousand asks [`grants`] before it asks the system. The answer is yes, but for threads
//! that have said [`make_scarce`]: for them the `n`-th request, and as many after it as they like, is refused, and they
//! ask for no more than they lack, so that each lack is a request of its own.

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

/// There is as much as the system has.
pub fn make_plenty() {
    SCARCE.set(None);
}

/// Of this thread's requests from now on the `nth`, counted from 1, is refused, and so are as many in all.
pub fn refuse(nth: u64, times: u64) {
    assert!(nth > 0, "requests are counted from 1");
    SCARCE.set(Some(Scarce { after: nth - 1, times, refused: 0 }));
}

/// Whether this thread has said that memory is scarce.
pub fn is_scarce() -> bool {
    SCARCE.get().is_some()
}

/// Whether the system may be asked for more.
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
    fn requests_are_refused_in_their_turn() {
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
