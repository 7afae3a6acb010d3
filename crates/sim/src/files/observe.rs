//! Looks at a mounted file system as a user would: by path, reading everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use fs::{Attributes, Caller, Fs, FsError, InodeNo, OpenFlags};

use crate::caught::Wrong;
use crate::model::{Content, Item, Kind, Snapshot};

/// Root, unchecked.
pub(super) fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

/// For reading.
pub(super) const READING: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, sync: false };

/// Everything that can be seen.
pub(super) fn snapshot(fs: &Fs) -> Result<Snapshot, Wrong> {
    let mut walk = Walk { fs, items: BTreeMap::new(), inodes: BTreeMap::new() };
    walk.visit(String::new(), InodeNo::ROOT)
        .map_err(|(path, error)| Wrong(format!("look at /{path}: {error}")))?;
    Ok(Snapshot { items: walk.finish() })
}

struct Walk<'a> {
    fs: &'a Fs,
    items: BTreeMap<String, Item>,
    /// Of each path.
    inodes: BTreeMap<String, InodeNo>,
}

type Seen<T> = Result<T, (String, FsError)>;

impl Walk<'_> {
    fn visit(&mut self, path: String, inode: InodeNo) -> Seen<()> {
        let item = self.look(inode).map_err(|error| (path.clone(), error))?;
        let children = match item.kind {
            Kind::Directory => self.children(inode).map_err(|error| (path.clone(), error))?,
            _ => Vec::new(),
        };
        for (name, child) in children {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.visit(below, child)?;
        }
        self.inodes.insert(path.clone(), inode);
        self.items.insert(path, item);
        Ok(())
    }

    /// Names and inodes of a directory, looked up again by name.
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
                return Err(FsError::Io(format!("{name} is listed as {child:?} and found as another")));
            }
        }
        Ok(children)
    }

    fn look(&self, inode: InodeNo) -> Result<Item, FsError> {
        let attributes = self.fs.attributes(inode)?;
        let (mut target, mut content) = (String::new(), Content::new(self.block_size()));
        let kind = match attributes.kind {
            fs::Kind::Directory => Kind::Directory,
            fs::Kind::Symlink => {
                target = String::from_utf8_lossy(&self.fs.read_link(inode)?).into_owned();
                Kind::Symlink
            }
            _ => {
                content = self.content(&attributes)?;
                Kind::File
            }
        };
        let links = if kind == Kind::Directory { 0 } else { attributes.links };
        let permissions = attributes.permissions;
        let xattrs = self.xattrs(inode)?;
        let content = Arc::new(content);
        Ok(Item { kind, permissions, links, same_as: String::new(), xattrs, target, content })
    }

    fn block_size(&self) -> usize {
        self.fs.extents().block_size() as usize
    }

    fn content(&self, attributes: &Attributes) -> Result<Content, FsError> {
        let handle = self.fs.open(&caller(), attributes.inode, READING)?;
        Ok(Content::of(self.block_size(), &read_all(self.fs, &handle, attributes.size)?))
    }

    fn xattrs(&self, inode: InodeNo) -> Result<BTreeMap<String, Vec<u8>>, FsError> {
        let mut xattrs = BTreeMap::new();
        for name in self.fs.list_xattrs(inode)? {
            let value = self.fs.get_xattr(&caller(), inode, &name)?;
            xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        Ok(xattrs)
    }

    /// Paths of one inode know each other by the first of them.
    fn finish(mut self) -> BTreeMap<String, Item> {
        let mut first: BTreeMap<InodeNo, String> = BTreeMap::new();
        for (path, item) in &mut self.items {
            item.same_as = first.entry(self.inodes[path]).or_insert_with(|| path.clone()).clone();
        }
        self.items
    }
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
