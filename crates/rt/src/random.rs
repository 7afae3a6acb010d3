//! Randomness: from the machine for secrets, and from a seed for everything that must repeat.

use std::cell::RefCell;

/// A repeatable stream of numbers.
pub use fastrand::Rng;

thread_local! {
    static REPEATED: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// From now on [`secret`] returns bytes to this thread that follow from a seed. For simulators, whose volumes have no
/// secrets.
pub fn repeat_from(seed: u64) {
    REPEATED.set(Some(Rng::with_seed(seed)));
}

/// `N` bytes that cannot be guessed.
pub fn secret<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    REPEATED.with_borrow_mut(|repeated| match repeated {
        Some(rng) => rng.fill(&mut bytes),
        None => getrandom::fill(&mut bytes).expect("the operating system always has random bytes after boot"),
    });
    bytes
}
