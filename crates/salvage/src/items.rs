//! What salvage reports: items, their paths, and what is missing or uncertain in them.

use std::collections::BTreeMap;
use std::ops::Range;

use fs::InodeNo;
use fs::format::Record;

/// A name that can be saved, with its inode.
#[derive(Clone, Debug)]
pub struct Item {
    /// The directory that contains it, which was reported before; none: it is the root itself.
    pub parent: Option<InodeNo>,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its number; 0 is the directory for inodes without a name.
    pub inode: InodeNo,
    /// The inode's record; if that is lost, a substitute.
    pub record: Record,
    /// Whether the record was found.
    pub has_record: bool,
    /// The same inode was reported before, under another name.
    pub is_link: bool,
    /// Extended attributes that are complete.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// For each inode that was reported, the directory and the name of its first report. A path is built only on request: the
/// memory for all of them would grow with the square of the depth.
#[derive(Debug, Default)]
pub struct Paths(BTreeMap<InodeNo, (Option<InodeNo>, Vec<u8>)>);

impl Paths {
    /// The directory and the name under which an inode was reported first; the root has no directory.
    pub fn first(&self, inode: InodeNo) -> Option<(Option<InodeNo>, &[u8])> {
        self.0.get(&inode).map(|(parent, name)| (*parent, name.as_slice()))
    }

    /// The path of an inode from the root on, without a leading `/`; empty: the root itself.
    pub fn path(&self, inode: InodeNo) -> Vec<u8> {
        self.path_in(self.0.get(&inode).and_then(|(parent, _)| *parent), self.name(inode))
    }

    /// The path of a name in a directory.
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

    /// Notes the first report of an inode.
    pub(crate) fn insert(&mut self, inode: InodeNo, parent: Option<InodeNo>, name: Vec<u8>) {
        self.0.insert(inode, (parent, name));
    }

    pub(crate) fn contains(&self, inode: InodeNo) -> bool {
        self.0.contains_key(&inode)
    }
}

/// What is missing or uncertain in a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path at which it was saved, or would have been.
    pub path: Vec<u8>,
    /// Its number.
    pub inode: InodeNo,
    /// What is wrong with it.
    pub what: Unsaved,
}

/// What can be wrong with a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// Its name, attributes or inline contents come from a copy that may be older (or newer).
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
    /// Bytes of a version that may be older or newer.
    OlderBytes(Vec<Range<u64>>),
    /// Bytes that may have been lost: nothing is known about them.
    UnknownBytes(Vec<Range<u64>>),
    /// A name that no file can have.
    Name,
}
