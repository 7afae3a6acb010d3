//! The files that are affected by a finding: their paths and their lost bytes.
//!
//! Paths are found by reading all directories that can be read, and only if a finding affects a file. This takes
//! memory for one entry for each directory and one for each affected inode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use extent::format::{EXTENT, EXTENT_BLOCKS_MAX, Extent, INLINE_BLOCK};
use extent::{Object, blocks_in};
use tree::{Group, KeyRange, KeyRanges, Table};
use zone::Blocks;

use crate::check::Finding;
use crate::errno::Result;
use crate::format::{
    DIRENT, Dirent, INODE, INTENT, ORPHAN, Record, XATTR, decode_dirent_key, decode_inode_key,
};
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// A file that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffectedFile {
    /// Its inode number.
    pub inode: InodeNo,
    /// A path from the root. None if no readable names lead to it.
    pub path: Option<Vec<u8>>,
    /// The affected bytes. None if the whole file is affected, or something else than its bytes.
    pub bytes: Option<Range<u64>>,
}

/// The files that use objects.
#[derive(Default)]
struct Uses {
    /// The files whose contents are these objects.
    files: BTreeMap<Object, InodeNo>,
    /// By object and first block: the references of files to the object.
    references: BTreeMap<(Object, u64), Vec<Reference>>,
}

/// A reference of a file, from the file's block `start` on, to blocks of an object.
struct Reference {
    blocks: Blocks,
    inode: InodeNo,
    start: u64,
}

impl Uses {
    /// The inodes that use these blocks of an object, and their own block numbers for them.
    fn of(&self, object: Object, blocks: &Range<u64>) -> Vec<(InodeNo, Range<u64>)> {
        let mut uses: Vec<_> =
            self.files.get(&object).map(|inode| (*inode, blocks.clone())).into_iter().collect();
        // References have at most this length, so earlier ones end before these blocks.
        let first = blocks.start.saturating_sub(u64::from(EXTENT_BLOCKS_MAX));
        for (&(_, at), references) in self.references.range((object, first)..(object, blocks.end)) {
            uses.extend(references.iter().filter_map(|reference| {
                let (from, to) =
                    (blocks.start.max(at), blocks.end.min(at.saturating_add(reference.blocks.into())));
                let place = |block: u64| reference.start + (block - at);
                (from < to).then(|| (reference.inode, place(from)..place(to)))
            }));
        }
        uses
    }
}

/// Tables whose rows belong to inodes.
const OF_INODES: [Table; 7] = [EXTENT, INLINE_BLOCK, INODE, DIRENT, XATTR, ORPHAN, INTENT];

/// The names that lead to some inodes.
#[derive(Default)]
struct Names {
    /// For each directory: its parent, and its name there.
    directories: BTreeMap<InodeNo, (InodeNo, Vec<u8>)>,
    /// For each requested inode: the same.
    wanted: BTreeMap<InodeNo, (InodeNo, Vec<u8>)>,
    /// Inodes that are known not to be below the root, so that the walk up from them happens once.
    detached: BTreeSet<InodeNo>,
}

impl Names {
    fn add(&mut self, is_wanted: &dyn Fn(InodeNo) -> bool, key: &[u8], value: &[u8]) {
        let (Ok((parent, _)), Ok(entry)) = (decode_dirent_key(key), Dirent::decode(value)) else { return };
        if is_wanted(entry.inode) {
            self.wanted.entry(entry.inode).or_insert_with(|| (parent, entry.name.to_vec()));
        }
        if entry.kind == Kind::Directory {
            self.directories.insert(entry.inode, (parent, entry.name.to_vec()));
        }
    }

    /// The path from the root. None if the inode is not below the root.
    fn path(&mut self, inode: InodeNo) -> Option<Vec<u8>> {
        let (mut names, mut at, mut passed) = (Vec::new(), inode, BTreeSet::new());
        while at != InodeNo::ROOT {
            let known = self.directories.get(&at).or_else(|| self.wanted.get(&at));
            let is_new = !self.detached.contains(&at) && passed.insert(at);
            let Some((parent, name)) = known.filter(|_| is_new) else {
                self.detached.extend(passed);
                return None;
            };
            names.push(name.as_slice());
            at = *parent;
        }
        names.push(b"");
        names.reverse();
        let path = names.join(&b'/');
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }
}

impl Fs {
    /// A path to each of these inodes, if readable names lead to it.
    pub fn paths_of(&self, inodes: &BTreeSet<InodeNo>) -> Result<BTreeMap<InodeNo, Vec<u8>>> {
        let mut names = self.names(&|inode| inodes.contains(&inode))?;
        Ok(inodes.iter().filter_map(|inode| Some((*inode, names.path(*inode)?))).collect())
    }

    /// The files that each of these findings affects.
    pub fn affected_files(&self, findings: &[Finding]) -> Result<Vec<Vec<AffectedFile>>> {
        let mut of = self.affected_inodes(findings)?;
        let ranges: Vec<_> = findings.iter().map(lost_range).collect();
        if of.iter().all(Vec::is_empty) && ranges.iter().all(Option::is_none) {
            return Ok(of);
        }
        let named: BTreeSet<InodeNo> = of.iter().flatten().map(|affected| affected.inode).collect();
        let lost = KeyRanges::new(ranges.iter().flatten().copied().cloned());
        let is_touched = |inode: InodeNo| {
            let touches = |table| lost.touching(self.group(inode), table, &inode.0.to_be_bytes());
            OF_INODES.into_iter().any(|table| touches(table).next().is_some())
        };
        let mut names = self.names(&|inode| named.contains(&inode) || is_touched(inode))?;
        let known = names.wanted.keys().chain(names.directories.keys()).copied().chain([InodeNo::ROOT]);
        let known: BTreeSet<(Group, InodeNo)> = known.map(|inode| (self.group(inode), inode)).collect();
        for (of, range) in of.iter_mut().zip(&ranges) {
            if let Some(range) = range {
                let numbers = OF_INODES.into_iter().filter_map(|table| range.numbers(table));
                let inode = |number: &u64| (range.group, InodeNo(*number));
                let touched: BTreeSet<InodeNo> = numbers
                    .flat_map(|numbers| known.range(inode(numbers.start())..=inode(numbers.end())))
                    .map(|(_, inode)| *inode)
                    .collect();
                of.extend(touched.into_iter().map(|inode| self.affected_by_range(range, inode)));
            }
            of.iter_mut().for_each(|affected| affected.path = names.path(affected.inode));
        }
        Ok(of)
    }

