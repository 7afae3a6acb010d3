//! `polder cp`: copies files out of a volume that nobody has mounted.
//!
//! Kept are contents with their holes, permissions, times, extended attributes, hard and symbolic links, and,
//! for root, owners and devices. Everything that is made is new: nothing is written over, and no link that is
//! there is followed, whatever names the volume has.
//!
//! What cannot be read, or is refused where the copy goes, is said by its name and left out, bytes of a file as zeros,
//! and the rest is copied. A target that is full, read-only or broken ends it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{DirBuilder, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use fs::{Attributes, FsError, InodeNo, Kind};
use indicatif::ProgressBar;

use crate::inside::{Inside, last_name};
use crate::name::AnyPath;
use crate::output::error_line;
use crate::outside::{Looks, Xattr, ends_all, make_file, make_node, set_looks, set_owner, set_xattrs};
use crate::progress;

const PIECE: u64 = 1 << 20;

/// Copy a file, or with -r a directory and all below it, out of a volume that is not mounted.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device.
    volume: PathBuf,
    /// The path inside it, from its root.
    path: PathBuf,
    /// Where the copy goes: a new name, or a directory that is there.
    target: PathBuf,
    /// Copies directories too.
    #[arg(short, long)]
    recursive: bool,
}

/// A copy that is being made.
struct Copy {
    inside: Inside,
    /// Where inodes with several names have gone.
    links: HashMap<InodeNo, PathBuf>,
    bar: ProgressBar,
    is_root: bool,
    /// Directories that were entered; a sound volume has each in one place.
    entered: HashSet<InodeNo>,
    /// What could not be read, or was refused.
    troubles: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let inside = Inside::open(&arguments.volume)?;
    let found = inside.find(&arguments.path, !arguments.recursive)?;
    let shown = arguments.path.display();
    if found.kind == Kind::Directory && !arguments.recursive {
        bail!("{shown} in the volume is a directory; copy it with -r");
    }
    let target = arguments.place(&found)?;
    let counting = progress::waiting("counting");
    let bytes = total(&inside, &found, &mut HashSet::new());
    counting.finish_and_clear();
    let is_root = rustix::process::geteuid().is_root();
    let bar = progress::moving(bytes);
    let mut copy = Copy { inside, links: HashMap::new(), bar, is_root, entered: HashSet::new(), troubles: 0 };
    copy.any(&found, &target)?;
    copy.bar.finish_and_clear();
    match copy.troubles {
        0 => Ok(()),
        1 => bail!("1 thing is not in the copy as it is in the volume; the line before names it"),
        count => {
            bail!("{count} things are not in the copy as they are in the volume; the lines before name them")
        }
    }
}

impl Arguments {
    /// The name of the copy: below a directory that is there, or the given one. The root of a volume has no
    /// name, so its entries go into the directory themselves.
    fn place(&self, found: &Attributes) -> Result<PathBuf> {
        let target = &self.target;
        match (target.is_dir(), last_name(&self.path)) {
            (true, Some(name)) => Ok(target.join(name)),
            (true, None) if found.inode == InodeNo::ROOT => Ok(target.clone()),
            (true, None) => bail!("{}: name what is to be copied by its own name", self.path.display()),
            (false, _) => Ok(target.clone()),
        }
    }
}

/// Bytes of all files at and below, as far as they can be told.
fn total(inside: &Inside, found: &Attributes, entered: &mut HashSet<InodeNo>) -> u64 {
    match found.kind {
        Kind::File => found.size,
        Kind::Directory if entered.insert(found.inode) => {
            let entries = inside.entries(found.inode).unwrap_or_default().into_iter();
            let below = entries.filter_map(|entry| inside.fs().attributes(entry.inode).ok());
            below.map(|below| total(inside, &below, entered)).sum()
        }
        _ => 0,
    }
}

