//! Repair: sets derived values to what they must be, and gives a name to inodes that have none.
//!
//! Readable data is never removed. An entry is removed if nothing is left of the inode that it names. An orphan, an
//! intent or an attribute is removed if its inode does not exist. An inode without a name gets one in `lost+found`,
//! unless it is known to be deleted. If a directory has lost its record but has entries, it is recreated, because
//! only these entries lead to their files. If it is unknown which of two things is right (damaged rows, blocks with
//! two owners, data without an inode, an intent to move a range of a file without the flag for it), nothing is done.
//! Nothing at all is done while a page of metadata cannot be read, because missing rows would count as rows that do
//! not exist.
//!
//! Repair works on the rows below the inodes in memory, with one transaction for each finding. So a crash leaves a
//! partial repair and nothing worse. Afterwards the volume is mounted again and repaired again until nothing more can
//! be repaired, because one repair may reveal the next. So only a finding whose repair has changed a row counts as
//! repaired: otherwise a finding about a row in a wrong group would be repaired for ever. Directories that are only
//! in each other come last, because other damage may be the cause.

mod directories;

use std::collections::BTreeSet;

use extent::format::{EXTENT, INLINE_BLOCK};
use tree::{Table, Tx};

use crate::check::{Finding, NameFinding};
use crate::errno::{FsError, Result};
use crate::format::{
    COUNTER, DIRENT, Dirent, FLAG_SHIFTING, FLAG_TRUNCATING, INODE, INTENT, ORPHAN, Record, Shift, XATTR,
    counter_key, decode_dirent_key, dirent_key, encode_counter, inode_key, marker, number_key,
};
use crate::names::Slot;
use crate::types::{DirEntry, InodeNo, Kind};
use crate::volume::Fs;
use directories::Directories;

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The results for the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The repaired findings.
    pub repaired: Vec<Finding>,
    /// The findings that were left.
    pub left: Vec<Finding>,
}

/// One pass over the findings.
struct Pass<'a> {
    directories: Directories<'a>,
    /// The object map does not contradict itself, so counts can be derived from it.
    counts_are_safe: bool,
    /// Whether counts could be repaired, once that was tried. One repair sets all of them.
    counts: Option<bool>,
}

impl Pass<'_> {
    fn repair_counts(&mut self, fs: &Fs) -> Result<bool> {
        if let Some(repaired) = self.counts {
            return Ok(repaired);
        }
        let repaired = self.counts_are_safe && extent::repair_counts(fs.extents.maps())?;
        Ok(*self.counts.insert(repaired))
    }
}

impl Fs {
    /// Checks the volume and repairs what can be repaired. The volume must not be in use. Afterwards it can only be
    /// unmounted.
    pub fn repair(&self) -> Result<Repaired> {
        self.begin()?;
        let mut done = Repaired::default();
        let store = self.check_store()?;
        if !store.is_empty() {
            done.left = store;
            return Ok(done);
        }
        let found = self.check()?;
        let counts_are_safe = found.iter().all(|finding| match finding {
            Finding::Extents(finding) => finding.kind.is_count(),
            _ => true,
        });
        // Recreated inodes must not count as missing, so they come first.
        let comes_first =
            |finding: &Finding| matches!(finding, Finding::Names(NameFinding::NoDirectory { .. }));
        let mut is_repaired = vec![false; found.len()];
        let mut pass = Pass { directories: Directories::new(self), counts_are_safe, counts: None };
        for first in [true, false] {
            for (finding, is_repaired) in found.iter().zip(&mut is_repaired) {
                if comes_first(finding) == first {
                    *is_repaired = self.repair_one(finding, &mut pass)?;
                }
            }
        }
        for (finding, is_repaired) in found.into_iter().zip(is_repaired) {
            let list = if is_repaired { &mut done.repaired } else { &mut done.left };
            list.push(finding);
        }
        if done.repaired.is_empty() {
            self.repair_detached(&mut done)?;
        }
        self.sync()?;
        Ok(done)
    }

    fn repair_one(&self, finding: &Finding, pass: &mut Pass) -> Result<bool> {
        match finding {
            Finding::Store(_) => Ok(false),
            Finding::Extents(_) => pass.repair_counts(self),
            Finding::Names(wrong) => self.repair_name(wrong, &mut pass.directories),
        }
    }

