//! What each operation of the kernel means to the file system.
//!
//! Methods take plain values and know nothing of the transport that brought them, so that another
//! transport can use them as they are.
//!
//! **Set-id bits.** With `FUSE_HANDLE_KILLPRIV_V2` the kernel leaves it to us to drop the set-user-id and
//! set-group-id bits (asking the kernel to do it costs a `getxattr` for each `write`). The file system
//! does, by who changes the owner, truncates, or has opened the file. What is left for here is
//! changing contents, because whoever does need not be who opened ([`Server::drop_set_id`]).
//!
//! **Full volumes.** The kernel takes bytes into its cache without asking whether there is space for them.
//! When some found none, `fsync` and `close` say so by the kernel's doing, but a program that only
//! writes would never learn it and write for ever. So the next write is refused, once for each time: the
//! kernel asks for attributes before it takes a write, if it has been told to forget those it has, and it
//! asks through the file that is being written, which `stat` does not ([`Server::attributes_for_write`]).
//!
//! **Counts of blocks.** The kernel does not count blocks, and keeps a count of ours until somebody closes
//! a copy of a file's descriptor. What it has of a file that is being written is therefore never 0, and it is told to
//! ask again when what it wrote back, or what was synced, has made that count wrong by more than a little.
//!
//! **Listings in the kernel's cache.** The kernel validates a cached listing only when a listing starts. A handle that
//! goes on in the middle takes the rest from the cache, also when another handle filled that cache from an older state
//! of the directory. So one handle of a directory at a time uses the cache ([`Server::open_directory`]). It cannot
//! meet a listing that another handle has begun, and the kernel's check is enough. The other handles ask the daemon.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use fs::{Attributes, Caller, Changes, DirEntry, Fs, FsError, Handle, InodeNo, Result};
use rt::sync::Mutex;

use crate::access::AccessTimes;
use crate::handles::{HandleNo, Handles};
use crate::noted::Noted;
use crate::translate;

/// How many directory entries are read before their attributes are.
const DIRECTORY_BATCH: usize = 128;

/// One mounted volume as the kernel sees it.
pub(crate) struct Server {
    fs: Arc<Fs>,
    handles: Handles<Opened>,
    access_times: AccessTimes,
    cut_files: Noted,
    unstored_files: Noted,
    /// Directories of which an open handle uses the kernel's cache of listings. A leaf lock.
    listed_from_cache: Mutex<HashSet<InodeNo>>,
}

/// A file or directory that the kernel has open.
struct Opened {
    handle: Handle,
    /// Whether what is done through it is durable when it is done (`O_SYNC`, `O_DSYNC`). The handle does not know: for
    /// what is written through the kernel's cache the kernel asks.
    syncs: bool,
    /// Whether the kernel may cache what is listed through it, and list it from the cache.
    lists_from_cache: bool,
}

impl Deref for Opened {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Server {
    pub(crate) fn new(fs: Arc<Fs>, access_times: AccessTimes) -> Self {
        Server {
            fs,
            handles: Handles::new(),
            access_times,
            cut_files: Noted::default(),
            unstored_files: Noted::default(),
            listed_from_cache: Mutex::default(),
        }
    }

    /// The operations that mean to the file system what they mean to the kernel.
    pub(crate) fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Finds a name. With `.` the kernel asks for an inode, of whatever kind, that a handle names
    /// (`open_by_handle_at`, NFS) and that it has forgotten; with `..` for the directory above.
    pub(crate) fn lookup(&self, who: &Caller, parent: InodeNo, name: &[u8]) -> Result<Attributes> {
        if name != b"." {
            return self.fs.lookup(who, parent, name);
        }
        let attributes = self.fs.attributes(parent)?;
        if attributes.links > 0 { Ok(attributes) } else { Err(FsError::Stale) }
    }

    /// Files whose dirty pages the next commit depends on.
    pub(crate) fn cut_files(&self) -> &Noted {
        &self.cut_files
    }

    /// Files of which the kernel shows what was not stored.
    pub(crate) fn unstored_files(&self) -> &Noted {
        &self.unstored_files
    }

    /// Whether the kernel can be made to forget what was not stored of this file.
    pub(crate) fn can_be_evicted(&self, inode: InodeNo) -> bool {
        self.unstored_files.contains(inode) && !self.may_be_dirty(inode)
    }

