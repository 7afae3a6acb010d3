//! The medium of a volume: a file or device of this machine, several of them, or an object store.
//!
//! The name decides: a URL is an object store, everything else a path. [`store`] has everything about stores.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use object::{ObjectDevice, is_url};
use zone::file::{FileContents, FileError, OpenMode, RestoredHeader};
use zone::medium::{Members, SetOptions, member_label};
use zone::{Device, FsId, MetadataCopy};

use super::store;

/// The open medium of a volume.
pub enum Medium {
    /// A file, a device, or several.
    Local(zone::Medium),
    /// An object store.
    Objects(Box<ObjectDevice>),
}

/// How a medium is opened.
#[derive(Clone, Debug, Default)]
pub struct MediumOptions {
    /// The members of a volume on several devices.
    pub sets: SetOptions,
    /// Whether the ownership of another process is ended that may be alive. Only for object stores.
    pub takes_over: bool,
    /// Whether a volume in an object store may be opened for reading while a process owns it that this one cannot ask.
    /// The contents are those of the owner's last flush, and reading them fails when the owner has deleted them.
    pub reads_beside_owner: bool,
}

/// Whether a volume is in an object store. The only place that distinguishes a URL from a path.
pub fn is_stored(named: &Path) -> bool {
    named.to_str().is_some_and(is_url)
}

/// A path as it is, and a URL in the form that all names of a place have in common.
pub(crate) fn normal_name(named: &Path) -> Result<Cow<'_, Path>, FileError> {
    if is_stored(named) { store::normal_url(named).map(Cow::Owned) } else { Ok(Cow::Borrowed(named)) }
}

/// The id of a volume that can be known without opening it, although opening it changes it: one on several devices, or
/// in an object store. `None` for all others.
///
/// # Errors
/// A store does not say whether it has one.
pub fn id_before_opening(path: &Path) -> Result<Option<FsId>, FileError> {
    match is_stored(path) {
        true => store::probe(path),
        false => Ok(member_label(path).map(|label| label.fs_id())),
    }
}

impl Medium {
    /// Opens a volume, and locks it until the medium is dropped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Medium, FileError> {
        Medium::open_with(path, mode, &MediumOptions::default())
    }

    /// The same with options.
    pub fn open_with(path: &Path, mode: OpenMode, options: &MediumOptions) -> Result<Medium, FileError> {
        match is_stored(path) {
            true => store::open(path, mode, options).map(|device| Medium::Objects(Box::new(device))),
            false if options.takes_over => {
                let why = "only a volume in an object store can be taken over; leave takeover out, and end the process \
                           that uses this one";
                Err(FileError::Unsuitable { path: path.to_owned(), why: why.to_owned() })
            }
            false => zone::Medium::open_with(path, mode, &options.sets).map(Medium::Local),
        }
    }

    /// Opens a volume without a header for reading, by the headers of its zones ([`zone::Medium::open_by_zones`]). In an
    /// object store nothing else than the id is compared.
    pub fn open_by_zones(
        path: &Path,
        wanted: Option<FsId>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Medium, FileError> {
        if !is_stored(path) {
            return zone::Medium::open_by_zones(path, wanted, progress).map(Medium::Local);
        }
        let options = MediumOptions { reads_beside_owner: true, ..MediumOptions::default() };
        let medium = Medium::open_with(path, OpenMode::ReadOnly, &options)?;
        match wanted.is_none_or(|wanted| wanted == medium.fs_id()) {
            true => Ok(medium),
            false => Err(store::is_other(path, medium.fs_id())),
        }
    }

    /// Restores the header of a volume ([`zone::Medium::restore_header`]). A volume in an object store has none.
    pub fn restore_header(
        path: &Path,
        force: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<RestoredHeader>, FileError> {
        if is_stored(path) {
            return Ok(None);
        }
        zone::Medium::restore_header(path, force, progress)
    }

    /// The contents of a path or URL. Changes nothing and needs no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        if is_stored(path) { store::contents(path) } else { zone::Medium::probe(path) }
    }

    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        match self {
            Medium::Local(medium) => medium.fs_id(),
            Medium::Objects(device) => device.fs_id(),
        }
    }

    /// The damaged copies of device metadata that were repaired when it was opened.
    pub fn repaired(&self) -> &[MetadataCopy] {
        match self {
            Medium::Local(medium) => medium.repaired(),
            Medium::Objects(_) => &[],
        }
    }

    /// The members of a volume on several devices.
    pub fn members(&self) -> Option<&Arc<Members>> {
        match self {
            Medium::Local(medium) => medium.members(),
            Medium::Objects(_) => None,
        }
    }

    /// What a reader should know if another process owns the volume ([`MediumOptions::reads_beside_owner`]).
    pub fn other_owner(&self) -> Option<String> {
        match self {
            Medium::Local(_) => None,
            Medium::Objects(device) => device.other_owner().map(store::owned_elsewhere),
        }
    }

    /// Allocates the memory for `count` concurrent writes of the largest size, if the medium needs some.
    pub fn prepare_writes(&self, count: usize) {
        match self {
            Medium::Local(medium) => medium.prepare_writes(count),
            Medium::Objects(_) => {}
        }
    }

    /// Returns the device.
    pub fn into_device(self) -> Arc<dyn Device> {
        match self {
            Medium::Local(medium) => medium.into_device(),
            Medium::Objects(device) => Arc::<ObjectDevice>::from(device),
        }
    }
}
