//! Rename: replace, no-replace, exchange, whiteout.
//!
//! Moving a directory into another one changes ancestors. All such moves hold one lock, so ancestors do not change
//! during the walk that refuses to move a directory below itself.

use std::sync::Arc;

use tree::Lsn;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::inodes::{Locked, Node, in_order};
use crate::names::{FoundEntry, Slot, check_name};
use crate::permissions::{EXECUTE, WRITE};
use crate::types::{Caller, InodeNo, Kind, RenameFlags};
use crate::volume::Fs;

/// A directory and a name in it.
#[derive(Clone, Copy)]
struct EntryPath<'a> {
    parent: InodeNo,
    name: &'a [u8],
}

/// The request, and the entries that were found before the locks were taken.
struct Renaming<'a> {
    caller: &'a Caller,
    from: EntryPath<'a>,
    to: EntryPath<'a>,
    flags: RenameFlags,
    source: FoundEntry,
    target: Slot,
    /// The inode number of the whiteout to leave.
    whiteout: Option<InodeNo>,
}

impl Renaming<'_> {
    fn target_found(&self) -> Option<FoundEntry> {
        match self.target {
            Slot::Taken(found) => Some(found),
            Slot::Free(_) => None,
        }
    }

    fn target_cookie(&self) -> u64 {
        match self.target {
            Slot::Taken(found) => found.cookie,
            Slot::Free(cookie) => cookie,
        }
    }

    fn crosses(&self) -> bool {
        self.from.parent != self.to.parent
    }

    /// Directories that get another parent.
    fn moved_directories(&self) -> impl Iterator<Item = (InodeNo, InodeNo)> {
        let exchanged = self.target_found().filter(|_| self.flags.exchange);
        let moved = [(Some(self.source), self.to.parent), (exchanged, self.from.parent)];
        let crosses = self.crosses();
        moved.into_iter().filter_map(move |(found, parent)| {
            let found = found.filter(|found| crosses && found.kind == Kind::Directory)?;
            Some((found.inode, parent))
        })
    }
}

