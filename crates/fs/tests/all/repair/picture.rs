//! The readable contents of a volume, for comparing it before and after a repair.

use std::collections::{BTreeMap, BTreeSet};

use fs::format::{DIRENT, Dirent, INODE, decode_dirent_key};
use fs::{Caller, Finding, InodeNo, Kind, NameFinding};
use tree::Group;

use crate::support::{READ, Volume};

const BLOCK: u64 = 4096;

/// The readable parts of an inode. Parts with an error are missing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inode {
    kind: Kind,
    /// Blocks of a file by their offset.
    blocks: BTreeMap<u64, Vec<u8>>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The readable parts of some inodes, and which of these names lead to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Picture {
    pub(super) inodes: BTreeMap<InodeNo, Inode>,
    pub(super) reached: BTreeSet<InodeNo>,
}

impl Picture {
    pub(super) fn of(volume: &Volume, known: &BTreeSet<InodeNo>) -> Picture {
        let inodes = known.iter().filter_map(|inode| Some((*inode, look(volume, *inode)?))).collect();
        let mut reached = reached(volume);
        reached.retain(|inode| known.contains(inode));
        Picture { inodes, reached }
    }

    /// Asserts that another picture lacks nothing of this one, and that names lead to everything that could be read,
    /// except for what is `excused`.
    pub(super) fn assert_kept(&self, after: &Picture, excused: &BTreeSet<InodeNo>, story: &str) {
        for (inode, before) in &self.inodes {
            let Some(now) = after.inodes.get(inode) else { panic!("{story}: {inode:?} is gone") };
            assert_eq!(before.kind, now.kind, "{story}: {inode:?}");
            let keeps = |(at, bytes): (&u64, &Vec<u8>)| now.blocks.get(at) == Some(bytes);
            assert!(before.blocks.iter().all(keeps), "{story}: contents of {inode:?} are others");
            let keeps = |(name, value): (&Vec<u8>, &Vec<u8>)| now.attributes.get(name) == Some(value);
            assert!(before.attributes.iter().all(keeps), "{story}: attributes of {inode:?} are others");
            let is_reached = after.reached.contains(inode);
            assert!(is_reached || excused.contains(inode), "{story}: no name leads to {inode:?}");
        }
        let lost: Vec<_> = self.reached.difference(&after.reached).collect();
        assert!(lost.is_empty(), "{story}: names have led to {lost:?}");
    }
}

impl Picture {
    /// How many blocks of files are missing or different in another picture.
    pub(super) fn lost_blocks(&self, other: &Picture) -> usize {
        let lost_of = |(inode, before): (&InodeNo, &Inode)| {
            let now = other.inodes.get(inode);
            let is_kept =
                |(at, bytes): &(&u64, &Vec<u8>)| now.is_some_and(|now| now.blocks.get(at) == Some(bytes));
            before.blocks.iter().filter(|block| !is_kept(block)).count()
        };
        self.inodes.iter().map(lost_of).sum()
    }
}

fn look(volume: &Volume, inode: InodeNo) -> Option<Inode> {
    let (fs, root) = (&volume.fs, Caller::root());
    let attributes = fs.attributes(inode).ok()?;
    let handle = fs.open(&root, inode, READ).ok()?;
    let mut blocks = BTreeMap::new();
    if attributes.kind == Kind::File {
        for at in (0..attributes.size).step_by(BLOCK as usize) {
            let mut bytes = vec![0; BLOCK as usize];
            if let Ok(read) = fs.read(&handle, at, &mut bytes) {
                bytes.truncate(read);
                blocks.insert(at, bytes);
            }
        }
    }
    let names = fs.list_xattrs(&root, inode).unwrap_or_default();
    let value = |name: Vec<u8>| Some((name.clone(), fs.get_xattr(&root, inode, &name).ok()?));
    Some(Inode { kind: attributes.kind, blocks, attributes: names.into_iter().filter_map(value).collect() })
}

/// Every existing inode that a name leads to from the root: one in a listing, or one that is found although a damaged
/// row keeps the directory from being listed.
fn reached(volume: &Volume) -> BTreeSet<InodeNo> {
    let rows = entries(volume);
    let (mut found, mut left) = (BTreeSet::new(), vec![InodeNo::ROOT]);
    while let Some(inode) = left.pop() {
        let Ok(handle) = volume.fs.open(&Caller::root(), inode, READ) else { continue };
        if !found.insert(inode) {
            continue;
        }
        let _ = volume.fs.read_directory(&handle, 2, &mut |entry| {
            left.push(entry.inode);
            true
        });
        let its = rows.iter().filter(|row| row.parent == inode);
        left.extend(
            its.filter_map(|row| volume.fs.lookup(&Caller::root(), inode, &row.name).ok()?.inode.into()),
        );
    }
    found
}

/// A row of an entry, in any group.
struct Entry {
    group: Group,
    parent: InodeNo,
    name: Vec<u8>,
    inode: InodeNo,
}

fn entries(volume: &Volume) -> Vec<Entry> {
    let mut entries = Vec::new();
    // The checker continues after pages that cannot be read.
    let each = &mut |group, table, key: &[u8], value: &[u8]| {
        if let (DIRENT, Ok((parent, _)), Ok(entry)) = (table, decode_dirent_key(key), Dirent::decode(value)) {
            entries.push(Entry { group, parent, name: entry.name.to_vec(), inode: entry.inode });
        }
    };
    volume.fs.store().check(each).unwrap();
    entries
}

/// Inodes that a repair need not name, because they have a name that is not looked up: in a row in a wrong group, or
/// below a directory whose record is in such a row.
pub(super) fn excused(volume: &Volume, left: &[Finding]) -> BTreeSet<InodeNo> {
    let entries = entries(volume);
    let at = left.iter().filter_map(|finding| match finding {
        Finding::Names(NameFinding::Misplaced { table, inode }) if *table == INODE.0 => Some(*inode),
        _ => None,
    });
    let is_elsewhere = |row: &&Entry| volume.fs.store().group_of(row.parent.0) != row.group;
    let mut waiting: Vec<InodeNo> =
        at.chain(entries.iter().filter(is_elsewhere).map(|row| row.inode)).collect();
    let mut excused = BTreeSet::new();
    while let Some(inode) = waiting.pop() {
        if excused.insert(inode) {
            waiting.extend(entries.iter().filter(|row| row.parent == inode).map(|row| row.inode));
        }
    }
    excused
}
