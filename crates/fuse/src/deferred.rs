//! Work that a thread that answers requests must not do, because it may have to wait for another request.
//!
//! The kernel does not write dirty pages back before it asks for data or a hole. So the answer must wait for the
//! write-back, which needs threads that answer writes. A notification of the kernel can wait for a lock that a
//! request in progress holds. Writing back a large file takes long, and answers that wait for a notification must not
//! wait for that. So searches for data or holes have a thread of their own, and operations that first need the data
//! of files have a pool of threads ([`DeferredWork::thread`]).
//!
//! **Outdated cached pages.** The kernel drops the pages that a direct write covers before it sends the write, and
//! again after the answer only if the program waits. A read through the cache in between brings old contents back. So
//! an answer to such a write can have to wait until the kernel has dropped the pages. The kernel locks each of them
//! and waits for its write-back, and for that only requests for reading and writing back are answered. While the
//! kernel truncates the file, it sends no write before the truncation is answered. So the thread that has pages
//! dropped does nothing that a truncation needs.
//!
//! **Listings.** The kernel locks a page of its cache of listings while it copies entries into the memory of a
//! program, and that memory can be a file of any file system. So each drop of such a page has a thread of its own,
//! which the end of the session does not wait for and which does not keep the volume open.
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

use crate::errno::errno;
use crate::handles::HandleNo;
use crate::kernel::abi::LseekOut;
use crate::kernel::{Notifier, Reply};
use crate::page_cache::PageCache;
use crate::server::Server;

/// How often the kernel is asked to evict a file that a program is closing, and the pause between two attempts.
const EVICTIONS_MAX: u32 = 20;
const EVICTION_PAUSE: Duration = Duration::from_millis(1);

/// One piece of deferred work.
pub(crate) enum DeferredWork {
    /// Has the kernel write back the file's dirty pages, and then answers a seek.
    Seek(Seek, Reply),
    /// Makes the kernel drop its cached attributes of an inode.
    ForgetAttributes(InodeNo),
    /// The same, before something else.
    ForgetThen(InodeNo, Box<dyn FnOnce() + Send>),
    /// Has the kernel write back the dirty pages of these files, and then gives one of them a name. The operation
    /// learns whether all of the data was stored.
    Name(Vec<InodeNo>, Box<dyn FnOnce(fs::Result<()>) + Send>),
    /// Has the kernel write back the dirty pages of all cut files, and then makes something durable.
    Sync(Box<dyn FnOnce() + Send>),
    /// Has the kernel evict a file that it shows with data that was not stored.
    Evict(InodeNo),
    /// Has the kernel drop the pages of a part of a file, before something else.
    DropPages(Pages, Box<dyn FnOnce() + Send>),
    /// Has the kernel drop the first page of its listing of a directory, before something else that learns whether it
    /// did.
    DropListing(InodeNo, Box<dyn FnOnce(bool) + Send>),
    /// Has the kernel clear the bytes that programs have stored behind the present end of the file, before something
    /// else.
    ClearBehindEnd(Attributes, Box<dyn FnOnce() + Send>),
}

/// A part of a file: at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) inode: InodeNo,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// The threads that run deferred work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// For work that is done soon.
    DeferredQueues,
    /// For searches, and for work that no caller waits for.
    Seeks,
    /// For operations that first need the data of files, each on a thread of its own.
    WriteBack,
    /// For listings, whose pages can be locked for any time, each on a thread of its own.
    Listings,
    /// For dropping pages.
    Pages,
    /// For clearing the ends of files. A write-back can wait for this, so this waits for no write-back, only for an
    /// open.
    Ends,
}

