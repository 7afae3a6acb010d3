//! `polder cp`: copies files out of a volume that is not mounted.
//!
//! The copy preserves contents with their holes, permissions, times, extended attributes, hard and symbolic links, and,
//! for root, owners and devices. All files of the copy are new: no existing file is overwritten, and no existing link is
//! followed, whatever names the volume contains.
//!
//! A file that cannot be read, or that the target refuses, is reported by its name and left out. Bytes that cannot be read
//! are zeros in the copy. The rest is copied. A target that is full, read-only or broken ends the copy.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{DirBuilder, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use fs::{Attributes, DirEntry, FsError, InodeNo, Kind};
use indicatif::ProgressBar;

use crate::copy_target::{
    CopyAttributes, Descent, Xattr, ends_all, make_file, make_node, set_owner, set_permissions_and_times,
    set_xattrs,
};
use crate::name::AnyPath;
use crate::output::error_line;
use crate::unmounted::{UnmountedVolume, last_name};
use crate::{progress, way};

const PIECE: u64 = 1 << 20;
/// Stands for the target directory, which is outside the volume.
const OUTSIDE: InodeNo = InodeNo(0);

/// Copy a file, or with -r a directory with everything below it, out of a volume that is not mounted.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL.
    volume: PathBuf,
    /// The path inside it, from its root.
    path: PathBuf,
    /// The target: a new name, or an existing directory.
    target: PathBuf,
    /// Copy directories too.
    #[arg(short, long)]
    recursive: bool,
}

/// A copy that is being made.
struct Copy {
    inside: UnmountedVolume,
    /// The directory in which files are now created.
    descent: Descent,
    /// The first copy of each inode with several names: the directory, and the name in it.
    links: HashMap<InodeNo, (InodeNo, OsString)>,
    bar: ProgressBar,
    is_root: bool,
    /// The directories copied so far, each with its parent and its name. In a sound volume each directory has one parent.
    entered: HashMap<InodeNo, (InodeNo, OsString)>,
    /// The number of files or attributes that could not be read, or were refused.
    problems: u64,
}

/// A directory that is being copied, with its remaining entries.
struct Level {
    found: Attributes,
    left: std::vec::IntoIter<DirEntry>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    way::refuse_silent(&arguments.target)?;
    let inside = UnmountedVolume::open(&arguments.volume)?;
    let found = inside.find(&arguments.path, !arguments.recursive)?;
    let shown = arguments.path.display();
    if found.kind == Kind::Directory && !arguments.recursive {
        bail!("{shown} in the volume is a directory; copy it with -r");
    }
    let (descent, name) = arguments.place(&found)?;
    let counting = progress::waiting("counting");
    let bytes = total(&inside, &found);
    counting.finish_and_clear();
    let is_root = rustix::process::geteuid().is_root();
    let bar = progress::moving(bytes);
    let (links, entered) = (HashMap::new(), HashMap::new());
    let mut copy = Copy { inside, descent, links, bar, is_root, entered, problems: 0 };
    copy.tree(&found, name)?;
    copy.bar.finish_and_clear();
    match copy.problems {
        0 => Ok(()),
        1 => bail!("the copy is not complete: 1 problem; see the previous line"),
        count => {
            bail!("the copy is not complete: {count} problems; see the previous lines")
        }
    }
}

impl Arguments {
    /// The directory and the name of the copy. The copy of a file goes into an existing target directory, or gets the name
    /// of the target. The root of a volume has no name, so its entries go directly into the target directory.
    fn place(&self, found: &Attributes) -> Result<(Descent, Option<OsString>)> {
        let target = &self.target;
        let outside = |directory: &Path| Descent::begin(directory, OUTSIDE.0);
        match (target.is_dir(), last_name(&self.path)) {
            (true, Some(name)) => Ok((outside(target)?, Some(name.to_owned()))),
            (true, None) if found.inode == InodeNo::ROOT => {
                Ok((Descent::begin(target, InodeNo::ROOT.0)?, None))
            }
            (true, None) => bail!(
                "{}: has no name for the copy; name a file or directory by its own name",
                self.path.display()
            ),
            (false, _) => {
                let name = target
                    .file_name()
                    .with_context(|| format!("{}: has no name; add one for the copy", target.display()))?;
                let above = target.parent().unwrap_or(Path::new(""));
                Ok((outside(above)?, Some(name.to_owned())))
            }
        }
    }
}

