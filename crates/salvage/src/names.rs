//! Names, inodes and contents without the log: the tree of names as far as the tables that were found say it,
//! and beside it what no name leads to.
//!
//! What is given out either is what the last checkpoint says, or is told as a [`Trouble`]: rows that are not
//! certain (`tree`), blocks that are not (`extent`), and what is missing. Where rows may be missing somewhere,
//! the counts in an inode's record (entries of a directory, blocks, attributes) tell of each file whether it
//! has lost any.
//!
//! An inode without a name goes to a directory of its own in the root, `lost+found`, as does the data of inodes
//! that are lost or were written after the checkpoint. Memory: one entry for each inode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use extent::format::{EXTENT, Extent, RESIDENT};
use extent::{FoundObject, SalvagedData};
use rt::Timestamp;
use tree::{Group, Salvaged, Table};
use zone::Device;

use crate::errno::Result;
use crate::format::{
    DIRENT, Dirent, FLAG_INLINE, FLAG_SHIFTING, INODE, INTENT, NAME_MAX, ORPHAN, Record, SHADOW, Shift,
    VERSION, XATTR, XattrHead, decode_dirent_key, decode_inode_key, decode_xattr_key, dirent_key, inode_key,
    number_key, xattr_key,
};
use crate::types::{InodeNo, Kind};

const LOST_AND_FOUND: &str = "lost+found";
/// Stands for the directory for what has no name.
const NAMELESS: InodeNo = InodeNo(0);

/// A volume whose log is not needed.
pub struct Salvage {
    tables: Arc<Salvaged>,
    data: SalvagedData,
}

/// Something that can be saved.
#[derive(Clone, Debug)]
pub struct SalvagedItem {
    /// The directory that it is in, which was shown before; none: it is the root itself.
    pub parent: Option<InodeNo>,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its number; 0 is the directory for what has no name.
    pub inode: InodeNo,
    /// What it is; made up as far as possible where it is lost.
    pub record: Record,
    /// Whether the record was found.
    pub has_record: bool,
    /// The same inode was shown before, under another name.
    pub is_link: bool,
    /// Extended attributes that are whole.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Where things were shown: for each inode the directory and its name there, the first time. Paths are put together
/// only where somebody asks: all of them would take the square of how deep directories are.
#[derive(Debug, Default)]
pub struct SalvagedNames(BTreeMap<InodeNo, (Option<InodeNo>, Vec<u8>)>);

impl SalvagedNames {
    /// The directory and the name under which an inode was shown first; the root has no directory.
    pub fn first(&self, inode: InodeNo) -> Option<(Option<InodeNo>, &[u8])> {
        self.0.get(&inode).map(|(parent, name)| (*parent, name.as_slice()))
    }

    /// Names from the root on, with `/` between them; empty: the root itself.
    pub fn path(&self, inode: InodeNo) -> Vec<u8> {
        self.path_in(self.0.get(&inode).and_then(|(parent, _)| *parent), self.name(inode))
    }

