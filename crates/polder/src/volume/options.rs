//! The options for making and opening volumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fs::{FormatOptions, Fs, FsError, Reserve};
use zone::file::{FileError, OpenMode};
use zone::medium::{Degraded, PlannedLayout, SetPlan};

use super::Volume;
use crate::access::Access;
use crate::attached::{Attempt, Server, SocketName, attach};
use crate::caller::Caller;
use crate::device::{self, Draft, Medium, MediumOptions};
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::shared::Shared;

/// The default of [`VolumeOptions::cache_bytes`].
const CACHE_BYTES: u64 = 64 << 20;

/// The number of owners that may close the volume one after the other while this process tries to open it.
const OWNERS_MAX: u32 = 1000;

/// How a volume is opened.
///
/// ```
/// # let place = tempfile::tempdir().unwrap();
/// # let path = place.path().join("data.polder");
/// # polder::Volume::create(&path).size(64 << 20).open()?.write("/file", b"text")?;
/// let volume = polder::VolumeOptions::new().read_only(true).open(&path)?;
/// assert_eq!(volume.read("/file")?, b"text");
/// assert_eq!(volume.write("/file", b"").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
/// # Ok::<(), polder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    read_only: bool,
    cache_bytes: u64,
    commit_interval: Duration,
    caller: Caller,
    share: bool,
    attach: bool,
    medium: MediumOptions,
}

impl VolumeOptions {
    /// The defaults.
    pub fn new() -> VolumeOptions {
        VolumeOptions {
            read_only: false,
            cache_bytes: CACHE_BYTES,
            commit_interval: Duration::from_nanos(device::COMMIT_INTERVAL_NS),
            caller: Caller::default(),
            share: true,
            attach: true,
            medium: MediumOptions::default(),
        }
    }

    /// The path of another member of a volume on several devices; may be called for several. It is needed for members
    /// that are not found: those that are files in another directory than the one that is opened. All others are found
    /// by their labels.
    pub fn device(mut self, path: impl AsRef<Path>) -> VolumeOptions {
        self.medium.sets.devices.push(path.as_ref().to_owned());
        self
    }

    /// Whether the volume may be opened without some of its members, as far as the layout tolerates that. The default is
    /// false. If the volume is opened for writing without a member, that member is stale from then on: it is not used
    /// when it returns.
    pub fn degraded(mut self, degraded: bool) -> VolumeOptions {
        self.medium.sets.degraded = if degraded { Degraded::Permitted } else { Degraded::Refused };
        self
    }

    /// Whether the ownership of a volume in an object store is taken from another process that may be alive: one on
    /// another machine that has not closed the volume. The default is false. That process loses what it has not synced,
    /// and every later change of it fails. Files and devices have a lock instead, and this is refused for them.
    pub fn takeover(mut self, takeover: bool) -> VolumeOptions {
        self.medium.takes_over = takeover;
        self
    }

    /// Whether the volume accepts no changes and nothing is written, not even a recovery. The default is false.
    pub fn read_only(mut self, read_only: bool) -> VolumeOptions {
        self.read_only = read_only;
        self
    }

    /// Memory for metadata, in bytes; at least 4 MiB, by default 64 MiB. It pays to have the names and inodes in it
    /// that are used often: about 300 bytes each. The contents of files are not cached.
    pub fn cache_bytes(mut self, bytes: u64) -> VolumeOptions {
        self.cache_bytes = bytes;
        self
    }

    /// The time after which a change becomes durable without a sync. The default is 5 seconds.
    pub fn commit_interval(mut self, interval: Duration) -> VolumeOptions {
        self.commit_interval = interval;
        self
    }

    /// On whose behalf operations run. The default is [`Caller::unrestricted`].
    pub fn caller(mut self, caller: Caller) -> VolumeOptions {
        self.caller = caller;
        self
    }

    /// Whether other processes of this user can attach to the volume while this process owns it. The default is true. A
    /// volume that is open for reading only cannot be attached: other processes open it themselves.
    pub fn share(mut self, share: bool) -> VolumeOptions {
        self.share = share;
        self
    }

    /// Whether to attach to the process that owns the volume, if there is one. The default is true. Then
    /// [`cache_bytes`](VolumeOptions::cache_bytes) and [`commit_interval`](VolumeOptions::commit_interval) are those of
    /// the owner. Otherwise opening fails with [`ResourceBusy`](std::io::ErrorKind::ResourceBusy).
    pub fn attach(mut self, attach: bool) -> VolumeOptions {
        self.attach = attach;
        self
    }

