//! Making inodes and giving them names.

use std::sync::Arc;

use crate::change::Change;
use crate::directory::LINKS_MAX;
use crate::errno::{FsError, Result};
use crate::format::{FLAG_INLINE, FLAG_LINKABLE, ORPHAN, Record, marker, number_key};
use crate::handle::Handle;
use crate::inodes::{Locked, Node, State, in_order};
use crate::lifetime::kind_of_data;
use crate::names::check_name;
use crate::permissions::{EXECUTE, WRITE, inherited};
use crate::types::{Attributes, Caller, InodeNo, Kind, OpenFlags};
use crate::volume::Fs;

/// The longest path that the kernel takes.
const TARGET_MAX: usize = 4095;

/// What is to be made.
struct Making<'a> {
    who: &'a Caller,
    parent: InodeNo,
    kind: Kind,
    permissions: u16,
    device: u32,
    /// A symlink's target.
    content: &'a [u8],
    /// What the file's data is.
    data_kind: extent::Kind,
}

impl Fs {
    /// Makes a file, or opens the one that is there unless `exclusive`.
    ///
    /// # Errors
    /// Where there is something else: `IsDirectory`, whatever it would be opened for; `Loop` for a symbolic link,
    /// which is not followed.
    pub fn create(
        &self,
        who: &Caller,
        parent: InodeNo,
        name: &[u8],
        permissions: u16,
        flags: OpenFlags,
        exclusive: bool,
    ) -> Result<(Attributes, Handle)> {
        let data_kind = kind_of_data(parent, who.uid, name);
        let making =
            Making { who, parent, kind: Kind::File, permissions, device: 0, content: &[], data_kind };
        loop {
            match self.lookup(who, parent, name) {
                Ok(_) if exclusive => return Err(FsError::Exists),
                Ok(found) if found.kind == Kind::Directory => return Err(FsError::IsDirectory),
                Ok(found) => match self.open(who, found.inode, flags) {
                    Err(FsError::Stale) => continue,
                    handle => return Ok((self.attributes(found.inode)?, handle?)),
                },
                Err(FsError::NotFound) => {}
                Err(other) => return Err(other),
            }
            match self.make(&making, name) {
                Err(FsError::Exists) if !exclusive => {}
                made => {
                    return made.map(|(attributes, node)| (attributes, Handle::new(self, node, who, flags)));
                }
            }
        }
    }

    /// Makes a device node, FIFO, socket or empty file.
    pub fn make_node(
        &self,
        who: &Caller,
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
        if is_device && !who.checked && !who.is_root() {
            return Err(FsError::NotPermitted);
        }
        let device = if is_device { device } else { 0 };
        let data_kind = kind_of_data(parent, who.uid, name);
        self.make_named(&Making { who, parent, kind, permissions, device, content: &[], data_kind }, name)
    }

    /// Makes a directory.
    pub fn make_directory(
        &self,
        who: &Caller,
        parent: InodeNo,
        name: &[u8],
        permissions: u16,
    ) -> Result<Attributes> {
        let kind = Kind::Directory;
        let data_kind = extent::Kind::default();
        self.make_named(&Making { who, parent, kind, permissions, device: 0, content: &[], data_kind }, name)
    }

    /// Makes a symbolic link. The target is not looked at.
    pub fn symlink(&self, who: &Caller, parent: InodeNo, name: &[u8], target: &[u8]) -> Result<Attributes> {
        let record_bytes = self.store.value_max() - size_of::<crate::format::InodeHeader>();
        if target.len() > TARGET_MAX.min(record_bytes) {
            return Err(FsError::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid);
        }
        let kind = Kind::Symlink;
        let data_kind = extent::Kind::default();
        let making = Making { who, parent, kind, permissions: 0o777, device: 0, content: target, data_kind };
        self.make_named(&making, name)
    }

    /// The target of a symbolic link; of one that was deleted, as long as it is remembered.
    pub fn read_link(&self, inode: InodeNo) -> Result<Vec<u8>> {
        let node = self.node(inode)?;
        let state = node.state.read();
        let record = match &*state {
            State::Gone(Some(record)) if record.kind == Kind::Symlink => record,
            state => state.record()?,
        };
        if record.kind == Kind::Symlink { Ok(record.content.clone()) } else { Err(FsError::Invalid) }
    }

