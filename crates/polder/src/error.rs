//! The error of every operation.

use std::io;
use std::path::{Path, PathBuf};

use fs::FsError;
use rustix::io::Errno;
use zone::file::{FileError, StoreTrouble};

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// A program that only has to react needs [`Error::kind`] or [`Error::errno`]. The text names the path and the cause.
/// Unless the cause is [`FsError::Io`], an operation that fails has changed nothing, or as much as its documentation
/// says.
///
/// `io::Error::from` keeps the error number, and with it the [`io::ErrorKind`], but not the text. [`Error::EndOfFile`]
/// and [`Error::NotText`] are no errors of the system: they keep the kind and the text.
///
/// ```
/// # let place = tempfile::tempdir().unwrap();
/// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
/// let error = volume.read("/missing").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!(error.to_string(), "/missing: no such file or directory");
/// assert_eq!(std::io::Error::from(error).raw_os_error(), Some(2));
/// # Ok::<(), polder::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a path in the volume.
    #[error("{}: {cause}", path.display())]
    Path {
        /// The path, as it was given.
        path: PathBuf,
        /// The cause.
        cause: FsError,
    },
    /// An operation on an open file, or on the whole volume.
    #[error(transparent)]
    Operation(#[from] FsError),
    /// The file or device of the volume cannot be used, or not with these options.
    #[error(transparent)]
    Open(#[from] FileError),
    /// A volume cannot be made with these options.
    #[error("{}: {why}", path.display())]
    Format {
        /// The file or device.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The volume was closed by [`Volume::close`](crate::Volume::close).
    #[error("the volume is closed")]
    Closed,
    /// A process has the volume open and does not let others attach to it.
    #[error(
        "{}: is in use by another process that does not share it; if it is mounted, mount it with \
         `polder mount --shared`",
        path.display()
    )]
    NotShared {
        /// The file or device.
        path: PathBuf,
    },
    /// The process that owns the volume does not accept this one.
    #[error("{}: is in use by another process, and cannot be attached: {why}", path.display())]
    NotAttached {
        /// The file or device.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The process that owns the volume has closed it, or has ended. Open the volume again. If that process was killed,
    /// changes that were not durable are lost.
    #[error("the process that owns the volume has closed it or has ended; open the volume again")]
    Disconnected,
    /// This process has the largest number of files open that an attached process may have (16,384).
    #[error("too many open files of an attached volume")]
    TooManyOpen,
    /// The volume cannot be mounted or unmounted.
    #[error("{reason}")]
    Mount {
        /// What has happened where.
        reason: String,
        /// The number of the system's error.
        errno: i32,
    },
    /// The volume has a mount that this process serves.
    #[error("the volume is mounted; unmount it first")]
    Mounted,
    /// The two files are in different volumes.
    #[error("the files are in different volumes")]
    OtherVolume,
    /// The file ends before all bytes were read that the caller asked for.
    #[error("the file ends before that")]
    EndOfFile,
    /// The bytes of a file are not the UTF-8 text that the caller asked for.
    #[error("{}: the contents are not UTF-8", .0.display())]
    NotText(PathBuf),
}

impl Error {
    /// An operation on a path has failed.
    pub(crate) fn at(path: &Path, cause: FsError) -> Error {
        Error::Path { path: path.to_owned(), cause }
    }

    /// The same for an operation on the file at a path.
    pub(crate) fn of(self, path: &Path) -> Error {
        match self {
            Error::Operation(cause) => Error::at(path, cause),
            error => error,
        }
    }

    /// The kind, as the standard library has it for this error number, or for such an error of its own.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::EndOfFile => io::ErrorKind::UnexpectedEof,
            Error::NotText(_) => io::ErrorKind::InvalidData,
            error => io::Error::from_raw_os_error(error.errno()).kind(),
        }
    }

    /// The error number that a system call would set, for example `ENOENT`.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Error::Path { cause, .. } | Error::Operation(cause) => return cause.errno(),
            Error::Open(error) => errno_of_open(error),
            Error::Mount { errno, .. } => return *errno,
            Error::Format { .. } => Errno::INVAL,
            Error::Mounted | Error::NotShared { .. } | Error::NotAttached { .. } => Errno::BUSY,
            Error::Disconnected => Errno::NOTCONN,
            Error::TooManyOpen => Errno::MFILE,
            Error::Closed => Errno::BADF,
            Error::OtherVolume => Errno::XDEV,
            Error::EndOfFile => Errno::NODATA,
            Error::NotText(_) => Errno::ILSEQ,
        };
        errno.raw_os_error()
    }
}

/// The same numbers as mount(2) and open(2) have for such files. A damaged volume is "Structure needs cleaning".
fn errno_of_open(error: &FileError) -> Errno {
    match error {
        FileError::ObjectStore { trouble, .. } => errno_of_store(*trouble),
        FileError::NotFound(_) | FileError::BrokenPath { .. } => Errno::NOENT,
        FileError::NoAccess(_) => Errno::ACCESS,
        FileError::Forbidden { .. } => Errno::PERM,
        FileError::InUse(_) => Errno::BUSY,
        FileError::HoldsData { .. } => Errno::EXIST,
        FileError::OnlyReadable(_) => Errno::ROFS,
        FileError::HostFull { .. } => Errno::NOSPC,
        FileError::Newer { .. } => Errno::OPNOTSUPP,
        FileError::MembersMissing { .. } => Errno::NODEV,
        FileError::Truncated { .. }
        | FileError::Damaged { .. }
        | FileError::Overwritten { .. }
        | FileError::DamagedZones(_)
        | FileError::NoZones(_)
        | FileError::Uncertain { .. }
        | FileError::Several { .. } => Errno::UCLEAN,
        FileError::Io { .. } => Errno::IO,
        FileError::NoSize { .. }
        | FileError::NotStorage { .. }
        | FileError::Foreign { .. }
        | FileError::TooSmall { .. }
        | FileError::Option { .. }
        | FileError::Unsuitable { .. }
        | FileError::Member { .. }
        | FileError::Unfit(_)
        | FileError::GivenByDevice { .. } => Errno::INVAL,
    }
}

fn errno_of_store(trouble: StoreTrouble) -> Errno {
    match trouble {
        StoreTrouble::Missing => Errno::NOENT,
        StoreTrouble::Exists => Errno::EXIST,
        StoreTrouble::InUse => Errno::BUSY,
        StoreTrouble::Refused => Errno::ACCESS,
        StoreTrouble::Failed => Errno::IO,
        StoreTrouble::Damaged => Errno::UCLEAN,
        StoreTrouble::Unsuitable => Errno::OPNOTSUPP,
        StoreTrouble::Impossible => Errno::INVAL,
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        // The number says nothing about the place of the damage.
        if let Error::Path { cause: FsError::Io(_), .. } | Error::Operation(FsError::Io(_)) = &error {
            tracing::warn!("{error}");
        }
        match error {
            Error::EndOfFile | Error::NotText(_) => io::Error::new(error.kind(), error),
            error => io::Error::from_raw_os_error(error.errno()),
        }
    }
}
