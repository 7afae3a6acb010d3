//! System calls for a server that opens files of its own mount.

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;

/// The kind of a file handle that FUSE makes of a node number and a generation.
const HANDLE_KIND: c_int = 0x81;
const HANDLE_WORDS: usize = 3;

/// The kernel's `struct file_handle`.
#[repr(C)]
struct FileHandle {
    bytes: c_uint,
    kind: c_int,
    words: [u32; HANDLE_WORDS],
}

/// Opens a node of the mount to which `mount` belongs, without its name and without locking a directory. Needs the
/// capability `CAP_DAC_READ_SEARCH`. Does not wait for a program that holds a lease on the file.
#[allow(unsafe_code, reason = "rustix does not have this call")]
pub(crate) fn open_node(
    mount: BorrowedFd<'_>,
    node: u64,
    generation: u32,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let mut handle = FileHandle {
        bytes: size_of::<[u32; HANDLE_WORDS]>() as c_uint,
        kind: HANDLE_KIND,
        words: [(node >> 32) as u32, node as u32, generation],
    };
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    // SAFETY: `handle` is laid out as the kernel's structure, says how long it is, and outlives the call.
    let opened = unsafe {
        libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags.bits().cast_signed())
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Gives this thread a descriptor table of its own, which is empty at first. Returns whether that succeeded. It
/// closes the standard output too, because the program that started the daemon waits for its end.
///
/// A thread that calls this must not use any descriptor that was opened before, and must not log.
#[allow(unsafe_code, reason = "rustix does not have this call")]
pub(crate) fn leave_descriptors() -> bool {
    // SAFETY: the call gives this thread a copy of the table of descriptors and closes all of that copy. Objects of this
    // process that own descriptors stay valid for all other threads, and this one uses none of them.
    unsafe { libc::close_range(0, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as c_int) == 0 }
}

/// The state of a range of a file in the kernel's cache: its `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    under_write_back: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether a page in this range of at least one byte is dirty and not yet being written back. Kernels from 6.5 on.
#[allow(unsafe_code, reason = "rustix does not have this call")]
pub(crate) fn is_dirty(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<bool> {
    const CACHESTAT: libc::c_long = 451;
    let (range, mut found) = ([offset, length], CacheStat::default());
    // SAFETY: both structures are laid out as the kernel's and outlive the call, which writes the second one only.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut found, c_uint::default())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(found.dirty > 0) }
}

/// Has the kernel begin to write back the dirty pages of this range. Does not wait for the end of that.
#[allow(unsafe_code, reason = "rustix does not have this call")]
pub(crate) fn begin_write_back(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    let (offset, length) = (offset.cast_signed(), length.cast_signed());
    // SAFETY: the call takes no memory of ours, and the descriptor is open.
    let done =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
