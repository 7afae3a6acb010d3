//! A volume: opening, closing, and operations on all of it.

mod attributes;
mod names;
mod options;

use std::ffi::OsStr;
use std::path::Path;

use fs::{StatFs, VolumeInfo};
use zone::medium::PlannedLayout as Layout;

use crate::access::Access;
use crate::call::Call;
use crate::caller::Caller;
use crate::error::Result;
use crate::file::ReadRequest;
use crate::mount::Mount;
use crate::open::OpenOptions;
use crate::stats::Stats;

pub use options::{CreateOptions, VolumeOptions};

/// An open volume.
///
/// It is a reference: clones, open [`File`](crate::File)s and [`ReadDir`](crate::ReadDir)s refer to the same volume.
/// Any number of threads may use them at the same time. One process owns a volume, and others attach to it ([crate
/// documentation](crate#one-process-owns-a-volume)). Any number can have it open for reading as long as no process owns
/// it.
///
/// # Paths
/// Every path begins at the root of the volume, with or without a slash. `..` of the root is the root. Symbolic links
/// are followed within the volume, at most 40 of them; one that begins with `/` leads from the root of the volume. A
/// path that ends with a slash leads to a directory. Names are bytes and have at most 255 of them.
///
/// # Durability
/// A change survives a loss of power when [`File::sync_data`](crate::File::sync_data), [`Volume::sync`] or
/// [`Volume::close`] returns, and in any case after the commit interval of 5 seconds
/// ([`VolumeOptions::commit_interval`]). Changes of names and attributes become durable in the order in which they were
/// made. A new file that is written and then renamed over an old one needs no sync to be replaced safely: after a crash
/// the name has the complete old contents or the complete new ones.
///
/// # Closing and dropping
/// [`Volume::close`] makes everything durable, marks the volume as properly closed, and reports errors. If the last
/// reference is dropped instead, the same happens, and errors are logged by the crate `tracing`. A process that is
/// killed closes nothing: the next [`Volume::open`] recovers all durable changes, which takes less than a second.
///
/// # Threads
/// The owner of a volume has six threads for it. They make changes durable, store delayed writes, collect garbage,
/// reset zones, read ahead and accept other processes. They sleep while nothing is changed. There are up to nine more
/// for each attached process.
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) access: Access,
}

