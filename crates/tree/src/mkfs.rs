//! Making an empty volume.
//!
//! Every zone is reset and the device flushed before anything is written, so that no part of an older volume can be
//! taken for a part of this one. Then an empty store takes its first checkpoint.
//!
//! A loss of power undoes any of the resets since the last flush. If all zones were reset at once, the log could come
//! back without the metadata and the data that it names. Such a volume mounts, and has lost files without an error. So
//! the log is reset first, durably. The newest zone of the log is reset last, after the others: an older one that
//! remained alone would mount in the state before the log moved on. In between, the old volume is either whole or
//! refused.
//!
//! If blocks were lost, a device may return contents from before the reset of the zone. Two measures prevent that they
//! are taken for contents of the new volume. The identity must be a new one: lives begin at 1 again, and under the
//! same identity a block of the old volume would be valid. And each log zone gets a header of the new volume and is
//! reset once more. Otherwise a lost header of a log zone could read as the header of a log zone of the old volume,
//! and it would be unknown which of the two volumes is there.

use std::sync::Arc;

use pool::{LOG_ZONES, LOG_ZONES_WITHIN, Lsn, Usage, ZONE_BLOCKS_MIN, ZoneEntry, smallest_of_use};
use zone::format::{ZoneIdentity, encode_header};
use zone::{Address, Blocks, Device, FsId, Geometry, Life, Role, ZoneId, ZoneInfo, ZoneState};

use crate::cache::Node;
use crate::checkpoint::Client;
use crate::core::{Core, assemble};
use crate::headroom::GAIN_PAGES;
use crate::limits::Limits;
use crate::log::Start;
use crate::page::Page;
use crate::scan::{LogZone, read_header};
use crate::types::{Bytes, Epoch, Group, Label, Reserve, Result, StoreError, VolumeInfo};

/// Memory for pages while a volume is made.
pub(crate) const CACHE_BYTES: u64 = 64 << 20;

/// The options of `mkfs`.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The volume's identity.
    pub fs_id: FsId,
    /// At most 64 bytes.
    pub label: String,
    /// Bytes of a node: a power of two from 4 to 64 KiB, not less than a block.
    pub page_size: u32,
    /// Shards of the key space.
    pub groups: u16,
    /// When, in nanoseconds since 1970.
    pub created_ns: i64,
    /// The space that the store's user reserves and data cannot take.
    pub reserve: Reserve,
}

/// The client of a new volume, whose checkpoint carries no bytes.
struct Nothing;

impl Client for Nothing {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        Bytes::new()
    }
}

/// The least number of nodes that fit in a zone. With fewer, the dead blocks that GC requires would be more than half
/// of a zone.
const ZONE_PAGES_MIN: Blocks = 2 * (GAIN_PAGES + 1);

fn unusable(what: impl Into<String>) -> StoreError {
    StoreError::NoVolume(what.into())
}

/// Refuses options that are impossible on a device with this geometry.
pub(crate) fn check_options(geometry: &Geometry, options: &FormatOptions) -> Result<()> {
    let page = options.page_size;
    if !page.is_power_of_two() || !(4096..=65536).contains(&page) || page < geometry.block_size {
        return Err(unusable(format!(
            "{page} bytes are not a valid node size: choose a power of two from 4096 to 65536, not less than a block ({})",
            geometry.block_size
        )));
    }
    if options.groups == 0 || options.groups > 4096 {
        return Err(unusable(format!("{} groups are not possible: choose 1 to 4096", options.groups)));
    }
    if options.label.len() > Label::BYTES_MAX {
        return Err(unusable("the label is longer than 64 bytes: choose a shorter one"));
    }
    if geometry.max_open.min(geometry.max_active) < 6 {
        return Err(unusable("the device allows fewer than 6 active zones, and Polder needs 6"));
    }
    check_count(geometry, page, geometry.sequential())?;
    let log_bytes = u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
    if geometry.zone_blocks < ZONE_BLOCKS_MIN || log_bytes < 256 << 10 {
        return Err(unusable(format!(
            "zones of {} KiB are too small: at least {ZONE_BLOCKS_MIN} blocks and 256 KiB are needed",
            log_bytes / 1024
        )));
    }
    let pages = (geometry.zone_blocks - 1) / (page / geometry.block_size);
    if pages < ZONE_PAGES_MIN {
        return Err(unusable(format!(
            "a zone has space for {pages} nodes of {} KiB, but needs space for {ZONE_PAGES_MIN}: choose smaller nodes or larger zones",
            page / 1024
        )));
    }
    Ok(())
}

/// Refuses a device with too few sequential zones. A small volume needs them, and the log always does.
fn check_count(geometry: &Geometry, page: u32, zones: u32) -> Result<()> {
    let (bounds, _) = Limits::new(geometry, page as usize, CACHE_BYTES);
    let needed = LOG_ZONES + bounds.metadata_reserve_of(geometry, page as usize).zones(0) + 4;
    if zones >= needed {
        return Ok(());
    }
    let kind = if geometry.conventional > 0 { " that are written sequentially" } else { "" };
    Err(unusable(format!(
        "the device has {zones} zones of {} KiB{kind}; at this size a volume needs at least {needed}: use a larger device",
        u64::from(geometry.zone_blocks) * u64::from(geometry.block_size) / 1024
    )))
}

