//! POSIX access control lists as the kernel hands them over: version 2, then entries of
//! (tag u16, permissions u16, id u32). They are kept as they are; the owner's, mask's and others'
//! entries of an access list are also the file's permission bits.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

const ACL_VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AclEntry {
    tag: U16,
    permissions: U16,
    id: U32,
}

fn entries(value: &[u8]) -> Option<&[AclEntry]> {
    let (version, rest) = U32::ref_from_prefix(value).ok()?;
    let entries = <[AclEntry]>::ref_from_bytes(rest).ok()?;
    (version.get() == ACL_VERSION).then_some(entries)
}

/// Whether this is a list: known tags in order, each of owner, group and others once, a mask where
/// named users or groups are, nobody named twice.
pub(crate) fn is_valid(value: &[u8]) -> bool {
    let Some(entries) = entries(value) else { return false };
    let count = |tag: u16| entries.iter().filter(|entry| entry.tag.get() == tag).count();
    let is_known = |entry: &AclEntry| {
        let tag = entry.tag.get();
        tag.is_power_of_two() && tag <= OTHER && entry.permissions.get() <= 7
    };
    let place = |entry: &AclEntry| {
        let tag = entry.tag.get();
        (tag, if matches!(tag, USER | GROUP) { entry.id.get() } else { 0 })
    };
    let named = count(USER) + count(GROUP) > 0;
    entries.iter().all(is_known)
        && entries.is_sorted_by(|a, b| place(a) < place(b))
        && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
        && (count(MASK) == 1 || !named)
}

/// The permission bits that a valid list stands for.
pub(crate) fn permissions_of(value: &[u8], permissions: u16) -> u16 {
    let of = |tag: u16| {
        let found = entries(value)?.iter().find(|entry| entry.tag.get() == tag)?;
        Some(found.permissions.get() & 7)
    };
    let group = of(MASK).or_else(|| of(GROUP_OBJ)).unwrap_or(0);
    permissions & 0o7000 | of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
}
