//! Finding and opening volumes that are named on the command line.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use fs::{Fs, FsError, MountOptions};
use fuse::MountEntry;
use fuse::mount::entry_at;
use polder::device::{
    Medium, MediumOptions, directory_of_url, is_stored, mount_options, normal_url, open_when_free, patience,
    url_of_directory, when_free,
};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx};
use serde::{Deserialize, Serialize};
use zone::file::{FileContents, FileError, OpenMode, RestoredHeader, StoreTrouble};
use zone::medium::{Degraded, Members, SetOptions};
use zone::{Device, FsId, MetadataCopy};

use crate::client::{Client, Reached, Silent};
use crate::name::AnyPath;
use crate::output::error_line;
use crate::registry::{PATIENCE, Registry};
use crate::{inherited, process, progress, tags, way};

/// The cache of a volume that a command opens itself.
const COMMAND_CACHE_BYTES: u64 = 64 << 20;
/// A volume that can answer requests.
pub(crate) enum Volume {
    /// A daemon holds it.
    Served(Client),
    /// No daemon holds it. This process has opened it, for reading only unless the caller requested writing.
    Opened(Box<Opened>),
}

/// A volume that this process has open.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) fs: Arc<Fs>,
    /// The recovery that was performed to open it, in memory only.
    pub(crate) recovery: tree::Recovery,
    /// The members of a volume on several devices.
    pub(crate) members: Option<Arc<Members>>,
}

/// The state in which the last mount before this one left a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastMount {
    /// Whether there was nothing to replay. A mount that was killed with nothing to replay counts as closed.
    pub(crate) closed_properly: bool,
    /// Durable transactions that recovery found in the log.
    pub(crate) records_replayed: u64,
    /// Transactions that recovery found in the log and discarded because they were not durable.
    pub(crate) records_discarded: u64,
}

impl LastMount {
    pub(crate) fn of(recovery: &tree::Recovery) -> LastMount {
        LastMount {
            closed_properly: recovery.clean,
            records_replayed: recovery.records,
            records_discarded: recovery.discarded,
        }
    }

    /// The message about a volume that was not closed.
    pub(crate) fn warning(&self, is_mounted: bool) -> Option<String> {
        let records = self.records_replayed;
        let replayed = match is_mounted {
            true => format!("{records} records were replayed when it was mounted"),
            false => format!("the next mount replays {records} records"),
        };
        let which = if is_mounted { "the mount before this one" } else { "the last mount" };
        (!self.closed_properly).then(|| {
            format!("not closed properly by {which} (a crash, or the daemon was killed); {replayed}")
        })
    }
}

/// The identity of a file, device or object store, independent of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum FileId {
    File {
        is_device: bool,
        /// The number of a device, or the device number of the file system that contains a file.
        device: u64,
        /// The inode number of a file, 0 for a device.
        inode: u64,
    },
    /// The normal form of a URL. To learn it, nothing needs to be asked.
    Url(AnyPath),
}

impl FileId {
    /// Reads only attributes that cannot change, so that a server or a daemon behind the file need not answer.
    pub(crate) fn of(path: &Path) -> io::Result<FileId> {
        if is_stored(path) {
            return Ok(FileId::Url(path.into()));
        }
        let wanted = StatxFlags::TYPE | StatxFlags::INO;
        let about = statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted)?;
        let kind = FileType::from_raw_mode(about.stx_mode.into());
        let is_device = kind.is_block_device() || kind.is_char_device();
        Ok(match is_device {
            true => {
                let device = makedev(about.stx_rdev_major, about.stx_rdev_minor);
                FileId::File { is_device, device, inode: 0 }
            }
            false => {
                let device = makedev(about.stx_dev_major, about.stx_dev_minor);
                FileId::File { is_device, device, inode: about.stx_ino }
            }
        })
    }
}

/// The daemon that holds a volume, as far as daemons answer.
enum Holder {
    None,
    /// This daemon holds the same file or device.
    Daemon(Client),
    /// This daemon holds a volume with the same ID: a copy, or the same volume under another name.
    Namesake(Client, PathBuf),
    /// A daemon that holds the volume, or a copy of it, does not answer.
    Silent(Silent),
}

impl Volume {
    /// Finds the volume by its own path or by the directory that it is mounted on.
    pub(crate) fn find(named: &Path) -> Result<Volume> {
        Self::find_or_open(named, OpenMode::ReadOnly)
    }

    /// Like [`find`](Volume::find), but opens a volume without a daemon for writing. Close it with [`Opened::close`].
    pub(crate) fn find_to_change(named: &Path) -> Result<Volume> {
        Self::find_or_open(named, OpenMode::ReadWrite)
    }

