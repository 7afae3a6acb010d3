//! Long runs of whole file systems: until they are full, and for many times their capacity.
//!
//! A run takes place in a [`Place`]: the library on an emulated device, or a directory of any mounted file system.
//! The run knows the expected contents of every file and compares. No power is lost here; [`crate::explore`] does
//! that.

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

/// Numbered files in some place.
pub trait Place {
    /// Creates an empty file.
    fn create(&mut self, file: u32) -> Result<(), Refused>;

    /// Writes all of these bytes.
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused>;

    /// Truncates or extends a file.
    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused>;

    /// Removes the only name.
    fn remove(&mut self, file: u32) -> Result<(), Refused>;

    /// Returns the size. Reads bytes from an offset on, as many as exist and fit.
    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused>;

    /// Makes a file durable.
    fn fsync(&mut self, file: u32) -> Result<(), Refused>;

    /// Available bytes, as reported by `statfs`.
    fn available(&mut self) -> Result<u64, Refused>;

    /// Verifies everything by other means, while the files exist. From here on reads bypass caches, so that they
    /// return the stored bytes.
    fn verify(&mut self) -> Result<(), Refused>;

    /// Waits until deleted space is free: until this many bytes are available, or a time limit. Returns the available
    /// bytes.
    fn regain(&mut self, bytes: u64) -> Result<u64, Refused>;
}

/// Why an operation was not performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no space.
    NoSpace,
    /// Any other error, which is wrong.
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
    /// As an error that must not happen.
    fn wrong(self, what: impl fmt::Display) -> Wrong {
        Wrong(format!("{what}: {self}"))
    }
}

#[cfg(test)]
mod tests;
