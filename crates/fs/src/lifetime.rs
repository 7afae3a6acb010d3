//! Expected lifetimes of data, which programs set for placement.
//!
//! The lifetime is a field of the inode's record, so every write has it at hand. New inodes in a directory inherit
//! that of the directory. Programs see it as an extended attribute, which exists unless the lifetime is unknown.
//!
//! Without it, the volume learns from data of the same *file class*. A file gets its class when it is created, from
//! its directory, its owner and the pattern of its name. The pattern is the extension, or the whole name if there is
//! none. Runs of digits in it are all the same, and so are names of hexadecimal digits.

use std::hash::Hasher;

use extent::{FileClass, Hint, Lifetime};
use siphasher::sip::SipHasher13;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::permissions::{WRITE, check_owner};
use crate::types::{Caller, InodeNo, Kind};
use crate::volume::Fs;

/// The attribute with the expected lifetime of the data.
pub const LIFETIME_ATTRIBUTE: &[u8] = b"user.polder.lifetime";
/// The longest end of a name that counts as an extension.
const EXTENSION_MAX: usize = 16;
/// The smallest number of hexadecimal digits that counts as a number.
const HEX_LEAST: usize = 8;

impl Fs {
    /// Sets the expected lifetime of a file's data, for placement. New inodes in a directory inherit it. Data that is
    /// in zones already stays where it is.
    pub fn set_lifetime(&self, caller: &Caller, inode: InodeNo, lifetime: Lifetime) -> Result<()> {
        self.change_lifetime(inode, |record| {
            check_owner(caller, record)?;
            Ok(lifetime)
        })
    }

    /// The expected lifetime of the data.
    pub fn lifetime(&self, inode: InodeNo) -> Result<Lifetime> {
        Ok(self.node(inode)?.state.read().record()?.hint().lifetime)
    }

    /// Sets or removes the attribute.
    pub(crate) fn change_lifetime_attribute(
        &self,
        caller: &Caller,
        inode: InodeNo,
        value: Option<&[u8]>,
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.change_lifetime(inode, |record| {
            self.check_xattr(caller, inode, record, LIFETIME_ATTRIBUTE, WRITE)?;
            match record.lifetime {
                0 if replace => return Err(FsError::NoAttribute),
                1.. if create => return Err(FsError::Exists),
                _ => {}
            }
            match value {
                Some(value) => Lifetime::from_name(value).ok_or(FsError::Invalid),
                None => Ok(Lifetime::Unknown),
            }
        })
    }

    fn change_lifetime(
        &self,
        inode: InodeNo,
        choose: impl FnOnce(&Record) -> Result<Lifetime>,
    ) -> Result<()> {
        self.begin()?;
        let node = self.node(inode)?;
        let mut locked = self.lock_one(&node);
        let mut record = locked.record(inode)?.clone();
        record.lifetime = choose(&record)?.number();
        record.changed = self.clock.now();
        let mut change = Change::reclaiming();
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        Ok(())
    }
}

/// The file class of a file that is created in `parent` with this name.
pub(crate) fn file_class_of(parent: InodeNo, uid: u32, name: &[u8]) -> FileClass {
    let pattern = pattern(name);
    let number = |parts: &[&[u8]]| {
        // The hash has no key: a class is the same in every mount.
        let mut hasher = SipHasher13::new();
        parts.iter().for_each(|part| hasher.write(part));
        (hasher.finish() as u16).max(1)
    };
    let uid = uid.to_le_bytes();
    let particular = number(&[&parent.0.to_le_bytes(), &uid, &pattern]);
    FileClass { particular, general: number(&[&uid, &pattern]) }
}

/// The common part of names of one class.
fn pattern(name: &[u8]) -> Vec<u8> {
    let dot = name.iter().rposition(|&byte| byte == b'.');
    let end = match dot {
        Some(dot) if dot > 0 && (1..=EXTENSION_MAX).contains(&(name.len() - dot - 1)) => &name[dot..],
        _ => name,
    };
    let is_number = end.len() >= HEX_LEAST && end.iter().all(u8::is_ascii_hexdigit);
    let mut pattern = Vec::new();
    for &byte in if is_number { b"0" } else { end } {
        let byte = if byte.is_ascii_digit() { b'0' } else { byte };
        if byte != b'0' || pattern.last() != Some(&b'0') {
            pattern.push(byte);
        }
    }
    pattern
}

impl Record {
    /// The placement hint.
    pub(crate) fn hint(&self) -> Hint {
        let lifetime = Lifetime::from_number(self.lifetime).unwrap_or_default();
        Hint { lifetime, file_class: self.file_class }
    }

    /// The value of the attribute. None for inodes that cannot have it.
    pub(crate) fn lifetime_attribute(&self) -> Option<Vec<u8>> {
        let has_attributes = matches!(self.kind, Kind::File | Kind::Directory);
        let lifetime = self.hint().lifetime;
        (has_attributes && lifetime != Lifetime::Unknown).then(|| lifetime.name().as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_class_have_one_pattern() {
        for (names, expected) in [
            (&["000123.sst", "9.sst", "x.sst"][..], &b".sst"[..]),
            (&["log.1", "log.20", "other.334"], b".0"),
            (&["16384", "000000010000000A000000FF", "deadbeef"], b"0"),
            (&["Makefile"], b"Makefile"),
            (&["part-00001-of-00002"], b"part-0-of-0"),
            (&[".profile"], b".profile"),
            (&["name."], b"name."),
            (&["a.this is no extension at all"], b"a.this is no extension at all"),
            (&[""], b""),
        ] {
            names.iter().for_each(|name| assert_eq!(pattern(name.as_bytes()), expected, "{name}"));
        }
    }

    #[test]
    fn classes_differ_by_directory_and_owner() {
        let class = |parent, uid, name: &str| file_class_of(InodeNo(parent), uid, name.as_bytes());
        assert_eq!(class(5, 0, "1.log"), class(5, 0, "2.log"));
        assert_eq!(class(5, 0, "1.log").general, class(6, 0, "2.log").general);
        assert_ne!(class(5, 0, "1.log").particular, class(6, 0, "2.log").particular);
        assert_ne!(class(5, 0, "1.log").general, class(5, 1, "2.log").general);
        assert_ne!(class(5, 0, "1.log").general, class(5, 0, "1.sst").general);
    }
}
