//! The control sockets by which commands find daemons. They are in a directory that only their user can access.
//!
//! | name | leads to |
//! |---|---|
//! | `ID.sock` | the daemon of the volume with this ID. If there are several readers, the first of them |
//! | `ID.MAJOR:MINOR.sock` | the daemon of the mount with this device number |
//!
//! The second name does not depend on paths: a mount keeps its device number when it is moved or bind-mounted, and when
//! the volume's file is moved, deleted or hidden. The number is reused after the mount has ended, so the next mount with
//! this number removes the names that an earlier mount has left.
//!
//! A killed daemon leaves its names behind. No process listens on them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use polder::runtime;
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zone::FsId;

const ENDING: &str = ".sock";

/// The longest time that a daemon may take to answer, or another process may keep the directory locked.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// The directory of sockets of the user that this process runs as.
#[derive(Clone)]
pub(crate) struct Registry(PathBuf);

/// A name on which this process listens. It is removed when this is dropped, unless another process has taken it.
pub(crate) struct Name {
    listener: UnixListener,
    registry: Registry,
    path: PathBuf,
    /// Device and inode number of the socket.
    socket: (u64, u64),
}

/// The result of an attempt to connect.
pub(crate) enum Connected {
    Stream(UnixStream),
    /// The process exists but accepts no connections: its queue of connections is full.
    Crowded,
    /// The name exists, and no process listens on it.
    Refused,
    /// The name does not exist, or cannot be trusted.
    Missing,
}

impl Registry {
    /// The directory that the environment selects. The path is absolute, so that a process can change its working
    /// directory.
    pub(crate) fn of_user() -> Registry {
        Registry(runtime::directory())
    }

    #[cfg(test)]
    pub(crate) fn in_directory(directory: PathBuf) -> Registry {
        Registry(directory)
    }

    pub(crate) fn of_volume(&self, fs_id: FsId) -> PathBuf {
        self.0.join(format!("{fs_id}{ENDING}"))
    }

    pub(crate) fn of_mount(&self, fs_id: FsId, device: &str) -> PathBuf {
        self.0.join(format!("{fs_id}{}", ending_of(device)))
    }

    /// The names of all daemons that may hold a volume with this ID.
    pub(crate) fn all_of_volume(&self, fs_id: FsId) -> Vec<PathBuf> {
        let beginning = format!("{fs_id}.");
        let mut found = self.find(|name| name.starts_with(&beginning));
        // The volume's own name comes first.
        found.sort_by_key(|path| path.as_os_str().len());
        found
    }

    /// The names of all daemons that may have the mount with this device number.
    pub(crate) fn all_of_mount(&self, device: &str) -> Vec<PathBuf> {
        let ending = ending_of(device);
        self.find(|name| name.ends_with(&ending))
    }

    fn find(&self, matches: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let is_found = |path: &PathBuf| {
            path.file_name()
                .and_then(OsStr::to_str)
                .is_some_and(|name| name.ends_with(ENDING) && matches(name))
        };
        entries.map(|entry| entry.path()).filter(is_found).collect()
    }

    /// Creates and locks the directory. No other process can take names in it until the returned file is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        let shown = || self.0.display().to_string();
        runtime::make(&self.0)?;
        let directory = File::open(&self.0).with_context(shown)?;
        let clock = SystemClock::new();
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if clock.monotonic_ns() < PATIENCE.as_nanos() as u64 => {}
                Err(Errno::WOULDBLOCK) => {
                    bail!(
                        "{}: another process has locked it (`fuser -v` names it); end that process",
                        shown()
                    )
                }
                locked => return locked.map(|()| directory).with_context(shown),
            }
            Stop::default().wait(PAUSE);
        }
    }

    /// Takes a name, even if another process has it. The caller holds the [lock](Registry::lock).
    pub(crate) fn listen(&self, path: &Path) -> Result<Name> {
        let _ = std::fs::remove_file(path);
        // The umask determines the permissions of a socket.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound.with_context(|| path.display().to_string())?;
        let socket = identity(path).with_context(|| path.display().to_string())?;
        Ok(Name { listener, registry: self.clone(), path: path.to_owned(), socket })
    }

    /// Takes the name of a new mount. Removes the names that earlier mounts with its number have left, and the names of
    /// killed daemons of the volume.
    pub(crate) fn listen_for_mount(&self, fs_id: FsId, device: &str) -> Result<Name> {
        let _alone = self.lock()?;
        for old in self.all_of_mount(device) {
            let _ = std::fs::remove_file(old);
        }
        self.remove_unused(self.all_of_volume(fs_id));
        self.listen(&self.of_mount(fs_id, device))
    }

    /// Removes the names of a mount whose daemon has ended.
    pub(crate) fn forget_mount(&self, device: &str) {
        let Ok(_alone) = self.lock() else { return };
        self.remove_unused(self.all_of_mount(device));
    }

    /// Removes those of these names at which no process listens. The caller holds the [lock](Registry::lock).
    fn remove_unused(&self, names: Vec<PathBuf>) {
        for name in names {
            if matches!(self.connect(&name), Connected::Refused) {
                let _ = std::fs::remove_file(name);
            }
        }
    }

    /// Connects only to a process of this user, in a directory in which no other user can create names, because another
    /// user could give false answers. Each answer may take [`PATIENCE`].
    pub(crate) fn connect(&self, path: &Path) -> Connected {
        if let Err(error) = runtime::check(&self.0) {
            tracing::debug!("{error}");
            return Connected::Missing;
        }
        let clock = SystemClock::new();
        loop {
            match connect(path) {
                Ok(stream) if is_own(&stream) => return Connected::Stream(stream),
                Ok(_) => return Connected::Missing,
                Err(Errno::AGAIN) if clock.monotonic_ns() < PATIENCE.as_nanos() as u64 => {}
                Err(Errno::AGAIN) => return Connected::Crowded,
                Err(Errno::CONNREFUSED) => return Connected::Refused,
                Err(error) => {
                    tracing::debug!("{}: {error}", path.display());
                    return Connected::Missing;
                }
            }
            Stop::default().wait(PAUSE);
        }
    }
}

