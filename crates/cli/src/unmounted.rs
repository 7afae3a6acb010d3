//! Paths in a volume that is not mounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use fs::{Attributes, Caller, DirEntry, Fs, FsError, Handle, InodeNo, OpenFlags};
use polder::walk::{Walk, names};

use crate::volume::{self, Volume};

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
        let found = Walk::new(self.fs(), &self.caller).find(path.as_os_str().as_bytes(), follow);
        let explained = found.map_err(|error| match error {
            FsError::Loop => anyhow!("too many symbolic links; name the file by a path without them"),
            error => error.into(),
        });
        explained.with_context(|| format!("{} in the volume", path.display()))
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
