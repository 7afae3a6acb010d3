//! The checker of names: whether the tables of the file system agree with each other and with the
//! data below. `Fs::check` asks the crates below first.
//!
//! It reads the tables in passes. Each pass is about the inodes of one residue class, few enough to
//! be kept in memory, so its memory does not grow with the volume. Nobody may change the volume
//! meanwhile: what is in the middle of a change would be reported.

mod ancestors;

use std::collections::{BTreeMap, BTreeSet};

use extent::format::{EXTENT, INLINE_BLOCK};
use extent::{ExtentError, Object};
use tree::{Group, StoreError, Table};

use crate::errno::Result;
use crate::format::{
    COUNTER, DIRENT, Damaged, Dirent, FLAG_SHIFTING, FLAG_TRUNCATING, INODE, INTENT, ORPHAN, Record, SHADOW,
    Shift, XATTR, XattrHead, counter_key, decode_counter, decode_dirent_key, decode_inode_key, decode_shadow,
    decode_xattr_key, number_key,
};
use crate::inodes::State;
use crate::names::first_cookie;
use crate::numbers::COUNTER_FIRST;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;
use ancestors::Ancestors;

/// Inodes that one pass keeps in memory.
const PASS_INODES: u64 = 1 << 18;
/// Rows that are read at a time.
const BATCH: usize = 256;

/// The tables of names and of what belongs to them: what a pass reads row by row.
const NAMES: [Table; 7] = [INODE, DIRENT, XATTR, ORPHAN, INTENT, SHADOW, COUNTER];

/// Told of every row of a table: group, key, value.
type EachRow<'a> = dyn FnMut(Group, &[u8], &[u8]) -> Result<()> + 'a;

/// How far a check is with one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Which part: they follow one another in the order of [`CheckedPart`].
    pub part: CheckedPart,
    /// What was looked at.
    pub done: u64,
    /// Of so many. Of nodes about: as many as the last checkpoint had, and in the end as many as there are. Of the
    /// others those that the trees have led to.
    pub of: u64,
}

/// What a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckedPart {
    /// Nodes of the trees.
    Nodes,
    /// Extents of files.
    Extents,
    /// Rows of names and inodes, each once in every pass.
    Rows,
}

impl CheckedPart {
    /// What is counted, in words.
    pub fn name(self) -> &'static str {
        match self {
            CheckedPart::Nodes => "nodes of metadata verified",
            CheckedPart::Extents => "extents verified",
            CheckedPart::Rows => "rows of names and inodes verified",
        }
    }
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Trees, journal, zone table.
    Store(tree::Finding),
    /// Data and its accounting.
    Extents(extent::Finding),
    /// Names, inodes and what belongs to them.
    Names(NameFinding),
}

/// Something wrong in the tables of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages below say what each field is")]
pub enum NameFinding {
    Damaged { table: u8, why: Damaged },
    Misplaced { table: u8, inode: InodeNo },
    NumberBeyondRange { inode: InodeNo },
    NoDirectory { parent: InodeNo, name: Vec<u8> },
    NoInode { parent: InodeNo, name: Vec<u8>, inode: InodeNo },
    WrongKind { parent: InodeNo, name: Vec<u8>, inode: InodeNo },
    WrongHash { parent: InodeNo, name: Vec<u8> },
    WrongParent { inode: InodeNo, stored: InodeNo, found: InodeNo },
    WrongLinks { inode: InodeNo, stored: u64, counted: u64 },
    WrongEntries { inode: InodeNo, stored: u64, counted: u64 },
    WrongAttributes { inode: InodeNo, stored: u64, counted: u64 },
    Nameless { inode: InodeNo },
    Detached { inode: InodeNo },
    OrphanWithoutInode { inode: InodeNo },
    OrphanWithName { inode: InodeNo },
    IntentWithoutCause { inode: InodeNo },
    CauseWithoutIntent { inode: InodeNo },
    AttributeWithoutInode { inode: InodeNo },
    DataBeyondEnd { inode: InodeNo, block: u64 },
    DataWithoutFile { inode: InodeNo },
    SharedAndWritten { inode: InodeNo, object: Object },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finding::Store(finding) => write!(f, "metadata: {finding}"),
            Finding::Extents(finding) => write!(f, "data: {finding}"),
            Finding::Names(what) => write!(f, "names: {what}"),
        }
    }
}

