//! Attributes of inodes: reading and changing.

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::handle::Handle;
use crate::inodes::{Locked, Node, State};
use crate::permissions::{SET_GID, WRITE, check_owner, without_set_id};
use crate::types::{Attributes, Caller, Changes, InodeNo, Kind, SetTime};
use crate::volume::Fs;

impl Fs {
    /// The attributes that `stat` reports. For a deleted inode, the last ones (with no links) as long as they are in
    /// memory, and then [`FsError::Stale`].
    pub fn attributes(&self, inode: InodeNo) -> Result<Attributes> {
        let node = self.node(inode)?;
        self.settle(&node)?;
        self.present_attributes(inode, &node)
    }

    /// The same, but waits for no delayed write. The count of blocks is without them.
    pub fn attributes_but_blocks(&self, inode: InodeNo) -> Result<Attributes> {
        let node = self.node(inode)?;
        self.present_attributes(inode, &node)
    }

    fn present_attributes(&self, inode: InodeNo, node: &Node) -> Result<Attributes> {
        match &*node.state.read() {
            State::Gone(Some(record)) => Ok(self.attributes_of(inode, record)),
            state if node.delayed.any() => {
                Ok(self.with_delayed(node, self.attributes_of(inode, state.record()?)))
            }
            state => Ok(self.attributes_of(inode, state.record()?)),
        }
    }

    pub(crate) fn attributes_of(&self, inode: InodeNo, record: &Record) -> Attributes {
        Attributes {
            inode,
            kind: record.kind,
            permissions: record.permissions,
            links: record.links,
            uid: record.uid,
            gid: record.gid,
            device: record.device,
            size: record.size,
            blocks: self.sectors_of(record),
            accessed: record.accessed,
            modified: record.modified,
            changed: record.changed,
            born: record.born,
            generation: record.generation,
        }
    }

    /// Inline contents count too, because some programs take a file without blocks for one without data.
    fn sectors_of(&self, record: &Record) -> u64 {
        let blocks = record.blocks.saturating_mul(u64::from(self.extents.block_size()) / 512);
        blocks.saturating_add((record.content.len() as u64).div_ceil(512))
    }

    /// Sets the access time of an inode to now, for mounts that request access times. Reading does not set them by itself,
    /// because each would be a transaction. Does nothing on a volume that is read-only.
    pub fn update_atime(&self, inode: InodeNo) -> Result<()> {
        let _background_change = self.background_changes.read();
        if self.is_read_only() {
            return Ok(());
        }
        let node = self.node(inode)?;
        // Contents do not matter, so nothing is settled.
        let mut locked = Locked::one(&node);
        let mut record = locked.record(inode)?.clone();
        record.accessed = self.clock.now();
        let mut change = Change::reclaiming();
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        Ok(())
    }

    /// Changes attributes in one transaction.
    pub fn set_attributes(&self, caller: &Caller, inode: InodeNo, changes: &Changes) -> Result<Attributes> {
        self.change_attributes(caller, inode, changes, false)
    }

    /// The same through an open file (`ftruncate`, `fchmod` and the like). A handle that is open for writing may
    /// change the size, whatever the present permissions are.
    pub fn set_attributes_through(
        &self,
        caller: &Caller,
        handle: &Handle,
        changes: &Changes,
    ) -> Result<Attributes> {
        if changes.size.is_some() {
            handle.check_writable()?;
        }
        self.change_attributes(caller, handle.inode(), changes, true)
    }

    fn change_attributes(
        &self,
        caller: &Caller,
        inode: InodeNo,
        changes: &Changes,
        may_write: bool,
    ) -> Result<Attributes> {
        match self.change_present(caller, inode, changes, may_write) {
            Err(FsError::Stale) if changes.size.is_none() => self.change_remembered(caller, inode, changes),
            changed => changed,
        }
    }

