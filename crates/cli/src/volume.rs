//! Finding and opening volumes that are named on the command line.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fs::{Fs, FsError, MountOptions};
use fuse::MountEntry;
use fuse::mount::entry_at;
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use zone::file::{FileContents, FileError, OpenMode};
use zone::{Device, FsId, Medium};

use crate::control::Client;
use crate::progress;

/// The cache of a volume that is opened for one look.
const LOOK_CACHE_BYTES: u64 = 64 << 20;
const COMMIT_INTERVAL_NS: u64 = 5_000_000_000;

/// How long a volume may stay locked without being in use, and how often to look.
const LOCK_PATIENCE_NS: u64 = 500_000_000;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// A volume that can be asked.
pub(crate) enum Volume {
    /// A daemon has it.
    Served(Client),
    /// Nobody has it; opened by this process, for reading only unless it was asked for otherwise.
    Opened(Box<Opened>),
}

/// A volume that this process has open.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) fs: Arc<Fs>,
    /// What was done, in memory, to open it.
    pub(crate) recovery: tree::Recovery,
}

/// A path of a volume and where the volume is mounted, if the command line named a mount point.
struct Found {
    path: PathBuf,
    directory: Option<PathBuf>,
}

impl Volume {
    /// Finds the volume by its own path or by the directory that it is mounted on.
    pub(crate) fn find(named: &Path) -> Result<Volume> {
        Self::find_or_open(named, OpenMode::ReadOnly)
    }

    /// The same, and opens one that nobody has for writing: close it with [`Opened::close`].
    pub(crate) fn find_to_change(named: &Path) -> Result<Volume> {
        Self::find_or_open(named, OpenMode::ReadWrite)
    }

    fn find_or_open(named: &Path, mode: OpenMode) -> Result<Volume> {
        let found = locate(named)?;
        if let Some((client, served)) = daemon_with(&found.path)? {
            if is_same(&served, &found.path) {
                return Ok(Volume::Served(client));
            }
            return open_beside(client, &served, &found.path, mode);
        }
        if let Some(directory) = found.directory.filter(|directory| !fuse::mount::is_dead(directory)) {
            bail!(cannot_be_asked(&directory));
        }
        open(&found.path, mode).map(|opened| Volume::Opened(Box::new(opened)))
    }
}

/// The daemon that has a volume with the id of this one, and the path that it has it from. One that is closing
/// its volume, as after `umount`, is waited for.
fn daemon_with(path: &Path) -> Result<Option<(Client, PathBuf)>> {
    let Some(mut client) = id_of(path)?.and_then(Client::connect) else { return Ok(None) };
    let Some((info, daemon)) = client.introduce()? else { return Ok(None) };
    if !info.closing {
        return Ok(Some((client, info.path.0)));
    }
    if let Some(daemon) = daemon {
        let bar = progress::waiting("the last mount of this volume is being closed");
        let ended = daemon.wait();
        bar.finish_and_clear();
        ended?;
    }
    Ok(None)
}

/// Waits until a volume that was just unmounted is closed. Whatever else keeps it from being opened, whoever opens it
/// is told.
pub(crate) fn let_close(path: &Path) {
    drop(daemon_with(path));
}

/// Whether two paths lead to the same file or device.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let what = |path: &Path| {
        let about = std::fs::metadata(path).ok()?;
        let is_device = about.file_type().is_block_device() || about.file_type().is_char_device();
        Some(if is_device { (is_device, about.rdev(), 0) } else { (is_device, about.dev(), about.ino()) })
    };
    one == other || what(one).is_some_and(|one| what(other) == Some(one))
}

/// A volume with the id of one that a daemon has from another path: a copy of that, or the same by another name.
/// The lock tells which, unless the other name has locks of its own; so it is opened to look and not to change.
fn open_beside(client: Client, served: &Path, path: &Path, mode: OpenMode) -> Result<Volume> {
    match open_device(path, OpenMode::ReadOnly) {
        Err(FileError::InUse(_)) => return Ok(Volume::Served(client)),
        opened => drop(opened?),
    }
    if mode == OpenMode::ReadWrite {
        bail!(
            "{}: a volume with the same id is mounted from {}; unmount it first (is this one a copy of it?)",
            path.display(),
            served.display()
        );
    }
    open(path, mode).map(|opened| Volume::Opened(Box::new(opened)))
}

impl Opened {
    /// Makes everything durable and closes the volume, so that the next mount has nothing to replay.
    pub(crate) fn close(&self) -> Result<()> {
        self.fs.unmount().with_context(|| self.path.display().to_string())
    }
}

