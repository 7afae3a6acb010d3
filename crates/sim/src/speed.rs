//! How fast a file system is: the same operations through the library, a mount and other file systems, in turns.
//!
//! A shared machine is fast now and slow a second later, so a single figure here means nothing. Places to compare are
//! measured in turns of a fraction of a second each, in one process. The reader of the figures must take medians and
//! ratios. A [`Place`] performs the operations: the library on a file device, or a directory through system calls.
//! [`names`] measures names at two sizes, [`data`] bytes and single operations, [`extents`] one file with very many
//! extents. Two are different: [`calls`] is one kind of operation in one directory, with latencies, and [`counted`] is
//! operations for counting instructions.

pub mod calls;
pub mod counted;
pub mod data;
mod directory;
pub mod extents;
pub mod latencies;
mod library;
pub mod names;
mod raw;
mod zones;

pub use directory::Directory;
pub use library::Library;
pub use raw::Raw;
pub use zones::Zones;

use rt::Clock;

/// An error as text.
pub type Result<T> = std::result::Result<T, String>;

/// A place where operations can be timed. Paths are relative and have at most one directory in them.
pub trait Place: Send + Sync {
    /// Makes a directory of the first level.
    fn make_directory(&self, _name: &str) -> Result<()> {
        no_names()
    }

    /// Makes a file, writes its contents at once and closes it.
    fn create(&self, _path: &str, _content: &[u8]) -> Result<()> {
        no_names()
    }

    /// The size of a file, found by its name.
    fn lookup(&self, _path: &str) -> Result<u64> {
        no_names()
    }

    /// The number of entries of a directory. Every entry is read.
    fn list(&self, _directory: &str) -> Result<u64> {
        no_names()
    }

    /// Removes a file's name.
    fn remove(&self, _path: &str) -> Result<()> {
        no_names()
    }

    /// Opens a file. Creates it if it does not exist.
    fn open(&self, path: &str) -> Result<Box<dyn Bytes>>;

    /// Makes all changes durable.
    fn sync(&self) -> Result<()>;

    /// Whether the place has names; otherwise it has only bytes.
    fn has_names(&self) -> bool {
        true
    }

    /// Device bytes written for metadata so far, if known.
    fn metadata_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes of live metadata, if known.
    fn live_metadata_bytes(&self) -> Option<u64> {
        None
    }

    /// Its internal counts, which help to explain why it is slow.
    fn statistics(&self) -> Option<String> {
        None
    }
}

/// The error of a place without names.
fn no_names<T>() -> Result<T> {
    Err("there are bytes here, and no names".to_owned())
}

/// An open file.
pub trait Bytes: Send + Sync {
    /// Fills the buffer.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes all.
    fn write(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Makes the file durable.
    fn sync(&self) -> Result<()>;
}

/// A place, and its name in reports.
pub struct Named {
    /// The name in reports.
    pub name: String,
    /// The place.
    pub place: Box<dyn Place>,
}

/// Runs `work`, which performs `operations` operations. Returns operations per second.
fn rate(clock: &dyn Clock, operations: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began_ns = clock.monotonic_ns();
    work()?;
    let took_ns = (clock.monotonic_ns() - began_ns).max(1);
    Ok(operations as f64 * 1e9 / took_ns as f64)
}

#[cfg(test)]
mod tests;
