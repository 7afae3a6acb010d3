//! `polder cp`: copies files out of a volume that nobody has mounted.
//!
//! Kept are contents with their holes, permissions, times, extended attributes, hard and symbolic links, and,
//! for root, owners and devices. Everything that is made is new: nothing is written over, and no link that is
//! there is followed, whatever names the volume has.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use fs::{Attributes, FsError, InodeNo, Kind};
use indicatif::ProgressBar;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use crate::inside::{Inside, last_name};
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
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let inside = Inside::open(&arguments.volume)?;
    let found = inside.find(&arguments.path, !arguments.recursive)?;
    let shown = arguments.path.display();
    if found.kind == Kind::Directory && !arguments.recursive {
        bail!("{shown} in the volume is a directory; copy it with -r");
    }
    let target = arguments.place(&found)?;
    let bytes = total(&inside, &found)?;
    let is_root = rustix::process::geteuid().is_root();
    let bar = progress::moving(bytes);
    let mut copy = Copy { inside, links: HashMap::new(), bar, is_root, refused: 0 };
    copy.any(&found, &target)?;
    copy.bar.finish_and_clear();
    if copy.refused > 0 {
        eprintln!("polder: {}: {} extended attributes are not taken there", target.display(), copy.refused);
    }
    Ok(())
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

/// Bytes of all files at and below.
fn total(inside: &Inside, found: &Attributes) -> Result<u64> {
    match found.kind {
        Kind::File => Ok(found.size),
        Kind::Directory => {
            let mut sum = 0;
            for entry in inside.entries(found.inode)? {
                sum += total(inside, &inside.fs().attributes(entry.inode)?)?;
            }
            Ok(sum)
        }
        _ => Ok(0),
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
        let made = match found.kind {
            Kind::File => self.file(found, to),
            Kind::Directory => self.directory(found, to),
            Kind::Symlink => {
                let target = self.inside.fs().read_link(found.inode)?;
                Ok(symlink(OsStr::from_bytes(&target), to)?)
            }
            _ => make_node(found, to),
        };
        made.with_context(|| to.display().to_string())?;
        self.attributes(found, to).with_context(|| to.display().to_string())
    }

    fn directory(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        // The root of the volume may go into a directory that is there.
        if !(found.inode == InodeNo::ROOT && to.is_dir()) {
            DirBuilder::new().mode(0o700).create(to)?;
        }
        for entry in self.inside.entries(found.inode)? {
            if entry.name.is_empty() || entry.name.contains(&b'/') || matches!(&entry.name[..], b"." | b"..")
            {
                bail!("an entry has a name that cannot be; check the volume (polder check)");
            }
            let below = self.inside.fs().attributes(entry.inode)?;
            self.any(&below, &to.join(OsStr::from_bytes(&entry.name)))?;
        }
        Ok(())
    }

    fn file(&self, found: &Attributes, to: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        file.set_len(found.size)?;
        let handle = self.inside.open_to_read(found.inode)?;
        let mut offset = 0;
        let mut buffer = vec![0; PIECE.min(found.size) as usize];
        loop {
            let data = match self.inside.fs().seek_data(&handle, offset) {
                Err(FsError::NoData) => break,
                data => data?,
            };
            let end = self.inside.fs().seek_hole(&handle, data)?;
            self.range(&handle, &file, data..end, &mut buffer)?;
            offset = end;
        }
        self.bar.inc(found.size);
        Ok(())
    }

    fn range(
        &self,
        from: &fs::Handle,
        to: &File,
        range: std::ops::Range<u64>,
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut offset = range.start;
        while offset < range.end {
            let length = (buffer.len() as u64).min(range.end - offset) as usize;
            let count = self.inside.fs().read(from, offset, &mut buffer[..length])?;
            if count == 0 {
                return Err(anyhow!("ends before its size"));
            }
            to.write_all_at(&buffer[..count], offset)?;
            offset += count as u64;
        }
        Ok(())
    }

    /// Owner, extended attributes, permissions, times, in this order: each may change those before it.
    fn attributes(&mut self, found: &Attributes, to: &Path) -> Result<()> {
        if self.is_root {
            let owner = (Uid::from_raw(found.uid), Gid::from_raw(found.gid));
            rustix::fs::chownat(CWD, to, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        for name in self.inside.fs().list_xattrs(self.inside.who(), found.inode)? {
            let value = self.inside.fs().get_xattr(self.inside.who(), found.inode, &name)?;
            if rustix::fs::lsetxattr(to, name.as_slice(), &value, XattrFlags::empty()).is_err() {
                self.refused += 1;
            }
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
