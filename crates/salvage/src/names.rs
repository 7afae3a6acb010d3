//! The tree of names, and beside it the inodes and data to which no name leads.
//!
//! Whatever may be wrong is reported as a [`Problem`]: rows that are uncertain, and rows that are missing. Where rows may
//! be missing, the counts in an inode's record (entries of a directory, blocks, attributes) tell for each file whether it
//! has lost any.
//!
//! Inodes without a name go to a directory of their own in the root, `lost+found`. So do the data of inodes that are lost
//! or that were made after the checkpoint. Memory: one entry for each inode.

use std::collections::{BTreeMap, BTreeSet};

use extent::format::{EXTENT, Extent, INLINE_BLOCK};
use fs::format::{
    DIRENT, Dirent, INODE, NAME_MAX, ORPHAN, Record, SHADOW, XATTR, decode_dirent_key, decode_inode_key,
};
use fs::{FsError, InodeNo, Kind, Result};
use rt::Timestamp;

use crate::items::{Item, Paths, Problem, Unsaved};
use crate::records::{Entries, Salvage};

const LOST_AND_FOUND: &str = "lost+found";
/// The number of the directory for inodes without a name.
const NAMELESS: InodeNo = InodeNo(0);

/// Receives each item, and the paths of those before it.
pub type EachItem<'a, E> = dyn FnMut(&Item, &Paths) -> std::result::Result<(), E> + 'a;

impl Salvage {
    /// Reports everything that can be saved: each directory before its entries. [`Salvage::contents`] has the bytes of a
    /// file. Returns what is wrong with names, directories and attributes.
    pub fn walk<E: From<FsError>>(
        &self,
        each: &mut EachItem<'_, E>,
    ) -> std::result::Result<(Vec<Problem>, Paths), E> {
        let (seen, problems) = (Paths::default(), Vec::new());
        let mut walk = Walk { salvage: self, seen, problems, each };
        walk.tree(InodeNo::ROOT, None, Vec::new(), None)?;
        walk.nameless()?;
        Ok((walk.problems, walk.seen))
    }
}

/// An inode to report next, and its name.
struct Pending {
    inode: InodeNo,
    parent: Option<InodeNo>,
    name: Vec<u8>,
    kind: Option<Kind>,
    /// Whether the name is certain.
    certain: bool,
}

struct Walk<'a, E> {
    salvage: &'a Salvage,
    /// Every inode that was reported.
    seen: Paths,
    problems: Vec<Problem>,
    each: &'a mut EachItem<'a, E>,
}

