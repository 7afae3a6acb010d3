//! Transactions: admission, pinning, the point of no return, and the changes to the trees.
//!
//! Everything that can fail or wait happens before the LSN is taken. Space in the log and for dirty nodes is admitted
//! while no tree lock is held. Every node on the path to every key is in memory and pinned, and pages for the changes
//! are reserved. From the LSN on there are only changes in memory, under the locks of all groups concerned. So the
//! order of LSNs is the order of effects in each group.
//!
//! Splits need only the path. An empty leaf is removed from its parent. A small leaf is merged with a neighbour if
//! that is in memory. Both happen after all changes of the transaction, because afterwards the path to a key may
//! contain nodes that are not pinned.

mod data_zones;
mod pages;

use std::borrow::Cow;
use std::sync::Arc;

use pool::Lsn;
use rt::order::Guard;
use rt::sync::RwLockWriteGuard;
use rt::sync::atomic::{AtomicU64, Ordering};
use smallvec::SmallVec;

use crate::cache::Node;
use crate::checkpoint::Checkpoints;
use crate::delta::Changes;
use crate::epoch::RunningEpoch;
use crate::headroom::Headroom;
use crate::log::Log;
use crate::lookup::{Miss, Path, Pins, leaf_of};
use crate::metadata_gc::MetadataGc;
use crate::nodes::Nodes;
use crate::page::Page;
use crate::patch::PATCHES_MAX;
use crate::record::{self, Patched};
use crate::trees::{Tree, Trees};
use crate::types::{Draw, Epoch, Group, Key, NodeId, Op, Result, StoreError, Tx, tree_key};
use crate::volume::Volume;
use crate::weight::Weight;
use crate::zones::Zones;
use pages::needed;

/// Data named by records that no flush has covered yet. A recovery would verify it.
pub(crate) const UNFLUSHED_DATA_MAX: u64 = 256 << 20;

/// The trees of a transaction, locked in the order of their groups.
type LockedTrees<'a> = SmallVec<[(Group, Guard<RwLockWriteGuard<'a, Tree>>); 2]>;

/// A write to a tree. All nodes on the path to its key are in memory and pinned.
struct PinnedWrite<'a> {
    group: Group,
    /// The key with the number of its table.
    key: Key,
    /// None: the entry is deleted.
    value: Option<&'a [u8]>,
    path: Path,
}

/// Changes one tree. Its group's lock is held exclusively, and its transaction has its LSN.
struct Change<'a> {
    trees: &'a Trees,
    running: &'a RunningEpoch,
    tree: &'a mut Tree,
    group: Group,
    lsn: Lsn,
    epoch: Epoch,
    /// Leaves are to be written whole, not as delta records.
    writes_whole: bool,
}

/// Applies transactions.
pub(crate) struct Transactions {
    volume: Arc<Volume>,
    log: Arc<Log>,
    zones: Arc<Zones>,
    nodes: Arc<Nodes>,
    trees: Arc<Trees>,
    running: Arc<RunningEpoch>,
    headroom: Arc<Headroom>,
    checkpoints: Arc<Checkpoints>,
    gc: Arc<MetadataGc>,
    commits: AtomicU64,
    /// Bytes of data that are named by records since the last flush.
    unflushed_data: AtomicU64,
}

impl Transactions {
    pub(crate) fn new(
        trees: Arc<Trees>,
        zones: Arc<Zones>,
        log: Arc<Log>,
        running: Arc<RunningEpoch>,
        headroom: Arc<Headroom>,
        checkpoints: Arc<Checkpoints>,
        gc: Arc<MetadataGc>,
    ) -> Self {
        let (volume, nodes) = (trees.volume.clone(), trees.nodes.clone());
        let [commits, unflushed_data] = [0; 2].map(AtomicU64::new);
        Transactions {
            volume,
            log,
            zones,
            nodes,
            trees,
            running,
            headroom,
            checkpoints,
            gc,
            commits,
            unflushed_data,
        }
    }

    #[cfg(test)]
    pub(crate) fn unflushed_data(&self) -> &AtomicU64 {
        &self.unflushed_data
    }