impl Finding {
    /// The crate whose finding it is: `store`, `extents` or `names`.
    pub fn part(&self) -> &'static str {
        match self {
            Finding::Store(_) => "store",
            Finding::Extents(_) => "extents",
            Finding::Names(_) => "names",
        }
    }

    /// What kind of damage it is, in words for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Finding::Store(finding) => match finding.kind {
                tree::FindingKind::Node => "node",
                tree::FindingKind::Order => "order",
                tree::FindingKind::Shared => "shared-node",
                tree::FindingKind::Unreachable => "unreachable-node",
                tree::FindingKind::LiveCount => "live-pages",
                tree::FindingKind::Table => "table",
            },
            Finding::Extents(finding) => match finding.kind {
                extent::FindingKind::Record => "extent",
                extent::FindingKind::Overlap => "overlap",
                extent::FindingKind::Place => "place",
                extent::FindingKind::Shared => "shared-block",
                extent::FindingKind::LiveCount => "live-blocks",
                extent::FindingKind::Unwritten => "unwritten-blocks",
                extent::FindingKind::Reference => "reference",
                extent::FindingKind::Unreferenced => "unreferenced-blocks",
                extent::FindingKind::Refcount => "reference-count",
                extent::FindingKind::Data => "data",
                extent::FindingKind::Lost => "lost",
            },
            Finding::Names(finding) => finding.kind(),
        }
    }

    /// In words, without the part.
    pub fn what(&self) -> String {
        match self {
            Finding::Store(finding) => finding.what.clone(),
            Finding::Extents(finding) => finding.what.clone(),
            Finding::Names(finding) => finding.to_string(),
        }
    }
}

impl NameFinding {
    fn kind(&self) -> &'static str {
        use NameFinding::*;
        match self {
            Damaged { .. } => "row",
            Misplaced { .. } => "misplaced",
            NumberBeyondRange { .. } => "number",
            NoDirectory { .. } => "no-directory",
            NoInode { .. } => "no-inode",
            WrongKind { .. } => "kind",
            WrongHash { .. } => "hash",
            WrongParent { .. } => "parent",
            WrongLinks { .. } => "links",
            WrongEntries { .. } => "entries",
            WrongAttributes { .. } => "attributes",
            Nameless { .. } => "nameless",
            Detached { .. } => "detached",
            OrphanWithoutInode { .. } => "orphan-without-inode",
            OrphanWithName { .. } => "orphan-with-name",
            IntentWithoutCause { .. } => "intent-without-cause",
            CauseWithoutIntent { .. } => "cause-without-intent",
            AttributeWithoutInode { .. } => "attribute-without-inode",
            DataBeyondEnd { .. } => "data-beyond-end",
            DataWithoutFile { .. } => "data-without-file",
            SharedAndWritten { .. } => "shared-and-written",
        }
    }

    /// The inode that it is about, if one is known.
    pub fn inode(&self) -> Option<InodeNo> {
        use NameFinding::*;
        match *self {
            Damaged { .. } => None,
            NoDirectory { parent, .. } | WrongHash { parent, .. } => Some(parent),
            Misplaced { inode, .. }
            | NumberBeyondRange { inode }
            | NoInode { inode, .. }
            | WrongKind { inode, .. }
            | WrongParent { inode, .. }
            | WrongLinks { inode, .. }
            | WrongEntries { inode, .. }
            | WrongAttributes { inode, .. }
            | Nameless { inode }
            | Detached { inode }
            | OrphanWithoutInode { inode }
            | OrphanWithName { inode }
            | IntentWithoutCause { inode }
            | CauseWithoutIntent { inode }
            | AttributeWithoutInode { inode }
            | DataBeyondEnd { inode, .. }
            | DataWithoutFile { inode }
            | SharedAndWritten { inode, .. } => Some(inode),
        }
    }
}