    fn repair_name(&self, wrong: &NameFinding, directories: &mut Directories) -> Result<bool> {
        use NameFinding::*;
        match wrong {
            WrongLinks { inode, counted, .. } if *counted > 0 => {
                let Ok(links) = u32::try_from(*counted) else { return Ok(false) };
                self.change_row(*inode, |record| record.links = links)
            }
            WrongEntries { inode, counted, .. } => self.change_row(*inode, |record| record.size = *counted),
            WrongAttributes { inode, counted, .. } => {
                self.change_row(*inode, |record| record.xattrs = *counted as u32)
            }
            WrongParent { inode, stored, found } => {
                // If two directories have an entry of it, its parent is the recorded one.
                let is_there = directories.have(*stored, *inode)?;
                Ok(!is_there && self.change_row(*inode, |record| record.parent = *found)?)
            }
            OrphanWithoutInode { inode } | OrphanWithName { inode } => self.remove(ORPHAN, *inode),
            IntentWithoutCause { inode } => Ok(!self.may_be_moving(*inode)? && self.remove(INTENT, *inode)?),
            CauseWithoutIntent { inode } => self.repair_intent(*inode),
            NumberBeyondRange { inode } => self.repair_range(*inode),
            NoInode { parent, name, inode } | WrongKind { parent, name, inode } => {
                self.repair_entry(*parent, name, *inode)
            }
            NoDirectory { parent, name } => self.repair_no_directory(*parent, name),
            WrongHash { parent, name } => self.repair_hash(*parent, name, directories),
            Nameless { inode } => self.give_name(*inode),
            AttributeWithoutInode { inode } => self.remove_attributes(*inode),
            _ => Ok(false),
        }
    }

    fn stored(&self, inode: InodeNo) -> Result<Option<Record>> {
        let row = self.store.get(self.group(inode), INODE, &inode_key(inode))?;
        Ok(row.and_then(|bytes| Record::decode(&bytes).ok()))
    }

    fn change_row(&self, inode: InodeNo, change: impl FnOnce(&mut Record)) -> Result<bool> {
        let Some(stored) = self.stored(inode)? else { return Ok(false) };
        let mut record = stored.clone();
        change(&mut record);
        if record == stored {
            return Ok(false);
        }
        let mut tx = Tx::reclaiming();
        tx.put(self.group(inode), INODE, inode_key(inode), record.encode());
        self.store.commit(tx)?;
        Ok(true)
    }

    /// Whether its record cannot be decoded. Then it is unknown which rows belong to it.
    pub(crate) fn is_damaged(&self, inode: InodeNo) -> Result<bool> {
        let row = self.store.get(self.group(inode), INODE, &inode_key(inode))?;
        Ok(row.is_some_and(|bytes| Record::decode(&bytes).is_err()))
    }

    fn remove(&self, table: Table, inode: InodeNo) -> Result<bool> {
        let (group, key) = (self.group(inode), number_key(inode));
        if self.is_damaged(inode)? || self.store.get(group, table, &key)?.is_none() {
            return Ok(false);
        }
        let mut tx = Tx::reclaiming();
        tx.delete(group, table, key);
        self.store.commit(tx)?;
        Ok(true)
    }

    /// Whether a file with an intent to move a range may be half moved although its record lacks the flag. Then only
    /// the intent says where its bytes are.
    fn may_be_moving(&self, inode: InodeNo) -> Result<bool> {
        let has_blocks = self.stored(inode)?.is_some_and(|record| !record.has_no_blocks());
        let stored = self.store.get(self.group(inode), INTENT, &number_key(inode))?;
        Ok(has_blocks && stored.is_some_and(|bytes| Shift::decode(&bytes).is_ok()))
    }

    /// Continues a truncation that was not known to be unfinished. A range move with an unknown range cannot
    /// continue.
    fn repair_intent(&self, inode: InodeNo) -> Result<bool> {
        let cause = self.stored(inode)?.map(|record| record.flags & (FLAG_TRUNCATING | FLAG_SHIFTING));
        if cause != Some(FLAG_TRUNCATING) {
            return Ok(false);
        }
        let mut tx = Tx::reclaiming();
        tx.put(self.group(inode), INTENT, number_key(inode), marker());
        self.store.commit(tx)?;
        Ok(true)
    }

    /// Numbers up to this one count as used.
    fn repair_range(&self, inode: InodeNo) -> Result<bool> {
        let group = self.group(inode);
        let Some(end) = (inode.0 / u64::from(self.store.info().groups)).checked_add(1) else {
            return Ok(false);
        };
        if crate::numbers::range_end(&self.store, group)? < end {
            let mut tx = Tx::reclaiming();
            tx.put(group, COUNTER, counter_key(group.0), encode_counter(end));
            self.store.commit(tx)?;
        }
        Ok(true)
    }

