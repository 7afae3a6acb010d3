//! The parts of an open store.

use std::sync::Arc;

use pool::{OwnedPool, Shape, ZoneEntry};
use zone::{Device, Leases, Traffic, ZoneInfo};

use crate::checkpoint::Checkpoints;
use crate::commit::Transactions;
use crate::delta::IN_PAGE_AT_LEAST;
use crate::epoch::RunningEpoch;
use crate::format::{ZitEntry, entries_per_page};
use crate::headroom::Headroom;
use crate::limits::Limits;
use crate::log::Log;
use crate::metadata_gc::MetadataGc;
use crate::nodes::Nodes;
use crate::trees::Trees;
use crate::types::{Result, VolumeInfo};
use crate::volume::Volume;
use crate::zones::Zones;

/// The parts of the store. Each uses only those before it.
pub(crate) struct Core {
    pub(crate) volume: Arc<Volume>,
    pub(crate) log: Arc<Log>,
    pub(crate) zones: Arc<Zones>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) running: Arc<RunningEpoch>,
    pub(crate) headroom: Arc<Headroom>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) gc: Arc<MetadataGc>,
    pub(crate) transactions: Transactions,
}

/// A store with these rows of zones, before its tables are loaded.
pub(crate) fn assemble(
    device: Arc<dyn Device>,
    info: VolumeInfo,
    (cache_bytes, read_only): (u64, bool),
    entries: Vec<ZoneEntry>,
    report: &[ZoneInfo],
    next_node: u64,
) -> Result<Core> {
    let page_size = info.page_size as usize;
    let (limits, pages) = Limits::new(device.geometry(), page_size, cache_bytes);
    let kept = limits.metadata_reserve_of(device.geometry(), page_size);
    let shape = Shape {
        rows_per_chunk: entries_per_page(page_size, size_of::<ZitEntry>()) as u64,
        page_blocks: info.page_size / device.geometry().block_size,
        deltas_per_page: IN_PAGE_AT_LEAST,
        sequential: device.geometry().sequential(),
    };
    let pool = Arc::new(OwnedPool::new(entries, report, shape, kept));
    let leases = Leases::new(device, info.fs_id, Arc::new(Traffic::default()));
    let volume = Arc::new(Volume::new(info, leases, pool, read_only));
    let log = Arc::new(Log::new(volume.info.fs_id, volume.leases.clone(), volume.pool.clone()));
    let zones = Arc::new(Zones::new(volume.clone(), log.clone()));
    let nodes = Arc::new(Nodes::new(volume.clone(), log.clone(), pages, next_node)?);
    let trees = Arc::new(Trees::new(volume.clone(), nodes.clone()));
    let running = Arc::new(RunningEpoch::new(limits, volume.clone(), log.clone(), nodes.clone()));
    let headroom = Arc::new(Headroom::new(volume.clone(), trees.clone(), running.clone()));
    let checkpoints = Arc::new(Checkpoints::new(
        volume.clone(),
        log.clone(),
        zones.clone(),
        trees.clone(),
        running.clone(),
        headroom.clone(),
    ));
    let gc = Arc::new(MetadataGc::new(
        volume.clone(),
        log.clone(),
        nodes.clone(),
        running.clone(),
        headroom.clone(),
        checkpoints.clone(),
    ));
    let transactions = Transactions::new(
        trees.clone(),
        zones.clone(),
        log.clone(),
        running.clone(),
        headroom.clone(),
        checkpoints.clone(),
        gc.clone(),
    );
    Ok(Core { volume, log, zones, nodes, trees, running, headroom, checkpoints, gc, transactions })
}
