//! The reference model of the file system: simple maps.
//!
//! It gives the result of each operation and the tree afterwards. A file also keeps all versions of its blocks since
//! its last acknowledged fsync, because the crash contract lets each block be any of them ([`crate::allowed`]).
//!
//! It has no permission checks (the simulator is root), no times, and no crashes. An unlinked inode with a handle is
//! simply not part of the state that a later mount may find.

mod content;
mod operation;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use content::Content;
pub use operation::{File, Operation, bytes as operation_bytes};
pub use snapshot::{Item, Kind, Snapshot};

use fs::FsError;

/// The number of an inode of the model.
pub type Number = u64;

/// The result of an operation, with the error of a refused one.
pub type Result<T> = std::result::Result<T, FsError>;

const ROOT: Number = 1;

/// A whole file system. Clones share their common parts.
#[derive(Clone, Debug)]
pub struct Model {
    block_size: usize,
    nodes: BTreeMap<Number, Arc<Node>>,
    next: Number,
    /// Open inodes, by the number of the handle.
    held: BTreeMap<u8, Number>,
}

/// An inode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) permissions: u16,
    pub(crate) links: u32,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Directory(BTreeMap<String, Number>),
    File(Arc<Content>),
    Symlink(String),
}

impl Node {
    fn new(permissions: u16, body: Body) -> Self {
        Node { permissions, links: 1, xattrs: BTreeMap::new(), body }
    }

    fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }
}

impl Model {
    /// An empty root directory.
    pub fn new(block_size: usize) -> Self {
        let root = Arc::new(Node::new(0o755, Body::Directory(BTreeMap::new())));
        Model { block_size, nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, held: BTreeMap::new() }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Performs an operation. A refused operation changes nothing.
    pub fn apply(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Create { path } => self.insert(path, Node::new(0o644, self.empty_file())),
            Operation::MakeDirectory { path } => {
                self.insert(path, Node::new(0o755, Body::Directory(BTreeMap::new())))
            }
            Operation::Symlink { target, path } => {
                self.insert(path, Node::new(0o777, Body::Symlink(target.clone())))
            }
            Operation::Link { from, to } => self.link(from, to),
            Operation::Unlink { path } => self.unlink(path),
            Operation::RemoveDirectory { path } => self.remove_directory(path),
            Operation::Rename { from, to } => self.rename(from, to),
            Operation::Exchange { a, b } => self.exchange(a, b),
            Operation::SetPermissions { .. } | Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => {
                self.change_attributes(operation)
            }
            Operation::Hold { path, handle } => self.hold(path, *handle),
            Operation::Temporary { handle } => self.temporary(*handle),
            Operation::Release { handle } => self.release(*handle),
            Operation::FsyncDirectory { path } => self.directory(self.resolve(path)?).map(|_| ()),
            Operation::Clone { from, offset, file, at, length } => {
                let bytes = self.content(from)?.bytes();
                let length =
                    if *length == 0 { (bytes.len() as u64).saturating_sub(*offset) } else { *length };
                let end = offset.checked_add(length).filter(|end| *end <= bytes.len() as u64);
                let end = end.ok_or(FsError::Invalid)?;
                let block = self.block_size as u64;
                let is_whole = |at: u64| at.is_multiple_of(block);
                let overlaps = *at < end && *offset < at + length;
                if overlaps && self.number(from)? == self.number(file)? {
                    return Err(FsError::Invalid);
                }
                let target = self.content_mut(file)?;
                let ends = is_whole(end) || end == bytes.len() as u64 && at + length >= target.size();
                if !(is_whole(*offset) && is_whole(*at) && ends) {
                    return Err(FsError::Invalid);
                }
                target.write(*at, &bytes[*offset as usize..end as usize]);
                Ok(())
            }
            _ => match operation.file() {
                Some(file) => self.change_content(file, operation),
                None => Ok(()),
            },
        }
    }

