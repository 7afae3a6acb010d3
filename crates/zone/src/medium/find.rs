//! Finds the members of a volume.
//!
//! A member is known by its label. Its path says nothing: devices change their names, and files are moved. So these
//! places are searched, and the label of each candidate is read:
//!
//! 1. the paths that are given,
//! 2. if one of them is a file, the directory that contains it,
//! 3. if members are still missing, or a block device is given, all block devices.
//!
//! A file that is found must belong to the owner of a file that is given, or to root. Otherwise another user could put a
//! forged member into the directory.
//!
//! A member that was found in an earlier step is not looked for again. So a copy of a given file, or the loop device of
//! a file, is no obstacle. Two copies of one member in the same step are: nothing says which is the right one.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::FsId;
use crate::file::{FileDevice, FileError};
use crate::set::{MemberId, MemberLabel};
use crate::zoned::{ZonedDevice, is_zoned};

const BLOCK_DEVICES: &str = "/sys/class/block";
const GENERIC_DEVICES: &str = "/sys/class/nvme-generic";

/// A member, and where it is.
#[derive(Clone, Debug)]
pub(super) struct FoundMember {
    /// Its file or device.
    pub path: PathBuf,
    /// The label that was read there.
    pub label: MemberLabel,
}

/// The identity of a file or device, independent of its path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity(bool, u64, u64);

impl Identity {
    /// The identity of what is at a path.
    pub(super) fn at(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().map(|known| Identity::of(&known))
    }

    fn of(known: &Metadata) -> Identity {
        let kind = known.file_type();
        match kind.is_block_device() || kind.is_char_device() {
            true => Identity(true, known.rdev(), 0),
            false => Identity(false, known.dev(), known.ino()),
        }
    }
}

/// The label of a member of a set at a path; `None` if it is something else, or cannot be read. Changes nothing and
/// needs no lock.
pub fn member_label(path: &Path) -> Option<MemberLabel> {
    let known = fs::metadata(path).ok()?;
    match is_zoned(path, &known) {
        Ok(true) => ZonedDevice::member_label(path),
        Ok(false) => FileDevice::member_label(path),
        Err(_) => None,
    }
}

/// The members of the volume that has the member at `path`. All of `given` must be members, too.
pub(super) fn find(
    path: &Path,
    label: MemberLabel,
    given: &[PathBuf],
) -> Result<Vec<FoundMember>, FileError> {
    let mut search = Search::new(label.fs_id());
    search.add_given(path, label)?;
    for other in given {
        let label = member_label(other).ok_or_else(|| no_member(other))?;
        search.add_given(other, label)?;
    }
    let is_device = |path: &PathBuf| fs::metadata(path).is_ok_and(|known| !known.file_type().is_file());
    let paths: Vec<PathBuf> = search.paths().collect();
    let mut directories: Vec<PathBuf> =
        paths.iter().filter(|path| !is_device(path)).filter_map(|path| directory_of(path)).collect();
    directories.sort();
    directories.dedup();
    search.step(directories.iter().flat_map(|directory| files_in(directory)))?;
    if paths.iter().any(is_device) || search.is_incomplete() {
        search.step(devices())?;
    }
    Ok(search.found)
}

/// What was found so far.
struct Search {
    fs_id: FsId,
    found: Vec<FoundMember>,
    seen: Vec<Identity>,
    /// The users whose files count: root, and the owners of the files that are given.
    owners: Vec<u32>,
}

impl Search {
    fn new(fs_id: FsId) -> Search {
        Search { fs_id, found: Vec::new(), seen: Vec::new(), owners: vec![0] }
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.found.iter().map(|found| found.path.clone())
    }

    /// Adds a member that is given. The same file twice is no error.
    fn add_given(&mut self, path: &Path, label: MemberLabel) -> Result<(), FileError> {
        if label.fs_id() != self.fs_id {
            let why =
                format!("is a member of the volume {}, not of {}; leave it out", label.fs_id(), self.fs_id);
            return Err(FileError::Member { path: path.to_owned(), why });
        }
        let known = fs::metadata(path).map_err(|error| FileError::io(path, "read it", error))?;
        if self.is_seen(&known) {
            return Ok(());
        }
        if let Some(other) = self.with_id(label.id()) {
            return Err(copies(&other.path, path, &label));
        }
        self.owners.push(known.uid());
        self.found.push(FoundMember { path: path.to_owned(), label });
        Ok(())
    }

