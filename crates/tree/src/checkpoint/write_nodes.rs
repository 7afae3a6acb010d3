//! Writing dirty nodes, whole or as delta records.

use std::sync::Arc;

use pool::Lsn;
use rt::sync::atomic::Ordering;
use zone::{Address, Cause};

use super::{Checkpoints, of_full_host};
use crate::cache::{CutVersion, Node};
use crate::delta::{self, Changes, Packed};
use crate::mat::Place;
use crate::nodes::{PAGES_AT_ONCE, PinnedChunks};
use crate::page::Page;
use crate::saving::Saving;
use crate::types::{Bytes, Epoch, Group, NodeId, Result};

/// The version of a node to write.
struct Version {
    node: Arc<Node>,
    group: Group,
    lsn: Lsn,
    /// The contents. None if a checkpoint has the delta record instead.
    page: Option<Arc<Page>>,
}

impl Version {
    fn page(&self) -> &Arc<Page> {
        self.page.as_ref().expect("a version that is written whole has the contents")
    }

    /// Whether the contents are available now. A checkpoint that has only the delta record can take them if the node
    /// is unchanged.
    fn has_page(&mut self) -> bool {
        if self.page.is_none() {
            let state = self.node.state.read();
            self.page = state.being_written.then(|| Arc::clone(&state.page));
        }
        self.page.is_some()
    }
}

impl Checkpoints {
    /// Writes dirty nodes of the running epoch, so that they need not stay in memory.
    pub(crate) fn write_out(&self, saving: &mut Saving) -> Result<()> {
        self.volume.writable()?;
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for group in &self.trees.groups {
            nodes.extend(group.read().dirty.values().cloned());
        }
        // Nodes that are not written stay dirty.
        let written = self.write_nodes(saving, nodes, None).map_err(of_full_host);
        self.volume.shut_down_on_error("writing nodes failed", written)
    }

    /// Appends nodes: for a checkpoint (`saved` is its epoch) as they were at its cut, otherwise as they are. Written
    /// nodes may be evicted while the others are written.
    pub(super) fn write_nodes(
        &self,
        saving: &mut Saving,
        nodes: Vec<Arc<Node>>,
        saved: Option<Epoch>,
    ) -> Result<()> {
        let epoch = saved.unwrap_or_else(|| self.log.epoch());
        let (mut whole, mut packed) = (Vec::new(), Packed::new(self.volume.page_size()));
        let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let mut chunks = ids.chunks(self.nodes.pages_at_once());
        let mut held = PinnedChunks::new();
        for (index, node) in nodes.into_iter().enumerate() {
            if index % self.nodes.pages_at_once() == 0 {
                held = chunks.next().map(|ids| self.nodes.pin_chunks(ids)).unwrap_or_default();
            }
            // The group's lock excludes the middle of a transaction: a node has only one version for one LSN
            // (I-TREE-3).
            let settled =
                saved.is_none().then(|| self.trees.groups[usize::from(node.page().group().0)].read());
            let Some((version, changes)) = self.version_to_write(node, saved) else { continue };
            drop(settled);
            let base =
                changes.is_some().then(|| self.base_of(&version, saved.is_some(), &mut held)).transpose()?;
            match changes.zip(base.flatten()) {
                Some((mut changes, base)) => {
                    delta::set_epoch(&mut changes, epoch);
                    packed.add(&changes, version.lsn, (version, base));
                }
                None => whole.push(version),
            }
            if whole.len() + packed.len() >= PAGES_AT_ONCE {
                // The page that is not full takes further delta records.
                let full = packed.take_full();
                self.write_versions(saving, std::mem::take(&mut whole), full, epoch, saved)?;
                if saved.is_none() {
                    // Fewer nodes are dirty, so threads that wait for that go on.
                    self.saving.pass();
                }
            }
        }
        let (mut pages, mut deltas) = packed.take();
        // A delta record alone in a page costs as much as the whole node. This can happen only in the last page.
        let alone = deltas.pop_if(|those| those.len() == 1 && those[0].0.has_page());
        if let Some(those) = alone {
            pages.pop();
            whole.extend(those.into_iter().map(|(version, _)| version));
        }
        self.write_versions(saving, whole, (pages, deltas), epoch, saved)
    }