    /// Opens a volume in a file, on a device, or in an object store. Recovers it if it was not closed, and starts its
    /// threads. If another process owns the volume, attaches to that process
    /// ([attached volumes](crate#one-process-owns-a-volume)).
    ///
    /// # Errors
    /// As [`Volume::open`]. [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a cache that is too small.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = &*device::normal_name(path.as_ref())?;
        self.check()?;
        let mode = if self.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let (mut wait, mut owners) = (device::patience(), 0);
        loop {
            match Medium::open_with(path, mode, &self.medium) {
                Err(FileError::InUse(_)) if self.attach => {}
                Err(FileError::InUse(_)) if wait() => continue,
                opened => return self.own(path, opened?),
            }
            match attach(path, self.read_only) {
                Attempt::Attached(attached) => {
                    return Ok(Volume::of(Access::of_attached(attached, self.caller.0.clone())));
                }
                Attempt::Refused(error) => return Err(error),
                // It took its time, and the lock is free in a moment. Or another process is faster.
                Attempt::OwnerEnded if owners < OWNERS_MAX => {
                    owners += 1;
                    wait = device::patience();
                    wait();
                }
                Attempt::NoOwner if wait() => {}
                Attempt::NoOwner | Attempt::OwnerEnded => {
                    return Err(Error::NotShared { path: path.to_owned() });
                }
            }
        }
    }

    /// This process has the lock of the volume.
    fn own(&self, path: &Path, medium: Medium) -> Result<Volume> {
        if !self.read_only {
            device::prepare_writes(&medium);
        }
        let device = medium.into_device();
        // The lock is released after the name is removed. Otherwise the name could belong to the next owner by then.
        let _lock = Arc::clone(&device);
        // Other processes can connect at once. They wait until the volume is recovered.
        let name = (self.share && !self.read_only).then(|| SocketName::listen(path));
        let interval_ns = u64::try_from(self.commit_interval.as_nanos()).unwrap_or(u64::MAX);
        let options = device::mount_options(self.read_only, self.cache_bytes, Some(interval_ns));
        let of_path = |cause: FsError| Error::at(path, cause);
        let (fs, recovery) = Fs::mount(device, options).map_err(of_path)?;
        if !recovery.clean {
            tracing::info!(volume = %path.display(), records = recovery.records, "recovered");
        }
        fs.start().map_err(of_path)?;
        let shared = Arc::new(Shared::new(path, fs));
        let server = name.map(|name| Server::start(name?, Arc::clone(&shared)));
        let server = server.transpose().unwrap_or_else(|error| {
            tracing::warn!(volume = %path.display(), "other processes cannot attach: {error}");
            None
        });
        Ok(Volume::of(Access::of_owned(Owned::new(shared, server), self.caller.0.clone())))
    }

    fn check(&self) -> Result<()> {
        if self.cache_bytes >= device::CACHE_BYTES_MIN {
            return Ok(());
        }
        let why = "the cache is too small; use at least 4 MiB";
        Err(FileError::Option { option: "cache_bytes", value: self.cache_bytes, why }.into())
    }
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions::new()
    }
}

/// How a volume is made: [`Volume::create`]. `None` of an option is its default.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    path: PathBuf,
    /// The sets of a volume on several devices; none if it has one device.
    sets: Vec<SetPlan>,
    device: zone::medium::VolumeOptions,
    label: String,
    page_size: Option<u32>,
    groups: Option<u16>,
    reserve_percent: Option<f64>,
    open: VolumeOptions,
}

impl CreateOptions {
    pub(crate) fn new(path: &Path) -> CreateOptions {
        CreateOptions {
            path: path.to_owned(),
            sets: Vec::new(),
            device: zone::medium::VolumeOptions { fs_id: device::new_fs_id(), ..Default::default() },
            label: String::new(),
            page_size: None,
            groups: None,
            reserve_percent: None,
            open: VolumeOptions::new(),
        }
    }

    pub(crate) fn of_set(layout: PlannedLayout, members: Vec<PathBuf>) -> CreateOptions {
        let path = members.first().cloned().unwrap_or_default();
        CreateOptions { sets: vec![SetPlan { layout, members }], ..CreateOptions::new(&path) }
    }

    /// Adds another set behind the ones before it ([`Volume::create_set`]). The device of [`Volume::create`] becomes a
    /// set of one device.
    pub fn add_set<P: AsRef<Path>>(
        mut self,
        layout: PlannedLayout,
        members: impl IntoIterator<Item = P>,
    ) -> CreateOptions {
        if self.sets.is_empty() {
            self.sets.push(SetPlan { layout: PlannedLayout::STRIPE, members: vec![self.path.clone()] });
        }
        self.sets.push(SetPlan { layout, members: owned(members) });
        self
    }

    /// The size in bytes, of each file if there are several. A file that does not exist needs it. It is created sparse, so it takes only the space that is
    /// written. The default is the size of the existing file or device.
    pub fn size(mut self, bytes: u64) -> CreateOptions {
        self.device.size = Some(bytes);
        self
    }