    fn change_attributes(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::SetPermissions { file, permissions } => {
                let number = self.number(file)?;
                self.node_mut(number).permissions = *permissions;
            }
            Operation::SetXattr { file, name, value } => {
                let number = self.number(file)?;
                self.node_mut(number).xattrs.insert(name.clone(), value.clone());
            }
            Operation::RemoveXattr { file, name } => {
                let number = self.number(file)?;
                self.node_mut(number).xattrs.remove(name).ok_or(FsError::NoAttribute)?;
            }
            other => unreachable!("{other} changes no attribute"),
        }
        Ok(())
    }

    fn change_content(&mut self, file: &File, operation: &Operation) -> Result<()> {
        let content = self.content_mut(file)?;
        match operation {
            Operation::Write { offset, length, tag, .. } => {
                content.write(*offset, &operation_bytes(*tag, *length));
            }
            Operation::Append { length, tag, .. } => {
                content.write(content.size(), &operation_bytes(*tag, *length));
            }
            Operation::Truncate { size, .. } => content.truncate(*size),
            Operation::Punch { offset, length, .. } => content.punch(*offset, *length),
            Operation::Allocate { offset, length, keep_size, clear, .. } => {
                if !keep_size {
                    content.truncate(content.size().max(offset + length));
                }
                if *clear {
                    content.punch(*offset, *length);
                }
            }
            Operation::Collapse { offset, length, .. } => content.collapse(*offset, *length)?,
            Operation::Insert { offset, length, .. } => content.insert(*offset, *length)?,
            Operation::Fsync { .. } | Operation::ReadBack { .. } => {}
            other => unreachable!("{other} changes no bytes"),
        }
        Ok(())
    }

    /// An fsync of this file was acknowledged: its blocks have only one version now.
    pub fn settle(&mut self, file: &File) {
        if let Ok(content) = self.content_mut(file) {
            content.settle();
        }
    }

    /// Everything was acknowledged.
    pub fn settle_all(&mut self) {
        for number in self.nodes.keys().copied().collect::<Vec<_>>() {
            if let Body::File(content) = &mut self.node_mut(number).body {
                Arc::make_mut(content).settle();
            }
        }
    }

    /// The contents of a handle or a path.
    pub fn content(&self, file: &File) -> Result<&Content> {
        match &self.node(self.number(file)?).body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) => Err(FsError::Invalid),
        }
    }

    /// The number of a file's names.
    pub fn links(&self, file: &File) -> Result<u32> {
        Ok(self.node(self.number(file)?).links)
    }

    /// The permissions and extended attributes of a file.
    pub fn attributes(&self, file: &File) -> Result<(u16, &BTreeMap<String, Vec<u8>>)> {
        let node = self.node(self.number(file)?);
        Ok((node.permissions, &node.xattrs))
    }

    /// The bytes of a file by its number, while the file exists.
    pub fn content_of(&self, number: Number) -> Option<&Content> {
        match &self.nodes.get(&number)?.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// The inode at a path.
    pub fn number_at(&self, path: &str) -> Option<Number> {
        self.resolve(path).ok()
    }

    /// The paths of all inodes of a kind, in order.
    pub fn paths(&self, wanted: Kind) -> Vec<String> {
        let items = self.snapshot().items;
        items.into_iter().filter(|(_, item)| item.kind == wanted).map(|(path, _)| path).collect()
    }

    fn empty_file(&self) -> Body {
        Body::File(Arc::new(Content::new(self.block_size)))
    }

    pub(crate) fn node(&self, number: Number) -> &Node {
        self.nodes.get(&number).expect("numbers in the model name nodes")
    }

    fn node_mut(&mut self, number: Number) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&number).expect("numbers in the model name nodes"))
    }

    fn number(&self, file: &File) -> Result<Number> {
        match file {
            File::Path(path) => self.resolve(path),
            File::Held(handle) => self.held.get(handle).copied().ok_or(FsError::BadHandle),
        }
    }

    fn content_mut(&mut self, file: &File) -> Result<&mut Content> {
        let number = self.number(file)?;
        match &mut self.node_mut(number).body {
            Body::File(content) => Ok(Arc::make_mut(content)),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) => Err(FsError::Invalid),
        }
    }

    fn directory(&self, number: Number) -> Result<&BTreeMap<String, Number>> {
        match &self.node(number).body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(FsError::NotDirectory),
        }
    }

    fn entries_mut(&mut self, number: Number) -> &mut BTreeMap<String, Number> {
        match &mut self.node_mut(number).body {
            Body::Directory(entries) => entries,
            _ => unreachable!("a parent is a directory"),
        }
    }

    /// The inode at a path. Symbolic links are not followed.
    pub(crate) fn resolve(&self, path: &str) -> Result<Number> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |number, name| {
            self.directory(number)?.get(name).copied().ok_or(FsError::NotFound)
        })
    }

    /// The directory of a path's last name, and the name.
    fn parent<'a>(&self, path: &'a str) -> Result<(Number, &'a str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let number = self.resolve(parent)?;
        self.directory(number)?;
        Ok((number, name))
    }

    fn insert(&mut self, path: &str, node: Node) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        if self.directory(parent)?.contains_key(name) {
            return Err(FsError::Exists);
        }
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, Arc::new(node));
        self.entries_mut(parent).insert(name.to_owned(), number);
        Ok(())
    }

    fn link(&mut self, from: &str, to: &str) -> Result<()> {
        let number = self.resolve(from)?;
        if self.node(number).is_directory() {
            return Err(FsError::NotPermitted);
        }
        let (parent, name) = self.parent(to)?;
        if self.directory(parent)?.contains_key(name) {
            return Err(FsError::Exists);
        }
        self.entries_mut(parent).insert(name.to_owned(), number);
        self.node_mut(number).links += 1;
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        let (number, (parent, name)) = (self.resolve(path)?, self.parent(path)?);
        if self.node(number).is_directory() {
            return Err(FsError::IsDirectory);
        }
        self.entries_mut(parent).remove(name);
        self.drop_link(number);
        Ok(())
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        let (number, (parent, name)) = (self.resolve(path)?, self.parent(path)?);
        if !self.directory(number)?.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.entries_mut(parent).remove(name);
        self.drop_link(number);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let (moved, (parent, name)) = (self.resolve(from)?, self.parent(from)?);
        let (new_parent, new_name) = self.parent(to)?;
        if self.node(moved).is_directory() && self.is_within(new_parent, moved) {
            return Err(FsError::Invalid);
        }
        let replaced = self.directory(new_parent)?.get(new_name).copied();
        match replaced {
            Some(replaced) if replaced == moved => return Ok(()),
            Some(replaced) => self.check_replace(moved, replaced)?,
            None => {}
        }
        self.entries_mut(parent).remove(name);
        self.entries_mut(new_parent).insert(new_name.to_owned(), moved);
        if let Some(replaced) = replaced {
            self.drop_link(replaced);
        }
        Ok(())
    }

    fn check_replace(&self, moved: Number, replaced: Number) -> Result<()> {
        match (self.node(moved).is_directory(), self.node(replaced).is_directory()) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) if !self.directory(replaced)?.is_empty() => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, a: &str, b: &str) -> Result<()> {
        let ((number_a, (parent_a, name_a)), (number_b, (parent_b, name_b))) =
            ((self.resolve(a)?, self.parent(a)?), (self.resolve(b)?, self.parent(b)?));
        if self.is_within(parent_b, number_a) || self.is_within(parent_a, number_b) {
            return Err(FsError::Invalid);
        }
        self.entries_mut(parent_a).insert(name_a.to_owned(), number_b);
        self.entries_mut(parent_b).insert(name_b.to_owned(), number_a);
        Ok(())
    }

    /// Whether `number` is `above` or below it.
    fn is_within(&self, number: Number, above: Number) -> bool {
        number == above
            || match &self.node(above).body {
                Body::Directory(entries) => entries.values().any(|&child| self.is_within(number, child)),
                _ => false,
            }
    }

    fn hold(&mut self, path: &str, handle: u8) -> Result<()> {
        let number = self.resolve(path)?;
        assert!(self.held.insert(handle, number).is_none(), "handle {handle} is held once");
        Ok(())
    }

    /// A file without a name.
    fn temporary(&mut self, handle: u8) -> Result<()> {
        let mut node = Node::new(0o600, self.empty_file());
        node.links = 0;
        assert!(self.held.insert(handle, self.next).is_none(), "handle {handle} is held once");
        self.nodes.insert(self.next, Arc::new(node));
        self.next += 1;
        Ok(())
    }

    fn release(&mut self, handle: u8) -> Result<()> {
        let number = self.held.remove(&handle).ok_or(FsError::BadHandle)?;
        self.forget_if_gone(number);
        Ok(())
    }

    fn drop_link(&mut self, number: Number) {
        self.node_mut(number).links -= 1;
        self.forget_if_gone(number);
    }

    fn forget_if_gone(&mut self, number: Number) {
        let held = self.held.values().any(|&held| held == number);
        if self.node(number).links == 0 && !held {
            self.nodes.remove(&number);
        }
    }
}