    /// The version of a node to write, if there is one, and its changes if it is written as a delta record.
    ///
    /// A checkpoint owns what it writes from now on, so later changes of the node make no copy.
    fn version_to_write(&self, node: Arc<Node>, saved: Option<Epoch>) -> Option<(Version, Option<Bytes>)> {
        let mut state = node.state.write();
        if saved.is_none() && (state.freed || state.dirty.is_none()) {
            return None;
        }
        let changed_later = saved.is_some_and(|saved| state.dirty.is_some_and(|dirty| dirty > saved));
        let cut_version = state.cut_version.take_if(|_| saved.is_some());
        assert!(
            !changed_later || cut_version.is_some() || rt::is_planted("break-frozen"),
            "node {} was copied before it was changed after the cut",
            node.id.0
        );
        if let Some(cut_version) = &cut_version {
            self.nodes.cache.drop_cut_version(cut_version);
        }
        state.being_written = saved.is_some() && cut_version.is_none();
        let (page, changes) = match cut_version.unwrap_or_else(|| state.to_write(self.nodes.mat.has_deltas()))
        {
            CutVersion::Page(page) => (Some(page), None),
            CutVersion::Changes(changes) if saved.is_some() => (None, Some(changes)),
            CutVersion::Changes(changes) => (Some(Arc::clone(&state.page)), Some(changes)),
        };
        drop(state);
        let of_page = |page: &Arc<Page>| (page.group(), Lsn(page.header().lsn.get()));
        let of_either = changes.as_deref().map(delta::group_and_lsn).or_else(|| page.as_ref().map(of_page));
        let (group, lsn) = of_either.expect("a version has the contents or a delta record");
        Some((Version { node, group, lsn, page }, changes))
    }

    /// The base page of a leaf that is written as a delta record. `None` if the leaf has to be written whole.
    fn base_of(&self, version: &Version, saved: bool, held: &mut PinnedChunks) -> Result<Option<Address>> {
        let id = version.node.id;
        let place = if saved { self.nodes.find_saved(id)? } else { self.nodes.find_with_chunks(held, id)? };
        // A node of the running epoch may have been freed meanwhile. Then it no longer matters where it is written.
        assert!(!place.is_nowhere() || !saved, "node {} has been written before", id.0);
        Ok((!place.is_nowhere()).then(|| place.whole_page()))
    }

    fn write_versions(
        &self,
        saving: &mut Saving,
        whole: Vec<Version>,
        (mut pages, deltas): (Vec<Bytes>, Vec<Vec<(Version, Address)>>),
        epoch: Epoch,
        saved: Option<Epoch>,
    ) -> Result<()> {
        let count = (whole.len(), deltas.iter().map(Vec::len).sum::<usize>());
        let mut bytes: Vec<Bytes> = whole.iter().map(|version| version.page().bytes().to_vec()).collect();
        bytes.append(&mut pages);
        let mut places = saving.zone.append(&mut bytes, epoch, Cause::Checkpoint)?.into_iter();
        for (version, at) in whole.iter().zip(&mut places) {
            self.note_written(version, Place::whole(at), saved);
        }
        for (those, at) in deltas.iter().zip(&mut places) {
            for (version, base) in those {
                self.note_written(version, Place { at, base: *base }, saved);
            }
        }
        assert!(places.next().is_none(), "each page that was appended holds a version");
        let written = whole.into_iter().chain(deltas.into_iter().flatten().map(|(version, _)| version));
        written.filter_map(|version| version.page).for_each(|page| self.nodes.unused_pages.give(page));
        self.nodes_written.fetch_add(count.0 as u64, Ordering::Relaxed);
        self.deltas_written.fetch_add(count.1 as u64, Ordering::Relaxed);
        Ok(())
    }

    /// A node has been appended at `place`.
    fn note_written(&self, version: &Version, place: Place, saved: Option<Epoch>) {
        let node = &version.node;
        let written_as_is = {
            let mut state = node.state.write();
            if saved.is_none() && state.freed {
                return;
            }
            let before = self.nodes.mat.place(node.id, place, saved.is_some());
            self.volume.pool.add_copy(place.copy());
            if let Some(before) = before {
                self.volume.pool.remove_copy(before.copy());
            }
            let as_is = match saved {
                Some(epoch) => state.dirty.is_some_and(|dirty| dirty <= epoch),
                None => Arc::ptr_eq(&state.page, version.page()),
            };
            if as_is {
                state.dirty = None;
                state.being_written = false;
            }
            if !place.is_delta() {
                state.base = Some(version.lsn);
            }
            if as_is && (!place.is_delta() || rt::is_planted("break-delta-cumulative")) {
                state.changes = Changes::default();
            }
            as_is
        };
        if saved.is_none() && written_as_is {
            let group = version.group;
            let mut tree = self.trees.groups[usize::from(group.0)].write();
            let clean = node.state.read().dirty.is_none();
            if clean && tree.dirty.get(&node.id).is_some_and(|there| Arc::ptr_eq(there, node)) {
                tree.dirty.remove(&node.id);
                self.running.dirty().remove_node(&mut node.state.write().counted);
            }
        }
    }
}