    /// Transactions since the mount.
    pub(crate) fn count(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Applies a transaction; durable only after a sync of the LSN that this returns.
    pub(crate) fn commit(&self, mut tx: Tx) -> Result<Lsn> {
        self.volume.writable()?;
        if tx.ops.is_empty() {
            return Ok(self.log.last());
        }
        self.check_sizes(&tx.ops);
        let committed = match self.commit_with(&mut tx, false) {
            Err(StoreError::NoMemory(_)) => {
                self.free_memory()?;
                self.commit_with(&mut tx, false)
            }
            committed => committed,
        };
        match committed {
            // The missing space may be in zones that background GC would have emptied.
            Err(StoreError::NoSpace) if !self.headroom.reserve_is_whole() => self.commit_with(&mut tx, true),
            committed => committed,
        }
    }

    /// `at_once`: GC of metadata zones runs now if a zone of the reserve is missing.
    fn commit_with(&self, tx: &mut Tx, at_once: bool) -> Result<Lsn> {
        self.volume.pool.fill_lives(tx.ops.iter_mut().filter_map(Op::life_to_fill));
        // What updates change is known only when their leaves are pinned.
        let record = tx.updates.is_empty().then(|| record::encode(&tx.ops, &[]));
        let admitted = self.admit(record::encoded_bytes(&tx.ops), tx.draw, at_once)?;
        let mut pins = Pins::default();
        let (mut locked, held, promise, growing) = loop {
            let locked = self.lock_groups(&tx.ops);
            match self.find_paths(&tx.ops) {
                Ok(held) => {
                    let nodes = if tx.draw == Draw::Free { splits(&held) } else { 0 };
                    let count = if rt::is_planted("break-promise") { 0 } else { needed(&held) };
                    let promise = match self.nodes.promise(count) {
                        Ok(promise) => promise,
                        Err(error) => {
                            drop(locked);
                            self.log.return_reservation(admitted);
                            return Err(error);
                        }
                    };
                    let lacks_zones = nodes > 0 && self.headroom.lacks_zones();
                    let growing = if lacks_zones { None } else { self.trees.reserve_nodes(nodes) };
                    if let Some(growing) = growing {
                        break (locked, held, promise, growing);
                    }
                    drop((locked, promise));
                    if let Err(error) = self.try_again(lacks_zones) {
                        self.log.return_reservation(admitted);
                        return Err(error);
                    }
                }
                Err(miss) => {
                    drop(locked);
                    if let Err(error) = self.trees.pin(&mut pins, miss) {
                        self.log.return_reservation(admitted);
                        return Err(error);
                    }
                }
            }
        };
        if !self.volume.pool.accepts(tx.ops.iter().filter_map(Op::zone_change)) {
            self.log.return_reservation(admitted);
            let damage = StoreError::Corrupt(
                "a change of live blocks or of a counter contradicts the zone table".into(),
            );
            return self.volume.shut_down_on_error("metadata is damaged", Err(damage));
        }
        let record = record.unwrap_or_else(|| record::encode(&tx.ops, &patches(tx, &held)));
        let (lsn, epoch) = self.log.submit(record, admitted, |lsn| {
            self.volume.pool.apply(tx.ops.iter().filter_map(Op::zone_change), lsn, &tx.reserved);
        });
        // A transaction that frees space returns more than its changes take beside the leaves.
        let is_short = self.headroom.is_short_of_zones() && tx.draw != Draw::Reserve;
        self.apply(&mut locked, &held, (lsn, epoch), is_short);
        drop(held);
        drop(locked);
        drop(promise);
        drop(growing);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bound_unflushed_data(&tx.ops, lsn);
        Ok(lsn)
    }

    /// Writes dirty nodes out, so that they can be dropped. The caller holds no lock of the trees.
    fn free_memory(&self) -> Result<()> {
        let mut saving = self.checkpoints.saving.lock();
        let written = match self.running.epoch_is_long() {
            true => self.checkpoints.checkpoint_with(&mut saving),
            false => self.checkpoints.write_out(&mut saving),
        };
        match written {
            // The caller lacks memory. A lack of space is not its error.
            Err(StoreError::NoSpace) => Ok(()),
            written => written,
        }
    }

    /// Called when a transaction found no space for its nodes. Returns an error unless the transaction is to try
    /// again, which it does if metadata lacked zones and no longer does. The caller holds no lock of the trees.
    fn try_again(&self, lacked_zones: bool) -> Result<()> {
        if lacked_zones && self.gc.recount_before_refusing()? { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    fn check_sizes(&self, ops: &[Op]) {
        assert!(self.trees.sizes_are_right(ops), "groups exist, keys and values are of a length that fits");
        let bytes = record::encoded_bytes(ops);
        assert!(bytes <= self.log.record_max(), "a transaction of {bytes} bytes is too long");
    }

    fn lock_groups(&self, ops: &[Op]) -> LockedTrees<'_> {
        let mut groups: SmallVec<[Group; 8]> = ops.iter().filter_map(group_of).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().map(|group| (group, self.trees.groups[usize::from(group.0)].write())).collect()
    }

    /// The writes of a transaction with their keys in the tree, and with all nodes on the path to each.
    fn find_paths<'a>(&self, ops: &'a [Op]) -> std::result::Result<Vec<PinnedWrite<'a>>, Miss> {
        let keyed = ops.iter().filter_map(|op| match op {
            Op::Put { group, table, key, value } => Some((*group, tree_key(*table, key), Some(value))),
            Op::Delete { group, table, key } => Some((*group, tree_key(*table, key), None)),
            _ => None,
        });
        keyed
            .map(|(group, key, value)| {
                let path = self.trees.path(group, &key)?;
                Ok(PinnedWrite { group, key, value: value.map(Vec::as_slice), path })
            })
            .collect()
    }

