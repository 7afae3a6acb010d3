//! Removing names. These operations free space, so they succeed on a full volume.

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::{ORPHAN, Record, marker, number_key};
use crate::inodes::{Locked, in_order};
use crate::names::check_name;
use crate::types::{Caller, InodeNo, Kind};
use crate::volume::Fs;

impl Fs {
    /// Removes a name of anything but a directory. The inode is deleted when its last name and its last handle are
    /// gone.
    pub fn unlink(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.remove_name(caller, parent, name, false)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.remove_name(caller, parent, name, true)
    }

    fn remove_name(&self, caller: &Caller, parent: InodeNo, name: &[u8], directory: bool) -> Result<()> {
        check_name(name)?;
        self.begin()?;
        loop {
            // Without permission to search the directory, a caller must not learn whether the name exists.
            self.check_search(caller, parent)?;
            let nodes;
            let holder = self.node(parent)?;
            let mut locked = Locked::one(&holder);
            locked.directory(parent)?;
            let found = self.find(parent, name)?.ok_or(FsError::NotFound)?;
            if found.inode == parent {
                return Err(FsError::Io(format!(
                    "metadata is damaged: directory {} is an entry of itself",
                    parent.0
                )));
            }
            // Most inodes were created after their directory, so their lock comes after its lock.
            if found.inode > parent {
                nodes = vec![self.node(found.inode)?];
                locked.also(&nodes[0]);
            } else {
                drop(locked);
                nodes = in_order(vec![self.node(parent)?, self.node(found.inode)?]);
                locked = Locked::lock(&nodes);
                locked.directory(parent)?;
                if self.find(parent, name)? != Some(found) {
                    continue;
                }
            }
            let mut change = Change::reclaiming();
            self.delete_name(&mut change.tx, parent, found.cookie);
            let is_doomed = self.take_name(caller, &mut change, &locked, parent, found.inode, directory)?;
            self.commit(change, &mut locked)?;
            self.keep_if_unlinked(&locked, found.inode);
            drop(locked);
            if is_doomed {
                self.dispose(found.inode);
            }
            return Ok(());
        }
    }

    fn take_name(
        &self,
        caller: &Caller,
        change: &mut Change,
        locked: &Locked,
        parent: InodeNo,
        inode: InodeNo,
        directory: bool,
    ) -> Result<bool> {
        let mut holder = locked.directory(parent)?.clone();
        let record = locked.record(inode)?;
        self.check_remove(caller, (parent, &holder), record)?;
        match (record.kind == Kind::Directory, directory) {
            (false, true) => return Err(FsError::NotDirectory),
            (true, false) => return Err(FsError::IsDirectory),
            (true, true) if record.size > 0 => return Err(FsError::NotEmpty),
            _ => {}
        }
        holder.lose_entry(directory)?;
        holder.touch(self.clock.now());
        change.save(parent, holder);
        Ok(self.drop_name(change, locked, inode))
    }

    /// Adds to `change` that the inode loses a name. Returns true if it was the last name and the inode has no
    /// handle. Then the caller disposes of the inode after the commit.
    pub(crate) fn drop_name(&self, change: &mut Change, locked: &Locked, inode: InodeNo) -> bool {
        let record = locked.record(inode).expect("the caller has looked at it");
        let links = if record.kind == Kind::Directory { 0 } else { record.links.saturating_sub(1) };
        let is_closed = locked.is_closed(inode);
        let record = Record { links, changed: self.clock.now(), ..record.clone() };
        if is_closed && record.may_be_detached() {
            match self.keeps_unlinked(&record) {
                true => change.detach(inode, record),
                false => change.erase(inode),
            }
            return false;
        }
        if links > 0 {
            change.save(inode, record);
            return false;
        }
        // On a damaged volume a detached inode may have another name. It has no row, so it is no orphan.
        if !locked.is_detached(inode) && !rt::is_planted("break-orphan") {
            change.tx.put(self.group(inode), ORPHAN, number_key(inode), marker());
        }
        change.save(inode, record);
        is_closed
    }
}
