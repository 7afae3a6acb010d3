//! Attributes: permissions, owners, times, extended attributes, lifetimes.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::{gid_t, mode_t, size_t, ssize_t, stat, timespec, uid_t};
use polder::{FileType, Lifetime, Metadata, Times};
use rt::{Clock, SystemClock};

use crate::call::{Failure, Outcome, buffer, bytes, copy_out, output, path, run, run_long, text};
use crate::volume::{allocate, polder_volume};

/// How long data is expected to live. Data of one lifetime is stored together, which makes garbage collection cheaper.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum polder_lifetime {
    /// Nothing is known.
    POLDER_LIFETIME_UNKNOWN = 0,
    /// Seconds to minutes.
    POLDER_LIFETIME_SHORT = 2,
    /// Hours.
    POLDER_LIFETIME_MEDIUM = 3,
    /// Days to months.
    POLDER_LIFETIME_LONG = 4,
    /// For ever.
    POLDER_LIFETIME_EXTREME = 5,
}

/// The attributes of a file or directory. st_dev is 0. A symbolic link at the end of the path is followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_stat(volume: polder_volume, at: *const c_char, result: *mut stat) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, result) = unsafe { (path(at)?, output(result)?) };
        *result = to_stat(&volume.get()?.volume.metadata(at)?);
        Ok(())
    })
}

/// The same, but a symbolic link at the end of the path is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_lstat(volume: polder_volume, at: *const c_char, result: *mut stat) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, result) = unsafe { (path(at)?, output(result)?) };
        *result = to_stat(&volume.get()?.volume.symlink_metadata(at)?);
        Ok(())
    })
}

/// Sets the permission bits, for example 0644.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_chmod(volume: polder_volume, at: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.set_permissions(unsafe { path(at)? }, (mode & 0o7777) as u16)?))
}

/// Sets the owner and the group. (uid_t)-1 and (gid_t)-1 keep the present one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_chown(
    volume: polder_volume,
    at: *const c_char,
    uid: uid_t,
    gid: gid_t,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.set_owner(unsafe { path(at)? }, owner(uid), owner(gid))?))
}

/// The same, but a symbolic link at the end of the path is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_lchown(
    volume: polder_volume,
    at: *const c_char,
    uid: uid_t,
    gid: gid_t,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.set_symlink_owner(unsafe { path(at)? }, owner(uid), owner(gid))?))
}

/// Sets the times of the last access (the first element) and the last change of the contents (the second). tv_nsec can
/// be UTIME_NOW or UTIME_OMIT. NULL sets both to now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_utimens(
    volume: polder_volume,
    at: *const c_char,
    times: *const timespec,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.set_times(unsafe { path(at)? }, unsafe { to_times(times)? })?))
}

/// The same, but a symbolic link at the end of the path is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_lutimens(
    volume: polder_volume,
    at: *const c_char,
    times: *const timespec,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.set_symlink_times(unsafe { path(at)? }, unsafe { to_times(times)? })?))
}

/// Sets the length of a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_truncate(volume: polder_volume, at: *const c_char, length: u64) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let at = unsafe { path(at)? };
        Ok(volume.get()?.volume.options().write(true).open(at)?.set_len(length)?)
    })
}

/// Copies the value of an extended attribute to `value`, and returns its length. With `length` 0 only the length is
/// returned. ERANGE: the value is longer than `length`. ENODATA: there is no such attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_get_xattr(
    volume: polder_volume,
    at: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    length: size_t,
) -> ssize_t {
    run_long(|| {
        // SAFETY: as the header requires.
        let (at, name, into) = unsafe { (path(at)?, text(name)?, buffer(value, length)?) };
        let value = volume.get()?.volume.get_xattr(at, name)?;
        match !into.is_empty() && value.len() > into.len() {
            true => Err(Failure::new(libc::ERANGE, "the value is longer than the buffer")),
            false => Ok(copy_out(&value, into)),
        }
    })
}

/// Sets an extended attribute, whether it exists or not. Its name has at most 255 bytes and begins with "user.",
/// "trusted." or "security.", or is that of an access control list. The value has at most 64 KiB.
///
/// EOPNOTSUPP: another name. E2BIG or ENOSPC: the value is too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_set_xattr(
    volume: polder_volume,
    at: *const c_char,
    name: *const c_char,
    value: *const c_void,
    length: size_t,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, name, value) = unsafe { (path(at)?, text(name)?, bytes(value, length)?) };
        Ok(volume.get()?.volume.set_xattr(at, name, value)?)
    })
}

/// The names of all extended attributes, also of those that Polder has for itself (user.polder.lifetime). *names is set
/// to memory with *length bytes, in which a zero follows each name; free it with polder_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_list_xattrs(
    volume: polder_volume,
    at: *const c_char,
    names: *mut *mut c_char,
    length: *mut size_t,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, names, length) = unsafe { (path(at)?, output(names)?, output(length)?) };
        let found = volume.get()?.volume.list_xattrs(at)?;
        let all: Vec<u8> = found.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
        (*names, *length) = (allocate(&all)?.cast(), all.len());
        Ok(())
    })
}

