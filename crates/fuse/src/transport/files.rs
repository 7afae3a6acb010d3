//! Opening files, and operations on open files.

use std::cell::RefCell;
use std::path::Path;

use fs::{Attributes, InodeNo};
use rustix::io::Errno;

use super::attr::entry;
use super::{Transport, caller, finish, inode_of, maker, reply_after, reply_grown, short};
use crate::deferred::{DeferredWork, Pages, Seek, reply_seek};
use crate::errno::errno;
use crate::handles::HandleNo;
use crate::kernel::abi::{
    CopyFileRangeIn, CreateIn, FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, OPEN_KILL_SUIDGID, OpenIn,
    OpenOut, READ_LOCKOWNER, ReadIn, ReleaseIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut, fopen,
};
use crate::kernel::{Origin, PageBuffer, REQUEST_BYTES_MAX, Reply};
use crate::server::permissions;
use crate::translate;

thread_local! {
    /// The buffer for read data. It is reused, because new pages cost more than copying.
    static READ_BUFFER: RefCell<PageBuffer> = RefCell::new(PageBuffer::new(0, REQUEST_BYTES_MAX as usize));
}

/// How the files of an uncached mount are opened. Closing one sends no request: a process that serves the mount itself and
/// ends with such a file open would wait for an answer of its own threads, which have ended.
const UNCACHED: u32 = fopen::DIRECT_IO | fopen::NO_FLUSH;

impl Transport {
    pub(super) fn open(&self, from: &Origin, asked: OpenIn, reply: Reply) {
        let (inode, flags) = (inode_of(from), asked.flags.cast_signed());
        if self.refuses_direct(flags) {
            return reply.error(Errno::INVAL);
        }
        let truncates = translate::open_flags(flags).truncate;
        let drops_set_id = truncates && asked.open_flags & OPEN_KILL_SUIDGID != 0;
        let dropped = match drops_set_id.then(|| self.drop_set_id(from, inode)).transpose() {
            Ok(dropped) => dropped.unwrap_or(false),
            Err(error) => return reply.error(errno(&error)),
        };
        let opened = self.server.open(&caller(from, 0), inode, flags);
        let open_flags = self.caching(from);
        let is_outdated = dropped || !truncates && self.may_have_outdated_blocks(inode, flags);
        self.reply_after(is_outdated, inode, move || match opened {
            Ok(handle) => reply.structure(&OpenOut { fh: handle.0, open_flags, backing_id: 0 }),
            Err(error) => reply.error(errno(&error)),
        });
    }

    pub(super) fn create(&self, from: &Origin, asked: CreateIn, name: &[u8], reply: Reply) {
        let caller = maker(from, asked.umask, asked.mode);
        let flags = asked.flags.cast_signed();
        if self.refuses_direct(flags) {
            return reply.error(Errno::INVAL);
        }
        let made = self.server.create(&caller, inode_of(from), name, permissions(asked.mode), flags);
        self.reply_made(reply, made);
    }

    /// Creates a file without a name. The kernel remembers whether the file may get one (`O_EXCL`) and sends no link
    /// that is not allowed.
    pub(super) fn tmpfile(&self, from: &Origin, asked: CreateIn, reply: Reply) {
        let caller = maker(from, asked.umask, asked.mode);
        let flags = asked.flags.cast_signed();
        if self.refuses_direct(flags) {
            return reply.error(Errno::INVAL);
        }
        let made = self.server.temporary_file(&caller, inode_of(from), permissions(asked.mode), flags);
        self.reply_made(reply, made);
    }

