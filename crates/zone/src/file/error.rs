//! Why a file cannot be made or used as a volume, each in one line that says what to do.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::format::Reader;
use crate::{DeviceError, FsId};

/// What is wrong with a file, or with what was asked for it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("{}: there is no such file; correct the path, or make a volume there (polder mkfs)", .0.display())]
    NotFound(PathBuf),
    /// The path ends before its last part, or its symbolic link leads nowhere.
    #[error("{}: {why}", path.display())]
    BrokenPath {
        /// What was named.
        path: PathBuf,
        /// Where it ends, and what to do.
        why: String,
    },
    /// A volume is to be made in a file that does not say how large it is to be.
    #[error("{}: {what}; say how large the volume is to be (--size)", path.display())]
    NoSize {
        /// The file.
        path: PathBuf,
        /// What there is of it.
        what: &'static str,
    },
    /// It is a directory or a pipe, say.
    #[error("{} is {what}; name a file or a block device", path.display())]
    NotStorage {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The system does not let this user have it.
    #[error("{}: permission denied; run this as a user who may use it, or change its permissions", .0.display())]
    NoAccess(PathBuf),
    /// The system lets nobody have it here, whoever he is.
    #[error("{}: the system lets nobody have it here, root neither: {why}", path.display())]
    Forbidden {
        /// What was named.
        path: PathBuf,
        /// What may be the reason, and what to do.
        why: &'static str,
    },
    /// Another process has it open.
    #[error("{} is in use by another process; unmount it or end that process first", .0.display())]
    InUse(PathBuf),
    /// It holds something that is not Polder's.
    #[error("{} is not a Polder volume: it holds {what}; name a volume, or make one elsewhere (polder mkfs)", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is there, as far as can be told.
        what: String,
    },
    /// A volume is to be made where something else is.
    #[error("{} already holds {what}; use --force to overwrite it", path.display())]
    HoldsData {
        /// The file.
        path: PathBuf,
        /// What is there, as far as can be told.
        what: String,
    },
    /// A later release made it.
    #[error(
        "{}: format version {version}, features {features:#x}: needs {reader}; this is Polder {}",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version found.
        version: u32,
        /// The features found that this release does not know.
        features: u64,
        /// The release that reads it.
        reader: Reader,
    },
    /// A later release made it with a feature that must be known to write it.
    #[error("{}: has features that this release can only read; open it for reading only (mount -o ro)", .0.display())]
    OnlyReadable(PathBuf),
    /// The end of the file is missing.
    #[error("{} is cut short: it has {found} of its {expected} bytes; restore the whole file", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it had when it was made.
        expected: u64,
    },
    /// No copy of the header can be read.
    #[error(
        "{}: a damaged Polder volume: no copy of its header can be read{}; {} writes the header anew \
         from what the zones say of themselves, `polder salvage` saves what they hold",
        path.display(),
        what.as_ref().map(|what| format!(", and its start shows {what}")).unwrap_or_default(),
        repair_over(what)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What its start shows now, if that is known.
        what: Option<String>,
    },
    /// What was a volume's start shows the mark of something else.
    #[error(
        "{}: the start of the Polder volume {fs_id} was overwritten and shows {}; if the volume is wanted and not \
         that, {} writes its header anew (`mount -o ro` and `polder salvage` only read)",
        path.display(),
        what.as_deref().unwrap_or("something else"),
        repair_over(what)
    )]
    Overwritten {
        /// The file.
        path: PathBuf,
        /// The volume of which a header is left.
        fs_id: FsId,
        /// What the start shows now, if that is known.
        what: Option<String>,
    },
    /// None of a zoned device's headers can be read.
    #[error("{}: a damaged Polder volume: no zone's header can be read; restore the whole volume from a copy", .0.display())]
    DamagedZones(PathBuf),
    /// No header, and no zones either.
    #[error("{}: neither a header nor zones of a Polder volume are found in it", .0.display())]
    NoZones(PathBuf),
    /// The zones do not tell which volume it was.
    #[error("{}: the header cannot be written anew: {why}; `polder salvage` saves what the zones hold", path.display())]
    Uncertain {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The zones do not tell which volume is to be read.
    #[error(
        "{}: no header is left, there are zones of several Polder volumes, and which one is the newest cannot be told: \
         {volumes}; say whose files are to be saved (`polder salvage --volume ID`)",
        path.display()
    )]
    Several {
        /// The file.
        path: PathBuf,
        /// The volumes, and how many zones of each were found.
        volumes: String,
    },
    /// Fewer zones than a volume needs would fit.
    #[error(
        "{size} bytes are too few for {zones} zones; the smallest volume with this block and zone size has {smallest} bytes"
    )]
    TooSmall {
        /// Bytes asked for.
        size: u64,
        /// Zones that a volume has at least.
        zones: u32,
        /// Bytes needed for them.
        smallest: u64,
    },
    /// A number that cannot be.
    #[error("{option} {value}: {why}")]
    Option {
        /// Which option.
        option: &'static str,
        /// What was asked for.
        value: u64,
        /// Why it cannot be.
        why: &'static str,
    },
    /// A device that Polder cannot use.
    #[error("{} cannot be used: {why}", path.display())]
    Unsuitable {
        /// The device.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// An option that is the device's own business.
    #[error("{} has zones of its own; leave {option} away", path.display())]
    GivenByDevice {
        /// The device.
        path: PathBuf,
        /// What was asked for.
        option: &'static str,
    },
    /// The host's file system has no room for it.
    #[error("{}: the file system that holds it has no room for {size} bytes; free some or make it smaller", path.display())]
    HostFull {
        /// The file.
        path: PathBuf,
        /// Bytes asked for.
        size: u64,
    },
    /// The system refused.
    #[error("{}: cannot {operation}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// The system's words.
        reason: String,
    },
}

