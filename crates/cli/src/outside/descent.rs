//! The way from one directory outside a volume down to another, gone name by name.
//!
//! The system takes no path that is longer than 4095 bytes, and follows each path from its beginning. Here the
//! directories of the way are open, so that what is done in the last one takes a short path, and costs the same at any
//! depth. Only the last few stay open, as a process may have few files open: a directory further up is opened again from
//! the one below it, by `..`, and must be the one that it was.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

/// Directories that are open, beside the first.
const OPEN_MAX: usize = 32;

/// The way down.
pub(crate) struct Descent {
    /// The first directory, as it was named.
    base: PathBuf,
    /// Not empty. The first and the last are open.
    levels: Vec<Level>,
}

struct Level {
    /// Its name in the one before.
    name: OsString,
    /// What tells it from others in the volume.
    key: u64,
    file: Option<OwnedFd>,
    identity: (u64, u64),
}

impl Descent {
    /// Begins in a directory, which may be named by a link.
    pub(crate) fn begin(base: &Path, key: u64) -> Result<Descent> {
        let named = if base.as_os_str().is_empty() { Path::new(".") } else { base };
        let first = Level::open(CWD, named.as_os_str(), key, OFlags::empty());
        let first = first.with_context(|| named.display().to_string())?;
        Ok(Descent { base: base.to_owned(), levels: vec![first] })
    }

    /// The last directory.
    pub(crate) fn key(&self) -> u64 {
        self.last().key
    }

    /// The directory that it began in.
    pub(crate) fn base_key(&self) -> u64 {
        self.levels[0].key
    }

    /// A path to a name in the last directory, for this process and for as long as that is the last.
    pub(crate) fn at(&self, name: &OsStr) -> PathBuf {
        path_in(self.last().file(), name)
    }

    /// How a user would write it.
    pub(crate) fn shown(&self, name: &OsStr) -> PathBuf {
        let mut shown = self.base.clone();
        shown.extend(self.levels[1..].iter().map(|level| &level.name));
        shown.push(name);
        shown
    }

    /// Goes into a directory of the last one; not through a link.
    pub(crate) fn enter(&mut self, name: &OsStr, key: u64) -> Result<()> {
        let next = Level::open(self.last().file(), name, key, OFlags::NOFOLLOW)?;
        self.levels.push(next);
        if let Some(close) = self.levels.len().checked_sub(OPEN_MAX + 1).filter(|&close| close > 0) {
            self.levels[close].file = None;
        }
        Ok(())
    }

    /// Goes back to the directory before; the name of the one that was left.
    pub(crate) fn leave(&mut self) -> Result<OsString> {
        assert!(self.levels.len() > 1, "the directory that it began in is not left");
        let left = self.levels.pop().expect("there is more than one");
        let last = self.levels.len() - 1;
        if self.levels[last].file.is_none() {
            let Level { name, key, identity, .. } = &self.levels[last];
            let mut again = Level::open(left.file(), OsStr::new(".."), *key, OFlags::empty())?;
            if again.identity != *identity {
                bail!("{} was moved meanwhile; try again", self.shown(OsStr::new("")).display());
            }
            again.name = name.clone();
            self.levels[last] = again;
        }
        Ok(left.name)
    }

    /// Opens a directory by its names from the one that it began in.
    pub(crate) fn elsewhere<'n>(&self, names: impl IntoIterator<Item = &'n OsStr>) -> Result<Directory> {
        let mut at = Level::open(self.levels[0].file(), OsStr::new("."), 0, OFlags::empty())?;
        for name in names {
            at = Level::open(at.file(), name, 0, OFlags::NOFOLLOW)?;
        }
        Ok(Directory(at))
    }

    fn last(&self) -> &Level {
        self.levels.last().expect("there is a first directory")
    }
}

/// A directory that is open.
pub(crate) struct Directory(Level);

impl Directory {
    /// A path to a name in it, for this process and as long as it is open.
    pub(crate) fn at(&self, name: &OsStr) -> PathBuf {
        path_in(self.0.file(), name)
    }
}

impl Level {
    fn open(within: impl std::os::fd::AsFd, name: &OsStr, key: u64, flags: OFlags) -> Result<Level> {
        let flags = flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = openat(within, name, flags, Mode::empty())?;
        let about = fstat(&file)?;
        let identity = (about.st_dev, about.st_ino);
        Ok(Level { name: name.to_owned(), key, file: Some(file), identity })
    }

    fn file(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.file.as_ref().expect("the first and the last directory are open").as_fd()
    }
}

fn path_in(directory: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.push(name);
    path
}

#[cfg(test)]
mod tests;
