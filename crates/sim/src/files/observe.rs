//! Reads everything in a mounted file system like a user, by path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fs::{Attributes, Caller, Fs, FsError, InodeNo, OpenFlags};

use crate::caught::Wrong;
use crate::model::{Content, Item, Kind, Snapshot};

/// Root, unchecked.
pub(crate) fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

/// For reading.
pub(super) const READING: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, sync: false };

/// Everything visible. No read may fail.
pub(super) fn snapshot(fs: &Fs) -> Result<Snapshot, Wrong> {
    let view = view(fs)?;
    match view.lost.first_key_value() {
        Some((path, error)) => Err(Wrong(format!("look at /{path}: {error}"))),
        None => Ok(view.snapshot),
    }
}

/// The visible part of a volume that may have lost something.
pub struct View {
    /// Everything that can be read. Blocks that cannot be read are zeros in it.
    pub snapshot: Snapshot,
    /// Paths that cannot be read completely, and why. If a directory cannot be read, nothing below it is listed.
    pub lost: BTreeMap<String, FsError>,
    /// The blocks of files that cannot be read.
    pub unreadable: BTreeMap<String, BTreeSet<u64>>,
}

impl View {
    /// Whether no path misses more than one block. A corrupt block of data may be in several files, once in each.
    pub fn misses_one_block_at_most(&self) -> bool {
        self.lost.keys().all(|path| self.unreadable.get(path).is_some_and(|blocks| blocks.len() == 1))
    }

    /// Whether everything that can be read agrees with this state.
    pub fn agrees(&self, state: &Snapshot) -> bool {
        self.difference(state).is_none()
    }

    /// The first difference between this state and what can be read.
    pub fn difference(&self, state: &Snapshot) -> Option<String> {
        let more = self.snapshot.items.keys().find(|path| !state.items.contains_key(*path));
        let more = more.map(|path| format!("/{path} should not be there"));
        more.or_else(|| state.items.iter().find_map(|(path, item)| self.difference_at(path, item)))
    }

    fn difference_at(&self, path: &str, item: &Item) -> Option<String> {
        let Some(given) = self.snapshot.items.get(path) else {
            let is_lost = |lost: &String| lost.is_empty() || path == lost || is_below(path, lost);
            return (!self.lost.keys().any(is_lost)).then(|| format!("/{path} is missing"));
        };
        let nothing = BTreeSet::new();
        let unreadable = self.unreadable.get(path).unwrap_or(&nothing);
        // If an inode has several names, the first may be lost.
        let given = Item { same_as: item.same_as.clone(), ..given.clone() };
        if !given.same_attributes(item) || given.content.size() != item.content.size() {
            return Some(format!("/{path} has other attributes, or another size"));
        }
        let mut blocks = given.content.blocks().chain(item.content.blocks());
        let wrong = blocks.find(|block| {
            !unreadable.contains(block) && given.content.block(*block) != item.content.block(*block)
        });
        wrong.map(|block| format!("block {block} of /{path} is {}", given.content.brief(block)))
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Everything visible, and what cannot be read. Only errors of the device may be the reason.
pub fn view(fs: &Fs) -> Result<View, Wrong> {
    let (lost, unreadable) = (BTreeMap::new(), BTreeMap::new());
    let mut walk = Walk { fs, items: BTreeMap::new(), inodes: BTreeMap::new(), lost, unreadable };
    walk.visit(String::new(), InodeNo::ROOT)?;
    let (lost, unreadable) = (std::mem::take(&mut walk.lost), std::mem::take(&mut walk.unreadable));
    Ok(View { snapshot: Snapshot { items: walk.finish() }, lost, unreadable })
}

struct Walk<'a> {
    fs: &'a Fs,
    items: BTreeMap<String, Item>,
    /// The inode of each path.
    inodes: BTreeMap<String, InodeNo>,
    lost: BTreeMap<String, FsError>,
    unreadable: BTreeMap<String, BTreeSet<u64>>,
}

impl Walk<'_> {
    fn visit(&mut self, path: String, inode: InodeNo) -> Result<(), Wrong> {
        let item = match self.look(&path, inode) {
            Ok(item) => item,
            Err(error) => return self.lose(&path, error),
        };
        if item.kind == Kind::Directory {
            match self.children(inode) {
                Ok(children) => self.visit_all(&path, children)?,
                Err(error) => self.lose(&path, error)?,
            }
        }
        self.inodes.insert(path.clone(), inode);
        self.items.insert(path, item);
        Ok(())
    }

