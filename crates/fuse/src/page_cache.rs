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
//!
//! **The end of a file.** A program can store bytes behind the end of a file through a mapping of its last page. They
//! must read as zeros when the file grows. The kernel clears them when it writes the page back, and not when the size
//! changes. So an answer that makes a file longer waits until the kernel has begun to write its last page back
//! ([`PageCache::clear_behind_end`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use fs::Attributes;
use rt::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::kernel::{Notifier, leave_descriptors, open_node};
use crate::mount::MountEntry;

/// The kernel's page cache, as far as it belongs to one mount. No method may be called by a thread that answers
/// requests: each waits for writes that such threads must answer.
#[derive(Clone, Debug)]
pub(crate) struct PageCache {
    notifier: Notifier,
    opener: Option<Sender<Job>>,
}

/// What is done with a file that is opened through the mount, and where the outcome goes: a size, or 0.
struct Job {
    file: Attributes,
    what: What,
    outcome: Sender<io::Result<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Its dirty pages are written back.
    WriteBack,
    /// The size is asked for that the kernel goes by.
    Size,
}

impl PageCache {
    /// Starts the thread that opens files of the mount. Without it, files are written back by invalidations.
    pub(crate) fn new(notifier: Notifier, entry: Option<MountEntry>) -> Self {
        let opener = entry.and_then(|entry| {
            let (sender, jobs) = mpsc::channel();
            let started = rt::thread::spawn("polder-open", move || do_jobs(&entry, &jobs));
            started.is_ok().then_some(sender)
        });
        PageCache { notifier, opener }
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Has the kernel write back all dirty pages of a regular file, and keep them where it can.
    pub(crate) fn write_back(&self, file: &Attributes) -> io::Result<()> {
        match self.ask(file, What::WriteBack) {
            Some(Ok(_)) => return Ok(()),
            Some(Err(error)) => tracing::debug!("inode {} is written back by page: {error}", file.inode.0),
            None => {}
        }
        self.notifier.invalidate_inode(file.inode.0, 0, 0)
    }

    /// None where no thread opens files.
    fn ask(&self, file: &Attributes, what: What) -> Option<io::Result<u64>> {
        let (sender, outcome) = mpsc::channel();
        self.opener.as_ref()?.send(Job { file: *file, what, outcome: sender }).ok()?;
        outcome.recv().ok()
    }
}

/// Runs on a thread with descriptors of its own. A thread that waits in the kernel for an answer of this process is not
/// ended by SIGKILL. If it shared the descriptors of the process, the connection to the kernel would stay open, and the
/// thread and every user of the mount would wait for ever.
fn do_jobs(entry: &MountEntry, jobs: &Receiver<Job>) {
    if !leave_descriptors() {
        return;
    }
    for Job { file, what, outcome } in jobs {
        let done = match what {
            What::WriteBack => open(entry, &file, OFlags::RDONLY).map(|_closed| 0),
            What::Size => open(entry, &file, OFlags::PATH).and_then(|known| size_in_kernel(&known)),
        };
        // A caller that does not wait any more needs no outcome.
        let _ = outcome.send(done);
    }
}

fn open(entry: &MountEntry, file: &Attributes, flags: OFlags) -> io::Result<OwnedFd> {
    open_node(open_directory(entry)?.as_fd(), file.inode.0, file.generation, flags)
}

/// The directory of the mount, which must lead to it. The kernel takes no `O_PATH` descriptor for the mount of a handle.
fn open_directory(entry: &MountEntry) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(&entry.directory, flags, Mode::empty())?;
    let device = rustix::fs::fstat(&directory)?.st_dev;
    let found = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if found != entry.device {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the mount is not at its directory"));
    }
    Ok(directory)
}

/// The kernel may hold more of a file than has arrived here.
fn size_in_kernel(known: &OwnedFd) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(known, "", flags, StatxFlags::SIZE)?.stx_size)
}

/// The largest page of any machine.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// How often, and after what time, it is looked whether a thread waits in the kernel.
const LOOKS_MAX: u32 = 1000;
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

impl PageCache {
    /// Has the kernel clear what programs have stored behind the end of a file in its last page. The answer that makes the
    /// file longer comes after this, so that the kernel still goes by the old end. `file` has the old size.
    ///
    /// To write a page back the kernel first clears what lies behind the end. But while it truncates a file it sends no
    /// write before its truncation is answered. So this waits until the page has been dropped, or until the thread that
    /// drops it waits in the kernel, which it does after the clearing. If it waits for something else, bytes may show
    /// that should not. No answer depends on the end of that thread.
    pub(crate) fn clear_behind_end(&self, file: &Attributes) {
        let end = self.ask(file, What::Size).and_then(Result::ok);
        if end.is_some_and(|end| end.is_multiple_of(PAGE_BYTES_MAX)) {
            return;
        }
        let (inode, notifier) = (file.inode.0, self.notifier.clone());
        let Ok(end) = i64::try_from(end.unwrap_or(file.size)) else { return };
        let progress = Arc::new(Progress::default());
        let told = Arc::clone(&progress);
        let dropper = rt::thread::spawn("polder-end", move || {
            told.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            if let Err(error) = notifier.invalidate_inode(inode, end, 1) {
                tracing::debug!("the end of inode {inode} is not cleared: {error}");
            }
            told.is_done.store(true, Ordering::SeqCst);
        });
        match dropper {
            Ok(_) => progress.await_wait(),
            Err(error) => tracing::debug!("the end of inode {inode} is not cleared: {error}"),
        }
    }
}

/// How far a thread is that drops a page.
#[derive(Default)]
struct Progress {
    /// Its number; 0 until it has one and is about to drop the page.
    thread: AtomicI32,
    is_done: AtomicBool,
}

impl Progress {
    /// Returns when the page has been dropped, or the thread waits in the kernel.
    fn await_wait(&self) {
        let pause = rt::thread::Stop::default();
        for _ in 0..LOOKS_MAX {
            let thread = self.thread.load(Ordering::SeqCst);
            if self.is_done.load(Ordering::SeqCst) || thread != 0 && is_waiting(thread) {
                return;
            }
            pause.wait(BETWEEN_LOOKS);
        }
    }
}

/// Whether a thread of this process neither runs nor is about to.
fn is_waiting(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // The name stands before it, in brackets, and may have any bytes.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('S' | 'D'))
}
