//! How fast a file system is: the same operations through the library, a mount and other file systems,
//! in turns.
//!
//! A machine that others use is fast now and slow a second later, so nothing here is a figure by itself.
//! What is to be compared is measured in turns of a fraction of a second each, in one process, and whoever
//! reads it takes medians and divides. A [`Place`] is where operations go: the library on a file device, or a
//! directory by system calls. [`names`] measures names at two sizes, [`data`] bytes
//! and single operations, [`extents`] one file of very many extents.

pub mod data;
mod directory;
pub mod extents;
mod library;
pub mod names;
mod raw;
mod zones;

pub use directory::Directory;
pub use library::Library;
pub use raw::Raw;
pub use zones::Zones;

use rt::Clock;

/// What went wrong, in words.
pub type Result<T> = std::result::Result<T, String>;

/// Somewhere that operations can be timed. Paths are relative and have at most one directory in them.
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

    /// How many entries a directory has; every one is looked at.
    fn list(&self, _directory: &str) -> Result<u64> {
        no_names()
    }

    /// Takes a file's name away.
    fn remove(&self, _path: &str) -> Result<()> {
        no_names()
    }

    /// Opens a file, made if it is not there.
    fn open(&self, path: &str) -> Result<Box<dyn Bytes>>;

    /// Makes durable all that was done.
    fn sync(&self) -> Result<()>;

    /// Whether it has names; otherwise it has bytes alone.
    fn has_names(&self) -> bool {
        true
    }

    /// Device bytes written for metadata so far, where that can be told.
    fn metadata_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes of metadata that live, where that is known.
    fn metadata_held(&self) -> Option<u64> {
        None
    }

    /// What it has counted of its own work, for whoever asks why it is slow.
    fn told(&self) -> Option<String> {
        None
    }
}

/// What a place without names answers to whoever asks for one.
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

/// A place with the name under which it is reported.
pub struct Named {
    /// What the report calls it.
    pub name: String,
    /// Where it is.
    pub place: Box<dyn Place>,
}

/// Does `work`, which is `operations` of something; how many it does in a second.
fn rate(clock: &dyn Clock, operations: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began_ns = clock.monotonic_ns();
    work()?;
    let took_ns = (clock.monotonic_ns() - began_ns).max(1);
    Ok(operations as f64 * 1e9 / took_ns as f64)
}

#[cfg(test)]
mod tests;
