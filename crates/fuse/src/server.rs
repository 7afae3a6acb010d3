//! The meaning of each kernel operation for the file system.
//!
//! Methods take plain values and do not depend on the transport, so another transport can use them as they are.
//!
//! **Set-id bits.** With `FUSE_HANDLE_KILLPRIV_V2` the kernel leaves it to us to drop the set-user-id and
//! set-group-id bits (if the kernel did it, each `write` would cost a `getxattr`). The file system drops them
//! according to the caller that changes the owner or truncates, or that has opened the file. Changes of contents are
//! handled here, because the program that writes need not be the one that opened the file ([`Server::drop_set_id`]).
//!
//! **Full volumes.** The kernel accepts bytes into its cache without asking whether there is space for them. If some
//! find none, the kernel has `fsync` and `close` report it, but a program that only writes would never learn it. So
//! the next write is refused, once for each time: the kernel asks for attributes before it accepts a write, if it has
//! been told to drop its cached ones, and it asks through the file that is being written, which `stat` does not
//! ([`Server::attributes_for_write`]).
//!
//! **Counts of blocks.** The kernel does not count blocks. It keeps a count of ours until a copy of the file's
//! descriptor is closed. So the count that it gets of a file that is being written is never 0, and it has to ask
//! again when a write-back or a sync has made that count wrong by more than a little.

use std::ops::Deref;
use std::sync::Arc;

use fs::{Attributes, Caller, Changes, DirEntry, Fs, FsError, Handle, InodeNo, Result};

use crate::atime::AccessTimes;
use crate::handles::{HandleNo, Handles};
use crate::listings::Listings;
use crate::marked_files::MarkedFiles;
use crate::translate;
use crate::uncached::References;

/// How many directory entries are read before their attributes are read.
const DIRECTORY_BATCH: usize = 128;

/// A mounted volume as the kernel sees it.
pub(crate) struct Server {
    fs: Arc<Fs>,
    handles: Handles<Opened>,
    access_times: AccessTimes,
    cut_files: MarkedFiles,
    unstored_files: MarkedFiles,
    listings: Arc<Listings>,
    /// Of an uncached mount.
    references: Option<Arc<References>>,
}

/// A file that the kernel has open. It opens directories without a request.
struct Opened {
    handle: Handle,
    /// Whether changes through it must be durable when they are done (`O_SYNC`, `O_DSYNC`). The file system's handle
    /// does not have this flag: for writes through the kernel's cache, the kernel sends an `fsync`.
    syncs: bool,
}

impl Deref for Opened {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Server {
    pub(crate) fn new(fs: Arc<Fs>, access_times: AccessTimes, uncached: bool) -> Self {
        Server {
            fs,
            handles: Handles::new(),
            access_times,
            cut_files: MarkedFiles::default(),
            unstored_files: MarkedFiles::default(),
            listings: Arc::new(Listings::new()),
            references: uncached.then(|| Arc::new(References::new())),
        }
    }

    /// Whether the kernel caches nothing of this mount.
    pub(crate) fn is_uncached(&self) -> bool {
        self.references.is_some()
    }

    /// The inodes that the kernel of an uncached mount references.
    pub(crate) fn references(&self) -> Option<&Arc<References>> {
        self.references.as_ref()
    }

    /// The kernel sends FORGET: from now on inodes without a name exist until then.
    pub(crate) fn keep_unlinked(&self) {
        match &self.references {
            None => self.fs.keep_unlinked(),
            Some(references) => {
                let references = Arc::clone(references);
                self.fs.keep_unlinked_and_report(Arc::new(move |inode| references.note_unlinked(inode)));
            }
        }
    }

    /// The kernel drops `lookups` of its references to an inode.
    pub(crate) fn forget(&self, inode: InodeNo, lookups: u64) {
        self.unstored_files.forget(inode);
        let is_listed = self.listings.forget(inode, lookups);
        let is_known =
            self.references.as_ref().map_or(is_listed, |references| references.forget(inode, lookups));
        if !is_known {
            self.fs.forget(inode);
        }
    }