impl<E: From<FsError>> Walk<'_, E> {
    fn problem(&mut self, parent: Option<InodeNo>, name: &[u8], inode: InodeNo, what: Unsaved) {
        self.problems.push(Problem { path: self.seen.path_in(parent, name), inode, what });
    }

    /// Reports an inode and everything below it.
    fn tree(
        &mut self,
        inode: InodeNo,
        parent: Option<InodeNo>,
        name: Vec<u8>,
        kind: Option<Kind>,
    ) -> std::result::Result<(), E> {
        let mut left = vec![Pending { inode, parent, name, kind, certain: true }];
        while let Some(next) = left.pop() {
            let Some(item) = self.item(next)? else { continue };
            (self.each)(&item, &self.seen)?;
            if item.record.kind == Kind::Directory && !item.is_link {
                let entries = self.entries_of(&item)?.into_iter().rev();
                left.extend(entries.map(|(name, (inode, kind, certain))| Pending {
                    inode,
                    parent: Some(item.inode),
                    name,
                    kind: Some(kind),
                    certain,
                }));
            }
        }
        Ok(())
    }

    /// The item for an inode under a name; none for a directory that was reported before.
    fn item(&mut self, next: Pending) -> Result<Option<Item>> {
        let Pending { inode, parent, name, kind, certain: name_certain } = next;
        let found = self.salvage.record(inode)?;
        let has_record = found.is_some();
        let (record, certain) = found.unwrap_or_else(|| (substitute(kind), false));
        let is_link = self.seen.contains(inode);
        if is_link && record.kind == Kind::Directory {
            return Ok(None);
        }
        if !has_record {
            self.problem(parent, &name, inode, Unsaved::NoInode);
        } else if !(certain && name_certain) && self.salvage.tables.is_newest() {
            self.problem(parent, &name, inode, Unsaved::Older);
        }
        let mut xattrs = Vec::new();
        if !is_link {
            self.seen.insert(inode, parent, name.clone());
            let (found, all_certain) = self.salvage.xattrs(inode)?;
            let complete = has_record && record.xattrs as usize == found.len();
            if !complete && (has_record || self.salvage.may_miss(inode, XATTR)) {
                self.problem(parent, &name, inode, Unsaved::Attributes);
            } else if !all_certain && self.salvage.tables.is_newest() {
                self.problem(parent, &name, inode, Unsaved::Older);
            }
            xattrs = found;
        }
        Ok(Some(Item { parent, name, inode, record, has_record, is_link, xattrs }))
    }

    /// The entries of a directory that was reported. Notes what is wrong with them.
    fn entries_of(&mut self, item: &Item) -> Result<Entries> {
        let mut entries = self.salvage.entries(item.inode)?;
        let certain = entries.values().filter(|(.., certain)| *certain).count() as u64;
        let stored = item.has_record.then_some(item.record.size);
        if stored == Some(certain) {
            entries.retain(|_, (.., certain)| *certain);
        } else if stored != Some(entries.len() as u64)
            && (item.has_record || self.salvage.may_miss(item.inode, DIRENT))
        {
            let found = entries.len() as u64;
            self.problem(item.parent, &item.name, item.inode, Unsaved::Entries { found, stored });
        }
        let wrong: Vec<Vec<u8>> = entries.keys().filter(|name| !is_name(name)).cloned().collect();
        for name in wrong {
            entries.remove(&name);
            self.problem(Some(item.inode), &name, item.inode, Unsaved::Name);
        }
        Ok(entries)
    }

    /// Reports everything to which no name leads: directories and files whose names are lost, and data whose inode is.
    fn nameless(&mut self) -> std::result::Result<(), E> {
        let salvage = self.salvage;
        let root_names = salvage.entries(InodeNo::ROOT)?;
        let free = |number: &u32| !root_names.contains_key(lost_and_found(*number).as_bytes());
        let place = (0..).find(free).map(lost_and_found).expect("a directory has fewer than 2^32 entries");
        let name = |what: &str, inode: InodeNo| format!("{what}-{}", inode.0).into_bytes();
        let (mut left, mut named, mut deleted) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        salvage.for_each(ORPHAN, &mut |key, _, certain| {
            deleted.extend(decode_inode_key(key).ok().filter(|_| certain));
        })?;
        salvage.for_each(INODE, &mut |key, _, _| {
            if let Ok(inode) = decode_inode_key(key)
                && !self.seen.contains(inode)
                && !deleted.contains(&inode)
            {
                left.insert(inode, None);
            }
        })?;
        salvage.for_each(DIRENT, &mut |key, value, _| {
            if let (Ok((parent, _)), Ok(entry)) = (decode_dirent_key(key), Dirent::decode(value))
                && !self.seen.contains(parent)
                && !deleted.contains(&parent)
            {
                left.insert(parent, Some(Kind::Directory));
                named.insert(entry.inode);
            }
        })?;
        let strays = self.strays(&left, &named, &deleted)?;
        if !(left.is_empty() && strays.is_empty()) {
            let item = directory_for_nameless(place.into_bytes());
            self.seen.insert(NAMELESS, item.parent, item.name.clone());
            (self.each)(&item, &self.seen)?;
        }
        // Inodes that another such directory names are found below that one.
        for is_named in [false, true] {
            for (inode, kind) in left.iter().filter(|(inode, _)| named.contains(inode) == is_named) {
                if !self.seen.contains(*inode) {
                    self.tree(*inode, Some(NAMELESS), name("inode", *inode), *kind)?;
                }
            }
        }
        for inode in strays.into_iter().filter(|inode| !self.seen.contains(*inode)).collect::<Vec<_>>() {
            self.tree(inode, Some(NAMELESS), name("data", inode), Some(Kind::File))?;
        }
        Ok(())
    }

    /// Objects that hold the data of an inode of another number, that files refer to, or that have no inode any more.
    fn used(&self) -> Result<BTreeSet<InodeNo>> {
        let mut used = BTreeSet::new();
        self.salvage.for_each(INODE, &mut |_, value, _| {
            used.extend(Record::decode(value).ok().and_then(|record| record.object));
        })?;
        self.salvage.for_each(EXTENT, &mut |_, value, _| {
            used.extend(Extent::decode(value).and_then(|extent| extent.origin).map(|origin| origin.object));
        })?;
        let mut used: BTreeSet<InodeNo> = used.into_iter().map(|object| InodeNo(object.0)).collect();
        self.salvage.for_each(SHADOW, &mut |key, _, _| used.extend(decode_inode_key(key).ok()))?;
        Ok(used)
    }

    /// Inodes that have data and nothing else: their records are lost, or were made after the checkpoint.
    fn strays(
        &self,
        left: &BTreeMap<InodeNo, Option<Kind>>,
        named: &BTreeSet<InodeNo>,
        deleted: &BTreeSet<InodeNo>,
    ) -> Result<BTreeSet<InodeNo>> {
        let (salvage, used) = (self.salvage, self.used()?);
        let is_stray = |inode: &InodeNo| {
            !(self.seen.contains(*inode)
                || used.contains(inode)
                || left.contains_key(inode)
                || named.contains(inode)
                || deleted.contains(inode))
        };
        let mut strays = BTreeSet::new();
        for table in [EXTENT, INLINE_BLOCK] {
            salvage.for_each(table, &mut |key, _, _| {
                let inode = extent::format::decode_key(key).map(|(object, _)| InodeNo(object.0));
                strays.extend(inode.filter(is_stray));
            })?;
        }
        let cut = salvage.tables.cut().0;
        for stray in salvage.objects.strays() {
            let inode = InodeNo(stray.object.0);
            let is_later = !salvage.tables.is_newest() || stray.newest >= cut;
            if is_stray(&inode) && (is_later || salvage.may_miss(inode, INODE)) {
                strays.insert(inode);
            }
        }
        Ok(strays)
    }
}

fn lost_and_found(number: u32) -> String {
    match number {
        0 => LOST_AND_FOUND.to_owned(),
        number => format!("{LOST_AND_FOUND}-{number}"),
    }
}

/// Whether a file can have this name.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
        && !matches!(name, b"." | b"..")
}

/// A substitute for a record that is lost.
fn substitute(kind: Option<Kind>) -> Record {
    let kind = kind.unwrap_or(Kind::Directory);
    let permissions = if kind == Kind::Directory { 0o700 } else { 0o600 };
    Record { kind, permissions, links: 1, ..Record::empty(Timestamp(0)) }
}

fn directory_for_nameless(name: Vec<u8>) -> Item {
    Item {
        parent: Some(InodeNo::ROOT),
        name,
        inode: NAMELESS,
        record: substitute(Some(Kind::Directory)),
        has_record: false,
        is_link: false,
        xattrs: Vec::new(),
    }
}