impl Fs {
    /// Renames an entry in one transaction. An entry that had the new name is removed, or gets the old name
    /// (`exchange`). Replacing succeeds on a full volume.
    pub fn rename(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(FsError::Invalid);
        }
        let (from, to) = (EntryPath { parent, name }, EntryPath { parent: new_parent, name: new_name });
        let doomed = self.with_space(|| {
            loop {
                if let Some(doomed) = self.rename_once(caller, from, to, flags)? {
                    return Ok(doomed);
                }
            }
        })?;
        if let Some(doomed) = doomed {
            self.dispose(doomed);
        }
        Ok(())
    }

    /// None: the entries had changed before the locks were taken. Otherwise the rename is done, and the result is the
    /// inode to dispose of.
    fn rename_once(
        &self,
        caller: &Caller,
        from: EntryPath,
        to: EntryPath,
        flags: RenameFlags,
    ) -> Result<Option<Option<InodeNo>>> {
        self.begin()?;
        self.check_search(caller, from.parent)?;
        self.check_search(caller, to.parent)?;
        let source = self.find(from.parent, from.name)?.ok_or(FsError::NotFound)?;
        let target = self.slot(to.parent, to.name)?;
        if matches!(target, Slot::Free(_)) || flags.whiteout {
            self.extents.admit()?;
        }
        let whiteout = match flags.whiteout {
            true => Some(self.numbers.next(&self.store, self.group(from.parent))?),
            false => None,
        };
        let renaming = Renaming { caller, from, to, flags, source, target, whiteout };
        renaming.check_target()?;
        if renaming.target_found().is_some_and(|found| found.inode == source.inode) && !flags.exchange {
            return Ok(Some(None));
        }
        let _moves = renaming.moved_directories().next().map(|_| self.directory_moves.lock());
        for (directory, into) in renaming.moved_directories() {
            self.check_not_below(directory, into)?;
        }
        let nodes = self.renamed_nodes(&renaming)?;
        // Without its contents a file gets no other name.
        let exchanged = renaming.target_found().filter(|_| flags.exchange).map(|found| found.inode);
        let is_named = |node: &&Arc<Node>| node.inode == source.inode || Some(node.inode) == exchanged;
        if !rt::is_planted("break-delayed-lock") {
            nodes.iter().filter(is_named).try_for_each(|node| self.settle(node))?;
        }
        let mut locked = self.lock(&nodes);
        self.rename_locked(&renaming, &mut locked)
    }

    fn renamed_nodes(&self, renaming: &Renaming) -> Result<Vec<Arc<Node>>> {
        let mut nodes = vec![
            self.node(renaming.from.parent)?,
            self.node(renaming.to.parent)?,
            self.node(renaming.source.inode)?,
        ];
        if let Some(target) = renaming.target_found() {
            nodes.push(self.node(target.inode)?);
        }
        if let Some(whiteout) = renaming.whiteout {
            nodes.push(self.inodes.node(whiteout));
        }
        Ok(in_order(nodes))
    }

    /// Refuses to move `directory` into itself or below itself. The caller holds `directory_moves`.
    fn check_not_below(&self, directory: InodeNo, into: InodeNo) -> Result<()> {
        let mut above = into;
        while above != InodeNo::ROOT {
            if above == directory {
                return Err(FsError::Invalid);
            }
            let node = self.node(above)?;
            above = crate::directory::directory_of(&node.state.read())?.parent;
        }
        if directory == InodeNo::ROOT { Err(FsError::Invalid) } else { Ok(()) }
    }

    fn rename_locked(&self, renaming: &Renaming, locked: &mut Locked) -> Result<Option<Option<InodeNo>>> {
        let Renaming { from, to, source, .. } = *renaming;
        locked.directory(from.parent)?;
        locked.directory(to.parent)?;
        if self.find(from.parent, from.name)? != Some(source)
            || self.slot(to.parent, to.name)? != renaming.target
        {
            return Ok(None);
        }
        self.check_rename(renaming, locked)?;
        if renaming.flags.exchange {
            self.exchange(renaming, locked)?;
            return Ok(Some(None));
        }
        let mut change = match renaming.target {
            Slot::Taken(_) if renaming.whiteout.is_none() => Change::reclaiming(),
            _ => Change::new(),
        };
        let doomed = self.replace(renaming, locked, &mut change)?;
        self.commit(change, locked)?;
        if let Some(target) = renaming.target_found() {
            self.keep_if_unlinked(locked, target.inode);
        }
        Ok(Some(doomed))
    }

    fn check_rename(&self, renaming: &Renaming, locked: &Locked) -> Result<()> {
        let Renaming { caller, from, to, source, .. } = *renaming;
        let (old, new) = (locked.directory(from.parent)?, locked.directory(to.parent)?);
        self.check_remove(caller, (from.parent, old), locked.record(source.inode)?)?;
        match renaming.target_found() {
            Some(target) => self.check_remove(caller, (to.parent, new), locked.record(target.inode)?)?,
            None => self.check_access(caller, to.parent, new, WRITE | EXECUTE)?,
        }
        // The entry ".." of a moved directory changes, so the directory must be writable.
        for (directory, _) in renaming.moved_directories() {
            self.check_access(caller, directory, locked.record(directory)?, WRITE)?;
        }
        match renaming.target_found().filter(|_| !renaming.flags.exchange) {
            Some(target) if target.kind == Kind::Directory && locked.record(target.inode)?.size > 0 => {
                Err(FsError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    /// The source gets the new name, and the target loses it. Returns the inode to dispose of.
    fn replace(
        &self,
        renaming: &Renaming,
        locked: &mut Locked,
        change: &mut Change,
    ) -> Result<Option<InodeNo>> {
        let Renaming { from, to, source, .. } = *renaming;
        let is_directory = source.kind == Kind::Directory;
        let mut doomed = None;
        let mut old = locked.directory(from.parent)?.clone();
        old.lose_entry(is_directory)?;
        let mut new = if renaming.crosses() { locked.directory(to.parent)?.clone() } else { old.clone() };
        if let Some(target) = renaming.target_found() {
            new.lose_entry(target.kind == Kind::Directory)?;
            let is_doomed =
                !rt::is_planted("break-rename-target") && self.drop_name(change, locked, target.inode);
            doomed = is_doomed.then_some(target.inode);
        }
        new.gain_entry(is_directory)?;
        let left = if renaming.crosses() { &mut old } else { &mut new };
        self.remove_old_name(renaming, change, left)?;
        self.put_name(
            &mut change.tx,
            to.parent,
            renaming.target_cookie(),
            to.name,
            source.inode,
            source.kind,
        );
        self.save_renamed(renaming, locked, change, [old, new])?;
        Ok(doomed)
    }

    /// Removes the old name, or leaves a whiteout there.
    fn remove_old_name(&self, renaming: &Renaming, change: &mut Change, old: &mut Record) -> Result<()> {
        let Renaming { caller, from, source, .. } = *renaming;
        let Some(whiteout) = renaming.whiteout else {
            self.delete_name(&mut change.tx, from.parent, source.cookie);
            return Ok(());
        };
        old.gain_entry(false)?;
        let kind = Kind::CharDevice;
        self.put_name(&mut change.tx, from.parent, source.cookie, from.name, whiteout, kind);
        change.save(whiteout, self.whiteout_record(caller, from.parent, old));
        Ok(())
    }

    /// The two names exchange their inodes.
    fn exchange(&self, renaming: &Renaming, locked: &mut Locked) -> Result<Lsn> {
        let Renaming { from, to, source, .. } = *renaming;
        let target = renaming.target_found().expect("an exchange without a target was refused");
        let mut change = Change::new();
        self.put_name(&mut change.tx, to.parent, target.cookie, to.name, source.inode, source.kind);
        self.put_name(&mut change.tx, from.parent, source.cookie, from.name, target.inode, target.kind);
        let mut old = locked.directory(from.parent)?.clone();
        let mut new = locked.directory(to.parent)?.clone();
        if renaming.crosses() {
            old.lose_entry(source.kind == Kind::Directory)?;
            old.gain_entry(target.kind == Kind::Directory)?;
            new.lose_entry(target.kind == Kind::Directory)?;
            new.gain_entry(source.kind == Kind::Directory)?;
        }
        self.save_renamed(renaming, locked, &mut change, [old, new])?;
        if target.inode != source.inode {
            let mut record = locked.record(target.inode)?.clone();
            record.changed = self.clock.now();
            change.save(target.inode, record);
        }
        self.save_parents(renaming, locked, &mut change)?;
        self.commit(change, locked)
    }

    /// Saves the parents with their new counts, and the source with its new time and parent.
    fn save_renamed(
        &self,
        renaming: &Renaming,
        locked: &Locked,
        change: &mut Change,
        [mut old, mut new]: [Record; 2],
    ) -> Result<()> {
        let now = self.clock.now();
        old.touch(now);
        new.touch(now);
        if renaming.crosses() {
            change.save(renaming.from.parent, old);
        }
        change.save(renaming.to.parent, new);
        let mut source = locked.record(renaming.source.inode)?.clone();
        source.changed = now;
        if source.kind == Kind::Directory {
            source.parent = renaming.to.parent;
        }
        change.save(renaming.source.inode, source);
        Ok(())
    }

    /// Saves the new parents of exchanged directories.
    fn save_parents(&self, renaming: &Renaming, locked: &Locked, change: &mut Change) -> Result<()> {
        for (directory, parent) in renaming.moved_directories() {
            if rt::is_planted("break-exchange-parent") {
                continue;
            }
            let mut record = locked.record(directory)?.clone();
            record.changed = self.clock.now();
            record.parent = parent;
            change.save(directory, record);
        }
        Ok(())
    }
}

impl Renaming<'_> {
    /// The checks that need only the two kinds.
    fn check_target(&self) -> Result<()> {
        let Some(target) = self.target_found() else {
            return if self.flags.exchange { Err(FsError::NotFound) } else { Ok(()) };
        };
        if self.flags.no_replace {
            return Err(FsError::Exists);
        }
        let is_directory = |found: FoundEntry| found.kind == Kind::Directory;
        match (is_directory(self.source), is_directory(target)) {
            _ if self.flags.exchange => Ok(()),
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            _ => Ok(()),
        }
    }
}
