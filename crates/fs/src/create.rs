//! Creating inodes and giving them names.

use std::sync::Arc;

use crate::change::Change;
use crate::directory::LINKS_MAX;
use crate::errno::{FsError, Result};
use crate::format::{FLAG_INLINE, FLAG_LINKABLE, ORPHAN, Record, marker, number_key};
use crate::handle::Handle;
use crate::inodes::{Locked, Node, State, in_order};
use crate::lifetime::file_class_of;
use crate::names::check_name;
use crate::permissions::{EXECUTE, WRITE, inherited};
use crate::types::{Attributes, Caller, InodeNo, Kind, OpenFlags};
use crate::volume::Fs;

/// The longest path that the kernel accepts.
const TARGET_MAX: usize = 4095;

/// The properties of an inode that is created.
struct NewInode<'a> {
    caller: &'a Caller,
    parent: InodeNo,
    kind: Kind,
    permissions: u16,
    device: u32,
    /// The target of a symbolic link.
    content: &'a [u8],
    /// The file class of its data.
    file_class: extent::FileClass,
}

impl Fs {
    /// Creates a file, or opens an existing one unless `exclusive`.
    ///
    /// # Errors
    /// If something other than a regular file exists: `IsDirectory`, whatever the flags; `Loop` for a symbolic link,
    /// which is not followed.
    pub fn create(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        permissions: u16,
        flags: OpenFlags,
        exclusive: bool,
    ) -> Result<(Attributes, Handle)> {
        let file_class = file_class_of(parent, caller.uid, name);
        let new =
            NewInode { caller, parent, kind: Kind::File, permissions, device: 0, content: &[], file_class };
        loop {
            match self.lookup(caller, parent, name) {
                Ok(_) if exclusive => return Err(FsError::Exists),
                Ok(found) if found.kind == Kind::Directory => return Err(FsError::IsDirectory),
                Ok(found) => match self.open(caller, found.inode, flags) {
                    Err(FsError::Stale) => continue,
                    handle => return Ok((self.attributes(found.inode)?, handle?)),
                },
                Err(FsError::NotFound) => {}
                Err(other) => return Err(other),
            }
            match self.make(&new, name) {
                Err(FsError::Exists) if !exclusive => {}
                made => {
                    return made
                        .map(|(attributes, node)| (attributes, Handle::new(self, node, caller, flags)));
                }
            }
        }
    }

    /// Creates a device node, FIFO, socket or empty file.
    pub fn make_node(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        kind: Kind,
        permissions: u16,
        device: u32,
    ) -> Result<Attributes> {
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        if matches!(kind, Kind::Directory | Kind::Symlink) {
            return Err(FsError::Invalid);
        }
        if is_device && !caller.checked && !caller.is_root() {
            return Err(FsError::NotPermitted);
        }
        let device = if is_device { device } else { 0 };
        let file_class = file_class_of(parent, caller.uid, name);
        self.make_named(
            &NewInode { caller, parent, kind, permissions, device, content: &[], file_class },
            name,
        )
    }

    /// Creates a directory.
    pub fn make_directory(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        permissions: u16,
    ) -> Result<Attributes> {
        let kind = Kind::Directory;
        let file_class = extent::FileClass::default();
        self.make_named(
            &NewInode { caller, parent, kind, permissions, device: 0, content: &[], file_class },
            name,
        )
    }