    fn apply(
        &self,
        locked: &mut LockedTrees<'_>,
        held: &[PinnedWrite<'_>],
        (lsn, epoch): (Lsn, Epoch),
        writes_whole: bool,
    ) {
        let (mut thinned, mut is_reshaped) = (Vec::new(), false);
        let mut change_of = |group: Group, change: &mut dyn FnMut(&mut Change<'_>)| {
            let tree = locked.iter_mut().find(|(locked, _)| *locked == group);
            let (_, tree) = tree.expect("all groups of the transaction are locked");
            change(&mut Change {
                trees: &self.trees,
                running: &self.running,
                tree,
                group,
                lsn,
                epoch,
                writes_whole,
            });
        };
        for write in held {
            change_of(write.group, &mut |change| {
                // A split may have moved the key to another leaf.
                let path = if is_reshaped { &change.path(&write.key) } else { &write.path };
                match write.value {
                    Some(value) => is_reshaped |= change.put(path, &write.key, value),
                    None if change.delete(path, &write.key) => thinned.push(write),
                    None => {}
                }
            });
        }
        for write in thinned {
            change_of(write.group, &mut |change| change.tidy(&write.key));
        }
    }

    /// Replaces each patch of a record by a put of the value that it makes. `None` if a patch was made for another
    /// value than the one in the tables. No other transaction runs.
    pub(crate) fn without_patches<'a>(&self, ops: &'a [Op]) -> Result<Option<Cow<'a, [Op]>>> {
        if !ops.iter().any(|op| matches!(op, Op::Patch { .. })) {
            return Ok(Some(Cow::Borrowed(ops)));
        }
        let without = ops.iter().map(|op| match op {
            Op::Patch { group, table, key, patch } => {
                let value = self.trees.look(*group, *table, key, |old| patch.apply(old))?.flatten();
                Ok(value.map(|value| Op::Put { group: *group, table: *table, key: key.clone(), value }))
            }
            op => Ok(Some(op.clone())),
        });
        Ok(without.collect::<Result<Option<Vec<_>>>>()?.map(Cow::Owned))
    }

    /// Applies a record that recovery has accepted.
    pub(crate) fn replay(&self, ops: &[Op], lsn: Lsn, epoch: Epoch) -> Result<()> {
        let mut pins = Pins::default();
        loop {
            let mut locked = self.lock_groups(ops);
            let held = match self.find_paths(ops) {
                Ok(held) => held,
                Err(miss) => {
                    drop(locked);
                    self.trees.pin(&mut pins, miss)?;
                    continue;
                }
            };
            let _promise = self.nodes.promise(needed(&held))?;
            self.volume.pool.apply(ops.iter().filter_map(Op::zone_change), lsn, &[]);
            self.apply(&mut locked, &held, (lsn, epoch), false);
            return Ok(());
        }
    }

    pub(crate) fn sync(&self, lsn: Lsn) -> Result<()> {
        self.volume.writable()?;
        self.unflushed_data.store(0, Ordering::Relaxed);
        self.volume.shut_down_on_error("the log cannot be written", self.log.sync(lsn))
    }

    /// A transaction that has taken effect must not be reported as failed. If its data cannot be made durable, the
    /// next sync reports that.
    fn bound_unflushed_data(&self, ops: &[Op], lsn: Lsn) {
        let block_size = u64::from(self.volume.device.geometry().block_size);
        let born = |op: &Op| match op {
            Op::ZoneLive { change, .. } if *change > 0 => *change as u64 * block_size,
            _ => 0,
        };
        let bytes: u64 = ops.iter().map(born).sum();
        if bytes == 0 || self.unflushed_data.fetch_add(bytes, Ordering::Relaxed) + bytes < UNFLUSHED_DATA_MAX
        {
            return;
        }
        if let Err(error) = self.sync(lsn) {
            tracing::warn!(%error, "the data of a transaction could not be made durable");
        }
    }
}

