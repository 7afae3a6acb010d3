//! A mount that is served from the process that uses the volume.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuse::mount::{unmount, unmount_lazily};
use fuse::{KernelCache, Memory, MountEntry, MountError, MountOptions, Mounted};
use rt::thread::{JoinHandle, Stop};
use rustix::io::Errno;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::shared::Shared;

/// How long an unmount waits for the end of the mount: this number of times the pause.
const END_TRIES: u32 = 100;
const END_PAUSE: Duration = Duration::from_millis(100);

/// A mount of an open volume: [`Volume::mount`](crate::Volume::mount). Dropping it ends the mount.
///
/// The mount keeps the volume open. [`Volume::close`](crate::Volume::close) is refused as long as the mount exists. A
/// mount that was detached while programs used it exists until they end.
#[must_use = "dropping it ends the mount"]
pub struct Mount {
    directory: PathBuf,
    /// Its line in the table of mounts, if the table could be read.
    entry: Option<MountEntry>,
    kernel: KernelCache,
    /// The mount has ended, and the thread is about to end.
    ended: Arc<Stop>,
    /// Nothing once the mount has ended.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Mount {
    pub(crate) fn new(access: &Access, directory: &Path) -> Result<Mount> {
        let directory = directory.canonicalize().map_err(|error| failed(directory, &error))?;
        let owned = access.owned().ok_or_else(|| {
            let reason = "another process owns the volume, and only that process can mount it".to_owned();
            Error::Mount { reason, errno: Errno::BUSY.raw_os_error() }
        })?;
        let shared = Arc::clone(owned);
        shared.begin_mount()?;
        let ended = Arc::new(Stop::default());
        let served = attach(&shared, &directory).and_then(|mounted| {
            let (entry, kernel) = (mounted.entry().cloned(), mounted.kernel_cache());
            let (serving, ending) = (Arc::clone(&shared), Arc::clone(&ended));
            shared.set_changes(mounted.changes());
            let serve = move || {
                let _ending = Ending { shared: serving, ended: ending };
                mounted.serve()
            };
            let thread =
                rt::thread::spawn("polder-mount", serve).map_err(|error| failed(&directory, &error))?;
            Ok((entry, kernel, thread))
        });
        let (entry, kernel, thread) = served.inspect_err(|_| shared.end_mount())?;
        Ok(Mount { directory, entry, kernel, ended, thread: Some(thread) })
    }

    /// The directory, without symbolic links.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends the mount. Returns when the kernel and all requests are done with it. The volume stays open.
    ///
    /// # Errors
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if a program uses the mount, also this one. The mount stays. The
    /// same if the mount exists, but not at its directory: it was moved, detached lazily or covered by another mount,
    /// or it was copied to another place, perhaps of another container.
    pub fn unmount(&mut self) -> Result<()> {
        self.detach()?;
        self.wait()
    }

    /// Unmounts it. Returns when it has ended or is about to end.
    fn detach(&self) -> Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        if self.is_at_directory() {
            match unmount(&self.directory) {
                Err(error) if self.kernel.is_attached() => return Err(failed(&self.directory, &error)),
                _ => {}
            }
        } else if self.kernel.is_attached() {
            return Err(self.is_elsewhere());
        }
        // A copy of the mount keeps it.
        match self.ends_soon() || !self.kernel.is_attached() {
            true => Ok(()),
            false => Err(self.is_elsewhere()),
        }
    }

    fn ends_soon(&self) -> bool {
        (0..END_TRIES).any(|_| self.ended.wait(END_PAUSE))
    }

    fn is_elsewhere(&self) -> Error {
        let reason =
            format!("{}: the mount is attached elsewhere or in use by a program", self.directory.display());
        Error::Mount { reason, errno: Errno::BUSY.raw_os_error() }
    }

    /// Another program may have unmounted it, and mounted something else there.
    fn is_at_directory(&self) -> bool {
        self.kernel.is_attached() && self.entry.as_ref().is_none_or(MountEntry::is_reachable)
    }

    /// Waits until the mount has ended, because [`Mount::unmount`] or another program has unmounted it.
    ///
    /// # Errors
    /// The connection to the kernel failed.
    pub fn wait(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let served =
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount panicked")));
        served.map_err(|error| failed(&self.directory, &error))
    }
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Mount").field(&self.directory).finish()
    }
}

impl Drop for Mount {
    /// A mount in use is detached from its directory now. It ends when no program uses it any more, or with this
    /// process.
    fn drop(&mut self) {
        let Err(error) = self.detach() else {
            // Otherwise requests in progress take long, and the thread goes on alone.
            if self.ends_soon()
                && let Err(error) = self.wait()
            {
                tracing::error!("{error}");
            }
            return;
        };
        if error.kind() != io::ErrorKind::ResourceBusy {
            tracing::error!("{error}");
        }
        if self.is_at_directory()
            && let Err(error) = unmount_lazily(&self.directory)
        {
            tracing::error!("{}: the mount cannot be detached: {error}", self.directory.display());
        }
        if self.kernel.is_attached() {
            tracing::info!("{}: the mount ends when no program uses it any more", self.directory.display());
        }
    }
}

/// Notes that the mount has ended, even by a panic.
struct Ending {
    shared: Arc<Owned>,
    ended: Arc<Stop>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.end_mount();
        self.ended.stop();
    }
}

fn attach(shared: &Shared, directory: &Path) -> Result<Mounted> {
    let fs = shared.operation()?.fs();
    let path = shared.path();
    let options = MountOptions {
        source: path.canonicalize().unwrap_or_else(|_| path.to_owned()).into(),
        read_only: fs.is_read_only(),
        allow_other: rustix::process::geteuid().is_root(),
        uncached: true,
        is_of_library: true,
        ..MountOptions::default()
    };
    // The cache belongs to the volume.
    let Memory { write_queue_bytes, .. } = Memory::divide(0);
    Mounted::new(fs, directory, &options, write_queue_bytes).map_err(|error| {
        let errno = match &error {
            MountError::NoDevice(error) | MountError::Refused { error, .. } => error.raw_os_error(),
            MountError::NoHelper => Some(Errno::NOENT.raw_os_error()),
            MountError::Helper(_) => Some(Errno::PERM.raw_os_error()),
            MountError::Handshake(_) => Some(Errno::PROTO.raw_os_error()),
        };
        Error::Mount { reason: error.to_string(), errno: errno.unwrap_or(Errno::IO.raw_os_error()) }
    })
}

fn failed(directory: &Path, error: &io::Error) -> Error {
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    Error::Mount { reason: format!("{}: {error}", directory.display()), errno }
}