    /// A name for the volume, at most 64 bytes without control characters. The default is none.
    pub fn label(mut self, label: impl Into<String>) -> CreateOptions {
        self.label = label.into();
        self
    }

    /// Bytes of a block, a power of two from 512 to 65536. The default is 4096, or the physical block of the device if
    /// that is larger.
    pub fn block_size(mut self, bytes: u32) -> CreateOptions {
        self.device.block_size = Some(bytes);
        self
    }

    /// Bytes of a zone, a multiple of the block size. The default is derived from the size of the volume. A zoned
    /// device has zones of its own, and this option is refused there.
    pub fn zone_size(mut self, bytes: u64) -> CreateOptions {
        self.device.zone_bytes = Some(bytes);
        self
    }

    /// Bytes of a zone that can be written, to emulate devices with gaps between zones. The default is the size of a
    /// zone.
    pub fn zone_capacity(mut self, bytes: u64) -> CreateOptions {
        self.device.zone_capacity = Some(bytes);
        self
    }

    /// The largest number of open zones, at least 6. The default is 14, or the limit of a zoned device.
    pub fn max_open_zones(mut self, zones: u32) -> CreateOptions {
        self.device.max_open = Some(zones);
        self
    }

    /// The largest number of partly written zones. The default is the largest number of open zones.
    pub fn max_active_zones(mut self, zones: u32) -> CreateOptions {
        self.device.max_active = Some(zones);
        self
    }

    /// Bytes of a page of metadata, a power of two from 4096 to 65536, at least a block. The default is 16384.
    pub fn page_size(mut self, bytes: u32) -> CreateOptions {
        self.page_size = Some(bytes);
        self
    }

    /// The number of shares of the metadata that can be changed at the same time. The default is 8.
    pub fn groups(mut self, groups: u16) -> CreateOptions {
        self.groups = Some(groups);
        self
    }

    /// Percent of the device that are never available to files, which makes garbage collection on a full volume
    /// cheaper. The default is the smallest reserve that is possible.
    pub fn reserve_percent(mut self, percent: f64) -> CreateOptions {
        self.reserve_percent = Some(percent);
        self
    }

    /// Whether all blocks of the file are allocated now, so that the host file system cannot run out of space later.
    /// The default is false.
    pub fn preallocate(mut self, preallocate: bool) -> CreateOptions {
        self.device.preallocate = preallocate;
        self
    }

    /// Whether existing contents of the file or device may be destroyed. The default is false.
    pub fn overwrite(mut self, overwrite: bool) -> CreateOptions {
        self.device.force = overwrite;
        self
    }

    /// How the new volume is opened. The default is [`VolumeOptions::new`].
    pub fn open_options(mut self, options: VolumeOptions) -> CreateOptions {
        self.open = options;
        self
    }

    /// Makes the volume and opens it. The root directory belongs to the caller of the options, with the permissions
    /// 0o755.
    ///
    /// # Errors
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for impossible options;
    /// [`AlreadyExists`](std::io::ErrorKind::AlreadyExists) if the file or device contains anything, unless
    /// [`overwrite`](CreateOptions::overwrite) is set; [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) if a process
    /// has it open as a volume. Then nothing was written.
    pub fn open(&self) -> Result<Volume> {
        self.open.check()?;
        let draft = match self.sets.as_slice() {
            [] => Draft::new(&self.path, &self.device, self.format()?)?,
            sets => Draft::of_sets(sets, &self.device, self.format()?)?,
        };
        draft.make(&mut |_, _| {})?;
        let others = self.sets.iter().flat_map(|set| &set.members).filter(|path| **path != self.path);
        others.fold(self.open.clone(), VolumeOptions::device).open(&self.path)
    }

    fn format(&self) -> Result<FormatOptions> {
        if let Some(why) = device::refused_label(&self.label) {
            return Err(Error::Format { path: self.path.clone(), why });
        }
        let Caller(fs::Caller { uid, gid, .. }) = self.open.caller;
        Ok(FormatOptions {
            label: self.label.clone(),
            fs_id: self.device.fs_id,
            uid,
            gid,
            page_size: self.page_size,
            groups: self.groups,
            reserve: self.reserve()?,
        })
    }

    fn reserve(&self) -> Result<Reserve> {
        let Some(percent) = self.reserve_percent else { return Ok(Reserve::default()) };
        device::reserve(percent).ok_or_else(|| {
            let why = format!("a reserve of {percent} % is impossible");
            Error::Format { path: self.path.clone(), why }
        })
    }
}

pub(super) fn owned<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Vec<PathBuf> {
    paths.into_iter().map(|path| path.as_ref().to_owned()).collect()
}
