//! Why a volume in an object store cannot be created or opened.

use zone::DeviceError;

use crate::store::StoreError;

/// The reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A request failed.
    #[error("{store}: {error}")]
    Store {
        /// The store.
        store: String,
        /// The reason.
        error: StoreError,
    },
    /// There is no volume.
    #[error("{0}: there is no volume of Polder; create one with `polder mkfs`")]
    NoVolume(String),
    /// There is one already.
    #[error("{0}: there is a volume of Polder already; choose another place, or overwrite it with --force")]
    Exists(String),
    /// The object that would make the place a volume is of another program.
    #[error("{0}: `volume` there was not written by Polder; name another place")]
    Foreign(String),
    /// An object is damaged or missing.
    #[error("{store}: object {name}: {why}")]
    Damaged {
        /// The store.
        store: String,
        /// The object.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The shape is impossible.
    #[error("{0}")]
    Shape(&'static str),
    /// Another process owns the volume, as far as is known.
    #[error(
        "{store}: the volume is in use by process {process} on {host}; unmount it there, or end its ownership with \
         `-o takeover` (data that it has not synced is lost)"
    )]
    InUse {
        /// The store.
        store: String,
        /// The machine.
        host: String,
        /// The process there.
        process: u32,
        /// Whether it is a living process of this machine.
        is_here: bool,
    },
    /// Another process became the owner at the same time.
    #[error("{0}: another process has opened the volume at the same time")]
    Replaced(String),
    /// The store ignores the condition that an object does not exist.
    #[error(
        "{0}: the store creates objects although they exist (it ignores If-None-Match), so two machines could write \
         to the volume at the same time; use a store that supports conditional writes"
    )]
    IgnoresConditions(String),
}

impl From<ObjectError> for DeviceError {
    fn from(error: ObjectError) -> DeviceError {
        DeviceError::Unusable(error.to_string())
    }
}
