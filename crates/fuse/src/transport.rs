//! Requests and replies as the crate `fuser` brings them.
//!
//! Every operation is answered on the thread that received it, except `SEEK_DATA` and `SEEK_HOLE` on a
//! file that somebody writes: the kernel does not write dirty pages back before it asks, so the
//! answer must wait until it has, and it can only when threads are free to take the writes.
//! Such seeks go to a thread of their own, as does what the kernel is to be told ([`Errand`]).

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use fs::{Attributes, Caller, Changes, FsError, InodeNo, Kind, SetTime};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::complaints::COMPLAINTS;
use crate::groups;
use crate::handles::HandleNo;
use crate::server::{Server, permissions, setter_of};
use crate::translate;

/// How long the kernel may believe attributes, entries and the absence of entries. Nothing changes them
/// but requests of the same kernel; the limit heals what an error of ours might leave behind.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest read or write of one request.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// How many reads ahead and writes back the kernel may have under way.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// What `st_blksize` says: the size of a page, which is what the kernel caches.
const IO_SIZE: u32 = 4096;

/// Asked of the kernel where it has it. Not asked for: locks (the kernel keeps them), ACLs and umask
/// (the kernel applies the umask).
const CAPABILITIES: [InitFlags; 11] = [
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_MAX_PAGES,
];

