//! Requests of the kernel, given to the file system, and its answers.
//!
//! Every operation is answered on the thread that received it, except writes where many are being answered
//! ([`crate::kernel`], `aside`), and where the answer must wait until the kernel has written something back or
//! forgotten something ([`crate::errands`]).
//!
//! | file | has |
//! |---|---|
//! | `names` | what finds, makes, moves and removes names |
//! | `files` | what happens by way of open files |
//! | `directories` | reading directories |
//! | `attributes` | attributes, plain and extended, and the sizes of the volume |
//! | `shown` | attributes in the kernel's structures |

mod attributes;
mod directories;
mod files;
mod names;
mod shown;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{Attributes, Caller, FsError, InodeNo};
use rustix::io::Errno;

use crate::errands::{Errand, Errands};
use crate::groups;
use crate::handles::HandleNo;
use crate::kernel::abi::init_flag;
use crate::kernel::{
    Agreed, Answers, Channel, Operation, Origin, REQUEST_BYTES_MAX, Reply, Request, Terms, shake_hands,
};
use crate::server::{Server, permissions};
use crate::translate;

pub(crate) use attributes::{reply_sizes, reply_xattr};
pub(crate) use directories::{listing_for, reply_listing};
pub(crate) use shown::{LIFETIME, absent, attr, directory_type};

/// Asked of the kernel where it has it. Not asked for: locks (the kernel keeps them). The umask is left to us, as
/// it does not count where a default list is handed down.
const CAPABILITIES: [u64; 16] = [
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
    init_flag::EXPLICIT_INVAL_DATA,
    init_flag::HANDLE_KILLPRIV_V2,
    init_flag::DIRECT_IO_ALLOW_MMAP,
];

/// Answers the requests of one mount.
pub(crate) struct Transport {
    server: Arc<Server>,
    errands: Errands,
    /// Whether what the kernel is told to forget of a file has arrived here before it goes on.
    waits_for_writes: AtomicBool,
}

impl Transport {
    pub(crate) fn new(server: Arc<Server>, errands: Errands) -> Self {
        Transport { server, errands, waits_for_writes: AtomicBool::new(false) }
    }

    /// Agrees with the kernel on what is spoken, and on how many reads ahead and writes back may be under way.
    pub(crate) fn begin(&self, channel: &Channel, max_background: u16) -> io::Result<()> {
        let mut wanted = CAPABILITIES.iter().fold(0, |all, capability| all | capability);
        if self.server.access_times().are_kept() {
            // Reading a link is to be seen.
            wanted &= !init_flag::CACHE_SYMLINKS;
        }
        let terms = Terms { wanted, max_write: REQUEST_BYTES_MAX, max_background };
        let Agreed { granted, waits_for_writes, forgets } = shake_hands(channel, &terms)?;
        if forgets {
            self.server.fs().keep_unlinked();
        }
        self.waits_for_writes.store(waits_for_writes, Ordering::Relaxed);
        if granted != wanted {
            tracing::debug!("the kernel lacks {:#x}", wanted & !granted);
        }
        Ok(())
    }

    /// Whether what the kernel is told to write back has arrived here before it goes on: kernels from 6.16 on.
    pub(crate) fn waits_for_writes(&self) -> bool {
        self.waits_for_writes.load(Ordering::Relaxed)
    }

    /// Makes the kernel ask for the attributes of a file before it takes the next write to it.
    fn forget_attributes(&self, inode: InodeNo) {
        // Nobody is there any more when the session has ended, and then nobody writes.
        self.errands.send(Errand::ForgetAttributes(inode));
    }

    /// Makes the kernel forget a file of which it shows what was not stored, now that a program has closed it.
    fn evict_unstored(&self, inode: InodeNo) {
        if self.server.can_be_evicted(inode) {
            // No program asks any more when the session has ended.
            self.errands.send(Errand::Evict(inode));
        }
    }

    /// Replies; where attributes have changed by something of which the kernel does not expect it, not before
    /// the kernel has forgotten those that it knows.
    fn reply_after(&self, is_outdated: bool, inode: InodeNo, reply: impl FnOnce() + Send + 'static) {
        reply_after(&self.errands, is_outdated, inode, reply);
    }

