//! Volumes in object stores: their URLs, opening them, and making new ones.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::{Holder, Limits, Mode, ObjectDevice, ObjectError, OpenOptions, Store, StoreError, VolumeShape};
use rt::SystemClock;
use zone::file::{FileContents, FileError, OpenMode, StoreTrouble, ZONES_MIN};
use zone::medium::{MediumKind, VolumeOptions, missing_path};
use zone::{Device, FsId, Geometry};

use super::{ClosedToOthers, MediumOptions};

/// The default size of a zone is in this range.
const ZONE_BYTES_DEFAULT: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;
/// The smallest zone.
const ZONE_BYTES_MIN: u64 = 256 << 10;
const ZONE_BLOCKS_MIN: u64 = 64;
const BLOCK_SIZE: u32 = 4096;
/// The object that every volume has.
const VOLUME: &str = "volume";

/// The URL in the form that all names of a place have in common, so that two names can be compared.
///
/// # Errors
/// It is not a URL that Polder can use, or it has credentials in it. They are not repeated.
pub fn normal_url(named: &Path) -> Result<PathBuf, FileError> {
    remote::normal_url(text_of(named))
        .map(PathBuf::from)
        .map_err(|error| impossible(named, &error.to_string()))
}

/// The directory of this machine that a URL names, if it does.
pub fn directory_of_url(named: &Path) -> Option<PathBuf> {
    remote::directory_of_url(text_of(named))
}

/// The URL of a directory, whose path is absolute.
///
/// # Errors
/// The path is not absolute.
pub fn url_of_directory(directory: &Path) -> Result<PathBuf, FileError> {
    remote::url_of_directory(directory).map(PathBuf::from).map_err(|error| refused(directory, &error))
}

/// The URLs of the volumes directly below a URL, and of the one at it.
///
/// # Errors
/// The store cannot be listed.
pub fn volumes_at(named: &Path) -> Result<Vec<PathBuf>, FileError> {
    let url = normal_url(named)?;
    let below = remote::directories(text_of(&url)).map_err(|error| refused(named, &error))?;
    let below = below.into_iter().map(PathBuf::from);
    let mut found = Vec::new();
    for place in std::iter::once(url.clone()).chain(below) {
        // What cannot be read may be a volume, and is reported when it is looked at.
        if !matches!(probe(&place), Ok(None)) {
            found.push(place);
        }
    }
    Ok(found)
}

/// The process of this machine that owns the volume, if one does.
pub fn owner_here(path: &Path) -> Option<u32> {
    let device = open_device(path, OpenMode::ReadOnly, false).ok()?;
    match device.other_owner() {
        Some(ObjectError::InUse { process, is_here: true, .. }) => Some(*process),
        _ => None,
    }
}

pub(super) fn open(path: &Path, mode: OpenMode, options: &MediumOptions) -> Result<ObjectDevice, FileError> {
    if let Some(other) = options.sets.devices.first() {
        let why = format!("is in an object store and has no other members; leave {} out", other.display());
        return Err(impossible(path, &why));
    }
    if options.takes_over && mode == OpenMode::ReadOnly {
        return Err(impossible(
            path,
            "a volume that is opened for reading only takes nothing over; leave takeover out",
        ));
    }
    let device = open_device(path, mode, options.takes_over)?;
    match device.other_owner() {
        Some(error) if !options.reads_beside_owner => Err(translated(path, error.clone())),
        _ => Ok(device),
    }
}

fn open_device(path: &Path, mode: OpenMode, takes_over: bool) -> Result<ObjectDevice, FileError> {
    let mode = match mode {
        OpenMode::ReadOnly => Mode::ReadOnly,
        OpenMode::ReadWrite => Mode::ReadWrite,
    };
    let (holder, clock, limits) = (Holder::this_process(), Arc::new(SystemClock::new()), Limits::default());
    let options = OpenOptions { mode, takes_over, holder, clock, limits };
    ObjectDevice::open(store_at(path)?, &options).map_err(|error| translated(path, error))
}

/// The id of the volume, if there is one.
pub(super) fn probe(path: &Path) -> Result<Option<FsId>, FileError> {
    if directory_of_url(path).is_some_and(|directory| !directory.exists()) {
        return Ok(None);
    }
    ObjectDevice::probe(&*store_at(path)?).map_err(|error| translated(path, error))
}

pub(super) fn contents(path: &Path) -> Result<FileContents, FileError> {
    if directory_of_url(path).is_some_and(|directory| !directory.exists()) {
        return Ok(FileContents::Nothing);
    }
    let found = ObjectDevice::probe_shape(&*store_at(path)?).map_err(|error| translated(path, error))?;
    Ok(found.map_or(FileContents::Nothing, |(fs_id, geometry)| FileContents::Volume { fs_id, geometry }))
}

