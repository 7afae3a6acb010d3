//! Repair: what is a function of something else is set to what it must be, and what no name leads to gets one.
//!
//! Nothing that anybody could read is removed: an entry goes when the inode that it names does not exist, an
//! orphan, an intent or an attribute when its inode does not. An inode without a name, of which nobody knows
//! that it was deleted, gets one in `lost+found`. Where it is not known which of two things is right (damaged
//! rows, blocks with two owners, data without an inode, directories that are only in each other), nothing is
//! done. Nothing at all is done while a page of metadata cannot be read: what is missing would be taken for
//! what does not exist.
//!
//! Works on the rows below the inodes in memory, one transaction for each thing: a crash leaves a repair half
//! done and nothing worse. Afterwards the volume is mounted anew, and repaired again until nothing is left
//! that can be: one repair may show the next. So only what has changed a row counts as repaired: a finding
//! about a row that lies in a wrong group would otherwise be repaired for ever.

use rt::Timestamp;
use tree::{Table, Tx};

use crate::check::{Finding, NameFinding};
use crate::errno::Result;
use crate::format::{
    COUNTER, DIRENT, Dirent, FLAG_SHIFTING, FLAG_TRUNCATING, INODE, INTENT, ORPHAN, Record, XATTR,
    counter_key, decode_dirent_key, dirent_key, encode_counter, inode_key, marker, number_key,
};
use crate::names::{Slot, first_cookie};
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// What became of the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was put right.
    pub repaired: Vec<Finding>,
    /// What was left as it is.
    pub left: Vec<Finding>,
}

