//! Objects, lifetimes, hints, errors.

use tree::StoreError;

use crate::FileClass;

/// An object: a numbered byte address space; the file system uses the inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub u64);

/// Why data could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExtentError {
    /// There is no space, even after all dead blocks are reclaimed.
    #[error("no space left")]
    NoSpace,
    /// A block cannot be read or has wrong contents. Nothing else is affected.
    #[error("object {object} block {block} cannot be read: {why}")]
    Lost {
        /// The object of the block.
        object: u64,
        /// The first such block of the range.
        block: u64,
        /// What happened.
        why: String,
    },
    /// The store or the device failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ExtentError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSpace => ExtentError::NoSpace,
            error => ExtentError::Store(error),
        }
    }
}

/// The result of an operation on objects.
pub type Result<T> = std::result::Result<T, ExtentError>;

/// The expected lifetime of data. Data that is written together should die together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Seconds to minutes.
    Short,
    /// Hours.
    Medium,
    /// Days to months.
    Long,
    /// Forever.
    Extreme,
}

/// The properties of a write that placement uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The lifetime that the user has stated.
    pub lifetime: Lifetime,
    /// The file class. Without a stated lifetime, the learned lifetime of the class counts.
    pub file_class: FileClass,
}

impl Hint {
    /// With a lifetime that the user has stated.
    pub fn of_lifetime(lifetime: Lifetime) -> Hint {
        Hint { lifetime, file_class: FileClass::default() }
    }
}
