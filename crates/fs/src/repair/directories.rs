//! The entries of directories, each of which is read once however many findings need it.
//!
//! The state before the first change is remembered. That is safe: after a repair has removed an entry, a later answer
//! is too cautious, and the next pass of repairs asks again.

use std::collections::{BTreeMap, BTreeSet};

use crate::errno::Result;
use crate::names::first_cookie;
use crate::types::{DirEntry, InodeNo};
use crate::volume::Fs;

/// The directories that findings have needed.
pub(super) struct Directories<'a> {
    fs: &'a Fs,
    read: BTreeMap<InodeNo, Directory>,
}

#[derive(Default)]
struct Directory {
    /// Inodes of its entries.
    inodes: BTreeSet<InodeNo>,
    /// Entries that are not in the place of their name's hash. Of several with one name, the first.
    misplaced: BTreeMap<Vec<u8>, DirEntry>,
}

impl<'a> Directories<'a> {
    pub(super) fn new(fs: &'a Fs) -> Directories<'a> {
        Directories { fs, read: BTreeMap::new() }
    }

    /// Whether a directory has an entry of this inode.
    pub(super) fn have(&mut self, directory: InodeNo, inode: InodeNo) -> Result<bool> {
        Ok(self.directory(directory)?.inodes.contains(&inode))
    }

    /// The entry with this name that is not in the place of the name's hash.
    pub(super) fn misplaced(&mut self, directory: InodeNo, name: &[u8]) -> Result<Option<DirEntry>> {
        Ok(self.directory(directory)?.misplaced.remove(name))
    }

    fn directory(&mut self, number: InodeNo) -> Result<&mut Directory> {
        if !self.read.contains_key(&number) {
            let mut directory = Directory::default();
            let secret = &self.fs.store.info().secret;
            for entry in self.fs.entries(number)?.into_iter().flatten() {
                directory.inodes.insert(entry.inode);
                if entry.cookie & !0xff != first_cookie(secret, &entry.name) {
                    directory.misplaced.entry(entry.name.clone()).or_insert(entry);
                }
            }
            self.read.insert(number, directory);
        }
        Ok(self.read.entry(number).or_default())
    }
}
