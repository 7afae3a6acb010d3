//! Mounting, unmounting, and the table of mounts.
//!
//! Root mounts by `mount(2)`. Other users need the helper `fusermount3`, which is set-user-id root: it mounts and
//! passes the open device through a socket.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rt::thread::Stop;
use rt::{Clock, SystemClock};
use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::kernel::REQUEST_BYTES_MAX;

/// The type of our mounts in the table of mounts.
pub const FILE_SYSTEM_TYPE: &str = "fuse.polder";
/// The type of mounts of volumes that a program uses by the library. Commands cannot ask such a program.
pub const LIBRARY_TYPE: &str = "fuse.polder-library";
/// The type of views. Commands that need a volume ignore them.
pub const VIEW_TYPE: &str = "fuse.polder-zones";

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The variable with the helper's socket.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";
const TABLE: &str = "/proc/self/mountinfo";
/// Where the kernel lets root control connections, each in a directory named after its minor number.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// How long an unmount is retried that is refused because the mount is in use. A system call in progress (such as
/// `statfs`) uses a mount until it is answered, and its program does not know that it delays the unmount.
const BUSY_NS: u64 = 100_000_000;
/// The pause between two attempts, and the smallest number of attempts: on a busy machine the time passes after a
/// few.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
const BUSY_TRIES: u32 = 40;

/// The options of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The source in the table of mounts: the path of the volume.
    pub source: OsString,
    /// It is a view and not a volume.
    pub is_view: bool,
    /// Nothing can be written.
    pub read_only: bool,
    /// Other users may use the mount too.
    pub allow_other: bool,
    /// Set-user-id and set-group-id programs run without these privileges.
    pub no_set_id: bool,
    /// Devices cannot be opened.
    pub no_devices: bool,
    /// Programs cannot be run.
    pub no_execution: bool,
    /// Reading updates access times.
    pub strict_access_times: bool,
    /// Files have no extended attributes and no access lists. The kernel then does not ask for them.
    pub no_xattrs: bool,
    /// The process changes the volume by itself too, so the kernel caches nothing.
    pub uncached: bool,
    /// It belongs to a program that uses the library, which commands cannot ask.
    pub is_of_library: bool,
}

/// Why a volume could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel's module is missing.
    #[error("{DEVICE} cannot be opened ({0}); load the kernel's module with `modprobe fuse`")]
    NoDevice(io::Error),
    /// The user lacks privileges, and the helper is not installed.
    #[error("mounting without root needs {HELPER}; install it with `sudo apt install fuse3`")]
    NoHelper,
    /// The helper refused.
    #[error("{HELPER}: {0}")]
    Helper(String),
    /// The system refused.
    #[error("{}: nothing can be mounted there: {error}", directory.display())]
    Refused {
        /// The mount point.
        directory: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Mounted, but the kernel and Polder could not agree on a protocol.
    #[error("the kernel and Polder have no common FUSE protocol: {0}")]
    Handshake(io::Error),
}

/// One line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of this attachment. It stays the same if the attachment is moved, and is reused once it is
    /// gone.
    pub id: u64,
    /// Major and minor number of its device, as `12:34`. All attachments (bind mounts) of one mount have the same. It
    /// is reused after the last attachment is gone and no longer in use.
    pub device: String,
    /// The mount point.
    pub directory: PathBuf,
    /// The type of file system.
    pub kind: String,
    /// The source.
    pub source: PathBuf,
    /// The user that has mounted it, for FUSE file systems.
    pub owner: Option<u32>,
}

impl MountOptions {
    fn kind(&self) -> &'static str {
        match () {
            () if self.is_view => VIEW_TYPE,
            () if self.is_of_library => LIBRARY_TYPE,
            () => FILE_SYSTEM_TYPE,
        }
    }
}

impl MountEntry {
    /// Whether it is a volume of Polder.
    pub fn is_ours(&self) -> bool {
        self.kind == FILE_SYSTEM_TYPE
    }

    /// Whether it is a volume of Polder that a program uses by the library.
    pub fn is_of_library(&self) -> bool {
        self.kind == LIBRARY_TYPE
    }

    /// Whether it is a view of Polder.
    pub fn is_view(&self) -> bool {
        self.kind == VIEW_TYPE
    }

    /// Where the mount is attached now, as far as this process sees: nowhere after a lazy unmount, in several places
    /// after a bind mount. The place of this entry comes first, even if it was moved.
    pub fn places(&self) -> io::Result<Vec<MountEntry>> {
        let mut places = table()?;
        places.retain(|place| place.device == self.device);
        places.sort_by_key(|place| place.id != self.id);
        Ok(places)
    }

    /// Whether its directory leads to it. If something else is mounted over it, the directory leads there.
    pub fn is_reachable(&self) -> bool {
        locate(&self.directory).is_ok_and(|found| found.mount == self.id)
    }
}

