//! Open files.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use libc::{mode_t, size_t, ssize_t, stat, timespec};
use polder::{FallocateMode, File};

use crate::attributes::{to_lifetime, to_stat, to_times};
use crate::call::{Failure, Outcome, buffer, bytes, output, path, run, run_long};
use crate::handles::{Kind, Table};
use crate::volume::polder_volume;

/// An open file. Any number of threads can use it at the same time. It has no cursor. 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct polder_file {
    /// Not to be interpreted.
    pub id: u64,
}

/// One read of polder_read_many.
#[repr(C)]
pub struct polder_read {
    /// A file that is open for reading.
    pub file: polder_file,
    /// The offset of the first byte.
    pub offset: u64,
    /// Where the bytes go.
    pub buffer: *mut c_void,
    /// How many bytes are wanted.
    pub length: size_t,
    /// Set: how many bytes were read, fewer than wanted only at the end of the file, or a negative error number.
    pub result: ssize_t,
}

fn files() -> &'static Table<File> {
    static TABLE: OnceLock<Table<File>> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(Kind::File))
}

impl polder_file {
    pub(crate) fn get(self) -> Outcome<Arc<File>> {
        files().get(self.id)
    }
}

/// Opens a file, or a directory for polder_file_sync. `flags` are those of <fcntl.h>: O_RDONLY, O_WRONLY or O_RDWR,
/// with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DSYNC, O_SYNC, O_NOFOLLOW, O_DIRECTORY. O_CLOEXEC, O_DIRECT, O_LARGEFILE,
/// O_NOATIME, O_NOCTTY and O_NONBLOCK have no effect, because the library has no descriptors and no cache of file
/// contents. `mode` has the permission bits of a file that is created, from which the umask of the caller is taken off.
/// *file is set only on success. EINVAL: flags that do not fit together, like O_RDONLY with O_TRUNC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_open(
    volume: polder_volume,
    at: *const c_char,
    flags: c_int,
    mode: mode_t,
    file: *mut polder_file,
) -> c_int {
    const WITHOUT_EFFECT: c_int = libc::O_CLOEXEC
        | libc::O_DIRECT
        | libc::O_LARGEFILE
        | libc::O_NOATIME
        | libc::O_NOCTTY
        | libc::O_NONBLOCK;
    const KNOWN: c_int = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_SYNC
        | libc::O_NOFOLLOW
        | libc::O_DIRECTORY;
    run(|| {
        // SAFETY: as the header requires.
        let (at, file) = unsafe { (path(at)?, output(file)?) };
        let has = |flag: c_int| flags & flag == flag;
        let access = flags & libc::O_ACCMODE;
        if flags & !(KNOWN | WITHOUT_EFFECT) != 0 || access == libc::O_ACCMODE {
            let unknown = flags & !(KNOWN | WITHOUT_EFFECT);
            return Err(Failure::invalid(format!("flags of polder_file_open are not known ({unknown:#o})")));
        }
        if has(libc::O_DIRECTORY) && has(libc::O_CREAT) {
            return Err(Failure::invalid("O_DIRECTORY and O_CREAT exclude each other; use polder_mkdir"));
        }
        let (reads, writes) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
        let volume = &volume.get()?.volume;
        let mut options = volume.options();
        options
            .read(reads)
            .write(writes)
            .append(writes && has(libc::O_APPEND))
            .truncate(has(libc::O_TRUNC))
            .create(has(libc::O_CREAT))
            .create_new(has(libc::O_CREAT | libc::O_EXCL))
            .sync(has(libc::O_DSYNC))
            .no_follow(has(libc::O_NOFOLLOW))
            .permissions((mode & 0o7777) as u16);
        let opened = options.open(at)?;
        if has(libc::O_DIRECTORY) && !opened.metadata()?.is_dir() {
            return Err(Failure::new(libc::ENOTDIR, "not a directory"));
        }
        file.id = files().insert(opened)?;
        Ok(())
    })
}

/// Closes a file. It makes nothing durable: call polder_file_sync for that. Releases the locks of the file. Calls in
/// progress in other threads complete.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_close(file: polder_file) -> c_int {
    run(|| files().remove(file.id).map(drop))
}

/// Reads at an offset. Returns the number of bytes, smaller than `length` only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_read(
    file: polder_file,
    into: *mut c_void,
    length: size_t,
    offset: u64,
) -> ssize_t {
    // SAFETY: as the header requires.
    run_long(|| Ok(file.get()?.read_at(unsafe { buffer(into, length)? }, offset)?))
}

/// Does `count` reads, and sets the result of each. Returns 0 if all of them succeeded; otherwise the first error, and
/// the results say which reads were done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_read_many(reads: *mut polder_read, count: size_t) -> c_int {
    run(|| {
        if count == 0 {
            return Ok(());
        }
        if reads.is_null()
            || count.checked_mul(size_of::<polder_read>()).is_none_or(|bytes| bytes > isize::MAX as usize)
        {
            return Err(crate::call::null());
        }
        // SAFETY: it is not null, and there are `count` of them as the header requires.
        let reads = unsafe { std::slice::from_raw_parts_mut(reads, count) };
        let mut first = Ok(());
        for read in reads {
            let done = (|| -> Outcome<usize> {
                // SAFETY: as the header requires.
                let into = unsafe { buffer(read.buffer, read.length)? };
                Ok(read.file.get()?.read_at(into, read.offset)?)
            })();
            read.result = match &done {
                Ok(bytes) => *bytes as ssize_t,
                Err(failure) => -(failure.errno() as ssize_t),
            };
            first = first.and(done.map(drop));
        }
        first
    })
}