/// The receivers of the threads, each with the thread's name, and those of the pools.
pub(crate) struct DeferredReceivers {
    pub(crate) threads: [(&'static str, Receiver<DeferredWork>); 4],
    pub(crate) write_backs: Receiver<DeferredWork>,
    pub(crate) listings: Receiver<DeferredWork>,
}

/// Sends deferred work to the thread that runs it.
#[derive(Clone)]
pub(crate) struct DeferredQueues {
    short: Sender<DeferredWork>,
    seeks: Sender<DeferredWork>,
    write_backs: Sender<DeferredWork>,
    pages: Sender<DeferredWork>,
    ends: Sender<DeferredWork>,
    listings: Sender<DeferredWork>,
}

impl DeferredQueues {
    /// The senders and the receivers.
    pub(crate) fn new() -> (DeferredQueues, DeferredReceivers) {
        let [short, seeks, write_backs, pages, ends, listings] = std::array::from_fn(|_| mpsc::channel());
        let threads = [
            ("polder-deferred", short.1),
            ("polder-seeks", seeks.1),
            ("polder-pages", pages.1),
            ("polder-ends", ends.1),
        ];
        let received = DeferredReceivers { threads, write_backs: write_backs.1, listings: listings.1 };
        (
            DeferredQueues {
                short: short.0,
                seeks: seeks.0,
                write_backs: write_backs.0,
                pages: pages.0,
                ends: ends.0,
                listings: listings.0,
            },
            received,
        )
    }

    /// All to one receiver.
    #[cfg(test)]
    pub(crate) fn to(one: &Sender<DeferredWork>) -> DeferredQueues {
        let [short, seeks, write_backs, pages, ends, listings] = std::array::from_fn(|_| one.clone());
        DeferredQueues { short, seeks, write_backs, pages, ends, listings }
    }

    /// Sends work. If its thread has ended, the work is dropped, and a reply in it that is dropped answers with an
    /// error.
    pub(crate) fn send(&self, work: DeferredWork) {
        let to = match work.thread() {
            Thread::DeferredQueues => &self.short,
            Thread::Seeks => &self.seeks,
            Thread::WriteBack => &self.write_backs,
            Thread::Pages => &self.pages,
            Thread::Ends => &self.ends,
            Thread::Listings => &self.listings,
        };
        drop(to.send(work));
    }
}

/// A search for data or a hole.
pub(crate) struct Seek {
    pub(crate) inode: InodeNo,
    pub(crate) handle: HandleNo,
    pub(crate) offset: i64,
    pub(crate) whence: i32,
}

impl DeferredWork {
    /// The thread that this work may block.
    fn thread(&self) -> Thread {
        match self {
            DeferredWork::Seek(..) | DeferredWork::Evict(_) => Thread::Seeks,
            DeferredWork::ForgetAttributes(_) | DeferredWork::ForgetThen(..) => Thread::DeferredQueues,
            DeferredWork::Name(..) | DeferredWork::Sync(_) => Thread::WriteBack,
            DeferredWork::DropListing(..) => Thread::Listings,
            DeferredWork::DropPages(..) => Thread::Pages,
            DeferredWork::ClearBehindEnd(..) => Thread::Ends,
        }
    }

    pub(crate) fn run(self, server: &Server, cache: &PageCache) {
        let notifier = cache.notifier();
        match self {
            // The pages before the offset do not matter.
            DeferredWork::Seek(seek, reply) => {
                match notifier.invalidate_inode(seek.inode.0, seek.offset.max(0), 0) {
                    Ok(()) => reply_seek(server, &seek, reply),
                    Err(error) => reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                }
            }
            DeferredWork::ForgetAttributes(inode) => forget_attributes(notifier, inode),
            DeferredWork::ForgetThen(inode, then) => {
                forget_attributes(notifier, inode);
                then();
            }
            DeferredWork::Name(files, then) => {
                let mut files = files.into_iter();
                then(files.try_for_each(|file| write_back_before_name(server, cache, file)));
            }
            DeferredWork::Sync(then) => {
                write_back_cut_files(server, cache);
                then();
            }
            DeferredWork::Evict(inode) => {
                if let Err(error) = evict(server, notifier, inode) {
                    tracing::debug!("the size of inode {} in the kernel cannot be updated: {error}", inode.0);
                }
            }
            DeferredWork::DropPages(pages, then) => {
                drop_pages(notifier, pages);
                then();
            }
            work @ DeferredWork::DropListing(..) => work.drop_listing(notifier),
            DeferredWork::ClearBehindEnd(file, then) => {
                cache.clear_behind_end(&file);
                then();
            }
        }
    }
}

impl DeferredWork {
    /// Does the work that needs no volume.
    pub(crate) fn drop_listing(self, notifier: &Notifier) {
        if let DeferredWork::DropListing(directory, then) = self {
            then(drop_pages(notifier, Pages { inode: directory, offset: 0, length: 1 }));
        }
    }
}

/// Has the kernel write back the dirty pages of a file. Fails if they were not stored.
pub(crate) fn write_back(server: &Server, cache: &PageCache, inode: InodeNo) -> io::Result<()> {
    let before = server.unstored_files().last_mark(inode);
    if let Ok(file) = server.fs().attributes_but_blocks(inode) {
        cache.write_back(&file)?;
    }
    match () {
        () if server.is_short(inode) => Err(io::ErrorKind::StorageFull.into()),
        () if server.unstored_files().last_mark(inode) != before => {
            Err(io::Error::other("it cannot be stored"))
        }
        () => Ok(()),
    }
}

/// The same for a file that is about to get a name, which it must not get without its data.
fn write_back_before_name(server: &Server, cache: &PageCache, inode: InodeNo) -> fs::Result<()> {
    write_back(server, cache, inode).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => FsError::NoSpace,
        _ => FsError::Io(format!("the data of inode {} is not written back: {error}", inode.0)),
    })
}

/// Has the kernel write back the dirty pages of cut files. Errors are reported to the programs that wrote the data.
pub(crate) fn write_back_cut_files(server: &Server, cache: &PageCache) {
    server.cut_files().process_all(|inode| {
        if let Err(error) = write_back(server, cache, inode) {
            tracing::debug!("inode {} is not written back: {error}", inode.0);
        }
    });
}

/// Answers a seek from the data that has arrived here.
pub(crate) fn reply_seek(server: &Server, seek: &Seek, reply: Reply) {
    match server.seek(seek.handle, seek.offset, seek.whence) {
        Ok(offset) => reply.structure(&LseekOut { offset }),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Has the kernel drop the pages and the inode of a file. A program that is just closing the file keeps the inode for
/// a moment after the release, so this is tried several times. If another program has the file open, it is tried
/// again when that program closes it.
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

/// Returns whether the kernel has dropped them.
fn drop_pages(notifier: &Notifier, Pages { inode, offset, length }: Pages) -> bool {
    let range = (i64::try_from(offset), i64::try_from(length));
    let (Ok(offset), Ok(length)) = range else { return false };
    let dropped = notifier.invalidate_inode(inode.0, offset, length);
    if let Err(error) = &dropped {
        tracing::debug!("the cached pages of inode {} cannot be invalidated: {error}", inode.0);
    }
    dropped.is_ok()
}

fn forget_attributes(notifier: &Notifier, inode: InodeNo) {
    // A negative offset leaves the pages alone.
    if let Err(error) = notifier.invalidate_inode(inode.0, -1, 0) {
        tracing::debug!("the cached attributes of inode {} cannot be invalidated: {error}", inode.0);
    }
}
