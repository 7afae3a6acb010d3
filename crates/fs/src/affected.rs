//! Which files are concerned by what was found: their names, and which of their bytes.
//!
//! Names are looked for by reading all directories, as far as they can be read, and only when there is
//! something to be named. Memory: one entry for each directory, and for each inode that is to be named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use extent::format::{EXTENT, RESIDENT};
use extent::{Object, blocks_in};
use tree::{KeyRange, Table};

use crate::check::Finding;
use crate::errno::Result;
use crate::format::{DIRENT, Dirent, INODE, INTENT, ORPHAN, Record, XATTR, decode_dirent_key, inode_key};
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// A file that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affected {
    /// Its number.
    pub inode: InodeNo,
    /// A name of it, from the root on; none when no name that can be read leads to it.
    pub path: Option<Vec<u8>>,
    /// Which of its bytes; none when it is concerned as a whole, or in something else than its bytes.
    pub bytes: Option<Range<u64>>,
}

/// The names that lead to some inodes.
#[derive(Default)]
struct Names {
    /// Of each directory: the one that it is in, and its name there.
    directories: BTreeMap<InodeNo, (InodeNo, Vec<u8>)>,
    /// Of each inode that was asked for.
    wanted: BTreeMap<InodeNo, (InodeNo, Vec<u8>)>,
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

    /// The path from the root; none when it is not below the root.
    fn path(&self, inode: InodeNo) -> Option<Vec<u8>> {
        let (mut names, mut at, mut passed) = (Vec::new(), inode, BTreeSet::new());
        while at != InodeNo::ROOT {
            let known = self.directories.get(&at).or_else(|| self.wanted.get(&at));
            let (parent, name) = known.filter(|_| passed.insert(at))?;
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
    /// A path to each of these inodes, as far as names that can be read lead to them.
    pub fn paths_of(&self, inodes: &BTreeSet<InodeNo>) -> Result<BTreeMap<InodeNo, Vec<u8>>> {
        let names = self.names(&|inode| inodes.contains(&inode))?;
        Ok(inodes.iter().filter_map(|inode| Some((*inode, names.path(*inode)?))).collect())
    }

    /// The files that each of these findings is about.
    pub fn affected(&self, findings: &[Finding]) -> Result<Vec<Vec<Affected>>> {
        let mut of: Vec<_> = findings.iter().map(|finding| self.concerned(finding)).collect();
        let ranges: Vec<_> = findings.iter().map(lost_range).collect();
        if of.iter().all(Vec::is_empty) && ranges.iter().all(Option::is_none) {
            return Ok(of);
        }
        let told: BTreeSet<InodeNo> = of.iter().flatten().map(|affected| affected.inode).collect();
        let names = self.names(&|inode| {
            told.contains(&inode) || ranges.iter().flatten().any(|range| self.touches(range, inode))
        })?;
        let known = names.wanted.keys().chain(names.directories.keys());
        let known: BTreeSet<InodeNo> = known.copied().chain([InodeNo::ROOT]).collect();
        for (of, range) in of.iter_mut().zip(&ranges) {
            if let Some(range) = range {
                let touched = known.iter().filter(|inode| self.touches(range, **inode));
                of.extend(touched.map(|&inode| self.affected_by(range, inode)));
            }
            of.iter_mut().for_each(|affected| affected.path = names.path(affected.inode));
        }
        Ok(of)
    }

    /// The inode that a finding itself names.
    pub(crate) fn concerned(&self, finding: &Finding) -> Vec<Affected> {
        let (inode, bytes) = match finding {
            Finding::Store(_) => return Vec::new(),
            Finding::Names(finding) => (finding.inode(), None),
            Finding::Extents(finding) => {
                let of = finding.of.as_ref();
                let bytes = of.map(|(object, blocks)| self.bytes_of(InodeNo(object.0), blocks));
                (of.map(|(object, _)| InodeNo(object.0)), bytes)
            }
        };
        inode.map(|inode| Affected { inode, path: None, bytes }).into_iter().collect()
    }

    /// Blocks as bytes, not beyond the end of the file if that is known.
    fn bytes_of(&self, inode: InodeNo, blocks: &Range<u64>) -> Range<u64> {
        let size = u64::from(self.extents.block_size());
        let stored = self.store.get(self.group(inode), INODE, &inode_key(inode)).ok().flatten();
        let record = stored.and_then(|bytes| Record::decode(&bytes).ok());
        let end = record.map_or(u64::MAX, |record| record.size);
        let from = blocks.start.saturating_mul(size);
        from..blocks.end.saturating_mul(size).min(end.max(from))
    }

    /// Whether anything of this inode's may be among the keys.
    fn touches(&self, range: &KeyRange, inode: InodeNo) -> bool {
        let tables = [EXTENT, RESIDENT, INODE, DIRENT, XATTR, ORPHAN, INTENT];
        let touches = |table: Table| range.touches(table, &inode.0.to_be_bytes());
        self.group(inode) == range.group && tables.into_iter().any(touches)
    }

    fn affected_by(&self, range: &KeyRange, inode: InodeNo) -> Affected {
        let mut whole = [INODE, DIRENT, XATTR, ORPHAN, INTENT].into_iter();
        let is_whole = whole.any(|table| range.touches(table, &inode.0.to_be_bytes()));
        let bytes = (!is_whole).then(|| self.bytes_of(inode, &blocks_in(range, Object(inode.0))));
        Affected { inode, path: None, bytes }
    }

    fn names(&self, is_wanted: &dyn Fn(InodeNo) -> bool) -> Result<Names> {
        let mut names = Names::default();
        let read = self.for_each_row(DIRENT, &mut |_, key, value| {
            names.add(is_wanted, key, value);
            Ok(())
        });
        if read.is_err() {
            // The checker goes on behind what cannot be read.
            self.store.check(&mut |_, table, key, value| {
                if table == DIRENT {
                    names.add(is_wanted, key, value);
                }
            })?;
        }
        Ok(names)
    }
}

fn lost_range(finding: &Finding) -> Option<&KeyRange> {
    match finding {
        Finding::Store(finding) => finding.lost.as_ref(),
        _ => None,
    }
}