    pub(super) fn read(&self, from: &Origin, asked: ReadIn, reply: Reply) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let into = &mut buffer.space()[..asked.size.min(REQUEST_BYTES_MAX) as usize];
            let is_cached = asked.read_flags & READ_LOCKOWNER == 0;
            match self.server.read(HandleNo(asked.fh), asked.offset, into, is_cached) {
                Ok(count) => {
                    if translate::sets_access_time(asked.flags.cast_signed()) {
                        self.server.update_atime(inode_of(from));
                    }
                    reply.bytes(&into[..count]);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    pub(super) fn write(&self, from: &Origin, asked: WriteIn, data: &[u8], reply: Reply) {
        let (inode, handle) = (inode_of(from), HandleNo(asked.fh));
        let drops_set_id = asked.write_flags & WRITE_KILL_SUIDGID != 0;
        let is_written_back = asked.write_flags & WRITE_CACHE != 0;
        // For a direct write the kernel always sets the flag. For a write through its cache it does so if it knows of
        // set-id bits.
        let flags = asked.flags.cast_signed();
        let (is_direct, syncs) = (translate::is_direct(flags), translate::is_synchronous(flags));
        let bypasses = is_direct || self.server.is_uncached();
        let is_known = drops_set_id && !bypasses;
        let dropped = match drops_set_id.then(|| self.drop_set_id(from, inode)).transpose() {
            Ok(dropped) => dropped.unwrap_or(false),
            Err(error) => return reply.error(errno(&error)),
        };
        let is_past_cache = is_direct && !is_written_back && !self.server.is_uncached();
        let shorter = is_past_cache.then(|| self.server.shorter_before(inode, asked.offset)).flatten();
        let written = match is_written_back {
            true => self.server.write_back(handle, asked.offset, data),
            // The kernel's size of the file may be old.
            false if self.server.is_uncached() && translate::appends(flags) => {
                self.server.append(handle, data)
            }
            false if is_direct => self.server.write_whole(handle, asked.offset, data, syncs),
            false => self.server.write(handle, asked.offset, data),
        };
        // Also after an error, because a part may have been written.
        let is_old = is_past_cache && !data.is_empty() && self.server.may_be_cached(inode);
        let old = is_old.then_some(Pages { inode, offset: asked.offset, length: data.len() as u64 });
        let deferred = self.deferred.clone();
        // The kernel syncs writes through its cache itself.
        let (way, what) = ((handle, bypasses && syncs), (inode, dropped || is_known));
        self.reply_changed(way, what, written, move |written| {
            let answer = move || reply_written(reply, written.map(|count| count as u64));
            let sender = deferred.clone();
            reply_grown(&deferred, shorter, move || match old {
                Some(pages) => sender.send(DeferredWork::DropPages(pages, Box::new(answer))),
                None => answer(),
            });
        });
        if self.server.is_short(inode) || is_written_back && self.server.blocks_are_outdated(inode) {
            self.forget_attributes(inode);
        }
    }

    pub(super) fn release(&self, from: &Origin, asked: ReleaseIn, reply: Reply) {
        finish(reply, self.server.release(HandleNo(asked.fh)));
        self.evict_unstored(inode_of(from));
        if self.may_have_outdated_blocks(inode_of(from), asked.flags.cast_signed()) {
            self.forget_attributes(inode_of(from));
        }
    }

    pub(super) fn fsync(&self, from: &Origin, asked: FsyncIn, reply: Reply) {
        let data_only = asked.fsync_flags & FSYNC_FDATASYNC != 0;
        let (inode, handle) = (inode_of(from), HandleNo(asked.fh));
        // The kernel has written this file back before, but perhaps only a part of it: the request does not say
        // which.
        let deferred = self.deferred.clone();
        self.reply_durable(move |server| {
            let synced = server.fsync(handle, data_only);
            reply_after(&deferred, server.blocks_are_outdated(inode), inode, || finish(reply, synced));
        });
    }

    pub(super) fn fallocate(&self, from: &Origin, asked: FallocateIn, reply: Reply) {
        let dropped = match self.drop_set_id_for(from, inode_of(from)) {
            Ok(dropped) => dropped,
            Err(error) => return reply.error(errno(&error)),
        };
        let (mode, handle) = (asked.mode.cast_signed(), HandleNo(asked.fh));
        let end = translate::grows_to(mode, asked.offset, asked.length);
        let shorter = end.and_then(|end| self.server.shorter_before(inode_of(from), end));
        let done = self.server.allocate(handle, mode, asked.offset, asked.length);
        let (way, deferred) = ((handle, self.server.syncs(handle)), self.deferred.clone());
        self.reply_changed(way, (inode_of(from), dropped), done, move |done| {
            reply_grown(&deferred, shorter, || finish(reply, done));
        });
    }

    pub(super) fn lseek(&self, from: &Origin, asked: LseekIn, reply: Reply) {
        let (inode, whence) = (inode_of(from), asked.whence.cast_signed());
        let seek = Seek { inode, handle: HandleNo(asked.fh), offset: asked.offset, whence };
        if !self.server.may_be_dirty(inode) {
            return reply_seek(&self.server, &seek, reply);
        }
        // Data that has not arrived here would be reported as a hole. After this error the kernel takes the whole
        // file for data and does not ask again.
        if !self.waits_for_writes() {
            return reply.error(Errno::NOSYS);
        }
        self.deferred.send(DeferredWork::Seek(seek, reply));
    }

    pub(super) fn copy_file_range(&self, from: &Origin, asked: CopyFileRangeIn, reply: Reply) {
        let target = InodeNo(asked.nodeid_out);
        let dropped = match self.drop_set_id_for(from, target) {
            Ok(dropped) => dropped,
            Err(error) => return reply.error(errno(&error)),
        };
        // The count in the reply has 32 bits. The limit is a multiple of every block size, so that the rest begins
        // with a block.
        let length = asked.len.min(u64::from(!0xffff_u32));
        let places = [(HandleNo(asked.fh_in), asked.off_in), (HandleNo(asked.fh_out), asked.off_out)];
        let shorter = self.server.shorter_before(target, asked.off_out);
        let copied = self.server.copy_range(places[0], places[1], length);
        let (way, deferred) = ((places[1].0, self.server.syncs(places[1].0)), self.deferred.clone());
        self.reply_changed(way, (target, dropped), copied, move |copied| {
            reply_grown(&deferred, shorter, || reply_written(reply, copied));
        });
    }

    fn reply_made(&self, reply: Reply, made: fs::Result<(Attributes, HandleNo)>) {
        match made {
            Ok((attributes, handle)) => {
                self.server.note_lookup_of_file(&attributes);
                let open_flags = if self.server.is_uncached() { UNCACHED } else { fopen::KEEP_CACHE };
                let opened = OpenOut { fh: handle.0, open_flags, backing_id: 0 };
                reply.structures(&entry(&self.server, &attributes), &opened);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Whether a file of an uncached mount is opened for direct access. All access is direct there. But the kernel lets
    /// asynchronous access with `O_DIRECT` depend on its own size of the file, which can be old.
    fn refuses_direct(&self, flags: i32) -> bool {
        self.server.is_uncached() && translate::is_direct(flags)
    }

    /// What the kernel may keep cached of a file that is opened. With access times it drops everything, so that at
    /// least the first read after each open arrives here.
    fn caching(&self, from: &Origin) -> u32 {
        if self.server.is_uncached() {
            return UNCACHED;
        }
        let forgets = self.server.access_times().are_enabled() && !is_own_thread(from.pid);
        if forgets { 0 } else { fopen::KEEP_CACHE }
    }

    /// Whether the kernel may have an outdated count of blocks of a file that has just been opened for writing or
    /// closed after writing.
    fn may_have_outdated_blocks(&self, inode: InodeNo, flags: i32) -> bool {
        translate::open_flags(flags).write
            && !self.server.is_uncached()
            && self.server.fs().attributes(inode).is_ok_and(|found| self.server.has_no_blocks(&found))
    }
}

/// Whether this process itself sent the request. It opens files to have them written back.
fn is_own_thread(thread: u32) -> bool {
    Path::new("/proc/self/task").join(thread.to_string()).exists()
}

fn reply_written(reply: Reply, count: fs::Result<u64>) {
    match count {
        Ok(count) => reply.structure(&WriteOut { size: short(count), padding: 0 }),
        Err(error) => reply.error(errno(&error)),
    }
}
