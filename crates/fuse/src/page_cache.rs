//! The kernel's page cache of this mount, and having the kernel write files back.
//!
//! There are two ways. **Opening and closing** the file writes all of its dirty pages back in large requests and
//! keeps them cached. It needs the mount's directory and the capability `CAP_DAC_READ_SEARCH`, because the file is
//! opened by its handle and not by its name. An **invalidation** always works, but the kernel writes each page back
//! by a request of its own and then drops it: 8 MiB take 2,048 requests instead of 8.
//!
//! The first way is also the safe one: a thread that waits for the kernel in an invalidation keeps a killed process
//! from ending. Its price is that the close consumes the error that the next `close` of a program would report, as
//! the close of any other program does; `fsync` and the next `write` still report it.
//!
//! Each file is opened and closed by a thread that does nothing else meanwhile, so no file is delayed by another one.
//! The thread has its own descriptors, so that the daemon ends when it is killed.
//!
//! An open can wait for ever: a program that decides on opens (fanotify) or a policy that measures files (IMA) may
//! need something that waits for us. After the first open that has not returned in [`OPENING_MAX`], this mount uses
//! invalidations only.
//!
//! **The end of a file.** A program can store bytes behind the end of a file through a mapping of its last page. They
//! must read as zeros when the file grows. The kernel clears them when it begins to write the page back, and not when
//! the size changes. So an answer that makes a file longer waits until the kernel has begun to write its last page
//! back ([`PageCache::clear_behind_end`]). It must not wait for the end of that: while the kernel truncates a file it
//! sends no write before its truncation is answered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use fs::Attributes;
use rt::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::kernel::{Notifier, begin_write_back, is_dirty, leave_descriptors, open_node};
use crate::mount::MountEntry;
use crate::thread_pool::ThreadPool;

/// The part of the kernel's page cache that belongs to one mount. A thread that answers requests must not call any
/// method, because each waits for writes that such threads must answer.
#[derive(Clone, Debug)]
pub(crate) struct PageCache {
    notifier: Notifier,
    opener: Option<Arc<Opener>>,
}

