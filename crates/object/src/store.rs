//! What the device needs of an object store.
//!
//! Objects are created once and never changed. Names have `/` in them, and a listing is in the order of names.

use std::ops::Range;

use bytes::Bytes;

/// The result of a request.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An object store, or one directory in it.
pub trait Store: Send + Sync {
    /// Begins to create an object if there is none with this name. Another process may see it at any time from now
    /// on, whatever [`Creation::wait`] returns; but never a part of it.
    fn create(&self, name: &str, bytes: Bytes) -> Box<dyn Creation>;

    /// The bytes of an object; all of them if there is no range.
    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Bytes>;

    /// Several reads at the same time, in the order of the requests.
    fn read_many(&self, reads: &[(String, Range<u64>)]) -> Vec<Result<Bytes>> {
        reads.iter().map(|(name, range)| self.read(name, Some(range.clone()))).collect()
    }

    /// All names that begin with `prefix` and are greater than `after`, in order.
    fn list(&self, prefix: &str, after: &str) -> Result<Vec<String>>;

    /// Deletes an object. It is no error if there is none.
    fn delete(&self, name: &str) -> Result<()>;

    /// The store in messages.
    fn describe(&self) -> String;
}

/// Waits for a creation, and repeats it if it failed. If the store says that the object exists, it may be the same one, and a reply was lost; or the
/// store refused because a request of ours was still in progress, and there is no object at all. Returns whether the
/// object is there with these bytes now.
pub(crate) fn wait_for(
    store: &dyn Store,
    name: &str,
    bytes: &Bytes,
    creation: Box<dyn Creation>,
) -> Result<Placed> {
    let mut created = creation.wait();
    for attempt in 1.. {
        let is_last = attempt == CREATIONS_MAX;
        match created {
            Ok(Created::New) => return Ok(Placed::Ours),
            Ok(Created::Exists) if rt::is_planted("object-trust-exists") => return Ok(Placed::Ours),
            Ok(Created::Exists) => match store.read(name, None) {
                Ok(found) if found == bytes => return Ok(Placed::Ours),
                Ok(found) => return Ok(Placed::Other(found)),
                Err(StoreError::NotFound(_)) if !is_last => {}
                Err(error) => return Err(error),
            },
            Err(StoreError::Failed(_)) if !is_last => {}
            Err(error) => return Err(error),
        }
        created = store.create(name, bytes.clone()).wait();
    }
    unreachable!("the last attempt returns")
}

/// How often a creation is begun that fails, or about which the store contradicts itself. Each has time limits of its
/// own.
const CREATIONS_MAX: u32 = 5;

/// The object with the name after a creation.
#[derive(Debug)]
pub(crate) enum Placed {
    /// The object that was to be created.
    Ours,
    /// Another object.
    Other(Bytes),
}

/// A creation in progress.
pub trait Creation: Send {
    /// Waits for the reply.
    fn wait(self: Box<Self>) -> Result<Created>;
}

/// The reply to a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object exists now.
    New,
    /// There was one with this name already. It may be the same, if an earlier reply was lost.
    Exists,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no object with this name.
    #[error("there is no object {0}")]
    NotFound(String),
    /// The store refuses: credentials, rights, a bucket that does not exist.
    #[error("{0}")]
    Refused(String),
    /// The store could not be reached, or failed. Whether the request was executed is unknown.
    #[error("{0}")]
    Failed(String),
}
