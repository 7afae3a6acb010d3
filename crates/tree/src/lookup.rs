//! Reading: from a key to its leaf.
//!
//! Look-ups hold the group's lock shared while they walk over nodes in memory. A missing node ends the walk with its
//! id. Then the lock is released, the node is read, and the walk begins again with that node pinned. So no I/O happens
//! under a tree's lock.

use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache::Node;
use crate::page::Page;
use crate::readahead::{NEXT_LEAVES, NextLeaves, request_len};
use crate::trees::Trees;
use crate::types::{Group, Key, NodeId, Result, Table, tree_key};

/// How often a walk may find a node that has just been freed.
const RETRIES_MAX: usize = 100;

/// Nodes that an operation pins in memory.
#[derive(Default)]
pub(crate) struct Pins {
    nodes: Vec<Arc<Node>>,
    vain: usize,
}

/// A node that must be read before the walk can go on.
pub(crate) enum Miss {
    /// It is not in memory. If it is a leaf, the leaves behind it are named as well.
    Absent(NodeId, NextLeaves),
    /// Its level or group differs from the one expected on the path.
    Misplaced(NodeId),
}

/// A path from the root to a leaf: each node, and the index of the entry that leads to the next one.
pub(crate) type Path = SmallVec<[(Arc<Node>, usize); 4]>;

impl Trees {
    /// Walks to the leaf where `key` belongs; the group's lock is held.
    pub(crate) fn path(&self, group: Group, key: &[u8]) -> std::result::Result<Path, Miss> {
        let mut path = Path::new();
        let mut id = group.root();
        let mut level = None;
        loop {
            let Some(node) = self.nodes.cache.get(id) else {
                let following = path.last().filter(|_| level == Some(0));
                let following =
                    following.map(|(parent, branch)| next_leaves_of(parent, *branch, NEXT_LEAVES));
                return Err(Miss::Absent(id, following.unwrap_or_default()));
            };
            let seen = node.look();
            let page = &*seen.page;
            // Levels fall by one on the way down, so no walk is endless.
            if page.group() != group || level.is_some_and(|level| page.level() != level) {
                return Err(Miss::Misplaced(id));
            }
            let mut branch = 0;
            if page.level() > 0 {
                branch = page.branch(key);
                id = page.child(branch);
            }
            level = page.level().checked_sub(1);
            drop(seen);
            if level.is_none()
                && node.take_leading()
                && let Some((parent, branch)) = path.last()
            {
                self.nodes.readahead.request(next_leaves_of(
                    parent,
                    *branch,
                    request_len(self.nodes.cache.limit()),
                ));
            }
            path.push((node, branch));
            if level.is_none() {
                return Ok(path);
            }
        }
    }

    /// Repeats `walk` under the group's shared lock until all the nodes it needs are in memory.
    fn walking<T>(&self, group: Group, mut walk: impl FnMut() -> std::result::Result<T, Miss>) -> Result<T> {
        let mut pins = Pins::default();
        loop {
            let missed = {
                let _shared = self.groups[usize::from(group.0)].read();
                match walk() {
                    Ok(found) => return Ok(found),
                    Err(miss) => miss,
                }
            };
            self.pin(&mut pins, missed)?;
        }
    }

    /// Reads the node that ended a walk and pins it for the next walk.
    ///
    /// While writers run, a node may be freed between the walk that named it and this call. The next walk does not
    /// find it again. A node that is named again and again and has no place is damage.
    pub(crate) fn pin(&self, pins: &mut Pins, miss: Miss) -> Result<()> {
        let (id, following) = match miss {
            Miss::Absent(id, following) => (id, following),
            Miss::Misplaced(id) => return self.nodes.damaged(format!("node {} is not at its address", id.0)),
        };
        match self.nodes.load_with(id, self.nodes.readahead.with(id, &following))? {
            Some(node) => pins.nodes.push(node),
            None => pins.vain += 1,
        }
        if pins.vain > RETRIES_MAX {
            return self.nodes.damaged(format!("node {} of a tree has no address", id.0));
        }
        Ok(())
    }

