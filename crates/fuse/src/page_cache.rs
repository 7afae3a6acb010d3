//! What the kernel's page cache holds of a file of this mount, and having the kernel write it back.
//!
//! The kernel offers two ways. To **open and close** the file writes all of its dirty pages back in large requests and
//! keeps them cached; it needs the mount's directory and the capability `CAP_DAC_READ_SEARCH`, because the file is
//! opened by its handle and not by its name. An **invalidation** always works, but the kernel writes each page back by a
//! request of its own and then drops it: of 8 MiB that is 2,048 requests in place of 8.
//!
//! The first way is also the safe one: a thread that waits for the kernel in an invalidation keeps a process that was
//! killed from ending. Its price is that the close takes away the error that the next `close` of a program would report,
//! as the close of any other program does; `fsync` and the next `write` still report it.

use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};

use fs::Attributes;
use rustix::fs::{Mode, OFlags};

use crate::kernel::Notifier;
use crate::mount::MountEntry;

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

/// The kernel's page cache, as far as it belongs to one mount. No method may be called by a thread that answers
/// requests: each waits for writes that such threads must answer.
#[derive(Clone, Debug)]
pub(crate) struct PageCache {
    notifier: Notifier,
    closer: Option<Sender<Job>>,
}

/// A file to be opened and closed, and where the outcome goes.
type Job = (Attributes, Sender<io::Result<()>>);

impl PageCache {
    /// Starts the thread that opens files of the mount. Without it, files are written back by invalidations.
    pub(crate) fn new(notifier: Notifier, entry: Option<MountEntry>) -> Self {
        let closer = entry.and_then(|entry| {
            let (sender, jobs) = mpsc::channel();
            let started = rt::thread::spawn("polder-pages", move || open_and_close_all(&entry, &jobs));
            started.is_ok().then_some(sender)
        });
        PageCache { notifier, closer }
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Has the kernel write back all dirty pages of a regular file, and keep them where it can.
    pub(crate) fn write_back(&self, file: &Attributes) -> io::Result<()> {
        match self.open_and_close(file) {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => tracing::debug!("inode {} is written back by page: {error}", file.inode.0),
            None => {}
        }
        self.notifier.invalidate_inode(file.inode.0, 0, 0)
    }

    /// None where no thread does that.
    fn open_and_close(&self, file: &Attributes) -> Option<io::Result<()>> {
        let (sender, outcome) = mpsc::channel();
        self.closer.as_ref()?.send((*file, sender)).ok()?;
        outcome.recv().ok()
    }
}

/// Runs on a thread with descriptors of its own, of which there are none at first. A thread that waits in the kernel for
/// an answer of this process is not ended by SIGKILL. If it shared the descriptors of the process, the connection to the
/// kernel would stay open, and the thread and every user of the mount would wait for ever.
fn open_and_close_all(entry: &MountEntry, jobs: &Receiver<Job>) {
    if has_own_descriptors() {
        for (file, outcome) in jobs {
            // A caller that does not wait any more needs no outcome.
            let _ = outcome.send(open_and_close(entry, &file));
        }
    }
}

#[allow(unsafe_code, reason = "rustix does not have this call")]
fn has_own_descriptors() -> bool {
    // Its standard output too, the end of which the program that started the daemon waits for.
    //
    // SAFETY: the call gives this thread a copy of the table of descriptors and closes all of that copy. Objects of this
    // process that own descriptors stay valid, because this thread uses none of them: it opens and closes its own, all
    // of them for reading, and logs nothing.
    unsafe { libc::close_range(0, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as c_int) == 0 }
}

/// Opens the file for reading, which no rename or lock of its directory can delay, and closes it.
fn open_and_close(entry: &MountEntry, file: &Attributes) -> io::Result<()> {
    // The kernel takes no `O_PATH` descriptor for the mount of a handle.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(&entry.directory, flags, Mode::empty())?;
    let device = rustix::fs::fstat(&directory)?.st_dev;
    let found = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if found != entry.device {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the mount is not at its directory"));
    }
    open_by_handle(directory.as_fd(), file).map(drop)
}

#[allow(unsafe_code, reason = "rustix does not have this call")]
fn open_by_handle(mount: BorrowedFd<'_>, file: &Attributes) -> io::Result<File> {
    let (high, low) = ((file.inode.0 >> 32) as u32, file.inode.0 as u32);
    let mut handle = FileHandle {
        bytes: size_of::<[u32; HANDLE_WORDS]>() as c_uint,
        kind: HANDLE_KIND,
        words: [high, low, file.generation],
    };
    // A program that holds a lease on the file is not waited for.
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: `handle` is laid out as the kernel's structure, says how long it is, and outlives the call.
    let opened = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(opened) }))
}
