//! Long runs of whole file systems: until they are full, and for many times their capacity.
//!
//! A run takes place in a [`Place`]: the library on an emulated device, or a directory of any mounted
//! file system. It knows what every file must hold and compares. No power is lost here; that is what
//! [`crate::explore`] is for.

mod bytes;
mod directory;
pub mod drawn;
mod endure;
mod full;
mod library;
mod over;

pub use directory::{Ask, Directory};
pub use endure::{Asked, Churned, Endured, churn, endure};
pub use full::{Filled, fill, fill_small};
pub use library::{Library, Setup};
pub use over::{Order, Way};

use std::fmt;

use crate::caught::Wrong;

/// Numbered files, somewhere.
pub trait Place {
    /// Makes an empty file.
    fn create(&mut self, file: u32) -> Result<(), Refused>;

    /// Writes all of these bytes.
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused>;

    /// Cuts or extends.
    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused>;

    /// Takes the only name away.
    fn remove(&mut self, file: u32) -> Result<(), Refused>;

    /// The size, and the bytes from an offset on, as many as there are and fit.
    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused>;

    /// Makes a file durable.
    fn fsync(&mut self, file: u32) -> Result<(), Refused>;

    /// Bytes that `statfs` offers.
    fn available(&mut self) -> Result<u64, Refused>;

    /// Has everything verified by other means, while the files are there; from here on reading passes by what
    /// is remembered of contents, so that they come from where they are kept.
    fn verify(&mut self) -> Result<(), Refused>;

    /// Waits for what was deleted to be given back, until so many bytes are offered or that takes too
    /// long; how many are.
    fn regain(&mut self, bytes: u64) -> Result<u64, Refused>;
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no space.
    NoSpace,
    /// Anything else, which is wrong.
    Other(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoSpace => f.write_str("no space left"),
            Refused::Other(what) => f.write_str(what),
        }
    }
}

impl Refused {
    /// As something that must not happen.
    fn wrong(self, what: impl fmt::Display) -> Wrong {
        Wrong(format!("{what}: {self}"))
    }
}

#[cfg(test)]
mod tests;
