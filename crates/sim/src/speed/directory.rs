//! A directory of any mounted file system, through system calls.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::{Bytes, Place, Result};

/// A directory that only this run uses.
pub struct Directory {
    fd: OwnedFd,
    /// Whether files are opened with direct I/O.
    direct: bool,
}

impl Directory {
    /// Opens an existing directory.
    pub fn open(path: &Path, direct: bool) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| format!("{}: {errno}", path.display()))?;
        Ok(Directory { fd, direct })
    }

    fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::openat(&self.fd, path, flags | OFlags::CLOEXEC, mode)
            .map_err(|errno| failure(path, errno))
    }
}

fn failure(path: &str, error: impl std::fmt::Display) -> String {
    format!("{path}: {error}")
}

impl Place for Directory {
    fn make_directory(&self, name: &str) -> Result<()> {
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)).map_err(|errno| failure(name, errno))
    }

    fn create(&self, path: &str, content: &[u8]) -> Result<()> {
        let file = self.open_at(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        match rustix::io::write(&file, content) {
            Ok(written) if written == content.len() => Ok(()),
            Ok(written) => Err(format!("{path}: only {written} bytes were written")),
            Err(errno) => Err(failure(path, errno)),
        }
    }

    fn lookup(&self, path: &str) -> Result<u64> {
        let stat = rustix::fs::statat(&self.fd, path, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| stat.st_size as u64).map_err(|errno| failure(path, errno))
    }

    fn list(&self, directory: &str) -> Result<u64> {
        let fd = self.open_at(directory, OFlags::DIRECTORY | OFlags::RDONLY)?;
        let mut entries = 0;
        for entry in Dir::new(fd).map_err(|errno| failure(directory, errno))? {
            let entry = entry.map_err(|errno| failure(directory, errno))?;
            entries += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        Ok(entries)
    }

    fn remove(&self, path: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.fd, path, AtFlags::empty()).map_err(|errno| failure(path, errno))
    }

    fn open(&self, path: &str) -> Result<Box<dyn Bytes>> {
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let fd = self.open_at(path, OFlags::CREATE | OFlags::RDWR | direct)?;
        Ok(Box::new(Opened(File::from(fd))))
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.fd).map_err(|errno| failure("syncfs", errno))?;
        // A FUSE server gets no syncfs request, but it gets the fsync of a directory.
        rustix::fs::fsync(&self.fd).map_err(|errno| failure("fsync", errno))
    }
}

/// A file opened by a system call.
pub(super) struct Opened(pub(super) File);

impl Bytes for Opened {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.0.read_exact_at(into, offset).map_err(|error| failure("reading", error))
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.0.write_all_at(from, offset).map_err(|error| failure("writing", error))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync_data().map_err(|error| failure("fdatasync", error))
    }
}
