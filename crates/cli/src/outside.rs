//! Making outside a volume what is in it: what `cp` and `salvage` share.
//!
//! Everything is new: nothing is written over, and no link that is there is followed.

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

/// What a copy is to have besides its contents.
pub(crate) struct Looks {
    pub(crate) kind: Kind,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
}

impl From<&fs::Attributes> for Looks {
    fn from(found: &fs::Attributes) -> Looks {
        let &fs::Attributes { kind, permissions, uid, gid, accessed, modified, .. } = found;
        Looks { kind, permissions, uid, gid, accessed, modified }
    }
}

impl From<&Record> for Looks {
    fn from(record: &Record) -> Looks {
        let &Record { kind, permissions, uid, gid, accessed, modified, .. } = record;
        Looks { kind, permissions, uid, gid, accessed, modified }
    }
}

/// Name and value of an extended attribute.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// Something that the target does not take.
pub(crate) struct Refused {
    pub(crate) what: String,
    pub(crate) why: Errno,
}

/// A device, pipe or socket.
pub(crate) fn make_node(kind: Kind, device: u32, to: &Path) -> Result<()> {
    let kind = match kind {
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        _ => FileType::Socket,
    };
    Ok(mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device.into())?)
}

/// Gives a copy its extended attributes; those that are refused, by name.
pub(crate) fn set_xattrs(xattrs: &[Xattr], to: &Path, refused: &mut Vec<Refused>) {
    for (name, value) in xattrs {
        let set = lsetxattr(to, name.as_slice(), value, XattrFlags::empty());
        note(&format!("the attribute {}", in_line(name)), set, refused);
    }
}

/// The owner of a copy; before the attributes, which a change of owner may take away.
pub(crate) fn set_owner(looks: &Looks, to: &Path, refused: &mut Vec<Refused>) {
    let owner = (Uid::from_raw(looks.uid), Gid::from_raw(looks.gid));
    let set = chownat(CWD, to, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW);
    note("its owner", set, refused);
}

/// Permissions and times of a copy; after everything else, which may change them.
///
/// A program does not run as its owner or group when these are others now.
pub(crate) fn set_looks(looks: &Looks, to: &Path, refused: &mut Vec<Refused>) {
    if looks.kind != Kind::Symlink {
        note("its permissions", set_permissions(looks, to), refused);
    }
    let times = Timestamps { last_access: time(looks.accessed), last_modification: time(looks.modified) };
    note("its times", utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW), refused);
}

/// By way of what is there now: its owner by then may have put a link in its place.
fn set_permissions(looks: &Looks, to: &Path) -> Result<(), Errno> {
    let made = open(to, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = fstat(&made)?;
    if FileType::from_raw_mode(about.st_mode).is_symlink() {
        return Err(Errno::LOOP);
    }
    let is_owner_kept = (about.st_uid, about.st_gid) == (looks.uid, looks.gid);
    let permissions = if is_owner_kept { looks.permissions } else { looks.permissions & !SET_ID };
    let itself = format!("/proc/self/fd/{}", made.as_raw_fd());
    chmodat(CWD, itself, Mode::from_raw_mode(permissions.into()), AtFlags::empty())
}

/// A file with what `fill` writes. If that fails there is no file: a part of one could pass for it.
pub(crate) fn make_file<T>(to: &Path, fill: impl FnOnce(&File) -> Result<T>) -> Result<T> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    fill(&file).inspect_err(|_| drop(std::fs::remove_file(to)))
}

/// Whether nothing further can be made there either.
pub(crate) fn ends_all(error: &Error) -> bool {
    let of_system = error.chain().find_map(|cause| match cause.downcast_ref::<Errno>() {
        Some(errno) => Some(*errno),
        None => cause.downcast_ref::<io::Error>().and_then(Errno::from_io_error),
    });
    matches!(of_system, Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO))
}

fn note(what: &str, set: Result<(), Errno>, refused: &mut Vec<Refused>) {
    if let Err(why) = set {
        refused.push(Refused { what: what.to_owned(), why });
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