impl std::fmt::Display for NameFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use NameFinding::*;
        // Names are any bytes; only what is shown of them is text.
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match self {
            Damaged { table, why } => write!(f, "a row of table {table} cannot be decoded: {why}"),
            Misplaced { table, inode } => {
                write!(f, "a row of table {table} for inode {} is in another group", inode.0)
            }
            NumberBeyondRange { inode } => {
                write!(f, "the number of inode {} was never allocated", inode.0)
            }
            NoDirectory { parent, name } => {
                write!(f, "'{}' is an entry of {}, which is not a directory", shown(name), parent.0)
            }
            NoInode { parent, name, inode } => {
                let (name, parent) = (shown(name), parent.0);
                write!(f, "'{name}' in directory {parent} refers to inode {}, which does not exist", inode.0)
            }
            WrongKind { parent, name, inode } => {
                write!(
                    f,
                    "'{}' in directory {} has the wrong type for inode {}",
                    shown(name),
                    parent.0,
                    inode.0
                )
            }
            WrongHash { parent, name } => {
                write!(f, "'{}' in directory {} cannot be found under its hash", shown(name), parent.0)
            }
            WrongParent { inode, stored, found } => {
                write!(
                    f,
                    "directory {} is in {}, but its parent is recorded as {}",
                    inode.0, found.0, stored.0
                )
            }
            WrongLinks { inode, stored, counted } => {
                write!(f, "inode {} has {counted} links, but {stored} are recorded", inode.0)
            }
            WrongEntries { inode, stored, counted } => {
                write!(f, "directory {} has {counted} entries, but {stored} are recorded", inode.0)
            }
            WrongAttributes { inode, stored, counted } => {
                write!(f, "inode {} has {counted} attributes, but {stored} are recorded", inode.0)
            }
            Nameless { inode } => write!(f, "inode {} has no name and is not an orphan", inode.0),
            Detached { inode } => write!(f, "directory {} is not below the root", inode.0),
            OrphanWithoutInode { inode } => write!(f, "orphan {} does not exist", inode.0),
            OrphanWithName { inode } => write!(f, "orphan {} has links", inode.0),
            IntentWithoutCause { inode } => {
                write!(f, "there is an intent for inode {}, which has no unfinished operation", inode.0)
            }
            CauseWithoutIntent { inode } => {
                write!(f, "inode {} has an unfinished operation without an intent", inode.0)
            }
            AttributeWithoutInode { inode } => {
                write!(f, "inode {} has an attribute but does not exist", inode.0)
            }
            SharedAndWritten { inode, object } => {
                write!(f, "inode {} writes to object {}, which other inodes share", inode.0, object.0)
            }
            DataWithoutFile { inode } => {
                write!(f, "there is data of inode {}, which is not a file with blocks", inode.0)
            }
            DataBeyondEnd { inode, block } => {
                write!(f, "inode {} has data at block {block}, beyond its end", inode.0)
            }
        }
    }
}

impl Fs {
    /// The checker: tree, extents, names, link counts, orphans, sizes. Typed findings; empty = clean.
    pub fn check(&self) -> Result<Vec<Finding>> {
        self.check_with_progress(&mut |_| ())
    }

    /// As [`Fs::check`], and reports the progress after each node, extent and row. The number of rows is counted while
    /// the trees are checked.
    pub fn check_with_progress(&self, progress: &mut dyn FnMut(Checked)) -> Result<Vec<Finding>> {
        drop(self.settle_all());
        let mut rows: BTreeMap<Table, u64> = BTreeMap::new();
        let store = self.store.check_with_progress(
            &mut |_, table, _, _| *rows.entry(table).or_default() += 1,
            &mut |done, of| progress(Checked { part: CheckedPart::Nodes, done, of }),
        )?;
        let rows_of = |table: &Table| rows.get(table).copied().unwrap_or(0);
        let mut findings: Vec<_> = store.into_iter().map(Finding::Store).collect();
        let (mut done, of) = (0, rows_of(&EXTENT));
        let extents = extent::check_with_progress(&self.extents, &mut || {
            done += 1;
            progress(Checked { part: CheckedPart::Extents, done, of });
        })?;
        findings.extend(extents.into_iter().map(Finding::Extents));
        let shared = self.shared_blocks()?;
        let of: u64 = NAMES.iter().map(rows_of).sum();
        let names = self.check_names_with_progress(&shared, PASS_INODES, &mut |done, passes| {
            progress(Checked { part: CheckedPart::Rows, done, of: of * passes });
        })?;
        findings.extend(shared.blocks.findings.into_iter().map(Finding::Extents));
        findings.extend(names.into_iter().map(Finding::Names));
        Ok(findings)
    }

