//! Paths in a volume that is not mounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fs::{Attributes, Caller, DirEntry, Fs, Handle, InodeNo, Kind, OpenFlags};

use crate::volume::{self, Volume};

/// The largest number of symbolic links on one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// An unmounted volume whose files a command reads.
pub(crate) struct UnmountedVolume {
    pub(crate) opened: Box<volume::Opened>,
    caller: Caller,
}

impl UnmountedVolume {
    /// Opens the volume for reading. Fails if it is mounted, because its files are available in a directory then.
    pub(crate) fn open(named: &Path) -> Result<UnmountedVolume> {
        Self::of(named, Volume::find(named)?)
    }

    /// Opens the volume for writing, to move blocks. The caller must close `opened` in the end.
    pub(crate) fn open_to_change(named: &Path) -> Result<UnmountedVolume> {
        Self::of(named, Volume::find_to_change(named)?)
    }

    fn of(named: &Path, volume: Volume) -> Result<UnmountedVolume> {
        match volume {
            Volume::Opened(opened) => Ok(UnmountedVolume { opened, caller: Caller::root() }),
            Volume::Served(mut client) => {
                let info: crate::info::Info = client.ask(&crate::control::Request::Info)?;
                let directory = info.mounted_on.unwrap_or_default();
                bail!("{} is mounted on {}; use its files there", named.display(), directory.display())
            }
        }
    }

    pub(crate) fn fs(&self) -> &Fs {
        &self.opened.fs
    }

    /// The attributes of the file at a path from the root of the volume. With `follow`, a symbolic link at the end is
    /// followed too.
    pub(crate) fn find(&self, path: &Path, follow: bool) -> Result<Attributes> {
        let found = self.walk(path.as_os_str().as_bytes(), follow);
        found.with_context(|| format!("{} in the volume", path.display()))
    }

    fn walk(&self, path: &[u8], follow: bool) -> Result<Attributes> {
        let mut at = self.fs().attributes(InodeNo::ROOT)?;
        let mut rest: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            let next = self.fs().lookup(&self.caller, at.inode, &name)?;
            if next.kind != Kind::Symlink || rest.is_empty() && !follow {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                bail!("too many symbolic links; name the file by a path without them");
            }
            let target = self.fs().read_link(next.inode)?;
            if target.starts_with(b"/") {
                at = self.fs().attributes(InodeNo::ROOT)?;
            }
            rest.extend(names(&target).rev().map(<[u8]>::to_vec));
        }
        Ok(at)
    }

    /// The entries of a directory except "." and "..", sorted by name.
    pub(crate) fn entries(&self, directory: InodeNo) -> Result<Vec<DirEntry>> {
        let handle = self.open_to_read(directory)?;
        let mut entries = Vec::new();
        self.fs().read_directory(&handle, 0, &mut |entry| {
            entries.push(entry);
            true
        })?;
        entries.retain(|entry| !matches!(entry.name.as_slice(), b"." | b".."));
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    pub(crate) fn open_to_read(&self, inode: InodeNo) -> Result<Handle> {
        Ok(self.fs().open(&self.caller, inode, OpenFlags { read: true, ..OpenFlags::default() })?)
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }
}

/// The last name of a path, if it has one.
pub(crate) fn last_name(path: &Path) -> Option<&OsStr> {
    names(path.as_os_str().as_bytes())
        .last()
        .filter(|name| !matches!(*name, b".." | b"."))
        .map(OsStr::from_bytes)
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}
