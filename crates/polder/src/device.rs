//! The file, device or object store of a volume: opening it, and making a new volume on it.
//!
//! [`Volume`](crate::Volume) uses these steps, and so does the command `polder`, which reports what happens between
//! them.

mod medium;
mod store;

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fs::{FormatOptions, Fs, FsError, MountOptions, Reserve};
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use zone::file::{FileError, OpenMode};
use zone::medium::{MediumDraft, MediumKind, SetPlan, UnusedPart, VolumeOptions};
use zone::zoned::UnusedZones;
use zone::{Device, FsId, Geometry};

use self::store::{MadeStore, StoreDraft};
use crate::error::{Error, Result};

pub(crate) use self::medium::normal_name;
pub use self::medium::{Medium, MediumOptions, id_before_opening, is_stored};
pub use self::store::{directory_of_url, normal_url, owner_here, url_of_directory, volumes_at};

/// The time until changes are durable, unless an option sets another.
pub const COMMIT_INTERVAL_NS: u64 = 5_000_000_000;

/// The smallest cache for metadata.
pub const CACHE_BYTES_MIN: u64 = 4 << 20;

/// The most bytes of a label.
pub const LABEL_BYTES_MAX: usize = tree::Label::BYTES_MAX;

/// Number of writes to the device for which memory is allocated in advance.
const PREPARED_WRITES: usize = 8;

/// The longest time for which a volume may stay locked without being in use, and the pause between two attempts.
const LOCK_PATIENCE_NS: u64 = 500_000_000;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Opens the device of a volume. While it is in use, tries again as long as `wait` returns true.
///
/// Requests that a killed process had submitted to the kernel continue until they complete, and hold the lock until
/// then. This is correct, because they may still write. It takes milliseconds.
pub fn open_when_free(
    path: &Path,
    mode: OpenMode,
    wait: impl FnMut() -> bool,
) -> std::result::Result<Medium, FileError> {
    when_free(wait, || Medium::open(path, mode))
}

/// Takes the device of a volume by `take`. While it is in use, tries again as long as `wait` returns true. Another command
/// that looks at the volume, for example `polder list`, needs moments.
pub fn when_free<T>(
    mut wait: impl FnMut() -> bool,
    mut take: impl FnMut() -> std::result::Result<T, FileError>,
) -> std::result::Result<T, FileError> {
    loop {
        match take() {
            Err(FileError::InUse(_)) if wait() => {}
            taken => return taken,
        }
    }
}

/// Returns a function to be called between two attempts to take a lock. It waits shortly, and returns whether the time
/// limit permits another attempt.
pub fn patience() -> impl FnMut() -> bool {
    let clock = SystemClock::new();
    move || !Stop::default().wait(LOCK_PAUSE) && clock.monotonic_ns() < LOCK_PATIENCE_NS
}

/// Allocates the memory of writes in advance, for a volume that stays open for writing.
pub fn prepare_writes(medium: &Medium) {
    medium.prepare_writes(PREPARED_WRITES);
}

/// The options of an opened volume, with the clock of the machine.
pub fn mount_options(read_only: bool, cache_bytes: u64, commit_interval_ns: Option<u64>) -> MountOptions {
    let commit_interval_ns = commit_interval_ns.unwrap_or(COMMIT_INTERVAL_NS);
    MountOptions { cache_bytes, read_only, commit_interval_ns, clock: Arc::new(SystemClock::new()) }
}

/// A random UUID (version 4) for a new volume.
pub fn new_fs_id() -> FsId {
    let mut id: [u8; 16] = rt::random::secret();
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    FsId(id)
}

/// Why a text cannot be the label of a volume.
pub fn refused_label(text: &str) -> Option<String> {
    if text.len() > LABEL_BYTES_MAX {
        return Some(format!("the label has {} bytes; it may have at most {LABEL_BYTES_MAX}", text.len()));
    }
    text.chars().any(char::is_control).then(|| "a label must not have control characters".to_owned())
}

/// The reserve of a percentage. `None` if it is not one.
pub fn reserve(percent: f64) -> Option<Reserve> {
    // 0 would mean the default. It becomes the smallest reserve instead, which is refused as too small.
    (0.0..=100.0).contains(&percent).then(|| Reserve(((percent * 100.0).round() as u32).max(1)))
}

/// A new volume that is possible. Nothing is written yet.
pub struct Draft {
    /// Its file, device or URL, or its members.
    paths: Vec<PathBuf>,
    place: Place,
    format: FormatOptions,
}

/// Where a new volume will be.
enum Place {
    Local(Box<MediumDraft>),
    Objects(Box<StoreDraft>),
}

