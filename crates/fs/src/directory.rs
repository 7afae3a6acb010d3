//! Looking names up and reading directories.

use crate::errno::{FsError, Result};
use crate::format::{Damaged, FILE_SIZE_MAX, NAME_MAX, Record};
use crate::handle::Handle;
use crate::inodes::{Locked, State};
use crate::names::{COOKIE_PARENT, COOKIE_SELF};
use crate::permissions::EXECUTE;
use crate::types::{Attributes, Caller, DirEntry, InodeNo, Kind};
use crate::volume::Fs;

/// Entries that are read from the store at a time.
const BATCH: usize = 128;
/// How often a look-up is repeated because the name was removed between reading the entry and reading the inode.
/// After so many, the entry does not lead to an inode.
const TRIES: usize = 64;

/// The largest number of names of an inode, and of subdirectories of a directory plus 2.
pub(crate) const LINKS_MAX: u32 = i32::MAX as u32;

impl Fs {
    /// The inode of a name in a directory, also of "." and "..".
    pub fn lookup(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<Attributes> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let up = self.check_search(caller, parent)?;
        match name {
            b"." => return self.attributes(parent),
            b".." => return self.attributes(up),
            _ => {}
        }
        for _ in 0..TRIES {
            let found = self.find(parent, name)?.ok_or(FsError::NotFound)?;
            match self.attributes(found.inode) {
                Err(FsError::Stale) => {}
                Ok(attributes) if attributes.links == 0 => {}
                result => return result,
            }
        }
        Err(FsError::Io(format!(
            "metadata is damaged: an entry of directory {} refers to no inode",
            parent.0
        )))
    }

    /// Calls `each` for every entry after `cookie` until it returns false. 0 means from the start; "." and ".." have
    /// the cookies 1 and 2. No lock is held during the calls. Entries that are created or removed meanwhile may be
    /// passed or not. All others are passed exactly once.
    pub fn read_directory(
        &self,
        handle: &Handle,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        handle.check_readable()?;
        let inode = handle.inode();
        let record = match &*handle.node().state.read() {
            State::Gone(_) => return Ok(()),
            state => state.record()?.clone(),
        };
        if record.kind != Kind::Directory {
            return Err(FsError::NotDirectory);
        }
        if record.links == 0 || !each_dot(inode, record.parent, cookie, each) {
            return Ok(());
        }
        let mut after = cookie.max(COOKIE_PARENT);
        loop {
            let entries = self.entries_after(inode, after, BATCH)?;
            let is_last = entries.len() < BATCH;
            for entry in entries {
                after = entry.cookie;
                if !each(entry) {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

impl Fs {
    /// Refuses a caller without permission to search a directory. Returns the directory's parent.
    pub(crate) fn check_search(&self, caller: &Caller, inode: InodeNo) -> Result<InodeNo> {
        let node = self.node(inode)?;
        let state = node.state.read();
        let directory = directory_of(&state)?;
        self.check_access(caller, inode, directory, EXECUTE)?;
        Ok(directory.parent)
    }
}

impl Record {
    /// Counts one more entry of a directory.
    pub(crate) fn gain_entry(&mut self, subdirectory: bool) -> Result<()> {
        if subdirectory && self.links >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        if self.size >= FILE_SIZE_MAX {
            return Err(Damaged("the entry count of a directory overflows").into());
        }
        self.size += 1;
        self.links += u32::from(subdirectory);
        Ok(())
    }

    /// Counts one entry of a directory less.
    pub(crate) fn lose_entry(&mut self, subdirectory: bool) -> Result<()> {
        let links = if subdirectory { self.links.checked_sub(1) } else { Some(self.links) };
        match (self.size.checked_sub(1), links) {
            (Some(size), Some(links)) => (self.size, self.links) = (size, links),
            _ => return Err(Damaged("a directory has more entries than are recorded").into()),
        }
        Ok(())
    }
}

fn each_dot(inode: InodeNo, parent: InodeNo, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> bool {
    let dots: [(u64, InodeNo, &[u8]); 2] = [(COOKIE_SELF, inode, b"."), (COOKIE_PARENT, parent, b"..")];
    dots.into_iter().filter(|(own, ..)| *own > cookie).all(|(cookie, inode, name)| {
        each(DirEntry { inode, cookie, kind: Kind::Directory, name: name.to_vec() })
    })
}

/// The record of a directory that has a name. A removed directory contains no names.
pub(crate) fn directory_of(state: &State) -> Result<&Record> {
    match state.record() {
        Ok(record) => record.as_directory(),
        Err(FsError::Stale) => Err(FsError::NotFound),
        Err(other) => Err(other),
    }
}

impl Locked<'_> {
    /// The record of a directory that has a name.
    pub(crate) fn directory(&self, inode: InodeNo) -> Result<&Record> {
        match self.record(inode) {
            Ok(record) => record.as_directory(),
            Err(FsError::Stale) => Err(FsError::NotFound),
            Err(other) => Err(other),
        }
    }
}
