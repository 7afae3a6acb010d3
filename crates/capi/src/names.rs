//! Operations on names: making, finding, moving and removing.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use libc::{mode_t, size_t, ssize_t};
use polder::RenameFlags;

use crate::call::{buffer, bytes, copy_out, output, path, run, run_long};
use crate::volume::{allocate, polder_volume, refuse_flags};

/// Fail with EEXIST if the new name exists.
pub const POLDER_RENAME_NOREPLACE: c_uint = 1;
/// Exchange the two names.
pub const POLDER_RENAME_EXCHANGE: c_uint = 2;
/// Leave a whiteout (character device 0) under the old name.
pub const POLDER_RENAME_WHITEOUT: c_uint = 4;

/// Makes a directory. The umask of the caller is taken off `mode`; for a handle from polder_volume_open it is 022.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_mkdir(volume: polder_volume, at: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.create_dir_with(unsafe { path(at)? }, (mode & 0o7777) as u16)?))
}

/// Makes a directory and those above it that do not exist, each with mode 0777 without the umask of the caller.
/// Succeeds if it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_mkdir_all(volume: polder_volume, at: *const c_char) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.create_dir_all(unsafe { path(at)? })?))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_rmdir(volume: polder_volume, at: *const c_char) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.remove_dir(unsafe { path(at)? })?))
}

/// Removes a directory and everything in it. After an error or a crash, a part may be left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_remove_all(volume: polder_volume, at: *const c_char) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.remove_dir_all(unsafe { path(at)? })?))
}

/// Removes a name of a file or symbolic link. The file is deleted when it has no name and is not open any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_unlink(volume: polder_volume, at: *const c_char) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.remove_file(unsafe { path(at)? })?))
}

/// Renames a file or directory. An existing file or empty directory is replaced in one step, unless `flags` says
/// otherwise: POLDER_RENAME_NOREPLACE, POLDER_RENAME_EXCHANGE, POLDER_RENAME_WHITEOUT, or 0. After a crash the name
/// has the complete old contents or the complete new ones, also without a sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_rename(
    volume: polder_volume,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    run(|| {
        refuse_flags(flags, POLDER_RENAME_NOREPLACE | POLDER_RENAME_EXCHANGE | POLDER_RENAME_WHITEOUT)?;
        let flags = RenameFlags {
            no_replace: flags & POLDER_RENAME_NOREPLACE != 0,
            exchange: flags & POLDER_RENAME_EXCHANGE != 0,
            whiteout: flags & POLDER_RENAME_WHITEOUT != 0,
        };
        // SAFETY: as the header requires.
        let (from, to) = unsafe { (path(from)?, path(to)?) };
        Ok(volume.get()?.volume.rename_with(from, to, flags)?)
    })
}

/// Gives a file another name. A symbolic link at the end of `original` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_link(
    volume: polder_volume,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.hard_link(unsafe { path(original)? }, unsafe { path(link)? })?))
}

/// Makes a symbolic link. The target is not examined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_symlink(
    volume: polder_volume,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.symlink(unsafe { path(target)? }, unsafe { path(link)? })?))
}

/// Copies the target of a symbolic link to `target`, without a zero at its end, and returns its length in bytes. A
/// target that is longer than `length` is cut, and the complete length is returned nevertheless. EINVAL: it is no link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_readlink(
    volume: polder_volume,
    at: *const c_char,
    target: *mut c_char,
    length: size_t,
) -> ssize_t {
    run_long(|| {
        // SAFETY: as the header requires.
        let (at, into) = unsafe { (path(at)?, buffer(target.cast(), length)?) };
        let target = volume.get()?.volume.read_link(at)?;
        Ok(copy_out(target.as_os_str().as_bytes(), into))
    })
}

/// Reads a file as a whole. *contents is set to memory with *length bytes; free it with polder_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_read_file(
    volume: polder_volume,
    at: *const c_char,
    contents: *mut *mut c_void,
    length: *mut size_t,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, contents, length) = unsafe { (path(at)?, output(contents)?, output(length)?) };
        let read = volume.get()?.volume.read(at)?;
        (*contents, *length) = (allocate(&read)?, read.len());
        Ok(())
    })
}

/// Writes a file as a whole: creates it with mode 0666 without the umask, or replaces the contents of an existing one.
/// After a failure (ENOSPC, EIO) or a crash the file can be empty or incomplete, without its old contents: write
/// another file and rename it where that matters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_write_file(
    volume: polder_volume,
    at: *const c_char,
    contents: *const c_void,
    length: size_t,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, contents) = unsafe { (path(at)?, bytes(contents, length)?) };
        Ok(volume.get()?.volume.write(at, contents)?)
    })
}

/// Copies the contents of a file, and its permission bits without set-id bits, to another one, which is created or
/// replaced. Whole blocks are shared where that pays. After a failure or a crash the target can be incomplete, without
/// its old contents. EINVAL: both are the same file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_copy_file(
    volume: polder_volume,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(volume.get()?.volume.copy(unsafe { path(from)? }, unsafe { path(to)? }).map(drop)?))
}
