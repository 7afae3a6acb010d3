//! Making an empty volume.
//!
//! Every zone is emptied and the device flushed before anything is written, so that nothing of an
//! older volume can be taken for part of this one. Then an empty store takes its first checkpoint.

use std::sync::Arc;

use zone::{Address, Device, FsId, Geometry, Life, Role, ZoneId, ZoneState};

use crate::cache::Node;
use crate::core::{Client, Core, VolumeInfo};
use crate::epoch::Limits;
use crate::log::{LOG_ZONES, Start};
use crate::recover::{Config, assemble};
use crate::types::{Bytes, Epoch, Group, Lsn, Reserve, Result, StoreError, ZoneEntry};
use crate::zones::Use;

/// Memory for what is written when a volume is made.
pub(crate) const CACHE_BYTES: u64 = 64 << 20;

/// What `mkfs` decides.
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
    /// What the store's user keeps from data.
    pub reserve: Reserve,
}

/// A new volume's checkpoint carries nothing for the store's user.
struct Nothing;

impl Client for Nothing {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        Bytes::new()
    }
}

fn unusable(what: impl Into<String>) -> StoreError {
    StoreError::NoVolume(what.into())
}

/// Refuses what no volume on a device of this shape can have.
pub(crate) fn check_options(geometry: &Geometry, options: &FormatOptions) -> Result<()> {
    let page = options.page_size;
    if !page.is_power_of_two() || !(4096..=65536).contains(&page) || page < geometry.block_size {
        return Err(unusable(format!(
            "a node of {page} bytes is impossible: choose a power of two from 4096 to 65536, not less than a block ({})",
            geometry.block_size
        )));
    }
    if options.groups == 0 || options.groups > 4096 {
        return Err(unusable(format!("{} groups are impossible: choose 1 to 4096", options.groups)));
    }
    if options.label.len() > 64 {
        return Err(unusable("the label is longer than 64 bytes: choose a shorter one"));
    }
    if geometry.max_open.min(geometry.max_active) < 6 {
        return Err(unusable("the device allows fewer than 6 active zones, and Polder needs 6"));
    }
    let (bounds, _) = Limits::new(geometry, page as usize, CACHE_BYTES);
    let needed = LOG_ZONES + bounds.kept_for_metadata(geometry, page as usize).zones(0) + 4;
    // What a small volume cannot do without lies where pointers are kept: the log always does.
    if geometry.sequential() < needed {
        let kind = if geometry.conventional > 0 { " that are written in order" } else { "" };
        return Err(unusable(format!(
            "the device has {} zones of {} KiB{kind}; at this size a volume needs at least {needed}: use a larger device",
            geometry.sequential(),
            u64::from(geometry.zone_blocks) * u64::from(geometry.block_size) / 1024
        )));
    }
    let log_bytes = u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
    if geometry.zone_blocks < 16 || log_bytes < 256 << 10 {
        return Err(unusable(format!(
            "zones of {} KiB are too small: at least 16 blocks and 256 KiB are needed",
            log_bytes / 1024
        )));
    }
    Ok(())
}

/// Makes an empty volume on a device, whatever was there.
pub(crate) fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
    check_options(device.geometry(), options)?;
    empty_all(&**device)?;
    let geometry = device.geometry().clone();
    let report = device.report()?;
    let info = VolumeInfo {
        fs_id: options.fs_id,
        label: options.label.clone(),
        groups: options.groups,
        page_size: options.page_size,
        created_ns: options.created_ns,
        features: zone::format::FEATURES,
        reserve: options.reserve,
        secret: rt::random::secret(),
    };
    let config = Config { cache_bytes: CACHE_BYTES, read_only: false };
    let entries = vec![ZoneEntry::default(); geometry.zones as usize];
    let next_node = u64::from(options.groups) + 1;
    let core = assemble(Arc::clone(device), info, &config, entries, &report, next_node);
    for (index, info) in report.iter().enumerate() {
        let usage = if info.state == ZoneState::Empty { Use::Free { empty: true } } else { Use::Bad };
        core.zones.set_usage(ZoneId(index as u32), usage);
    }
    core.zones.save_all();
    plant_roots(&core);
    *core.client.write() = Some(Arc::new(Nothing));
    first_checkpoint(&core)
}

fn empty_all(device: &dyn Device) -> Result<()> {
    for (index, info) in device.report()?.iter().enumerate() {
        if !matches!(info.state, ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline) {
            device.reset(ZoneId(index as u32))?;
        }
    }
    Ok(device.flush()?)
}

fn plant_roots(core: &Core) {
    for (index, tree) in core.groups.iter().enumerate() {
        let group = Group(index as u16);
        let page = crate::commit::empty_root(&core.pages, group);
        let node = Node::new(core.root(group), page, Epoch(1));
        core.cache.insert_new(Arc::clone(&node));
        tree.write().dirty.insert(node.id, node);
    }
}

fn first_checkpoint(core: &Core) -> Result<()> {
    let start = Start {
        lease: None,
        previous: Vec::new(),
        sequence: 1,
        next: Lsn(1),
        epoch: Epoch(1),
        durable: Lsn(0),
        checkpoint: Address::NONE,
        checkpoint_bytes: 0,
    };
    core.log.attach(start);
    core.log.seal(Lsn(0))?;
    core.checkpoint()?;
    let log = core.zones.in_role(Role::Log);
    assert!(log.iter().all(|zone| core.zones.entry(*zone).life > Life(0)), "the log has begun");
    Ok(())
}
