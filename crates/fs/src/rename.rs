//! Renaming: replace, no-replace, exchange, whiteout.
//!
//! A directory that moves into another changes who is above whom. All such moves hold one lock, so
//! that the walk which refuses to put a directory below itself sees ancestors that stay.

use std::sync::Arc;

use tree::Lsn;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::inodes::{Locked, Node, in_order};
use crate::names::{Found, Slot, check_name};
use crate::permissions::{EXECUTE, WRITE};
use crate::types::{Caller, InodeNo, Kind, RenameFlags};
use crate::volume::Fs;

/// One side: a directory and a name in it.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: InodeNo,
    name: &'a [u8],
}

/// What was asked, and what was found before the locks.
struct Renaming<'a> {
    who: &'a Caller,
    from: Place<'a>,
    to: Place<'a>,
    flags: RenameFlags,
    source: Found,
    target: Slot,
    /// The number of the whiteout to leave.
    whiteout: Option<InodeNo>,
}

impl Renaming<'_> {
    fn target_found(&self) -> Option<Found> {
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
    /// Gives what has one name another, in one step. What had the new name loses it, or gets the
    /// old one (`exchange`). Replacing succeeds on a full volume.
    pub fn rename(
        &self,
        who: &Caller,
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
        let (from, to) = (Place { parent, name }, Place { parent: new_parent, name: new_name });
        let doomed = self.with_space(|| {
            loop {
                if let Some(doomed) = self.rename_once(who, from, to, flags)? {
                    return Ok(doomed);
                }
            }
        })?;
        if let Some(doomed) = doomed {
            self.dispose(doomed);
        }
        Ok(())
    }

    /// None: what was found before the locks was not there any more under them. Otherwise done, with
    /// the inode to dispose of.
    fn rename_once(
        &self,
        who: &Caller,
        from: Place,
        to: Place,
        flags: RenameFlags,
    ) -> Result<Option<Option<InodeNo>>> {
        self.begin()?;
        self.check_search(who, from.parent)?;
        self.check_search(who, to.parent)?;
        let source = self.find(from.parent, from.name)?.ok_or(FsError::NotFound)?;
        let target = self.slot(to.parent, to.name)?;
        if matches!(target, Slot::Free(_)) || flags.whiteout {
            self.extents.admit()?;
        }
        let whiteout = match flags.whiteout {
            true => Some(self.numbers.next(&self.store, self.group(from.parent))?),
            false => None,
        };
        let renaming = Renaming { who, from, to, flags, source, target, whiteout };
        renaming.check_target()?;
        if renaming.target_found().is_some_and(|found| found.inode == source.inode) && !flags.exchange {
            return Ok(Some(None));
        }
        let _moves = renaming.moved_directories().next().map(|_| self.directory_moves.lock());
        for (directory, into) in renaming.moved_directories() {
            self.check_not_below(directory, into)?;
        }
        let nodes = self.renamed_nodes(&renaming)?;
        let mut locked = Locked::lock(&nodes);
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

    /// Refuses to put `directory` into itself or below. `directory_moves` is held.
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
        let Renaming { who, from, to, source, .. } = *renaming;
        let (old, new) = (locked.directory(from.parent)?, locked.directory(to.parent)?);
        self.check_remove(who, (from.parent, old), locked.record(source.inode)?)?;
        match renaming.target_found() {
            Some(target) => self.check_remove(who, (to.parent, new), locked.record(target.inode)?)?,
            None => self.check_access(who, to.parent, new, WRITE | EXECUTE)?,
        }
        // The entry ".." of a directory that moves is changed, so it must be writable.
        for (directory, _) in renaming.moved_directories() {
            self.check_access(who, directory, locked.record(directory)?, WRITE)?;
        }
        match renaming.target_found().filter(|_| !renaming.flags.exchange) {
            Some(target) if target.kind == Kind::Directory && locked.record(target.inode)?.size > 0 => {
                Err(FsError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    /// The source takes the new name; what had it loses it. Returns the inode to dispose of.
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
        self.leave(renaming, change, left)?;
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

    /// Takes the old name away, or leaves a whiteout there.
    fn leave(&self, renaming: &Renaming, change: &mut Change, old: &mut Record) -> Result<()> {
        let Renaming { who, from, source, .. } = *renaming;
        let Some(whiteout) = renaming.whiteout else {
            self.delete_name(&mut change.tx, from.parent, source.cookie);
            return Ok(());
        };
        old.gain_entry(false)?;
        let kind = Kind::CharDevice;
        self.put_name(&mut change.tx, from.parent, source.cookie, from.name, whiteout, kind);
        change.save(whiteout, self.whiteout_record(who, from.parent, old));
        Ok(())
    }

    /// The two names change their inodes.
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

    /// The parents with their new counts, the source with its new time and place.
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

    /// An exchanged directory has another parent.
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
    /// What can be told from the two kinds.
    fn check_target(&self) -> Result<()> {
        let Some(target) = self.target_found() else {
            return if self.flags.exchange { Err(FsError::NotFound) } else { Ok(()) };
        };
        if self.flags.no_replace {
            return Err(FsError::Exists);
        }
        let is_directory = |found: Found| found.kind == Kind::Directory;
        match (is_directory(self.source), is_directory(target)) {
            _ if self.flags.exchange => Ok(()),
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            _ => Ok(()),
        }
    }
}