    fn find_or_open(named: &Path, mode: OpenMode) -> Result<Volume> {
        if let Some(entry) = mount_at(named)? {
            return daemon_of(&entry).map(Volume::Served);
        }
        let path = resolve(named)?;
        refuse_directory(named, &path)?;
        match holder_of(&path)? {
            Holder::Daemon(client) => return Ok(Volume::Served(client)),
            Holder::None => {}
            Holder::Silent(silent) if is_locked(&path)? => return Err(silent.of_volume(&path)),
            Holder::Silent(_) => {}
            // A copy of a volume in an object store names the owner of the original.
            Holder::Namesake(client, _) if !is_stored(&path) && is_locked(&path)? => {
                return Ok(Volume::Served(client));
            }
            Holder::Namesake(_, served) if mode == OpenMode::ReadWrite => bail!(
                "{}: a volume with the same ID is mounted from {}; unmount it first (is this one a copy?)",
                path.display(),
                served.display()
            ),
            Holder::Namesake(..) => {}
        }
        open(&path, mode).map(|opened| Volume::Opened(Box::new(opened)))
    }
}

/// Refuses a directory on which no volume is mounted.
fn refuse_directory(named: &Path, path: &Path) -> Result<()> {
    if attached_at(named)?.is_some() || path.is_dir() {
        bail!("{}: no Polder volume is mounted there; name the volume or its mount point", named.display());
    }
    Ok(())
}

/// The daemon that serves the volume at a path, if one does: by its own path or by the directory that it is mounted on.
pub(crate) fn daemon_for(named: &Path) -> Result<Option<Client>> {
    if let Some(entry) = mount_at(named)? {
        return daemon_of(&entry).map(Some);
    }
    let path = resolve(named)?;
    refuse_directory(named, &path)?;
    match holder_of(&path)? {
        Holder::Daemon(client) => Ok(Some(client)),
        _ if is_stored(&path) => bail!(
            "{}: is in an object store and has no devices; `polder info` shows its properties",
            path.display()
        ),
        Holder::Namesake(client, _) if is_locked(&path)? => Ok(Some(client)),
        Holder::Silent(silent) if is_locked(&path)? => Err(silent.of_volume(&path)),
        Holder::None | Holder::Silent(_) | Holder::Namesake(..) => Ok(None),
    }
}

/// Finds the daemon that holds a volume. Waits for a daemon that is closing the volume, for example after `umount`.
fn holder_of(path: &Path) -> Result<Holder> {
    let Some(fs_id) = id_of(path)? else { return Ok(Holder::None) };
    let volume = FileId::of(path).with_context(|| path.display().to_string())?;
    let registry = Registry::of_user();
    let mut holder = Holder::None;
    for name in registry.all_of_volume(fs_id) {
        if let Holder::Silent(_) = holder {
            // A daemon may have two names. Waiting for the second as well would not help.
            return Ok(holder);
        }
        holder = match Reached::at(&registry, &name)? {
            Reached::Answers(mut client, found) if found.holds(&volume) && found.closing => {
                wait_for_close(&mut client)?;
                holder
            }
            Reached::Answers(client, found) if found.holds(&volume) => return Ok(Holder::Daemon(client)),
            Reached::Answers(client, found) => Holder::Namesake(client, found.path.0),
            Reached::Silent(silent) => Holder::Silent(silent),
            Reached::Ended | Reached::Unknown => holder,
        };
    }
    Ok(holder)
}

fn wait_for_close(client: &mut Client) -> Result<()> {
    let bar = progress::waiting("waiting for the last mount to close the volume");
    let ended = client.wait_for_end();
    bar.finish_and_clear();
    ended
}

/// Whether another process holds the volume.
pub(crate) fn is_locked(path: &Path) -> Result<bool> {
    match open_when_free(path, OpenMode::ReadOnly, patience()) {
        Err(FileError::InUse(_) | FileError::ObjectStore { trouble: StoreTrouble::InUse, .. }) => Ok(true),
        // The members that are there were locked before others were missed.
        Err(FileError::MembersMissing { .. }) => Ok(false),
        opened => opened.map(|_| false).map_err(Into::into),
    }
}

/// Whether a daemon of this user serves the volume at a path.
pub(crate) fn is_served(path: &Path) -> bool {
    matches!(holder_of(path), Ok(Holder::Daemon(_)))
}

