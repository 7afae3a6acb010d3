//! The errors of creating or opening a volume, each in one line with a remedy.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::format::Reader;
use crate::{DeviceError, FsId};

/// Why a file cannot be created or used as a volume.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("{}: no such file; correct the path, or make a volume there (polder mkfs)", .0.display())]
    NotFound(PathBuf),
    /// A directory of the path is missing, or its symbolic link is broken.
    #[error("{}: {why}", path.display())]
    BrokenPath {
        /// What was named.
        path: PathBuf,
        /// The reason and the remedy.
        why: String,
    },
    /// A volume is to be created in a file without a size.
    #[error("{}: {what}; give the size of the volume (--size)", path.display())]
    NoSize {
        /// The file.
        path: PathBuf,
        /// The present state of the file.
        what: &'static str,
    },
    /// It is neither a file nor a block device.
    #[error("{} is {what}; name a file or a block device", path.display())]
    NotStorage {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// This user lacks the permission.
    #[error("{}: permission denied; run this as a user with access to it, or change its permissions", .0.display())]
    NoAccess(PathBuf),
    /// No user has access here, not even root.
    #[error("{}: access is denied, even to root: {why}", path.display())]
    Forbidden {
        /// What was named.
        path: PathBuf,
        /// The possible reason and the remedy.
        why: &'static str,
    },
    /// Another process has it open.
    #[error("{} is in use by another process; unmount it or end that process first", .0.display())]
    InUse(PathBuf),
    /// It contains something else than a volume of Polder.
    #[error("{} is not a Polder volume: it contains {what}; name a volume, or make one elsewhere (polder mkfs)", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its contents, as far as they are known.
        what: String,
    },
    /// A volume is to be created where other data is.
    #[error("{} already contains {what}; use --force to overwrite it", path.display())]
    HoldsData {
        /// The file.
        path: PathBuf,
        /// Its contents, as far as they are known.
        what: String,
    },
    /// A later release created it.
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
    /// A later release created it with a feature that must be known to write it.
    #[error("{}: has features that this release can only read; open it for reading only (mount -o ro)", .0.display())]
    OnlyReadable(PathBuf),
    /// The end of the file is missing.
    #[error("{} is cut short: it has {found} of its {expected} bytes; restore the whole file", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// Its size when it was created.
        expected: u64,
    },
    /// No copy of the header can be read.
    #[error(
        "{}: a damaged Polder volume: no copy of its header can be read{}; {} reconstructs the header from the zones, \
         `polder salvage` saves the files",
        path.display(),
        what.as_ref().map(|what| format!(", and its start contains {what}")).unwrap_or_default(),
        repair_over(what)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What its start shows now, if that is known.
        what: Option<String>,
    },
    /// The start of a volume was overwritten.
    #[error(
        "{}: the start of the Polder volume {fs_id} was overwritten and contains {}; to keep the volume, {} restores its \
         header (`mount -o ro` and `polder salvage` only read)",
        path.display(),
        what.as_deref().unwrap_or("other data"),
        repair_over(what)
    )]
    Overwritten {
        /// The file.
        path: PathBuf,
        /// The volume whose end copy is left.
        fs_id: FsId,
        /// What the start shows now, if that is known.
        what: Option<String>,
    },
    /// No zone header of a zoned device can be read.
    #[error("{}: a damaged Polder volume: no zone's header can be read; restore the whole volume from a copy", .0.display())]
    DamagedZones(PathBuf),
    /// Neither a header nor zones were found.
    #[error("{}: neither a header nor zones of a Polder volume were found; name a volume", .0.display())]
    NoZones(PathBuf),
    /// The zones do not identify the volume with certainty.
    #[error("{}: the header cannot be reconstructed: {why}; save the files with `polder salvage`", path.display())]
    Uncertain {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The zones belong to several volumes.
    #[error(
        "{}: no header is left, and the zones belong to several Polder volumes, of which the newest cannot be determined: \
         {volumes}; select one with `polder salvage --volume ID`",
        path.display()
    )]
    Several {
        /// The file.
        path: PathBuf,
        /// The volumes and the number of zones found of each.
        volumes: String,
    },
    /// Fewer zones than a volume needs would fit.
    #[error(
        "{size} bytes are too few for {zones} zones; the smallest volume with this block and zone size has {smallest} bytes"
    )]
    TooSmall {
        /// The requested size in bytes.
        size: u64,
        /// The minimum number of zones.
        zones: u32,
        /// The bytes needed for them.
        smallest: u64,
    },
    /// The value of an option is not possible.
    #[error("{option} {value}: {why}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was asked for.
        value: u64,
        /// The reason.
        why: &'static str,
    },
    /// Polder cannot use the device.
    #[error("{} cannot be used: {why}", path.display())]
    Unsuitable {
        /// The device.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// An option that the device determines.
    #[error("{} has zones of its own; omit {option}", path.display())]
    GivenByDevice {
        /// The device.
        path: PathBuf,
        /// What was asked for.
        option: &'static str,
    },
    /// A member of a volume on several devices cannot be used.
    #[error("{}: {why}", path.display())]
    Member {
        /// The member.
        path: PathBuf,
        /// The reason and the remedy.
        why: String,
    },
    /// Members of a volume on several devices are missing.
    #[error("{}: {why}", path.display())]
    MembersMissing {
        /// The member that was named.
        path: PathBuf,
        /// Which are missing, and the remedy.
        why: String,
    },
    /// Devices cannot be members of one set.
    #[error("{0}")]
    Unfit(String),
    /// The host file system has no space for it.
    #[error("{}: its file system has no space for {size} bytes; free some space, or make the volume smaller", path.display())]
    HostFull {
        /// The file.
        path: PathBuf,
        /// The requested size in bytes.
        size: u64,
    },
    /// A volume in an object store cannot be made or opened.
    #[error("{why}")]
    ObjectStore {
        /// What kind of error it is.
        trouble: StoreTrouble,
        /// The store, the reason and the remedy.
        why: String,
    },
    /// The system refused an operation.
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

/// The kinds of errors of a volume in an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTrouble {
    /// There is no volume.
    Missing,
    /// There is a volume already, or something else.
    Exists,
    /// A process of another machine owns the volume.
    InUse,
    /// The store refuses the request: credentials, rights, a bucket that does not exist.
    Refused,
    /// The store could not be reached, or failed.
    Failed,
    /// An object is damaged or missing.
    Damaged,
    /// The store lacks a property that Polder needs.
    Unsuitable,
    /// The URL or an option is not possible.
    Impossible,
}

