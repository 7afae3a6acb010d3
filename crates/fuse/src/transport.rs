//! The operations of the kernel: calls the file system and replies.
//!
//! Each operation is answered on the thread that received it, with two exceptions: writes beyond the limit of
//! concurrent writes ([`crate::kernel`], `write_queue`), and answers that must wait until the kernel has written
//! something back or dropped something ([`crate::deferred`]).
//!
//! | file | contents |
//! |---|---|
//! | `names` | operations that find, create, move and remove names |
//! | `files` | operations on open files |
//! | `directories` | reading directories |
//! | `attributes` | attributes, extended attributes, and the sizes of the volume |
//! | `attr` | attributes in the kernel's structures |

mod attr;
mod attributes;
mod directories;
mod files;
mod names;

use std::io;
use std::sync::{Arc, OnceLock};

use fs::{Attributes, Caller, InodeNo};
use rustix::io::Errno;

use crate::deferred::{DeferredQueues, DeferredWork};
use crate::errno::errno;
use crate::groups;
use crate::handles::HandleNo;
use crate::kernel::abi::init_flag;
use crate::kernel::{
    Agreed, Answers, Channel, Operation, Origin, REQUEST_BYTES_MAX, Reply, Request, Terms, shake_hands,
};
use crate::server::{Server, permissions};
use crate::translate;

pub(crate) use attr::{LIFETIME, absent, attr, directory_type};
pub(crate) use attributes::{reply_sizes, reply_xattr};
pub(crate) use directories::{listing_for, reply_listing};

/// Capabilities that are requested from the kernel. Locks are not requested, because the kernel keeps them. We apply
/// the umask, because it does not count where a default list is inherited.
const CAPABILITIES: [u64; 17] = [
    init_flag::POSIX_ACL,
    init_flag::DONT_MASK,
    init_flag::ASYNC_READ,
    init_flag::ATOMIC_O_TRUNC,
    init_flag::EXPORT_SUPPORT,
    init_flag::BIG_WRITES,
    init_flag::DO_READDIRPLUS,
    init_flag::READDIRPLUS_AUTO,
    init_flag::ASYNC_DIO,
    init_flag::WRITEBACK_CACHE,
    init_flag::PARALLEL_DIROPS,
    init_flag::MAX_PAGES,
    init_flag::CACHE_SYMLINKS,
    init_flag::NO_OPENDIR_SUPPORT,
    init_flag::EXPLICIT_INVAL_DATA,
    init_flag::HANDLE_KILLPRIV_V2,
    init_flag::DIRECT_IO_ALLOW_MMAP,
];

/// Capabilities with which the kernel keeps something of the mount, or relies on what it knows. With `ASYNC_DIO` an
/// asynchronous read ends at the kernel's size of the file, and a short asynchronous write is an error.
const CACHES: [u64; 6] = [
    init_flag::ASYNC_DIO,
    init_flag::EXPLICIT_INVAL_DATA,
    init_flag::WRITEBACK_CACHE,
    init_flag::CACHE_SYMLINKS,
    init_flag::NO_OPENDIR_SUPPORT,
    init_flag::DIRECT_IO_ALLOW_MMAP,
];

/// Answers the requests of one mount.
pub(crate) struct Transport {
    server: Arc<Server>,
    deferred: DeferredQueues,
    has_xattrs: bool,
    /// What was agreed with the kernel when the session began.
    agreed: OnceLock<Agreed>,
}

impl Transport {
    pub(crate) fn new(server: Arc<Server>, deferred: DeferredQueues, has_xattrs: bool) -> Self {
        Transport { server, deferred, has_xattrs, agreed: OnceLock::new() }
    }

    /// Agrees with the kernel on the protocol and on the number of readahead and write-back requests in progress.
    pub(crate) fn begin(&self, channel: &Channel, max_background: u16) -> io::Result<()> {
        let mut wanted = CAPABILITIES.iter().fold(0, |all, capability| all | capability);
        if self.server.access_times().are_enabled() {
            // Reading a link must arrive here, because it updates the access time.
            wanted &= !init_flag::CACHE_SYMLINKS;
        }
        if !self.has_xattrs {
            wanted &= !init_flag::POSIX_ACL;
        }
        if self.server.is_uncached() {
            wanted = CACHES.iter().fold(wanted, |wanted, cache| wanted & !cache);
            // `sendfile` and private mappings use the kernel's pages. It drops them when the time of the file changes.
            wanted |= init_flag::AUTO_INVAL_DATA;
        }
        let terms = Terms { wanted, max_write: REQUEST_BYTES_MAX, max_background };
        let agreed = shake_hands(channel, &terms)?;
        if agreed.forgets {
            self.server.keep_unlinked();
        }
        if agreed.granted != wanted {
            tracing::debug!("the kernel lacks the features {:#x}", wanted & !agreed.granted);
        }
        self.agreed.set(agreed).expect("a session begins once");
        Ok(())
    }