    pub(crate) fn access_times(&self) -> &AccessTimes {
        &self.access_times
    }

    /// Something was read. That its time cannot be noted is no reason to refuse what was read.
    pub(crate) fn update_atime(&self, inode: InodeNo) {
        if self.access_times.are_kept()
            && let Err(error) = self.fs.update_atime(inode)
        {
            tracing::debug!("the time of access of inode {} stays: {error}", inode.0);
        }
    }

    pub(crate) fn create(
        &self,
        who: &Caller,
        parent: InodeNo,
        name: &[u8],
        permissions: u16,
        flags: i32,
    ) -> Result<(Attributes, HandleNo)> {
        let opened = translate::open_flags(flags);
        let exclusive = translate::is_exclusive(flags);
        let (attributes, handle) = self.fs.create(who, parent, name, permissions, opened, exclusive)?;
        Ok((attributes, self.keep(handle, flags)))
    }

    /// Makes a file without a name, which is there until it is closed, or until it is given one.
    pub(crate) fn temporary_file(
        &self,
        who: &Caller,
        parent: InodeNo,
        permissions: u16,
        flags: i32,
    ) -> Result<(Attributes, HandleNo)> {
        let opened = translate::open_flags(flags);
        let (attributes, handle) = self.fs.temporary_file(who, parent, permissions, opened)?;
        Ok((attributes, self.keep(handle, flags)))
    }