/// Whether a path is that of a volume, mounted or not. Refused where that cannot be told, because it may not be read.
pub(crate) fn is_volume(path: &Path) -> Result<bool, FileError> {
    match Medium::probe(path) {
        Err(error @ (FileError::NoAccess(_) | FileError::Forbidden { .. })) => Err(error),
        probed => Ok(matches!(probed, Ok(FileContents::Volume { .. }))),
    }
}

/// The daemon of a mount.
pub(crate) fn daemon_of(entry: &MountEntry) -> Result<Client> {
    let client = id_of(&entry.source)?.and_then(Client::connect);
    client.with_context(|| cannot_be_asked(&entry.directory))
}

fn cannot_be_asked(directory: &Path) -> String {
    let directory = directory.display();
    format!("{directory}: its daemon cannot be asked; if another user has mounted it, ask as that user")
}

/// Opens a volume, which may just have lost its daemon.
///
/// What a killed process had handed to the kernel goes on until it is done, and holds the lock for as long:
/// rightly, since it may still write. That takes milliseconds. A daemon that is closing the volume takes as long as
/// its last writes do, and one that lives longer.
pub(crate) fn open_device(path: &Path, mode: OpenMode) -> Result<Medium, FileError> {
    match open_when_free(path, mode, patience()) {
        Err(FileError::InUse(_)) if matches!(daemon_with(path), Ok(None)) => {
            open_when_free(path, mode, patience())
        }
        opened => opened,
    }
}

/// To be asked between looks whether a lock is free: waits a little, then says whether to look again.
pub(crate) fn patience() -> impl FnMut() -> bool {
    let clock = SystemClock::new();
    move || !Stop::default().wait(LOCK_PAUSE) && clock.monotonic_ns() < LOCK_PATIENCE_NS
}

/// Opens a volume; as long as it is in use and `wait` says so, tries again.
fn open_when_free(path: &Path, mode: OpenMode, mut wait: impl FnMut() -> bool) -> Result<Medium, FileError> {
    loop {
        match Medium::open(path, mode) {
            Err(FileError::InUse(_)) if wait() => {}
            opened => return opened,
        }
    }
}

/// Opens a volume that is not in use, without changing anything on it.
pub(crate) fn open_to_look(path: &Path) -> Result<Opened> {
    open(path, OpenMode::ReadOnly)
}

fn open(path: &Path, mode: OpenMode) -> Result<Opened> {
    let options = mount_options(mode == OpenMode::ReadOnly, LOOK_CACHE_BYTES, None);
    let device: Arc<dyn Device> = open_device(path, mode)?.into_device();
    let (fs, recovery) = mount_fs(path, device, options)?;
    Ok(Opened { path: path.to_owned(), fs, recovery })
}

/// Closes a volume whose daemon did not: recovers it and writes that down. Returns how many records were
/// replayed.
pub(crate) fn close_properly(path: &Path) -> Result<u64> {
    let opened = open(path, OpenMode::ReadWrite)?;
    opened.close()?;
    Ok(opened.recovery.records)
}

/// Recovers a volume, repairs what can be, and closes it.
pub(crate) fn repair_once(path: &Path) -> Result<fs::Repaired> {
    let device: Arc<dyn Device> = open_device(path, OpenMode::ReadWrite)?.into_device();
    let (fs, _) = mount_fs(path, device, mount_options(false, LOOK_CACHE_BYTES, None))?;
    let repaired = fs.repair()?;
    if !repaired.repaired.is_empty() {
        fs.unmount()?;
    }
    Ok(repaired)
}

/// Recovers the volume on a device; errors name the path.
pub(crate) fn mount_fs(
    path: &Path,
    device: Arc<dyn Device>,
    options: MountOptions,
) -> Result<(Arc<Fs>, tree::Recovery)> {
    let bar = progress::waiting("opening the volume");
    let mounted = Fs::mount(device, options);
    bar.finish_and_clear();
    mounted.map_err(with_help).with_context(|| path.display().to_string())
}

/// Where nothing is said of what helps: what cannot be read may be read again another time, or never.
fn with_help(error: FsError) -> anyhow::Error {
    match error {
        FsError::Io(said) if !said.contains("`polder ") => {
            anyhow!("{said}; if it stays so, `polder salvage` saves what it finds")
        }
        error => error.into(),
    }
}

pub(crate) fn mount_options(
    read_only: bool,
    cache_bytes: u64,
    commit_interval_ns: Option<u64>,
) -> MountOptions {
    let commit_interval_ns = commit_interval_ns.unwrap_or(COMMIT_INTERVAL_NS);
    MountOptions { cache_bytes, read_only, commit_interval_ns, clock: Arc::new(rt::SystemClock::new()) }
}

