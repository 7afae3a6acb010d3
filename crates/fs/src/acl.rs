//! POSIX access control lists, as described in acl(5).
//!
//! A list is stored as an extended attribute in the kernel's form: version 2, then entries of (tag u16, permissions
//! u16, id u32). In an access list, the entries of the owner, of others and of the mask (of the owning group, if
//! there is no mask) *are* the file's permission bits. A caller that reads a list gets the present bits in it. So
//! `chmod` changes a list without writing it, and the two cannot differ. A list that says no more than the bits is
//! not stored at all.
//!
//! A directory's default list does not affect access to the directory. New inodes in the directory get it as their
//! access list. The umask does not count then.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::errno::{FsError, Result};
use crate::format::{Damaged, Record};
use crate::types::{Caller, InodeNo, Kind};
use crate::volume::Fs;

/// The access list of an inode. Setting it changes the permission bits.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The access list that new inodes in a directory inherit.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Bytes of the longest list: the limit of a kernel with the smallest pages.
pub(crate) const LIST_BYTES_MAX: usize = 4096;

const ACL_VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AclEntry {
    tag: U16,
    permissions: U16,
    id: U32,
}

/// A valid list: known tags in order, exactly one entry each for owner, owning group and others, a mask if users or
/// groups are named, no user or group named twice.
#[derive(Clone, Debug)]
pub(crate) struct AccessList(Vec<AclEntry>);

impl AccessList {
    /// The list in the value of an attribute. None if it is not valid.
    pub(crate) fn decode(value: &[u8]) -> Option<AccessList> {
        let (version, rest) = U32::ref_from_prefix(value).ok()?;
        let entries = <[AclEntry]>::ref_from_bytes(rest).ok()?;
        let list = AccessList(entries.to_vec());
        (version.get() == ACL_VERSION && list.is_valid()).then_some(list)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [&ACL_VERSION.to_le_bytes(), self.0.as_bytes()].concat()
    }

