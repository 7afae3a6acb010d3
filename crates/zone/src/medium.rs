//! The medium of a volume: a file, a block device, or a zoned device.
//!
//! The path decides. A block device with zones is used with these zones, and so is an NVMe namespace by its generic
//! device (`/dev/ngXnY`). Any other block device, and any file, is used with zones in software ([`crate::file`]).
//!
//! A volume may be on several devices. It is opened by the path of any of its members: the label of the member says to
//! which volume it belongs, and the other members are found (`find`).

mod find;
mod members;
mod replacing;
mod set_draft;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::{
    self, FileContents, FileDevice, FileDraft, FileError, FileOptions, OpenMode, RestoredHeader,
};
use crate::zoned::{UnusedZones, ZonedDevice, ZonedDraft, generic_beside, is_zoned};
use crate::{Blocks, Device, FsId, Geometry, MetadataCopy};

pub use self::find::member_label;
pub use self::members::{
    Degraded, MemberCondition, MemberReport, Members, SetMedium, SetOptions, SetReport, survey,
};
pub use self::replacing::{OldMember, RebuildReport};
pub use self::set_draft::{PlannedLayout, SetPlan, SetsDraft, UnusedPart};
pub use crate::medium_kind::MediumKind;

/// The open device of a volume.
pub enum Medium {
    /// Zones in a file, or on a block device without zones.
    File(Box<FileDevice>),
    /// A device with zones.
    Zoned(Box<ZonedDevice>),
    /// Several devices.
    Sets(Box<SetMedium>),
}

/// The options of a new volume. For `None`, a default is derived, or the device determines the value.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    /// Bytes of the whole volume.
    pub size: Option<u64>,
    /// Bytes of a logical block.
    pub block_size: Option<u32>,
    /// Bytes of a zone.
    pub zone_bytes: Option<u64>,
    /// The capacity of a zone in bytes.
    pub zone_capacity: Option<u64>,
    /// How many zones may be open at once.
    pub max_open: Option<u32>,
    /// How many zones may be active at once.
    pub max_active: Option<u32>,
    /// Whether all of the host's blocks are allocated at once.
    pub preallocate: bool,
    /// The volume.
    pub fs_id: FsId,
    /// Whether existing contents may be overwritten.
    pub force: bool,
}

/// A volume that can be created as far as its medium is concerned. Nothing is written yet.
pub enum MediumDraft {
    /// In a file, or on a block device without zones.
    File(FileDraft),
    /// On a device with zones.
    Zoned(ZonedDraft),
    /// On several devices.
    Sets(Box<SetsDraft>),
}

