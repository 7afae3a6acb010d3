//! What directories hold, each read once however many findings ask.
//!
//! What is remembered is the state before the first change. That is safe: a repair that takes an entry away makes
//! the answer of a later question too cautious, and the next pass of repairs asks again.

use std::collections::{BTreeMap, BTreeSet};

use crate::errno::Result;
use crate::names::first_cookie;
use crate::types::{DirEntry, InodeNo};
use crate::volume::Fs;

/// Directories that findings have asked about.
pub(super) struct Directories<'a> {
    fs: &'a Fs,
    read: BTreeMap<InodeNo, Directory>,
}

#[derive(Default)]
struct Directory {
    /// Inodes that it has entries of.
    inodes: BTreeSet<InodeNo>,
    /// Entries that are not where the hash of their names says; of one name the first.
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

    /// The entry of this name that is not where the hash of the name says.
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