    fn change_present(
        &self,
        caller: &Caller,
        inode: InodeNo,
        changes: &Changes,
        may_write: bool,
    ) -> Result<Attributes> {
        self.with_space(|| {
            self.begin()?;
            let node = self.node(inode)?;
            let shrinks = changes.size.is_some_and(|size| size <= size_of_file(&node));
            if !shrinks {
                self.extents.admit()?;
            }
            let mut locked = self.lock_one(&node);
            let size_before = locked.record(inode)?.size;
            let is_cut = changes.size.is_some_and(|size| size < size_before);
            self.check_changes(caller, (inode, locked.record(inode)?), changes, may_write)?;
            if let Some(size) = changes.size {
                self.prepare_resize(&mut locked, inode, size)?;
            }
            let mut record = locked.record(inode)?.clone();
            let mut change = if shrinks { Change::reclaiming() } else { Change::new() };
            let now = self.clock.now();
            record.changed = changes.changed.unwrap_or(now);
            // `truncate` to the present size does not modify the file. `ftruncate` does.
            if changes.size.is_some_and(|size| may_write || size != record.size) {
                record.modified = now;
            }
            let map = match changes.size {
                Some(size) => self.resize(&mut change, inode, &mut record, size)?,
                None => None,
            };
            apply(caller, &mut record, changes, now);
            if changes.changes_owner() && record.kind != Kind::Directory || changes.size.is_some() {
                self.drop_capabilities(&mut change, inode, &mut record)?;
            }
            let attributes = self.attributes_of(inode, &record);
            change.save(inode, record);
            let lsn = self.commit(change, &mut locked)?;
            drop(map);
            if is_cut {
                node.delayed.note_cut(lsn);
            }
            Ok(attributes)
        })
    }

    /// Changes the last attributes of a deleted inode if they are in memory. A pipe, a socket or a directory may
    /// still be in use without a handle.
    fn change_remembered(&self, caller: &Caller, inode: InodeNo, changes: &Changes) -> Result<Attributes> {
        let node = self.node(inode)?;
        let mut state = node.state.write();
        let State::Gone(Some(record)) = &mut *state else { return Err(FsError::Stale) };
        self.check_changes(caller, (inode, record), changes, false)?;
        let now = self.clock.now();
        record.changed = changes.changed.unwrap_or(now);
        apply(caller, record, changes, now);
        Ok(self.attributes_of(inode, record))
    }

    fn check_changes(
        &self,
        caller: &Caller,
        (inode, record): (InodeNo, &Record),
        changes: &Changes,
        may_write: bool,
    ) -> Result<()> {
        if changes.size.is_some() {
            match record.kind {
                Kind::File if may_write => {}
                Kind::File => self.check_access(caller, inode, record, WRITE)?,
                Kind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid),
            }
        }
        if caller.checked || caller.is_root() {
            return Ok(());
        }
        if changes.permissions.is_some() {
            check_owner(caller, record)?;
        }
        check_new_owner(caller, record, changes)?;
        // A caller with write permission may set both times to now, which is what using the file would do. Only the
        // owner may set one of them, or another time.
        match (changes.accessed, changes.modified) {
            (None, None) => Ok(()),
            (Some(SetTime::Now), Some(SetTime::Now)) => {
                check_owner(caller, record).or_else(|_| self.check_access(caller, inode, record, WRITE))
            }
            _ => check_owner(caller, record),
        }
    }
}

/// Only a hint, because nothing is locked.
fn size_of_file(node: &Node) -> u64 {
    let state = node.state.read();
    state.record().map_or(0, |record| node.delayed.lock().size(record))
}

/// The owner may change the group to another of their groups. All other changes need root.
fn check_new_owner(caller: &Caller, record: &Record, changes: &Changes) -> Result<()> {
    if !changes.changes_owner() {
        return Ok(());
    }
    check_owner(caller, record)?;
    let keeps_owner = changes.uid.is_none_or(|uid| uid == record.uid);
    let own_group = changes.gid.is_none_or(|gid| gid == record.gid || caller.in_group(gid));
    if keeps_owner && own_group { Ok(()) } else { Err(FsError::NotPermitted) }
}

fn apply(caller: &Caller, record: &mut Record, changes: &Changes, now: rt::Timestamp) {
    // For a caller that the kernel has checked, it is decided elsewhere whether a truncation drops the bits.
    if changes.changes_owner() || changes.size.is_some() && !caller.checked && !caller.is_root() {
        record.permissions = without_set_id(record);
    }
    if let Some(permissions) = changes.permissions {
        record.permissions = permissions & 0o7777;
        let foreign_group = !caller.in_group(changes.gid.unwrap_or(record.gid));
        if record.kind != Kind::Directory && foreign_group && !caller.checked && !caller.is_root() {
            record.permissions &= !SET_GID;
        }
    }
    record.uid = changes.uid.unwrap_or(record.uid);
    record.gid = changes.gid.unwrap_or(record.gid);
    let resolve = |time| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    record.accessed = changes.accessed.map_or(record.accessed, resolve);
    record.modified = changes.modified.map_or(record.modified, resolve);
}