/// The mount to which a path belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The same number as [`MountEntry::id`].
    pub mount: u64,
    /// Whether the path leads to the root of the mount.
    pub is_root: bool,
    /// Whether it leads to a symbolic link.
    pub is_link: bool,
}

/// Finds the mount to which a path belongs. For the root of a mount the kernel answers this without the daemon. For a
/// path below a root the kernel may ask the daemon on the way.
pub fn locate(path: &Path) -> io::Result<Location> {
    locate_with(path, AtFlags::empty())
}

/// The same, but does not follow a symbolic link at the end of the path.
pub fn locate_unfollowed(path: &Path) -> io::Result<Location> {
    locate_with(path, AtFlags::SYMLINK_NOFOLLOW)
}

fn locate_with(path: &Path, flags: AtFlags) -> io::Result<Location> {
    // With these flags nothing is synchronised, and no attribute is requested that would need it.
    let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, path, flags, StatxFlags::empty())?;
    let is_root = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let is_link = FileType::from_raw_mode(found.stx_mode.into()).is_symlink();
    Ok(Location { mount: found.stx_mnt_id, is_root, is_link })
}

/// All mounts, in the order in which they were mounted.
pub fn table() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read(TABLE)?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse_entry).collect())
}

/// The mount at exactly this directory, which may have any name.
pub fn entry_at(directory: &Path) -> io::Result<Option<MountEntry>> {
    let found = locate(directory)?;
    match found.is_root {
        true => Ok(table()?.into_iter().find(|entry| entry.id == found.mount)),
        false => Ok(None),
    }
}

/// Whether the daemon of the mount at this directory has ended. Attributes would not tell, because the kernel caches
/// them. Waits for a daemon that is alive and does not answer.
pub fn is_dead(directory: &Path) -> bool {
    matches!(rustix::fs::statfs(directory), Err(rustix::io::Errno::NOTCONN))
}

/// Changes the options that the kernel keeps for a mount: all but its source and `allow_other`. Read-only fails while
/// files are open for writing.
pub fn remount(directory: &Path, options: &MountOptions) -> io::Result<()> {
    unless_briefly_busy(|| Ok(rustix::mount::mount_remount(directory, kernel_flags(options), c"")?))
}

/// Unmounts the mount at `directory`. Fails if it is in use.
pub fn unmount(directory: &Path) -> io::Result<()> {
    unless_briefly_busy(|| detach(directory, UnmountFlags::NOFOLLOW, "-u"))
}

/// Unmounts lazily: detaches the mount at `directory` now. It ends when it is no longer in use.
pub fn unmount_lazily(directory: &Path) -> io::Result<()> {
    detach(directory, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, "-uz")
}

/// Detaches the mount at `directory` now and ends its connection, so that all programs that use it get an error. Only
/// root may do this.
pub fn unmount_by_force(directory: &Path) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE;
    Ok(rustix::mount::unmount(directory, flags)?)
}

/// Ends the connection of a mount, attached or not, so that all programs that use it get an error.
pub fn abort(entry: &MountEntry) -> io::Result<()> {
    let connection = entry.device.split_once(':').map_or("", |(_, minor)| minor);
    std::fs::write(Path::new(CONNECTIONS).join(connection).join("abort"), "1")
}

/// Whether this user can abort the connection of their own mount. Root can; other users can if fusectl is mounted.
pub fn may_end_by_force() -> bool {
    let shows_any = || std::fs::read_dir(CONNECTIONS).is_ok_and(|mut shown| shown.next().is_some());
    rustix::process::geteuid().is_root() || shows_any()
}

/// Mounts. Returns the open device from which requests are read.
pub(crate) fn attach(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !rustix::process::geteuid().is_root() {
        return attach_by_helper(directory, options);
    }
    match attach_directly(directory, options) {
        Err(MountError::Refused { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => {
            attach_by_helper(directory, options)
        }
        attached => attached,
    }
}

/// Opens the device. It belongs to no mount yet.
pub(crate) fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

fn attach_directly(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device().map_err(MountError::NoDevice)?;
    let refused = |error: io::Error| MountError::Refused { directory: directory.to_owned(), error };
    let data = CString::new(kernel_data(&device, options)).expect("made of numbers and words");
    rustix::mount::mount(
        options.source.as_os_str(),
        directory,
        options.kind(),
        kernel_flags(options),
        data.as_c_str(),
    )
    .map_err(|error| refused(error.into()))?;
    Ok(device.into())
}

fn kernel_data(device: &File, options: &MountOptions) -> String {
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,max_read={REQUEST_BYTES_MAX}",
        device.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    data
}

fn kernel_flags(options: &MountOptions) -> MountFlags {
    let chosen = [
        (options.read_only, MountFlags::RDONLY),
        (options.no_set_id, MountFlags::NOSUID),
        (options.no_devices, MountFlags::NODEV),
        (options.no_execution, MountFlags::NOEXEC),
    ];
    let flags = chosen.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag);
    let access = if options.strict_access_times { MountFlags::STRICTATIME } else { MountFlags::NOATIME };
    flags.fold(access, |all, flag| all | flag)
}

fn attach_by_helper(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let broken = |error: Errno| MountError::Helper(error.to_string());
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None);
    let (ours, theirs) = pair.map_err(broken)?;
    rustix::io::fcntl_setfd(&ours, FdFlags::CLOEXEC).map_err(broken)?;
    let helper = Command::new(HELPER)
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(directory)
        .env(HELPER_SOCKET, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(helper_missing)?;
    drop(theirs);
    let received = receive_device(&ours);
    drop(ours);
    let complaint = complaint_of(helper);
    received.ok_or_else(|| {
        let words = complaint.unwrap_or_else(|| "the helper passed no FUSE device".to_owned());
        MountError::Helper(words.trim_start_matches("fusermount3: ").to_owned())
    })
}

fn helper_missing(error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::Helper(error.to_string()),
    }
}

