//! What a volume is on, whatever that is: a file, a block device, a zoned device.
//!
//! The path decides. A block device that has zones of its own is used with these, and so is a namespace of NVMe
//! by its generic device (`/dev/ngXnY`); any other block device, and any file, with zones that are kept by
//! software ([`crate::file`]).

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::file::{
    self, FileContents, FileDevice, FileDraft, FileError, FileOptions, OpenMode, RestoredHeader,
};
use crate::zoned::{UnusedZones, ZonedDevice, ZonedDraft, generic_beside, is_zoned};
use crate::{Device, FsId, Geometry, MetadataCopy};

/// A volume's device, open.
pub enum Medium {
    /// Zones in a file, or on a block device that has none of its own.
    File(Box<FileDevice>),
    /// A device that keeps its zones itself.
    Zoned(Box<ZonedDevice>),
}

/// What was found where a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// A file: its zones are kept by software.
    File,
    /// A block device without zones of its own; they are kept by software.
    Disk {
        /// It is told what was reset.
        discards: bool,
        /// How many write streams (placement handles) it has.
        streams: u8,
    },
    /// A block device that has zones.
    ZonedDisk,
    /// A zoned namespace of NVMe, by its generic device.
    Namespace {
        /// The largest append whose place the device chooses.
        append_bytes: usize,
    },
}

/// What is asked for a new volume. What is `None` is chosen, or is the device's own.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    /// Bytes of the whole volume.
    pub size: Option<u64>,
    /// Bytes of a logical block.
    pub block_size: Option<u32>,
    /// Bytes of a zone.
    pub zone_bytes: Option<u64>,
    /// Bytes that a zone takes.
    pub zone_capacity: Option<u64>,
    /// How many zones may be open at once.
    pub max_open: Option<u32>,
    /// How many zones may be active at once.
    pub max_active: Option<u32>,
    /// Whether all of the host's blocks are taken at once.
    pub preallocate: bool,
    /// The volume.
    pub fs_id: FsId,
    /// Whether what is there may be overwritten.
    pub force: bool,
}

/// A volume that can be made, as far as its medium can tell. Nothing is written yet.
pub enum MediumDraft {
    /// In a file, or on a block device that has no zones of its own.
    File(FileDraft),
    /// On a device that keeps its zones itself.
    Zoned(ZonedDraft),
}