    /// The trees and the zone table alone: goes on where metadata is too damaged for [`Fs::check`].
    pub fn check_store(&self) -> Result<Vec<Finding>> {
        Ok(self.store.check(&mut |_, _, _, _| ())?.into_iter().map(Finding::Store).collect())
    }

    /// What is known to be lost: data that could not be read when they were to be moved. The volume is
    /// sound all the same, so [`Fs::check`] does not tell of it.
    pub fn check_lost(&self) -> Result<Vec<Finding>> {
        Ok(extent::lost(self.extents.maps())?.into_iter().map(Finding::Extents).collect())
    }

    /// The tables of the file system alone.
    pub fn check_names(&self) -> Result<Vec<NameFinding>> {
        self.check_names_in_passes(&self.shared_blocks()?, PASS_INODES)
    }

    /// What several files share, and what counts for nothing in that.
    pub(crate) fn shared_blocks(&self) -> Result<Shared> {
        let mut shadows = BTreeSet::new();
        self.for_each_row(SHADOW, &mut |_, key, _| {
            shadows.extend(decode_inode_key(key).ok().map(|number| Object(number.0)));
            Ok(())
        })?;
        Ok(Shared { blocks: extent::check_references(self.extents.maps(), &shadows)?, shadows })
    }

    pub(crate) fn check_names_in_passes(
        &self,
        shared: &Shared,
        pass_inodes: u64,
    ) -> Result<Vec<NameFinding>> {
        self.check_names_with_progress(shared, pass_inodes, &mut |_, _| ())
    }