fn helper_options(options: &MountOptions) -> OsString {
    // The kernel shows a type of two parts. The helper chooses the first.
    let subtype = options.kind().trim_start_matches("fuse.");
    let mut line = format!("default_permissions,subtype={subtype},max_read={REQUEST_BYTES_MAX}");
    let chosen = [
        (!options.strict_access_times, ",noatime"),
        (options.read_only, ",ro"),
        (options.allow_other, ",allow_other"),
        (options.no_execution, ",noexec"),
        (options.no_set_id, ",nosuid"),
        (options.no_devices, ",nodev"),
    ];
    line.extend(chosen.into_iter().filter(|(wanted, _)| *wanted).map(|(_, word)| word));
    let mut line = OsString::from(line);
    line.push(",fsname=");
    // A comma would end the name. The helper accepts one after a backslash.
    let source = options.source.as_bytes().iter().flat_map(|&byte| match byte {
        b',' | b'\\' => vec![b'\\', byte],
        _ => vec![byte],
    });
    line.push(OsStr::from_bytes(&source.collect::<Vec<u8>>()));
    line
}

/// The open device, or `None` if the helper ended without passing one.
fn receive_device(socket: impl AsFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut devices) => devices.next(),
        _ => None,
    })
}

/// Retries for a moment while the mount is in use.
fn unless_briefly_busy(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let clock = SystemClock::new();
    let mut tries = 0;
    loop {
        match attempt() {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && (clock.monotonic_ns() < BUSY_NS || tries < BUSY_TRIES) => {}
            done => return done,
        }
        tries += 1;
        Stop::default().wait(BUSY_PAUSE);
    }
}

fn detach(directory: &Path, flags: UnmountFlags, helper_flag: &str) -> io::Result<()> {
    match rustix::mount::unmount(directory, flags) {
        Err(Errno::PERM) => detach_by_helper(directory, helper_flag),
        done => Ok(done?),
    }
}

fn detach_by_helper(directory: &Path, flag: &str) -> io::Result<()> {
    let mut helper = Command::new(HELPER);
    helper.arg(flag).arg("--").arg(directory).stdin(Stdio::null()).stdout(Stdio::null());
    let helper = helper.stderr(Stdio::piped()).spawn();
    let complaint =
        complaint_of(helper.map_err(|error| io::Error::other(helper_missing(error).to_string()))?);
    match complaint {
        None => Ok(()),
        Some(words) if words.to_ascii_lowercase().contains("busy") => Err(Errno::BUSY.into()),
        Some(words) => Err(io::Error::other(words)),
    }
}

/// The error message of a helper that has failed. A process that ignores SIGCHLD does not get its status: then the
/// helper has failed if there is a message.
fn complaint_of(mut helper: Child) -> Option<String> {
    let words = helper.stderr.take().map(io::read_to_string).and_then(Result::ok).unwrap_or_default();
    let line = words.lines().next().unwrap_or_default().trim().to_owned();
    match helper.wait() {
        Ok(status) if status.success() => None,
        Ok(_) if line.is_empty() => Some("failed".to_owned()),
        Err(_) if line.is_empty() => None,
        _ => Some(line),
    }
}

/// Fields: id, parent, device, root, mount point, options, optional ones, `-`, type, source, options.
fn parse_entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = String::from_utf8_lossy(fields.nth(1)?).into_owned();
    let directory = unescape(fields.nth(1)?);
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let mut options = fields.next().unwrap_or_default().split(|&byte| byte == b',');
    let owner =
        options.find_map(|option| str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok());
    Some(MountEntry { id, device, directory, kind, source, owner })
}

/// Spaces and other special characters are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) if byte == b'\\' => {
                path.push(digits.iter().fold(0, |value: u8, digit| value.wrapping_mul(8) + (digit - b'0')));
                rest = &after[3..];
            }
            _ => {
                path.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests;
