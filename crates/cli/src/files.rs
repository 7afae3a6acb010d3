//! Files named on the command line: by their paths in a mount, or by an unmounted volume and paths inside it. A directory
//! stands for all files below it.
//!
//! In a mount, a file is identified by its inode number, and only the daemon of the mount is asked about it. A user that
//! may ask the daemon may ask about every file.

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
use crate::copy_target::Descent;
use crate::info::Info;
use crate::unmounted::UnmountedVolume;
use crate::{volume, way};

/// The layout of a file in zones. Also the answer to the control request `layout`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileLayout {
    pub(crate) block_size: u32,
    pub(crate) blocks: u64,
    pub(crate) extents: u64,
    pub(crate) fragments: u64,
    pub(crate) zones: u64,
    /// The number of device reads needed to read the file in requests of a mebibyte.
    pub(crate) reads: u64,
    /// The smallest possible number of these reads.
    pub(crate) reads_min: u64,
    /// Whether `defrag` would move blocks.
    pub(crate) scattered: bool,
}

/// The result of a piece of defragmentation. Also the answer to the control request `defragment`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileStep {
    pub(crate) blocks_moved: u64,
    /// The block at which to continue. None: the file is done.
    pub(crate) next: Option<u64>,
}

impl FileLayout {
    /// Returns nothing if the file was deleted.
    pub(crate) fn of(fs: &Fs, inode: u64) -> Result<Option<FileLayout>> {
        let Some(layout) = unless_gone(fs.layout(InodeNo(inode)))? else { return Ok(None) };
        Ok(Some(FileLayout {
            block_size: fs.extents().block_size(),
            blocks: layout.blocks,
            extents: layout.extents,
            fragments: layout.fragments,
            zones: layout.zones,
            reads: layout.reads,
            reads_min: layout.reads_min,
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

/// A file to ask about.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// As a user of the command writes it.
    pub(crate) path: PathBuf,
    inode: u64,
    /// The device of its mount; 0 in a volume that is not mounted.
    device: u64,
}

/// The source of answers about the files.
enum Source {
    /// The daemons of mounts, by their devices.
    Daemons(BTreeMap<u64, Client>),
    /// A volume that this process has open.
    Opened(UnmountedVolume),
}

/// The files, without duplicates, and the source of answers about them.
pub(crate) struct Files {
    source: Source,
    pub(crate) files: Vec<Named>,
}

impl Files {
    /// Finds the files. If the first path is a volume outside of any mount, the other paths are paths inside it, and the
    /// volume is opened with `open`.
    pub(crate) fn find(paths: &[PathBuf], open: fn(&Path) -> Result<UnmountedVolume>) -> Result<Files> {
        let (first, rest) = paths.split_first().context("no file is named")?;
        way::refuse_silent(first)?;
        if volume::mount_around(first).is_ok() || !volume::is_volume(first)? {
            return Self::in_mounts(paths);
        }
        if rest.is_empty() {
            bail!("{}: is a volume; add paths inside it, like / for all files", first.display());
        }
        let inside = open(first)?;
        let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
        for path in rest {
            let found = inside.find(path, true)?;
            if !matches!(found.kind, Kind::File | Kind::Directory) {
                bail!(
                    "{} in the volume: is neither a file nor a directory; name a file or a directory",
                    path.display()
                );
            }
            below(&inside, path, &found, &mut |path, inode| {
                if seen.insert(inode.0) {
                    files.push(Named { path, inode: inode.0, device: 0 });
                }
            })?;
        }
        Ok(Files { source: Source::Opened(inside), files })
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
        Ok(Files { source: Source::Daemons(daemons), files })
    }

    /// The layout of a file. Nothing if it was deleted.
    pub(crate) fn layout(&mut self, file: &Named) -> Result<Option<FileLayout>> {
        let layout = match &mut self.source {
            Source::Opened(inside) => FileLayout::of(inside.fs(), file.inode),
            Source::Daemons(daemons) => {
                write_back(&file.path);
                daemon(daemons, file)?.ask(&Request::Layout { inode: file.inode })
            }
        };
        layout.with_context(|| file.path.display().to_string())
    }

    /// Defragments the part of a file that begins at a block.
    pub(crate) fn defragment(&mut self, file: &Named, from: u64) -> Result<FileStep> {
        let step = match &mut self.source {
            Source::Opened(inside) => FileStep::of(inside.fs(), file.inode, from),
            Source::Daemons(daemons) => {
                daemon(daemons, file)?.ask(&Request::Defragment { inode: file.inode, from })
            }
        };
        step.with_context(|| file.path.display().to_string())
    }

    /// Fails if a volume is read-only, even if no blocks need to be moved.
    pub(crate) fn refuse_read_only(&mut self) -> Result<()> {
        let Source::Daemons(daemons) = &mut self.source else { return Ok(()) };
        for daemon in daemons.values_mut() {
            let info: Info = daemon.ask(&Request::Info)?;
            if info.read_only == Some(true) || info.shutdown_reason.is_some() {
                let directory = info.mounted_on.unwrap_or_default();
                return Err(FsError::ReadOnly).with_context(|| directory.to_string());
            }
        }
        Ok(())
    }

    /// Closes a volume that this process has opened.
    pub(crate) fn close(&self) -> Result<()> {
        match &self.source {
            Source::Opened(inside) => inside.opened.close(),
            Source::Daemons(_) => Ok(()),
        }
    }
}

fn daemon<'a>(daemons: &'a mut BTreeMap<u64, Client>, file: &Named) -> Result<&'a mut Client> {
    daemons.get_mut(&file.device).context("its daemon was found before")
}

/// Writes the kernel's dirty pages of the file back, because they have no blocks yet. If this fails, the layout contains
/// only the blocks written so far.
fn write_back(path: &Path) {
    if let Err(error) = File::open(path).and_then(|file| file.sync_data()) {
        tracing::debug!("{}: {error}", path.display());
    }
}

/// Calls `each` for the file, or for all files below the directory in the same mounted volume.
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
        // Files that were deleted meanwhile are skipped.
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

/// All names in the current directory.
fn names_in(descent: &Descent) -> Result<std::vec::IntoIter<OsString>> {
    let shown = || descent.shown(OsStr::new("")).display().to_string();
    let entries = std::fs::read_dir(descent.at(OsStr::new("."))).with_context(shown)?;
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    Ok(names.with_context(shown)?.into_iter())
}

/// Calls `each` for the file, or for all files below the directory.
fn below(
    inside: &UnmountedVolume,
    path: &Path,
    found: &Attributes,
    each: &mut dyn FnMut(PathBuf, InodeNo),
) -> Result<()> {
    // Only files get whole paths. The memory for whole paths of all directories would grow with the square of the depth.
    let mut way = PathTree(vec![(None, path.to_owned())]);
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

/// Names, each with the index of its directory.
struct PathTree(Vec<(Option<usize>, PathBuf)>);

impl PathTree {
    fn path(&self, at: usize) -> PathBuf {
        let (mut names, mut above) = (Vec::new(), Some(at));
        while let Some(at) = above {
            names.push(&self.0[at].1);
            above = self.0[at].0;
        }
        names.into_iter().rev().collect()
    }
}
