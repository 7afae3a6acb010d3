//! Checkpoints, and writing dirty nodes out early.
//!
//! A thread that takes a checkpoint holds the checkpoint lock (`Core::saving`). The order of its steps is that of
//! `docs/design.md`, section 3. Each flush is a condition for the next step:
//!
//! cut → journal up to the cut, nodes, MAT chunks, ZIT chunks, directories → **flush** → record →
//! **flush** → only then resets.
//!
//! Until the record is durable, the pages that the previous checkpoint names are unchanged on the device, and no
//! durable record names the new pages. So a failure in between shuts the volume down and loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool::{Lsn, UserCounters};
use rt::sync::atomic::Ordering;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{I64, U32, U64};
use zone::{Address, Cause, DeviceError, Lease, PageBuffer, Role, ZoneId};

use crate::cache::{CutVersion, Node};
use crate::core::{Core, Saving};
use crate::delta::{self, Changes, Packed};
use crate::format::{
    self, CheckpointHeader, DirectoryEntry, PAGE_HEADER, PageKind, ZonePatch, entries_per_page, stored,
    write_header,
};
use crate::mat::{ChunkPlace, Place};
use crate::nodes::{PAGES_AT_ONCE, PinnedChunks};
use crate::page::Page;
use crate::types::{Bytes, Epoch, Group, NodeId, Result, StoreError};

/// A checkpoint of at least this number of pages updates the measured ratio of written to dirty pages, and the ratio
/// is at most this.
const MEASURED_PAGES_MIN: usize = 64;
const PERMILLE_MAX: u64 = 10_000;