/// Writes at an offset. Returns the number of bytes, smaller than `length` only if space ran out on the way. A file
/// that was opened with O_APPEND writes at its end instead.
///
/// ENOSPC: there is no space even after all garbage was collected. The call can take long before it says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_write(
    file: polder_file,
    from: *const c_void,
    length: size_t,
    offset: u64,
) -> ssize_t {
    // SAFETY: as the header requires.
    run_long(|| Ok(file.get()?.write_at(unsafe { bytes(from, length)? }, offset)?))
}

/// Writes all bytes at the end of the file. *offset is set to the place of the first one, unless `offset` is NULL.
/// Appends of several threads do not mix. ENOSPC: a first part may have been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_append(
    file: polder_file,
    from: *const c_void,
    length: size_t,
    offset: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (from, offset) = unsafe { (bytes(from, length)?, offset.as_mut()) };
        let at = file.get()?.append(from)?;
        if let Some(offset) = offset {
            *offset = at;
        }
        Ok(())
    })
}

/// Makes everything durable that was written to the file, its attributes and its names, and all earlier changes of the
/// volume. When it returns 0, they survive a loss of power.
///
/// EIO: the device has failed. The volume accepts no changes until it is opened again.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_sync(file: polder_file) -> c_int {
    run(|| Ok(file.get()?.sync_all()?))
}

/// The attributes of the file. st_dev is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_stat(file: polder_file, result: *mut stat) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let result = unsafe { output(result)? };
        *result = to_stat(&file.get()?.metadata()?);
        Ok(())
    })
}

/// Sets the length. A longer file ends with a hole, which reads as zeros.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_truncate(file: polder_file, length: u64) -> c_int {
    run(|| Ok(file.get()?.set_len(length)?))
}

/// Sets the permission bits, for example 0644.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_chmod(file: polder_file, mode: mode_t) -> c_int {
    run(|| Ok(file.get()?.set_permissions((mode & 0o7777) as u16)?))
}

/// Sets the times as polder_utimens does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_utimens(file: polder_file, times: *const timespec) -> c_int {
    // SAFETY: as the header requires.
    run(|| Ok(file.get()?.set_times(unsafe { to_times(times)? })?))
}

/// Changes the space of a range. `mode` is 0 or FALLOC_FL_KEEP_SIZE (allocate), FALLOC_FL_PUNCH_HOLE |
/// FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE with or without FALLOC_FL_KEEP_SIZE, FALLOC_FL_COLLAPSE_RANGE or
/// FALLOC_FL_INSERT_RANGE (whole blocks only), with the meaning of fallocate(2).
///
/// EOPNOTSUPP: another mode.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_allocate(file: polder_file, mode: c_int, offset: u64, length: u64) -> c_int {
    const KEEP_SIZE: c_int = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    const ZERO_AND_KEEP: c_int = libc::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;
    run(|| {
        let mode = match mode {
            0 => FallocateMode::Allocate { keep_size: false },
            KEEP_SIZE => FallocateMode::Allocate { keep_size: true },
            PUNCH => FallocateMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => FallocateMode::ZeroRange { keep_size: false },
            ZERO_AND_KEEP => FallocateMode::ZeroRange { keep_size: true },
            libc::FALLOC_FL_COLLAPSE_RANGE => FallocateMode::CollapseRange,
            libc::FALLOC_FL_INSERT_RANGE => FallocateMode::InsertRange,
            _ => return Err(Failure::new(libc::EOPNOTSUPP, "this mode of allocation is not supported")),
        };
        Ok(file.get()?.fallocate(mode, offset, length)?)
    })
}

/// Finds data or a hole at or after an offset: `whence` is SEEK_DATA or SEEK_HOLE. Sets *found. The end of the file
/// counts as a hole. ENXIO: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_file_seek(
    file: polder_file,
    offset: u64,
    whence: c_int,
    found: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let found = unsafe { output(found)? };
        let file = file.get()?;
        *found = match whence {
            libc::SEEK_DATA => file.seek_data(offset)?,
            libc::SEEK_HOLE => file.seek_hole(offset)?,
            _ => return Err(Failure::invalid("whence is neither SEEK_DATA nor SEEK_HOLE")),
        };
        Ok(())
    })
}

/// Copies up to `length` bytes to another file of the same volume. Whole blocks are shared where that pays. Returns the
/// number of bytes, which can be smaller than `length`; 0 only at the end of the source.
///
/// EXDEV: the files belong to different volumes.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_copy_range(
    from: polder_file,
    offset: u64,
    to: polder_file,
    to_offset: u64,
    length: u64,
) -> ssize_t {
    run_long(|| Ok(from.get()?.copy_range(offset, &*to.get()?, to_offset, length)?))
}

/// Makes a range of another file share the blocks of a range of this file. Offsets and length are whole blocks; a
/// length of 0 means up to the end of the source. EXDEV: the files belong to different volumes.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_clone_range(
    from: polder_file,
    offset: u64,
    to: polder_file,
    to_offset: u64,
    length: u64,
) -> c_int {
    run(|| Ok(from.get()?.clone_range(offset, &*to.get()?, to_offset, length)?))
}

/// Sets how long data is expected to live that is written through this handle from now on: a value of enum
/// polder_lifetime, or -1 for that of the file.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_set_lifetime(file: polder_file, lifetime: c_int) -> c_int {
    run(|| {
        let lifetime = if lifetime == -1 { None } else { Some(to_lifetime(lifetime)?) };
        file.get()?.set_lifetime(lifetime);
        Ok(())
    })
}
