//! Flags, kinds and times between the kernel's words and ours.
//!
//! A time of the kernel is seconds, which may be negative, and nanoseconds, which are always added: −1.2 s is
//! seconds −2 and nanoseconds 800 million. One of ours is nanoseconds alone, so there are times that only the
//! kernel can hold.

use fs::{FallocateMode, Kind, OpenFlags, RenameFlags};
use rt::Timestamp;
use rustix::fs::OFlags;

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// `O_DSYNC`, which is one of the two bits of `O_SYNC`. `OFlags` has both of them under either name.
const DSYNC: i32 = 0o10000;

/// The bits of a mode that are permissions.
pub(crate) const PERMISSIONS: u32 = 0o7777;
/// Set-user-id.
pub(crate) const SET_USER_ID: u16 = 0o4000;
/// Set-group-id.
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// How a file is opened for the kernel.
///
/// Reading is always allowed: with the writeback cache the kernel reads the rest of a page that a
/// program that may only write has written in part. Appending is never asked for: the kernel knows the
/// size and sends the place. Synchronous writing through its cache is the kernel's business too: it sends a fsync
/// ([`is_synchronous`] is for the rest).
pub(crate) fn open_flags(flags: i32) -> OpenFlags {
    let flags = bits(flags);
    let write = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    OpenFlags { read: true, write, append: false, truncate: flags.contains(OFlags::TRUNC), sync: false }
}

/// Whether the file must not be there yet.
pub(crate) fn is_exclusive(flags: i32) -> bool {
    bits(flags).contains(OFlags::EXCL)
}

/// Whether reading through a file with these flags is reading by a program: a file that may only be written
/// is read by the kernel.
pub(crate) fn sets_access_time(flags: i32) -> bool {
    !bits(flags).intersects(OFlags::WRONLY | OFlags::NOATIME)
}

/// Whether a program writes past the kernel's cache.
pub(crate) fn is_direct(flags: i32) -> bool {
    bits(flags).contains(OFlags::DIRECT)
}

/// Whether what is written is durable when it is done: with `O_SYNC` too, and the kernel sets the bit for a single
/// write (`RWF_DSYNC`).
pub(crate) fn is_synchronous(flags: i32) -> bool {
    flags & DSYNC != 0
}

fn bits(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

/// `renameat2(2)` flags; `None` when there is one that we do not know.
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

/// `fallocate(2)` modes; `None` for combinations that mean nothing.
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

/// How long `fallocate(2)` makes a file that is shorter; `None` where it leaves the size.
pub(crate) fn grows_to(mode: i32, offset: u64, length: u64) -> Option<u64> {
    const KEEP_SIZE: i32 = 0x01;
    (mode & KEEP_SIZE == 0).then(|| offset.saturating_add(length))
}

/// The kind in the upper bits of a mode (`mknod`); no bits mean a file. `None` for bits of no kind.
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

/// The permissions that are left when a write or a truncation drops the set-id bits; `None` when
/// nothing changes. The group bit without group execution gives nobody a right, and stays where whoever writes
/// may set it.
pub(crate) fn without_set_id(permissions: u16, is_in_group: impl FnOnce() -> bool) -> Option<u16> {
    let mut left = permissions & !SET_USER_ID;
    if permissions & SET_GROUP_ID != 0 && (runs_as_group(permissions) || !is_in_group()) {
        left &= !SET_GROUP_ID;
    }
    (left != permissions).then_some(left)
}

/// Whether what has these permissions runs as its group.
pub(crate) fn runs_as_group(permissions: u16) -> bool {
    permissions & SET_GROUP_ID != 0 && permissions & GROUP_EXECUTE != 0
}

/// A time of ours as the kernel wants it: seconds and nanoseconds.
pub(crate) fn to_reply(time: Timestamp) -> (i64, u32) {
    let nanoseconds = time.0.rem_euclid(SECOND);
    (time.0.div_euclid(SECOND), u32::try_from(nanoseconds).expect("less than a second"))
}

/// A time of the kernel; what 64 bits cannot hold becomes the nearest that they can.
pub(crate) fn from_request(seconds: i64, nanoseconds: u32) -> Timestamp {
    let nearest = if seconds < 0 { i64::MIN } else { i64::MAX };
    Timestamp(i64::try_from(nanoseconds_of(seconds, nanoseconds)).unwrap_or(nearest))
}

/// Whether a time can be kept as it is.
pub(crate) fn can_be_kept(seconds: i64, nanoseconds: u32) -> bool {
    i64::try_from(nanoseconds_of(seconds, nanoseconds)).is_ok()
}

fn nanoseconds_of(seconds: i64, nanoseconds: u32) -> i128 {
    i128::from(seconds) * i128::from(SECOND) + i128::from(nanoseconds)
}

#[cfg(test)]
mod tests;