impl Core {
    /// Takes a checkpoint. If one is running, takes another after it.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.status.writable()?;
        self.checkpoint_with(&mut self.saving.lock())
    }

    pub(crate) fn checkpoint_with(&self, saving: &mut Saving) -> Result<()> {
        self.status.writable()?;
        let taken = self.take_checkpoint(saving);
        self.status.shut_down_on_error("a checkpoint failed", taken)
    }

    fn take_checkpoint(&self, saving: &mut Saving) -> Result<()> {
        let client = self.client.read().clone();
        let user = client
            .ok_or_else(|| StoreError::ShutDown("a checkpoint before the store has its client".into()))?;
        self.check_host_space(saving)?;
        self.metadata_lease(saving).map_err(of_full_host)?;
        let held = self.dirty_pages();
        let tables = self.table_blocks(saving, 0);
        self.reserve_for_checkpoint(held, tables);
        // LSN 0 is before any cut, so the client returns all its bytes: at least as many as for the real cut.
        let record_bytes = user.checkpoint_bytes(Lsn(0)).len() + self.record_bytes(saving);
        let replay_from = self.log.prepare_checkpoint(record_bytes)?;
        let mut cut = self.cut(tables);
        if cut.pages > held {
            self.reserve_for_checkpoint(cut.pages, tables);
        }
        self.saving.pass();
        self.log.push()?;
        let user_bytes = user.checkpoint_bytes(cut.lsn);
        let before = self.leases.traffic().bytes_written(Cause::Checkpoint);
        self.write_nodes(saving, std::mem::take(&mut cut.dirty), Some(cut.epoch))?;
        let mat_chunks = self.write_mat(saving, cut.lsn, cut.epoch)?;
        let zit_chunks = self.write_zit(saving, cut.lsn, cut.epoch)?;
        let old = self.write_directories(saving, &mat_chunks, &zit_chunks, cut.lsn, cut.epoch)?;
        if !rt::is_planted("break-checkpoint-flush-before") {
            self.log.barrier()?;
        }
        if rt::is_planted("break-metadata-reset-after-checkpoint") {
            self.zones.free_dead_metadata()?;
        }
        self.note_write_ratio(cut.pages, self.leases.traffic().bytes_written(Cause::Checkpoint) - before);
        saving.number += 1;
        let record = self.encode_checkpoint(saving, &cut, replay_from, &user_bytes);
        self.log.append_checkpoint(cut.lsn, record)?;
        self.publish(&mat_chunks, old);
        self.new_pages_begin(saving);
        self.pool.announce(0);
        self.count.being_saved.store(0, Ordering::Relaxed);
        self.count.headroom_enough.store(0, Ordering::Relaxed);
        saving.has_emptied_zone = false;
        self.count.gc_awaits_checkpoint.store(false, Ordering::Relaxed);
        self.count.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.zones.free_dead_metadata()?;
        self.measure_garbage(saving);
        self.note_headroom_to_wait(saving);
        self.update_metadata_share(saving);
        Ok(())
    }

    /// Refuses a checkpoint for which the host of the device has no space, before any of its steps. Then it can be
    /// tried again. After the cut, a refusal shuts the volume down.
    fn check_host_space(&self, saving: &Saving) -> Result<()> {
        let pages = self.dirty_pages() as u64 * u64::from(self.pool.page_blocks());
        // The next checkpoint may write more for each page than recent ones.
        let written = (pages + self.table_blocks(saving, 0)).max(2 * self.blocks_of_next_checkpoint());
        let beyond = written.saturating_sub(u64::from(self.pool.open_headroom()));
        // One more zone, in case the log moves.
        let zones = 1 + beyond.div_ceil(u64::from(self.device.geometry().zone_blocks));
        if self.device.has_space_for(zones) {
            return Ok(());
        }
        self.zones.return_host_space()?;
        if self.device.has_space_for(zones) { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// Updates the measured ratio of written to dirty pages. A small checkpoint writes mostly tables, so it does not
    /// count.
    fn note_write_ratio(&self, pages: usize, bytes: u64) {
        if pages < MEASURED_PAGES_MIN {
            return;
        }
        let now = (bytes * 1000 / (pages * self.nodes.page_size()) as u64).min(PERMILLE_MAX);
        let before = self.count.written_permille.load(Ordering::Relaxed);
        let learned = if before == 0 { now } else { (3 * before + now) / 4 };
        self.count.written_permille.store(learned, Ordering::Relaxed);
    }

    /// Blocks that the next checkpoint will write, estimated from recent checkpoints, and blocks that a running one
    /// has still to write.
    pub(crate) fn blocks_of_next_checkpoint(&self) -> u64 {
        let pages = (self.dirty_pages() + self.pages_being_saved()) as u64;
        pages * u64::from(self.pool.page_blocks()) * self.count.written_permille.load(Ordering::Relaxed)
            / 1000
    }

    /// Pages that a running checkpoint has still to write, at most.
    pub(crate) fn pages_being_saved(&self) -> usize {
        self.count.being_saved.load(Ordering::Relaxed)
    }

    /// Reserves zones for the writes of a checkpoint: `pages` pages of nodes and `tables` blocks of tables. From the
    /// cut on they no longer count as dirty, and other roles must not take the zones for them. If the epoch is longer
    /// than the reserve allows, these zones are in addition to the reserve.
    pub(crate) fn reserve_for_checkpoint(&self, pages: usize, tables: u64) {
        let written = self.blocks_for_nodes(pages) + tables;
        // Longer than one epoch in the reserve.
        let is_long = written > self.pool.two_epochs() / 2;
        if !is_long || !self.pool.announce(written + self.pool.two_epochs()) {
            self.pool.announce(written);
        }
    }

    /// The only moment at which all groups are locked. Takes over the state of the epoch that ends. The checkpoint
    /// will also write `tables` blocks of tables.
    fn cut(&self, tables: u64) -> Cut {
        let mut locked: Vec<_> = self.trees.groups.iter().map(|group| group.write()).collect();
        let (lsn, epoch) = self.log.cut();
        let counters = self.pool.cut();
        self.nodes.mat.cut();
        let dirty =
            locked.iter_mut().flat_map(|tree| std::mem::take(&mut tree.dirty).into_values()).collect();
        // A thread that reads the counters in between counts these pages twice.
        let pages = self.dirty_pages();
        let tables = (tables / u64::from(self.pool.page_blocks())) as usize;
        self.count.being_saved.store(pages + tables, Ordering::Relaxed);
        self.count.dirty.take_all();
        self.count.pages_since_cut.store(0, Ordering::Relaxed);
        let prepaid = self.trees.prepaid_nodes();
        Cut { lsn, epoch, next_node: self.nodes.mat.next_node(), counters, prepaid, dirty, pages }
    }

    /// Writes dirty nodes of the running epoch, so that they need not stay in memory.
    pub(crate) fn write_out(&self, saving: &mut Saving) -> Result<()> {
        self.status.writable()?;
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for group in &self.trees.groups {
            nodes.extend(group.read().dirty.values().cloned());
        }
        // Nodes that are not written stay dirty.
        let written = self.write_nodes(saving, nodes, None).map_err(of_full_host);
        self.status.shut_down_on_error("writing nodes failed", written)
    }

    /// Appends nodes: for a checkpoint (`saved` is its epoch) as they were at its cut, otherwise as they are. Written
    /// nodes may be evicted while the others are written.
    fn write_nodes(&self, saving: &mut Saving, nodes: Vec<Arc<Node>>, saved: Option<Epoch>) -> Result<()> {
        let epoch = saved.unwrap_or_else(|| self.log.epoch());
        let (mut whole, mut packed) = (Vec::new(), Packed::new(self.nodes.page_size()));
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
            let Some((version, changes)) = self.version_to_write(node, saved.is_some()) else { continue };
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
    fn version_to_write(&self, node: Arc<Node>, saved: bool) -> Option<(Version, Option<Bytes>)> {
        let mut state = node.state.write();
        if !saved && (state.freed || state.dirty.is_none()) {
            return None;
        }
        let cut_version = state.cut_version.take_if(|_| saved);
        if let Some(cut_version) = &cut_version {
            self.nodes.cache.drop_cut_version(cut_version);
        }
        state.being_written = saved && cut_version.is_none();
        let (page, changes) = match cut_version.unwrap_or_else(|| state.to_write(self.nodes.mat.has_deltas()))
        {
            CutVersion::Page(page) => (Some(page), None),
            CutVersion::Changes(changes) if saved => (None, Some(changes)),
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
        let mut places = self.append_pages(saving, &mut bytes, epoch, Cause::Checkpoint)?.into_iter();
        for (version, at) in whole.iter().zip(&mut places) {
            self.note_written(version, Place::whole(at), saved);
        }
        for (those, at) in deltas.iter().zip(&mut places) {
            for (version, base) in those {
                self.note_written(version, Place { at, base: *base }, saved);
            }
        }
        let written = whole.into_iter().chain(deltas.into_iter().flatten().map(|(version, _)| version));
        written.filter_map(|version| version.page).for_each(|page| self.nodes.unused_pages.give(page));
        self.count.nodes_written.fetch_add(count.0 as u64, Ordering::Relaxed);
        self.count.deltas_written.fetch_add(count.1 as u64, Ordering::Relaxed);
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
            self.pool.add_copy(place.copy());
            if let Some(before) = before {
                self.pool.remove_copy(before.copy());
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
                self.count.dirty.remove_node(&mut node.state.write().counted);
            }
        }
    }

    /// Completes the headers of pages, appends the pages to metadata zones, and returns their addresses.
    pub(crate) fn append_pages(
        &self,
        saving: &mut Saving,
        pages: &mut [impl AsMut<[u8]>],
        epoch: Epoch,
        cause: Cause,
    ) -> Result<Vec<Address>> {
        let mut places = Vec::with_capacity(pages.len());
        while places.len() < pages.len() {
            let rest = &mut pages[places.len()..];
            let lease = self.metadata_lease(saving)?;
            let appended = self.append_some(lease, rest, epoch, cause);
            self.pool.set_open_headroom(if lease.has_failed() { 0 } else { lease.free_blocks() });
            match appended {
                Ok(some) => {
                    let less = |left: usize| Some(left.saturating_sub(some.len()));
                    let _ = self.count.being_saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                    places.extend(some);
                }
                Err(StoreError::Device(error)) if error.ends_zone() => {
                    tracing::warn!(%error, "a metadata zone accepts no more pages");
                }
                Err(error) => return Err(error),
            }
        }
        self.count.pages_since_cut.fetch_add(pages.len(), Ordering::Relaxed);
        Ok(places)
    }

    /// Appends as many pages at once as the zone and the device accept.
    fn append_some(
        &self,
        lease: &Lease,
        pages: &mut [impl AsMut<[u8]>],
        epoch: Epoch,
        cause: Cause,
    ) -> Result<Vec<Address>> {
        let page_blocks = self.pool.page_blocks();
        let at_once = (self.device.geometry().max_append / page_blocks).max(1);
        let count = (pages.len() as u32).min(lease.free_blocks() / page_blocks).min(at_once);
        assert!(count > 0, "a lease on a metadata zone has space for a page");
        assert!(
            lease.admit(count * page_blocks, 0),
            "only the holder of the checkpoint lock writes metadata"
        );
        let mut together = Vec::with_capacity(count as usize * self.nodes.page_size());
        for page in &mut pages[..count as usize] {
            let page = page.as_mut();
            let own = u64::from_le_bytes(page[40..48].try_into().expect("eight bytes are eight bytes"));
            let epoch = if cause == Cause::MetadataGc { own } else { epoch.0 };
            format::seal_page(page, self.info.fs_id, lease.life(), epoch);
            together.extend_from_slice(page);
        }
        let first = self.append_whole(lease, &together, cause)?;
        let place = |index: u32| Address::new(lease.zone(), first + index * page_blocks, lease.life());
        Ok((0..count).map(place).collect())
    }

    /// Appends pages. If the device accepts less than a page at once, they are written in consecutive pieces (no other
    /// thread writes to the zone).
    fn append_whole(&self, lease: &Lease, bytes: &[u8], cause: Cause) -> Result<zone::Blocks> {
        let geometry = self.device.geometry();
        let mut first = None;
        for piece in bytes.chunks((geometry.max_append * geometry.block_size) as usize) {
            let at = lease.append(cause, piece)?;
            first.get_or_insert(at);
        }
        Ok(first.expect("there is at least one page"))
    }

    /// The open metadata zone, or a new one if that is full.
    fn metadata_lease<'a>(&self, saving: &'a mut Saving) -> Result<&'a Lease> {
        let page_blocks = self.pool.page_blocks();
        let usable = |lease: &Lease| !lease.has_failed() && lease.free_blocks() >= page_blocks;
        if let Some(full) = saving.lease.take_if(|lease| !usable(lease)) {
            self.close_metadata_zone(full)?;
        }
        if saving.lease.is_none() {
            let lease = self.open_metadata_zone()?;
            self.pool.set_open_headroom(lease.free_blocks());
            saving.lease = Some(lease);
        }
        Ok(saving.lease.as_ref().expect("a zone was opened if there was none"))
    }

    fn close_metadata_zone(&self, lease: Lease) -> Result<()> {
        let (zone, failed, room) = (lease.zone(), lease.has_failed(), lease.free_blocks());
        drop(lease);
        // The rest of the zone is less than a page or cannot be written. Its slot among the open zones is worth more.
        if (room > 0 || failed)
            && let Err(error) = self.device.finish(zone)
        {
            tracing::warn!(zone = zone.0, %error, "a metadata zone cannot be finished");
        }
        self.pool.close(zone);
        Ok(())
    }

    fn open_metadata_zone(&self) -> Result<Lease> {
        while let Some((zone, empty)) = self.take_for_metadata()? {
            match self.zones.begin(zone, empty, Role::Metadata) {
                Ok(lease) => {
                    self.pool.open_for_store(zone, lease.life(), Role::Metadata, lease.capacity());
                    return Ok(lease);
                }
                Err(error) if error.ends_zone() => {
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be opened");
                    self.pool.retire(zone);
                }
                Err(error) => {
                    self.pool.give_back(zone, false);
                    return Err(error.into());
                }
            }
        }
        Err(StoreError::ShutDown("there is no free zone for metadata".into()))
    }

    /// A free zone. If there is none, a dead zone is reset.
    fn take_for_metadata(&self) -> Result<Option<(ZoneId, bool)>> {
        loop {
            let over = self.pool.resets_over();
            let taken = self.pool.take(Role::Metadata);
            if taken.is_some() || !(self.zones.reclaim(1)?.0 > 0 || self.pool.wait_for_reset(over)) {
                return Ok(taken);
            }
        }
    }

    /// About the size of the next checkpoint record without its user's bytes.
    fn record_bytes(&self, saving: &Saving) -> usize {
        let directories = saving.mat_directories.len() + saving.zit_directories.len() + 4;
        size_of::<CheckpointHeader>() + directories * 8 + 64 * size_of::<ZonePatch>()
    }

    // ---- MAT, ZIT, directories ---------------------------------------------------------------

    /// Merges the overlay of the epoch that is being saved into the chunks, and appends these.
    fn write_mat(&self, saving: &mut Saving, lsn: Lsn, epoch: Epoch) -> Result<Vec<(u64, ChunkPlace)>> {
        let mut by_chunk: BTreeMap<u64, Vec<(NodeId, Place)>> = BTreeMap::new();
        for (id, place) in self.nodes.mat.saving() {
            by_chunk.entry(id.0 / self.nodes.mat.per_chunk()).or_default().push((id, place));
        }
        for number in std::mem::take(&mut saving.move_mat_chunks) {
            by_chunk.entry(number).or_default();
        }
        let mut written = Vec::new();
        let all: Vec<_> = by_chunk.into_iter().collect();
        for some in all.chunks(PAGES_AT_ONCE) {
            let _held = self.nodes.pin_numbered_chunks(some.iter().map(|(number, _)| *number));
            let mut pages = Vec::new();
            let mut used = Vec::new();
            for (number, changes) in some {
                let (page, count) = self.merge_chunk(*number, changes, lsn)?;
                pages.push(page);
                used.push(count);
            }
            let places = self.append_pages(saving, &mut pages, epoch, Cause::Checkpoint)?;
            for ((((number, _), page), used), address) in some.iter().zip(pages).zip(used).zip(places) {
                self.pool.add_page(address.zone());
                written.push((*number, ChunkPlace { address, used }));
                self.nodes.cache_chunk(*number, address, Arc::new(page));
            }
        }
        Ok(written)
    }

    fn merge_chunk(&self, number: u64, changes: &[(NodeId, Place)], lsn: Lsn) -> Result<(PageBuffer, u32)> {
        let place = self.nodes.mat.chunk(number);
        let old = self.nodes.chunk_for_checkpoint(number, place.address)?;
        let old = old.expect("chunks move only under the checkpoint lock");
        let mut page = self.nodes.checkpoint_page();
        page.copy_from_slice(&old);
        write_header(&mut page, PageKind::MatChunk, number, lsn);
        let mut used = place.used;
        for &(id, now) in changes {
            let index = (id.0 % self.nodes.mat.per_chunk()) as usize;
            let before = self.nodes.mat.place_in(&page, index);
            let counted = self.pool.merge_copy(before.copy(), -1)
                && self.pool.merge_copy(now.copy(), 1)
                && (used > 0 || before.is_nowhere());
            if !counted {
                return Err(StoreError::Corrupt(format!(
                    "MAT chunk {number} contradicts the ZIT: node {} was at {} and is at {}",
                    id.0, before.at, now.at
                )));
            }
            // From now on the chunk counts this copy, and the overlay no longer does.
            self.pool.remove_copy(now.copy());
            used = used + u32::from(!now.is_nowhere()) - u32::from(!before.is_nowhere());
            self.nodes.mat.set_in(&mut page, index, now);
        }
        Ok((page, used))
    }

    fn write_zit(&self, saving: &mut Saving, lsn: Lsn, epoch: Epoch) -> Result<Vec<(u64, ChunkPlace)>> {
        let changed = self.pool.encode_changed(|entries| {
            entries.iter().flat_map(|entry| stored(entry).as_bytes().to_vec()).collect()
        });
        let mut written = Vec::new();
        for some in changed.chunks(PAGES_AT_ONCE) {
            let page = |(number, entries): &(u64, Vec<u8>)| {
                let mut page = vec![0; self.nodes.page_size()];
                page[PAGE_HEADER..PAGE_HEADER + entries.len()].copy_from_slice(entries);
                write_header(&mut page, PageKind::ZitChunk, *number, lsn);
                page
            };
            let mut pages: Vec<_> = some.iter().map(page).collect();
            let places = self.append_pages(saving, &mut pages, epoch, Cause::Checkpoint)?;
            for ((number, _), address) in some.iter().zip(places) {
                self.pool.add_page(address.zone());
                written.push((*number, ChunkPlace { address, used: 0 }));
            }
        }
        Ok(written)
    }

    /// Appends the directory pages that changed. Returns the addresses of their predecessors, which are dead once the
    /// checkpoint is durable.
    fn write_directories(
        &self,
        saving: &mut Saving,
        mat: &[(u64, ChunkPlace)],
        zit: &[(u64, ChunkPlace)],
        lsn: Lsn,
        epoch: Epoch,
    ) -> Result<Vec<Address>> {
        let mut old = Vec::new();
        let mut mat_chunks = self.nodes.mat.chunks();
        replace_chunks(&mut mat_chunks, mat, &mut old);
        let mut zit_chunks = saving.zit_chunks.clone();
        replace_chunks(&mut zit_chunks, zit, &mut old);
        let all = std::mem::take(&mut saving.move_directories);
        let mut directories = saving.mat_directories.clone();
        self.write_directory(
            saving,
            PageKind::MatDirectory,
            &mat_chunks,
            mat,
            all,
            &mut directories,
            &mut old,
            (lsn, epoch),
        )?;
        saving.mat_directories = directories;
        let mut directories = saving.zit_directories.clone();
        self.write_directory(
            saving,
            PageKind::ZitDirectory,
            &zit_chunks,
            zit,
            all,
            &mut directories,
            &mut old,
            (lsn, epoch),
        )?;
        saving.zit_directories = directories;
        saving.zit_chunks = zit_chunks;
        Ok(old)
    }

    #[allow(clippy::too_many_arguments, reason = "two directories are written the same way, once each")]
    fn write_directory(
        &self,
        saving: &mut Saving,
        kind: PageKind,
        chunks: &[ChunkPlace],
        changed: &[(u64, ChunkPlace)],
        all: bool,
        directories: &mut Vec<Address>,
        old: &mut Vec<Address>,
        (lsn, epoch): (Lsn, Epoch),
    ) -> Result<()> {
        let per_page = entries_per_page(self.nodes.page_size(), size_of::<DirectoryEntry>());
        let mut numbers: BTreeSet<usize> =
            changed.iter().map(|(number, _)| *number as usize / per_page).collect();
        if all {
            numbers.extend(0..directories.len());
        }
        let page = |number: &usize| {
            let mut page = vec![0; self.nodes.page_size()];
            let last = ((number + 1) * per_page).min(chunks.len());
            for (index, place) in chunks[number * per_page..last].iter().enumerate() {
                let entry = DirectoryEntry {
                    address: U64::new(place.address.bits()),
                    used: U32::new(place.used),
                    reserved: U32::ZERO,
                };
                let at = PAGE_HEADER + index * size_of::<DirectoryEntry>();
                page[at..at + size_of::<DirectoryEntry>()].copy_from_slice(entry.as_bytes());
            }
            write_header(&mut page, kind, *number as u64, lsn);
            page
        };
        let mut pages: Vec<_> = numbers.iter().map(page).collect();
        let places = self.append_pages(saving, &mut pages, epoch, Cause::Checkpoint)?;
        directories.resize(chunks.len().div_ceil(per_page), Address::NONE);
        for (number, address) in numbers.into_iter().zip(places) {
            self.pool.add_page(address.zone());
            old.push(std::mem::replace(&mut directories[number], address));
        }
        Ok(())
    }

    fn encode_checkpoint(&self, saving: &Saving, cut: &Cut, replay_from: Address, user: &[u8]) -> Vec<u8> {
        let late = self.pool.take_late();
        let header = CheckpointHeader {
            replay_from: U64::new(replay_from.bits()),
            ..self.checkpoint_header(saving, cut, late.len(), user.len())
        };
        let mut out = header.as_bytes().to_vec();
        for address in saving.mat_directories.iter().chain(&saving.zit_directories) {
            out.extend_from_slice(&address.bits().to_le_bytes());
        }
        for (zone, entry) in late {
            out.extend_from_slice(ZonePatch { zone: U32::new(zone.0), entry: stored(&entry) }.as_bytes());
        }
        out.extend_from_slice(user);
        out
    }

    fn checkpoint_header(&self, saving: &Saving, cut: &Cut, patches: usize, user: usize) -> CheckpointHeader {
        let geometry = self.device.geometry();
        let count = |count: usize| U32::new(u32::try_from(count).expect("parts of a checkpoint are small"));
        let mut label = [0; 64];
        let length = self.info.label.len().min(64);
        label[..length].copy_from_slice(&self.info.label.as_bytes()[..length]);
        CheckpointHeader {
            header_bytes: count(size_of::<CheckpointHeader>()),
            version: U32::new(zone::format::FORMAT_VERSION),
            features_compatible: U64::new(format::features_compatible(self.info.reserve)),
            features_read_only: U64::new(format::FEATURES_READ_ONLY),
            features_incompatible: U64::new(self.info.features),
            block_size: U32::new(geometry.block_size),
            zones: U32::new(geometry.zones),
            page_size: U32::new(self.info.page_size),
            groups: U32::new(u32::from(self.info.groups)),
            cut: U64::new(cut.lsn.0),
            epoch: U64::new(cut.epoch.0),
            number: U64::new(saving.number),
            replay_from: U64::ZERO,
            next_node: U64::new(cut.next_node),
            secret: self.info.secret,
            label,
            created_ns: I64::new(self.info.created_ns),
            mat_directories: count(saving.mat_directories.len()),
            zit_directories: count(saving.zit_directories.len()),
            patches: count(patches),
            user_bytes: count(user),
            counters: cut.counters.map(I64::new),
            reserve: U32::new(self.info.reserve.0),
            prepaid: U64::new(match rt::is_planted("break-prepaid-cut") {
                true => self.trees.prepaid_nodes(),
                false => cut.prepaid,
            }),
            reserved: [0; 68],
        }
    }

    /// Pages that are written from now on belong to the running epoch.
    pub(crate) fn new_pages_begin(&self, saving: &Saving) {
        self.pool.new_pages_begin(saving.lease.as_ref().map(|lease| (lease.zone(), lease.admitted())));
    }

    /// The checkpoint is durable. Publishes its MAT, and frees the copies that only the previous checkpoint named.
    fn publish(&self, mat: &[(u64, ChunkPlace)], old: Vec<Address>) {
        self.nodes.mat.saved(mat);
        for address in old.into_iter().filter(|address| !address.is_none()) {
            self.pool.remove_page(address.zone());
        }
    }
}

/// The state that a cut takes over.
struct Cut {
    lsn: Lsn,
    epoch: Epoch,
    next_node: u64,
    counters: UserCounters,
    /// Nodes that are marked as prepaid.
    prepaid: u64,
    dirty: Vec<Arc<Node>>,
    /// Pages that writing these nodes takes, at most.
    pages: usize,
}

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

/// While nothing is half done, a full host is reported as a full volume.
pub(crate) fn of_full_host(error: StoreError) -> StoreError {
    match error {
        StoreError::Device(DeviceError::HostFull { .. }) => StoreError::NoSpace,
        error => error,
    }
}

fn replace_chunks(chunks: &mut Vec<ChunkPlace>, written: &[(u64, ChunkPlace)], old: &mut Vec<Address>) {
    for (number, place) in written {
        let index = *number as usize;
        if chunks.len() <= index {
            chunks.resize(index + 1, ChunkPlace::default());
        }
        old.push(std::mem::replace(&mut chunks[index], *place).address);
    }
}

#[cfg(test)]
mod tests;
