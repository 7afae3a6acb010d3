//! A walk down a directory tree outside a volume, name by name.
//!
//! The system accepts no path longer than 4095 bytes, and resolves each path from its beginning. Here the directories of
//! the walk are open, so that an operation in the last one needs a short path, and costs the same at any depth. Only the
//! last few directories stay open, because a process may have only a limited number of open files. A directory further up
//! is reopened from the one below it, as `..`, and must be the same directory as before.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

/// The largest number of open directories, without the first.
const OPEN_MAX: usize = 32;

/// The current walk.
pub(crate) struct Descent {
    /// The path of the first directory, as the user named it.
    base: PathBuf,
    /// Not empty. The first and the last are open.
    levels: Vec<Level>,
}

struct Level {
    /// The name in the previous directory.
    name: OsString,
    /// The caller's key of the directory.
    key: u64,
    file: Option<OwnedFd>,
    identity: (u64, u64),
}

impl Descent {
    /// Begins in a directory. The path may be a symbolic link.
    pub(crate) fn begin(base: &Path, key: u64) -> Result<Descent> {
        let named = if base.as_os_str().is_empty() { Path::new(".") } else { base };
        let first = Level::open(CWD, named.as_os_str(), key, OFlags::empty());
        let first = first.with_context(|| named.display().to_string())?;
        Ok(Descent { base: base.to_owned(), levels: vec![first] })
    }

    /// The key of the current directory.
    pub(crate) fn key(&self) -> u64 {
        self.last().key
    }

    /// The key of the first directory.
    pub(crate) fn base_key(&self) -> u64 {
        self.levels[0].key
    }

    /// A path to a name in the current directory. It is valid in this process, as long as the directory is the current one.
    pub(crate) fn at(&self, name: &OsStr) -> PathBuf {
        path_in(self.last().file(), name)
    }

    /// The path to a name in the current directory, as a user writes it.
    pub(crate) fn shown(&self, name: &OsStr) -> PathBuf {
        let mut shown = self.base.clone();
        shown.extend(self.levels[1..].iter().map(|level| &level.name));
        shown.push(name);
        shown
    }

    /// Enters a subdirectory of the current directory. Does not follow a symbolic link.
    pub(crate) fn enter(&mut self, name: &OsStr, key: u64) -> Result<()> {
        let next = Level::open(self.last().file(), name, key, OFlags::NOFOLLOW)?;
        self.levels.push(next);
        if let Some(close) = self.levels.len().checked_sub(OPEN_MAX + 1).filter(|&close| close > 0) {
            self.levels[close].file = None;
        }
        Ok(())
    }

    /// Returns to the previous directory. Returns the name of the directory that was left.
    pub(crate) fn leave(&mut self) -> Result<OsString> {
        assert!(self.levels.len() > 1, "the first directory must not be left");
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

    /// Opens a directory by its names from the first directory.
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

/// An open directory.
pub(crate) struct Directory(Level);

impl Directory {
    /// A path to a name in the directory. It is valid in this process, as long as the directory is open.
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