    /// Whether this file or device was seen before. From now on it was.
    fn is_seen(&mut self, known: &Metadata) -> bool {
        let identity = Identity::of(known);
        let is_seen = self.seen.contains(&identity);
        self.seen.push(identity);
        is_seen
    }

    fn with_id(&self, id: MemberId) -> Option<&FoundMember> {
        self.found.iter().find(|found| found.label.id() == id)
    }

    /// Adds the members among candidates.
    fn step(&mut self, candidates: impl Iterator<Item = PathBuf>) -> Result<(), FileError> {
        let mut new: Vec<FoundMember> = Vec::new();
        for path in candidates {
            let Ok(known) = fs::metadata(&path) else { continue };
            let is_foreign = known.file_type().is_file() && !self.owners.contains(&known.uid());
            if is_foreign || self.is_seen(&known) {
                continue;
            }
            let Some(label) = member_label(&path).filter(|label| label.fs_id() == self.fs_id) else {
                continue;
            };
            if self.with_id(label.id()).is_some() {
                continue;
            }
            if let Some(other) = new.iter().find(|found| found.label.id() == label.id()) {
                return Err(copies(&other.path, &path, &label));
            }
            new.push(FoundMember { path, label });
        }
        self.found.append(&mut new);
        Ok(())
    }

    /// Whether members of a known set are missing, or a set before a known one.
    fn is_incomplete(&self) -> bool {
        let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for found in &self.found {
            let count = counts.entry(found.label.set()).or_insert((found.label.width(), 0));
            count.1 += 1;
        }
        (0..).zip(&counts).any(|(number, (set, (width, found)))| *set != number || found < width)
    }
}

fn directory_of(path: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    path.parent().map(Path::to_owned)
}

/// The files in a directory, and links to files and devices, in the order of their names.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_candidate = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|known| {
            let kind = known.file_type();
            kind.is_file() && known.len() > 0 || kind.is_block_device()
        })
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_candidate).collect();
    paths.sort();
    paths
}

/// The block devices, and the generic devices of namespaces for which the kernel has no block device. A device that is
/// a part of another one (of a RAID, or below dm) is left out: the other one has the same contents.
fn devices() -> impl Iterator<Item = PathBuf> {
    // A slash in the name of a device is an exclamation mark there.
    let path = |name: &str| Path::new("/dev").join(name.replace('!', "/"));
    let names = |of: &str| {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let has_size = |name: &str| {
        let size = fs::read_to_string(Path::new(BLOCK_DEVICES).join(name).join("size"));
        size.is_ok_and(|size| size.trim() != "0")
    };
    let is_part = |name: &str| {
        let users = fs::read_dir(Path::new(BLOCK_DEVICES).join(name).join("holders"));
        users.is_ok_and(|mut users| users.next().is_some())
    };
    let blocks = names(BLOCK_DEVICES).into_iter().filter(move |name| has_size(name) && !is_part(name));
    let is_alone =
        move |name: &String| name.strip_prefix("ng").is_none_or(|number| !has_size(&format!("nvme{number}")));
    let generic = names(GENERIC_DEVICES).into_iter().filter(is_alone);
    blocks.chain(generic).map(move |name| path(&name))
}

fn no_member(path: &Path) -> FileError {
    if let Err(error) = fs::File::open(path)
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        return FileError::denied(path, &error);
    }
    let why = match path.exists() {
        true => "is not a member of a volume on several devices; leave it out, or correct the path",
        false => "no such file; correct the path of this member",
    };
    FileError::Member { path: path.to_owned(), why: why.to_owned() }
}

fn copies(one: &Path, other: &Path, label: &MemberLabel) -> FileError {
    let why = format!(
        "and {} are copies of one member (set {}, position {}); name the right one (`polder mount -o device=PATH`), or \
         move the other one away",
        other.display(),
        label.set(),
        label.position()
    );
    FileError::Member { path: one.to_owned(), why }
}