impl Medium {
    /// Opens a volume, and keeps it from being opened by others until it is dropped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Medium, FileError> {
        if has_zones(path)? {
            return ZonedDevice::open(path, mode).map(|device| Medium::Zoned(Box::new(device)));
        }
        FileDevice::open(path, mode).map(|device| Medium::File(Box::new(device)))
    }

    /// Opens a volume of which no header is left, for reading, by what its zones say of themselves
    /// ([`FileDevice::open_by_zones`]). `progress` is told bytes searched, and bytes in all.
    pub fn open_by_zones(
        path: &Path,
        wanted: Option<FsId>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Medium, FileError> {
        if has_zones(path)? {
            return Medium::open(path, OpenMode::ReadOnly);
        }
        FileDevice::open_by_zones(path, wanted, progress).map(|device| Medium::File(Box::new(device)))
    }

    /// Writes the header of a volume anew where an opening for writing does not by itself
    /// ([`FileDevice::restore_header`]). A device with zones of its own has none.
    pub fn restore_header(
        path: &Path,
        force: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<RestoredHeader>, FileError> {
        if has_zones(path)? {
            return Ok(None);
        }
        FileDevice::restore_header(path, force, progress)
    }

    /// What is at a path: nothing, nothing of value, a volume, or something else. Changes nothing and needs
    /// no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        if has_zones(path)? { ZonedDevice::probe(path) } else { FileDevice::probe(path) }
    }

    /// Prepares to make a volume. Refuses what cannot be, and to overwrite what is there unless told to.
    pub fn draft(path: &Path, options: &VolumeOptions) -> Result<MediumDraft, FileError> {
        if !has_zones(path)? {
            return FileDevice::draft(path, &options.for_file(file::whole_block(path)))
                .map(MediumDraft::File);
        }
        options.refuse_shape_options(path)?;
        let draft = ZonedDevice::draft(path, options.fs_id, options.force)?;
        let has = draft.geometry().block_size;
        if let Some(asked) = options.block_size.filter(|&asked| asked != has) {
            let why = format!("its blocks have {has} bytes, not {asked}; leave --block-size away");
            return Err(FileError::Unsuitable { path: path.to_owned(), why });
        }
        Ok(MediumDraft::Zoned(draft))
    }

    /// The volume that is on it.
    pub fn fs_id(&self) -> FsId {
        match self {
            Medium::File(device) => device.fs_id(),
            Medium::Zoned(device) => device.fs_id(),
        }
    }

    /// What was damaged of what it keeps beside its zones, and was written anew when it was opened.
    pub fn repaired(&self) -> &[MetadataCopy] {
        match self {
            Medium::File(device) => device.repaired(),
            Medium::Zoned(_) => &[],
        }
    }

    /// What it is.
    pub fn kind(&self) -> MediumKind {
        match self {
            Medium::File(device) => device.kind(),
            Medium::Zoned(device) => device.kind(),
        }
    }

    /// Takes the memory for so many of the largest writes at once, so that they need none when it is short.
    pub fn prepare_writes(&self, count: usize) {
        match self {
            Medium::File(device) => device.prepare_writes(count),
            Medium::Zoned(device) => device.prepare_writes(count),
        }
    }

    /// The device alone.
    pub fn into_device(self) -> Arc<dyn Device> {
        match self {
            Medium::File(device) => Arc::<FileDevice>::from(device),
            Medium::Zoned(device) => Arc::<ZonedDevice>::from(device),
        }
    }
}

impl VolumeOptions {
    /// For a file, or a disk that writes so many bytes as a whole.
    fn for_file(&self, whole: u32) -> FileOptions {
        let usual = FileOptions::default();
        let max_open = self.max_open.unwrap_or(usual.max_open);
        FileOptions {
            size: self.size,
            block_size: self.block_size.unwrap_or(usual.block_size.max(whole)),
            zone_bytes: self.zone_bytes,
            zone_capacity: self.zone_capacity,
            max_open,
            max_active: self.max_active.unwrap_or(max_open),
            preallocate: self.preallocate,
            fs_id: self.fs_id,
            force: self.force,
        }
    }

    /// A zoned device is as it is.
    fn refuse_shape_options(&self, path: &Path) -> Result<(), FileError> {
        let given = [
            (self.size.is_some(), "--size"),
            (self.zone_bytes.is_some(), "--zone-size"),
            (self.zone_capacity.is_some(), "--zone-capacity"),
            (self.max_open.is_some(), "--max-open"),
            (self.max_active.is_some(), "--max-active"),
            (self.preallocate, "--preallocate"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(FileError::GivenByDevice { path: path.to_owned(), option }),
            None => Ok(()),
        }
    }
}

impl MediumDraft {
    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        match self {
            MediumDraft::File(draft) => draft.geometry(),
            MediumDraft::Zoned(draft) => draft.geometry(),
        }
    }

    /// Whether there is no file yet.
    pub fn is_new(&self) -> bool {
        matches!(self, MediumDraft::File(draft) if draft.is_new())
    }

    /// What of a zoned device is not used.
    pub fn unused_zones(&self) -> Option<UnusedZones> {
        match self {
            MediumDraft::File(_) => None,
            MediumDraft::Zoned(draft) => Some(draft.unused_zones()),
        }
    }

    /// Makes an empty device of it; what was there is lost. `done` is told of how many bytes are prepared, and
    /// of how many are to be.
    pub fn make(self, done: &mut dyn FnMut(u64, u64)) -> Result<Medium, FileError> {
        match self {
            MediumDraft::File(draft) => draft.make(done).map(|device| Medium::File(Box::new(device))),
            MediumDraft::Zoned(draft) => draft.make(done).map(|device| Medium::Zoned(Box::new(device))),
        }
    }
}

