//! Randomness: from the machine for secrets, from a seed for everything that must repeat.

/// A repeatable stream of numbers.
pub use fastrand::Rng;

/// `N` bytes that nobody can guess.
pub fn secret<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes after boot");
    bytes
}