    /// As [`Fs::check_names_in_passes`]. Calls `progress` with the number of rows read by all passes so far, and the
    /// number of passes.
    pub(crate) fn check_names_with_progress(
        &self,
        shared: &Shared,
        pass_inodes: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<NameFinding>> {
        let mut inodes = 0;
        self.for_each_row(INODE, &mut |_, _, _| {
            inodes += 1;
            Ok(())
        })?;
        let passes = u64::div_ceil(inodes, pass_inodes).max(1);
        let (mut findings, mut rows) = (Vec::new(), 0);
        let mut read = || {
            rows += 1;
            progress(rows, passes);
        };
        let mut ancestors = Ancestors::new(pass_inodes);
        for residue in 0..passes {
            let pass = Pass {
                fs: self,
                passes,
                residue,
                shared,
                seen: BTreeMap::new(),
                in_objects: BTreeSet::new(),
                ancestors: &mut ancestors,
                findings: &mut findings,
                read: &mut read,
            };
            pass.run()?;
        }
        Ok(findings)
    }

    pub(crate) fn for_each_row(&self, table: Table, each: &mut EachRow<'_>) -> Result<()> {
        for group in (0..self.store.info().groups).map(Group) {
            let mut from = Vec::new();
            loop {
                let rows = self.store.range(group, table, &from, &[], BATCH)?;
                for (key, value) in &rows {
                    each(group, key, value)?;
                }
                match rows.last() {
                    Some((key, _)) if rows.len() == BATCH => from = [key.as_slice(), &[0]].concat(),
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

impl Fs {
    /// Whether its number was never handed out. A counter that means nothing says nothing either.
    pub(crate) fn is_beyond_range(&self, inode: InodeNo) -> Result<bool> {
        let (store, group) = (&self.store, self.group(inode));
        let stored = store.get(group, COUNTER, &counter_key(group.0))?;
        let end = stored.map_or(Ok(COUNTER_FIRST), |bytes| decode_counter(&bytes));
        Ok(end.is_ok_and(|end| inode.0 / u64::from(store.info().groups) >= end))
    }

    /// Every inode that has rows in a table of data, without reading all of them.
    fn for_each_object(&self, table: Table, each: &mut dyn FnMut(InodeNo)) -> Result<()> {
        for group in (0..self.store.info().groups).map(Group) {
            let mut from = number_key(InodeNo(0));
            while let Some((key, _)) = self.store.range(group, table, &from, &[], 1)?.first() {
                let Ok(inode) = decode_inode_key(key) else { break };
                each(inode);
                let Some(next) = inode.0.checked_add(1) else { break };
                from = number_key(InodeNo(next));
            }
        }
        Ok(())
    }
}

/// What several files share.
pub(crate) struct Shared {
    blocks: extent::SharedBlocks,
    shadows: BTreeSet<Object>,
}

/// One pass: the inodes whose number has one residue.
struct Pass<'a> {
    fs: &'a Fs,
    passes: u64,
    residue: u64,
    shared: &'a Shared,
    seen: BTreeMap<InodeNo, Seen>,
    /// Objects of other numbers than their files'.
    in_objects: BTreeSet<Object>,
    ancestors: &'a mut Ancestors,
    findings: &'a mut Vec<NameFinding>,
    /// Called after each row.
    read: &'a mut dyn FnMut(),
}

/// What an inode says of itself, and what is counted.
struct Seen {
    record: Record,
    names: u64,
    subdirectories: u64,
    entries: u64,
    attributes: u64,
    is_orphan: bool,
    has_intent: bool,
}

impl Pass<'_> {
    fn run(mut self) -> Result<()> {
        let fs = self.fs;
        self.rows(INODE)?;
        let (in_objects, shared) = (self.in_objects.clone(), self.shared);
        for object in in_objects.iter().chain(&shared.blocks.owners).chain(&shared.shadows) {
            self.judge_number(*object)?;
        }
        NAMES.into_iter().filter(|table| *table != INODE).try_for_each(|table| self.rows(table))?;
        for table in [EXTENT, INLINE_BLOCK] {
            fs.for_each_object(table, &mut |inode| self.data_of(inode))?;
        }
        for (inode, seen) in std::mem::take(&mut self.seen) {
            self.judge(inode, &seen)?;
        }
        Ok(())
    }

    /// Every row of a table of names.
    fn rows(&mut self, table: Table) -> Result<()> {
        let fs = self.fs;
        fs.for_each_row(table, &mut |group, key, value| {
            match table {
                INODE => self.inode(group, key, value)?,
                DIRENT => self.dirent(group, key, value)?,
                XATTR => self.attribute(group, key, value)?,
                ORPHAN => self.orphan(group, key)?,
                INTENT => self.intent(group, key, value)?,
                SHADOW => self.shadow(group, key, value)?,
                COUNTER => drop(self.decoded(COUNTER, decode_counter(value))),
                _ => unreachable!("{table:?} is none of names"),
            }
            (self.read)();
            Ok(())
        })
    }

    fn is_ours(&self, inode: InodeNo) -> bool {
        inode.0 % self.passes == self.residue
    }

    /// Reports damage, once: in the first pass.
    fn decoded<T>(&mut self, table: Table, decoded: std::result::Result<T, Damaged>) -> Option<T> {
        match decoded {
            Ok(value) => Some(value),
            Err(why) => {
                if self.residue == 0 {
                    self.findings.push(NameFinding::Damaged { table: table.0, why });
                }
                None
            }
        }
    }

    fn check_group(&mut self, table: Table, group: Group, inode: InodeNo) {
        if self.is_ours(inode) && self.fs.group(inode) != group {
            self.findings.push(NameFinding::Misplaced { table: table.0, inode });
        }
    }

    fn inode(&mut self, group: Group, key: &[u8], value: &[u8]) -> Result<()> {
        let decoded = decode_inode_key(key).and_then(|inode| Ok((inode, Record::decode(value)?)));
        let Some((inode, mut record)) = self.decoded(INODE, decoded) else { return Ok(()) };
        self.check_group(INODE, group, inode);
        let object = record.object(inode);
        if self.is_ours(InodeNo(object.0)) && !record.has_no_blocks() {
            let is_others = self.shared.blocks.owners.contains(&object);
            if is_others || record.object.is_some() && !self.in_objects.insert(object) {
                self.findings.push(NameFinding::SharedAndWritten { inode, object });
            }
        }
        if self.is_ours(inode) {
            record.content = Vec::new();
            let counts = Seen {
                record,
                names: 0,
                subdirectories: 0,
                entries: 0,
                attributes: 0,
                is_orphan: false,
                has_intent: false,
            };
            self.seen.insert(inode, counts);
        }
        Ok(())
    }

    fn dirent(&mut self, group: Group, key: &[u8], value: &[u8]) -> Result<()> {
        let decoded = decode_dirent_key(key).and_then(|key| Ok((key, Dirent::decode(value)?)));
        let Some(((parent, cookie), entry)) = self.decoded(DIRENT, decoded) else { return Ok(()) };
        self.check_group(DIRENT, group, parent);
        if self.is_ours(parent) {
            self.entry_of(parent, cookie, &entry);
        }
        if self.is_ours(entry.inode) {
            self.name_of(parent, &entry);
        }
        Ok(())
    }

    /// The entry seen from its directory.
    fn entry_of(&mut self, parent: InodeNo, cookie: u64, entry: &Dirent) {
        let name = entry.name.to_vec();
        if first_cookie(&self.fs.store.info().secret, entry.name) != cookie & !0xff {
            self.findings.push(NameFinding::WrongHash { parent, name: name.clone() });
        }
        match self.seen.get_mut(&parent) {
            Some(seen) if seen.record.kind == Kind::Directory => {
                seen.entries += 1;
                seen.subdirectories += u64::from(entry.kind == Kind::Directory);
            }
            _ => self.findings.push(NameFinding::NoDirectory { parent, name }),
        }
    }

    /// The entry seen from the inode that it names.
    fn name_of(&mut self, parent: InodeNo, entry: &Dirent) {
        let name = || entry.name.to_vec();
        let inode = entry.inode;
        let Some(seen) = self.seen.get_mut(&inode) else {
            self.findings.push(NameFinding::NoInode { parent, name: name(), inode });
            return;
        };
        seen.names += 1;
        if seen.record.kind != entry.kind {
            self.findings.push(NameFinding::WrongKind { parent, name: name(), inode });
        } else if entry.kind == Kind::Directory && seen.record.parent != parent {
            let stored = seen.record.parent;
            self.findings.push(NameFinding::WrongParent { inode, stored, found: parent });
        }
    }

    fn attribute(&mut self, group: Group, key: &[u8], value: &[u8]) -> Result<()> {
        let decoded = decode_xattr_key(key).and_then(|key| {
            if key.3 == 0 {
                XattrHead::decode(value)?;
            }
            Ok(key)
        });
        let Some((inode, _, _, part)) = self.decoded(XATTR, decoded) else { return Ok(()) };
        self.check_group(XATTR, group, inode);
        if !self.is_ours(inode) || part > 0 {
            return Ok(());
        }
        match self.seen.get_mut(&inode) {
            Some(seen) => seen.attributes += 1,
            None => self.findings.push(NameFinding::AttributeWithoutInode { inode }),
        }
        Ok(())
    }

    fn orphan(&mut self, group: Group, key: &[u8]) -> Result<()> {
        let Some(inode) = self.decoded(ORPHAN, decode_inode_key(key)) else { return Ok(()) };
        self.check_group(ORPHAN, group, inode);
        if self.is_ours(inode) {
            match self.seen.get_mut(&inode) {
                Some(seen) => seen.is_orphan = true,
                None => self.findings.push(NameFinding::OrphanWithoutInode { inode }),
            }
        }
        Ok(())
    }

    fn intent(&mut self, group: Group, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(inode) = self.decoded(INTENT, decode_inode_key(key)) else { return Ok(()) };
        let is_shifting = |seen: &Seen| seen.record.has(FLAG_SHIFTING);
        if self.seen.get(&inode).is_some_and(is_shifting)
            && let Err(why) = Shift::decode(value)
        {
            self.findings.push(NameFinding::Damaged { table: INTENT.0, why });
        }
        self.check_group(INTENT, group, inode);
        if self.is_ours(inode) {
            match self.seen.get_mut(&inode) {
                Some(seen) => seen.has_intent = true,
                None => self.findings.push(NameFinding::IntentWithoutCause { inode }),
            }
        }
        Ok(())
    }

    fn shadow(&mut self, group: Group, key: &[u8], value: &[u8]) -> Result<()> {
        let decoded = decode_shadow(value).and_then(|_| decode_inode_key(key));
        if let Some(number) = self.decoded(SHADOW, decoded) {
            self.check_group(SHADOW, group, number);
        }
        Ok(())
    }

    /// Objects have numbers of inodes that were handed out.
    fn judge_number(&mut self, object: Object) -> Result<()> {
        let number = InodeNo(object.0);
        let is_judged = self.seen.contains_key(&number) || !self.is_ours(number) || number == InodeNo::ROOT;
        if !is_judged && self.fs.is_beyond_range(number)? {
            self.findings.push(NameFinding::NumberBeyondRange { inode: number });
        }
        Ok(())
    }

    fn judge(&mut self, inode: InodeNo, seen: &Seen) -> Result<()> {
        let object = Object(inode.0);
        let is_its_own = seen.record.object.is_none() && !seen.record.has_no_blocks();
        if is_its_own && self.in_objects.contains(&object) {
            self.findings.push(NameFinding::SharedAndWritten { inode, object });
        }
        self.judge_links(inode, seen);
        self.judge_counts(inode, seen);
        if seen.record.kind == Kind::Directory && seen.names > 0 && !self.reaches_root(inode)? {
            self.findings.push(NameFinding::Detached { inode });
        }
        if inode != InodeNo::ROOT && self.fs.is_beyond_range(inode)? {
            self.findings.push(NameFinding::NumberBeyondRange { inode });
        }
        self.judge_data(inode, seen)
    }

    fn judge_links(&mut self, inode: InodeNo, seen: &Seen) {
        let stored = u64::from(seen.record.links);
        let has_name = seen.names > 0 || inode == InodeNo::ROOT;
        if !has_name && !seen.is_orphan {
            self.findings.push(NameFinding::Nameless { inode });
            return;
        }
        if seen.is_orphan && stored > 0 {
            self.findings.push(NameFinding::OrphanWithName { inode });
        }
        let counted = match seen.record.kind {
            // A directory has one name; a second one is a link too many.
            Kind::Directory if has_name => 2 + seen.subdirectories + seen.names.saturating_sub(1),
            _ => seen.names,
        };
        if stored != counted {
            self.findings.push(NameFinding::WrongLinks { inode, stored, counted });
        }
    }

    fn judge_counts(&mut self, inode: InodeNo, seen: &Seen) {
        let (stored, counted) = (seen.record.size, seen.entries);
        if seen.record.kind == Kind::Directory && stored != counted {
            self.findings.push(NameFinding::WrongEntries { inode, stored, counted });
        }
        let (stored, counted) = (u64::from(seen.record.xattrs), seen.attributes);
        // The attributes of an orphan may be on their way out.
        if stored != counted && !(seen.is_orphan && counted < stored) {
            self.findings.push(NameFinding::WrongAttributes { inode, stored, counted });
        }
        match (seen.record.has(FLAG_TRUNCATING | FLAG_SHIFTING), seen.has_intent) {
            (true, false) => self.findings.push(NameFinding::CauseWithoutIntent { inode }),
            (false, true) => self.findings.push(NameFinding::IntentWithoutCause { inode }),
            _ => {}
        }
    }

    fn reaches_root(&mut self, inode: InodeNo) -> Result<bool> {
        let fs = self.fs;
        self.ancestors.reach_root(inode, |directory| {
            let node = match fs.node(directory) {
                // A damaged row has a finding of its own. Its parent is not known.
                Err(_) if fs.is_damaged(directory)? => return Ok(None),
                node => node?,
            };
            Ok(match &*node.state.read() {
                State::Present(record) if record.kind == Kind::Directory => Some(record.parent),
                _ => None,
            })
        })
    }

    /// Each table of data names each object once: it is a file's, or others have references to its blocks.
    fn data_of(&mut self, inode: InodeNo) {
        let object = Object(inode.0);
        let is_its_own = |seen: &Seen| !seen.record.has_no_blocks() && seen.record.object.is_none();
        let is_known = self.seen.get(&inode).is_some_and(is_its_own)
            || self.in_objects.contains(&object)
            || self.shared.blocks.owners.contains(&object)
            || self.shared.shadows.contains(&object);
        if self.is_ours(inode) && !is_known {
            self.findings.push(NameFinding::DataWithoutFile { inode });
        }
    }

    /// Beyond the end there is no data, unless a truncation or a move is not finished.
    fn judge_data(&mut self, inode: InodeNo, seen: &Seen) -> Result<()> {
        let block = u64::from(self.fs.extents.block_size());
        if seen.record.has_no_blocks() || seen.record.has(FLAG_TRUNCATING | FLAG_SHIFTING) {
            return Ok(());
        }
        let end = seen.record.size.next_multiple_of(block);
        match self.fs.extents.maps().next_data(seen.record.object(inode), end) {
            Ok(None) => {}
            Ok(Some(data)) => {
                self.findings.push(NameFinding::DataBeyondEnd { inode, block: data / block });
            }
            // A row of the object that means nothing: the checker of data has progress of it.
            Err(ExtentError::Store(StoreError::Corrupt(_))) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