/// The error for a volume that has another id than the one that was asked for.
pub(super) fn is_other(path: &Path, found: FsId) -> FileError {
    impossible(path, &format!("the volume there is {found}; name that ID, or leave --volume out"))
}

/// The error for a member of a volume on several devices that is a URL.
pub(super) fn no_member(path: &Path) -> FileError {
    impossible(path, "an object store cannot be a member of a volume on several devices; leave --layout out")
}

/// What a reader should know about the owner of the volume that it reads.
pub(super) fn owned_elsewhere(error: &ObjectError) -> String {
    match error {
        ObjectError::InUse { host, process, .. } => format!(
            "process {process} on {host} uses the volume: this is the state of its last sync, and reading it fails when \
             that process has deleted it"
        ),
        error => error.to_string(),
    }
}

/// A new volume in an object store. Nothing is written yet.
pub(super) struct StoreDraft {
    path: PathBuf,
    shape: VolumeShape,
    geometry: Geometry,
    force: bool,
}

/// A volume that was made.
pub(super) struct MadeStore {
    pub(super) device: Arc<dyn Device>,
    pub(super) kind: MediumKind,
    pub(super) closed: Option<(PathBuf, ClosedToOthers)>,
}

impl StoreDraft {
    pub(super) fn new(path: &Path, options: &VolumeOptions) -> Result<StoreDraft, FileError> {
        let path = normal_url(path)?;
        let shape = shape(&path, options)?;
        let checked = match new_directory(&path)? {
            // Nothing can be in the way.
            Some(_) => shape.geometry(),
            None => ObjectDevice::draft(&*store_at(&path)?, &shape, options.force),
        };
        let geometry = checked.map_err(|error| translated(&path, error))?;
        Ok(StoreDraft { path, shape, geometry, force: options.force })
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Creates the directory of a store that is one. Returns it if it is new, so that it can be removed.
    pub(super) fn create_directory(&self) -> Result<Option<PathBuf>, FileError> {
        let Some(directory) = new_directory(&self.path)? else { return Ok(None) };
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(|error| unusable(&directory, "create the directory", &error))?;
        Ok(Some(directory))
    }

    /// Creates the volume, and opens it for writing.
    pub(super) fn make(&self) -> Result<MadeStore, FileError> {
        let directory = directory_of_url(&self.path);
        let closed = directory.map(|directory| {
            let closed = ClosedToOthers::close(&directory);
            let closed = closed.map_err(|error| unusable(&directory, "read the permissions", &error))?;
            Ok::<_, FileError>(closed.map(|closed| (directory, closed)))
        });
        let closed = closed.transpose()?.flatten();
        let store = store_at(&self.path)?;
        ObjectDevice::create(&*store, &self.shape, self.force)
            .map_err(|error| translated(&self.path, error))?;
        let device = open_device(&self.path, OpenMode::ReadWrite, false)?;
        let kind = MediumKind::Objects { part_bytes: device.part_bytes() };
        Ok(MadeStore { device: Arc::new(device), kind, closed })
    }

    /// Deletes what an unsuccessful attempt has left, and a directory that was created for it if it is empty then.
    pub(super) fn discard(&self, new_directory: Option<&Path>) {
        // The first error is the one that counts.
        if let Ok(store) = store_at(&self.path) {
            let _ = ObjectDevice::discard(&*store, self.shape.fs_id);
        }
        if let Some(directory) = new_directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The directory of a store, if it is one and does not exist yet. Its parent must exist.
fn new_directory(path: &Path) -> Result<Option<PathBuf>, FileError> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let Some(directory) = directory_of_url(path) else { return Ok(None) };
    let is_other = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| !is_of_volume(&entry.file_name().to_string_lossy()))
    };
    match std::fs::read_dir(&directory).map(|mut entries| entries.any(is_other)) {
        Ok(true) => {
            let why = "the directory contains other files; name a new or empty one";
            Err(unfit(path, StoreTrouble::Exists, why))
        }
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => match missing_path(&directory) {
            FileError::NotFound(_) if error.kind() == NotFound => Ok(Some(directory)),
            FileError::NotFound(_) => {
                Err(unfit(path, StoreTrouble::Exists, "it is no directory; name another place"))
            }
            error => Err(error),
        },
        Err(error) => Err(unusable(&directory, "list the directory", &error)),
    }
}