    /// For operations that mean the same to the file system as to the kernel.
    pub(crate) fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Looks a name up. With `.` the kernel asks for an inode of any kind that it has forgotten and that a file
    /// handle names (`open_by_handle_at`, NFS). With `..` it asks for the parent directory.
    pub(crate) fn lookup(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<Attributes> {
        if name != b"." {
            return self.fs.lookup(caller, parent, name);
        }
        let attributes = self.fs.attributes(parent)?;
        if attributes.links > 0 { Ok(attributes) } else { Err(FsError::Stale) }
    }

    /// Files whose dirty pages the next commit depends on.
    pub(crate) fn cut_files(&self) -> &MarkedFiles {
        &self.cut_files
    }

    /// Files that the kernel shows with data that was not stored.
    pub(crate) fn unstored_files(&self) -> &MarkedFiles {
        &self.unstored_files
    }

    /// Whether the kernel can be made to drop the data of this file that was not stored.
    pub(crate) fn can_be_evicted(&self, inode: InodeNo) -> bool {
        self.unstored_files.contains(inode) && !self.may_be_dirty(inode)
    }

    pub(crate) fn access_times(&self) -> &AccessTimes {
        &self.access_times
    }

    /// Updates the access time after a read. If that fails, the read succeeds nevertheless.
    pub(crate) fn update_atime(&self, inode: InodeNo) {
        if self.access_times.are_enabled()
            && let Err(error) = self.fs.update_atime(inode)
        {
            tracing::debug!("the access time of inode {} cannot be set: {error}", inode.0);
        }
    }

    pub(crate) fn create(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        permissions: u16,
        flags: i32,
    ) -> Result<(Attributes, HandleNo)> {
        let opened = translate::open_flags(flags);
        let exclusive = translate::is_exclusive(flags);
        let create = |fs: &Fs| fs.create(caller, parent, name, permissions, opened, exclusive);
        let (attributes, handle) = self.changing(&[parent], create)?;
        Ok((attributes, self.insert(handle, flags)))
    }

    /// Creates a file without a name. It exists until it is closed, unless it gets a name.
    pub(crate) fn temporary_file(
        &self,
        caller: &Caller,
        parent: InodeNo,
        permissions: u16,
        flags: i32,
    ) -> Result<(Attributes, HandleNo)> {
        let opened = translate::open_flags(flags);
        let (attributes, handle) = self.fs.temporary_file(caller, parent, permissions, opened)?;
        Ok((attributes, self.insert(handle, flags)))
    }

    /// Creates the kinds of inodes that `mknod` creates: all but directories and symbolic links.
    pub(crate) fn make_node(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Attributes> {
        let kind = translate::kind_of_mode(mode).ok_or(FsError::Invalid)?;
        self.changing(&[parent], |fs| fs.make_node(caller, parent, name, kind, permissions(mode), device))
    }

    pub(crate) fn open(&self, caller: &Caller, inode: InodeNo, flags: i32) -> Result<HandleNo> {
        let opened = translate::open_flags(flags);
        let open = || self.fs.open(caller, inode, opened).map(|handle| self.insert(handle, flags));
        let cuts = opened.truncate && !self.is_uncached();
        let handle = if cuts { self.cutting(inode, open) } else { open() };
        self.forget_cut_of_closed(inode);
        handle
    }

    /// Closes a file.
    pub(crate) fn release(&self, handle: HandleNo) -> Result<()> {
        let closed = self.handles.remove(handle).ok_or(FsError::BadHandle)?;
        self.forget_cut_of_closed(closed.inode());
        Ok(())
    }

    /// When no handle may write any more, the kernel has written everything back, because it does so before a
    /// release.
    fn forget_cut_of_closed(&self, inode: InodeNo) {
        if !self.may_be_dirty(inode) {
            self.cut_files.forget(inode);
        }
    }

    /// Sets the size of a file by calling `resize`.
    pub(crate) fn resizing<T>(
        &self,
        inode: InodeNo,
        size: u64,
        resize: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.may_be_dirty(inode)
            && self.fs.attributes_but_blocks(inode).is_ok_and(|file| size < file.size)
        {
            true => self.cutting(inode, resize),
            false => resize(),
        }
    }

    /// Cuts a file by calling `cut`. The file is marked before, so that no commit misses it, and again after, because
    /// it may have been written back in between without the new contents.
    fn cutting<T>(&self, inode: InodeNo, cut: impl FnOnce() -> Result<T>) -> Result<T> {
        self.cut_files.mark(inode);
        let done = cut();
        self.cut_files.mark(inode);
        done
    }

    /// Reads until `into` is full or the file ends. With `is_cached` the kernel reads into its cache.
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

    /// Whether the kernel's cache may have contents of a file that a completed direct write has made old.
    pub(crate) fn may_be_cached(&self, inode: InodeNo) -> bool {
        self.handles.may_be_cached(inode)
    }

    /// Writes the data of a program that writes through the kernel's cache. Writes less if space runs out on the way.
    pub(crate) fn write(&self, handle: HandleNo, offset: u64, data: &[u8]) -> Result<usize> {
        self.fs.write_now(&*self.handle(handle)?, offset, data)
    }

    /// Writes the data of a program at the end of the file.
    pub(crate) fn append(&self, handle: HandleNo, data: &[u8]) -> Result<usize> {
        self.fs.append(&*self.handle(handle)?, data).map(|(_, written)| written)
    }

    /// Writes the data of a direct write completely, because the kernel takes a partial write for a device error. If
    /// the file would have grown, the kernel then truncates it again. `syncs`: the caller is about to make it durable.
    pub(crate) fn write_whole(
        &self,
        handle: HandleNo,
        offset: u64,
        data: &[u8],
        syncs: bool,
    ) -> Result<usize> {
        let handle = self.handle(handle)?;
        let write = if syncs { Fs::write_now } else { Fs::write };
        let mut done = 0;
        while done < data.len() {
            done += write(&self.fs, &handle, offset + done as u64, &data[done..])?;
        }
        Ok(done)
    }

    /// Writes data back from the kernel's cache completely, because the kernel ignores how much was written.
    pub(crate) fn write_back(&self, handle: HandleNo, offset: u64, data: &[u8]) -> Result<usize> {
        let handle = self.handle(handle)?;
        let mut done = 0;
        while done < data.len() {
            match self.fs.write_back(&handle, offset + done as u64, &data[done..]) {
                Ok(count) => done += count,
                Err(error) => {
                    self.unstored_files.mark(handle.inode());
                    if error == FsError::NoSpace {
                        self.handles.note_shortage(handle.inode());
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// The kernel need not ask: a program that sets the length of a file that found no space has learnt of it from
    /// `fsync` or `write`, or learns of it when it closes the file.
    pub(crate) fn forget_shortage(&self, inode: InodeNo) {
        self.handles.take_shortage(inode);
    }

    /// Whether the kernel has to ask before the next write to this file.
    pub(crate) fn is_short(&self, inode: InodeNo) -> bool {
        self.handles.is_short(inode)
    }

    /// Whether the kernel has an outdated count of blocks of a file that may be written. Returns true once for each
    /// reported count.
    pub(crate) fn blocks_are_outdated(&self, inode: InodeNo) -> bool {
        !self.is_uncached()
            && self.handles.has_writers(inode)
            && self.fs.attributes(inode).is_ok_and(|found| self.handles.take_outdated(inode, found.blocks))
    }

    /// Notes the count of blocks that is reported to the kernel.
    pub(crate) fn note_blocks_reported(&self, inode: InodeNo, blocks: u64) {
        self.handles.note_blocks_reported(inode, blocks);
    }

    /// The attributes that the kernel requests before it accepts a write. Refused once for each time that a
    /// write-back found no space. Not for longer, because the next write may need no space, and the kernel does not
    /// say which it is.
    pub(crate) fn attributes_for_write(&self, inode: InodeNo) -> Result<Attributes> {
        match self.handles.take_shortage(inode) {
            true => Err(FsError::NoSpace),
            false => self.fs.attributes(inode),
        }
    }

    pub(crate) fn fsync(&self, handle: HandleNo, data_only: bool) -> Result<()> {
        self.fs.fsync(&*self.handle(handle)?, data_only)
    }

    /// What the kernel may have collected of listings.
    pub(crate) fn listings(&self) -> &Arc<Listings> {
        &self.listings
    }

    /// Does something that can change the entries of these directories.
    pub(crate) fn changing<T>(&self, directories: &[InodeNo], change: impl FnOnce(&Fs) -> T) -> T {
        let changed = change(&self.fs);
        directories.iter().for_each(|&directory| self.listings.note_change(directory));
        if let Some(references) = &self.references {
            references.release_unlinked(&self.fs);
        }
        changed
    }

    /// Notes that the kernel learns of an inode by a lookup.
    pub(crate) fn note_lookup(&self, found: &Attributes) {
        // Of a cached mount only those that can be listed matter.
        if found.kind == fs::Kind::Directory {
            self.listings.note_lookup(found.inode);
        }
        self.note_lookup_of_file(found);
    }

    /// The same for a reply about an inode that is no directory.
    pub(crate) fn note_lookup_of_file(&self, found: &Attributes) {
        if let Some(references) = &self.references {
            references.note_lookup(found.inode);
        }
    }

    /// The same for an inode that was found by its name. Returns false, and notes nothing, if the process has removed
    /// the inode meanwhile.
    pub(crate) fn note_found(&self, found: &Attributes) -> bool {
        self.note_lookup(found);
        let is_gone = || match self.fs.attributes_but_blocks(found.inode) {
            Ok(found) => found.links == 0,
            // After another error the inode may exist.
            Err(error) => error == FsError::Stale,
        };
        if self.is_uncached() && is_gone() {
            self.forget(found.inode, 1);
            return false;
        }
        true
    }

    /// Calls `each` for every entry after `cookie` until it returns false.
    pub(crate) fn read_directory(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        self.fs.read_directory(&self.directory(directory)?, cookie, each)
    }

    /// The same with attributes. An entry whose inode is deleted by now is left out. "." and ".." have no attributes,
    /// because the kernel ignores them. An inode that cannot be read has none either: a listing shows all names, and
    /// only access to that inode fails.
    pub(crate) fn read_directory_plus(
        &self,
        directory: InodeNo,
        mut cookie: u64,
        each: &mut dyn FnMut(&DirEntry, Option<Attributes>) -> bool,
    ) -> Result<()> {
        let handle = self.directory(directory)?;
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
                        tracing::warn!("inode {} is listed without its attributes: {error}", entry.inode.0);
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

    /// `SEEK_DATA` and `SEEK_HOLE`. The kernel handles the other modes itself.
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

    /// The attributes of a file that ends before this offset and of which the kernel may have data that has not
    /// arrived here.
    pub(crate) fn shorter_before(&self, inode: InodeNo, end: u64) -> Option<Attributes> {
        let found = self.may_be_dirty(inode).then(|| self.fs.attributes_but_blocks(inode))?;
        found.ok().filter(|file| file.kind == fs::Kind::File && file.size < end)
    }

    /// Whether the kernel may have data of this file that has not arrived here.
    pub(crate) fn may_be_dirty(&self, inode: InodeNo) -> bool {
        !self.is_uncached() && self.handles.has_writers(inode)
    }

    /// The file with this name, if the kernel may have data of it that has not arrived here.
    pub(crate) fn dirty_file(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Option<InodeNo> {
        let inode = self.fs.lookup(caller, parent, name).ok()?.inode;
        self.may_be_dirty(inode).then_some(inode)
    }

    /// Whether this is a file without contents in zones or in its record: it is empty or consists of one hole.
    pub(crate) fn has_no_blocks(&self, attributes: &Attributes) -> bool {
        attributes.kind == fs::Kind::File && attributes.blocks == 0
    }

    /// Whether a file has no name.
    pub(crate) fn has_no_name(&self, inode: InodeNo) -> bool {
        match self.fs.attributes_but_blocks(inode) {
            Ok(file) => file.links == 0,
            Err(error) => error == FsError::NotFound,
        }
    }

    /// All files of which the kernel may have data that has not arrived here.
    pub(crate) fn files_written(&self) -> Vec<InodeNo> {
        self.handles.written()
    }

    /// Whether the kernel keeps the modification time of an inode itself and shows the time that was set: it does for
    /// regular files, with the writeback cache.
    pub(crate) fn kernel_keeps_time(&self, inode: InodeNo) -> bool {
        !self.is_uncached()
            && self.fs.attributes_but_blocks(inode).is_ok_and(|attributes| attributes.kind == fs::Kind::File)
    }

    /// Changes attributes of a file through a handle.
    pub(crate) fn set_attributes_through(
        &self,
        caller: &Caller,
        handle: HandleNo,
        changes: &Changes,
    ) -> Result<Attributes> {
        self.fs.set_attributes_through(caller, &*self.handle(handle)?, changes)
    }

    /// Drops the set-id bits of a file whose contents are changed by a caller that may not keep them. `is_in_group`
    /// says whether the caller is in a group. Returns whether there were any, because then the kernel must learn of
    /// it.
    pub(crate) fn drop_set_id(&self, inode: InodeNo, is_in_group: impl FnOnce(u32) -> bool) -> Result<bool> {
        self.drop_set_id_if(inode, |_| true, is_in_group)
    }

    /// The same for a `chown` that names neither an owner nor a group. Only the owner and root may drop the bits this
    /// way, and the kernel has not checked the owner.
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
        let attributes = self.fs.attributes_but_blocks(inode)?;
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

    /// Drops the set-group-id bit of an inode that gets an access list, if the caller is not in its group.
    pub(crate) fn drop_set_group_id(
        &self,
        inode: InodeNo,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<()> {
        let Attributes { permissions, gid, .. } = self.fs.attributes_but_blocks(inode)?;
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
        Ok(self.fs.attributes_but_blocks(inode)?.permissions & set_id != 0)
    }

    /// Inserts a handle that the kernel has open from now on. `flags` are the kernel's.
    fn insert(&self, handle: Handle, flags: i32) -> HandleNo {
        let (inode, writes) = (handle.inode(), handle.flags().write);
        let syncs = translate::is_synchronous(flags);
        self.handles.insert(inode, writes, Opened { handle, syncs })
    }

    fn handle(&self, number: HandleNo) -> Result<Arc<Opened>> {
        self.handles.get(number).ok_or(FsError::BadHandle)
    }

    /// Whether changes through this handle must be durable when they are done. The kernel sends no `fsync` for
    /// changes that do not go through its cache.
    pub(crate) fn syncs(&self, handle: HandleNo) -> bool {
        self.handle(handle).is_ok_and(|opened| opened.syncs)
    }

    /// The kernel has checked that the program may read it.
    fn directory(&self, directory: InodeNo) -> Result<Handle> {
        self.fs.open(&ourselves(), directory, fs::OpenFlags { read: true, ..Default::default() })
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
    /// The kernel's references end with the session.
    fn drop(&mut self) {
        self.fs.forget_all();
    }
}

/// The permissions in a mode of the kernel.
pub(crate) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & translate::PERMISSIONS).expect("masked to 12 bits")
}

/// The caller that sets or removes an extended attribute. For an access list, we check ourselves whether the caller
/// is the owner and in the file's group. For all other attributes the kernel has checked the caller.
pub(crate) fn setter_of(name: &[u8], caller: Caller) -> Caller {
    Caller { checked: !fs::is_access_list(name), ..caller }
}

/// The caller for changes that no program has requested.
fn ourselves() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests;