    pub(crate) fn look<T>(
        &self,
        group: Group,
        table: Table,
        key: &[u8],
        see: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let key = tree_key(table, key);
        let mut see = Some(see);
        self.walking(group, || {
            let path = self.path(group, &key)?;
            let page = &leaf_of(&path).look().page;
            let found = page.search(&key).ok();
            Ok(found.and_then(|index| see.take().map(|see| see(page.value(index)))))
        })
    }

    pub(crate) fn visit(
        &self,
        group: Group,
        table: Table,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = if to.is_empty() { tree_key(Table(table.0 + 1), &[]) } else { tree_key(table, to) };
        let mut next = Some(tree_key(table, from));
        while let Some(start) = next.take()
            && start < end
        {
            next = self.walking(group, || {
                let path = self.path(group, &start)?;
                Ok(visit_leaf(&path, &start, &end, &mut each))
            })?;
        }
        Ok(())
    }

    pub(crate) fn floor<T>(
        &self,
        group: Group,
        table: Table,
        key: &[u8],
        see: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Result<Option<T>> {
        let key = tree_key(table, key);
        let mut see = Some(see);
        self.walking(group, || {
            let mut see_entry = |page: &Page, index| {
                // An entry of another table does not count.
                let key = page.key(index).strip_prefix(&[table.0])?;
                see.take().map(|see| see(key, page.value(index)))
            };
            let path = self.path(group, &key)?;
            let in_leaf = {
                let page = &leaf_of(&path).look().page;
                let index = page.search(&key).map_or_else(|behind| behind.checked_sub(1), Some);
                index.map(|index| see_entry(page, index))
            };
            // The leaf is not locked while other nodes are looked up.
            in_leaf.map_or_else(|| self.last_before(&path, see_entry), Ok)
        })
    }

    /// Passes the last entry of the leaf to the left of this path's leaf to `see`.
    fn last_before<T>(
        &self,
        path: &Path,
        see: impl FnOnce(&Page, usize) -> Option<T>,
    ) -> std::result::Result<Option<T>, Miss> {
        let Some((node, branch)) = path.iter().rev().skip(1).find(|(_, branch)| *branch > 0) else {
            return Ok(None);
        };
        let mut above = node.page();
        let mut id = above.child(branch - 1);
        loop {
            let page = self.nodes.cache.get(id).ok_or_else(|| Miss::Absent(id, NextLeaves::new()))?.page();
            if page.group() != above.group() || page.level().checked_add(1) != Some(above.level()) {
                return Err(Miss::Misplaced(id));
            }
            let Some(last) = page.count().checked_sub(1) else { return Ok(None) };
            if page.level() == 0 {
                return Ok(see(&page, last));
            }
            id = page.child(last);
            above = page;
        }
    }
}

/// The leaves behind the one at this branch.
fn next_leaves_of(parent: &Node, branch: usize, most: usize) -> NextLeaves {
    let parent = &parent.look().page;
    (branch + 1..parent.count()).take(most).map(|branch| parent.child(branch)).collect()
}

/// Passes the entries of a path's leaf from `start` on. Returns where the next leaf begins, if there may be more
/// entries.
fn visit_leaf(
    path: &Path,
    start: &[u8],
    end: &[u8],
    each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Option<Key> {
    let page = &leaf_of(path).look().page;
    let first = page.search(start).unwrap_or_else(|index| index);
    for index in first..page.count() {
        let key = page.key(index);
        if key >= end || each(&key[1..], page.value(index)).is_break() {
            return None;
        }
    }
    path.iter().rev().skip(1).find_map(|(node, branch)| {
        let page = &node.look().page;
        (branch + 1 < page.count()).then(|| Key::from_slice(page.key(branch + 1)))
    })
}

/// The leaf that a path leads to.
pub(crate) fn leaf_of(path: &Path) -> &Arc<Node> {
    &path.last().expect("a path has a leaf").0
}
