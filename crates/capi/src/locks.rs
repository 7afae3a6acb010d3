//! Advisory locks of open files.

use std::ffi::c_int;

use polder::{LockMode, LockRange};

use crate::call::{Failure, run};
use crate::file::polder_file;

/// Takes or releases the lock of the whole file, as flock(2) does. `operation` is LOCK_SH, LOCK_EX or LOCK_UN; with
/// LOCK_NB it does not wait. The locks are advisory, among the open files of the volume in this process, and end when
/// the file is closed. EWOULDBLOCK: another open file has the lock.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_lock(file: polder_file, operation: c_int) -> c_int {
    const TRY_SHARED: c_int = libc::LOCK_SH | libc::LOCK_NB;
    const TRY_EXCLUSIVE: c_int = libc::LOCK_EX | libc::LOCK_NB;
    const TRY_UNLOCK: c_int = libc::LOCK_UN | libc::LOCK_NB;
    run(|| {
        let file = file.get()?;
        let done = match operation {
            libc::LOCK_SH => file.lock_shared(),
            libc::LOCK_EX => file.lock(),
            TRY_SHARED => file.try_lock_shared(),
            TRY_EXCLUSIVE => file.try_lock(),
            libc::LOCK_UN | TRY_UNLOCK => file.unlock(),
            _ => return Err(Failure::invalid("operation is none of LOCK_SH, LOCK_EX and LOCK_UN")),
        };
        Ok(done?)
    })
}

/// Takes or releases a lock of a range of bytes. `mode` is F_RDLCK (the file is open for reading), F_WRLCK (for
/// writing) or F_UNLCK. A `length` of 0 means all bytes from `offset`, however long the file becomes. With `wait` 0 it
/// does not wait: EWOULDBLOCK if another open file has a conflicting lock. Locks of ranges and of whole files do not
/// affect each other. Two files that wait for each other wait until the volume is closed.
#[unsafe(no_mangle)]
pub extern "C" fn polder_file_lock_range(
    file: polder_file,
    mode: c_int,
    offset: u64,
    length: u64,
    wait: c_int,
) -> c_int {
    run(|| {
        let end = match length {
            0 => Some(LockRange::INFINITY),
            length => offset.checked_add(length),
        };
        let end = end.ok_or_else(|| Failure::new(libc::EOVERFLOW, "the range is too long"))?;
        let range = LockRange::new(offset, end).map_err(polder::Error::from)?;
        let file = file.get()?;
        let mode = match mode {
            libc::F_UNLCK => return Ok(file.unlock_range(range)?),
            libc::F_RDLCK => LockMode::Shared,
            libc::F_WRLCK => LockMode::Exclusive,
            _ => return Err(Failure::invalid("mode is none of F_RDLCK, F_WRLCK and F_UNLCK")),
        };
        let done = if wait != 0 { file.lock_range(range, mode) } else { file.try_lock_range(range, mode) };
        Ok(done?)
    })
}