/// Waits until a volume that was just unmounted is closed. Fails if a daemon holds it that does not answer. Any other
/// obstacle is reported when the volume is opened.
pub(crate) fn wait_until_closed(path: &Path) -> Result<()> {
    match holder_of(path) {
        Ok(Holder::Silent(silent)) if matches!(is_locked(path), Ok(true)) => Err(silent.of_volume(path)),
        _ => Ok(()),
    }
}

impl Opened {
    /// Makes everything durable and closes the volume, so that the next mount has nothing to replay.
    pub(crate) fn close(&self) -> Result<()> {
        self.fs.unmount().with_context(|| self.path.display().to_string())
    }
}

/// Whether a path is that of a volume, mounted or not. Fails if the path is not readable.
pub(crate) fn is_volume(path: &Path) -> Result<bool, FileError> {
    match Medium::probe(path) {
        Err(
            error @ (FileError::NoAccess(_) | FileError::Forbidden { .. } | FileError::ObjectStore { .. }),
        ) => Err(error),
        probed => Ok(matches!(probed, Ok(FileContents::Volume { .. } | FileContents::Member(_)))),
    }
}

/// The mounts of this file or device, and the mounts that may be mounts of it: the table of mounts lists them with this
/// source, but no daemon answers for them.
pub(crate) fn mounts_of(path: &Path) -> Result<(Vec<MountEntry>, Vec<MountEntry>)> {
    let volume = FileId::of(path).with_context(|| path.display().to_string())?;
    let mut table = fuse::mount::table().context("the mount table cannot be read")?;
    table.retain(|entry| entry.is_ours() || entry.is_view());
    let (likely, others): (Vec<_>, Vec<_>) = table.into_iter().partition(|entry| entry.source == path);
    let is_it = |entry: &MountEntry| match reach(entry) {
        Ok(Reached::Answers(_, found)) => Some(found.holds(&volume)),
        _ => None,
    };
    let (mut own, mut unsure) = (Vec::new(), Vec::new());
    for entry in likely {
        match is_it(&entry) {
            Some(true) => own.push(entry),
            Some(false) => {}
            None => unsure.push(entry),
        }
    }
    // The table has another source for a volume that was moved since it was mounted.
    if own.is_empty() && unsure.is_empty() {
        own.extend(others.into_iter().filter(|entry| is_it(entry) == Some(true)));
    }
    Ok((own, unsure))
}

/// The daemon of a mount. The error says why it cannot be asked, and what helps.
pub(crate) fn daemon_of(entry: &MountEntry) -> Result<Client> {
    let directory = entry.directory.display();
    match reach(entry)? {
        Reached::Answers(client, _) => Ok(client),
        Reached::Silent(silent) => Err(silent.of_mount(&entry.directory)),
        Reached::Ended => bail!(
            "{directory}: the daemon of this mount has ended (was it killed?); remove the mount with `polder umount {directory}`, \
             then mount the volume again, which recovers it"
        ),
        Reached::Unknown => match entry.owner.filter(|owner| *owner != rustix::process::geteuid().as_raw()) {
            Some(owner) => {
                bail!("{directory}: permission denied: user {owner} has mounted it; run this as that user")
            }
            None => bail!(
                "{directory}: its daemon has no control socket in the expected directory; set POLDER_RUN_DIR to the value that it \
                 had when the volume was mounted, or unmount the volume and mount it again"
            ),
        },
    }
}

/// Finds the daemon of a mount by the mount's device number.
pub(crate) fn reach(entry: &MountEntry) -> Result<Reached> {
    let registry = Registry::of_user();
    for name in registry.all_of_mount(&entry.device) {
        match Reached::at(&registry, &name)? {
            Reached::Answers(_, found) if found.device.as_ref() != Some(&entry.device) => {}
            Reached::Ended | Reached::Unknown => {}
            found => return Ok(found),
        }
    }
    // The kernel knows whether the daemon has ended, even if no name is left, or only the name of an earlier mount with
    // this number.
    let directory = entry.directory.clone();
    match process::within(PATIENCE, move || fuse::mount::is_dead(&directory)) {
        Some(true) => Ok(Reached::Ended),
        Some(false) => Ok(Reached::Unknown),
        None => Ok(Reached::Silent(Silent(None))),
    }
}

/// Opens a volume whose daemon may just have ended. A daemon that is closing the volume holds the lock until its last
/// writes are done.
pub(crate) fn open_device(path: &Path, mode: OpenMode, options: &MediumOptions) -> Result<Medium, FileError> {
    if mode == OpenMode::ReadWrite {
        inherited::allow_volume(path)?;
    }
    let open = || when_free(patience(), || Medium::open_with(path, mode, options));
    match open() {
        Err(FileError::InUse(_)) if matches!(holder_of(path), Ok(Holder::None)) => open(),
        opened => opened,
    }
}