    /// The same of a name in a directory.
    pub fn path_in(&self, parent: Option<InodeNo>, name: &[u8]) -> Vec<u8> {
        let (mut names, mut above) = (vec![name], parent);
        while let Some((parent, name)) = above.and_then(|above| self.0.get(&above)) {
            if parent.is_some() {
                names.push(name);
            }
            above = *parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    fn name(&self, inode: InodeNo) -> &[u8] {
        self.0.get(&inode).map_or(&[], |(_, name)| name)
    }

    fn contains(&self, inode: InodeNo) -> bool {
        self.0.contains_key(&inode)
    }
}

/// Something that was not saved, or not for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Where it was saved, or would have been.
    pub path: Vec<u8>,
    /// Its number.
    pub inode: InodeNo,
    /// What is wrong with it.
    pub what: Unsaved,
}

/// What is wrong with something that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// Its name, attributes or short contents stand in a copy that may be older (or newer).
    Older,
    /// Entries of a directory are missing, or may be.
    Entries {
        /// How many were found.
        found: u64,
        /// How many there were, if that is known.
        stored: Option<u64>,
    },
    /// Its inode is lost: size, owner, permissions and times are not known.
    NoInode,
    /// Extended attributes are missing, or may be.
    Attributes,
    /// Bytes that cannot be read; they read as zeros.
    LostBytes(Vec<Range<u64>>),
    /// Bytes that may be of an older or newer version.
    OlderBytes(Vec<Range<u64>>),
    /// Bytes that may have been lost: nothing is known of them.
    UnknownBytes(Vec<Range<u64>>),
    /// A name that no file can have.
    Name,
}

/// The entries of a directory: by name, which inode of which kind, and whether that is certain.
type Entries = BTreeMap<Vec<u8>, (InodeNo, Kind, bool)>;

/// Is given what can be saved, and where things were shown so far.
pub type EachItem<'a, E> = dyn FnMut(&SalvagedItem, &SalvagedNames) -> std::result::Result<(), E> + 'a;

/// Is given rows: key, value, whether it is certain.
type EachRow<'a> = dyn FnMut(&[u8], &[u8], bool) + 'a;

/// Rows, each with whether it is certain.
type Rows = Vec<(Vec<u8>, Vec<u8>, bool)>;

impl Salvage {
    /// Finds out what there is; writes nothing. `progress` is told parts done, and parts in all.
    ///
    /// # Errors
    /// When there is no volume, or no metadata at all.
    pub fn open(device: Arc<dyn Device>, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvage> {
        let tables = Arc::new(Salvaged::scan(device, progress)?);
        Ok(Salvage { data: SalvagedData::new(Arc::clone(&tables)), tables })
    }

    /// The tables.
    pub fn tables(&self) -> &Salvaged {
        &self.tables
    }

    /// Shows everything that can be saved, and where it was shown so far: a directory, then all that is in it and below.
    /// Of files [`Salvage::contents`] has the bytes. Returns what is wrong with names, directories and attributes.
    pub fn walk<E: From<crate::FsError>>(
        &self,
        each: &mut EachItem<'_, E>,
    ) -> std::result::Result<(Vec<Trouble>, SalvagedNames), E> {
        let (seen, troubles) = (SalvagedNames::default(), Vec::new());
        let mut walk = Walk { salvage: self, seen, troubles, each };
        walk.tree(InodeNo::ROOT, None, Vec::new(), None)?;
        walk.nameless()?;
        Ok((walk.troubles, walk.seen))
    }

    /// Gives out the bytes of a file, not always in order, and not beyond its size; what is not given out is
    /// zeros. Returns what is wrong with them.
    pub fn contents(&self, item: &SalvagedItem, each: &mut dyn FnMut(u64, &[u8])) -> Result<Vec<Unsaved>> {
        if item.record.has(FLAG_INLINE) {
            each(0, &item.record.content);
            return Ok(Vec::new());
        }
        let places = self.places(item)?;
        let (object, size) = (item.record.object(item.inode), self.data.block_size() as u64);
        let mut give = |block: u64, bytes: &[u8]| {
            let from = block * size;
            for (file, range) in places.of(from..from + size) {
                each(file, &bytes[(range.start - from) as usize..(range.end - from) as usize]);
            }
        };
        let mut found = self.data.read(object, &mut give)?;
        if !item.has_record && found.blocks == 0 {
            found = self.data.read_stray(object, &mut give)?;
        }
        Ok(self.judge(item, &found, &places))
    }

    fn judge(&self, item: &SalvagedItem, found: &FoundObject, places: &Places) -> Vec<Unsaved> {
        let complete = item.has_record && found.uncertain.is_empty() && found.blocks == item.record.blocks;
        let older = match self.tables.is_newest() {
            true => &found.uncertain[..],
            false => &[],
        };
        let unknown = if complete { &found.unknown_kept } else { &found.unknown };
        let size = self.data.block_size() as u64;
        let bytes = |blocks: &[Range<u64>]| -> Vec<Range<u64>> {
            let bytes = |range: &Range<u64>| range.start.saturating_mul(size)..range.end.saturating_mul(size);
            let of_file = |range| {
                let parts = places.of(bytes(range)).into_iter();
                parts.map(|(file, range)| file..file.saturating_add(range.end - range.start))
            };
            blocks.iter().flat_map(of_file).collect()
        };
        let mut unsaved = Vec::new();
        for (ranges, what) in [
            (bytes(&found.lost), Unsaved::LostBytes as fn(Vec<Range<u64>>) -> Unsaved),
            (bytes(older), Unsaved::OlderBytes),
            (bytes(unknown), Unsaved::UnknownBytes),
        ] {
            if !ranges.is_empty() {
                unsaved.push(what(ranges));
            }
        }
        if places.is_unknown {
            unsaved.push(Unsaved::OlderBytes(std::iter::once(0..item.record.size).collect()));
        }
        unsaved
    }

    /// Where the bytes of an object are in its file.
    fn places(&self, item: &SalvagedItem) -> Result<Places> {
        let size = if item.has_record { item.record.size } else { u64::MAX };
        let mut places = Places { spans: vec![(0..u64::MAX, Some(0))], size, is_unknown: false };
        if item.record.has(FLAG_SHIFTING) {
            let key = number_key(item.inode);
            let rows = self.rows_of(item.inode, INTENT, &key, &[&key[..], &[0]].concat())?;
            match rows.first().map(|(_, value, _)| Shift::decode(value)) {
                Some(Ok(shift)) => places.spans = shift.spans(),
                _ => places.is_unknown = true,
            }
        }
        Ok(places)
    }

    fn rows_of(&self, inode: InodeNo, table: Table, from: &[u8], to: &[u8]) -> Result<Rows> {
        let mut rows = Rows::new();
        self.tables.rows(self.tables.group_of(inode.0), table, (from, to), &mut |(
            key,
            value,
            certain,
        )| {
            rows.push((key.to_vec(), value.to_vec(), certain));
            true
        })?;
        Ok(rows)
    }

    /// The record of an inode, and whether it is certain.
    fn record(&self, inode: InodeNo) -> Result<Option<(Record, bool)>> {
        let key = inode_key(inode);
        let rows = self.rows_of(inode, INODE, &key, &[&key[..], &[0]].concat())?;
        let row = rows.into_iter().next();
        Ok(row.and_then(|(_, value, certain)| Some((Record::decode(&value).ok()?, certain))))
    }

    /// The entries of a directory by name; a name that is told twice is what is certain.
    fn entries(&self, directory: InodeNo) -> Result<Entries> {
        let rows = self.rows_of(directory, DIRENT, &dirent_key(directory, 0), &after(directory))?;
        let mut entries = Entries::new();
        for (_, value, certain) in rows {
            let Ok(entry) = Dirent::decode(&value) else { continue };
            let known = entries.get(entry.name).map(|(.., certain)| *certain);
            if known.is_none_or(|known| !known && certain) {
                entries.insert(entry.name.to_vec(), (entry.inode, entry.kind, certain));
            }
        }
        Ok(entries)
    }

    /// The attributes of an inode that are whole, and whether all of them are certain.
    #[allow(clippy::type_complexity, reason = "names and values, used once")]
    fn xattrs(&self, inode: InodeNo) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, bool)> {
        let rows = self.rows_of(inode, XATTR, &xattr_key(inode, 0, 0, 0), &after(inode))?;
        let (mut found, mut all_certain) = (Vec::new(), true);
        let mut rest = rows.iter().peekable();
        while let Some((key, value, certain)) = rest.next() {
            let (Ok((_, hash, collision, 0)), Ok(head)) = (decode_xattr_key(key), XattrHead::decode(value))
            else {
                continue;
            };
            let (mut bytes, mut parts) = (head.bytes.clone(), 1);
            all_certain &= certain;
            while let Some((key, value, certain)) = rest.peek()
                && decode_xattr_key(key).is_ok_and(|(_, h, c, part)| (h, c, part) == (hash, collision, parts))
                && value.first() == Some(&VERSION)
            {
                bytes.extend_from_slice(&value[1..]);
                all_certain &= certain;
                parts += 1;
                rest.next();
            }
            if parts == head.parts && bytes.len() == head.value_length as usize {
                found.push((head.name, bytes));
            }
        }
        Ok((found, all_certain))
    }

