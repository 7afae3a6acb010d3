//! Files that are named on the command line: by their paths in a mount, or by a volume that nobody has mounted and
//! their paths inside it. Directories stand for all files below them.
//!
//! In a mount a file is known by its number, and only the daemon of the mount is asked about it: who may ask that
//! may ask about every file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs::{Attributes, Fs, FsError, InodeNo, Kind};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::control::Request;
use crate::info::Info;
use crate::inside::Inside;
use crate::outside::Descent;
use crate::{volume, way};

/// How a file lies in zones; also the answer to the control request `layout`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileLayout {
    pub(crate) block_size: u32,
    pub(crate) blocks: u64,
    pub(crate) extents: u64,
    pub(crate) fragments: u64,
    pub(crate) zones: u64,
    /// Reads of the device that it takes to read the file, a mebibyte at a time.
    pub(crate) reads: u64,
    /// As few as it could take.
    pub(crate) reads_least: u64,
    /// Whether `defrag` would do something.
    pub(crate) scattered: bool,
}

/// What a piece of putting together came to; also the answer to the control request `defragment`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileStep {
    pub(crate) blocks_moved: u64,
    /// The block to go on with; none: that was all.
    pub(crate) next: Option<u64>,
}

impl FileLayout {
    /// Nothing when the file is gone.
    pub(crate) fn of(fs: &Fs, inode: u64) -> Result<Option<FileLayout>> {
        let Some(layout) = unless_gone(fs.layout(InodeNo(inode)))? else { return Ok(None) };
        Ok(Some(FileLayout {
            block_size: fs.extents().block_size(),
            blocks: layout.blocks,
            extents: layout.extents,
            fragments: layout.fragments,
            zones: layout.zones,
            reads: layout.reads,
            reads_least: layout.reads_least,
            scattered: layout.scattered,
        }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

impl FileStep {
    pub(crate) fn of(fs: &Fs, inode: u64, from: u64) -> Result<FileStep> {
        let done = unless_gone(fs.defragment(InodeNo(inode), from))?.unwrap_or_default();
        Ok(FileStep { blocks_moved: done.blocks_moved, next: done.next })
    }
}

fn unless_gone<T>(result: fs::Result<T>) -> Result<Option<T>> {
    match result {
        Err(FsError::Stale) => Ok(None),
        result => Ok(Some(result?)),
    }
}

/// A file that can be asked about.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// As the user would write it.
    pub(crate) path: PathBuf,
    inode: u64,
    /// The device of its mount; 0 in a volume that is not mounted.
    device: u64,
}

/// Who is asked.
enum Keeper {
    /// The daemons of mounts, by their devices.
    Daemons(BTreeMap<u64, Client>),
    /// A volume that this process has open.
    Opened(Inside),
}

/// The files, each once, and who is asked about them.
pub(crate) struct Files {
    keeper: Keeper,
    pub(crate) files: Vec<Named>,
}

impl Files {
    /// Finds all of them. A first path that is a volume's and lies in no mount names the volume for the others,
    /// which is opened as `open` does.
    pub(crate) fn find(paths: &[PathBuf], open: fn(&Path) -> Result<Inside>) -> Result<Files> {
        let (first, rest) = paths.split_first().context("no file is named")?;
        way::refuse_silent(first)?;
        if volume::mount_around(first).is_ok() || !volume::is_volume(first)? {
            return Self::in_mounts(paths);
        }
        if rest.is_empty() {
            bail!("{}: is a volume; name files inside it after it, like / for all", first.display());
        }
        let inside = open(first)?;
        let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
        for path in rest {
            let found = inside.find(path, true)?;
            if !matches!(found.kind, Kind::File | Kind::Directory) {
                bail!("{} in the volume: is neither a file nor a directory; name such", path.display());
            }
            below(&inside, path, &found, &mut |path, inode| {
                if seen.insert(inode.0) {
                    files.push(Named { path, inode: inode.0, device: 0 });
                }
            })?;
        }
        Ok(Files { keeper: Keeper::Opened(inside), files })
    }

    fn in_mounts(paths: &[PathBuf]) -> Result<Files> {
        let (mut files, mut daemons, mut seen) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for path in paths {
            let (about, entry) = volume::mount_around(path)?;
            if let Some(kind) = volume::special_type(&about) {
                bail!(
                    "{}: is {kind}, which has no data in zones; name files and directories",
                    path.display()
                );
            }
            let device = about.dev();
            if let std::collections::btree_map::Entry::Vacant(vacant) = daemons.entry(device) {
                vacant.insert(volume::daemon_of(&entry)?);
            }
            below_mounted(path, &about, &mut |path, about| {
                if seen.insert((device, about.ino())) {
                    files.push(Named { path, inode: about.ino(), device });
                }
            })?;
        }
        Ok(Files { keeper: Keeper::Daemons(daemons), files })
    }

    /// How a file lies; nothing when it is gone.
    pub(crate) fn layout(&mut self, file: &Named) -> Result<Option<FileLayout>> {
        let layout = match &mut self.keeper {
            Keeper::Opened(inside) => FileLayout::of(inside.fs(), file.inode),
            Keeper::Daemons(daemons) => {
                write_back(&file.path);
                daemon(daemons, file)?.ask(&Request::Layout { inode: file.inode })
            }
        };
        layout.with_context(|| file.path.display().to_string())
    }

    /// Puts the part of a file together that begins at a block.
    pub(crate) fn defragment(&mut self, file: &Named, from: u64) -> Result<FileStep> {
        let step = match &mut self.keeper {
            Keeper::Opened(inside) => FileStep::of(inside.fs(), file.inode, from),
            Keeper::Daemons(daemons) => {
                daemon(daemons, file)?.ask(&Request::Defragment { inode: file.inode, from })
            }
        };
        step.with_context(|| file.path.display().to_string())
    }

    /// Refuses where nothing can be moved, whether there is something to be moved or not.
    pub(crate) fn refuse_read_only(&mut self) -> Result<()> {
        let Keeper::Daemons(daemons) = &mut self.keeper else { return Ok(()) };
        for daemon in daemons.values_mut() {
            let info: Info = daemon.ask(&Request::Info)?;
            if info.read_only == Some(true) || info.latched.is_some() {
                let directory = info.mounted_on.unwrap_or_default();
                return Err(FsError::ReadOnly).with_context(|| directory.to_string());
            }
        }
        Ok(())
    }

    /// Closes a volume that was opened to be changed.
    pub(crate) fn close(&self) -> Result<()> {
        match &self.keeper {
            Keeper::Opened(inside) => inside.opened.close(),
            Keeper::Daemons(_) => Ok(()),
        }
    }
}

fn daemon<'a>(daemons: &'a mut BTreeMap<u64, Client>, file: &Named) -> Result<&'a mut Client> {
    daemons.get_mut(&file.device).context("its daemon was found before")
}

/// What the kernel has of the file in its cache has no place yet. Where that cannot be changed, what has one is told.
fn write_back(path: &Path) {
    if let Err(error) = File::open(path).and_then(|file| file.sync_data()) {
        tracing::debug!("{}: {error}", path.display());
    }
}

/// Calls `each` for the file, or all files below the directory, in a mounted volume and nowhere else.
fn below_mounted(path: &Path, about: &Metadata, each: &mut dyn FnMut(PathBuf, &Metadata)) -> Result<()> {
    if about.is_file() {
        each(path.to_owned(), about);
    }
    if !about.is_dir() {
        return Ok(());
    }
    let mut descent = Descent::begin(path, 0)?;
    let mut levels = vec![names_in(&descent)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.next() else {
            levels.pop();
            if !levels.is_empty() {
                descent.leave()?;
            }
            continue;
        };
        // What has gone meanwhile is no concern.
        match std::fs::symlink_metadata(descent.at(&name)) {
            Ok(found) if found.dev() != about.dev() => {}
            Ok(found) if found.is_file() => each(descent.shown(&name), &found),
            Ok(found) if found.is_dir() && descent.enter(&name, 0).is_ok() => {
                levels.push(names_in(&descent)?);
            }
            _ => {}
        }
    }
    Ok(())
}

/// All names in the last directory.
fn names_in(descent: &Descent) -> Result<std::vec::IntoIter<OsString>> {
    let shown = || descent.shown(OsStr::new("")).display().to_string();
    let entries = std::fs::read_dir(descent.at(OsStr::new("."))).with_context(shown)?;
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    Ok(names.with_context(shown)?.into_iter())
}

/// Calls `each` for the file, or all files below the directory.
fn below(
    inside: &Inside,
    path: &Path,
    found: &Attributes,
    each: &mut dyn FnMut(PathBuf, InodeNo),
) -> Result<()> {
    // Only files get whole paths: those of all directories would take the square of the depth.
    let mut way = Way(vec![(None, path.to_owned())]);
    let mut left = vec![(0, found.inode, found.kind)];
    while let Some((at, inode, kind)) = left.pop() {
        match kind {
            Kind::File => each(way.path(at), inode),
            Kind::Directory => {
                for entry in inside.entries(inode).with_context(|| way.path(at).display().to_string())? {
                    way.0.push((Some(at), PathBuf::from(OsString::from_vec(entry.name))));
                    left.push((way.0.len() - 1, entry.inode, entry.kind));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Names, each with the place of the directory that it is in.
struct Way(Vec<(Option<usize>, PathBuf)>);

impl Way {
    fn path(&self, at: usize) -> PathBuf {
        let (mut names, mut above) = (Vec::new(), Some(at));
        while let Some(at) = above {
            names.push(&self.0[at].1);
            above = self.0[at].0;
        }
        names.into_iter().rev().collect()
    }
}