/// The command that repairs a volume whose start shows this.
fn repair_over(what: &Option<String>) -> &'static str {
    match what {
        Some(_) => "`polder check --repair --force` overwrites that and",
        None => "`polder check --repair`",
    }
}

impl FileError {
    /// Why the system does not let this process have a path, when its words are those of missing rights: root has all
    /// rights of a user, so to him they mean something else.
    pub fn denied(path: &Path, error: &io::Error) -> Self {
        let found = std::fs::metadata(path).ok();
        let is_device = found.as_ref().is_some_and(|found| found.file_type().is_block_device());
        let why = match Errno::from_io_error(error) {
            Some(Errno::PERM) if is_device => {
                "a container, say, whose rules leave this device out (cgroup); allow it there, or run this outside"
            }
            Some(Errno::PERM) if found.is_some() => {
                "the file may not be changed (`lsattr` shows an i or a; `chattr -ia` takes that away)"
            }
            _ if !rustix::process::geteuid().is_root() => return FileError::NoAccess(path.to_owned()),
            _ if found.is_some_and(|found| is_device && is_read_only(found.rdev())) => {
                return FileError::read_only(path);
            }
            _ => {
                "a mount with nodev, a file server that takes root for nobody, or a security module (see `dmesg`); \
                 change that, or name another place"
            }
        };
        FileError::Forbidden { path: path.to_owned(), why }
    }

    /// Of a device that takes no writes and was opened for them.
    pub(super) fn read_only(path: &Path) -> Self {
        let why = "the device is read-only; make it writable (`blockdev --setrw`), or mount it with -o ro"
            .to_owned();
        FileError::Unsuitable { path: path.to_owned(), why }
    }

    pub(crate) fn io(path: &Path, operation: &'static str, error: impl std::fmt::Display) -> Self {
        FileError::Io { path: path.to_owned(), operation, reason: error.to_string() }
    }
}

/// Whether a block device takes no writes.
pub(super) fn is_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    told.is_ok_and(|told| told.trim() == "1")
}

impl From<FileError> for DeviceError {
    fn from(error: FileError) -> Self {
        DeviceError::Unusable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root was told to run the command as a user who may use the file.
    #[test]
    fn root_is_not_sent_to_another_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = |errno: Errno| FileError::denied(file.path(), &errno.into()).to_string();
        assert!(
            said(Errno::PERM).contains("root neither: the file may not be changed"),
            "{}",
            said(Errno::PERM)
        );
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(said(Errno::ACCESS).contains("as a user who may use it"), !is_root);
        assert_eq!(said(Errno::ACCESS).contains("root neither: a mount with nodev"), is_root);
    }
}