/// The command that repairs a volume with this start.
fn repair_over(what: &Option<String>) -> &'static str {
    match what {
        Some(_) => "`polder check --repair --force` overwrites that and",
        None => "`polder check --repair`",
    }
}

impl FileError {
    /// The error for a path to which the system denies access. Root has all rights of a user, so for root these
    /// errors have other causes.
    pub fn denied(path: &Path, error: &io::Error) -> Self {
        let found = std::fs::metadata(path).ok();
        let is_device = found.as_ref().is_some_and(|found| found.file_type().is_block_device());
        let why = match Errno::from_io_error(error) {
            Some(Errno::PERM) if is_device => {
                "the rules of a container may not permit the device (cgroup); permit it there, or run this outside"
            }
            Some(Errno::PERM) if found.is_some() => {
                "the file may not be changed (`lsattr` shows an i or a; `chattr -ia` removes that)"
            }
            _ if !rustix::process::geteuid().is_root() => return FileError::NoAccess(path.to_owned()),
            _ if found.is_some_and(|found| is_device && is_read_only(found.rdev())) => {
                return FileError::read_only(path);
            }
            _ => {
                "possible reasons are a mount with nodev, a file server that maps root to another user, or a security \
                 module (see `dmesg`); change that, or use another path"
            }
        };
        FileError::Forbidden { path: path.to_owned(), why }
    }

    /// The error for a read-only device that was opened for writing.
    pub(super) fn read_only(path: &Path) -> Self {
        let why = "the device is read-only; make it writable (`blockdev --setrw`), or mount it with -o ro"
            .to_owned();
        FileError::Unsuitable { path: path.to_owned(), why }
    }

    pub(crate) fn io(path: &Path, operation: &'static str, error: impl std::fmt::Display) -> Self {
        FileError::Io { path: path.to_owned(), operation, reason: error.to_string() }
    }
}

/// Whether a block device is read-only.
pub(super) fn is_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let flag = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    flag.is_ok_and(|flag| flag.trim() == "1")
}

impl From<FileError> for DeviceError {
    fn from(error: FileError) -> Self {
        DeviceError::Unusable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message told root to run the command as a user with access to the file.
    #[test]
    fn errors_for_root_do_not_suggest_another_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = |errno: Errno| FileError::denied(file.path(), &errno.into()).to_string();
        assert!(
            message(Errno::PERM).contains("even to root: the file may not be changed"),
            "{}",
            message(Errno::PERM)
        );
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(message(Errno::ACCESS).contains("as a user with access to it"), !is_root);
        assert_eq!(
            message(Errno::ACCESS).contains("even to root: possible reasons are a mount with nodev"),
            is_root
        );
    }
}