/// Whether a volume may have a file or directory of this name: its directories have the names of ids.
fn is_of_volume(name: &str) -> bool {
    name == VOLUME || name.len() == FsId([0; 16]).to_string().len() && name.chars().all(is_of_id)
}

fn is_of_id(character: char) -> bool {
    character == '-' || character.is_ascii_hexdigit()
}

fn unusable(path: &Path, operation: &'static str, error: &std::io::Error) -> FileError {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => FileError::denied(path, error),
        _ => FileError::Io { path: path.to_owned(), operation, reason: error.to_string() },
    }
}

fn shape(path: &Path, options: &VolumeOptions) -> Result<VolumeShape, FileError> {
    let given = [
        (options.zone_capacity.is_some(), "--zone-capacity"),
        (options.max_open.is_some(), "--max-open"),
        (options.max_active.is_some(), "--max-active"),
        (options.preallocate, "--preallocate"),
    ];
    if let Some((_, option)) = given.into_iter().find(|(is_given, _)| *is_given) {
        return Err(impossible(path, &format!("{option} has no meaning in an object store; omit it")));
    }
    let Some(size) = options.size else {
        let what = "an object store has no size of its own";
        return Err(FileError::NoSize { path: path.to_owned(), what });
    };
    let block_size = options.block_size.unwrap_or(BLOCK_SIZE);
    let smallest = ZONE_BYTES_MIN.max(ZONE_BLOCKS_MIN * u64::from(block_size));
    let zone_bytes = options.zone_bytes.unwrap_or_else(|| default_zone_bytes(size, smallest));
    if zone_bytes < smallest {
        let why = "it must be at least 256 KiB and 64 blocks";
        return Err(FileError::Option { option: "zone size", value: zone_bytes, why });
    }
    let zones = size / zone_bytes;
    if zones < u64::from(ZONES_MIN) {
        let smallest = options.zone_bytes.unwrap_or(smallest) * u64::from(ZONES_MIN);
        return Err(FileError::TooSmall { size, zones: ZONES_MIN, smallest });
    }
    let zones = u32::try_from(zones).unwrap_or(u32::MAX);
    let (part_bytes, chunk_zones) = (None, None);
    Ok(VolumeShape { fs_id: options.fs_id, block_size, zone_bytes, zones, part_bytes, chunk_zones })
}

/// The largest power of two up to 1/128 of the size, between 4 and 256 MiB; smaller if too few zones fit.
fn default_zone_bytes(size: u64, smallest: u64) -> u64 {
    let (low, high) = (*ZONE_BYTES_DEFAULT.start(), *ZONE_BYTES_DEFAULT.end());
    let mut bytes = (1 << (size / 128).max(1).ilog2()).clamp(low, high).max(smallest);
    while bytes > smallest && bytes * u64::from(ZONES_MIN) > size {
        bytes /= 2;
    }
    bytes
}

/// The text of a URL; empty for a path that is not valid UTF-8, which is no URL.
fn text_of(named: &Path) -> &str {
    named.to_str().unwrap_or_default()
}

fn store_at(path: &Path) -> Result<Arc<dyn Store>, FileError> {
    if let Some(directory) = directory_of_url(path)
        && !directory.exists()
    {
        return Err(translated(path, ObjectError::NoVolume(path.display().to_string())));
    }
    remote::store_at(text_of(path)).map_err(|error| refused(path, &error))
}

/// The URL in an error. One with credentials in it is not repeated.
fn shown(named: &Path) -> String {
    match remote::normal_url(text_of(named)) {
        Ok(url) => url,
        Err(_) if text_of(named).contains(['@', '?']) => "the URL".to_owned(),
        Err(_) => named.display().to_string(),
    }
}

/// The error for a store that cannot be used.
fn refused(path: &Path, error: &StoreError) -> FileError {
    let trouble = match error {
        StoreError::NotFound(_) => StoreTrouble::Missing,
        StoreError::Refused(_) => StoreTrouble::Refused,
        StoreError::Failed(_) => StoreTrouble::Failed,
    };
    FileError::ObjectStore { trouble, why: format!("{}: {error}", shown(path)) }
}

fn impossible(path: &Path, why: &str) -> FileError {
    unfit(path, StoreTrouble::Impossible, why)
}

fn unfit(path: &Path, trouble: StoreTrouble, why: &str) -> FileError {
    FileError::ObjectStore { trouble, why: format!("{}: {why}", shown(path)) }
}