impl PageCache {
    /// Files are opened through this entry. Without it, they are written back by invalidations.
    pub(crate) fn new(notifier: Notifier, entry: Option<MountEntry>) -> Self {
        PageCache { notifier, opener: entry.and_then(Opener::new).map(Arc::new) }
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Has the kernel write back all dirty pages of a regular file, and keep them cached if possible.
    pub(crate) fn write_back(&self, file: &Attributes) -> io::Result<()> {
        match self.with_file(file, |_| Ok(())) {
            Ok(closed) => {
                // No message is ever sent: the channel ends when the file is closed.
                let _ = closed.recv();
                Ok(())
            }
            Err(error) => {
                tracing::debug!("inode {} is written back by page: {error}", file.inode.0);
                self.notifier.invalidate_inode(file.inode.0, 0, 0)
            }
        }
    }

    /// Does some work with an open file and then closes it. Returns when the work is done.
    fn with_file(
        &self,
        file: &Attributes,
        work: impl FnOnce(BorrowedFd<'_>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Closed> {
        let opener = self.opener.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        opener.with_file(file, work)
    }
}

/// Ends when the file has been closed.
type Closed = Receiver<io::Result<()>>;

/// Opens files of a mount.
#[derive(Debug)]
struct Opener {
    jobs: Sender<Job>,
    /// An open has not returned.
    is_lost: AtomicBool,
}

/// Work with a file before it is closed.
struct Job {
    file: Attributes,
    work: Box<dyn FnOnce(BorrowedFd<'_>) -> io::Result<()> + Send>,
    done: Sender<io::Result<()>>,
}

/// An open that takes longer counts as one that never returns. It can wait for writes of the same file, which can
/// take seconds on a busy disk.
const OPENING_MAX: Duration = Duration::from_secs(30);

impl Opener {
    /// SIGKILL does not end a thread that waits in the kernel for an answer of this process. If it shared the
    /// descriptors of the process, the connection to the kernel would stay open, and the thread and every user of the
    /// mount would wait for ever. So these threads have descriptors of their own, and log nothing.
    fn new(entry: MountEntry) -> Option<Opener> {
        let (jobs, received) = mpsc::channel();
        let run = move |job| do_job(&entry, job);
        ThreadPool::start("polder-open", received, leave_descriptors, run).ok()?;
        Some(Opener { jobs, is_lost: AtomicBool::new(false) })
    }

    fn with_file(
        &self,
        file: &Attributes,
        work: impl FnOnce(BorrowedFd<'_>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Closed> {
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (sender, done) = mpsc::channel();
        let job = Job { file: *file, work: Box::new(work), done: sender };
        self.jobs.send(job).map_err(|_| io::ErrorKind::Unsupported)?;
        match done.recv_timeout(OPENING_MAX) {
            Ok(worked) => worked.map(|()| done),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::Unsupported.into()),
            Err(RecvTimeoutError::Timeout) => {
                self.is_lost.store(true, Ordering::SeqCst);
                tracing::warn!(
                    "a file of the mount cannot be opened here; files are written back page by page"
                );
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

fn do_job(entry: &MountEntry, Job { file, work, done }: Job) {
    let opened = open(entry, &file);
    let worked = match &opened {
        Ok(opened) => work(opened.as_fd()),
        Err(error) => Err(io::Error::from(error.kind())),
    };
    // A caller that has stopped waiting needs no result.
    let _ = done.send(worked);
    drop(opened);
}

fn open(entry: &MountEntry, file: &Attributes) -> io::Result<OwnedFd> {
    open_node(open_directory(entry)?.as_fd(), file.inode.0, file.generation, OFlags::RDONLY)
}

/// Opens the directory of the mount and checks that it leads to the mount. The kernel accepts no `O_PATH` descriptor
/// here.
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

/// The largest page of any machine.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// How often the progress of the kernel is polled, and the pause between two polls.
const POLLS_MAX: u32 = 1000;
const POLL_PAUSE: Duration = Duration::from_micros(50);

impl PageCache {
    /// Has the kernel clear the bytes that programs have stored behind the end of a file in its last page. The answer
    /// that makes the file longer comes after this, so that the kernel still uses the old end. `file` has the old
    /// size.
    pub(crate) fn clear_behind_end(&self, file: &Attributes) {
        if let Err(error) = self.with_file(file, clear_behind_end) {
            tracing::debug!("the last cached page of inode {} cannot be kept: {error}", file.inode.0);
            self.drop_end(file);
        }
    }
}

/// The kernel may have data of the file that has not arrived here, so the kernel's end of the file counts.
fn clear_behind_end(file: BorrowedFd<'_>) -> io::Result<()> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let end = rustix::fs::statx(file, "", flags, StatxFlags::SIZE)?.stx_size;
    if end.is_multiple_of(PAGE_BYTES_MAX) {
        return Ok(());
    }
    let pause = rt::thread::Stop::default();
    for _ in 0..POLLS_MAX {
        if !is_dirty(file, end, 1)? {
            return Ok(());
        }
        // The kernel starts no write-back while many requests are in progress.
        begin_write_back(file, end, 1)?;
        if !is_dirty(file, end, 1)? {
            return Ok(());
        }
        pause.wait(POLL_PAUSE);
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// For mounts whose files cannot be opened.
impl PageCache {
    /// Waits until the last page of a file has been dropped, or until the thread that drops it waits in the kernel,
    /// which it does after the clearing. If it waits for something else, a program may see bytes that should be
    /// zeros. No answer depends on the end of that thread.
    fn drop_end(&self, file: &Attributes) {
        let (inode, notifier) = (file.inode.0, self.notifier.clone());
        let Ok(end) = i64::try_from(file.size) else { return };
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let dropper = rt::thread::spawn("polder-end", move || {
            shared.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            if let Err(error) = notifier.invalidate_inode(inode, end, 1) {
                tracing::debug!(
                    "the bytes after the end of inode {inode} in the cache are not cleared: {error}"
                );
            }
            shared.is_done.store(true, Ordering::SeqCst);
        });
        match dropper {
            Ok(_) => progress.await_wait(),
            Err(error) => tracing::debug!(
                "the bytes after the end of inode {inode} in the cache are not cleared: {error}"
            ),
        }
    }
}

/// The progress of a thread that drops a page.
#[derive(Default)]
struct Progress {
    /// Its number. 0 until the thread runs and is about to drop the page.
    thread: AtomicI32,
    is_done: AtomicBool,
}

impl Progress {
    /// Returns when the page has been dropped, or when the thread waits in the kernel.
    fn await_wait(&self) {
        let pause = rt::thread::Stop::default();
        for _ in 0..POLLS_MAX {
            let thread = self.thread.load(Ordering::SeqCst);
            if self.is_done.load(Ordering::SeqCst) || thread != 0 && is_waiting(thread) {
                return;
            }
            pause.wait(POLL_PAUSE);
        }
    }
}

/// Whether a thread of this process is neither running nor runnable.
fn is_waiting(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // The name before it stands in parentheses and may contain any bytes.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('S' | 'D'))
}
