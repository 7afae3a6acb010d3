//! Names in directories.
//!
//! An entry's key is (parent, cookie): 55 bits of the name's SipHash under the volume's secret, and
//! an 8-bit number that tells names with the same hash apart. The cookie never changes while the
//! entry exists, whatever comes and goes around it, so a directory can be read in pieces.
//! 0, 1 and 2 are no hash's cookies: "from the start", "." and "..".

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
/// Names of one hash in one directory.
const COLLISIONS: usize = 256;

/// Where a name is, or where it could be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Taken(Found),
    Free(u64),
}

/// An entry that was found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) cookie: u64,
    pub(crate) inode: InodeNo,
    pub(crate) kind: Kind,
}

/// Refuses what cannot be a name of an entry.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    let reserved = name.is_empty() || name == b"." || name == b"..";
    if reserved || name.contains(&b'/') || name.contains(&0) { Err(FsError::Invalid) } else { Ok(()) }
}

/// The hash of a name, or of an attribute's name.
pub(crate) fn hash_name(secret: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(secret);
    hasher.write(name);
    hasher.finish()
}

/// The cookie of a name's hash with collision number 0.
pub(crate) fn first_cookie(secret: &[u8; 16], name: &[u8]) -> u64 {
    (hash_name(secret, name) >> (64 - HASH_BITS)).max(1) << 8
}

impl Fs {
    /// Looks a name up, and where it is not, for the place of a new entry.
    pub(crate) fn slot(&self, parent: InodeNo, name: &[u8]) -> Result<Slot> {
        let first = first_cookie(&self.store.info().secret, name);
        let (from, to) = (dirent_key(parent, first), dirent_key(parent, first + COLLISIONS as u64));
        let mut slot = Ok(Slot::Free(first));
        self.store.visit(self.group(parent), DIRENT, &from, &to, |key, value| {
            slot = match (is_it(name, key, value), &slot) {
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
    pub(crate) fn find(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Found>> {
        match self.slot(parent, name)? {
            Slot::Taken(found) => Ok(Some(found)),
            Slot::Free(_) => Ok(None),
        }
    }

    /// The place for a new entry; refuses a name that is there.
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

/// An entry's cookie, and what it names if that is its name.
fn is_it(name: &[u8], key: &[u8], value: &[u8]) -> Result<(u64, Option<Found>)> {
    let (_, cookie) = decode_dirent_key(key)?;
    let Dirent { inode, kind, name: its } = Dirent::decode(value)?;
    Ok((cookie, (its == name).then_some(Found { cookie, inode, kind })))
}

impl Record {
    /// This record as one of a directory that names can be looked up in and put into.
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