    /// Creates a symbolic link. The target is not examined.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes> {
        let record_bytes = self.store.value_max() - size_of::<crate::format::InodeHeader>();
        if target.len() > TARGET_MAX.min(record_bytes) {
            return Err(FsError::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid);
        }
        let kind = Kind::Symlink;
        let file_class = extent::FileClass::default();
        let new =
            NewInode { caller, parent, kind, permissions: 0o777, device: 0, content: target, file_class };
        self.make_named(&new, name)
    }

    /// The target of a symbolic link. Also of a deleted one, as long as its record is in memory.
    pub fn read_link(&self, inode: InodeNo) -> Result<Vec<u8>> {
        let node = self.node(inode)?;
        let state = node.state.read();
        let record = match &*state {
            State::Gone(Some(record)) if record.kind == Kind::Symlink => record,
            state => state.record()?,
        };
        if record.kind == Kind::Symlink { Ok(record.content.clone()) } else { Err(FsError::Invalid) }
    }

    /// Gives an inode another name.
    pub fn link(&self, caller: &Caller, inode: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Attributes> {
        check_name(name)?;
        self.with_space(|| {
            self.begin_growing()?;
            let named = self.node(inode)?;
            if !rt::is_planted("break-delayed-lock") {
                self.settle(&named)?;
            }
            let nodes = in_order(vec![named, self.node(parent)?]);
            let mut locked = self.lock(&nodes);
            self.link_locked(caller, &mut locked, inode, parent, name)
        })
    }

    fn link_locked(
        &self,
        caller: &Caller,
        locked: &mut Locked,
        inode: InodeNo,
        parent: InodeNo,
        name: &[u8],
    ) -> Result<Attributes> {
        let mut directory = locked.directory(parent)?.clone();
        let mut record = locked.record(inode)?.clone();
        self.check_access(caller, parent, &directory, WRITE | EXECUTE)?;
        let cookie = self.free_cookie(parent, name)?;
        if record.kind == Kind::Directory {
            return Err(FsError::NotPermitted);
        }
        if record.links >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let mut change = Change::new();
        if record.links == 0 {
            // The last close has begun to delete it.
            if !record.has(FLAG_LINKABLE) || locked.is_closed(inode) {
                return Err(FsError::NotFound);
            }
            record.set(FLAG_LINKABLE, false);
            change.tx.delete(self.group(inode), ORPHAN, number_key(inode));
        }
        let now = self.clock.now();
        record.links += 1;
        record.changed = now;
        directory.gain_entry(false)?;
        directory.touch(now);
        self.put_name(&mut change.tx, parent, cookie, name, inode, record.kind);
        let attributes = self.attributes_of(inode, &record);
        change.save(inode, record);
        change.save(parent, directory);
        self.commit(change, locked)?;
        Ok(attributes)
    }

    /// Creates a file without a name (`O_TMPFILE`). The last close deletes it unless it was linked.
    pub fn temporary_file(
        &self,
        caller: &Caller,
        parent: InodeNo,
        permissions: u16,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle)> {
        let file_class = file_class_of(parent, caller.uid, b"");
        let new =
            NewInode { caller, parent, kind: Kind::File, permissions, device: 0, content: &[], file_class };
        self.with_space(|| {
            self.begin_growing()?;
            let inode = self.numbers.next(&self.store, self.group(parent))?;
            let (directory, child) = (self.node(parent)?, self.inodes.node(inode));
            let nodes = in_order(vec![directory, child.clone()]);
            let mut locked = self.lock(&nodes);
            let directory = locked.directory(parent)?;
            self.check_access(caller, parent, directory, WRITE | EXECUTE)?;
            let mut change = Change::new();
            let mut record = self.new_record(&mut change, &new, directory, inode)?;
            record.links = 0;
            record.set(FLAG_LINKABLE, true);
            let attributes = self.attributes_of(inode, &record);
            change.tx.put(self.group(inode), ORPHAN, number_key(inode), marker());
            change.save(inode, record);
            self.commit(change, &mut locked)?;
            child.opened();
            drop(locked);
            Ok((attributes, Handle::new(self, child, caller, flags)))
        })
    }

    fn make_named(&self, new: &NewInode, name: &[u8]) -> Result<Attributes> {
        let (attributes, node) = self.make(new, name)?;
        self.closed(&node);
        Ok(attributes)
    }

    /// Creates an inode with a name. It counts as opened and cannot be deleted until the caller has made a handle of
    /// it or called `closed`.
    fn make(&self, new: &NewInode, name: &[u8]) -> Result<(Attributes, Arc<Node>)> {
        check_name(name)?;
        self.with_space(|| {
            self.begin_growing()?;
            let directory = self.node(new.parent)?;
            self.check_can_make(new, &directory, name)?;
            let group = match new.kind {
                Kind::Directory => self.numbers.next_directory_group(),
                _ => self.group(new.parent),
            };
            let child = self.inodes.node(self.numbers.next(&self.store, group)?);
            let nodes = in_order(vec![directory, child.clone()]);
            let mut locked = self.lock(&nodes);
            let attributes = self.make_locked(new, name, &mut locked, child.inode)?;
            child.opened();
            Ok((attributes, child))
        })
    }

    /// Checks that need no lock. They come before a number is allocated, so that refusals use up none.
    fn check_can_make(&self, new: &NewInode, directory: &Node, name: &[u8]) -> Result<()> {
        let state = directory.state.read();
        let record = crate::directory::directory_of(&state)?;
        self.check_access(new.caller, new.parent, record, EXECUTE)?;
        self.free_cookie(new.parent, name)?;
        self.check_access(new.caller, new.parent, record, WRITE)
    }

    fn make_locked(
        &self,
        new: &NewInode,
        name: &[u8],
        locked: &mut Locked,
        inode: InodeNo,
    ) -> Result<Attributes> {
        let mut directory = locked.directory(new.parent)?.clone();
        self.check_access(new.caller, new.parent, &directory, WRITE | EXECUTE)?;
        let cookie = self.free_cookie(new.parent, name)?;
        let mut change = Change::new();
        let record = self.new_record(&mut change, new, &directory, inode)?;
        directory.gain_entry(new.kind == Kind::Directory)?;
        directory.touch(record.born);
        self.put_name(&mut change.tx, new.parent, cookie, name, inode, new.kind);
        let attributes = self.attributes_of(inode, &record);
        change.save(inode, record);
        change.save(new.parent, directory);
        self.commit(change, locked)?;
        Ok(attributes)
    }

    /// The record of a new inode. Adds the rows of its initial access lists to the change.
    fn new_record(
        &self,
        change: &mut Change,
        new: &NewInode,
        directory: &Record,
        inode: InodeNo,
    ) -> Result<Record> {
        let within = (new.parent, directory);
        let (permissions, lists) =
            self.permissions_made(new.caller, within, new.kind, new.permissions & 0o7777)?;
        let mut record = self.record_with(new, directory, permissions);
        self.put_lists(change, inode, &mut record, &lists);
        Ok(record)
    }

    fn record_with(&self, new: &NewInode, directory: &Record, permissions: u16) -> Record {
        let (gid, permissions) = inherited(new.caller, directory, new.kind, permissions);
        Record {
            kind: new.kind,
            permissions: if new.kind == Kind::Symlink { 0o777 } else { permissions },
            flags: if new.kind == Kind::File { FLAG_INLINE } else { 0 },
            links: if new.kind == Kind::Directory { 2 } else { 1 },
            uid: new.caller.uid,
            gid,
            device: new.device,
            generation: self.generation,
            size: new.content.len() as u64,
            parent: if new.kind == Kind::Directory { new.parent } else { InodeNo(0) },
            lifetime: directory.lifetime,
            file_class: new.file_class,
            content: new.content.to_vec(),
            ..Record::empty(self.clock.now())
        }
    }

    /// The record of a whiteout in `directory`. The caller gives it a name.
    pub(crate) fn whiteout_record(&self, caller: &Caller, parent: InodeNo, directory: &Record) -> Record {
        let kind = Kind::CharDevice;
        let file_class = extent::FileClass::default();
        let new = NewInode { caller, parent, kind, permissions: 0, device: 0, content: &[], file_class };
        self.record_with(&new, directory, new.permissions)
    }
}