/// The same check for a device with zones of different capacity. Zones that are too small for a page do not count.
fn check_zones(device: &dyn Device, page: u32) -> Result<()> {
    let geometry = device.geometry();
    let least = smallest_of_use(page / geometry.block_size);
    let report = device.report()?;
    let in_order = report.iter().take(geometry.sequential() as usize);
    check_count(geometry, page, in_order.filter(|info| info.capacity >= least).count() as u32)
}

/// Makes an empty volume on a device, and discards any earlier contents.
pub(crate) fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
    check_options(device.geometry(), options)?;
    check_zones(&**device, options.page_size)?;
    empty_all(&**device)?;
    take_over_log(&**device, options.fs_id)?;
    let geometry = device.geometry().clone();
    let report = device.report()?;
    let info = VolumeInfo {
        fs_id: options.fs_id,
        label: Label::new(options.label.clone()),
        groups: options.groups,
        page_size: options.page_size,
        created_ns: options.created_ns,
        features: zone::format::FEATURES,
        reserve: options.reserve,
        secret: rt::random::secret(),
    };
    let entries = vec![ZoneEntry::default(); geometry.zones as usize];
    let next_node = info.first_node();
    let core = assemble(Arc::clone(device), info, (CACHE_BYTES, false), entries, &report, next_node)?;
    for (index, info) in report.iter().enumerate() {
        let usage = if info.state == ZoneState::Empty { Usage::Free { empty: true } } else { Usage::Retired };
        core.volume.pool.recovered(ZoneId(index as u32), usage);
    }
    core.volume.pool.save_all();
    let roots = core.nodes.promise(usize::from(options.groups))?;
    plant_roots(&core);
    drop(roots);
    core.checkpoints.set_client(Arc::new(Nothing));
    first_checkpoint(&core)
}

/// Resets all zones, first those of the log. The newest of these is reset alone, after the others.
fn empty_all(device: &dyn Device) -> Result<()> {
    let report = device.report()?;
    let newest = newest_of_log(device, &report);
    let is_log = |zone: ZoneId| zone.0 < LOG_ZONES_WITHIN;
    reset_those(device, &report, |zone| is_log(zone) && Some(zone) != newest)?;
    reset_those(device, &report, |zone| Some(zone) == newest)?;
    reset_those(device, &report, |zone| !is_log(zone))
}

/// Writes headers of this volume to the zones that may hold the log, and resets them again. If a header is lost later,
/// a read returns a header of this volume, and none of another volume's log.
fn take_over_log(device: &dyn Device, fs_id: FsId) -> Result<()> {
    let is_log = |zone: ZoneId| zone.0 < LOG_ZONES_WITHIN;
    let report = device.report()?;
    let zones = (0..LOG_ZONES_WITHIN).map(ZoneId).zip(&report);
    for (zone, _) in zones.filter(|(_, info)| info.state == ZoneState::Empty) {
        let identity = ZoneIdentity { fs_id, zone, life: Life(1), role: Role::Log };
        match device.append(zone, &encode_header(&identity, device.geometry())) {
            Err(error) if error.ends_zone() => {
                tracing::warn!(zone = zone.0, %error, "a zone cannot be used for the log");
            }
            appended => drop(appended?),
        }
    }
    device.flush()?;
    reset_those(device, &device.report()?, is_log)
}

/// Resets some of the zones, and makes that durable.
fn reset_those(device: &dyn Device, report: &[ZoneInfo], is_one: impl Fn(ZoneId) -> bool) -> Result<()> {
    for (zone, info) in (0..).map(ZoneId).zip(report).filter(|(zone, _)| is_one(*zone)) {
        if !matches!(info.state, ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline) {
            device.reset(zone)?;
        }
    }
    Ok(device.flush()?)
}

/// The zone in which the log of an existing volume continues. A zone that cannot be read is no part of a log that
/// mounts.
fn newest_of_log(device: &dyn Device, report: &[ZoneInfo]) -> Option<ZoneId> {
    let last = |(zone, info): (ZoneId, &ZoneInfo)| {
        let (identity, _) = read_header(device, zone).ok()?.ok()?;
        let is_log = identity.zone == zone && identity.role == Role::Log;
        let log = is_log.then(|| LogZone::new(device, identity.fs_id, zone, identity.life, *info))?;
        let found = log.last().ok()??;
        Some((found.epoch, found.sequence, zone))
    };
    let newest = (0..LOG_ZONES_WITHIN).map(ZoneId).zip(report).filter_map(last).max()?;
    Some(newest.2)
}

fn plant_roots(core: &Core) {
    for (index, tree) in core.trees.groups.iter().enumerate() {
        let group = Group(index as u16);
        let page = Page::new(&core.nodes.pages, group.root(), group, 0);
        let node = Node::new(group.root(), page, Epoch(1));
        core.nodes.cache.insert_new(Arc::clone(&node));
        tree.write().dirty.insert(node.id, node);
    }
}

fn first_checkpoint(core: &Core) -> Result<()> {
    let start = Start {
        lease: None,
        previous: Vec::new(),
        witness: None,
        is_marked: true,
        sequence: 1,
        next: Lsn(1),
        epoch: Epoch(1),
        durable: Lsn(0),
        checkpoint: Address::NONE,
        checkpoint_bytes: 0,
    };
    core.log.attach(start);
    core.log.seal(Lsn(0))?;
    core.checkpoints.checkpoint()?;
    let log = core.volume.pool.in_role(Role::Log);
    assert!(log.iter().all(|zone| core.volume.pool.entry(*zone).life > Life(0)), "the log has begun");
    Ok(())
}
