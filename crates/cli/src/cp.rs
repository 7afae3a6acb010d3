//! `polder cp`: copies files out of a volume that nobody has mounted.
//!
//! Kept are contents with their holes, permissions, times, extended attributes, hard and symbolic links, and,
//! for root, owners and devices. Everything that is made is new: nothing is written over, and no link that is
//! there is followed, whatever names the volume has.
//!
//! What cannot be read is said by its name and left out, bytes of a file as zeros, and the rest is copied. What cannot
//! be written ends it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use fs::{Attributes, FsError, InodeNo, Kind};
use indicatif::ProgressBar;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use crate::inside::{Inside, last_name};
use crate::output::in_line;
use crate::progress;

const PIECE: u64 = 1 << 20;
const SECOND: i64 = 1_000_000_000;

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
    /// Attributes that the target does not take.
    refused: u64,
    /// Directories that were entered; a sound volume has each in one place.
    entered: HashSet<InodeNo>,
    /// What could not be read.
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
    let bytes = total(&inside, &found, &mut HashSet::new());
    let is_root = rustix::process::geteuid().is_root();
    let bar = progress::moving(bytes);
    let mut copy = Copy {
        inside,
        links: HashMap::new(),
        bar,
        is_root,
        refused: 0,
        entered: HashSet::new(),
        troubles: 0,
    };
    copy.any(&found, &target)?;
    copy.bar.finish_and_clear();
    if copy.refused > 0 {
        eprintln!("polder: {}: {} extended attributes are not taken there", target.display(), copy.refused);
    }
    match copy.troubles {
        0 => Ok(()),
        1 => bail!("1 thing could not be read and is not in the copy; the line before names it"),
        count => {
            bail!("{count} things could not be read and are not in the copy; the lines before name them")
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
        if found.links > 1 && found.kind != Kind::Directory {
            if let Some(first) = self.links.get(&found.inode) {
                return std::fs::hard_link(first, to).with_context(|| to.display().to_string());
            }
            self.links.insert(found.inode, to.to_owned());
        }
        let was_there = found.inode == InodeNo::ROOT && to.is_dir();
        let made = match found.kind {
            Kind::File => self.file(found, to),
            Kind::Directory => self.directory(found, to, was_there),
            Kind::Symlink => match self.inside.fs().read_link(found.inode) {
                Ok(target) => Ok(symlink(OsStr::from_bytes(&target), to)?),
                Err(error) => {
                    self.trouble(to, "where it leads", &error);
                    return Ok(());
                }
            },
            _ => make_node(found, to),
        };
        made.with_context(|| to.display().to_string())?;
        // A directory that was there before is not the copy.
        if was_there {
            return Ok(());
        }
        self.attributes(found, to).with_context(|| to.display().to_string())
    }

    /// Says what could not be read, of what is copied to this name.
    fn trouble(&mut self, to: &Path, what: &str, why: &impl Display) {
        self.troubles += 1;
        let line = format!("polder: {}: {what} cannot be read: {why}", in_line(&to.to_string_lossy()));
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn directory(&mut self, found: &Attributes, to: &Path, was_there: bool) -> Result<()> {
        if !self.entered.insert(found.inode) {
            bail!("a directory is in more than one place; check the volume (polder check)");
        }
        if !was_there {
            DirBuilder::new().mode(0o700).create(to)?;
        }
        let entries = match self.inside.entries(found.inode) {
            Ok(entries) => entries,
            Err(error) => {
                self.trouble(to, "what it has", &error);
                return Ok(());
            }
        };
        for entry in entries {
            if entry.name.is_empty() || entry.name.contains(&b'/') || matches!(&entry.name[..], b"." | b"..")
            {
                bail!("an entry has a name that cannot be; check the volume (polder check)");
            }
            let below = to.join(OsStr::from_bytes(&entry.name));
            match self.inside.fs().attributes(entry.inode) {
                Ok(found) => self.any(&found, &below)?,
                Err(error) => self.trouble(&below, "it", &error),
            }
        }
        Ok(())
    }

    fn file(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        file.set_len(found.size)?;
        match self.contents(found, &file)? {
            None => {}
            Some((0, error)) => self.trouble(to, "where its data are", &error),
            Some((bytes, error)) => {
                self.trouble(to, &format!("{bytes} bytes, which are zeros in the copy,"), &error);
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

    fn xattrs(&mut self, found: &Attributes, to: &Path) -> Result<(), FsError> {
        for name in self.inside.fs().list_xattrs(self.inside.who(), found.inode)? {
            let value = self.inside.fs().get_xattr(self.inside.who(), found.inode, &name)?;
            if rustix::fs::lsetxattr(to, name.as_slice(), &value, XattrFlags::empty()).is_err() {
                self.refused += 1;
            }
        }
        Ok(())
    }

    /// Owner, extended attributes, permissions, times, in this order: each may change those before it.
    fn attributes(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        if self.is_root {
            let owner = (Uid::from_raw(found.uid), Gid::from_raw(found.gid));
            rustix::fs::chownat(CWD, to, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Err(error) = self.xattrs(found, to) {
            self.trouble(to, "an extended attribute", &error);
        }
        if found.kind != Kind::Symlink {
            let permissions = permissions_of_copy(found, &std::fs::symlink_metadata(to)?);
            rustix::fs::chmodat(CWD, to, Mode::from_raw_mode(permissions.into()), AtFlags::empty())?;
        }
        let times = Timestamps { last_access: time(found.accessed), last_modification: time(found.modified) };
        Ok(rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// The permissions of a copy. A program does not run as its owner or group when these are others now.
fn permissions_of_copy(found: &Attributes, made: &Metadata) -> u16 {
    const SET_ID: u16 = 0o6000;
    let is_owner_kept = (made.uid(), made.gid()) == (found.uid, found.gid);
    if is_owner_kept { found.permissions } else { found.permissions & !SET_ID }
}

fn make_node(found: &Attributes, to: &Path) -> Result<()> {
    let kind = match found.kind {
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        _ => FileType::Socket,
    };
    Ok(rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), found.device.into())?)
}

fn time(time: rt::Timestamp) -> Timespec {
    Timespec { tv_sec: time.0.div_euclid(SECOND), tv_nsec: time.0.rem_euclid(SECOND) }
}