/// The patches that the record has instead of updates. `held` contains the writes of the transaction, whose leaves
/// are not changed yet.
fn patches(tx: &Tx, held: &[PinnedWrite<'_>]) -> Vec<Patched> {
    let of_update = |&index: &usize| {
        let Op::Put { group, table, key, .. } = &tx.ops[index] else { return None };
        let is_same = |write: &&PinnedWrite<'_>| {
            write.group == *group && write.key[0] == table.0 && write.key[1..] == **key
        };
        let mut writes = held.iter().filter(is_same);
        // A patch is made for the value before the transaction.
        let (Some(write), None) = (writes.next(), writes.next()) else { return None };
        let page = &leaf_of(&write.path).look().page;
        let old = page.value(page.search(&write.key).ok()?);
        Some((index, record::shorter_patch(&tx.ops[index], old)?))
    };
    tx.updates.iter().filter_map(of_update).take(PATCHES_MAX).collect()
}

/// About how many leaves these writes split.
fn splits(held: &[PinnedWrite<'_>]) -> u64 {
    // For each leaf: the bytes by which it has grown, and its free bytes.
    let mut grown: SmallVec<[(NodeId, isize, isize); 4]> = SmallVec::new();
    let mut splits = 0;
    for write in held {
        let leaf = leaf_of(&write.path);
        let page = &leaf.look().page;
        let found = page.search(&write.key);
        let growth = match write.value {
            Some(value) => page.growth(found, write.key.len(), value.len()),
            None => -found.map_or(0, |index| page.entry_bytes(index) as isize),
        };
        let before = grown.iter().position(|(id, ..)| *id == leaf.id).unwrap_or_else(|| {
            grown.push((leaf.id, 0, page.room()));
            grown.len() - 1
        });
        let (_, all, room) = &mut grown[before];
        *all += growth;
        if *all > *room {
            // Both halves have equal space, so it does not matter which one gets the next entries.
            (*all, *room) = (0, (page.room() + page.used() as isize - growth) / 2);
            splits += 1;
        }
    }
    splits
}

fn group_of(op: &Op) -> Option<Group> {
    match op {
        Op::Put { group, .. } | Op::Patch { group, .. } | Op::Delete { group, .. } => Some(*group),
        Op::ZoneOpened { .. } | Op::ZoneLive { .. } | Op::ZoneUser { .. } | Op::Counter { .. } => None,
    }
}

impl Change<'_> {
    fn path(&self, key: &[u8]) -> Path {
        self.trees
            .path(self.group, key)
            .ok()
            .expect("every node on the path was pinned before the LSN was taken")
    }

    /// Changes the entry of a leaf under a key. Afterwards the entry has a value of this length, or does not exist.
    fn edit_entry<R>(
        &mut self,
        leaf: &Arc<Node>,
        key: &[u8],
        value: Option<usize>,
        change: impl FnOnce(&mut Page) -> R,
    ) -> R {
        let page_size = self.trees.volume.page_size();
        self.edit_noting(leaf, |changes| changes.note(key, value, page_size), change)
    }

    /// Changes several entries of a node, or changes an inner node.
    fn edit<R>(&mut self, node: &Arc<Node>, change: impl FnOnce(&mut Page) -> R) -> R {
        self.edit_noting(node, Changes::note_all, change)
    }

    /// Changes a node's newest contents. If a running checkpoint still has to write the contents before its cut, they
    /// are copied first.
    fn edit_noting<R>(
        &mut self,
        node: &Arc<Node>,
        note: impl FnOnce(&mut Changes),
        change: impl FnOnce(&mut Page) -> R,
    ) -> R {
        let mut state = node.state.write();
        assert!(!state.freed, "node {} is part of the tree", node.id.0);
        assert!(state.dirty <= Some(self.epoch), "node {} belongs to no later epoch", node.id.0);
        if state.dirty != Some(self.epoch) {
            let is_being_written = std::mem::take(&mut state.being_written);
            if state.dirty.is_some() && !is_being_written && !rt::is_planted("break-frozen") {
                assert!(state.cut_version.is_none(), "a node has one cut version");
                let cut_version = state.to_write(self.trees.nodes.mat.has_deltas());
                self.trees.nodes.cache.add_cut_version(&cut_version);
                state.cut_version = Some(cut_version);
            }
            state.dirty = Some(self.epoch);
            if self.tree.dirty.insert(node.id, Arc::clone(node)).is_none() {
                state.counted = Weight::default();
                self.running.dirty().add_node();
            }
        }
        note(&mut state.changes);
        if self.writes_whole {
            state.changes.note_all();
        }
        self.running.count_dirty(&mut state);
        let page = self.trees.nodes.unused_pages.own(&mut state.page);
        page.set_lsn(self.lsn);
        change(page)
    }

    fn new_node(&mut self, level: u8) -> Arc<Node> {
        let id = self.trees.nodes.mat.allocate();
        let mut page = Page::new(&self.trees.nodes.pages, id, self.group, level);
        page.set_lsn(self.lsn);
        self.trees.add_node();
        let node = Node::new(id, page, self.epoch);
        self.tree.dirty.insert(id, Arc::clone(&node));
        self.running.dirty().add_node();
        self.running.count_dirty(&mut node.state.write());
        self.trees.nodes.cache.insert_new(Arc::clone(&node));
        node
    }

    /// Removes the node from the tree. Contents that a checkpoint still has to write remain with the checkpoint.
    ///
    /// The id is freed last. Another group may take it at the same moment, and its new node must not be removed from
    /// the cache in place of this one.
    fn free(&mut self, node: &Arc<Node>) {
        self.trees.nodes.cache.remove(node.id);
        let was_dirty = self.tree.dirty.remove(&node.id).is_some();
        let mut state = node.state.write();
        if was_dirty {
            self.running.dirty().remove_node(&mut state.counted);
        }
        state.freed = true;
        self.trees.remove_node(&state.page);
        if let Some(place) = self.trees.nodes.mat.free(node.id) {
            self.trees.volume.pool.remove_copy(place.copy());
        }
    }

    /// Puts an entry into the leaf at the end of `path`. Returns true if nodes have been split. Then paths found
    /// before may lead to wrong leaves.
    fn put(&mut self, path: &Path, key: &[u8], value: &[u8]) -> bool {
        let leaf = leaf_of(path);
        let (found, fits) = {
            let page = &leaf.look().page;
            let found = page.search(key);
            (found, page.growth(found, key.len(), value.len()) <= page.room())
        };
        if fits {
            self.edit_entry(leaf, key, Some(value.len()), |page| page.put(found, key, value));
            return false;
        }
        if let Ok(index) = found {
            self.edit_entry(leaf, key, None, |page| page.remove(index));
        }
        let (Ok(index) | Err(index)) = found;
        self.split(path, path.len() - 1, index);
        self.put(&self.path(key), key, value);
        true
    }

    /// Splits the node at `depth` of a path, or a node above it if the parent has no space for another branch.
    fn split(&mut self, path: &Path, depth: usize, insert_at: usize) {
        let node = &path[depth].0;
        if depth == 0 {
            return self.grow(node);
        }
        let page = node.page();
        let at = page.split_point(insert_at);
        let separator = separator(&page, at);
        let (parent, branch) = &path[depth - 1];
        if !parent.page().fits(separator.len(), 8) {
            return self.split(path, depth - 1, branch + 1);
        }
        let right = self.new_node(page.level());
        let mut moved = Page::clone(&right.page());
        let trees = self.trees;
        self.edit(node, |page| {
            page.move_entries(at, &mut moved);
            trees.mark(page);
        });
        trees.mark(&mut moved);
        if page.level() > 0 {
            let first = moved.value(0).to_vec();
            moved.remove(0);
            moved.insert(0, &[], &first);
        }
        self.edit(&right, |page| *page = moved);
        self.edit(parent, |page| page.insert(branch + 1, &separator, &right.id.0.to_le_bytes()));
    }

    /// The root keeps its id: its contents move into a new node below it.
    fn grow(&mut self, root: &Arc<Node>) {
        let old = root.page();
        let child = self.new_node(old.level());
        let mut contents = Page::new(&self.trees.nodes.pages, child.id, self.group, old.level());
        Page::clone(&old).move_entries(0, &mut contents);
        self.trees.mark(&mut contents);
        self.edit(&child, |page| *page = contents);
        let mut top = Page::new(&self.trees.nodes.pages, root.id, self.group, old.level() + 1);
        top.insert(0, &[], &child.id.0.to_le_bytes());
        self.edit(root, |page| *page = top);
        let lsn = self.lsn;
        self.edit(&child, |page| page.set_lsn(lsn));
        self.edit(root, |page| page.set_lsn(lsn));
    }

    /// Returns true if the leaf is so small now that it should be merged or removed.
    fn delete(&mut self, path: &Path, key: &[u8]) -> bool {
        let leaf = leaf_of(path);
        let found = leaf.look().page.search(key);
        let Ok(index) = found else { return false };
        self.edit_entry(leaf, key, None, |page| {
            page.remove(index);
            page.is_small()
        })
    }

    /// Shrinks the tree around a leaf after deletions, if the path to it is still in memory.
    fn tidy(&mut self, key: &[u8]) {
        if let Ok(path) = self.trees.path(self.group, key) {
            self.shrink(&path);
        }
    }

    /// Removes empty nodes and merges small ones, from the leaf upwards.
    fn shrink(&mut self, path: &Path) {
        for depth in (1..path.len()).rev() {
            let (node, _) = &path[depth];
            let (parent, branch) = &path[depth - 1];
            let page = node.page();
            if page.count() == 0 {
                self.remove_branch(parent, *branch);
                self.free(node);
            } else if page.is_small() {
                self.merge(parent, *branch);
                break;
            } else {
                break;
            }
        }
        self.lower(&path[0].0);
    }

    fn remove_branch(&mut self, parent: &Arc<Node>, branch: usize) {
        self.edit(parent, |page| {
            page.remove(branch);
            if branch == 0 && page.count() > 0 {
                let first = page.value(0).to_vec();
                page.remove(0);
                page.insert(0, &[], &first);
            }
        });
    }

    /// Merges the child at `branch` with the neighbour to its left or right, if that is in memory and
    /// both fit in three quarters of a page.
    fn merge(&mut self, parent: &Arc<Node>, branch: usize) {
        let above = parent.page();
        let pairs = [branch.checked_sub(1), Some(branch).filter(|branch| branch + 1 < above.count())];
        for left_branch in pairs.into_iter().flatten() {
            let nodes = (
                self.trees.nodes.cache.get(above.child(left_branch)),
                self.trees.nodes.cache.get(above.child(left_branch + 1)),
            );
            let (Some(left), Some(right)) = nodes else { continue };
            let (left_page, right_page) = (left.page(), right.page());
            let separator = above.key(left_branch + 1);
            if left_page.used() + right_page.used() + separator.len() > left_page.capacity() / 4 * 3 {
                continue;
            }
            let trees = self.trees;
            self.edit(&left, |page| {
                append_all(page, &right_page, separator);
                trees.mark(page);
            });
            self.remove_branch(parent, left_branch + 1);
            self.free(&right);
            return;
        }
    }

    /// A root with one child takes over the child's contents, if the child is in memory. A root without children
    /// becomes a leaf.
    fn lower(&mut self, root: &Arc<Node>) {
        loop {
            let page = root.page();
            if page.level() == 0 || page.count() > 1 {
                return;
            }
            let mut lower = Page::new(&self.trees.nodes.pages, root.id, self.group, 0);
            if page.count() == 1 {
                let Some(child) = self.trees.nodes.cache.get(page.child(0)) else { return };
                let contents = child.page();
                lower = Page::new(&self.trees.nodes.pages, root.id, self.group, contents.level());
                Page::clone(&contents).move_entries(0, &mut lower);
                self.free(&child);
            }
            lower.set_lsn(self.lsn);
            self.edit(root, |page| *page = lower);
        }
    }
}