impl Medium {
    /// Opens a volume, and locks it until the medium is dropped. All members of a volume on several devices must be
    /// found.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Medium, FileError> {
        Medium::open_with(path, mode, &SetOptions::default())
    }

    /// The same with members that are given, or without some of them.
    pub fn open_with(path: &Path, mode: OpenMode, options: &SetOptions) -> Result<Medium, FileError> {
        if let Some(label) = member_label(path) {
            let opened = SetMedium::open(path, label, mode, options)?;
            return Ok(Medium::Sets(Box::new(opened)));
        }
        let medium = Medium::open_single(path, mode)?;
        match options.devices.first() {
            None => Ok(medium),
            Some(other) => {
                let why = format!("is a volume on one device; leave {} out", other.display());
                Err(FileError::Member { path: path.to_owned(), why })
            }
        }
    }

    fn open_single(path: &Path, mode: OpenMode) -> Result<Medium, FileError> {
        if has_zones(path)? {
            return ZonedDevice::open(path, mode).map(|device| Medium::Zoned(Box::new(device)));
        }
        let device = FileDevice::open(path, mode)?;
        if device.is_member() {
            let why = "is a member of a volume on several devices, and its label cannot be read; name another member";
            return Err(FileError::Member { path: path.to_owned(), why: why.to_owned() });
        }
        Ok(Medium::File(Box::new(device)))
    }

    /// Opens a volume without a header for reading, by the headers of its zones ([`FileDevice::open_by_zones`]).
    /// `progress` receives the bytes searched and the total.
    pub fn open_by_zones(
        path: &Path,
        wanted: Option<FsId>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Medium, FileError> {
        if has_zones(path)? || member_label(path).is_some() {
            return Medium::open(path, OpenMode::ReadOnly);
        }
        FileDevice::open_by_zones(path, wanted, progress).map(|device| Medium::File(Box::new(device)))
    }

    /// Restores the header of a volume in the cases in which an open for writing does not do so
    /// ([`FileDevice::restore_header`]). A device with zones has no such header.
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

    /// The contents of a path: nothing, zeros, a volume, or something else. Changes nothing and needs no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        if has_zones(path)? { ZonedDevice::probe(path) } else { FileDevice::probe(path) }
    }

    /// Prepares a volume. Refuses impossible options, and existing contents unless the options permit to overwrite
    /// them.
    pub fn draft(path: &Path, options: &VolumeOptions) -> Result<MediumDraft, FileError> {
        Medium::draft_single(path, options, false)
    }

    /// Prepares a volume on several devices, with the same checks of each of them.
    pub fn draft_sets(plans: &[SetPlan], options: &VolumeOptions) -> Result<MediumDraft, FileError> {
        SetsDraft::new(plans, options).map(|draft| MediumDraft::Sets(Box::new(draft)))
    }

    /// Prepares a member. In a mixture, the options for the shape are those of the other members.
    fn draft_member(
        path: &Path,
        options: &VolumeOptions,
        is_mixture: bool,
    ) -> Result<MediumDraft, FileError> {
        match is_mixture && has_zones(path)? {
            true => {
                let VolumeOptions { fs_id, force, .. } = *options;
                Medium::draft_single(path, &VolumeOptions { fs_id, force, ..VolumeOptions::default() }, true)
            }
            false => Medium::draft_single(path, options, true),
        }
    }

    fn draft_single(path: &Path, options: &VolumeOptions, is_member: bool) -> Result<MediumDraft, FileError> {
        if !has_zones(path)? {
            let options = FileOptions { is_member, ..options.for_file(file::physical_block(path)) };
            return FileDevice::draft(path, &options).map(MediumDraft::File);
        }
        options.refuse_shape_options(path)?;
        let draft = ZonedDevice::draft(path, options.fs_id, options.force)?;
        let has = draft.geometry().block_size;
        if let Some(asked) = options.block_size.filter(|&asked| asked != has) {
            let why = format!("its blocks have {has} bytes, not {asked}; omit --block-size");
            return Err(FileError::Unsuitable { path: path.to_owned(), why });
        }
        Ok(MediumDraft::Zoned(draft))
    }

    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        match self {
            Medium::File(device) => device.fs_id(),
            Medium::Zoned(device) => device.fs_id(),
            Medium::Sets(sets) => sets.fs_id(),
        }
    }

    /// The damaged copies of device metadata that were repaired when it was opened.
    pub fn repaired(&self) -> &[MetadataCopy] {
        match self {
            Medium::File(device) => device.repaired(),
            Medium::Zoned(_) => &[],
            Medium::Sets(sets) => sets.repaired(),
        }
    }

    /// The members of a volume on several devices.
    pub fn members(&self) -> Option<&Arc<Members>> {
        match self {
            Medium::File(_) | Medium::Zoned(_) => None,
            Medium::Sets(sets) => Some(sets.members()),
        }
    }

    /// The kind of the medium.
    pub fn kind(&self) -> MediumKind {
        match self {
            Medium::File(device) => device.kind(),
            Medium::Zoned(device) => device.kind(),
            Medium::Sets(_) => MediumKind::Sets,
        }
    }

    /// Allocates the memory for `count` concurrent writes of the largest size, so that they need none when memory is
    /// short.
    pub fn prepare_writes(&self, count: usize) {
        match self {
            Medium::File(device) => device.prepare_writes(count),
            Medium::Zoned(device) => device.prepare_writes(count),
            Medium::Sets(sets) => sets.prepare_writes(count),
        }
    }

    /// Returns the device.
    pub fn into_device(self) -> Arc<dyn Device> {
        match self {
            Medium::File(device) => Arc::<FileDevice>::from(device),
            Medium::Zoned(device) => Arc::<ZonedDevice>::from(device),
            Medium::Sets(sets) => sets.into_device(),
        }
    }
}