/// The sizes of all files at and below a directory, as far as they can be read.
fn total(inside: &UnmountedVolume, found: &Attributes) -> u64 {
    let (mut total, mut left, mut entered) = (0, vec![*found], HashSet::new());
    while let Some(found) = left.pop() {
        match found.kind {
            Kind::File => total += found.size,
            Kind::Directory if entered.insert(found.inode) => {
                let entries = inside.entries(found.inode).unwrap_or_default().into_iter();
                left.extend(entries.filter_map(|entry| inside.fs().attributes(entry.inode).ok()));
            }
            _ => {}
        }
    }
    total
}

impl Copy {
    /// Copies a file, and all files below it, to a name in the target directory. Without a name, copies the entries into the
    /// target directory.
    fn tree(&mut self, found: &Attributes, name: Option<OsString>) -> Result<()> {
        let first = match &name {
            Some(name) => self.make(found, name)?,
            None => {
                self.entered.insert(found.inode, (OUTSIDE, OsString::new()));
                Some(self.level(found))
            }
        };
        // Not recursive, because directories may be nested deeper than the stack permits.
        let mut levels = Vec::from_iter(first);
        while let Some(level) = levels.last_mut() {
            match level.left.next() {
                Some(entry) => levels.extend(self.entry(&entry)?),
                None => {
                    let left = levels.pop().expect("there is one");
                    // A target directory that existed before keeps its attributes.
                    if name.is_some() || !levels.is_empty() {
                        let name = self.descent.leave()?;
                        self.attributes(&left.found, &name);
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies one entry of the current directory. Returns the level to copy next if the entry is a directory.
    fn entry(&mut self, entry: &DirEntry) -> Result<Option<Level>> {
        if entry.name.is_empty() || entry.name.contains(&b'/') || matches!(&entry.name[..], b"." | b"..") {
            let problem = "has an entry with an invalid name; check the volume (polder check)";
            self.report(OsStr::new(""), problem);
            return Ok(None);
        }
        let name = OsStr::from_bytes(&entry.name);
        match self.inside.fs().attributes(entry.inode) {
            Ok(found) => self.make(&found, name),
            Err(error) => {
                self.unreadable(name, "the inode", &error);
                Ok(None)
            }
        }
    }

    /// Creates a copy of a file with its attributes. For a directory, returns the level to copy next.
    fn make(&mut self, found: &Attributes, name: &OsStr) -> Result<Option<Level>> {
        match self.make_one(found, name) {
            Ok(true) if found.kind == Kind::Directory => return Ok(Some(self.level(found))),
            Ok(true) => self.attributes(found, name),
            Ok(false) => {}
            Err(error) if ends_all(&error) => {
                return Err(error).with_context(|| self.shown(name).to_string());
            }
            Err(error) => self.report(name, &format!("is not copied: {error:#}")),
        }
        Ok(None)
    }

    fn shown(&self, name: &OsStr) -> AnyPath {
        AnyPath(self.descent.shown(name).components().collect())
    }

    /// Reports a problem with the copy of this name.
    fn report(&mut self, name: &OsStr, problem: &str) {
        self.problems += 1;
        let line = format!("polder: {}: {problem}", self.shown(name));
        self.bar.suspend(|| error_line!("{line}"));
    }

    fn unreadable(&mut self, name: &OsStr, part: &str, error: &impl Display) {
        self.report(name, &format!("{part} cannot be read: {error}"));
    }

    /// Creates a copy without its attributes: a regular file with its contents, or a directory, which is entered. Returns
    /// whether the attributes must be set.
    fn make_one(&mut self, found: &Attributes, name: &OsStr) -> Result<bool> {
        let has_names = found.links > 1 && found.kind != Kind::Directory;
        let to = self.descent.at(name);
        if has_names && let Some(first) = self.links.get(&found.inode) {
            self.link(first, &to)?;
            return Ok(false);
        }
        match found.kind {
            Kind::File => self.file(found, name)?,
            Kind::Directory => self.directory(found, name)?,
            Kind::Symlink => match self.inside.fs().read_link(found.inode) {
                Ok(target) => symlink(OsStr::from_bytes(&target), to)?,
                Err(error) => {
                    self.unreadable(name, "the target of the link", &error);
                    return Ok(false);
                }
            },
            kind => make_node(kind, found.device, &to)?,
        }
        if has_names {
            self.links.insert(found.inode, (InodeNo(self.descent.key()), name.to_owned()));
        }
        Ok(true)
    }

    fn link(&self, (directory, name): &(InodeNo, OsString), to: &Path) -> Result<()> {
        if directory.0 == self.descent.key() {
            return Ok(std::fs::hard_link(self.descent.at(name), to)?);
        }
        let (mut names, mut above) = (Vec::new(), *directory);
        while above.0 != self.descent.base_key() {
            let (parent, name) = &self.entered[&above];
            names.push(name.as_os_str());
            above = *parent;
        }
        let first = self.descent.elsewhere(names.into_iter().rev())?;
        Ok(std::fs::hard_link(first.at(name), to)?)
    }

    fn directory(&mut self, found: &Attributes, name: &OsStr) -> Result<()> {
        if self.entered.contains_key(&found.inode) {
            bail!("is a directory with more than one name; check the volume (polder check)");
        }
        let above = InodeNo(self.descent.key());
        DirBuilder::new().mode(0o700).create(self.descent.at(name))?;
        self.descent.enter(name, found.inode.0)?;
        self.entered.insert(found.inode, (above, name.to_owned()));
        Ok(())
    }

    /// The entries of a directory that was entered.
    fn level(&mut self, found: &Attributes) -> Level {
        let entries = self.inside.entries(found.inode).unwrap_or_else(|error| {
            self.unreadable(OsStr::new(""), "the entries", &error);
            Vec::new()
        });
        Level { found: *found, left: entries.into_iter() }
    }

    fn file(&mut self, found: &Attributes, name: &OsStr) -> Result<()> {
        let lost = make_file(&self.descent.at(name), |file| {
            file.set_len(found.size)?;
            self.contents(found, file)
        })?;
        match lost {
            None => {}
            Some((0, error)) => self.unreadable(name, "the extents", &error),
            Some((bytes, error)) => {
                self.unreadable(name, &format!("{bytes} bytes, which are zeros in the copy,"), &error);
            }
        }
        self.bar.inc(found.size);
        Ok(())
    }

    /// Copies the contents. Returns the number of bytes that could not be read, and the error. The number is 0 if the data
    /// cannot be located.
    fn contents(&self, found: &Attributes, to: &File) -> Result<Option<(u64, Error)>> {
        let handle = match self.inside.open_to_read(found.inode) {
            Ok(handle) => handle,
            Err(error) => return Ok(Some((0, error))),
        };
        let fs = self.inside.fs();
        let (mut offset, mut lost) = (0, None);
        let mut buffer = vec![0; PIECE.min(found.size) as usize];
        loop {
            let data = fs.seek_data(&handle, offset);
            let range = data.and_then(|data| Ok(data..fs.seek_hole(&handle, data)?));
            let range = match range {
                Ok(range) => range,
                Err(FsError::NoData) => return Ok(lost),
                Err(error) => return Ok(Some((0, error.into()))),
            };
            offset = range.end;
            if let Some((bytes, error)) = self.range(&handle, to, range, &mut buffer)? {
                lost = Some((bytes + lost.map_or(0, |(bytes, _)| bytes), error));
            }
        }
    }

    /// The same for a range. If a piece cannot be read, its blocks are read one by one.
    fn range(
        &self,
        from: &fs::Handle,
        to: &File,
        range: Range<u64>,
        buffer: &mut [u8],
    ) -> Result<Option<(u64, Error)>> {
        let block = u64::from(self.inside.fs().extents().block_size());
        let (mut offset, mut lost, mut one_by_one_to) = (range.start, None, 0);
        while offset < range.end {
            let most = if offset < one_by_one_to { block - offset % block } else { buffer.len() as u64 };
            let length = most.min(range.end - offset);
            match self.inside.fs().read(from, offset, &mut buffer[..length as usize]) {
                Ok(0) => return Err(anyhow!("ends before its size")),
                Ok(count) => {
                    to.write_all_at(&buffer[..count], offset)?;
                    offset += count as u64;
                }
                Err(_) if length > block => one_by_one_to = offset + length,
                Err(error) => {
                    lost = Some((length + lost.map_or(0, |(bytes, _)| bytes), error.into()));
                    offset += length;
                }
            }
        }
        Ok(lost)
    }

    fn xattrs(&self, found: &Attributes) -> Result<Vec<Xattr>, FsError> {
        let (fs, caller) = (self.inside.fs(), self.inside.caller());
        let names = fs.list_xattrs(caller, found.inode)?.into_iter();
        names.map(|name| fs.get_xattr(caller, found.inode, &name).map(|value| (name, value))).collect()
    }

    fn attributes(&mut self, found: &Attributes, name: &OsStr) {
        let (to, attributes, mut refused) = (self.descent.at(name), CopyAttributes::from(found), Vec::new());
        if self.is_root {
            set_owner(&attributes, &to, &mut refused);
        }
        match self.xattrs(found) {
            Ok(xattrs) => set_xattrs(&xattrs, &to, &mut refused),
            Err(error) => self.unreadable(name, "an extended attribute", &error),
        }
        set_permissions_and_times(&attributes, &to, &mut refused);
        for refused in refused {
            self.report(name, &format!("{} cannot be set there: {}", refused.attribute, refused.error));
        }
    }
}
