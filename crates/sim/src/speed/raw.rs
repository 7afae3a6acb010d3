//! A plain file without the kernel's cache: the speed of the device below.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::directory::Opened;
use super::{Bytes, Place, Result};

/// The folder of the host in which the files are made. It has bytes and no names.
pub struct Raw {
    folder: PathBuf,
}

impl Raw {
    /// Files in this folder.
    pub fn new(folder: &Path) -> Self {
        Raw { folder: folder.to_owned() }
    }
}

impl Place for Raw {
    fn remove(&self, path: &str) -> Result<()> {
        std::fs::remove_file(self.folder.join(path)).map_err(|error| format!("{path}: {error}"))
    }

    fn open(&self, path: &str) -> Result<Box<dyn Bytes>> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(self.folder.join(path));
        Ok(Box::new(Opened(opened.map_err(|error| format!("{path}: {error}"))?)))
    }

    fn has_names(&self) -> bool {
        false
    }

    fn sync(&self) -> Result<()> {
        let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
        folder.map_err(|error| format!("{}: {error}", self.folder.display()))
    }
}