/// The absolute path of a volume, free of symbolic links.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => zone::medium::missing(path).into(),
        io::ErrorKind::PermissionDenied => FileError::denied(path, &error).into(),
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    })
}

/// The absolute path of a directory that may be the root of a mount whose daemon is gone.
pub(crate) fn resolve_directory(directory: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(directory) {
        Err(error) if is_disconnected(&error) => {
            let absolute = std::path::absolute(directory)?;
            let parent = absolute.parent().unwrap_or(Path::new("/"));
            let name = absolute.file_name().unwrap_or(OsStr::new(""));
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
        resolved => resolved,
    }
}

/// The mounted volume at a directory, dead or alive.
pub(crate) fn mount_at(directory: &Path) -> Result<Option<MountEntry>> {
    Ok(attached_at(directory)?.filter(MountEntry::is_ours))
}

/// What of ours is mounted at a directory, a volume or a view, dead or alive.
pub(crate) fn attached_at(directory: &Path) -> Result<Option<MountEntry>> {
    let entry = entry_at(directory).context("the table of mounts cannot be read")?;
    Ok(entry.filter(|entry| entry.is_ours() || entry.is_view()))
}

/// What a file or directory is, and the mount of ours that it is in.
pub(crate) fn mount_around(path: &Path) -> Result<(Metadata, MountEntry)> {
    let about = std::fs::metadata(path).map_err(|error| cannot_be_seen(path, error))?;
    let device = format!("{}:{}", rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
    let table = fuse::mount::table().context("the table of mounts cannot be read")?;
    let entry = table.into_iter().find(|entry| entry.is_ours() && entry.device == device);
    Ok((about, entry.with_context(|| is_outside(path))?))
}

/// Why there is nothing to be said of a path that should lead into a mount.
fn cannot_be_seen(path: &Path, error: io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            anyhow!("{shown}: no such file or directory; name one in a mounted volume of Polder")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("{shown}: permission denied; ask as the user who has mounted it, or may look there")
        }
        _ if is_disconnected(&error) => {
            anyhow!("{shown}: the daemon of the mount has ended; mount it again (polder mount)")
        }
        _ => anyhow::Error::new(error).context(shown.to_string()),
    }
}

fn is_outside(path: &Path) -> String {
    let shown = path.display();
    match is_volume(path) {
        Ok(true) => {
            format!("{shown}: is a volume; mount it, and name a file or directory where it is mounted")
        }
        _ => format!("{shown}: is not in a mounted volume of Polder; name a file or directory that is"),
    }
}

/// What something is that is neither a file nor a directory.
pub(crate) fn other_kind(about: &Metadata) -> Option<&'static str> {
    match about.file_type() {
        kind if kind.is_file() || kind.is_dir() => None,
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

fn is_disconnected(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}

fn locate(named: &Path) -> Result<Found> {
    let Ok(resolved) = resolve_directory(named) else {
        return Ok(Found { path: resolve(named)?, directory: None });
    };
    if let Some(entry) = mount_at(&resolved)? {
        return Ok(Found { path: entry.source, directory: Some(resolved) });
    }
    if resolved.is_dir() {
        bail!("{}: no volume of Polder is mounted there", named.display());
    }
    Ok(Found { path: resolved, directory: None })
}

fn id_of(path: &Path) -> Result<Option<FsId>> {
    match Medium::probe(path)? {
        FileContents::Volume { fs_id, .. } => Ok(Some(fs_id)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use zone::file::{FileDevice, FileOptions};

    use super::*;

    /// A volume in a file, and the lock that whoever made it holds.
    fn volume(folder: &tempfile::TempDir) -> (PathBuf, FileDevice) {
        let path = folder.path().join("volume");
        let options = FileOptions { size: Some(64 << 20), fs_id: FsId([7; 16]), ..FileOptions::default() };
        let device = FileDevice::create(&path, &options).unwrap();
        (path, device)
    }

    /// `polder mount` right after `kill -9` of the daemon said that the volume was in use, now and then: what
    /// the daemon had given to io_uring outlived it and held the lock. A service that restarts its mount would
    /// have stayed down.
    #[test]
    fn a_lock_that_outlives_its_holder_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (path, device) = volume(&folder);
        let mut held = Some(device);
        let opened = open_when_free(&path, OpenMode::ReadWrite, || held.take().is_some());
        assert!(opened.is_ok() && held.is_none());
    }

    #[test]
    fn a_volume_that_stays_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _held) = volume(&folder);
        let mut looks = 0;
        let opened = open_when_free(&path, OpenMode::ReadWrite, || {
            looks += 1;
            looks < 3
        });
        assert!(matches!(opened, Err(FileError::InUse(_))) && looks == 3);
    }
}