impl Fs {
    /// Checks, and repairs what can be. Nobody else may use the volume; it is of no use afterwards but to be
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
        for finding in found {
            let is_repaired = match &finding {
                Finding::Store(_) => false,
                Finding::Extents(_) => counts_are_safe && self.extents.repair_counts()?,
                Finding::Names(wrong) => self.repair_name(wrong)?,
            };
            let list = if is_repaired { &mut done.repaired } else { &mut done.left };
            list.push(finding);
        }
        self.sync()?;
        Ok(done)
    }

    fn repair_name(&self, wrong: &NameFinding) -> Result<bool> {
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
                // One that two directories name is in the one that it says.
                let is_there = self.names_in(*stored, *inode)?;
                Ok(!is_there && self.change_row(*inode, |record| record.parent = *found)?)
            }
            OrphanWithoutInode { inode } | OrphanWithName { inode } => self.remove(ORPHAN, *inode),
            IntentWithoutCause { inode } => self.remove(INTENT, *inode),
            CauseWithoutIntent { inode } => self.repair_intent(*inode),
            NumberBeyondRange { inode } => self.repair_range(*inode),
            NoInode { parent, name, inode } | WrongKind { parent, name, inode } => {
                self.repair_entry(*parent, name, *inode)
            }
            WrongHash { parent, name } => self.repair_hash(*parent, name),
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

    /// Whether a directory has an entry of this inode.
    fn names_in(&self, directory: InodeNo, inode: InodeNo) -> Result<bool> {
        let (from, to) = (dirent_key(directory, 0), dirent_key(directory, u64::MAX));
        let rows = self.store.range(self.group(directory), DIRENT, &from, &to, usize::MAX)?;
        let names = |value: &[u8]| Dirent::decode(value).is_ok_and(|entry| entry.inode == inode);
        Ok(rows.iter().any(|(_, value)| names(value)))
    }

    /// Whether there is a record of it that means nothing: then nobody knows what belongs to it.
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

    /// The truncation goes on where nobody knew that it had to. A move of which nobody knows the range cannot.
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

    /// Numbers up to this one count as handed out.
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

    /// An entry whose inode does not exist goes; one that says a wrong kind gets the inode's.
    fn repair_entry(&self, parent: InodeNo, name: &str, inode: InodeNo) -> Result<bool> {
        let Some(found) = self.find(parent, name.as_bytes())?.filter(|found| found.inode == inode) else {
            return Ok(false);
        };
        let row = self.store.get(self.group(inode), INODE, &inode_key(inode))?;
        let mut tx = Tx::reclaiming();
        match row.as_deref().map(Record::decode) {
            None => self.delete_name(&mut tx, parent, found.cookie),
            Some(Ok(record)) if record.kind == found.kind => return Ok(false),
            Some(Ok(record)) => {
                self.put_name(&mut tx, parent, found.cookie, name.as_bytes(), inode, record.kind);
            }
            // Its record is damaged, and the name all that is left of it.
            Some(Err(_)) => return Ok(false),
        }
        self.store.commit(tx)?;
        Ok(true)
    }

    /// An entry is put where its name's hash says, if that name is not there.
    fn repair_hash(&self, parent: InodeNo, name: &str) -> Result<bool> {
        let Slot::Free(cookie) = self.slot(parent, name.as_bytes())? else { return Ok(false) };
        let (from, to) = (dirent_key(parent, 0), dirent_key(parent, u64::MAX));
        let right = first_cookie(&self.store.info().secret, name.as_bytes());
        let rows = self.store.range(self.group(parent), DIRENT, &from, &to, usize::MAX)?;
        for (key, value) in rows {
            let (Ok((_, at)), Ok(entry)) = (decode_dirent_key(&key), Dirent::decode(&value)) else {
                continue;
            };
            if entry.name == name.as_bytes() && at & !0xff != right {
                let mut tx = Tx::reclaiming();
                self.delete_name(&mut tx, parent, at);
                self.put_name(&mut tx, parent, cookie, entry.name, entry.inode, entry.kind);
                self.store.commit(tx)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A name in `lost+found`.
    fn give_name(&self, inode: InodeNo) -> Result<bool> {
        let Some(place) = self.lost_and_found()? else { return Ok(false) };
        let (Some(mut record), Some(mut above)) = (self.stored(inode)?, self.stored(place)?) else {
            return Ok(false);
        };
        let name = format!("inode-{}", inode.0).into_bytes();
        let Slot::Free(cookie) = self.slot(place, &name)? else { return Ok(false) };
        let mut tx = Tx::reclaiming();
        self.put_name(&mut tx, place, cookie, &name, inode, record.kind);
        above.size += 1;
        if record.kind == Kind::Directory {
            above.links += 1;
            record.parent = place;
        } else {
            record.links = 1;
        }
        tx.put(self.group(inode), INODE, inode_key(inode), record.encode());
        tx.put(self.group(place), INODE, inode_key(place), above.encode());
        self.store.commit(tx)?;
        Ok(true)
    }

    /// The directory for what has no name; none when something else has its name.
    fn lost_and_found(&self) -> Result<Option<InodeNo>> {
        let root = InodeNo::ROOT;
        let cookie = match self.slot(root, LOST_AND_FOUND)? {
            Slot::Taken(found) => return Ok((found.kind == Kind::Directory).then_some(found.inode)),
            Slot::Free(cookie) => cookie,
        };
        let Some(mut above) = self.stored(root)? else { return Ok(None) };
        let inode = self.numbers.next(&self.store, self.numbers.next_directory_group())?;
        let now: Timestamp = self.clock.now();
        let record = Record {
            kind: Kind::Directory,
            permissions: 0o700,
            links: 2,
            parent: root,
            ..Record::empty(now)
        };
        above.size += 1;
        above.links += 1;
        let mut tx = Tx::reclaiming();
        self.put_name(&mut tx, root, cookie, LOST_AND_FOUND, inode, Kind::Directory);
        tx.put(self.group(inode), INODE, inode_key(inode), record.encode());
        tx.put(self.group(root), INODE, inode_key(root), above.encode());
        self.store.commit(tx)?;
        Ok(Some(inode))
    }

    /// Attributes of what does not exist.
    fn remove_attributes(&self, inode: InodeNo) -> Result<bool> {
        if self.store.get(self.group(inode), INODE, &inode_key(inode))?.is_some() {
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