/// A volume that was made. It is locked until the device is dropped.
pub struct Made {
    /// Its device.
    pub device: Arc<dyn Device>,
    /// The kind of the device.
    pub kind: MediumKind,
    /// What became of the permissions of files and directories that existed, if other users had access to them.
    pub closed: Vec<(PathBuf, ClosedToOthers)>,
}

/// The access of other users to an existing file was removed: a volume contains the data of all of its files, whatever
/// their permissions are, so only its owner may read it, as in a new file. The same for a directory that is a store.
#[derive(Debug)]
pub struct ClosedToOthers {
    /// The permissions before.
    pub mode_before: u32,
    /// The permissions now, if they could be changed.
    pub mode: u32,
    /// Some host file systems have no permissions.
    pub result: io::Result<()>,
}

impl ClosedToOthers {
    /// The permissions of a volume's file, and of a store's directory.
    const OWNER_ALONE: u32 = 0o600;
    const OWNER_ALONE_IN_DIRECTORY: u32 = 0o700;

    /// Does nothing to the file of another user, or to a device.
    fn close(path: &Path) -> io::Result<Option<ClosedToOthers>> {
        const OTHERS: u32 = 0o077;
        let found = std::fs::metadata(path)?;
        let mode = match (found.is_file(), found.is_dir()) {
            (true, _) => Self::OWNER_ALONE,
            (_, true) => Self::OWNER_ALONE_IN_DIRECTORY,
            _ => return Ok(None),
        };
        if found.mode() & OTHERS == 0 || found.uid() != rustix::process::geteuid().as_raw() {
            return Ok(None);
        }
        let result = File::open(path).and_then(|file| file.set_permissions(Permissions::from_mode(mode)));
        Ok(Some(ClosedToOthers { mode_before: found.mode() & 0o7777, mode, result }))
    }
}

impl Draft {
    /// Checks everything that can be checked without writing.
    ///
    /// # Errors
    /// [`Error::Open`] if the device cannot be used, or not with these options. [`Error::Format`] if the format is not
    /// possible on it.
    pub fn new(path: &Path, options: &VolumeOptions, format: FormatOptions) -> Result<Draft> {
        let place = match is_stored(path) {
            true => Place::Objects(Box::new(StoreDraft::new(path, options)?)),
            false => Place::Local(Box::new(when_free(patience(), || zone::Medium::draft(path, options))?)),
        };
        Draft { paths: vec![path.to_owned()], place, format }.checked()
    }

    /// The same for a volume on several devices.
    ///
    /// # Errors
    /// As [`Draft::new`], for each of them.
    pub fn of_sets(plans: &[SetPlan], options: &VolumeOptions, format: FormatOptions) -> Result<Draft> {
        let paths: Vec<PathBuf> = plans.iter().flat_map(|plan| plan.members.clone()).collect();
        if let Some(stored) = paths.iter().find(|path| is_stored(path)) {
            return Err(store::no_member(stored).into());
        }
        let medium = when_free(patience(), || zone::Medium::draft_sets(plans, options))?;
        Draft { paths, place: Place::Local(Box::new(medium)), format }.checked()
    }

    fn checked(self) -> Result<Draft> {
        Fs::check_format(self.geometry(), &self.format)
            .map_err(|cause| Error::Format { path: self.path().to_owned(), why: cause.to_string() })?;
        Ok(self)
    }

    /// The first of its paths.
    fn path(&self) -> &Path {
        first_of(&self.paths)
    }

    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        match &self.place {
            Place::Local(medium) => medium.geometry(),
            Place::Objects(store) => store.geometry(),
        }
    }

    /// The zones of a zoned device that are not used.
    pub fn unused_zones(&self) -> Option<UnusedZones> {
        match &self.place {
            Place::Local(medium) => medium.unused_zones(),
            Place::Objects(_) => None,
        }
    }

    /// The parts of members that are not used.
    pub fn unused_parts(&self) -> Vec<UnusedPart> {
        match &self.place {
            Place::Local(medium) => medium.unused_parts(),
            Place::Objects(_) => Vec::new(),
        }
    }

    /// Makes the volume. What was there is lost. `done` receives the prepared bytes and the total, of each device. If this
    /// fails, files that it has created are removed.
    pub fn make(self, done: &mut dyn FnMut(u64, u64)) -> Result<Made> {
        let Draft { paths, place, format } = self;
        match place {
            Place::Local(medium) => make_locally(*medium, &paths, &format, done),
            Place::Objects(store) => make_in_store(*store, &paths, &format),
        }
    }
}