    /// Makes what `mknod` makes: everything but directories and symbolic links.
    pub(crate) fn make_node(
        &self,
        who: &Caller,
        parent: InodeNo,
        name: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Attributes> {
        let kind = translate::kind_of_mode(mode).ok_or(FsError::Invalid)?;
        self.fs.make_node(who, parent, name, kind, permissions(mode), device)
    }

    pub(crate) fn open(&self, who: &Caller, inode: InodeNo, flags: i32) -> Result<HandleNo> {
        let opened = translate::open_flags(flags);
        let open = || self.fs.open(who, inode, opened).map(|handle| self.keep(handle, flags));
        let kept = if opened.truncate { self.cutting(inode, open) } else { open() };
        self.forget_cut_of_closed(inode);
        kept
    }

    /// Opens a directory, and says whether listings through this handle may use the kernel's cache. With times of
    /// access they never do, because each listing has to come here.
    pub(crate) fn open_directory(&self, who: &Caller, inode: InodeNo) -> Result<(HandleNo, bool)> {
        let handle = self.fs.open(who, inode, fs::OpenFlags { read: true, ..Default::default() })?;
        let lists_from_cache = !self.access_times.are_kept() && self.listed_from_cache.lock().insert(inode);
        let opened = Opened { handle, syncs: false, lists_from_cache };
        Ok((self.handles.insert(inode, false, opened), lists_from_cache))
    }

    /// Closes a file or a directory.
    pub(crate) fn release(&self, handle: HandleNo) -> Result<()> {
        let closed = self.handles.remove(handle).ok_or(FsError::BadHandle)?;
        if closed.lists_from_cache {
            let was_listed = self.listed_from_cache.lock().remove(&closed.inode());
            assert!(was_listed, "the handle that uses the cache has noted it");
        }
        self.forget_cut_of_closed(closed.inode());
        Ok(())
    }

    /// The kernel writes back what was written through a handle before it releases it.
    fn forget_cut_of_closed(&self, inode: InodeNo) {
        if !self.may_be_dirty(inode) {
            self.cut_files.forget(inode);
        }
    }

    /// Sets the size of a file.
    pub(crate) fn resizing<T>(
        &self,
        inode: InodeNo,
        size: u64,
        resize: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.may_be_dirty(inode) && self.fs.attributes(inode).is_ok_and(|file| size < file.size) {
            true => self.cutting(inode, resize),
            false => resize(),
        }
    }

    /// Cuts off contents of a file: noted before, so that no commit passes it over, and after, because it may have been
    /// written back in between, when there was nothing new yet.
    fn cutting<T>(&self, inode: InodeNo, cut: impl FnOnce() -> Result<T>) -> Result<T> {
        self.cut_files.note(inode);
        let done = cut();
        self.cut_files.note(inode);
        done
    }

    /// Reads until `into` is full or the file ends; with `is_cached` into the kernel's cache.
    pub(crate) fn read(
        &self,
        handle: HandleNo,
        offset: u64,
        into: &mut [u8],
        is_cached: bool,
    ) -> Result<usize> {
        let opened = self.handle(handle)?;
        if is_cached {
            self.handles.note_cached(opened.inode());
        }
        self.fs.read(&opened, offset, into)
    }

    /// Whether the kernel's cache may have contents of a file that a write past the cache, which has been done, made
    /// old.
    pub(crate) fn may_be_cached(&self, inode: InodeNo) -> bool {
        self.handles.may_be_cached(inode)
    }

    /// Writes what a program writes, or less where space runs out on the way.
    pub(crate) fn write(&self, handle: HandleNo, offset: u64, data: &[u8]) -> Result<usize> {
        self.fs.write(&*self.handle(handle)?, offset, data)
    }

    /// Writes what a program writes past the cache: all of it, because the kernel takes a part for an error of the
    /// device. Where a file would have become longer it cuts it again.
    pub(crate) fn write_whole(&self, handle: HandleNo, offset: u64, data: &[u8]) -> Result<usize> {
        let handle = self.handle(handle)?;
        let mut done = 0;
        while done < data.len() {
            done += self.fs.write(&handle, offset + done as u64, &data[done..])?;
        }
        Ok(done)
    }

    /// Takes bytes that the kernel had in its cache: all of them, because the kernel does not look at how
    /// many were taken.
    pub(crate) fn write_back(&self, handle: HandleNo, offset: u64, data: &[u8]) -> Result<usize> {
        let handle = self.handle(handle)?;
        let mut done = 0;
        while done < data.len() {
            match self.fs.write_back(&handle, offset + done as u64, &data[done..]) {
                Ok(count) => done += count,
                Err(error) => {
                    self.unstored_files.note(handle.inode());
                    if error == FsError::NoSpace {
                        self.handles.note_shortage(handle.inode());
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// The kernel need not ask: whoever sets the length of a file that found no space has heard of it, from `fsync` or
    /// `write`, or hears of it when he closes the file.
    pub(crate) fn forget_shortage(&self, inode: InodeNo) {
        self.handles.take_shortage(inode);
    }

    /// Whether the kernel has to ask before the next write to this file.
    pub(crate) fn is_short(&self, inode: InodeNo) -> bool {
        self.handles.is_short(inode)
    }

    /// Whether the kernel goes on with an old count of blocks of a file that may be written; once for each that it is told.
    pub(crate) fn blocks_are_outdated(&self, inode: InodeNo) -> bool {
        self.handles.has_writers(inode)
            && self.fs.attributes(inode).is_ok_and(|found| self.handles.take_outdated(inode, found.blocks))
    }

    /// The kernel is told so many blocks.
    pub(crate) fn note_blocks_told(&self, inode: InodeNo, blocks: u64) {
        self.handles.note_blocks_told(inode, blocks);
    }

    /// What the kernel asks before it takes a write: refused once for each time that what it wrote back found no
    /// space. Not for longer: what a program writes next may need none, and the kernel does not say what it is.
    pub(crate) fn attributes_for_write(&self, inode: InodeNo) -> Result<Attributes> {
        match self.handles.take_shortage(inode) {
            true => Err(FsError::NoSpace),
            false => self.fs.attributes(inode),
        }
    }

    pub(crate) fn fsync(&self, handle: HandleNo, data_only: bool) -> Result<()> {
        self.fs.fsync(&*self.handle(handle)?, data_only)
    }

    /// Calls `each` for every entry after `cookie` until it returns false.
    pub(crate) fn read_directory(
        &self,
        handle: HandleNo,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        self.fs.read_directory(&*self.handle(handle)?, cookie, each)
    }

    /// The same with attributes. An entry whose inode is gone by now is left out. "." and ".." have none, because
    /// the kernel does not look at them; nor has an inode that cannot be read: whoever asks for that one is told, and
    /// whoever lists the directory finds all names.
    pub(crate) fn read_directory_plus(
        &self,
        handle: HandleNo,
        mut cookie: u64,
        each: &mut dyn FnMut(&DirEntry, Option<Attributes>) -> bool,
    ) -> Result<()> {
        let handle = self.handle(handle)?;
        loop {
            let batch = self.directory_batch(&handle, cookie)?;
            let Some(last) = batch.last() else { return Ok(()) };
            cookie = last.cookie;
            for entry in &batch {
                let found = match is_dot(&entry.name) {
                    true => Ok(None),
                    false => self.fs.attributes(entry.inode).map(Some),
                };
                let attributes = match found {
                    Ok(Some(attributes)) if attributes.links == 0 => continue,
                    Err(FsError::NotFound | FsError::Stale) => continue,
                    found => found.unwrap_or_else(|error| {
                        tracing::warn!("inode {} is listed by its name alone: {error}", entry.inode.0);
                        None
                    }),
                };
                if !each(entry, attributes) {
                    return Ok(());
                }
            }
        }
    }

    pub(crate) fn allocate(&self, handle: HandleNo, mode: i32, offset: u64, length: u64) -> Result<()> {
        let mode = translate::fallocate_mode(mode).ok_or(FsError::NotSupported)?;
        self.fs.allocate(&*self.handle(handle)?, mode, offset, length)
    }

    pub(crate) fn copy_range(&self, from: (HandleNo, u64), to: (HandleNo, u64), length: u64) -> Result<u64> {
        let (source, target) = (self.handle(from.0)?, self.handle(to.0)?);
        self.fs.copy_range(&source, from.1, &target, to.1, length)
    }

    /// `SEEK_DATA` and `SEEK_HOLE`; the kernel does the others itself.
    pub(crate) fn seek(&self, handle: HandleNo, offset: i64, whence: i32) -> Result<i64> {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let handle = self.handle(handle)?;
        let offset = u64::try_from(offset).map_err(|_| FsError::NoData)?;
        let found = match whence {
            SEEK_DATA => self.fs.seek_data(&handle, offset)?,
            SEEK_HOLE => self.fs.seek_hole(&handle, offset)?,
            _ => return Err(FsError::Invalid),
        };
        i64::try_from(found).map_err(|_| FsError::TooLarge)
    }

    /// A file that ends before this place, of which the kernel may hold bytes that have not come here yet.
    pub(crate) fn shorter_before(&self, inode: InodeNo, end: u64) -> Option<Attributes> {
        let found = self.may_be_dirty(inode).then(|| self.fs.attributes(inode))?;
        found.ok().filter(|file| file.kind == fs::Kind::File && file.size < end)
    }

    /// Whether the kernel may hold bytes of this file that have not come here yet.
    pub(crate) fn may_be_dirty(&self, inode: InodeNo) -> bool {
        self.handles.has_writers(inode)
    }

    /// The file of this name, where the kernel may hold bytes of it that have not come here yet.
    pub(crate) fn dirty_file(&self, who: &Caller, parent: InodeNo, name: &[u8]) -> Option<InodeNo> {
        let inode = self.fs.lookup(who, parent, name).ok()?.inode;
        self.may_be_dirty(inode).then_some(inode)
    }

    /// Whether this is a file without any contents in zones or its record: empty, or one hole.
    pub(crate) fn has_no_blocks(&self, attributes: &Attributes) -> bool {
        attributes.kind == fs::Kind::File && attributes.blocks == 0
    }

    /// Whether a file has lost its last name, or never had one.
    pub(crate) fn has_no_name(&self, inode: InodeNo) -> bool {
        match self.fs.attributes(inode) {
            Ok(file) => file.links == 0,
            Err(error) => error == FsError::NotFound,
        }
    }

    /// All files of which the kernel may hold bytes that have not come here yet.
    pub(crate) fn files_written(&self) -> Vec<InodeNo> {
        self.handles.written()
    }

    /// Whether the kernel keeps an inode's time of modification itself, and shows what it was asked to set:
    /// that of a regular file, with the writeback cache.
    pub(crate) fn is_time_kept_by_kernel(&self, inode: InodeNo) -> bool {
        self.fs.attributes(inode).is_ok_and(|attributes| attributes.kind == fs::Kind::File)
    }

    /// Changes attributes of a file by way of a handle.
    pub(crate) fn set_attributes_through(
        &self,
        who: &Caller,
        handle: HandleNo,
        changes: &Changes,
    ) -> Result<Attributes> {
        self.fs.set_attributes_through(who, &*self.handle(handle)?, changes)
    }

    /// Takes the set-id bits away from a file whose contents somebody changes who may not keep them, and is or is not
    /// in its group. Whether there were any, so that the kernel has to learn of it.
    pub(crate) fn drop_set_id(&self, inode: InodeNo, is_in_group: impl FnOnce(u32) -> bool) -> Result<bool> {
        self.drop_set_id_if(inode, |_| true, is_in_group)
    }

    /// The same for a `chown` that names neither an owner nor a group. Only the owner and root may take bits away so,
    /// and the kernel has not looked whose the file is.
    pub(crate) fn drop_set_id_of_own(
        &self,
        user: u32,
        inode: InodeNo,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        self.drop_set_id_if(inode, |owner| user == 0 || user == owner, is_in_group)
    }

    fn drop_set_id_if(
        &self,
        inode: InodeNo,
        may: impl FnOnce(u32) -> bool,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        let attributes = self.fs.attributes(inode)?;
        if attributes.kind == fs::Kind::Directory {
            return Ok(false);
        }
        let left = translate::without_set_id(attributes.permissions, || is_in_group(attributes.gid));
        let Some(left) = left else { return Ok(false) };
        if !may(attributes.uid) {
            return Err(FsError::NotPermitted);
        }
        let changes = Changes { permissions: Some(left), ..Changes::default() };
        self.fs.set_attributes(&ourselves(), inode, &changes)?;
        Ok(true)
    }

    /// Takes set-group-id away from a file or directory, if whoever gives it an access list is not in its group.
    pub(crate) fn drop_set_group_id(
        &self,
        inode: InodeNo,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<()> {
        let Attributes { permissions, gid, .. } = self.fs.attributes(inode)?;
        if permissions & translate::SET_GROUP_ID == 0 || is_in_group(gid) {
            return Ok(());
        }
        let left = permissions & !translate::SET_GROUP_ID;
        let changes = Changes { permissions: Some(left), ..Changes::default() };
        self.fs.set_attributes(&ourselves(), inode, &changes).map(drop)
    }

    /// Whether a file has set-id bits.
    pub(crate) fn has_set_id(&self, inode: InodeNo) -> Result<bool> {
        let set_id = translate::SET_USER_ID | translate::SET_GROUP_ID;
        Ok(self.fs.attributes(inode)?.permissions & set_id != 0)
    }

    /// The kernel has this open from now on. `flags` are its own.
    fn keep(&self, handle: Handle, flags: i32) -> HandleNo {
        let (inode, writes) = (handle.inode(), handle.flags().write);
        let syncs = translate::is_synchronous(flags);
        self.handles.insert(inode, writes, Opened { handle, syncs, lists_from_cache: false })
    }

    fn handle(&self, number: HandleNo) -> Result<Arc<Opened>> {
        self.handles.get(number).ok_or(FsError::BadHandle)
    }

    /// Whether what is done through this is to be durable when it is done. Of changes that do not go through its cache
    /// the kernel asks for no `fsync`.
    pub(crate) fn syncs(&self, handle: HandleNo) -> bool {
        self.handle(handle).is_ok_and(|opened| opened.syncs)
    }

    fn directory_batch(&self, handle: &Handle, cookie: u64) -> Result<Vec<DirEntry>> {
        let mut batch = Vec::with_capacity(DIRECTORY_BATCH);
        self.fs.read_directory(handle, cookie, &mut |entry| {
            batch.push(entry);
            batch.len() < DIRECTORY_BATCH
        })?;
        Ok(batch)
    }
}

impl Drop for Server {
    /// What the kernel knew ends with the session.
    fn drop(&mut self) {
        self.fs.forget_all();
    }
}

/// The permissions in a mode of the kernel.
pub(crate) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & translate::PERMISSIONS).expect("masked to 12 bits")
}

/// Who sets or removes an extended attribute. Of an access list we look ourselves whether it is its owner, and
/// whether he is in the file's group; of everything else the kernel has decided who may.
pub(crate) fn setter_of(name: &[u8], who: Caller) -> Caller {
    Caller { checked: !fs::is_access_list(name), ..who }
}

/// Who changes what nobody asked for by name.
fn ourselves() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests;