    fn is_valid(&self) -> bool {
        let is_known = |entry: &AclEntry| {
            let tag = entry.tag.get();
            let is_named = !matches!(tag, USER | GROUP) || entry.id.get() != NO_ID;
            tag.is_power_of_two() && tag <= OTHER && entry.permissions.get() <= 7 && is_named
        };
        let is_ordered = self.0.is_sorted_by_key(|entry| entry.tag.get());
        let once = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| self.of(tag).count() == 1);
        let masks = self.of(MASK).count();
        let mask_is_right = masks == 1 || masks == 0 && !self.names_anybody();
        self.0.iter().all(is_known) && is_ordered && once && mask_is_right && self.names_each_once()
    }

    fn names_each_once(&self) -> bool {
        [USER, GROUP].into_iter().all(|tag| {
            let mut ids: Vec<u32> = self.of(tag).map(|entry| entry.id.get()).collect();
            ids.sort_unstable();
            ids.is_sorted_by(|a, b| a < b)
        })
    }

    fn names_anybody(&self) -> bool {
        self.0.iter().any(|entry| matches!(entry.tag.get(), USER | GROUP))
    }

    fn of(&self, tag: u16) -> impl Iterator<Item = &AclEntry> {
        self.0.iter().filter(move |entry| entry.tag.get() == tag)
    }

    fn permissions_of(&self, tag: u16) -> Option<u16> {
        self.of(tag).next().map(|entry| entry.permissions.get())
    }

    /// The tag of the entry that has the permission bits of the group.
    fn group_class(&self) -> u16 {
        if self.permissions_of(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// Whether permission bits alone can express the list.
    pub(crate) fn is_minimal(&self) -> bool {
        self.group_class() == GROUP_OBJ
    }

    /// The permission bits in the list.
    pub(crate) fn bits(&self) -> u16 {
        let of = |tag| self.permissions_of(tag).expect("a valid list has these entries");
        of(USER_OBJ) << 6 | of(self.group_class()) << 3 | of(OTHER)
    }

    /// Sets the permission bits in the list.
    pub(crate) fn set_bits(&mut self, permissions: u16) {
        let group_class = self.group_class();
        for entry in &mut self.0 {
            match entry.tag.get() {
                USER_OBJ => entry.permissions = (permissions >> 6 & 7).into(),
                OTHER => entry.permissions = (permissions & 7).into(),
                tag if tag == group_class => entry.permissions = (permissions >> 3 & 7).into(),
                _ => {}
            }
        }
    }

    /// Whether the list grants all of `wanted` to a caller that is not the owner. The first matching class decides.
    /// One of the caller's groups must grant all.
    fn grants(&self, caller: &Caller, owning_group: u32, wanted: u16) -> bool {
        let mask = self.permissions_of(MASK).unwrap_or(7);
        let gives = |entry: &AclEntry| entry.permissions.get() & wanted == wanted;
        if let Some(named) = self.of(USER).find(|entry| entry.id.get() == caller.uid) {
            return gives(named) && mask & wanted == wanted;
        }
        let mut is_in_group = false;
        for entry in self.of(GROUP_OBJ).chain(self.of(GROUP)) {
            let group = if entry.tag.get() == GROUP { entry.id.get() } else { owning_group };
            if caller.in_group(group) {
                if gives(entry) {
                    return mask & wanted == wanted;
                }
                is_in_group = true;
            }
        }
        !is_in_group && self.of(OTHER).all(gives)
    }
}

/// The lists of a new inode.
#[derive(Default)]
pub(crate) struct Inherited {
    /// Its access list, if permission bits cannot express it.
    pub(crate) access: Option<AccessList>,
    /// The default list of a directory.
    pub(crate) default: Option<AccessList>,
}

impl Fs {
    /// Whether a list decides about the caller, who is not the owner, and its decision.
    pub(crate) fn access_by_list(
        &self,
        caller: &Caller,
        inode: InodeNo,
        record: &Record,
        wanted: u16,
    ) -> Result<Option<bool>> {
        let list = self.access_list(inode, record)?;
        Ok(list.map(|list| list.grants(caller, record.gid, wanted)))
    }

    /// The access list, if it says more than the permission bits.
    pub(crate) fn access_list(&self, inode: InodeNo, record: &Record) -> Result<Option<AccessList>> {
        let mut list = self.stored_list(inode, record, ACL_ACCESS)?;
        if let Some(list) = &mut list {
            list.set_bits(record.permissions);
        }
        Ok(list)
    }

    fn stored_list(&self, inode: InodeNo, record: &Record, name: &[u8]) -> Result<Option<AccessList>> {
        let Some(value) = self.stored_xattr(inode, record, name)? else { return Ok(None) };
        let list = AccessList::decode(&value).ok_or(Damaged("an access control list is not valid"))?;
        Ok(Some(list))
    }

    /// The permissions and lists of a new inode in a directory. The directory's default list, or the umask if there
    /// is none, removes permissions.
    pub(crate) fn permissions_made(
        &self,
        caller: &Caller,
        (parent, directory): (InodeNo, &Record),
        kind: Kind,
        permissions: u16,
    ) -> Result<(u16, Inherited)> {
        let default = match kind {
            Kind::Symlink => None,
            _ => self.stored_list(parent, directory, ACL_DEFAULT)?,
        };
        let Some(default) = default else {
            return Ok((permissions & !(caller.umask & 0o777), Inherited::default()));
        };
        let permissions = permissions & (default.bits() | 0o7000);
        let mut access = default.clone();
        access.set_bits(permissions);
        let access = Some(access).filter(|access| !access.is_minimal());
        let default = (kind == Kind::Directory).then_some(default);
        Ok((permissions, Inherited { access, default }))
    }
}

/// The list in a value that a caller sets.
pub(crate) fn check_list(record: &Record, name: &[u8], value: &[u8]) -> Result<AccessList> {
    match record.kind {
        kind if name == ACL_DEFAULT && kind != Kind::Directory => return Err(FsError::Access),
        _ if value.len() > LIST_BYTES_MAX => return Err(FsError::ArgumentTooLong),
        _ => {}
    }
    AccessList::decode(value).ok_or(FsError::Invalid)
}

#[cfg(test)]
mod tests;
