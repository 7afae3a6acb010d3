//! The errors of operations, and the only place where they become `errno` values.

use extent::ExtentError;
use rustix::io::Errno;
use tree::StoreError;

use crate::format::Damaged;

/// The result of an operation.
pub type Result<T> = std::result::Result<T, FsError>;

/// Why an operation failed. All but [`FsError::Io`] are expected and change nothing.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum FsError {
    /// There is no such name, or the directory itself has been removed.
    #[error("no such file or directory")]
    NotFound,
    /// A symbolic link, which is not followed here.
    #[error("a symbolic link")]
    Loop,
    /// The name exists.
    #[error("already exists")]
    Exists,
    /// A directory is required.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not apply to a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The permission bits forbid it.
    #[error("permission denied")]
    Access,
    /// Only the owner or root may do this, or no caller at all.
    #[error("operation not permitted")]
    NotPermitted,
    /// The arguments do not fit together.
    #[error("invalid argument")]
    Invalid,
    /// A name of more than 255 bytes, or a symlink target that is too long for the volume's pages.
    #[error("name too long")]
    NameTooLong,
    /// The bytes do not fit even after reclaim, or the value of an attribute is longer than a transaction of this
    /// volume.
    #[error("no space left")]
    NoSpace,
    /// There is not enough memory.
    #[error("out of memory")]
    NoMemory,
    /// Larger than the largest file.
    #[error("file too large")]
    TooLarge,
    /// The inode has the largest possible number of names (the directory, of subdirectories).
    #[error("too many links")]
    TooManyLinks,
    /// The volume is mounted read-only or has shut down.
    #[error("read-only: mount it with rw, or see `polder info` for the error that has shut it down")]
    ReadOnly,
    /// There is no attribute with this name.
    #[error("no such attribute")]
    NoAttribute,
    /// There is nothing at or after the offset.
    #[error("no data beyond the offset")]
    NoData,
    /// Polder does not support this.
    #[error("not supported")]
    NotSupported,
    /// The handle was not opened for this.
    #[error("bad handle")]
    BadHandle,
    /// A name or value outside the limits of extended attributes.
    #[error("result too large")]
    Range,
    /// The inode no longer exists.
    #[error("stale handle")]
    Stale,
    /// The value of an attribute is longer than 64 KiB.
    #[error("argument too long")]
    ArgumentTooLong,
    /// Another owner's lock conflicts, and the request was not to wait.
    #[error("locked by another owner: try again")]
    WouldBlock,
    /// The owner of the lock waits, directly or through others, for the requesting owner.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// The owner has the largest number of locked ranges in the file.
    #[error("too many locks")]
    NoLocks,
    /// The device or the volume failed. The text describes the error.
    #[error("{0}")]
    Io(String),
}

impl FsError {
    /// The `errno` that a system call returns.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            FsError::NotFound => Errno::NOENT,
            FsError::Loop => Errno::LOOP,
            FsError::Exists => Errno::EXIST,
            FsError::NotDirectory => Errno::NOTDIR,
            FsError::IsDirectory => Errno::ISDIR,
            FsError::NotEmpty => Errno::NOTEMPTY,
            FsError::Access => Errno::ACCESS,
            FsError::NotPermitted => Errno::PERM,
            FsError::Invalid => Errno::INVAL,
            FsError::NameTooLong => Errno::NAMETOOLONG,
            FsError::NoSpace => Errno::NOSPC,
            FsError::NoMemory => Errno::NOMEM,
            FsError::TooLarge => Errno::FBIG,
            FsError::TooManyLinks => Errno::MLINK,
            FsError::ReadOnly => Errno::ROFS,
            FsError::NoAttribute => Errno::NODATA,
            FsError::NoData => Errno::NXIO,
            FsError::NotSupported => Errno::OPNOTSUPP,
            FsError::BadHandle => Errno::BADF,
            FsError::Range => Errno::RANGE,
            FsError::Stale => Errno::STALE,
            FsError::ArgumentTooLong => Errno::TOOBIG,
            FsError::WouldBlock => Errno::AGAIN,
            FsError::Deadlock => Errno::DEADLK,
            FsError::NoLocks => Errno::NOLCK,
            FsError::Io(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

impl From<StoreError> for FsError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSpace => FsError::NoSpace,
            StoreError::NoMemory(_) => FsError::NoMemory,
            StoreError::ReadOnly => FsError::ReadOnly,
            other => FsError::Io(other.to_string()),
        }
    }
}

impl From<ExtentError> for FsError {
    fn from(error: ExtentError) -> Self {
        match error {
            ExtentError::NoSpace => FsError::NoSpace,
            ExtentError::Store(store) => store.into(),
            lost => FsError::Io(lost.to_string()),
        }
    }
}

impl From<Damaged> for FsError {
    fn from(damaged: Damaged) -> Self {
        FsError::Io(format!("metadata is damaged: {damaged}"))
    }
}
