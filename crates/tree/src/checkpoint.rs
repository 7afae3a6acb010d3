//! Checkpoints, and writing dirty nodes out early.
//!
//! A thread that takes a checkpoint holds the checkpoint lock (`Checkpoints::saving`). The order of its steps is that
//! of `docs/design.md`, section 3. Each flush is a condition for the next step:
//!
//! cut → journal up to the cut, nodes, MAT chunks, ZIT chunks, directories → **flush** → record →
//! **flush** → only then resets.
//!
//! Until the record is durable, the pages that the previous checkpoint names are unchanged on the device, and no
//! durable record names the new pages. So a failure in between shuts the volume down and loses nothing.

mod record;
mod write_nodes;

use std::sync::Arc;

use pool::{Lsn, UserCounters};
use rt::sync::RwLock;
use rt::sync::atomic::{AtomicU64, Ordering};
use zone::{Address, Cause, DeviceError};

use crate::cache::Node;
use crate::checkpoint_lock::CheckpointLock;
use crate::epoch::RunningEpoch;
use crate::headroom::Headroom;
use crate::log::Log;
use crate::mat::ChunkPlace;
use crate::metadata_zone::MetadataZone;
use crate::nodes::Nodes;
use crate::saving::Saving;
use crate::tables::Tables;
use crate::trees::Trees;
use crate::types::{Bytes, Epoch, Result, StoreError};
use crate::volume::Volume;
use crate::zones::Zones;

/// The user of the store. It supplies the bytes that checkpoints carry for it.
///
/// Called while a checkpoint is taken. An implementation takes only its own locks and never calls the store.
pub trait Client: Send + Sync {
    /// Bytes for the record of a checkpoint whose cut is at this transaction. They may cover transactions after the
    /// cut, but must cover all before it. All data appended before this call is durable before the record is. So are
    /// the tables as they are at the cut, so the bytes need not repeat what the tables contain.
    fn checkpoint_bytes(&self, cut: Lsn) -> Bytes;
}

/// Takes checkpoints, and writes dirty nodes out between them.
pub(crate) struct Checkpoints {
    volume: Arc<Volume>,
    log: Arc<Log>,
    zones: Arc<Zones>,
    trees: Arc<Trees>,
    nodes: Arc<Nodes>,
    running: Arc<RunningEpoch>,
    headroom: Arc<Headroom>,
    pub(crate) saving: CheckpointLock<Saving>,
    client: RwLock<Option<Arc<dyn Client>>>,
    taken: AtomicU64,
    nodes_written: AtomicU64,
    deltas_written: AtomicU64,
}

impl Checkpoints {
    pub(crate) fn new(
        volume: Arc<Volume>,
        log: Arc<Log>,
        zones: Arc<Zones>,
        trees: Arc<Trees>,
        running: Arc<RunningEpoch>,
        headroom: Arc<Headroom>,
    ) -> Self {
        let (nodes, client) = (Arc::clone(&trees.nodes), RwLock::new(None));
        let zone = MetadataZone::new(volume.clone(), zones.clone(), running.clone());
        let saving = CheckpointLock::new(Saving::new(zone, Tables::new(volume.clone(), nodes.clone())));
        let [taken, nodes_written, deltas_written] = [0; 3].map(AtomicU64::new);
        Checkpoints {
            volume,
            log,
            zones,
            trees,
            nodes,
            running,
            headroom,
            saving,
            client,
            taken,
            nodes_written,
            deltas_written,
        }
    }

    pub(crate) fn set_client(&self, client: Arc<dyn Client>) {
        *self.client.write() = Some(client);
    }