fn first_of(paths: &[PathBuf]) -> &Path {
    paths.first().map_or(Path::new(""), PathBuf::as_path)
}

fn make_locally(
    mut medium: MediumDraft,
    paths: &[PathBuf],
    format: &FormatOptions,
    done: &mut dyn FnMut(u64, u64),
) -> Result<Made> {
    let created = medium.create_files()?;
    let made = make_over(medium, paths, &created, format, done);
    if made.is_err() {
        for path in created {
            // This call created and locked it, and it is useless.
            let _ = std::fs::remove_file(path);
        }
    }
    made
}

fn make_over(
    medium: MediumDraft,
    paths: &[PathBuf],
    new_files: &[PathBuf],
    format: &FormatOptions,
    done: &mut dyn FnMut(u64, u64),
) -> Result<Made> {
    let mut closed = Vec::new();
    for path in paths.iter().filter(|path| !new_files.contains(path)) {
        let result = ClosedToOthers::close(path).map_err(|error| unreadable(path, &error))?;
        closed.extend(result.map(|result| (path.clone(), result)));
    }
    let made = medium.make(done)?;
    let kind = made.kind();
    let device = made.into_device();
    format_device(&device, paths, format)?;
    Ok(Made { device, kind, closed })
}

fn make_in_store(store: StoreDraft, paths: &[PathBuf], format: &FormatOptions) -> Result<Made> {
    let new_directory = store.create_directory()?;
    let made = store.make().map_err(Error::from).and_then(|made| {
        format_device(&made.device, paths, format)?;
        Ok(made)
    });
    if made.is_err() {
        store.discard(new_directory.as_deref());
    }
    let MadeStore { device, kind, closed } = made?;
    Ok(Made { device, kind, closed: closed.into_iter().collect() })
}

/// Makes the file system. Another process may own the device then, unless it is locked.
fn format_device(device: &Arc<dyn Device>, paths: &[PathBuf], format: &FormatOptions) -> Result<()> {
    let formatted = Fs::format(device, format, &SystemClock::new());
    let released = formatted.and_then(|()| device.release().map_err(|error| FsError::Io(error.to_string())));
    released.map_err(|cause| Error::at(first_of(paths), cause))
}

fn unreadable(path: &Path, error: &io::Error) -> FileError {
    let operation = "read the permissions";
    FileError::Io { path: path.to_owned(), operation, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use zone::file::{FileDevice, FileOptions};
    use zone::medium::PlannedLayout;

    use super::*;

    /// A volume in a file, and the device that holds its lock.
    fn volume(folder: &tempfile::TempDir) -> (PathBuf, FileDevice) {
        let path = folder.path().join("volume");
        let options = FileOptions { size: Some(64 << 20), fs_id: FsId([7; 16]), ..FileOptions::default() };
        let device = FileDevice::create(&path, &options).unwrap();
        (path, device)
    }

    /// `polder mount` right after `kill -9` of the daemon sometimes failed because the volume was in use: io_uring
    /// requests outlived the daemon and held the lock. A service that restarts its mount would have stayed down.
    #[test]
    fn opening_waits_for_a_lock_that_outlives_its_holder() {
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
        let mut attempts = 0;
        let opened = open_when_free(&path, OpenMode::ReadWrite, || {
            attempts += 1;
            attempts < 3
        });
        assert!(matches!(opened, Err(FileError::InUse(_))) && attempts == 3);
    }

    /// The file of the other program was removed when making the volume failed.
    #[test]
    fn a_file_that_another_program_creates_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let plan = SetPlan { layout: PlannedLayout::Mirror, members: paths.to_vec() };
        let (fs_id, reserve) = (FsId([7; 16]), Reserve::default());
        let options = VolumeOptions { size: Some(96 << 20), fs_id, ..VolumeOptions::default() };
        let label = String::new();
        let format = FormatOptions { label, fs_id, uid: 0, gid: 0, page_size: None, groups: None, reserve };
        let draft = Draft::of_sets(&[plan], &options, format).unwrap();
        std::fs::write(&paths[1], "of another program").unwrap();
        assert!(draft.make(&mut |_, _| {}).is_err());
        assert_eq!(std::fs::read(&paths[1]).unwrap(), b"of another program");
        assert!(!paths[0].exists(), "the file that was created is removed");
    }

    #[test]
    fn labels_are_short_and_printable() {
        assert_eq!(refused_label("Backups 2026"), None);
        assert!(refused_label(&"x".repeat(65)).is_some());
        assert!(refused_label("a\nb").is_some());
    }

    #[test]
    fn ids_are_random() {
        assert_ne!(new_fs_id(), new_fs_id());
    }
}