impl Volume {
    /// Begins to make a volume in a file or on a device. [`CreateOptions`] has a default for every option but the size
    /// of a file that does not exist yet.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let path = place.path().join("data.polder");
    /// let volume = polder::Volume::create(path).size(64 << 20).label("Photos").open()?;
    /// assert_eq!(volume.info()?.label, "Photos");
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>) -> CreateOptions {
        CreateOptions::new(path.as_ref())
    }

    /// Begins to make a volume on several devices: files, disks and zoned devices in any mixture. A mirror has all data
    /// on each member, and survives the loss of all members but one. A stripe distributes the data, and needs all its
    /// members. [`CreateOptions::add_set`] appends further sets. The volume is opened by the path of any member.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let path = |name: &str| place.path().join(name);
    /// use polder::{Layout, Volume, VolumeOptions};
    /// let volume = Volume::create_set(Layout::Mirror, [path("a"), path("b")]).size(64 << 20).open()?;
    /// volume.write("/notes", "kept twice")?;
    /// volume.close()?;
    ///
    /// // Without one of them, only on request.
    /// std::fs::rename(path("a"), place.path().join("a.lost")).unwrap();
    /// # std::fs::remove_file(place.path().join("a.lost")).unwrap();
    /// assert!(Volume::open(path("b")).is_err());
    /// let volume = VolumeOptions::new().degraded(true).open(path("b"))?;
    /// assert_eq!(volume.read("/notes")?, b"kept twice");
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn create_set<P: AsRef<Path>>(layout: Layout, members: impl IntoIterator<Item = P>) -> CreateOptions {
        CreateOptions::of_set(layout, options::owned(members))
    }

    /// Opens a volume for reading and writing, with the defaults of [`VolumeOptions`]. If another process of this user
    /// owns the volume, attaches to that process.
    ///
    /// # Errors
    /// [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) if a process has it open and does not share it
    /// ([`Error::NotShared`](crate::Error::NotShared)): a mount by `polder mount` without `--shared`, a process that
    /// has it open for reading, or a process of another user. The same if 32 processes are attached already.
    /// [`NotFound`](std::io::ErrorKind::NotFound) if there is no such file.
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) if it is no volume.
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        VolumeOptions::new().open(path)
    }

    fn of(access: Access) -> Volume {
        Volume { access }
    }

    /// A reference to the same volume for another caller.
    pub fn as_caller(&self, caller: Caller) -> Volume {
        Volume { access: self.access.as_caller(caller.0) }
    }

    /// Makes everything durable and closes the volume, so that the next open has nothing to recover. Waits for
    /// operations in progress, then disconnects attached processes. An attached process closes its own files alone.
    /// Clones and open files can then still be dropped, and every other use of them fails with
    /// [`Error::Closed`](crate::Error::Closed). Other processes can open the volume when this returns.
    ///
    /// # Errors
    /// The device has failed. The volume is closed nevertheless, and what was durable before is still there.
    /// [`Error::Closed`](crate::Error::Closed) if it is closed already. [`Error::Mounted`](crate::Error::Mounted) if a
    /// [`Mount`] of it exists, or was dropped and is still used by a program. Then the volume stays open.
    /// [`Error::Disconnected`](crate::Error::Disconnected) if the owner of an attached volume has closed it, or has
    /// ended before everything was durable.
    pub fn close(&self) -> Result<()> {
        self.access.close()
    }

    /// Whether another process owns the volume, and performs the operations of this one.
    pub fn is_attached(&self) -> bool {
        self.access.owned().is_none()
    }

    /// The options for opening a file. [`Volume::read`] and [`Volume::write`] need none.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
    /// use std::io::Write;
    /// let mut log = volume.options().append(true).create(true).open("/log")?;
    /// writeln!(log, "started")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options(&self) -> OpenOptions<'_> {
        OpenOptions::new(&self.access)
    }

    /// Makes everything durable that was changed.
    ///
    /// # Errors
    /// As [`File::sync_data`](crate::File::sync_data).
    pub fn sync(&self) -> Result<()> {
        self.access.call(Call::Sync).map(drop)
    }

    /// The size of the volume, and how much of it can be written now. Sizes are in blocks of [`StatFs::block_size`].
    ///
    /// A file of exactly the available size fits: garbage counts as available, and is collected when its space is
    /// needed.
    pub fn statvfs(&self) -> Result<StatFs> {
        self.access.call(Call::Space)?.space()
    }

    /// The properties that were chosen when the volume was made.
    pub fn info(&self) -> Result<VolumeInfo> {
        self.access.call(Call::Info)?.info()
    }

    /// Counters since the volume was opened, and what is stored.
    pub fn stats(&self) -> Result<Stats> {
        self.access.call(Call::Stats)?.stats().map(|stats| *stats)
    }

    /// Whether the volume accepts no changes: it was opened for reading only, or its device has failed.
    pub fn is_read_only(&self) -> Result<bool> {
        self.access.call(Call::IsReadOnly)?.flag()
    }

    /// Mounts the volume on a directory and serves the mount from this process, on threads of its own. The library and
    /// all programs that use the mount see each other's changes at once. The rights of programs are checked by the
    /// kernel.
    ///
    /// The kernel keeps no names, attributes, listings or written data of such a mount, because this process changes
    /// the volume too. So each operation of a program costs a request, and the mount of `polder mount` is faster. What
    /// programs must know:
    /// * Files can be mapped privately but not shared (`MAP_SHARED` is `ENODEV`).
    /// * Private mappings, `sendfile` and `splice` read pages that the kernel keeps, and can show what the file had
    ///   before. `stat` or opening the file again drops these pages if the size or the time of the file has changed.
    /// * `O_DIRECT` is refused (`EINVAL`).
    /// * Asynchronous access (`io_uring`, `libaio`) uses the size that the kernel knew last: a read behind it finds
    ///   nothing, and a write that fails behind it cuts the file to it. `stat` renews it.
    /// * `copy_file_range` ends at the size of the source that the kernel knew last, and a single write with
    ///   `RWF_APPEND` begins there. `stat` renews it.
    /// * The position of a file after a write with `O_APPEND` is behind the end that the kernel knew before, and not
    ///   behind the data, if this process has appended meanwhile.
    /// * Changes by the library cause no events of inotify. Locks of the library and of programs do not affect each
    ///   other.
    ///
    /// Use the mount from other processes. If this process is killed while one of its own threads is in a call on the
    /// mount, the kernel waits for a reply that never comes, and the process does not end before `umount -f` of the
    /// directory. Call [`Mount::unmount`] before the process ends. Otherwise the directory answers "Transport endpoint is
    /// not connected" until `umount`.
    ///
    /// The mount needs `/dev/fuse`, and either root or the program `fusermount3`. If this process is root, all users
    /// can use the mount. A volume can be mounted once at a time, and only by its owner.
    ///
    /// # Errors
    /// [`Error::Mount`](crate::Error::Mount) says what is missing. [`Error::Mounted`](crate::Error::Mounted) if there
    /// is a mount already.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let volume = polder::Volume::open("data.polder")?;
    /// let mut mount = volume.mount("mnt")?;
    /// volume.write("/from-library", "hello")?;
    /// assert_eq!(std::fs::read_to_string("mnt/from-library")?, "hello");
    /// mount.unmount()?;
    /// volume.close()?;
    /// # Ok(()) }
    /// ```
    pub fn mount(&self, directory: impl AsRef<Path>) -> Result<Mount> {
        Mount::new(&self.access, directory.as_ref())
    }

    /// Reads many pieces of open files, one after the other, and sets [`ReadRequest::read`] of each. The files may
    /// belong to different volumes.
    ///
    /// # Errors
    /// The first error. The requests before it are done, and those after it are not begun.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
    /// use polder::ReadRequest;
    /// volume.write("/table", b"0123456789")?;
    /// let table = volume.options().read(true).open("/table")?;
    /// let (mut one, mut other) = ([0; 2], [0; 4]);
    /// let mut requests = [ReadRequest::new(&table, 1, &mut one), ReadRequest::new(&table, 8, &mut other)];
    /// volume.read_many(&mut requests)?;
    /// assert_eq!((requests[0].read, requests[1].read), (2, 2));
    /// assert_eq!((&one, &other[..2]), (b"12", &b"89"[..]));
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|request| {
            request.read = request.file.read_at(request.into, request.offset)?;
            Ok(())
        })
    }
}

/// The bytes of a name or target.
fn raw(text: &OsStr) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(text)
}