thread_local! {
    /// What was read, on its way to the kernel; reused, because fresh pages cost more than copying.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Implements what `fuser` calls.
pub(crate) struct Transport {
    server: Arc<Server>,
    errands: Sender<Errand>,
}

impl Transport {
    pub(crate) fn new(server: Arc<Server>, errands: Sender<Errand>) -> Self {
        Transport { server, errands }
    }

    /// What the kernel may keep of a file that is opened: with times of access it forgets what it has, so that
    /// at least the first read after each opening comes here.
    fn caching(&self) -> FopenFlags {
        if self.server.access_times().are_kept() { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE }
    }

    /// A directory is being read, from its beginning.
    fn note_listing(&self, directory: INodeNo, cookie: u64) {
        if cookie == 0 {
            self.server.note_access(ours(directory));
        }
    }

    /// Makes the kernel ask for the attributes of a file before it takes the next write to it.
    fn forget_attributes(&self, inode: INodeNo) {
        // Nobody is there any more when the session has ended, and then nobody writes.
        let _ = self.errands.send(Errand::ForgetAttributes(inode));
    }

    /// Replies; where attributes have changed by something of which the kernel does not expect it, not before
    /// the kernel has forgotten those that it knows.
    fn reply_after(&self, is_outdated: bool, inode: INodeNo, reply: impl FnOnce() + Send + 'static) {
        if !is_outdated {
            return reply();
        }
        // What cannot be sent is dropped, and `fuser` answers what is dropped with an error.
        let _ = self.errands.send(Errand::ForgetThen(inode, Box::new(reply)));
    }

    /// What the kernel is told of an inode. It goes on with the count of blocks that it was told, whatever it has
    /// in its cache, and there are programs that take a file without blocks for one hole: so none that
    /// somebody may be writing to is without.
    fn shown(&self, attributes: &Attributes) -> FileAttr {
        let is_being_written =
            self.server.has_no_blocks(attributes) && self.server.may_be_dirty(attributes.inode);
        FileAttr { blocks: attributes.blocks.max(is_being_written.into()), ..to_reply(attributes) }
    }

    /// Whether the kernel may know a file, which has just been opened for writing or closed after it, with
    /// another count of blocks than is [`Transport::shown`] now.
    fn looks_otherwise(&self, inode: INodeNo, flags: OpenFlags) -> bool {
        translate::open_flags(flags.0).write
            && self.server.fs().attributes(ours(inode)).is_ok_and(|found| self.server.has_no_blocks(&found))
    }

    fn reply_entry(&self, reply: ReplyEntry, found: fs::Result<Attributes>) {
        match found {
            Ok(attributes) => reply.entry(&LIFETIME, &self.shown(&attributes), generation(&attributes)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn reply_attributes(&self, reply: ReplyAttr, found: fs::Result<Attributes>) {
        match found {
            Ok(attributes) => reply.attr(&LIFETIME, &self.shown(&attributes)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Somebody changes the contents of a file. Whether it lost its set-id bits by that, as it does unless it
    /// is root who changes it: the capability that decides elsewhere is not told to us.
    fn drop_set_id_for(&self, who: u32, inode: INodeNo) -> fs::Result<bool> {
        if who == 0 { Ok(false) } else { self.server.drop_set_id(ours(inode)) }
    }
}

/// An access list sets the permission bits too.
fn sets_bits(name: &OsStr) -> bool {
    name.as_bytes() == fs::ACL_ACCESS
}

/// What must not be done by a thread that answers requests, because it may have to wait for one.
pub(crate) enum Errand {
    /// Answers a seek.
    Seek(Seek),
    /// Tells the kernel that the attributes it remembers are no longer valid.
    ForgetAttributes(INodeNo),
    /// The same, before something else.
    ForgetThen(INodeNo, Box<dyn FnOnce() + Send>),
}

impl Errand {
    pub(crate) fn run(self, server: &Server, notifier: &Notifier) {
        match self {
            Errand::Seek(seek) => seek.answer(server, notifier),
            Errand::ForgetAttributes(inode) => forget_attributes(notifier, inode),
            Errand::ForgetThen(inode, then) => {
                forget_attributes(notifier, inode);
                then();
            }
        }
    }
}

fn forget_attributes(notifier: &Notifier, inode: INodeNo) {
    // A negative offset leaves the pages alone.
    if let Err(error) = notifier.inval_inode(inode, -1, 0) {
        tracing::debug!("the kernel keeps the attributes of inode {}: {error}", inode.0);
    }
}

/// A search for data or a hole that has to wait for dirty pages.
pub(crate) struct Seek {
    inode: INodeNo,
    handle: HandleNo,
    offset: i64,
    whence: i32,
    reply: ReplyLseek,
}

impl Seek {
    /// Makes the kernel write back what it holds of the file, then answers.
    fn answer(self, server: &Server, notifier: &Notifier) {
        match notifier.inval_inode(self.inode, 0, 0) {
            Ok(()) => reply_seek(server, self.handle, self.offset, self.whence, self.reply),
            Err(error) => self.reply.error(Errno::from(error)),
        }
    }
}

impl Filesystem for Transport {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let keeps_links = !self.server.access_times().are_kept();
        for capability in CAPABILITIES {
            if capability == InitFlags::FUSE_CACHE_SYMLINKS && !keeps_links {
                continue;
            }
            if let Err(missing) = config.add_capabilities(capability) {
                tracing::debug!("the kernel lacks {missing:?}");
            }
        }
        let refused = |limit| io::Error::other(format!("the kernel's limit is {limit}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(refused)?;
        config.set_max_background(BACKGROUND_REQUESTS_MAX).map_err(|limit| refused(limit.into()))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.server.lookup(&caller(request, 0), ours(parent), name.as_bytes()) {
            Err(FsError::NotFound) => reply.entry(&LIFETIME, &nothing(), Generation(0)),
            found => self.reply_entry(reply, found),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        match handle {
            Some(_) => self.reply_attributes(reply, self.server.attributes_for_write(ours(inode))),
            None => self.reply_attributes(reply, self.server.fs().attributes(ours(inode))),
        }
        if self.server.is_short(ours(inode)) {
            self.forget_attributes(inode);
        }
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if modified.is_some_and(is_out_of_range) && self.server.is_time_kept_by_kernel(ours(inode)) {
            return reply.error(errno(&FsError::Range));
        }
        let changes = Changes {
            permissions: mode.map(permissions),
            uid,
            gid,
            size,
            accessed: accessed.map(set_time),
            modified: modified.map(set_time),
            changed: changed.map(translate::from_request),
        };
        let who = caller(request, 0);
        let changed = match handle.filter(|_| size.is_some()) {
            Some(handle) => self.server.set_attributes_through(&who, HandleNo(handle.0), &changes),
            None => self.server.set_attributes(&who, ours(inode), &changes),
        };
        self.reply_attributes(reply, changed);
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        match self.server.fs().read_link(ours(inode)) {
            Ok(target) => {
                self.server.note_access(ours(inode));
                reply.data(&target);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let who = maker(request, umask, mode);
        self.reply_entry(reply, self.server.make_node(&who, ours(parent), name.as_bytes(), mode, device));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let who = caller(request, umask);
        let made = self.server.fs().make_directory(&who, ours(parent), name.as_bytes(), permissions(mode));
        self.reply_entry(reply, made);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.server.fs().unlink(&caller(request, 0), ours(parent), name.as_bytes()));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let who = caller(request, 0);
        reply_empty(reply, self.server.fs().remove_directory(&who, ours(parent), name.as_bytes()));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let who = caller(request, 0);
        let target = target.as_os_str().as_bytes();
        self.reply_entry(reply, self.server.fs().symlink(&who, ours(parent), name.as_bytes(), target));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(flags) = translate::rename_flags(flags.bits()) else {
            return reply.error(Errno::EINVAL);
        };
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let who = caller(request, 0);
        let done = self.server.fs().rename(&who, ours(parent), name, ours(new_parent), new_name, flags);
        reply_empty(reply, done);
    }

    fn link(
        &self,
        request: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let who = caller(request, 0);
        self.reply_entry(
            reply,
            self.server.fs().link(&who, ours(inode), ours(new_parent), new_name.as_bytes()),
        );
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let truncates = translate::open_flags(flags.0).truncate;
        let dropped = match truncates.then(|| self.drop_set_id_for(request.uid(), inode)).transpose() {
            Ok(dropped) => dropped.unwrap_or(false),
            Err(error) => return reply.error(errno(&error)),
        };
        let opened = self.server.open(&caller(request, 0), ours(inode), flags.0);
        let caching = self.caching();
        let is_outdated = dropped || !truncates && self.looks_otherwise(inode, flags);
        self.reply_after(is_outdated, inode, move || match opened {
            Ok(handle) => reply.opened(FileHandle(handle.0), caching),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let who = maker(request, umask, mode);
        match self.server.create(&who, ours(parent), name.as_bytes(), permissions(mode), flags) {
            Ok((attributes, handle)) => reply.created(
                &LIFETIME,
                &self.shown(&attributes),
                generation(&attributes),
                FileHandle(handle.0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.server.read(HandleNo(handle.0), offset, &mut buffer[..size]) {
                Ok(count) => {
                    if translate::sets_access_time(flags.0) {
                        self.server.note_access(ours(inode));
                    }
                    reply.data(&buffer[..count]);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let handle = HandleNo(handle.0);
        let drops_set_id = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        // Past its cache the kernel says so of every write, through it only where it knows of such bits.
        let is_known = drops_set_id && !translate::is_direct(flags.0);
        let dropped = match drops_set_id.then(|| self.server.drop_set_id(ours(inode))).transpose() {
            Ok(dropped) => dropped.unwrap_or(false),
            Err(error) => return reply.error(errno(&error)),
        };
        let written = match write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => self.server.write_back(handle, offset, data),
            false => self.server.write(handle, offset, data),
        };
        let reply = || reply_written(reply, written.map(|count| count as u64));
        self.reply_after(dropped || is_known, inode, reply);
        if self.server.is_short(ours(inode)) {
            self.forget_attributes(inode);
        }
    }

    /// Not implemented, which the kernel remembers: it writes dirty pages back before `close` returns
    /// and reports their errors without our help.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.server.release(HandleNo(handle.0)));
        if self.looks_otherwise(inode, flags) {
            self.forget_attributes(inode);
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.server.fsync(HandleNo(handle.0), data_only));
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let cached = match self.server.access_times().are_kept() {
            true => FopenFlags::empty(),
            false => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
        };
        match self.server.open_directory(&caller(request, 0), ours(inode)) {
            Ok(handle) => reply.opened(FileHandle(handle.0), cached),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        self.note_listing(inode, cookie);
        let listed = self.server.read_directory(HandleNo(handle.0), cookie, &mut |entry| {
            let name = OsStr::from_bytes(&entry.name);
            !reply.add(INodeNo(entry.inode.0), entry.cookie, file_type(entry.kind), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.note_listing(inode, cookie);
        let listed = self.server.read_directory_plus(HandleNo(handle.0), cookie, &mut |entry, attributes| {
            let name = OsStr::from_bytes(&entry.name);
            let inode = INodeNo(entry.inode.0);
            let (shown, generation) = match attributes {
                Some(attributes) => (self.shown(&attributes), generation(&attributes)),
                None => (FileAttr { ino: inode, kind: FileType::Directory, ..nothing() }, Generation(0)),
            };
            !reply.add(inode, entry.cookie, name, &LIFETIME, &shown, generation)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.server.release(HandleNo(handle.0)));
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.server.fsync(HandleNo(handle.0), data_only));
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        match self.server.fs().statfs() {
            Ok(s) => reply.statfs(
                s.blocks,
                s.free,
                s.available,
                s.files,
                s.files_free,
                s.block_size,
                s.name_max,
                s.block_size,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        let (create, replace) = (flags & CREATE != 0, flags & REPLACE != 0);
        let who = setter_of(name.as_bytes(), caller(request, 0));
        let fs = self.server.fs();
        let done = fs.set_xattr(&who, ours(inode), name.as_bytes(), value, create, replace);
        self.reply_after(done.is_ok() && sets_bits(name), inode, || reply_empty(reply, done));
    }

    fn getxattr(&self, request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.server.fs().get_xattr(&caller(request, 0), ours(inode), name.as_bytes());
        reply_xattr(reply, size, value);
    }

    fn listxattr(&self, _request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let list = self.server.fs().list_xattrs(ours(inode)).map(|names| {
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            list
        });
        reply_xattr(reply, size, list);
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let who = setter_of(name.as_bytes(), caller(request, 0));
        let done = self.server.fs().remove_xattr(&who, ours(inode), name.as_bytes());
        self.reply_after(done.is_ok() && sets_bits(name), inode, || reply_empty(reply, done));
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let dropped = match self.drop_set_id_for(request.uid(), inode) {
            Ok(dropped) => dropped,
            Err(error) => return reply.error(errno(&error)),
        };
        let done = self.server.allocate(HandleNo(handle.0), mode, offset, length);
        self.reply_after(dropped, inode, || reply_empty(reply, done));
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let handle = HandleNo(handle.0);
        if !self.server.may_be_dirty(ours(inode)) {
            return reply_seek(&self.server, handle, offset, whence, reply);
        }
        // A seek that cannot be sent is dropped, and `fuser` answers what is dropped with an error.
        let _ = self.errands.send(Errand::Seek(Seek { inode, handle, offset, whence, reply }));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _from_inode: INodeNo,
        from: FileHandle,
        from_offset: u64,
        to_inode: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply has 32 bits for the count.
        let length = length.min(u64::from(u32::MAX));
        let (from, to) = ((HandleNo(from.0), from_offset), (HandleNo(to.0), to_offset));
        let dropped = match self.drop_set_id_for(request.uid(), to_inode) {
            Ok(dropped) => dropped,
            Err(error) => return reply.error(errno(&error)),
        };
        let copied = self.server.copy_range(from, to, length);
        self.reply_after(dropped, to_inode, || reply_written(reply, copied));
    }
}

fn ours(inode: INodeNo) -> InodeNo {
    InodeNo(inode.0)
}

fn caller(request: &Request, umask: u32) -> Caller {
    let umask = permissions(umask);
    Caller { uid: request.uid(), gid: request.gid(), groups: Vec::new(), umask, checked: true }
}

/// Who makes something with these permissions: with all his groups where it depends on them whether what he
/// makes may run as its group. Kernels from 6.0 on have looked at that, but do not say so.
fn maker(request: &Request, umask: u32, mode: u32) -> Caller {
    let who = caller(request, umask);
    match who.uid != 0 && translate::runs_as_group(permissions(mode)) {
        true => Caller { groups: groups::of_thread(request.pid()), ..who },
        false => who,
    }
}

fn errno(error: &FsError) -> Errno {
    if let FsError::Io(why) = error
        && COMPLAINTS.is_new(why)
    {
        tracing::warn!("an operation failed: {why}");
    }
    Errno::from_i32(error.errno())
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(translate::from_request(time)),
    }
}

fn is_out_of_range(time: TimeOrNow) -> bool {
    matches!(time, TimeOrNow::SpecificTime(time) if !translate::can_be_kept(time))
}

/// A count that a request limited to 32 bits.
fn short(count: u64) -> u32 {
    u32::try_from(count).expect("no more is done than was asked for")
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

fn generation(attributes: &Attributes) -> Generation {
    Generation(attributes.generation.into())
}

fn to_reply(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode.0),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: translate::to_reply(attributes.accessed),
        mtime: translate::to_reply(attributes.modified),
        ctime: translate::to_reply(attributes.changed),
        crtime: translate::to_reply(attributes.born),
        kind: file_type(attributes.kind),
        perm: attributes.permissions,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: IO_SIZE,
        flags: 0,
    }
}

/// Inode 0: an entry that is not there, which the kernel may remember.
fn nothing() -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: IO_SIZE,
        flags: 0,
    }
}

fn reply_empty(reply: ReplyEmpty, done: fs::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_written(reply: ReplyWrite, count: fs::Result<u64>) {
    match count {
        Ok(count) => reply.written(short(count)),
        Err(error) => reply.error(errno(&error)),
    }
}

/// A value for a caller with room for `size` bytes; 0 asks for the size alone.
fn reply_xattr(reply: ReplyXattr, size: u32, value: fs::Result<Vec<u8>>) {
    match value {
        Ok(value) if size == 0 => reply.size(short(value.len() as u64)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_seek(server: &Server, handle: HandleNo, offset: i64, whence: i32, reply: ReplyLseek) {
    match server.seek(handle, offset, whence) {
        Ok(found) => reply.offset(found),
        Err(error) => reply.error(errno(&error)),
    }
}