impl Copy {
    fn any(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        let was_there = found.inode == InodeNo::ROOT && to.is_dir();
        match self.make(found, to, was_there) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if ends_all(&error) => {
                return Err(error).with_context(|| AnyPath::from(to).to_string());
            }
            Err(error) => {
                self.trouble(to, &format!("is not made: {error:#}"));
                return Ok(());
            }
        }
        if found.kind == Kind::Directory {
            self.entries(found, to)?;
        }
        // A directory that was there before is not the copy.
        if !was_there {
            self.attributes(found, to);
        }
        Ok(())
    }

    /// Says what is not as it should be, of what is copied to this name.
    fn trouble(&mut self, to: &Path, what: &str) {
        self.troubles += 1;
        let line = format!("polder: {}: {what}", AnyPath::from(to));
        self.bar.suspend(|| error_line!("{line}"));
    }

    fn unreadable(&mut self, to: &Path, what: &str, why: &impl Display) {
        self.trouble(to, &format!("{what} cannot be read: {why}"));
    }

    /// Makes something with its contents; whether it is there now and wants its attributes.
    fn make(&mut self, found: &Attributes, to: &Path, was_there: bool) -> Result<bool> {
        let has_names = found.links > 1 && found.kind != Kind::Directory;
        if has_names && let Some(first) = self.links.get(&found.inode) {
            std::fs::hard_link(first, to)?;
            return Ok(false);
        }
        match found.kind {
            Kind::File => self.file(found, to)?,
            Kind::Directory => self.directory(found, to, was_there)?,
            Kind::Symlink => match self.inside.fs().read_link(found.inode) {
                Ok(target) => symlink(OsStr::from_bytes(&target), to)?,
                Err(error) => {
                    self.unreadable(to, "where it leads", &error);
                    return Ok(false);
                }
            },
            kind => make_node(kind, found.device, to)?,
        }
        if has_names {
            self.links.insert(found.inode, to.to_owned());
        }
        Ok(true)
    }

    fn directory(&mut self, found: &Attributes, to: &Path, was_there: bool) -> Result<()> {
        if !self.entered.insert(found.inode) {
            bail!("is a directory that is in more than one place; check the volume (polder check)");
        }
        if !was_there {
            DirBuilder::new().mode(0o700).create(to)?;
        }
        Ok(())
    }

    fn entries(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        let entries = match self.inside.entries(found.inode) {
            Ok(entries) => entries,
            Err(error) => {
                self.unreadable(to, "what it has", &error);
                return Ok(());
            }
        };
        for entry in entries {
            if entry.name.is_empty() || entry.name.contains(&b'/') || matches!(&entry.name[..], b"." | b"..")
            {
                self.trouble(to, "has an entry with a name that cannot be; check the volume (polder check)");
                continue;
            }
            let below = to.join(OsStr::from_bytes(&entry.name));
            match self.inside.fs().attributes(entry.inode) {
                Ok(found) => self.any(&found, &below)?,
                Err(error) => self.unreadable(&below, "it", &error),
            }
        }
        Ok(())
    }

    fn file(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        let lost = make_file(to, |file| {
            file.set_len(found.size)?;
            self.contents(found, file)
        })?;
        match lost {
            None => {}
            Some((0, error)) => self.unreadable(to, "where its data are", &error),
            Some((bytes, error)) => {
                self.unreadable(to, &format!("{bytes} bytes, which are zeros in the copy,"), &error);
            }
        }
        self.bar.inc(found.size);
        Ok(())
    }

    /// Copies the contents; how many bytes of them could not be read, and why. Of data that cannot be found
    /// the number is 0.
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

    /// The same for a range. Where a piece cannot be read, its blocks are, one by one.
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
        let (fs, who) = (self.inside.fs(), self.inside.who());
        let names = fs.list_xattrs(who, found.inode)?.into_iter();
        names.map(|name| fs.get_xattr(who, found.inode, &name).map(|value| (name, value))).collect()
    }

    fn attributes(&mut self, found: &Attributes, to: &Path) {
        let (looks, mut refused) = (Looks::from(found), Vec::new());
        if self.is_root {
            set_owner(&looks, to, &mut refused);
        }
        match self.xattrs(found) {
            Ok(xattrs) => set_xattrs(&xattrs, to, &mut refused),
            Err(error) => self.unreadable(to, "an extended attribute", &error),
        }
        set_looks(&looks, to, &mut refused);
        for refused in refused {
            self.trouble(to, &format!("{} cannot be set there: {}", refused.what, refused.why));
        }
    }
}
