//! A directory of a mounted file system.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use rt::thread::Stop;
use rt::{Clock, SystemClock};
use rustix::fs::OFlags;

use super::{Place, Refused};

/// Directories that the files are spread over.
const DIRECTORIES: u32 = 8;
/// Time limit for freeing deleted files, and the interval of checks.
const REGAIN_NS_MAX: u64 = 60_000_000_000;
const LOOK: Duration = Duration::from_millis(20);

/// A directory that only this run uses.
pub struct Directory {
    path: PathBuf,
    /// Returns the available space.
    available: Ask<u64>,
    /// Verifies the file system.
    verify: Ask<()>,
    /// Whether reads bypass the kernel's cache.
    direct: bool,
}

/// A query to the file system.
pub type Ask<T> = Box<dyn Fn() -> Result<T, String> + Send>;

impl Directory {
    /// Uses this empty directory. `available` returns the available space of its file system, `verify` verifies it.
    pub fn new(path: PathBuf, available: Ask<u64>, verify: Ask<()>) -> std::io::Result<Self> {
        for number in 0..DIRECTORIES {
            std::fs::create_dir(path.join(format!("d{number}")))?;
        }
        Ok(Directory { path, available, verify, direct: false })
    }

    fn file(&self, file: u32) -> PathBuf {
        self.path.join(format!("d{}/f{file}", file % DIRECTORIES))
    }

    /// Opens a file with direct I/O, for reading only.
    fn open_direct(&self, file: u32) -> Result<File, Refused> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        Ok(OpenOptions::new().read(true).custom_flags(direct).open(self.file(file))?)
    }

    fn open(&self, file: u32) -> Result<File, Refused> {
        Ok(OpenOptions::new().read(true).write(true).open(self.file(file))?)
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == ErrorKind::StorageFull {
            Refused::NoSpace
        } else {
            Refused::Other(error.to_string())
        }
    }
}

impl Place for Directory {
    fn create(&mut self, file: u32) -> Result<(), Refused> {
        File::create_new(self.file(file))?;
        Ok(())
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let opened = self.open(file)?;
        let written = opened.write_all_at(bytes, offset);
        // `close` writes back. If that fails, a mount makes the kernel drop the inode, and with it the error: an
        // `fsync` through a handle that is opened later succeeds.
        let closed = nix::unistd::close(opened);
        Ok(written.and_then(|()| Ok(closed?))?)
    }

    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused> {
        Ok(self.open(file)?.set_len(size)?)
    }

    fn remove(&mut self, file: u32) -> Result<(), Refused> {
        Ok(std::fs::remove_file(self.file(file))?)
    }

    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
        let opened = if self.direct { self.open_direct(file)? } else { self.open(file)? };
        let size = opened.metadata()?.len();
        let mut done = 0;
        while done < into.len() {
            match opened.read_at(&mut into[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        Ok((size, done))
    }

    fn fsync(&mut self, file: u32) -> Result<(), Refused> {
        Ok(self.open(file)?.sync_all()?)
    }

    fn verify(&mut self) -> Result<(), Refused> {
        self.direct = true;
        (self.verify)().map_err(Refused::Other)
    }

    fn available(&mut self) -> Result<u64, Refused> {
        (self.available)().map_err(Refused::Other)
    }

    fn regain(&mut self, bytes: u64) -> Result<u64, Refused> {
        File::open(&self.path)?.sync_all()?;
        let clock = SystemClock::new();
        let until_ns = clock.monotonic_ns() + REGAIN_NS_MAX;
        loop {
            let available = self.available()?;
            if available >= bytes || Stop::default().wait(LOOK) || clock.monotonic_ns() > until_ns {
                return Ok(available);
            }
        }
    }
}
