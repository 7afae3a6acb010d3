//! Permission checks. A caller that the kernel has checked already may do everything.

use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::types::{Caller, InodeNo, Kind};
use crate::volume::Fs;

pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const EXECUTE: u16 = 1;

pub(crate) const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
pub(crate) const STICKY: u16 = 0o1000;

impl Fs {
    /// Checks that the caller may do all of `wanted`. The first matching class decides: one of the permission bits,
    /// or one that an access list adds.
    pub(crate) fn check_access(
        &self,
        caller: &Caller,
        inode: InodeNo,
        record: &Record,
        wanted: u16,
    ) -> Result<()> {
        let is_listless =
            caller.checked || caller.is_root() || caller.uid == record.uid || record.xattrs == 0;
        let by_list = match is_listless {
            true => None,
            false => self.access_by_list(caller, inode, record, wanted)?,
        };
        match by_list {
            None => check_bits(caller, record, wanted),
            Some(true) => Ok(()),
            Some(false) => Err(FsError::Access),
        }
    }

    /// Checks that the caller may remove a name of `victim` from a directory.
    pub(crate) fn check_remove(
        &self,
        caller: &Caller,
        (parent, directory): (InodeNo, &Record),
        victim: &Record,
    ) -> Result<()> {
        self.check_access(caller, parent, directory, WRITE | EXECUTE)?;
        let sticky = directory.permissions & STICKY != 0;
        if sticky && caller.uid != directory.uid { check_owner(caller, victim) } else { Ok(()) }
    }
}

/// Checks that the permission bits grant the caller all of `wanted`. The first matching class decides.
fn check_bits(caller: &Caller, record: &Record, wanted: u16) -> Result<()> {
    if caller.checked {
        return Ok(());
    }
    if caller.is_root() {
        let anybody_executes = record.permissions & 0o111 != 0 || record.kind == Kind::Directory;
        return if wanted & EXECUTE == 0 || anybody_executes { Ok(()) } else { Err(FsError::Access) };
    }
    let class = if caller.uid == record.uid {
        record.permissions >> 6
    } else if caller.in_group(record.gid) {
        record.permissions >> 3
    } else {
        record.permissions
    };
    if class & wanted == wanted { Ok(()) } else { Err(FsError::Access) }
}

/// Only for the owner and root.
pub(crate) fn check_owner(caller: &Caller, record: &Record) -> Result<()> {
    let may = caller.checked || caller.is_root() || caller.uid == record.uid;
    if may { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// Only for root.
pub(crate) fn check_root(caller: &Caller) -> Result<()> {
    if caller.checked || caller.is_root() { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// The permission bits of anything but a directory after a caller other than root has written to it, or after a
/// change of its owner: the program loses the privilege to run as another user.
pub(crate) fn without_set_id(record: &Record) -> u16 {
    let group_executes = record.permissions & 0o010 != 0;
    let dropped = if group_executes { SET_UID | SET_GID } else { SET_UID };
    if record.kind == Kind::Directory { record.permissions } else { record.permissions & !dropped }
}

/// Group and permission bits of an inode that `caller` creates in `directory` with these bits.
pub(crate) fn inherited(caller: &Caller, directory: &Record, kind: Kind, mut permissions: u16) -> (u32, u16) {
    if directory.permissions & SET_GID == 0 {
        return (caller.gid, permissions);
    }
    if kind == Kind::Directory {
        permissions |= SET_GID;
    } else if permissions & (SET_GID | 0o010) == (SET_GID | 0o010)
        && !caller.is_root()
        && !caller.in_group(directory.gid)
    {
        permissions &= !SET_GID;
    }
    (directory.gid, permissions)
}

#[cfg(test)]
mod tests;