    /// Whether rows of an inode in a table may be missing.
    fn may_miss(&self, inode: InodeNo, table: Table) -> bool {
        let group = self.tables.group_of(inode.0);
        let prefix = inode.0.to_be_bytes();
        self.tables.lost_near(group, table, &prefix).next().is_some()
    }

    /// Calls `each` for every row of a table in all groups.
    fn for_each(&self, table: Table, each: &mut EachRow<'_>) -> Result<()> {
        for group in (0..self.tables.groups()).map(Group) {
            self.tables.rows(group, table, (&[], &[]), &mut |(key, value, certain)| {
                each(key, value, certain);
                true
            })?;
        }
        Ok(())
    }
}

/// The end of the keys that begin with an inode's number.
fn after(inode: InodeNo) -> Vec<u8> {
    inode.0.checked_add(1).map_or(Vec::new(), |next| number_key(InodeNo(next)))
}

/// Where the bytes of an object are in its file.
struct Places {
    spans: Vec<(Range<u64>, Option<u64>)>,
    size: u64,
    /// They have been moved nobody knows where.
    is_unknown: bool,
}

impl Places {
    /// For each part of a range of the object that the file has: where it begins in the file, and which part.
    fn of(&self, range: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let part = |(file, object): &(Range<u64>, Option<u64>)| {
            let (object, end) = ((*object)?, file.end.min(self.size));
            let length = end.checked_sub(file.start)?;
            let from = range.start.max(object);
            let to = range.end.min(object.saturating_add(length));
            (from < to).then(|| (file.start + (from - object), from..to))
        };
        self.spans.iter().filter_map(part).collect()
    }
}

/// Something to be looked at, and under which name.
struct Found {
    inode: InodeNo,
    parent: Option<InodeNo>,
    name: Vec<u8>,
    kind: Option<Kind>,
    /// Whether the name is.
    certain: bool,
}

struct Walk<'a, E> {
    salvage: &'a Salvage,
    /// Every inode that was shown.
    seen: SalvagedNames,
    troubles: Vec<Trouble>,
    each: &'a mut EachItem<'a, E>,
}