/// The shortest key that is greater than all before `at` and not greater than the one there.
fn separator(page: &Page, at: usize) -> Key {
    let right = page.key(at);
    if page.level() > 0 {
        return Key::from_slice(right);
    }
    let left = page.key(at - 1);
    let shared = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    Key::from_slice(&right[..shared + 1])
}

/// Appends the entries of the right neighbour, whose first key in an inner node is the separator.
fn append_all(page: &mut Page, right: &Page, separator: &[u8]) {
    for index in 0..right.count() {
        let key = if index == 0 && right.level() > 0 { separator } else { right.key(index) };
        page.insert(page.count(), key, right.value(index));
    }
}

/// Admission of transactions.
impl Transactions {
    /// Reserves space for a record and for the nodes that it will dirty. If there is none, takes a checkpoint, writes
    /// nodes out or runs GC. The caller holds no lock of the trees.
    fn admit(&self, bytes: usize, draw: Draw, at_once: bool) -> Result<crate::log::Admitted> {
        for _ in 0..ADMISSION_ROUNDS {
            self.volume.writable()?;
            self.bound_dirty()?;
            self.gc.space_for_metadata(draw, at_once)?;
            if let Some(admitted) = self.log.admit(bytes) {
                return Ok(admitted);
            }
            self.checkpoints.checkpoint()?;
        }
        Err(StoreError::NoSpace)
    }

    /// Limits the number of dirty nodes. If another thread takes a checkpoint, waits for its cut only.
    fn bound_dirty(&self) -> Result<()> {
        while self.running.dirty_limit_is_reached() {
            let seen = self.checkpoints.saving.passed();
            match self.checkpoints.saving.try_lock() {
                Some(mut saving) if self.running.dirty_limit_is_reached() => {
                    let is_long = self.running.epoch_is_long();
                    return if is_long {
                        self.checkpoints.checkpoint_with(&mut saving)
                    } else {
                        self.checkpoints.write_out(&mut saving)
                    };
                }
                None if self.running.dirty_limit_is_reached() => self.checkpoints.saving.wait(seen),
                _ => {}
            }
        }
        Ok(())
    }
}

/// How often a transaction may lose the space that it has helped to free to other transactions.
const ADMISSION_ROUNDS: usize = 1000;