    /// Gives an inode a further name.
    pub fn link(&self, who: &Caller, inode: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Attributes> {
        check_name(name)?;
        self.with_space(|| {
            self.begin_growing()?;
            let nodes = in_order(vec![self.node(inode)?, self.node(parent)?]);
            let mut locked = Locked::lock(&nodes);
            self.link_locked(who, &mut locked, inode, parent, name)
        })
    }

    fn link_locked(
        &self,
        who: &Caller,
        locked: &mut Locked,
        inode: InodeNo,
        parent: InodeNo,
        name: &[u8],
    ) -> Result<Attributes> {
        let mut directory = locked.directory(parent)?.clone();
        let mut record = locked.record(inode)?.clone();
        self.check_access(who, parent, &directory, WRITE | EXECUTE)?;
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

    /// Makes a file without a name (`O_TMPFILE`): the last close deletes it, unless it was linked.
    pub fn temporary_file(
        &self,
        who: &Caller,
        parent: InodeNo,
        permissions: u16,
        flags: OpenFlags,
    ) -> Result<(Attributes, Handle)> {
        let data_kind = kind_of_data(parent, who.uid, b"");
        let making =
            Making { who, parent, kind: Kind::File, permissions, device: 0, content: &[], data_kind };
        self.with_space(|| {
            self.begin_growing()?;
            let inode = self.numbers.next(&self.store, self.group(parent))?;
            let (directory, child) = (self.node(parent)?, self.inodes.node(inode));
            let nodes = in_order(vec![directory, child.clone()]);
            let mut locked = Locked::lock(&nodes);
            let directory = locked.directory(parent)?;
            self.check_access(who, parent, directory, WRITE | EXECUTE)?;
            let mut change = Change::new();
            let mut record = self.new_record(&mut change, &making, directory, inode)?;
            record.links = 0;
            record.set(FLAG_LINKABLE, true);
            let attributes = self.attributes_of(inode, &record);
            change.tx.put(self.group(inode), ORPHAN, number_key(inode), marker());
            change.save(inode, record);
            self.commit(change, &mut locked)?;
            child.opened();
            drop(locked);
            Ok((attributes, Handle::new(self, child, who, flags)))
        })
    }

    fn make_named(&self, making: &Making, name: &[u8]) -> Result<Attributes> {
        let (attributes, node) = self.make(making, name)?;
        self.closed(&node);
        Ok(attributes)
    }

    /// Makes an inode with a name. It counts as opened: nobody can delete it before the caller has
    /// made a handle of it or called `closed`.
    fn make(&self, making: &Making, name: &[u8]) -> Result<(Attributes, Arc<Node>)> {
        check_name(name)?;
        self.with_space(|| {
            self.begin_growing()?;
            let directory = self.node(making.parent)?;
            self.check_can_make(making, &directory, name)?;
            let group = match making.kind {
                Kind::Directory => self.numbers.next_directory_group(),
                _ => self.group(making.parent),
            };
            let child = self.inodes.node(self.numbers.next(&self.store, group)?);
            let nodes = in_order(vec![directory, child.clone()]);
            let mut locked = Locked::lock(&nodes);
            let attributes = self.make_locked(making, name, &mut locked, child.inode)?;
            child.opened();
            Ok((attributes, child))
        })
    }

    /// The refusals that can be told without a lock, so that they use up no number.
    fn check_can_make(&self, making: &Making, directory: &Node, name: &[u8]) -> Result<()> {
        let state = directory.state.read();
        let record = crate::directory::directory_of(&state)?;
        self.check_access(making.who, making.parent, record, EXECUTE)?;
        self.free_cookie(making.parent, name)?;
        self.check_access(making.who, making.parent, record, WRITE)
    }

    fn make_locked(
        &self,
        making: &Making,
        name: &[u8],
        locked: &mut Locked,
        inode: InodeNo,
    ) -> Result<Attributes> {
        let mut directory = locked.directory(making.parent)?.clone();
        self.check_access(making.who, making.parent, &directory, WRITE | EXECUTE)?;
        let cookie = self.free_cookie(making.parent, name)?;
        let mut change = Change::new();
        let record = self.new_record(&mut change, making, &directory, inode)?;
        directory.gain_entry(making.kind == Kind::Directory)?;
        directory.touch(record.born);
        self.put_name(&mut change.tx, making.parent, cookie, name, inode, making.kind);
        let attributes = self.attributes_of(inode, &record);
        change.save(inode, record);
        change.save(making.parent, directory);
        self.commit(change, locked)?;
        Ok(attributes)
    }

    /// The record of what is made, with the rows of the lists that it begins with.
    fn new_record(
        &self,
        change: &mut Change,
        making: &Making,
        directory: &Record,
        inode: InodeNo,
    ) -> Result<Record> {
        let within = (making.parent, directory);
        let (permissions, lists) =
            self.permissions_made(making.who, within, making.kind, making.permissions & 0o7777)?;
        let mut record = self.record_with(making, directory, permissions);
        self.put_lists(change, inode, &mut record, &lists);
        Ok(record)
    }

    fn record_with(&self, making: &Making, directory: &Record, permissions: u16) -> Record {
        let (gid, permissions) = inherited(making.who, directory, making.kind, permissions);
        Record {
            kind: making.kind,
            permissions: if making.kind == Kind::Symlink { 0o777 } else { permissions },
            flags: if making.kind == Kind::File { FLAG_INLINE } else { 0 },
            links: if making.kind == Kind::Directory { 2 } else { 1 },
            uid: making.who.uid,
            gid,
            device: making.device,
            generation: self.generation,
            size: making.content.len() as u64,
            parent: if making.kind == Kind::Directory { making.parent } else { InodeNo(0) },
            lifetime: directory.lifetime,
            data_kind: making.data_kind,
            content: making.content.to_vec(),
            ..Record::empty(self.clock.now())
        }
    }

    /// A whiteout in `directory`: the record only; the caller gives it the name.
    pub(crate) fn whiteout_record(&self, who: &Caller, parent: InodeNo, directory: &Record) -> Record {
        let kind = Kind::CharDevice;
        let data_kind = extent::Kind::default();
        let making = Making { who, parent, kind, permissions: 0, device: 0, content: &[], data_kind };
        self.record_with(&making, directory, making.permissions)
    }
}
