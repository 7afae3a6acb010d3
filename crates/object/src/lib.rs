//! A device whose zones are objects of an object store.
//!
//! `docs/internals/objects.md` has the design: which objects there are, in which order they are written, and why two
//! processes never both own a volume. [`Store`] is what the device needs of a store, [`ObjectDevice`] the device.
#![forbid(unsafe_code)]

mod chain;
mod device;
mod error;
mod format;
mod garbage;
mod holder;
pub mod hostile;
mod names;
mod opening;
mod options;
#[cfg(feature = "client")]
mod remote;
mod store;
mod table;
mod tails;
mod url;
mod zones;

pub use device::ObjectDevice;
pub use error::ObjectError;
pub use holder::Holder;
pub use options::{Limits, Mode, OpenOptions, VolumeShape};
#[cfg(feature = "client")]
pub use remote::{Credentials, Remote};
pub use store::{Created, Creation, Result as StoreResult, Store, StoreError};
pub use url::is_url;

/// How many bytes a store delivers in the time of one request.
const SEEK_BYTES: u32 = 1 << 20;
/// The usual size of a part.
const PART_BYTES: u64 = 4 << 20;
/// The largest size of a part that a volume may have.
const PART_BYTES_MAX: u64 = 64 << 20;
/// How many zones may be active: each has an unfinished part in memory.
const ZONES_ACTIVE: u32 = 8;
/// The usual number of zones of a chunk of the table.
const CHUNK_ZONES: u32 = 1 << 18;
