//! Errors of the file system as error numbers.

use fs::FsError;
use rustix::io::Errno;

/// The error number for the kernel. Logs unexpected errors.
pub(crate) fn errno(error: &FsError) -> Errno {
    if let FsError::Io(why) = error {
        tracing::warn!("an operation failed: {why}");
    }
    Errno::from_raw_os_error(error.errno())
}