    /// Replies to a change of contents that the kernel's cache has no part in, and for which the kernel therefore sends
    /// no `fsync`: where the handle `syncs`, not before the change is durable.
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
        let errands = self.errands.clone();
        self.reply_durable(move |server| {
            let done = done.and_then(|done| server.fsync(handle, true).map(|()| done));
            reply_after(&errands, is_outdated, inode, || answer(done));
        });
    }

    /// Makes something durable and replies, not before the data has arrived that this depends on: what the kernel
    /// holds of files whose old contents were cut off.
    fn reply_durable(&self, reply: impl FnOnce(&Server) + Send + 'static) {
        if self.server.cut_files().is_empty() {
            return reply(&self.server);
        }
        let server = Arc::clone(&self.server);
        self.errands.send(Errand::Sync(Box::new(move || reply(&server))));
    }

    /// Gives one of these files a name and replies, not before what the kernel holds of them has arrived.
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
        self.errands.send(Errand::Name(files, Box::new(then)));
    }

    /// Somebody changes the contents or the owner of a file, and the kernel does not say whether the set-id bits may
    /// stay. Whether the file lost them, as it does unless it is root who changes it.
    fn drop_set_id_for(&self, from: &Origin, inode: InodeNo) -> fs::Result<bool> {
        let keeps = from.uid == 0 && (!self.server.has_set_id(inode)? || groups::root_keeps_set_id(from.pid));
        if keeps { Ok(false) } else { self.drop_set_id(from, inode) }
    }

    /// The same whoever it is.
    fn drop_set_id(&self, from: &Origin, inode: InodeNo) -> fs::Result<bool> {
        self.server.drop_set_id(inode, |group| may_run_as(from, group))
    }

    fn reply_entry(&self, reply: Reply, found: fs::Result<Attributes>) {
        match found {
            Ok(attributes) => reply.structure(&shown::entry(&self.server, &attributes)),
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
            Operation::Fsync(asked) | Operation::Fsyncdir(asked) => self.fsync(from, asked, reply),
            Operation::Setxattr(asked, name, value) => self.setxattr(from, asked, name, value, reply),
            Operation::Getxattr(asked, name) => self.getxattr(from, asked, name, reply),
            Operation::Listxattr(asked) => self.listxattr(from, asked, reply),
            Operation::Removexattr(name) => self.removexattr(from, name, reply),
            Operation::Opendir(_) => self.opendir(from, reply),
            Operation::Readdir(asked) => self.readdir(from, asked, reply),
            Operation::Readdirplus(asked) => self.readdirplus(from, asked, reply),
            Operation::Releasedir(asked) => self.releasedir(asked, reply),
            Operation::Fallocate(asked) => self.fallocate(from, asked, reply),
            Operation::Lseek(asked) => self.lseek(from, asked, reply),
            Operation::CopyFileRange(asked) => self.copy_file_range(from, asked, reply),
            Operation::Syncfs => self.reply_durable(|server| finish(reply, server.fs().sync())),
            // The kernel writes dirty pages back before `close` returns and reports their errors without our
            // help; it remembers that we do nothing.
            Operation::Flush => reply.error(Errno::NOSYS),
            Operation::Forget
            | Operation::BatchForget(_)
            | Operation::Init(_)
            | Operation::Interrupt
            | Operation::Destroy
            | Operation::Unknown(_) => unreachable!("answered by the protocol itself"),
        }
    }

    fn forget(&self, node: u64) {
        self.server.unstored_files().forget(InodeNo(node));
        self.server.fs().forget(InodeNo(node));
    }
}

/// See [`Transport::reply_after`].
fn reply_after(errands: &Errands, is_outdated: bool, inode: InodeNo, reply: impl FnOnce() + Send + 'static) {
    if !is_outdated {
        return reply();
    }
    errands.send(Errand::ForgetThen(inode, Box::new(reply)));
}

/// Replies to what has made a file longer, which was `shorter` before: not before the kernel has cleared what programs
/// have stored behind its end.
fn reply_grown(errands: &Errands, shorter: Option<Attributes>, reply: impl FnOnce() + Send + 'static) {
    match shorter {
        Some(file) => errands.send(Errand::ClearBehindEnd(file, Box::new(reply))),
        None => reply(),
    }
}

/// The inode that a request is about; of one for a name, its directory.
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

/// Who makes something with these permissions: with all his groups where it depends on them whether what he
/// makes may run as its group. Kernels from 6.0 on have looked at that, but do not say so.
fn maker(from: &Origin, umask: u32, mode: u32) -> Caller {
    let who = caller(from, umask);
    match who.uid != 0 && translate::runs_as_group(permissions(mode)) {
        true => Caller { groups: groups::of_thread(from.pid), ..who },
        false => who,
    }
}

/// What the kernel is told of an error, and the log of those that it is to know of.
pub(crate) fn errno(error: &FsError) -> Errno {
    if let FsError::Io(why) = error {
        tracing::warn!("an operation failed: {why}");
    }
    Errno::from_raw_os_error(error.errno())
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