/// Opens a volume for a command. Reading needs no more members than the layout does: nothing changes, and a warning says
/// which are missing. Writing without a member that is missing would make it stale. A volume in an object store can be read
/// while a process of another machine uses it.
pub(crate) fn open_for_command(path: &Path, mode: OpenMode) -> Result<Medium, FileError> {
    let degraded = match mode {
        OpenMode::ReadOnly => Degraded::Permitted,
        OpenMode::ReadWrite => Degraded::IfExcluded,
    };
    let sets = SetOptions { degraded, ..SetOptions::default() };
    let reads_beside_owner = mode == OpenMode::ReadOnly;
    let options = MediumOptions { sets, reads_beside_owner, ..MediumOptions::default() };
    let medium = open_device(path, mode, &options)?;
    if let Some(owner) = medium.other_owner() {
        error_line!("polder: {}: {owner}", path.display());
    }
    for report in medium.members().iter().flat_map(|members| members.report()) {
        if let Some(problem) = report.problem() {
            error_line!("polder: {}: the volume is degraded: {problem}", path.display());
        }
    }
    Ok(medium)
}

/// Opens a volume that is not in use, for reading only.
pub(crate) fn open_read_only(path: &Path) -> Result<Opened> {
    open(path, OpenMode::ReadOnly)
}

fn open(path: &Path, mode: OpenMode) -> Result<Opened> {
    let options = mount_options(mode == OpenMode::ReadOnly, COMMAND_CACHE_BYTES, None);
    let medium = open_for_command(path, mode)?;
    let members = medium.members().cloned();
    let (fs, recovery) = mount_fs(path, medium.into_device(), options)?;
    Ok(Opened { path: path.to_owned(), fs, recovery, members })
}

/// Closes a volume that its daemon did not close: recovers it and writes a checkpoint. Returns the number of replayed
/// records.
pub(crate) fn close_properly(path: &Path) -> Result<u64> {
    let opened = open(path, OpenMode::ReadWrite)?;
    opened.close()?;
    Ok(opened.recovery.records)
}

/// Discards the lost part of the log for good, and closes the volume. Returns a description of the loss.
pub(crate) fn accept_loss(path: &Path) -> Result<Option<String>> {
    let device = open_for_command(path, OpenMode::ReadWrite)?.into_device();
    let bar = progress::waiting("opening the volume");
    let mounted = Fs::mount_without_lost(device, mount_options(false, COMMAND_CACHE_BYTES, None));
    bar.finish_and_clear();
    let closed = mounted.map_err(with_help).and_then(|(fs, recovery)| {
        fs.unmount()?;
        Ok(recovery.lost)
    });
    closed.with_context(|| path.display().to_string())
}

/// Opens a volume for reading, even if no header is left. If an ID is given, the volume is searched by its zones,
/// independent of the header.
pub(crate) fn open_for_salvage(path: &Path, wanted: Option<FsId>) -> Result<Medium, FileError> {
    let missing = match open_for_command(path, OpenMode::ReadOnly) {
        Err(error @ (FileError::Damaged { .. } | FileError::Foreign { .. })) => error,
        Ok(_) if wanted.is_some() => FileError::NoZones(path.to_owned()),
        opened => return opened,
    };
    let bar = progress::parts(0, "bytes searched for zones");
    let found = Medium::open_by_zones(path, wanted, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    match found {
        Err(FileError::NoZones(_)) => Err(missing),
        found => found,
    }
}

/// Rewrites the header of a volume that is not in use, if opening the volume does not.
pub(crate) fn restore_header(path: &Path, force: bool) -> Result<Option<RestoredHeader>, FileError> {
    let bar = progress::parts(0, "bytes searched for zones");
    let restored = when_free(patience(), || {
        Medium::restore_header(path, force, &mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
        })
    });
    bar.finish_and_clear();
    restored
}