impl<E: From<crate::FsError>> Walk<'_, E> {
    fn trouble(&mut self, parent: Option<InodeNo>, name: &[u8], inode: InodeNo, what: Unsaved) {
        self.troubles.push(Trouble { path: self.seen.path_in(parent, name), inode, what });
    }

    /// An inode and all that is below it.
    fn tree(
        &mut self,
        inode: InodeNo,
        parent: Option<InodeNo>,
        name: Vec<u8>,
        kind: Option<Kind>,
    ) -> std::result::Result<(), E> {
        let mut left = vec![Found { inode, parent, name, kind, certain: true }];
        while let Some(found) = left.pop() {
            let Some(item) = self.item(found)? else { continue };
            (self.each)(&item, &self.seen)?;
            if item.record.kind == Kind::Directory && !item.is_link {
                let entries = self.entries_of(&item)?.into_iter().rev();
                left.extend(entries.map(|(name, (inode, kind, certain))| Found {
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

    /// What is known of an inode under a name; none when it is a directory that was shown before.
    fn item(&mut self, found: Found) -> Result<Option<SalvagedItem>> {
        let Found { inode, parent, name, kind, certain: name_certain } = found;
        let found = self.salvage.record(inode)?;
        let has_record = found.is_some();
        let (record, certain) = found.unwrap_or_else(|| (made_up(kind), false));
        let is_link = self.seen.contains(inode);
        if is_link && record.kind == Kind::Directory {
            return Ok(None);
        }
        if !has_record {
            self.trouble(parent, &name, inode, Unsaved::NoInode);
        } else if !(certain && name_certain) && self.salvage.tables.is_newest() {
            self.trouble(parent, &name, inode, Unsaved::Older);
        }
        let mut xattrs = Vec::new();
        if !is_link {
            self.seen.0.insert(inode, (parent, name.clone()));
            let (found, all_certain) = self.salvage.xattrs(inode)?;
            let complete = has_record && record.xattrs as usize == found.len();
            if !complete && (has_record || self.salvage.may_miss(inode, XATTR)) {
                self.trouble(parent, &name, inode, Unsaved::Attributes);
            } else if !all_certain && self.salvage.tables.is_newest() {
                self.trouble(parent, &name, inode, Unsaved::Older);
            }
            xattrs = found;
        }
        Ok(Some(SalvagedItem { parent, name, inode, record, has_record, is_link, xattrs }))
    }

    /// The entries of a directory that was shown, and what is wrong with them.
    fn entries_of(&mut self, item: &SalvagedItem) -> Result<Entries> {
        let mut entries = self.salvage.entries(item.inode)?;
        let certain = entries.values().filter(|(.., certain)| *certain).count() as u64;
        let stored = item.has_record.then_some(item.record.size);
        if stored == Some(certain) {
            entries.retain(|_, (.., certain)| *certain);
        } else if stored != Some(entries.len() as u64)
            && (item.has_record || self.salvage.may_miss(item.inode, DIRENT))
        {
            let found = entries.len() as u64;
            self.trouble(item.parent, &item.name, item.inode, Unsaved::Entries { found, stored });
        }
        let wrong: Vec<Vec<u8>> = entries.keys().filter(|name| !is_name(name)).cloned().collect();
        for name in wrong {
            entries.remove(&name);
            self.trouble(Some(item.inode), &name, item.inode, Unsaved::Name);
        }
        Ok(entries)
    }

    /// What no name leads to: directories and files whose names are lost, and data whose inode is.
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
            let item = made_up_directory(place.into_bytes());
            self.seen.0.insert(NAMELESS, (item.parent, item.name.clone()));
            (self.each)(&item, &self.seen)?;
        }
        // What is in another directory that is left is found there.
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

    /// Objects that are files' under other numbers, that files refer to, or that are nobody's any more.
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

    /// Inodes of which there are data and nothing else: theirs are lost, or were made after the checkpoint.
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
        for table in [EXTENT, RESIDENT] {
            salvage.for_each(table, &mut |key, _, _| {
                let inode = extent::format::decode_key(key).map(|(object, _)| InodeNo(object.0));
                strays.extend(inode.filter(is_stray));
            })?;
        }
        let cut = salvage.tables.cut().0;
        for stray in salvage.data.strays()? {
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

/// What stands for a record that is lost.
fn made_up(kind: Option<Kind>) -> Record {
    let kind = kind.unwrap_or(Kind::Directory);
    let permissions = if kind == Kind::Directory { 0o700 } else { 0o600 };
    Record { kind, permissions, links: 1, ..Record::empty(Timestamp(0)) }
}

fn made_up_directory(name: Vec<u8>) -> SalvagedItem {
    SalvagedItem {
        parent: Some(InodeNo::ROOT),
        name,
        inode: NAMELESS,
        record: made_up(Some(Kind::Directory)),
        has_record: false,
        is_link: false,
        xattrs: Vec::new(),
    }
}
