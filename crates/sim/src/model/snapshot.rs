//! The visible part of a file system by path, either of the model or of a found volume.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{Body, Content, Model, Number, ROOT};
use crate::digest::Digest;

/// Kinds of files in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Kind {
    File,
    Directory,
    Symlink,
}

/// The item at a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub permissions: u16,
    /// The number of its names; 0 for directories, whose count has no information of its own.
    pub links: u32,
    /// The first path, in order, of the same inode.
    pub same_as: String,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// The target of a symbolic link.
    pub target: String,
    /// The bytes of a file.
    pub content: Arc<Content>,
}

/// All paths and their items. The root is the empty path.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// By path.
    pub items: BTreeMap<String, Item>,
}

impl Snapshot {
    /// Equal snapshots have equal digests.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        for (path, item) in &self.items {
            digest.bytes(path.as_bytes()).number(item.kind as u64).number(item.permissions.into());
            digest.number(item.links.into()).bytes(item.same_as.as_bytes()).bytes(item.target.as_bytes());
            for (name, value) in &item.xattrs {
                digest.bytes(name.as_bytes()).bytes(value);
            }
            digest.number(item.content.hash());
        }
        digest.finish()
    }

    /// How `found` differs from this, one line for each difference.
    pub fn difference(&self, found: &Snapshot) -> String {
        let mut lines = String::new();
        for (path, item) in &self.items {
            let line = match found.items.get(path) {
                None => format!("/{path} is missing"),
                Some(other) => match item.difference(other) {
                    Some(what) => format!("/{path}: {what}"),
                    None => continue,
                },
            };
            writeln!(lines, "{line}").expect("a string takes everything");
        }
        for path in found.items.keys().filter(|path| !self.items.contains_key(*path)) {
            writeln!(lines, "/{path} should not be there").expect("a string takes everything");
        }
        lines
    }

    /// The items at and below a directory of the root, as if that were the root.
    pub fn below(&self, directory: &str) -> Snapshot {
        let inner = |path: &str| match path.strip_prefix(directory)? {
            "" => Some(String::new()),
            rest => rest.strip_prefix('/').map(str::to_owned),
        };
        // An inode with its first name elsewhere keeps that name, and so differs from every state that may be found.
        let moved = |item: &Item| {
            let same_as = inner(&item.same_as).unwrap_or_else(|| item.same_as.clone());
            Item { same_as, ..item.clone() }
        };
        let items = self.items.iter().filter_map(|(path, item)| Some((inner(path)?, moved(item))));
        Snapshot { items: items.collect() }
    }

    /// The names, links and attributes, without the bytes of files.
    pub fn same_names(&self, other: &Snapshot) -> bool {
        self.items.len() == other.items.len()
            && self
                .items
                .iter()
                .zip(&other.items)
                .all(|((path, item), (other_path, other))| path == other_path && item.same_attributes(other))
    }
}

impl Item {
    /// Everything except the bytes.
    pub fn same_attributes(&self, other: &Item) -> bool {
        (self.kind, self.permissions, self.links) == (other.kind, other.permissions, other.links)
            && (&self.same_as, &self.xattrs, &self.target) == (&other.same_as, &other.xattrs, &other.target)
    }

    fn difference(&self, found: &Item) -> Option<String> {
        if self == found {
            return None;
        }
        let (size, found_size) = (self.content.size(), found.content.size());
        Some(if !self.same_attributes(found) {
            let attributes = |item: &Item| {
                let Item { kind, permissions, links, same_as, xattrs, target, .. } = item;
                format!("{kind:?} {permissions:o}, {links} links, as /{same_as}, {xattrs:?} {target:?}")
            };
            format!("is {}, not {}", attributes(found), attributes(self))
        } else if size != found_size {
            format!("has {found_size} bytes, not {size}")
        } else {
            let block = self.first_difference(found).expect("items differ in something");
            format!("block {block} is {}, not {}", found.content.brief(block), self.content.brief(block))
        })
    }

    fn first_difference(&self, other: &Item) -> Option<u64> {
        let blocks = self.content.blocks().chain(other.content.blocks());
        blocks.filter(|&block| self.content.block(block) != other.content.block(block)).min()
    }
}

impl Model {
    /// The visible part. Files without names are not visible.
    pub fn snapshot(&self) -> Snapshot {
        let mut items = BTreeMap::new();
        self.walk(ROOT, String::new(), &mut items);
        let mut first: BTreeMap<Number, String> = BTreeMap::new();
        let items = items.into_iter().map(|(path, number)| {
            let same_as = first.entry(number).or_insert_with(|| path.clone()).clone();
            (path, self.item(number, same_as))
        });
        Snapshot { items: items.collect() }
    }

    fn walk(&self, number: Number, path: String, into: &mut BTreeMap<String, Number>) {
        if let Body::Directory(entries) = &self.node(number).body {
            for (name, &child) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                self.walk(child, path, into);
            }
        }
        into.insert(path, number);
    }

    fn item(&self, number: Number, same_as: String) -> Item {
        let node = self.node(number);
        let empty = || Arc::new(Content::new(self.block_size));
        let (kind, target, content, links) = match &node.body {
            Body::Directory(_) => (Kind::Directory, String::new(), empty(), 0),
            Body::Symlink(target) => (Kind::Symlink, target.clone(), empty(), node.links),
            Body::File(content) => (Kind::File, String::new(), Arc::clone(content), node.links),
        };
        let (permissions, xattrs) = (node.permissions, node.xattrs.clone());
        Item { kind, permissions, links, same_as, xattrs, target, content }
    }

    /// The model of a found state, without handles and earlier versions.
    pub fn of(found: &Snapshot, block_size: usize) -> Self {
        let mut model = Model::new(block_size);
        let mut numbers: BTreeMap<&str, Number> = BTreeMap::new();
        for (path, item) in &found.items {
            let known = numbers.get(item.same_as.as_str()).copied();
            let number = match (path.as_str(), known) {
                ("", _) => ROOT,
                (_, Some(number)) => number,
                (_, None) => model.next,
            };
            model.next = model.next.max(number + 1);
            numbers.insert(path, number);
            model.nodes.insert(number, Arc::new(item.node()));
        }
        for (path, &number) in numbers.iter().filter(|(path, _)| !path.is_empty()) {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            model.entries_mut(numbers[parent]).insert(name.to_owned(), number);
        }
        model
    }
}

impl Item {
    fn node(&self) -> super::Node {
        let mut content = self.content.as_ref().clone();
        content.settle();
        let body = match self.kind {
            Kind::Directory => Body::Directory(BTreeMap::new()),
            Kind::Symlink => Body::Symlink(self.target.clone()),
            Kind::File => Body::File(Arc::new(content)),
        };
        let (permissions, xattrs) = (self.permissions, self.xattrs.clone());
        super::Node { permissions, links: self.links.max(1), xattrs, body }
    }
}
