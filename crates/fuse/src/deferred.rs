//! What must not be done by a thread that answers requests, because it may have to wait for one.
//!
//! The kernel does not write dirty pages back before it asks for data or a hole, so the answer must wait until
//! it has, and it can only when threads are free to take the writes. What the kernel is to be told waits for
//! its locks, which a request that is under way may hold. Writing back a large file takes long, and answers that wait
//! for a notification of the kernel must not wait for that. So searches have their own thread, and operations
//! that need the data of files first have a pool of threads ([`Errand::thread`]).
//!
//! **Cached pages that became old.** The kernel drops the pages that a direct write covers before it asks for the write,
//! and again after the answer only if the program waits. A read through the cache in between brings old contents back.
//! So an answer to such a write can have to wait until the kernel has dropped the pages. The kernel locks each of them
//! and waits for its write-back, and for that only requests for reading and writing back are answered. While the kernel
//! truncates the file, it sends no write before the truncation is answered. So the thread that has pages dropped does
//! nothing that a truncation needs.
//!
//! **Data before its name.** A rename or link of a file that is open for writing is done only after the kernel has
//! written the file's dirty pages back. Otherwise the new name could become durable first, and a crash would leave an
//! empty file where the old contents were. No state is kept for this: the log's order of transactions does the rest.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use fs::{Attributes, FsError, InodeNo};
use rt::thread::Stop;
use rustix::io::Errno;

use crate::handles::HandleNo;
use crate::kernel::abi::LseekOut;
use crate::kernel::{Notifier, Reply};
use crate::page_cache::PageCache;
use crate::server::Server;
use crate::transport::errno;

/// How often the kernel is asked to forget a file that a program is closing, and how long it has each time.
const EVICTIONS_MAX: u32 = 20;
const EVICTION_PAUSE: Duration = Duration::from_millis(1);

/// One thing for a thread that runs errands.
pub(crate) enum Errand {
    /// Has the kernel write back what it holds of the file, and answers a seek then.
    Seek(Seek, Reply),
    /// Tells the kernel that the attributes it remembers are no longer valid.
    ForgetAttributes(InodeNo),
    /// The same, before something else.
    ForgetThen(InodeNo, Box<dyn FnOnce() + Send>),
    /// Has the kernel write back what it holds of these files, and then names one of them. The operation is told
    /// whether all of it was stored.
    Name(Vec<InodeNo>, Box<dyn FnOnce(fs::Result<()>) + Send>),
    /// Has the kernel write back what it holds of all files whose contents were cut, and then makes something durable.
    Sync(Box<dyn FnOnce() + Send>),
    /// Has the kernel forget a file of which it shows what was not stored.
    Evict(InodeNo),
    /// Has the kernel drop the pages of a part of a file, before something else.
    DropPages(Pages, Box<dyn FnOnce() + Send>),
    /// Has the kernel clear what programs have stored behind the end that the file has here, before something else.
    ClearBehindEnd(Attributes, Box<dyn FnOnce() + Send>),
}

/// A part of a file: at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) inode: InodeNo,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// The threads that run errands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// For errands that are soon done.
    Errands,
    /// For searches, and for what nobody waits for.
    Seeks,
    /// For operations that need the data of files first, each on a thread of its own.
    WriteBack,
    /// For pages to be dropped.
    Pages,
    /// For ends of files to be cleared. A write-back can wait for this, so this waits for no write-back, only for an open.
    Ends,
}

