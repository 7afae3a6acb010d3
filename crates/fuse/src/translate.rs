//! Translation of flags, kinds and times between the kernel and the file system.
//!
//! The kernel's time consists of seconds, which may be negative, and of nanoseconds, which are always added: −1.2 s
//! is seconds −2 and nanoseconds 800 million. Ours consists of nanoseconds alone, so some times can be represented
//! only by the kernel.

use fs::{FallocateMode, Kind, OpenFlags, RenameFlags};
use rt::Timestamp;
use rustix::fs::OFlags;

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;

/// `O_DSYNC`, which is one of the two bits of `O_SYNC`. `OFlags` has both bits under either name.
const DSYNC: i32 = 0o10000;

/// The permission bits of a mode.
pub(crate) const PERMISSIONS: u32 = 0o7777;
/// Set-user-id.
pub(crate) const SET_USER_ID: u16 = 0o4000;
/// Set-group-id.
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// The flags with which a file is opened for the kernel.
///
/// Reading is always allowed: with the writeback cache, the kernel reads the rest of a page that a write-only program
/// has written in part. Appending is never requested, because the kernel knows the size and sends the offset. For
/// synchronous writes through its cache, the kernel sends an `fsync` itself ([`is_synchronous`] is for the others).
pub(crate) fn open_flags(flags: i32) -> OpenFlags {
    let flags = bits(flags);
    let write = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    OpenFlags { read: true, write, append: false, truncate: flags.contains(OFlags::TRUNC), sync: false }
}

/// Whether the file must not exist yet.
pub(crate) fn is_exclusive(flags: i32) -> bool {
    bits(flags).contains(OFlags::EXCL)
}

/// Whether a read through a file with these flags comes from a program. A file that was opened write-only is read by
/// the kernel.
pub(crate) fn sets_access_time(flags: i32) -> bool {
    !bits(flags).intersects(OFlags::WRONLY | OFlags::NOATIME)
}

/// Whether a program bypasses the kernel's cache.
pub(crate) fn is_direct(flags: i32) -> bool {
    bits(flags).contains(OFlags::DIRECT)
}

/// Whether a program writes at the end of the file, whatever the offset is.
pub(crate) fn appends(flags: i32) -> bool {
    bits(flags).contains(OFlags::APPEND)
}

/// Whether a write must be durable when it is done. This is so with `O_SYNC` too, and the kernel sets the bit for a
/// single write (`RWF_DSYNC`).
pub(crate) fn is_synchronous(flags: i32) -> bool {
    flags & DSYNC != 0
}

fn bits(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

/// The flags of `renameat2(2)`. `None` if one of them is not known.
pub(crate) fn rename_flags(bits: u32) -> Option<RenameFlags> {
    const NO_REPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    const WHITEOUT: u32 = 4;
    (bits & !(NO_REPLACE | EXCHANGE | WHITEOUT) == 0).then_some(RenameFlags {
        no_replace: bits & NO_REPLACE != 0,
        exchange: bits & EXCHANGE != 0,
        whiteout: bits & WHITEOUT != 0,
    })
}

/// The modes of `fallocate(2)`. `None` for combinations without a meaning.
pub(crate) fn fallocate_mode(mode: i32) -> Option<FallocateMode> {
    const KEEP_SIZE: i32 = 0x01;
    const PUNCH_HOLE: i32 = 0x02;
    const COLLAPSE_RANGE: i32 = 0x08;
    const ZERO_RANGE: i32 = 0x10;
    const INSERT_RANGE: i32 = 0x20;
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Some(FallocateMode::Allocate { keep_size }),
        PUNCH_HOLE if keep_size => Some(FallocateMode::PunchHole),
        ZERO_RANGE => Some(FallocateMode::ZeroRange { keep_size }),
        COLLAPSE_RANGE if !keep_size => Some(FallocateMode::CollapseRange),
        INSERT_RANGE if !keep_size => Some(FallocateMode::InsertRange),
        _ => None,
    }
}

/// The size to which `fallocate(2)` makes a shorter file grow. `None` for modes that keep the size.
pub(crate) fn grows_to(mode: i32, offset: u64, length: u64) -> Option<u64> {
    const KEEP_SIZE: i32 = 0x01;
    (mode & KEEP_SIZE == 0).then(|| offset.saturating_add(length))
}

/// The kind in the upper bits of a mode (`mknod`). No bits mean a regular file. `None` for unknown bits.
pub(crate) fn kind_of_mode(mode: u32) -> Option<Kind> {
    match mode >> 12 & 0o17 {
        0 | 0o10 => Some(Kind::File),
        0o1 => Some(Kind::Fifo),
        0o2 => Some(Kind::CharDevice),
        0o6 => Some(Kind::BlockDevice),
        0o14 => Some(Kind::Socket),
        _ => None,
    }
}

/// The permissions after a write or a truncation drops the set-id bits. `None` if nothing changes. The set-group-id
/// bit without group execution gives no privilege. It stays if the caller may set it.
pub(crate) fn without_set_id(permissions: u16, is_in_group: impl FnOnce() -> bool) -> Option<u16> {
    let mut left = permissions & !SET_USER_ID;
    if permissions & SET_GROUP_ID != 0 && (runs_as_group(permissions) || !is_in_group()) {
        left &= !SET_GROUP_ID;
    }
    (left != permissions).then_some(left)
}

/// Whether a file with these permissions runs as its group.
pub(crate) fn runs_as_group(permissions: u16) -> bool {
    permissions & SET_GROUP_ID != 0 && permissions & GROUP_EXECUTE != 0
}

/// Our time as the kernel needs it: seconds and nanoseconds.
pub(crate) fn to_reply(time: Timestamp) -> (i64, u32) {
    let nanoseconds = time.0.rem_euclid(SECOND);
    (time.0.div_euclid(SECOND), u32::try_from(nanoseconds).expect("less than a second"))
}

/// The kernel's time as ours. A time that 64 bits cannot hold becomes the nearest one that they can hold.
pub(crate) fn from_request(seconds: i64, nanoseconds: u32) -> Timestamp {
    let nearest = if seconds < 0 { i64::MIN } else { i64::MAX };
    Timestamp(i64::try_from(nanoseconds_of(seconds, nanoseconds)).unwrap_or(nearest))
}

/// Whether a time can be kept without a change.
pub(crate) fn is_representable(seconds: i64, nanoseconds: u32) -> bool {
    i64::try_from(nanoseconds_of(seconds, nanoseconds)).is_ok()
}

fn nanoseconds_of(seconds: i64, nanoseconds: u32) -> i128 {
    i128::from(seconds) * i128::from(SECOND) + i128::from(nanoseconds)
}

#[cfg(test)]
mod tests;
