//! Opening files: the options.

use std::path::Path;

use fs::{FsError, OpenFlags};

use crate::access::Access;
use crate::call::{Creation, Open, OpenHow};
use crate::error::{Error, Result};
use crate::file::File;

/// How a file is opened: [`Volume::options`](crate::Volume::options). At first all options are off, as in
/// [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions<'a> {
    access: &'a Access,
    flags: OpenFlags,
    create: bool,
    create_new: bool,
    no_follow: bool,
    permissions: u16,
}

impl<'a> OpenOptions<'a> {
    pub(crate) fn new(access: &'a Access) -> OpenOptions<'a> {
        OpenOptions {
            access,
            flags: OpenFlags::default(),
            create: false,
            create_new: false,
            no_follow: false,
            permissions: 0o666,
        }
    }

    /// Whether the file can be read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.flags.read = read;
        self
    }

    /// Whether the file can be written.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.flags.write = write;
        self
    }

    /// Whether every write goes to the end of the file. Such a file can be written.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.flags.append = append;
        self
    }

    /// Whether an existing file is emptied. Needs [`write`](OpenOptions::write).
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.flags.truncate = truncate;
        self
    }

    /// Whether a file is created if there is none. Needs [`write`](OpenOptions::write) or
    /// [`append`](OpenOptions::append).
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Whether a file is created and must not exist before. Then `create` and `truncate` do not matter. Needs
    /// [`write`](OpenOptions::write) or [`append`](OpenOptions::append).
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Whether every write is durable when it returns, as if [`File::sync_data`] followed.
    pub fn sync(&mut self, sync: bool) -> &mut Self {
        self.flags.sync = sync;
        self
    }

    /// Whether a symbolic link at the end of the path is refused (`ELOOP`).
    pub fn no_follow(&mut self, no_follow: bool) -> &mut Self {
        self.no_follow = no_follow;
        self
    }

    /// The permission bits of a new file. The umask of the [`Caller`](crate::Caller) is taken off. The default is
    /// 0o666.
    pub fn permissions(&mut self, permissions: u16) -> &mut Self {
        self.permissions = permissions;
        self
    }

    /// Opens the file at a path.
    ///
    /// # Errors
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for options that do not fit together. A directory can be
    /// opened for reading only, which is enough to sync it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let mut flags = self.flags;
        flags.write |= flags.append;
        let creates = self.create || self.create_new;
        let needs_write = creates || flags.truncate;
        let truncates_log = flags.append && flags.truncate && !self.create_new;
        let is_possible = flags.write || flags.read && !needs_write;
        if !is_possible || truncates_log {
            return Err(Error::at(path, FsError::Invalid));
        }
        let creation = match (self.create_new, self.create) {
            (true, _) => Creation::Always,
            (false, true) => Creation::IfMissing,
            (false, false) => Creation::Never,
        };
        let (no_follow, permissions) = (self.no_follow, self.permissions);
        let how = OpenHow { flags, creation, no_follow, permissions };
        Ok(File::new(self.access.open(Open::File { path, how })?))
    }
}