/// Recovers a volume, repairs as much as possible, and closes it. Returns the repaired findings of the volume and the
/// repaired copies of the device's own metadata.
pub(crate) fn repair_once(path: &Path) -> Result<(Vec<fs::Finding>, Vec<MetadataCopy>)> {
    let device = open_for_command(path, OpenMode::ReadWrite)?;
    let copies = device.repaired().to_vec();
    let device: Arc<dyn Device> = device.into_device();
    let (fs, _) = mount_fs(path, device, mount_options(false, COMMAND_CACHE_BYTES, None))?;
    let repaired = fs.repair().and_then(|done| {
        if !done.repaired.is_empty() {
            fs.unmount()?;
        }
        Ok(done.repaired)
    });
    Ok((repaired.with_context(|| path.display().to_string())?, copies))
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

/// Adds advice to an error without any. A failed read may succeed later, or never.
fn with_help(error: FsError) -> anyhow::Error {
    match error {
        FsError::Io(said) if !said.contains("`polder ") => {
            anyhow!("{said}; try again, and if the error persists, save the files with `polder salvage`")
        }
        error => error.into(),
    }
}

/// The absolute path of a volume without symbolic links, or its URL in normal form. A name that looks like a tag (`PARTUUID=…`) is always a tag, even
/// if a file has that name, as for mount(8). Otherwise another user could make such a file and choose the device.
pub(crate) fn resolve(named: &Path) -> Result<PathBuf> {
    if is_stored(named) {
        return resolve_url(named);
    }
    let link = tags::link(named)?;
    let path = link.as_deref().unwrap_or(named);
    way::into(path)?.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => zone::medium::missing_path(path).into(),
        io::ErrorKind::PermissionDenied => FileError::denied(path, &error).into(),
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    })
}

/// The path of a directory that is used as a store has no symbolic links in it either. A directory that does not exist is
/// reported when it is used.
fn resolve_url(named: &Path) -> Result<PathBuf> {
    let url = normal_url(named)?;
    let Some(directory) = directory_of_url(&url) else { return Ok(url) };
    match way::into(&directory)? {
        Ok(directory) => Ok(url_of_directory(&directory)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(url),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(FileError::denied(&directory, &error).into())
        }
        Err(error) => Err(anyhow::Error::new(error).context(url.display().to_string())),
    }
}

/// The mounted volume at a directory, dead or alive.
pub(crate) fn mount_at(directory: &Path) -> Result<Option<MountEntry>> {
    Ok(attached_at(directory)?.filter(MountEntry::is_ours))
}

/// The mount of a Polder volume or view at a directory, dead or alive. Does not wait for its daemon. Errors of the path
/// are reported when the path is used.
pub(crate) fn attached_at(directory: &Path) -> Result<Option<MountEntry>> {
    if tags::is_tag(directory) || is_stored(directory) {
        return Ok(None);
    }
    let Ok(directory) = way::to(directory)? else { return Ok(None) };
    let entry = entry_at(&directory).context("the mount table cannot be read")?;
    if entry.as_ref().is_some_and(MountEntry::is_of_library) {
        let shown = directory.display();
        bail!(
            "{shown}: a program that uses the volume has mounted it there, and no command can ask that program; \
             end the mount in the program, or with `umount {shown}`"
        );
    }
    Ok(entry.filter(|entry| entry.is_ours() || entry.is_view()))
}

/// The metadata of a file or directory, and the Polder mount that contains it.
pub(crate) fn mount_around(path: &Path) -> Result<(Metadata, MountEntry)> {
    if is_stored(path) {
        let url = normal_url(path)?;
        bail!("{}: is a URL; name a file or directory in a mounted volume", url.display());
    }
    way::refuse_silent(path)?;
    let about = std::fs::metadata(path).map_err(|error| inaccessible(path, error))?;
    let found = fuse::mount::locate(path).map_err(|error| inaccessible(path, error))?;
    let table = fuse::mount::table().context("the mount table cannot be read")?;
    let entry = table.into_iter().find(|entry| entry.is_ours() && entry.id == found.mount);
    Ok((about, entry.with_context(|| is_outside(path))?))
}

/// The error for a path that should lead into a mount and cannot be accessed.
fn inaccessible(path: &Path, error: io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            anyhow!("{shown}: no such file or directory; name one in a mounted Polder volume")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("{shown}: permission denied; run this as a user that may access it")
        }
        _ if is_disconnected(&error) => {
            anyhow!("{shown}: the daemon of the mount has ended; mount the volume again (polder mount)")
        }
        _ => anyhow::Error::new(error).context(shown.to_string()),
    }
}

fn is_outside(path: &Path) -> String {
    let shown = path.display();
    match is_volume(path) {
        Ok(true) => {
            format!("{shown}: is a volume; mount it, and name a file or directory in the mount")
        }
        _ => format!("{shown}: is not in a mounted Polder volume; name a file or directory that is"),
    }
}

/// The name of the file type, unless it is a regular file or a directory.
pub(crate) fn special_type(about: &Metadata) -> Option<&'static str> {
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

fn id_of(path: &Path) -> Result<Option<FsId>> {
    match Medium::probe(path)? {
        FileContents::Volume { fs_id, .. } => Ok(Some(fs_id)),
        FileContents::Member(label) => Ok(Some(label.fs_id())),
        _ => Ok(None),
    }
}