/// Removes an extended attribute. ENODATA: there is none with this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_remove_xattr(
    volume: polder_volume,
    at: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.remove_xattr(unsafe { path(at)? }, unsafe { text(name)? } as &OsStr)?))
}

/// Sets how long the data of a file is expected to live. New files in a directory inherit its lifetime. It is a hint:
/// data of a wrong lifetime is as safe as any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_set_lifetime(
    volume: polder_volume,
    at: *const c_char,
    lifetime: c_int,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let at = unsafe { path(at)? };
        Ok(volume.get()?.volume.set_lifetime(at, to_lifetime(lifetime)?)?)
    })
}

/// The expected lifetime, a value of enum polder_lifetime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_get_lifetime(volume: polder_volume, at: *const c_char) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let lifetime = volume.get()?.volume.lifetime(unsafe { path(at)? })?;
        Ok(LIFETIMES.iter().find(|(_, known)| *known == lifetime).map_or(0, |(number, _)| *number as usize))
    })
}

/// The numbers are those of the kernel's write hints (RWH_WRITE_LIFE_*).
const LIFETIMES: [(polder_lifetime, Lifetime); 5] = [
    (polder_lifetime::POLDER_LIFETIME_UNKNOWN, Lifetime::Unknown),
    (polder_lifetime::POLDER_LIFETIME_SHORT, Lifetime::Short),
    (polder_lifetime::POLDER_LIFETIME_MEDIUM, Lifetime::Medium),
    (polder_lifetime::POLDER_LIFETIME_LONG, Lifetime::Long),
    (polder_lifetime::POLDER_LIFETIME_EXTREME, Lifetime::Extreme),
];

pub(crate) fn to_lifetime(number: c_int) -> Outcome<Lifetime> {
    let found = LIFETIMES.iter().find(|(known, _)| *known as c_int == number);
    found.map(|(_, lifetime)| *lifetime).ok_or_else(|| Failure::invalid("not a lifetime"))
}

pub(crate) fn to_stat(found: &Metadata) -> stat {
    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut all = unsafe { std::mem::zeroed::<stat>() };
    let kind = match found.file_type() {
        FileType::File => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Fifo => libc::S_IFIFO,
        FileType::Socket => libc::S_IFSOCK,
    };
    all.st_ino = found.inode();
    all.st_mode = kind | mode_t::from(found.permissions());
    all.st_nlink = found.links().into();
    all.st_uid = found.uid();
    all.st_gid = found.gid();
    all.st_rdev = found.device().into();
    all.st_size = i64::try_from(found.len()).unwrap_or(i64::MAX);
    all.st_blksize = BLOCK_BYTES;
    all.st_blocks = i64::try_from(found.allocated_bytes() / 512).unwrap_or(i64::MAX);
    (all.st_atime, all.st_atime_nsec) = seconds(found.accessed());
    (all.st_mtime, all.st_mtime_nsec) = seconds(found.modified());
    (all.st_ctime, all.st_ctime_nsec) = seconds(found.changed());
    all
}

/// A size in which reading and writing is fast.
const BLOCK_BYTES: libc::blksize_t = 1 << 20;

fn seconds(time: SystemTime) -> (i64, i64) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos().into()),
        Err(before) => {
            let (whole, part) = (before.duration().as_secs() as i64, before.duration().subsec_nanos());
            if part == 0 { (-whole, 0) } else { (-whole - 1, i64::from(1_000_000_000 - part)) }
        }
    }
}

/// # Safety
/// `times` is null or points to two times.
pub(crate) unsafe fn to_times(times: *const timespec) -> Outcome<Times> {
    let now = || Some(UNIX_EPOCH + Duration::from_nanos(SystemClock::new().now().0.unsigned_abs()));
    if times.is_null() {
        return Ok(Times { accessed: now(), modified: now() });
    }
    // SAFETY: it points to two times.
    let [accessed, modified] = unsafe { *times.cast::<[timespec; 2]>() };
    let to = |time: timespec| match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(now()),
        0..1_000_000_000 => {
            let whole = Duration::from_secs(time.tv_sec.unsigned_abs());
            let base = match time.tv_sec {
                0.. => UNIX_EPOCH.checked_add(whole),
                _ => UNIX_EPOCH.checked_sub(whole),
            };
            let base = base.and_then(|base| base.checked_add(Duration::from_nanos(time.tv_nsec as u64)));
            base.map(Some).ok_or_else(|| Failure::invalid("a time is out of range"))
        }
        _ => Err(Failure::invalid("tv_nsec is not from 0 to 999999999")),
    };
    Ok(Times { accessed: to(accessed)?, modified: to(modified)? })
}

fn owner(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}