impl Name {
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let Ok(_alone) = self.registry.lock() else { return };
        if identity(&self.path).is_ok_and(|socket| socket == self.socket) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Connects without waiting. A blocking `connect` would wait if no process accepts connections.
fn connect(path: &Path) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    let ready = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    ready.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(stream)
}

fn ending_of(device: &str) -> String {
    format!(".{device}{ENDING}")
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

/// Whether the process at the other end runs as this user.
fn is_own(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ID: FsId = FsId([7; 16]);

    fn registry(place: &tempfile::TempDir) -> Registry {
        Registry(place.path().join("own"))
    }

    /// For a user without a runtime directory, the sockets are in /tmp. Another user that had created this directory first
    /// could answer for the volumes, for example that all data are durable.
    #[test]
    fn a_directory_of_another_user_is_not_trusted() {
        let place = tempfile::tempdir().unwrap();
        let own = registry(&place);
        let linked = Registry(place.path().join("linked"));
        runtime::make(&own.0).unwrap();
        let path = own.of_volume(ID);
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(own.connect(&path), Connected::Stream(_)));
        for (mode, is_trusted) in [(0o1777, false), (0o775, false), (0o755, true)] {
            std::fs::set_permissions(&own.0, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(matches!(own.connect(&path), Connected::Stream(_)), is_trusted, "{mode:o}");
            assert_eq!(runtime::make(&own.0).is_ok(), is_trusted, "{mode:o}");
        }
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can give a directory away");
        }
        std::os::unix::fs::symlink(&own.0, &linked.0).unwrap();
        std::os::unix::fs::lchown(&linked.0, Some(65534), None).unwrap();
        assert!(matches!(linked.connect(&linked.of_volume(ID)), Connected::Missing));
        std::os::unix::fs::chown(&own.0, Some(65534), None).unwrap();
        assert!(matches!(own.connect(&path), Connected::Missing));
        assert!(runtime::make(&own.0).unwrap_err().to_string().contains("belongs to another user"));
    }

    #[test]
    fn connecting_reports_whether_a_process_listens() {
        let place = tempfile::tempdir().unwrap();
        let own = registry(&place);
        let path = own.of_mount(ID, "0:57");
        assert!(matches!(own.connect(&path), Connected::Missing));
        runtime::make(&own.0).unwrap();
        // A killed process leaves its name.
        drop(UnixListener::bind(&path).unwrap());
        assert!(matches!(own.connect(&path), Connected::Refused));
        own.forget_mount("0:57");
        assert!(matches!(own.connect(&path), Connected::Missing));
        // Connecting does not wait for a process that accepts no connections.
        let _crowded = own.listen(&path).unwrap();
        let waiting: Vec<_> = (0..).map(|_| connect(&path)).take_while(Result::is_ok).collect();
        assert!(!waiting.is_empty() && matches!(connect(&path), Err(Errno::AGAIN)));
    }

    /// Each killed daemon left a name that was removed only when the kernel gave its number to another mount.
    #[test]
    fn a_mount_removes_the_names_of_killed_daemons_of_its_volume() {
        let place = tempfile::tempdir().unwrap();
        let own = registry(&place);
        runtime::make(&own.0).unwrap();
        let (killed, other) = (own.of_mount(ID, "0:57"), own.of_mount(FsId([8; 16]), "0:58"));
        drop(UnixListener::bind(&killed).unwrap());
        drop(UnixListener::bind(&other).unwrap());
        let reader = own.listen_for_mount(ID, "0:59").unwrap();
        let mount = own.listen_for_mount(ID, "0:60").unwrap();
        assert_eq!(own.all_of_volume(ID).len(), 2, "the reader and the new mount have names");
        assert!(!killed.exists() && other.exists(), "names of other volumes are left alone");
        drop((reader, mount));
    }

    /// The kernel gives a device number to another mount while the daemon of the first still closes its volume.
    #[test]
    fn a_mount_replaces_the_name_of_an_earlier_mount_and_keeps_it() {
        let place = tempfile::tempdir().unwrap();
        let own = registry(&place);
        let first = own.listen_for_mount(ID, "0:57").unwrap();
        let other = own.listen_for_mount(FsId([8; 16]), "0:5").unwrap();
        let second = own.listen_for_mount(ID, "0:57").unwrap();
        assert_eq!(own.all_of_mount("0:57"), [own.of_mount(ID, "0:57")]);
        drop(first);
        assert!(
            matches!(own.connect(&own.of_mount(ID, "0:57")), Connected::Stream(_)),
            "the name is the second mount's"
        );
        let volume = own.listen(&own.of_volume(ID)).unwrap();
        assert_eq!(own.all_of_volume(ID), [own.of_volume(ID), own.of_mount(ID, "0:57")]);
        drop((second, other, volume));
        assert_eq!(std::fs::read_dir(&own.0).unwrap().count(), 0);
    }
}