    fn visit_all(&mut self, path: &str, children: Vec<(String, InodeNo)>) -> Result<(), Wrong> {
        for (name, child) in children {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.visit(below, child)?;
        }
        Ok(())
    }

    fn lose(&mut self, path: &str, error: FsError) -> Result<(), Wrong> {
        match error {
            FsError::Io(_) | FsError::NoMemory => drop(self.lost.insert(path.to_owned(), error)),
            error => return Err(Wrong(format!("look at /{path}: {error}"))),
        }
        Ok(())
    }

    /// Names and inodes of a directory. Each name is also looked up.
    fn children(&self, inode: InodeNo) -> Result<Vec<(String, InodeNo)>, FsError> {
        let handle = self.fs.open(&caller(), inode, READING)?;
        let mut children = Vec::new();
        self.fs.read_directory(&handle, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                children.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.inode));
            }
            true
        })?;
        for (name, child) in &children {
            if self.fs.lookup(&caller(), inode, name.as_bytes())?.inode != *child {
                return Err(FsError::Stale);
            }
        }
        Ok(children)
    }

    fn look(&mut self, path: &str, inode: InodeNo) -> Result<Item, FsError> {
        let attributes = self.fs.attributes(inode)?;
        let (mut target, mut content) = (String::new(), Content::new(self.block_size()));
        let kind = match attributes.kind {
            fs::Kind::Directory => Kind::Directory,
            fs::Kind::Symlink => {
                target = String::from_utf8_lossy(&self.fs.read_link(inode)?).into_owned();
                Kind::Symlink
            }
            _ => {
                content = self.content(path, &attributes)?;
                Kind::File
            }
        };
        let links = if kind == Kind::Directory { 0 } else { attributes.links };
        let permissions = attributes.permissions;
        let xattrs = xattrs(self.fs, inode)?;
        let content = Arc::new(content);
        Ok(Item { kind, permissions, links, same_as: String::new(), xattrs, target, content })
    }

    fn block_size(&self) -> usize {
        self.fs.extents().block_size() as usize
    }

    fn content(&mut self, path: &str, attributes: &Attributes) -> Result<Content, FsError> {
        let handle = self.fs.open(&caller(), attributes.inode, READING)?;
        let bytes = match read_all(self.fs, &handle, attributes.size) {
            Err(FsError::Io(_) | FsError::NoMemory) => self.blocks(path, &handle, attributes.size)?,
            bytes => bytes?,
        };
        Ok(Content::of(self.block_size(), &bytes))
    }

    /// The bytes of a file block by block, with zeros for blocks that cannot be read.
    fn blocks(&mut self, path: &str, handle: &fs::Handle, size: u64) -> Result<Vec<u8>, FsError> {
        let (mut bytes, block_size) = (vec![0; size as usize], self.block_size());
        for (number, block) in (0..).zip(bytes.chunks_mut(block_size)) {
            match self.fs.read(handle, number * block_size as u64, block) {
                Ok(read) if read == block.len() => {}
                Ok(read) => {
                    return Err(FsError::Io(format!("block {number}: {read} of {} bytes", block.len())));
                }
                Err(error @ (FsError::Io(_) | FsError::NoMemory)) => {
                    self.lost.insert(path.to_owned(), error);
                    self.unreadable.entry(path.to_owned()).or_default().insert(number);
                    block.fill(0);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    /// Links the paths of one inode to the first of them.
    fn finish(mut self) -> BTreeMap<String, Item> {
        let mut first: BTreeMap<InodeNo, String> = BTreeMap::new();
        for (path, item) in &mut self.items {
            item.same_as = first.entry(self.inodes[path]).or_insert_with(|| path.clone()).clone();
        }
        self.items
    }
}

/// All extended attributes of an inode.
pub(super) fn xattrs(fs: &Fs, inode: InodeNo) -> Result<BTreeMap<String, Vec<u8>>, FsError> {
    let mut xattrs = BTreeMap::new();
    for name in fs.list_xattrs(&caller(), inode)? {
        let value = fs.get_xattr(&caller(), inode, &name)?;
        xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    Ok(xattrs)
}

/// All bytes of an open file.
pub(super) fn read_all(fs: &Fs, handle: &fs::Handle, size: u64) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    while at < bytes.len() {
        match fs.read(handle, at as u64, &mut bytes[at..])? {
            0 => return Err(FsError::Io(format!("the file ends at {at} of {size} bytes"))),
            read => at += read,
        }
    }
    Ok(bytes)
}
