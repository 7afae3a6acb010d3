//! Names in directories.
//!
//! The key of an entry is (parent, cookie). A cookie consists of 55 bits of the name's SipHash under the volume's
//! secret and of an 8-bit number that distinguishes names with the same hash. It never changes while the entry
//! exists, whatever happens to other entries, so a directory can be read in pieces. The cookies 0, 1 and 2 belong to
//! no hash: "from the start", "." and "..".

use std::hash::Hasher;
use std::ops::ControlFlow;

use siphasher::sip::SipHasher13;
use tree::Tx;

use crate::errno::{FsError, Result};
use crate::format::{DIRENT, Dirent, NAME_MAX, Record, decode_dirent_key, dirent_key};
use crate::types::{DirEntry, InodeNo, Kind};
use crate::volume::Fs;

pub(crate) const COOKIE_SELF: u64 = 1;
pub(crate) const COOKIE_PARENT: u64 = 2;
const HASH_BITS: u32 = 55;
/// The largest number of names with the same hash in one directory.
const COLLISIONS: usize = 256;

/// The place of an existing name, or of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Taken(FoundEntry),
    Free(u64),
}

/// An entry that was found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundEntry {
    pub(crate) cookie: u64,
    pub(crate) inode: InodeNo,
    pub(crate) kind: Kind,
}

/// Refuses byte strings that cannot be the name of an entry.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    let reserved = name.is_empty() || name == b"." || name == b"..";
    if reserved || name.contains(&b'/') || name.contains(&0) { Err(FsError::Invalid) } else { Ok(()) }
}

/// The hash of a name, or of the name of an attribute.
pub(crate) fn hash_name(secret: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(secret);
    hasher.write(name);
    hasher.finish()
}

/// The cookie of a name with collision number 0.
pub(crate) fn first_cookie(secret: &[u8; 16], name: &[u8]) -> u64 {
    (hash_name(secret, name) >> (64 - HASH_BITS)).max(1) << 8
}

impl Fs {
    /// Looks a name up. Returns the place for a new entry if the name does not exist.
    pub(crate) fn slot(&self, parent: InodeNo, name: &[u8]) -> Result<Slot> {
        let first = first_cookie(&self.store.info().secret, name);
        let (from, to) = (dirent_key(parent, first), dirent_key(parent, first + COLLISIONS as u64));
        let mut slot = Ok(Slot::Free(first));
        self.store.visit(self.group(parent), DIRENT, &from, &to, |key, value| {
            slot = match (match_entry(name, key, value), &slot) {
                (Err(damaged), _) => Err(damaged),
                (Ok((_, Some(found))), _) => Ok(Slot::Taken(found)),
                (Ok((cookie, None)), Ok(Slot::Free(free))) => {
                    let is_taken = *free == cookie && !rt::is_planted("break-hash-collision");
                    Ok(Slot::Free(free + u64::from(is_taken)))
                }
                _ => unreachable!("the visit ends with the name, or with damage"),
            };
            match slot {
                Ok(Slot::Free(_)) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        match slot? {
            Slot::Free(free) if free == first + COLLISIONS as u64 => Err(FsError::NoSpace),
            slot => Ok(slot),
        }
    }

    /// Looks a name up.
    pub(crate) fn find(&self, parent: InodeNo, name: &[u8]) -> Result<Option<FoundEntry>> {
        match self.slot(parent, name)? {
            Slot::Taken(found) => Ok(Some(found)),
            Slot::Free(_) => Ok(None),
        }
    }

    /// The place for a new entry. Refuses a name that exists.
    pub(crate) fn free_cookie(&self, parent: InodeNo, name: &[u8]) -> Result<u64> {
        match self.slot(parent, name)? {
            Slot::Taken(_) => Err(FsError::Exists),
            Slot::Free(cookie) => Ok(cookie),
        }
    }

    pub(crate) fn put_name(
        &self,
        tx: &mut Tx,
        parent: InodeNo,
        cookie: u64,
        name: &[u8],
        inode: InodeNo,
        kind: Kind,
    ) {
        let dirent = Dirent { inode, kind, name };
        tx.put(self.group(parent), DIRENT, dirent_key(parent, cookie), dirent.encode());
    }

    pub(crate) fn delete_name(&self, tx: &mut Tx, parent: InodeNo, cookie: u64) {
        tx.delete(self.group(parent), DIRENT, dirent_key(parent, cookie));
    }

    /// Up to `limit` entries after `cookie`, without "." and "..".
    pub(crate) fn entries_after(&self, parent: InodeNo, cookie: u64, limit: usize) -> Result<Vec<DirEntry>> {
        let from = dirent_key(parent, cookie.saturating_add(1));
        let to = dirent_key(parent, u64::MAX);
        let decode = |key: &[u8], value: &[u8]| {
            let (_, cookie) = decode_dirent_key(key)?;
            let Dirent { inode, kind, name } = Dirent::decode(value)?;
            Ok(DirEntry { inode, cookie, kind, name: name.to_vec() })
        };
        let mut entries: Vec<Result<DirEntry>> = Vec::new();
        if limit > 0 {
            self.store.visit(self.group(parent), DIRENT, &from, &to, |key, value| {
                entries.push(decode(key, value));
                if entries.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        entries.into_iter().collect()
    }
}

/// The cookie of an entry, and the entry itself if it has this name.
fn match_entry(name: &[u8], key: &[u8], value: &[u8]) -> Result<(u64, Option<FoundEntry>)> {
    let (_, cookie) = decode_dirent_key(key)?;
    let Dirent { inode, kind, name: its } = Dirent::decode(value)?;
    Ok((cookie, (its == name).then_some(FoundEntry { cookie, inode, kind })))
}

impl Record {
    /// This record, if it is a directory in which names can be looked up and created.
    pub(crate) fn as_directory(&self) -> Result<&Record> {
        match self.kind {
            Kind::Directory if self.links == 0 => Err(FsError::NotFound),
            Kind::Directory => Ok(self),
            _ => Err(FsError::NotDirectory),
        }
    }
}

#[cfg(test)]
mod tests;