/// Whether what is at a path keeps its zones itself.
fn has_zones(path: &Path) -> Result<bool, FileError> {
    match std::fs::metadata(path) {
        Ok(known) => is_zoned(path, &known),
        // What else is wrong with it is said by whoever opens it.
        Err(_) => match missing_path(path) {
            FileError::NotFound(_) => Ok(false),
            error => Err(error),
        },
    }
}

/// What to say of a path at which nothing is: devices are not made by naming them.
pub fn missing_path(path: &Path) -> FileError {
    let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    let why = match generic_beside(path) {
        Some(generic) => format!("the kernel makes no block device of it; name {}", generic.display()),
        None if is_device && !path.exists() => {
            "there is no such device (`lsblk --paths` lists those that there are)".to_owned()
        }
        None => {
            let path = path.to_owned();
            return match broken_path(&path) {
                Some(why) => FileError::BrokenPath { path, why },
                None => FileError::NotFound(path),
            };
        }
    };
    FileError::Unsuitable { path: path.to_owned(), why }
}

/// Why a path does not lead to its last part, or a symbolic link leads nowhere. Nothing where only the last part is missing.
fn broken_path(path: &Path) -> Option<String> {
    let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    for part in parts.into_iter().rev() {
        let shown = part.display();
        match (std::fs::symlink_metadata(part), std::fs::metadata(part)) {
            (Ok(link), Err(error)) if link.is_symlink() && error.kind() == ErrorKind::NotFound => {
                let target = std::fs::read_link(part).unwrap_or_default();
                let target = target.display();
                return Some(format!(
                    "{shown} is a symbolic link to {target}, and nothing is there; correct the link, or name another path"
                ));
            }
            (Ok(_), Ok(about)) if part != path && !about.is_dir() => {
                return Some(format!("{shown} is not a directory; correct the path"));
            }
            (Err(error), _) if part != path && error.kind() == ErrorKind::NotFound => {
                return Some(format!(
                    "there is no directory {shown}; correct the path, or make it first (mkdir)"
                ));
            }
            (Ok(_), Ok(_)) => {}
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_brings_is_not_asked_for() {
        let path = Path::new("/dev/zoned");
        let refusal =
            |options: VolumeOptions| options.refuse_shape_options(path).err().map(|error| error.to_string());
        assert_eq!(
            refusal(VolumeOptions { force: true, block_size: Some(4096), ..VolumeOptions::default() }),
            None
        );
        for (options, option) in [
            (VolumeOptions { size: Some(1), ..VolumeOptions::default() }, "--size"),
            (VolumeOptions { zone_bytes: Some(1), ..VolumeOptions::default() }, "--zone-size"),
            (VolumeOptions { zone_capacity: Some(1), ..VolumeOptions::default() }, "--zone-capacity"),
            (VolumeOptions { max_open: Some(1), ..VolumeOptions::default() }, "--max-open"),
            (VolumeOptions { max_active: Some(1), ..VolumeOptions::default() }, "--max-active"),
            (VolumeOptions { preallocate: true, ..VolumeOptions::default() }, "--preallocate"),
        ] {
            let expected = format!("/dev/zoned has zones of its own; leave {option} away");
            assert_eq!(refusal(options), Some(expected));
        }
    }

    #[test]
    fn a_file_gets_what_is_usual_where_nothing_is_asked() {
        let options = VolumeOptions { max_open: Some(9), ..VolumeOptions::default() }.for_file(1);
        assert_eq!((options.block_size, options.max_open, options.max_active), (4096, 9, 9));
        assert_eq!(VolumeOptions::default().for_file(16384).block_size, 16384);
        assert_eq!(
            VolumeOptions { block_size: Some(512), ..VolumeOptions::default() }.for_file(16384).block_size,
            512
        );
    }
}
