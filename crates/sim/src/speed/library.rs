//! The library on a volume in a file, with its background threads, like in a program that links it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use fs::{Caller, Fs, FsError, Handle, InodeNo, MountOptions, OpenFlags};
use rt::SystemClock;
use rt::sync::Mutex;
use zone::Cause;
use zone::file::{FileDevice, OpenMode};

use super::{Bytes, Place, Result};

const READING: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, sync: false };
const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// How long changes may stay volatile: the default interval of the command.
const COMMIT_INTERVAL_NS: u64 = 5_000_000_000;

/// A volume that this process has opened.
pub struct Library {
    fs: Arc<Fs>,
    user: Caller,
    /// Directories of the first level, by name.
    directories: Mutex<HashMap<String, InodeNo>>,
}

impl Library {
    /// Opens a volume that already exists.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<Self> {
        let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let device = FileDevice::open(path, OpenMode::ReadWrite).map_err(|error| failure(&error))?;
        let options = MountOptions {
            cache_bytes,
            read_only: false,
            commit_interval_ns: COMMIT_INTERVAL_NS,
            clock: Arc::new(SystemClock::new()),
        };
        let (fs, _) = Fs::mount(Arc::new(device), options).map_err(|error| failure(&error))?;
        fs.start().map_err(|error| failure(&error))?;
        Ok(Library { fs, user: Caller::root(), directories: Mutex::default() })
    }

    /// The directory of a path, and the name in that directory.
    fn place<'a>(&self, path: &'a str) -> Result<(InodeNo, &'a [u8])> {
        match path.split_once('/') {
            Some((directory, name)) => Ok((self.directory(directory)?, name.as_bytes())),
            None => Ok((InodeNo::ROOT, path.as_bytes())),
        }
    }

    fn directory(&self, name: &str) -> Result<InodeNo> {
        let mut directories = self.directories.lock();
        if let Some(&inode) = directories.get(name) {
            return Ok(inode);
        }
        let found = self
            .fs
            .lookup(&self.user, InodeNo::ROOT, name.as_bytes())
            .map_err(|error| failure(name, error))?;
        directories.insert(name.to_owned(), found.inode);
        Ok(found.inode)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Err(error) = self.fs.unmount() {
            eprintln!("a volume could not be unmounted: {error}");
        }
    }
}

fn failure(path: &str, error: FsError) -> String {
    format!("{path}: {error}")
}

impl Place for Library {
    fn make_directory(&self, name: &str) -> Result<()> {
        let made = self.fs.make_directory(&self.user, InodeNo::ROOT, name.as_bytes(), 0o755);
        made.map(drop).map_err(|error| failure(name, error))
    }

    fn create(&self, path: &str, content: &[u8]) -> Result<()> {
        let (directory, name) = self.place(path)?;
        let made = self.fs.create(&self.user, directory, name, 0o644, WRITING, true);
        let (_, handle) = made.map_err(|error| failure(path, error))?;
        match self.fs.write(&handle, 0, content) {
            Ok(written) if written == content.len() => Ok(()),
            Ok(written) => Err(format!("{path}: only {written} bytes were written")),
            Err(error) => Err(failure(path, error)),
        }
    }

    fn lookup(&self, path: &str) -> Result<u64> {
        let (directory, name) = self.place(path)?;
        let found = self.fs.lookup(&self.user, directory, name);
        found.map(|attributes| attributes.size).map_err(|error| failure(path, error))
    }

    fn list(&self, directory: &str) -> Result<u64> {
        let inode = self.directory(directory)?;
        let handle = self.fs.open(&self.user, inode, READING).map_err(|error| failure(directory, error))?;
        let mut entries = 0;
        let listed = self.fs.read_directory(&handle, 0, &mut |entry| {
            entries += u64::from(!matches!(&entry.name[..], b"." | b".."));
            true
        });
        listed.map(|()| entries).map_err(|error| failure(directory, error))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let (directory, name) = self.place(path)?;
        self.fs.unlink(&self.user, directory, name).map_err(|error| failure(path, error))
    }

    fn open(&self, path: &str) -> Result<Box<dyn Bytes>> {
        let (directory, name) = self.place(path)?;
        let opened = self.fs.create(&self.user, directory, name, 0o644, WRITING, false);
        let (_, handle) = opened.map_err(|error| failure(path, error))?;
        Ok(Box::new(Opened { fs: Arc::clone(&self.fs), handle }))
    }

    fn sync(&self) -> Result<()> {
        self.fs.sync().map_err(|error| failure("sync", error))
    }

    fn metadata_bytes(&self) -> Option<u64> {
        let traffic = self.fs.store().traffic();
        let causes = [Cause::Journal, Cause::Checkpoint, Cause::MetadataGc];
        Some(causes.iter().map(|&cause| traffic.bytes_written(cause)).sum())
    }

    fn live_metadata_bytes(&self) -> Option<u64> {
        Some(self.fs.extents().budget().space().metadata)
    }

    fn statistics(&self) -> Option<String> {
        let stats = self.fs.store().stats();
        Some(format!(
            "{} commits, {} batches of the log, {} checkpoints; nodes: {} read, {} written, {} cleaned; changes \
             of leaves: {} written, {} cleaned; {} of {} \
             pages cached",
            stats.commits,
            stats.log_batches,
            stats.checkpoints,
            stats.nodes_read,
            stats.nodes_written,
            stats.nodes_moved,
            stats.deltas_written,
            stats.deltas_moved,
            stats.pages_cached,
            stats.pages_cached_max,
        ))
    }
}

/// A file of the volume.
struct Opened {
    fs: Arc<Fs>,
    handle: Handle,
}

impl Bytes for Opened {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        match self.fs.read(&self.handle, offset, into) {
            Ok(read) if read == into.len() => Ok(()),
            Ok(read) => Err(format!("reading: only {read} bytes are there")),
            Err(error) => Err(failure("reading", error)),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        match self.fs.write(&self.handle, offset, from) {
            Ok(written) if written == from.len() => Ok(()),
            Ok(written) => Err(format!("writing: only {written} bytes were written")),
            Err(error) => Err(failure("writing", error)),
        }
    }

    fn sync(&self) -> Result<()> {
        self.fs.fsync(&self.handle, true).map_err(|error| failure("fsync", error))
    }
}