    /// Whether anything is left of an inode: a record, even one that cannot be decoded, or data.
    fn is_anything_left(&self, inode: InodeNo) -> Result<bool> {
        let (group, Some(next)) = (self.group(inode), inode.0.checked_add(1)) else { return Ok(true) };
        for table in [INODE, EXTENT, INLINE_BLOCK] {
            let (from, to) = (number_key(inode), number_key(InodeNo(next)));
            if !self.store.range(group, table, &from, &to, 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The place of a name. None if a row that cannot be decoded is in the way, or if there is no place.
    fn place(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Slot>> {
        match self.slot(parent, name) {
            Err(FsError::NoSpace) => Ok(None),
            Err(FsError::Io(_)) if self.entries(parent)?.iter().any(Option::is_none) => Ok(None),
            slot => slot.map(Some),
        }
    }

    /// The entries of a directory. None for a row that cannot be decoded.
    fn entries(&self, directory: InodeNo) -> Result<Vec<Option<DirEntry>>> {
        let (from, to) = (dirent_key(directory, 0), dirent_key(directory, u64::MAX));
        let rows = self.store.range(self.group(directory), DIRENT, &from, &to, usize::MAX)?;
        let decoded = |(key, value): &tree::Entry| {
            let (_, cookie) = decode_dirent_key(key).ok()?;
            let Dirent { inode, kind, name } = Dirent::decode(value).ok()?;
            Some(DirEntry { inode, cookie, kind, name: name.to_vec() })
        };
        Ok(rows.iter().map(decoded).collect())
    }

    /// Removes an entry whose inode has nothing left. Sets the kind of an entry to the inode's.
    fn repair_entry(&self, parent: InodeNo, name: &[u8], inode: InodeNo) -> Result<bool> {
        let Some(Slot::Taken(found)) = self.place(parent, name)? else { return Ok(false) };
        if found.inode != inode {
            return Ok(false);
        }
        let mut tx = Tx::reclaiming();
        match self.stored(inode)? {
            None if self.is_anything_left(inode)? => return Ok(false),
            None => self.delete_name(&mut tx, parent, found.cookie),
            Some(record) if record.kind == found.kind => return Ok(false),
            Some(record) => self.put_name(&mut tx, parent, found.cookie, name, inode, record.kind),
        }
        self.store.commit(tx)?;
        Ok(true)
    }

    /// For an entry in an inode that is no directory: recreates the directory if there is no record. Otherwise
    /// removes the entry, and an inode without another name gets one.
    fn repair_no_directory(&self, parent: InodeNo, name: &[u8]) -> Result<bool> {
        match self.stored(parent)? {
            None => return self.make_directory_anew(parent),
            Some(record) if record.kind == Kind::Directory => return Ok(false),
            Some(_) => {}
        }
        let Some(Slot::Taken(found)) = self.place(parent, name)? else { return Ok(false) };
        if self.stored(found.inode)?.is_none() {
            return Ok(false);
        }
        let mut tx = Tx::reclaiming();
        self.delete_name(&mut tx, parent, found.cookie);
        self.store.commit(tx)?;
        Ok(true)
    }

    /// Recreates the record of a directory with entries. Owner, permissions and times are lost. The next repair finds
    /// its parent and its counts.
    fn make_directory_anew(&self, inode: InodeNo) -> Result<bool> {
        let mut is_needed = false;
        for entry in self.entries(inode)?.into_iter().flatten() {
            is_needed |= self.is_anything_left(entry.inode)?;
        }
        if !is_needed || self.is_beyond_range(inode)? {
            return Ok(false);
        }
        let mut tx = Tx::reclaiming();
        let record = self.new_directory(InodeNo::ROOT);
        tx.put(self.group(inode), INODE, inode_key(inode), record.encode());
        self.store.commit(tx)?;
        Ok(true)
    }

    fn new_directory(&self, parent: InodeNo) -> Record {
        let empty = Record::empty(self.clock.now());
        Record { kind: Kind::Directory, permissions: 0o700, links: 2, parent, ..empty }
    }

    /// Takes one directory out of each cycle of directories, and gives it another name.
    fn repair_detached(&self, done: &mut Repaired) -> Result<()> {
        let (mut directories, mut walked) = (Directories::new(self), BTreeSet::new());
        for finding in std::mem::take(&mut done.left) {
            let is_repaired = match &finding {
                Finding::Names(NameFinding::Detached { inode }) => {
                    self.break_circle(*inode, &mut directories, &mut walked)?
                }
                _ => false,
            };
            let list = if is_repaired { &mut done.repaired } else { &mut done.left };
            list.push(finding);
        }
        Ok(())
    }

    /// Goes up from a directory. If that ends in a cycle, removes the first directory of the cycle from its parent.
    /// Ends at a directory that an earlier call has visited: its cycle has been broken, or cannot be.
    fn break_circle(
        &self,
        inode: InodeNo,
        directories: &mut Directories,
        walked: &mut BTreeSet<InodeNo>,
    ) -> Result<bool> {
        let (mut above, mut way): (InodeNo, Vec<(InodeNo, InodeNo)>) = (inode, Vec::new());
        while let Some(record) = self.stored(above)?.filter(|_| above != InodeNo::ROOT) {
            if !walked.insert(above) {
                let from = way.iter().position(|(inode, _)| *inode == above);
                let circle = from.map_or(&[][..], |from| &way[from..]);
                let first = circle.iter().min_by_key(|(inode, _)| inode.0);
                return first.map_or(Ok(false), |(inode, parent)| self.take_away(*parent, *inode));
            }
            if !directories.have(record.parent, above)? {
                return Ok(false);
            }
            way.push((above, record.parent));
            above = record.parent;
        }
        Ok(false)
    }

    /// Removes the entries of an inode in a directory.
    fn take_away(&self, parent: InodeNo, inode: InodeNo) -> Result<bool> {
        let mut tx = Tx::reclaiming();
        for entry in self.entries(parent)?.into_iter().flatten().filter(|entry| entry.inode == inode) {
            self.delete_name(&mut tx, parent, entry.cookie);
        }
        self.store.commit(tx)?;
        Ok(true)
    }

    /// Moves an entry to the place of its name's hash, if the name does not exist there.
    fn repair_hash(&self, parent: InodeNo, name: &[u8], directories: &mut Directories) -> Result<bool> {
        let Some(Slot::Free(cookie)) = self.place(parent, name)? else { return Ok(false) };
        let Some(entry) = directories.misplaced(parent, name)? else { return Ok(false) };
        let mut tx = Tx::reclaiming();
        self.delete_name(&mut tx, parent, entry.cookie);
        self.put_name(&mut tx, parent, cookie, name, entry.inode, entry.kind);
        self.store.commit(tx)?;
        Ok(true)
    }

    /// Gives the inode a name in `lost+found`.
    fn give_name(&self, inode: InodeNo) -> Result<bool> {
        let Some(place) = self.lost_and_found()? else { return Ok(false) };
        let (Some(mut record), Some(mut above)) = (self.stored(inode)?, self.stored(place)?) else {
            return Ok(false);
        };
        let name = format!("inode-{}", inode.0).into_bytes();
        let Some(Slot::Free(cookie)) = self.place(place, &name)? else { return Ok(false) };
        let mut tx = Tx::reclaiming();
        self.put_name(&mut tx, place, cookie, &name, inode, record.kind);
        if above.gain_entry(record.kind == Kind::Directory).is_err() {
            return Ok(false);
        }
        if record.kind == Kind::Directory {
            record.parent = place;
        } else {
            record.links = 1;
        }
        tx.put(self.group(inode), INODE, inode_key(inode), record.encode());
        tx.put(self.group(place), INODE, inode_key(place), above.encode());
        self.store.commit(tx)?;
        Ok(true)
    }

    /// The directory for inodes without a name. None if something else has its name.
    fn lost_and_found(&self) -> Result<Option<InodeNo>> {
        let root = InodeNo::ROOT;
        let cookie = match self.place(root, LOST_AND_FOUND)? {
            Some(Slot::Taken(found)) => {
                return Ok((found.kind == Kind::Directory).then_some(found.inode));
            }
            Some(Slot::Free(cookie)) => cookie,
            None => return Ok(None),
        };
        let Some(mut above) = self.stored(root)? else { return Ok(None) };
        // A damaged counter affects one group only.
        let new = || self.numbers.next(&self.store, self.numbers.next_directory_group()).ok();
        let Some(inode) = (0..self.store.info().groups).find_map(|_| new()) else { return Ok(None) };
        let record = self.new_directory(root);
        if above.gain_entry(true).is_err() {
            return Ok(None);
        }
        let mut tx = Tx::reclaiming();
        self.put_name(&mut tx, root, cookie, LOST_AND_FOUND, inode, Kind::Directory);
        tx.put(self.group(inode), INODE, inode_key(inode), record.encode());
        tx.put(self.group(root), INODE, inode_key(root), above.encode());
        self.store.commit(tx)?;
        Ok(Some(inode))
    }

    /// Removes attributes of an inode that does not exist.
    fn remove_attributes(&self, inode: InodeNo) -> Result<bool> {
        if self.is_anything_left(inode)? {
            return Ok(false);
        }
        let Some(next) = inode.0.checked_add(1) else { return Ok(false) };
        let (from, to) = (number_key(inode), number_key(InodeNo(next)));
        let rows = self.store.range(self.group(inode), XATTR, &from, &to, usize::MAX)?;
        for some in rows.chunks(64) {
            let mut tx = Tx::reclaiming();
            some.iter().for_each(|(key, _)| tx.delete(self.group(inode), XATTR, key.clone()));
            self.store.commit(tx)?;
        }
        Ok(!rows.is_empty())
    }
}