    /// The inodes that the findings name themselves. For data these are the files that use it.
    pub(crate) fn affected_inodes(&self, findings: &[Finding]) -> Result<Vec<Vec<AffectedFile>>> {
        let of_data = |finding: &Finding| match finding {
            Finding::Extents(finding) => finding.of.clone(),
            _ => None,
        };
        let objects = findings.iter().filter_map(of_data).map(|(object, _)| object);
        let elsewhere: BTreeSet<Object> = objects.filter(|object| !self.is_of_its_inode(*object)).collect();
        let uses = self.uses_of(&elsewhere)?;
        let affected_inodes = |finding: &Finding| {
            if let Finding::Names(finding) = finding {
                let of = finding.inode().map(|inode| AffectedFile { inode, path: None, bytes: None });
                return of.into_iter().collect();
            }
            let Some((object, blocks)) = of_data(finding) else { return Vec::new() };
            let uses = uses.of(object, &blocks);
            let uses: Vec<_> =
                uses.iter().map(|(inode, blocks)| self.blocks_affected(*inode, blocks)).collect();
            let its_own = || vec![self.blocks_affected(InodeNo(object.0), &blocks)];
            if uses.is_empty() { its_own() } else { uses }
        };
        Ok(findings.iter().map(affected_inodes).collect())
    }

    fn blocks_affected(&self, inode: InodeNo, blocks: &Range<u64>) -> AffectedFile {
        AffectedFile { inode, path: None, bytes: Some(self.bytes_of(inode, blocks)) }
    }

    /// Whether the object has the contents of the file with the same number. False if the inode cannot be read.
    fn is_of_its_inode(&self, object: Object) -> bool {
        self.view_inode(InodeNo(object.0))
            .is_ok_and(|record| record.is_some_and(|record| record.object.is_none()))
    }

    /// The files that use these objects, by references or as their contents, as far as rows can be read.
    fn uses_of(&self, objects: &BTreeSet<Object>) -> Result<Uses> {
        let mut uses = Uses::default();
        if objects.is_empty() {
            return Ok(uses);
        }
        let mut files = BTreeMap::new();
        self.each_readable_row(INODE, &mut |key, value| {
            let record = Record::decode(value).ok();
            if let (Ok(inode), Some(object)) =
                (decode_inode_key(key), record.and_then(|record| record.object))
            {
                files.insert(object, inode);
            }
        })?;
        self.each_readable_row(EXTENT, &mut |key, value| {
            let (Some((user, start)), Some(extent)) =
                (extent::format::decode_key(key), Extent::decode(value))
            else {
                return;
            };
            if let Some(origin) = extent.origin.filter(|origin| objects.contains(&origin.object)) {
                let inode = files.get(&user).copied().unwrap_or(InodeNo(user.0));
                let references = uses.references.entry((origin.object, origin.block)).or_default();
                references.push(Reference { blocks: extent.blocks, inode, start });
            }
        })?;
        files.retain(|object, _| objects.contains(object));
        uses.files = files;
        Ok(uses)
    }

    /// Blocks as bytes, up to the end of the file if that is known.
    fn bytes_of(&self, inode: InodeNo, blocks: &Range<u64>) -> Range<u64> {
        let size = u64::from(self.extents.block_size());
        let end = self.view_inode(inode).ok().flatten().map_or(u64::MAX, |record| record.size);
        let from = blocks.start.saturating_mul(size);
        from..blocks.end.saturating_mul(size).min(end.max(from))
    }

    fn affected_by_range(&self, range: &KeyRange, inode: InodeNo) -> AffectedFile {
        let mut whole = [INODE, DIRENT, XATTR, ORPHAN, INTENT].into_iter();
        let is_whole = whole.any(|table| range.touches(table, &inode.0.to_be_bytes()));
        let bytes = (!is_whole).then(|| self.bytes_of(inode, &blocks_in(range, Object(inode.0))));
        AffectedFile { inode, path: None, bytes }
    }

    fn names(&self, is_wanted: &dyn Fn(InodeNo) -> bool) -> Result<Names> {
        let mut names = Names::default();
        self.each_readable_row(DIRENT, &mut |key, value| names.add(is_wanted, key, value))?;
        Ok(names)
    }

    /// Calls `each` for every readable row of a table, possibly twice for some.
    fn each_readable_row(&self, table: Table, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let read = self.for_each_row(table, &mut |_, key, value| {
            each(key, value);
            Ok(())
        });
        if read.is_err() {
            // The checker continues after pages that cannot be read.
            self.store.check(&mut |_, of, key, value| {
                if of == table {
                    each(key, value);
                }
            })?;
        }
        Ok(())
    }
}

fn lost_range(finding: &Finding) -> Option<&KeyRange> {
    match finding {
        Finding::Store(finding) => finding.lost.as_ref(),
        _ => None,
    }
}