    /// How many were taken, and the nodes written whole and as delta records.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.taken, &self.nodes_written, &self.deltas_written].map(|count| count.load(Ordering::Relaxed))
    }

    /// Takes a checkpoint. If one is running, takes another after it.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.volume.writable()?;
        self.checkpoint_with(&mut self.saving.lock())
    }

    pub(crate) fn checkpoint_with(&self, saving: &mut Saving) -> Result<()> {
        self.volume.writable()?;
        let taken = self.take_checkpoint(saving);
        self.volume.shut_down_on_error("a checkpoint failed", taken)
    }

    fn take_checkpoint(&self, saving: &mut Saving) -> Result<()> {
        let client = self.client.read().clone();
        let user = client
            .ok_or_else(|| StoreError::ShutDown("a checkpoint before the store has its client".into()))?;
        self.check_host_space(saving)?;
        saving.zone.open().map_err(of_full_host)?;
        let held = self.running.dirty_pages();
        let tables = self.headroom.table_blocks(saving, 0);
        self.headroom.reserve_for_checkpoint(held, tables);
        // LSN 0 is before any cut, so the client returns all its bytes: at least as many as for the real cut.
        let record_bytes = user.checkpoint_bytes(Lsn(0)).len() + self.record_bytes(saving);
        let replay_from = self.log.prepare_checkpoint(record_bytes)?;
        assert!(
            !saving.has_emptied_zone || self.running.gc_awaits_checkpoint(),
            "an emptied zone is waiting for this checkpoint"
        );
        let mut cut = self.cut(tables);
        assert!(cut.epoch < self.log.epoch(), "what changes from now on belongs to a later epoch");
        if cut.pages > held {
            self.headroom.reserve_for_checkpoint(cut.pages, tables);
        }
        self.saving.pass();
        self.log.push()?;
        let user_bytes = user.checkpoint_bytes(cut.lsn);
        let before = self.volume.leases.traffic().bytes_written(Cause::Checkpoint);
        self.write_nodes(saving, std::mem::take(&mut cut.dirty), Some(cut.epoch))?;
        let mat_chunks = saving.tables.write_mat(&mut saving.zone, cut.lsn, cut.epoch)?;
        let zit_chunks = saving.tables.write_zit(&mut saving.zone, cut.lsn, cut.epoch)?;
        let at = (cut.lsn, cut.epoch);
        let old = saving.tables.write_directories(&mut saving.zone, &mat_chunks, &zit_chunks, at)?;
        if !rt::is_planted("break-checkpoint-flush-before") {
            self.log.barrier()?;
            assert!(self.log.durable() >= cut.lsn, "the record names only what is durable");
        }
        if rt::is_planted("break-metadata-reset-after-checkpoint") {
            self.zones.free_dead_metadata()?;
        }
        self.headroom.note_write_ratio(
            cut.pages,
            self.volume.leases.traffic().bytes_written(Cause::Checkpoint) - before,
        );
        saving.number += 1;
        let record = self.encode_checkpoint(saving, &cut, replay_from, &user_bytes);
        self.log.append_checkpoint(cut.lsn, record)?;
        self.publish(&mat_chunks, old);
        saving.zone.new_pages_begin();
        self.volume.pool.announce(0);
        self.running.saved();
        self.headroom.saved();
        saving.has_emptied_zone = false;
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.zones.free_dead_metadata()?;
        self.headroom.renew(saving);
        Ok(())
    }

    /// Refuses a checkpoint for which the host of the device has no space, before any of its steps. Then it can be
    /// tried again. After the cut, a refusal shuts the volume down.
    fn check_host_space(&self, saving: &Saving) -> Result<()> {
        let pages = self.running.dirty_pages() as u64 * self.volume.page_blocks();
        // The next checkpoint may write more for each page than recent ones.
        let written = (pages + self.headroom.table_blocks(saving, 0))
            .max(2 * self.headroom.blocks_of_next_checkpoint());
        let beyond = written.saturating_sub(u64::from(self.volume.pool.open_headroom()));
        // One more zone, in case the log moves.
        let zones = 1 + beyond.div_ceil(self.volume.zone_blocks());
        if self.volume.device.has_space_for(zones) {
            return Ok(());
        }
        self.zones.return_host_space()?;
        if self.volume.device.has_space_for(zones) { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// The only moment at which all groups are locked. Takes over the state of the epoch that ends. The checkpoint
    /// will also write `tables` blocks of tables.
    fn cut(&self, tables: u64) -> Cut {
        let mut locked: Vec<_> = self.trees.groups.iter().map(|group| group.write()).collect();
        let (lsn, epoch) = self.log.cut();
        let counters = self.volume.pool.cut();
        self.nodes.mat.cut();
        let dirty: Vec<Arc<Node>> =
            locked.iter_mut().flat_map(|tree| std::mem::take(&mut tree.dirty).into_values()).collect();
        let counted = self.running.dirty().nodes();
        assert!(counted <= dirty.len(), "{counted} nodes are counted as dirty, and {} are", dirty.len());
        let pages = self.running.cut((tables / self.volume.page_blocks()) as usize);
        let prepaid = self.trees.prepaid_nodes();
        Cut { lsn, epoch, next_node: self.nodes.mat.next_node(), counters, prepaid, dirty, pages }
    }

    /// The checkpoint is durable. Publishes its MAT, and frees the copies that only the previous checkpoint named.
    fn publish(&self, mat: &[(u64, ChunkPlace)], old: Vec<Address>) {
        self.nodes.mat.saved(mat);
        for address in old.into_iter().filter(|address| !address.is_none()) {
            self.volume.pool.remove_page(address.zone());
        }
    }

    /// Resets at most `most` dead data zones. If none may be reset yet, `force` first makes the log record what is
    /// durable, or takes a checkpoint for dead metadata zones.
    pub(crate) fn reclaim(&self, most: u32, force: bool) -> Result<u32> {
        let (freed, waiting) = self.zones.reclaim(most)?;
        let Some(newest) = waiting.filter(|_| freed == 0 && force) else {
            return Ok(freed);
        };
        if !self.zones.make_known(newest)? {
            self.checkpoint()?;
            self.zones.make_known(newest)?;
        }
        Ok(self.zones.reclaim(most)?.0)
    }

    /// Resets one zone, or waits until another thread has reset one. Returns false if there is no such zone and no
    /// reset has ended since the count was `over`. The caller reads the count, then looks for a free zone, and then
    /// calls this.
    pub(crate) fn reclaim_one(&self, over: u64) -> Result<bool> {
        Ok(self.reclaim(1, true)? > 0 || self.volume.pool.wait_for_reset(over))
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

/// While nothing is half done, a full host is reported as a full volume.
pub(crate) fn of_full_host(error: StoreError) -> StoreError {
    match error {
        StoreError::Device(DeviceError::HostFull { .. }) => StoreError::NoSpace,
        error => error,
    }
}

#[cfg(test)]
mod tests;