/// The only place where the errors of the device become those of a volume. A process of this machine that owns the
/// volume can be asked, or attached to, as the process that has locked a file.
fn translated(path: &Path, error: ObjectError) -> FileError {
    let trouble = match &error {
        ObjectError::InUse { is_here: true, .. } => return FileError::InUse(path.to_owned()),
        ObjectError::Shape(why) => return impossible(path, why),
        ObjectError::InUse { .. } | ObjectError::Replaced(_) => StoreTrouble::InUse,
        ObjectError::NoVolume(_) => StoreTrouble::Missing,
        ObjectError::Exists(_) | ObjectError::Foreign(_) => StoreTrouble::Exists,
        ObjectError::Damaged { .. } => StoreTrouble::Damaged,
        ObjectError::IgnoresConditions(_) => StoreTrouble::Unsuitable,
        ObjectError::Store { error: StoreError::Refused(_), .. } => StoreTrouble::Refused,
        ObjectError::Store { .. } => StoreTrouble::Failed,
    };
    FileError::ObjectStore { trouble, why: error.to_string() }
}

/// The client of stores.
#[cfg(feature = "objects")]
mod remote {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use object::{Remote, Store, StoreResult};

    pub(super) fn normal_url(text: &str) -> StoreResult<String> {
        Remote::normal_url(text)
    }

    pub(super) fn directory_of_url(text: &str) -> Option<PathBuf> {
        Remote::directory_of_url(text)
    }

    pub(super) fn url_of_directory(directory: &Path) -> StoreResult<String> {
        Remote::url_of_directory(directory)
    }

    pub(super) fn directories(text: &str) -> StoreResult<Vec<String>> {
        Remote::at_url(text)?.directories()
    }

    pub(super) fn store_at(text: &str) -> StoreResult<Arc<dyn Store>> {
        Ok(Arc::new(Remote::at_url(text)?))
    }
}

/// A build without the client.
#[cfg(not(feature = "objects"))]
mod remote {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use object::{Store, StoreError, StoreResult};

    fn missing<T>() -> StoreResult<T> {
        let why =
            "this program was built without object stores (the feature `objects`); use one that has them";
        Err(StoreError::Refused(why.to_owned()))
    }

    pub(super) fn normal_url(_text: &str) -> StoreResult<String> {
        missing()
    }

    pub(super) fn directory_of_url(_text: &str) -> Option<PathBuf> {
        None
    }

    pub(super) fn url_of_directory(_directory: &Path) -> StoreResult<String> {
        missing()
    }

    pub(super) fn directories(_text: &str) -> StoreResult<Vec<String>> {
        missing()
    }

    pub(super) fn store_at(_text: &str) -> StoreResult<Arc<dyn Store>> {
        missing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(size: u64) -> VolumeOptions {
        VolumeOptions { size: Some(size), ..VolumeOptions::default() }
    }

    #[test]
    fn zones_follow_from_the_size() {
        let shape_of = |options: &VolumeOptions| shape(Path::new("s3://b/v"), options);
        let zones = |size: u64| shape_of(&options(size)).map(|shape| (shape.zones, shape.zone_bytes >> 10));
        assert_eq!(zones(10 << 40).unwrap(), (40960, 256 << 10));
        assert_eq!(zones(10 << 30).unwrap(), (160, 64 << 10));
        assert_eq!(zones(64 << 20).unwrap(), (16, 4 << 10));
        assert_eq!(zones(4 << 20).unwrap(), (16, 256));
        assert!(matches!(zones(1 << 20), Err(FileError::TooSmall { smallest: 4194304, .. })));
        let small = VolumeOptions { zone_bytes: Some(4096), ..options(1 << 30) };
        assert!(matches!(shape_of(&small), Err(FileError::Option { option: "zone size", .. })));
        assert!(matches!(shape_of(&VolumeOptions::default()), Err(FileError::NoSize { .. })));
    }

    #[test]
    fn credentials_in_a_url_are_not_repeated() {
        for url in ["s3://key:secret@bucket/place", "s3://bucket/place?token=secret"] {
            let refusal = normal_url(Path::new(url)).unwrap_err().to_string();
            assert!(refusal.contains("AWS_SECRET_ACCESS_KEY") && !refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn names_of_the_same_place_are_equal() {
        let normal = |url: &str| normal_url(Path::new(url)).unwrap().display().to_string();
        assert_eq!(normal("s3://bucket/place/"), "s3://bucket/place");
        assert_eq!(normal("s3://bucket/pl%61ce/with%20space"), "s3://bucket/place/with%20space");
        assert_eq!(normal("file:///srv/a/../store/"), "file:///srv/store");
        assert_eq!(directory_of_url(Path::new("file:///srv/with%20space")), Some("/srv/with space".into()));
        assert_eq!(
            url_of_directory(Path::new("/srv/with space")).unwrap(),
            Path::new("file:///srv/with%20space")
        );
    }
}