/// What is received by threads, each with its name, and by those that have data written back.
pub(crate) struct Received {
    pub(crate) threads: [(&'static str, Receiver<Errand>); 4],
    pub(crate) write_backs: Receiver<Errand>,
}

/// Where errands are sent: to the thread that runs them.
#[derive(Clone)]
pub(crate) struct Errands {
    short: Sender<Errand>,
    seeks: Sender<Errand>,
    write_backs: Sender<Errand>,
    pages: Sender<Errand>,
    ends: Sender<Errand>,
}

impl Errands {
    /// With what each of the threads receives.
    pub(crate) fn new() -> (Errands, Received) {
        let [short, seeks, write_backs, pages, ends] = std::array::from_fn(|_| mpsc::channel());
        let threads = [
            ("polder-errands", short.1),
            ("polder-seeks", seeks.1),
            ("polder-pages", pages.1),
            ("polder-ends", ends.1),
        ];
        let received = Received { threads, write_backs: write_backs.1 };
        (
            Errands {
                short: short.0,
                seeks: seeks.0,
                write_backs: write_backs.0,
                pages: pages.0,
                ends: ends.0,
            },
            received,
        )
    }

    /// All to one receiver.
    #[cfg(test)]
    pub(crate) fn to(one: &Sender<Errand>) -> Errands {
        let [short, seeks, write_backs, pages, ends] = std::array::from_fn(|_| one.clone());
        Errands { short, seeks, write_backs, pages, ends }
    }

    /// Sends an errand. Where nobody runs errands any more it is dropped, and a reply that is dropped answers with an
    /// error.
    pub(crate) fn send(&self, errand: Errand) {
        let to = match errand.thread() {
            Thread::Errands => &self.short,
            Thread::Seeks => &self.seeks,
            Thread::WriteBack => &self.write_backs,
            Thread::Pages => &self.pages,
            Thread::Ends => &self.ends,
        };
        drop(to.send(errand));
    }
}

/// A search for data or a hole.
pub(crate) struct Seek {
    pub(crate) inode: InodeNo,
    pub(crate) handle: HandleNo,
    pub(crate) offset: i64,
    pub(crate) whence: i32,
}

impl Errand {
    /// The thread that this may keep waiting.
    fn thread(&self) -> Thread {
        match self {
            Errand::Seek(..) | Errand::Evict(_) => Thread::Seeks,
            Errand::ForgetAttributes(_) | Errand::ForgetThen(..) => Thread::Errands,
            Errand::Name(..) | Errand::Sync(_) => Thread::WriteBack,
            Errand::DropPages(..) => Thread::Pages,
            Errand::ClearBehindEnd(..) => Thread::Ends,
        }
    }

    pub(crate) fn run(self, server: &Server, cache: &PageCache) {
        let notifier = cache.notifier();
        match self {
            // What lies before it does not matter.
            Errand::Seek(seek, reply) => match notifier.invalidate_inode(seek.inode.0, seek.offset.max(0), 0)
            {
                Ok(()) => reply_seek(server, &seek, reply),
                Err(error) => reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            },
            Errand::ForgetAttributes(inode) => forget_attributes(notifier, inode),
            Errand::ForgetThen(inode, then) => {
                forget_attributes(notifier, inode);
                then();
            }
            Errand::Name(files, then) => {
                let mut files = files.into_iter();
                then(files.try_for_each(|file| write_back_before_name(server, cache, file)));
            }
            Errand::Sync(then) => {
                write_back_cut_files(server, cache);
                then();
            }
            Errand::Evict(inode) => {
                if let Err(error) = evict(server, notifier, inode) {
                    tracing::debug!("the kernel goes on with its size of inode {}: {error}", inode.0);
                }
            }
            Errand::DropPages(pages, then) => {
                drop_pages(notifier, pages);
                then();
            }
            Errand::ClearBehindEnd(file, then) => {
                cache.clear_behind_end(&file);
                then();
            }
        }
    }
}

/// Has the kernel write back what it holds of a file, which must be stored.
pub(crate) fn write_back(server: &Server, cache: &PageCache, inode: InodeNo) -> io::Result<()> {
    let before = server.unstored_files().last(inode);
    if let Ok(file) = server.fs().attributes(inode) {
        cache.write_back(&file)?;
    }
    match () {
        () if server.is_short(inode) => Err(io::ErrorKind::StorageFull.into()),
        () if server.unstored_files().last(inode) != before => Err(io::Error::other("it cannot be stored")),
        () => Ok(()),
    }
}

/// The same before the file is given a name, which it is not without its data.
fn write_back_before_name(server: &Server, cache: &PageCache, inode: InodeNo) -> fs::Result<()> {
    write_back(server, cache, inode).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => FsError::NoSpace,
        _ => FsError::Io(format!("the data of inode {} is not written back: {error}", inode.0)),
    })
}

/// Has the kernel write back what it holds of files whose old contents were cut off. Their own programs hear of errors.
pub(crate) fn write_back_cut_files(server: &Server, cache: &PageCache) {
    server.cut_files().settle_all(|inode| {
        if let Err(error) = write_back(server, cache, inode) {
            tracing::debug!("inode {} is not written back: {error}", inode.0);
        }
    });
}

/// Answers a seek from what has come here.
pub(crate) fn reply_seek(server: &Server, seek: &Seek, reply: Reply) {
    match server.seek(seek.handle, seek.offset, seek.whence) {
        Ok(offset) => reply.structure(&LseekOut { offset }),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Has the kernel drop the pages and the inode of a file. A program that is just closing the file keeps the inode for a
/// moment after we have heard of it, so this is tried again. If another program has the file open, it is tried again
/// when that program closes it.
fn evict(server: &Server, notifier: &Notifier, inode: InodeNo) -> io::Result<()> {
    let pause = Stop::default();
    for _ in 0..EVICTIONS_MAX {
        if !server.can_be_evicted(inode) {
            return Ok(());
        }
        notifier.invalidate_inode(inode.0, 0, 0)?;
        notifier.prune(inode.0)?;
        pause.wait(EVICTION_PAUSE);
    }
    Ok(())
}

fn drop_pages(notifier: &Notifier, Pages { inode, offset, length }: Pages) {
    let range = (i64::try_from(offset), i64::try_from(length));
    let (Ok(offset), Ok(length)) = range else { return };
    if let Err(error) = notifier.invalidate_inode(inode.0, offset, length) {
        tracing::debug!("the kernel keeps pages of inode {}: {error}", inode.0);
    }
}

fn forget_attributes(notifier: &Notifier, inode: InodeNo) {
    // A negative offset leaves the pages alone.
    if let Err(error) = notifier.invalidate_inode(inode.0, -1, 0) {
        tracing::debug!("the kernel keeps the attributes of inode {}: {error}", inode.0);
    }
}