    /// Whether an invalidation waits for write-back in progress: kernels from 6.16 on.
    pub(crate) fn waits_for_writes(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.waits_for_writes)
    }

    /// Makes the kernel ask for the attributes of a file before it accepts the next write to it.
    fn forget_attributes(&self, inode: InodeNo) {
        // After the session has ended this is dropped, and then no program writes.
        self.deferred.send(DeferredWork::ForgetAttributes(inode));
    }

    /// Makes the kernel drop a file with data that was not stored, now that a program has closed it.
    fn evict_unstored(&self, inode: InodeNo) {
        if self.server.can_be_evicted(inode) {
            // After the session has ended this is dropped, and then no program asks.
            self.deferred.send(DeferredWork::Evict(inode));
        }
    }

    /// Replies. If the operation has changed attributes in a way that the kernel does not expect, replies only after
    /// the kernel has dropped its cached attributes.
    fn reply_after(&self, is_outdated: bool, inode: InodeNo, reply: impl FnOnce() + Send + 'static) {
        reply_after(&self.deferred, is_outdated, inode, reply);
    }

    /// Replies to a change of contents that bypassed the kernel's cache. The kernel sends no `fsync` for it. So if
    /// the handle `syncs`, replies only after the change is durable.
    fn reply_changed<T: Send + 'static>(
        &self,
        (handle, syncs): (HandleNo, bool),
        (inode, is_outdated): (InodeNo, bool),
        done: fs::Result<T>,
        answer: impl FnOnce(fs::Result<T>) + Send + 'static,
    ) {
        if !syncs || done.is_err() {
            return self.reply_after(is_outdated, inode, || answer(done));
        }
        let deferred = self.deferred.clone();
        self.reply_durable(move |server| {
            let done = done.and_then(|done| server.fsync(handle, true).map(|()| done));
            reply_after(&deferred, is_outdated, inode, || answer(done));
        });
    }

    /// Makes something durable and replies. Before that, the dirty pages of cut files are written back.
    fn reply_durable(&self, reply: impl FnOnce(&Server) + Send + 'static) {
        if self.server.cut_files().is_empty() {
            return reply(&self.server);
        }
        let server = Arc::clone(&self.server);
        self.deferred.send(DeferredWork::Sync(Box::new(move || reply(&server))));
    }

    /// Gives one of these files a name and replies. Before that, their dirty pages are written back.
    fn reply_named<T: 'static>(
        &self,
        files: Vec<InodeNo>,
        name: impl FnOnce(&Server) -> fs::Result<T> + Send + 'static,
        answer: impl FnOnce(fs::Result<T>) + Send + 'static,
    ) {
        if files.is_empty() {
            return answer(name(&self.server));
        }
        let server = Arc::clone(&self.server);
        let then = move |arrived: fs::Result<()>| answer(arrived.and_then(|()| name(&server)));
        self.deferred.send(DeferredWork::Name(files, Box::new(then)));
    }

    /// Drops the set-id bits for a change of contents or owner for which the kernel does not say whether they may
    /// stay. They are dropped unless root changes the file. Returns whether there were any.
    fn drop_set_id_for(&self, from: &Origin, inode: InodeNo) -> fs::Result<bool> {
        let keeps = from.uid == 0 && (!self.server.has_set_id(inode)? || groups::root_keeps_set_id(from.pid));
        if keeps { Ok(false) } else { self.drop_set_id(from, inode) }
    }

    /// The same for any caller.
    fn drop_set_id(&self, from: &Origin, inode: InodeNo) -> fs::Result<bool> {
        self.server.drop_set_id(inode, |group| may_run_as(from, group))
    }

    fn reply_entry(&self, reply: Reply, found: fs::Result<Attributes>) {
        match found {
            Ok(attributes) if self.server.note_found(&attributes) => {
                reply.structure(&attr::entry(&self.server, &attributes));
            }
            Ok(_) => reply.error(Errno::NOENT),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

impl Answers for Transport {
    fn answer(&self, request: Request<'_>, reply: Reply) {
        let from = &request.origin;
        match request.operation {
            Operation::Lookup(name) => self.lookup(from, name, reply),
            Operation::Getattr(asked) => self.getattr(from, asked, reply),
            Operation::Setattr(asked) => self.setattr(from, &asked, reply),
            Operation::Statx(asked) => self.statx(from, asked, reply),
            Operation::Readlink => self.readlink(from, reply),
            Operation::Symlink { name, target } => self.symlink(from, name, target, reply),
            Operation::Mknod(asked, name) => self.mknod(from, asked, name, reply),
            Operation::Mkdir(asked, name) => self.mkdir(from, asked, name, reply),
            Operation::Unlink(name) => self.unlink(from, name, reply),
            Operation::Rmdir(name) => self.rmdir(from, name, reply),
            Operation::Rename(asked, name, new_name) => self.rename(from, asked, [name, new_name], reply),
            Operation::Link(asked, name) => self.link(from, asked, name, reply),
            Operation::Open(asked) => self.open(from, asked, reply),
            Operation::Create(asked, name) => self.create(from, asked, name, reply),
            Operation::Tmpfile(asked) => self.tmpfile(from, asked, reply),
            Operation::Read(asked) => self.read(from, asked, reply),
            Operation::Write(asked, data) => self.write(from, asked, data, reply),
            Operation::Statfs => self.statfs(reply),
            Operation::Release(asked) => self.release(from, asked, reply),
            Operation::Fsync(asked) => self.fsync(from, asked, reply),
            Operation::Fsyncdir(_) => self.fsyncdir(reply),
            // The kernel remembers that this is not supported.
            Operation::Setxattr(..)
            | Operation::Getxattr(..)
            | Operation::Listxattr(_)
            | Operation::Removexattr(_)
                if !self.has_xattrs =>
            {
                reply.error(Errno::NOSYS);
            }
            Operation::Setxattr(asked, name, value) => self.setxattr(from, asked, name, value, reply),
            Operation::Getxattr(asked, name) => self.getxattr(from, asked, name, reply),
            Operation::Listxattr(asked) => self.listxattr(from, asked, reply),
            Operation::Removexattr(name) => self.removexattr(from, name, reply),
            Operation::Opendir(_) => self.opendir(reply),
            Operation::Readdir(asked) => self.readdir(from, asked, reply),
            Operation::Readdirplus(asked) => self.readdirplus(from, asked, reply),
            Operation::Releasedir(_) => reply.done(),
            Operation::Fallocate(asked) => self.fallocate(from, asked, reply),
            Operation::Lseek(asked) => self.lseek(from, asked, reply),
            Operation::CopyFileRange(asked) => self.copy_file_range(from, asked, reply),
            Operation::Syncfs => self.reply_durable(|server| finish(reply, server.fs().sync())),
            // The kernel writes dirty pages back before `close` returns and reports their errors itself. It remembers
            // that this operation is not supported.
            Operation::Flush => reply.error(Errno::NOSYS),
            Operation::Forget(_)
            | Operation::BatchForget(_)
            | Operation::Init(_)
            | Operation::Interrupt
            | Operation::Destroy
            | Operation::Unknown(_) => unreachable!("answered by the protocol itself"),
        }
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.server.forget(InodeNo(node), lookups);
    }
}

/// See [`Transport::reply_after`].
fn reply_after(
    deferred: &DeferredQueues,
    is_outdated: bool,
    inode: InodeNo,
    reply: impl FnOnce() + Send + 'static,
) {
    if !is_outdated {
        return reply();
    }
    deferred.send(DeferredWork::ForgetThen(inode, Box::new(reply)));
}

/// Replies to an operation that has made a file longer; before, it was `shorter`. Replies only after the kernel has
/// cleared the bytes that programs have stored behind the old end.
fn reply_grown(
    deferred: &DeferredQueues,
    shorter: Option<Attributes>,
    reply: impl FnOnce() + Send + 'static,
) {
    match shorter {
        Some(file) => deferred.send(DeferredWork::ClearBehindEnd(file, Box::new(reply))),
        None => reply(),
    }
}

/// The inode of a request. For an operation on a name, its directory.
pub(crate) fn inode_of(from: &Origin) -> InodeNo {
    InodeNo(from.node)
}

fn caller(from: &Origin, umask: u32) -> Caller {
    let umask = permissions(umask);
    Caller { uid: from.uid, gid: from.gid, groups: Vec::new(), umask, checked: true }
}

/// Whether a caller may let a file run as this group.
fn may_run_as(from: &Origin, group: u32) -> bool {
    from.gid == group
        || from.uid == 0 && groups::root_keeps_set_id(from.pid)
        || groups::of_thread(from.pid).contains(&group)
}

/// The caller that creates an inode with these permissions. It includes all groups of the thread if these decide
/// whether the file may run as its group. Kernels from 6.0 on check this, but do not say so.
fn maker(from: &Origin, umask: u32, mode: u32) -> Caller {
    let caller = caller(from, umask);
    match caller.uid != 0 && translate::runs_as_group(permissions(mode)) {
        true => Caller { groups: groups::of_thread(from.pid), ..caller },
        false => caller,
    }
}

/// A count that a request limited to 32 bits.
fn short(count: u64) -> u32 {
    u32::try_from(count).expect("no more is done than was asked for")
}

pub(crate) fn finish(reply: Reply, done: fs::Result<()>) {
    match done {
        Ok(()) => reply.done(),
        Err(error) => reply.error(errno(&error)),
    }
}

#[cfg(test)]
mod tests;
