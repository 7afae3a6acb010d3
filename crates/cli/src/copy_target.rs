//! Creates copies of a volume's files outside the volume, for `cp` and `salvage`.
//!
//! All created files are new: no existing file is overwritten, and no existing link is followed.

mod descent;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Error, Result};
use fs::Kind;
use fs::format::Record;
use rt::Timestamp;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    fstat, lsetxattr, mknodat, open, utimensat,
};
use rustix::io::Errno;

use crate::name::in_line;

pub(crate) use descent::Descent;

const SECOND: i64 = 1_000_000_000;
const SET_ID: u16 = 0o6000;

/// The attributes of a copy.
pub(crate) struct CopyAttributes {
    pub(crate) kind: Kind,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
}

impl From<&fs::Attributes> for CopyAttributes {
    fn from(found: &fs::Attributes) -> CopyAttributes {
        let &fs::Attributes { kind, permissions, uid, gid, accessed, modified, .. } = found;
        CopyAttributes { kind, permissions, uid, gid, accessed, modified }
    }
}

impl From<&Record> for CopyAttributes {
    fn from(record: &Record) -> CopyAttributes {
        let &Record { kind, permissions, uid, gid, accessed, modified, .. } = record;
        CopyAttributes { kind, permissions, uid, gid, accessed, modified }
    }
}

/// Name and value of an extended attribute.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// An attribute that the target refuses.
pub(crate) struct Refused {
    pub(crate) attribute: String,
    pub(crate) error: Errno,
}

/// Creates a device, pipe or socket.
pub(crate) fn make_node(kind: Kind, device: u32, to: &Path) -> Result<()> {
    let kind = match kind {
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        _ => FileType::Socket,
    };
    Ok(mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device.into())?)
}

/// Sets the extended attributes of a copy. Adds refused ones to `refused`.
pub(crate) fn set_xattrs(xattrs: &[Xattr], to: &Path, refused: &mut Vec<Refused>) {
    for (name, value) in xattrs {
        let set = lsetxattr(to, name.as_slice(), value, XattrFlags::empty());
        note(&format!("the attribute {}", in_line(name)), set, refused);
    }
}

/// Sets the owner of a copy. Must be called before the attributes are set, because a change of the owner may remove some.
pub(crate) fn set_owner(attributes: &CopyAttributes, to: &Path, refused: &mut Vec<Refused>) {
    let owner = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    let set = chownat(CWD, to, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW);
    note("its owner", set, refused);
}

/// Sets permissions and times of a copy. Must be called last, because other changes may change them.
///
/// The set-ID bits are cleared if the copy has another owner or group.
pub(crate) fn set_permissions_and_times(attributes: &CopyAttributes, to: &Path, refused: &mut Vec<Refused>) {
    if attributes.kind != Kind::Symlink {
        note("its permissions", set_permissions(attributes, to), refused);
    }
    let times =
        Timestamps { last_access: time(attributes.accessed), last_modification: time(attributes.modified) };
    note("its times", utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW), refused);
}

/// Sets the permissions through a descriptor, because the owner of the directory may have replaced the file by a link.
fn set_permissions(attributes: &CopyAttributes, to: &Path) -> Result<(), Errno> {
    let made = open(to, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = fstat(&made)?;
    if FileType::from_raw_mode(about.st_mode).is_symlink() {
        return Err(Errno::LOOP);
    }
    let is_owner_kept = (about.st_uid, about.st_gid) == (attributes.uid, attributes.gid);
    let permissions = if is_owner_kept { attributes.permissions } else { attributes.permissions & !SET_ID };
    let itself = format!("/proc/self/fd/{}", made.as_raw_fd());
    chmodat(CWD, itself, Mode::from_raw_mode(permissions.into()), AtFlags::empty())
}

/// Creates a file with the data that `fill` writes. If `fill` fails, removes the file, because it could be mistaken for a
/// complete one.
pub(crate) fn make_file<T>(to: &Path, fill: impl FnOnce(&File) -> Result<T>) -> Result<T> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    fill(&file).inspect_err(|_| drop(std::fs::remove_file(to)))
}

/// Whether the error also prevents all further copies.
pub(crate) fn ends_all(error: &Error) -> bool {
    let of_system = error.chain().find_map(|cause| match cause.downcast_ref::<Errno>() {
        Some(errno) => Some(*errno),
        None => cause.downcast_ref::<io::Error>().and_then(Errno::from_io_error),
    });
    matches!(of_system, Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO))
}

fn note(attribute: &str, set: Result<(), Errno>, refused: &mut Vec<Refused>) {
    if let Err(error) = set {
        refused.push(Refused { attribute: attribute.to_owned(), error });
    }
}

fn time(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.0.div_euclid(SECOND), tv_nsec: time.0.rem_euclid(SECOND) }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_full_target_ends_a_copy_and_a_refusal_does_not() {
        let of_system = |errno: Errno| Err::<(), _>(io::Error::from(errno)).context("a file").unwrap_err();
        assert!(ends_all(&of_system(Errno::NOSPC)) && ends_all(&Errno::ROFS.into()));
        assert!(!ends_all(&of_system(Errno::PERM)) && !ends_all(&Errno::FBIG.into()));
        assert!(!ends_all(&anyhow::anyhow!("No space left on device")));
    }
}
