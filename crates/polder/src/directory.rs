//! Reading directories.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fs::{FsError, InodeNo, Kind};

use crate::access::{Access, Opened};
use crate::call::{Call, ENTRIES_MAX, FileCall, Open, Reply};
use crate::error::{Error, Result};
use crate::metadata::Metadata;

/// The entries of a directory, in no particular order, without `.` and `..`.
///
/// Each entry that exists as long as this iterator is returned exactly once, even if others are made and removed
/// meanwhile. Any other entry is returned once or not at all. After an error the iterator ends.
#[derive(Debug)]
pub struct ReadDir {
    opened: Opened,
    path: PathBuf,
    batch: VecDeque<fs::DirEntry>,
    /// The last entry of the batch, or where to begin.
    cookie: u64,
    is_at_end: bool,
}

impl ReadDir {
    pub(crate) fn new(access: &Access, path: &Path) -> Result<ReadDir> {
        let opened = access.open(Open::Directory { path })?;
        Ok(ReadDir { opened, path: path.to_owned(), batch: VecDeque::new(), cookie: 0, is_at_end: false })
    }

    fn read_batch(&mut self) -> Result<()> {
        let entries = self.opened.call(FileCall::Entries { cookie: self.cookie })?.entries()?;
        let mut batch = VecDeque::from(entries);
        self.is_at_end = batch.len() < ENTRIES_MAX;
        self.cookie = batch.back().map_or(self.cookie, |last| last.cookie);
        batch.retain(|entry| !matches!(entry.name.as_slice(), b"." | b".."));
        self.batch = batch;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.batch.is_empty() && !self.is_at_end {
            if let Err(error) = self.read_batch() {
                self.is_at_end = true;
                return Some(Err(error));
            }
        }
        let fs::DirEntry { inode, kind, name, .. } = self.batch.pop_front()?;
        let access = self.opened.access().clone();
        Some(Ok(DirEntry { access, inode, kind, name, directory: self.path.clone() }))
    }
}

/// An entry of a directory. It does not change when the directory does. It keeps the volume open.
pub struct DirEntry {
    access: Access,
    inode: InodeNo,
    kind: Kind,
    name: Vec<u8>,
    directory: PathBuf,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> OsString {
        OsString::from_vec(self.name.clone())
    }

    /// The path of the directory, as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        self.directory.join(OsStr::from_bytes(&self.name))
    }

    /// The type of the file. Symbolic links are not followed.
    pub fn file_type(&self) -> Kind {
        self.kind
    }

    /// The inode number.
    pub fn inode(&self) -> u64 {
        self.inode.0
    }

    /// The present attributes of the inode that the entry led to. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`NotFound`](std::io::ErrorKind::NotFound) if the inode was deleted meanwhile.
    pub fn metadata(&self) -> Result<Metadata> {
        let found = self.access.call(Call::InodeMetadata { inode: self.inode });
        match found.and_then(Reply::attributes) {
            Ok(found) if found.links > 0 => Ok(Metadata(found)),
            Ok(_) | Err(Error::Operation(FsError::Stale)) => Err(Error::at(&self.path(), FsError::NotFound)),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
