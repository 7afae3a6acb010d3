//! One mount from its beginning to its end.
//!
//! The session ends when the mount does: detached by whoever may, or aborted. Nothing here decides
//! to end it; whoever wants it ended calls [`crate::mount::unmount`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Weak};

use fs::Fs;
use fuser::{Config, INodeNo, Notifier, Session, SessionACL};

use crate::access::AccessTimes;
use crate::mount::{self, MountEntry, MountError, MountOptions};
use crate::server::Server;
use crate::transport::{Errand, Transport};

/// Threads that answer requests. More than processors, because one that waits for the device or a flush
/// answers nobody else, and flushes are shared only among those that wait at the same time.
const THREADS_MIN: usize = 8;
const THREADS_MAX: usize = 32;

/// How far the kernel reads ahead, where we may say so.
const READ_AHEAD_KIB: &str = "1024";

/// A volume that is attached and waits for its requests to be answered.
pub struct Mounted {
    session: Session<Transport>,
    server: Arc<Server>,
    errands: Receiver<Errand>,
    entry: Option<MountEntry>,
}

impl Mounted {
    /// Attaches the volume at `directory`, which must be absolute and free of symbolic links.
    pub fn new(fs: Arc<Fs>, directory: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
        assert!(directory.is_absolute(), "the table of mounts has absolute paths");
        let device = mount::attach(directory, options)?;
        let entry = mount::entry_at(directory).ok().flatten();
        let access_times = AccessTimes::new(options.strict_access_times);
        let server = Arc::new(Server::new(fs, access_times));
        let (sender, errands) = mpsc::channel();
        let transport = Transport::new(Arc::clone(&server), sender);
        // Whom the kernel lets in is the kernel's decision: its own requests come as root.
        let shaken = Session::from_fd(transport, device, SessionACL::All, config());
        let session = shaken.map_err(|error| {
            detach_leftover(entry.as_ref());
            MountError::Handshake(error)
        })?;
        let mounted = Mounted { session, server, errands, entry };
        mounted.set_read_ahead();
        Ok(mounted)
    }

    /// Its line in the table of mounts, if the table could be read.
    pub fn entry(&self) -> Option<&MountEntry> {
        self.entry.as_ref()
    }

    /// The switch for times of access.
    pub fn access_times(&self) -> AccessTimes {
        self.server.access_times().clone()
    }

    /// The kernel's cache of this mount.
    pub fn kernel_cache(&self) -> KernelCache {
        KernelCache { server: Arc::downgrade(&self.server), notifier: self.session.notifier() }
    }

    /// Answers requests until the volume is detached and nothing of it is in use.
    pub fn serve(self) -> io::Result<()> {
        let Mounted { session, server, errands, entry } = self;
        let notifier = session.notifier();
        let runner = rt::thread::spawn("polder-errands", move || {
            for errand in errands {
                errand.run(&server, &notifier);
            }
        })?;
        let ended = session.run();
        detach_leftover(entry.as_ref());
        runner.join().map_err(|_| io::Error::other("the thread that runs errands panicked"))?;
        ended
    }

    /// Only root may; without it the kernel's 128 KiB stay.
    fn set_read_ahead(&self) {
        let Some(entry) = &self.entry else { return };
        let knob = PathBuf::from(format!("/sys/class/bdi/{}/read_ahead_kb", entry.device));
        if let Err(error) = std::fs::write(knob, READ_AHEAD_KIB) {
            tracing::debug!("the kernel's read-ahead stays as it is: {error}");
        }
    }
}

/// What the kernel holds of a mount, reached without a way through a directory.
pub struct KernelCache {
    /// Open files end with the session, not with us.
    server: Weak<Server>,
    notifier: Notifier,
}

impl KernelCache {
    /// Makes the kernel write back what it holds of the contents of all files that are open for writing, and waits
    /// until it has; others it has written back when they were closed. Never to be called by a thread that
    /// answers requests.
    ///
    /// Of what was on its way already kernels before 6.16 do not wait.
    pub fn write_back(&self) -> io::Result<()> {
        let Some(server) = self.server.upgrade() else { return Ok(()) };
        for inode in server.files_written() {
            match self.notifier.inval_inode(INodeNo(inode.0), 0, 0) {
                // The kernel has just begun to make it, or has just closed it, and holds nothing of it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                told => told?,
            }
            if server.is_short(inode) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.n_threads = Some((2 * rt::thread::processors()).clamp(THREADS_MIN, THREADS_MAX));
    config.clone_fd = mount::device_can_be_opened();
    config
}

/// A session that ended by an error leaves a mount that answers nobody.
fn detach_leftover(entry: Option<&MountEntry>) {
    let Some(entry) = entry else { return };
    if entry.is_in_sight().unwrap_or(false)
        && let Err(error) = mount::unmount_lazily(&entry.directory)
    {
        tracing::warn!("the mount cannot be detached: {error}");
    }
}