impl VolumeOptions {
    /// The options for a file, or for a disk whose physical blocks have `whole` bytes.
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
            is_member: false,
            fs_id: self.fs_id,
            force: self.force,
        }
    }

    /// Refuses options that a zoned device determines.
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
            MediumDraft::Sets(draft) => draft.geometry(),
        }
    }

    /// The capacity of its last zone, as far as that is known before it is made.
    fn last_zone(&self) -> Blocks {
        match self {
            MediumDraft::File(draft) => draft.last_zone(),
            MediumDraft::Zoned(draft) => draft.geometry().zone_blocks,
            MediumDraft::Sets(draft) => draft.geometry().zone_blocks,
        }
    }

    /// Whether there is no file yet.
    pub fn is_new(&self) -> bool {
        matches!(self, MediumDraft::File(draft) if draft.is_new())
    }

    /// Creates the files that do not exist yet, and returns their paths. If this fails, none of them is left.
    pub fn create_files(&mut self) -> Result<Vec<PathBuf>, FileError> {
        match self {
            MediumDraft::File(draft) => {
                Ok(if draft.create_file()? { vec![draft.path().to_owned()] } else { Vec::new() })
            }
            MediumDraft::Zoned(_) => Ok(Vec::new()),
            MediumDraft::Sets(draft) => draft.create_files(),
        }
    }

    /// The parts of members that are not used.
    pub fn unused_parts(&self) -> Vec<UnusedPart> {
        match self {
            MediumDraft::File(_) | MediumDraft::Zoned(_) => Vec::new(),
            MediumDraft::Sets(draft) => draft.unused_parts(),
        }
    }

    /// The zones of a zoned device that are not used.
    pub fn unused_zones(&self) -> Option<UnusedZones> {
        match self {
            MediumDraft::File(_) | MediumDraft::Sets(_) => None,
            MediumDraft::Zoned(draft) => Some(draft.unused_zones()),
        }
    }

    /// Creates an empty device; old contents are lost. `done` receives the prepared bytes and the total.
    pub fn make(self, done: &mut dyn FnMut(u64, u64)) -> Result<Medium, FileError> {
        match self {
            MediumDraft::File(draft) => draft.make(done).map(|device| Medium::File(Box::new(device))),
            MediumDraft::Zoned(draft) => draft.make(done).map(|device| Medium::Zoned(Box::new(device))),
            MediumDraft::Sets(draft) => draft.make(done).map(|sets| Medium::Sets(Box::new(sets))),
        }
    }
}

/// Whether the device at a path has zones.
fn has_zones(path: &Path) -> Result<bool, FileError> {
    match std::fs::metadata(path) {
        Ok(known) => is_zoned(path, &known),
        // Other errors are reported when it is opened.
        Err(_) => match missing_path(path) {
            FileError::NotFound(_) => Ok(false),
            error => Err(error),
        },
    }
}

/// The error for a path that does not exist. Devices cannot be created by naming them.
pub fn missing_path(path: &Path) -> FileError {
    let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    let why = match generic_beside(path) {
        Some(generic) => format!("the kernel has no block device for it; name {}", generic.display()),
        None if is_device && !path.exists() => {
            "there is no such device; name another (`lsblk --paths` lists them)".to_owned()
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

/// The reason why a directory of the path cannot be used, or why a symbolic link is broken. `None` if only the last
/// part is missing.
fn broken_path(path: &Path) -> Option<String> {
    let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    for part in parts.into_iter().rev() {
        let shown = part.display();
        match (std::fs::symlink_metadata(part), std::fs::metadata(part)) {
            (Ok(link), Err(error)) if link.is_symlink() && error.kind() == ErrorKind::NotFound => {
                let target = std::fs::read_link(part).unwrap_or_default();
                let target = target.display();
                return Some(format!(
                    "{shown} is a symbolic link to {target}, which does not exist; correct the link, or name another path"
                ));
            }
            (Ok(_), Ok(about)) if part != path && !about.is_dir() => {
                return Some(format!("{shown} is not a directory; correct the path"));
            }
            (Err(error), _) if part != path && error.kind() == ErrorKind::NotFound => {
                return Some(format!(
                    "there is no directory {shown}; correct the path, or create it first (mkdir)"
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
    fn options_that_a_zoned_device_determines_are_refused() {
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
            let expected = format!("/dev/zoned has zones of its own; omit {option}");
            assert_eq!(refusal(options), Some(expected));
        }
    }

    #[test]
    fn a_file_gets_defaults_for_missing_options() {
        let options = VolumeOptions { max_open: Some(9), ..VolumeOptions::default() }.for_file(1);
        assert_eq!((options.block_size, options.max_open, options.max_active), (4096, 9, 9));
        assert_eq!(VolumeOptions::default().for_file(16384).block_size, 16384);
        assert_eq!(
            VolumeOptions { block_size: Some(512), ..VolumeOptions::default() }.for_file(16384).block_size,
            512
        );
    }
}
