//! Recovery: verifying the data of records, and continuing open zones.
//!
//! During replay, [`Recovering`] collects the reverse map of each zone: from the checkpoint, and from later records. If the
//! log does not say that a record was durable, the data that the record names is verified (`break-verify-tail` removes this).
//! Extents that are only the rest of older ones are left out: their data is older than the record.
//!
//! Afterwards each data zone is in one of these states:
//!
//! * *closed, with a whole footer and whole summaries*: the recovered map is dropped.
//! * *active at the device*: it is continued at its pointer. Blocks below it that no extent names are dead. The entries of the
//!   recovered map are not in a summary: summaries that were appended after the checkpoint are dead blocks too.
//! * *anything else*: it takes no more data, and GC reclaims it first.
//!
//! A zone that takes no more data and is still active is finished. Otherwise it would be one of the device's few active
//! zones while it has live blocks, and the log could find no zone to switch to.

use std::collections::BTreeMap;
use std::sync::Arc;

use rt::sync::Mutex;
use tree::{Op, StoreError};
use zone::format::ZoneIdentity;
use zone::{Device, DeviceError, Role, ZoneId, ZoneState};

use crate::format::{self, EXTENT, Entry, Extent, Unfinished, ZoneUser};
use crate::open_zone::OpenZone;
use crate::place::Placer;
use crate::reverse::{self, Closed, ZoneMap};
use crate::{Lifetime, Result};

/// The part of this crate in recovery: pass it to `Store::open`, then to [`crate::Extents::open`].
pub struct Recovering {
    device: Arc<dyn Device>,
    zones: BTreeMap<ZoneId, RecoveredMap>,
    /// Headers that were read to verify records. `None`: there is none.
    headers: Mutex<BTreeMap<ZoneId, Option<ZoneIdentity>>>,
}

/// The recovered reverse map of a zone.
#[derive(Default)]
struct RecoveredMap {
    /// The low bits of the zone's life.
    life_low_bits: u16,
    unfinished: Unfinished,
}

impl Recovering {
    /// Before a replay.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Recovering { device, zones: BTreeMap::new(), headers: Mutex::new(BTreeMap::new()) }
    }

    fn is_data_present(&self, extent: &Extent) -> tree::Result<bool> {
        let (zone, block) = (extent.address.zone(), extent.address.block());
        let geometry = self.device.geometry();
        if zone.0 >= geometry.zones {
            return Ok(false);
        }
        // The data of an offline zone cannot be read or verified: the record counts.
        if self.device.report_zone(zone).is_ok_and(|info| info.state == ZoneState::Offline) {
            return Ok(true);
        }
        if !self.has_right_life(extent)? {
            return Ok(false);
        }
        let size = geometry.block_size as usize;
        let mut bytes = vec![0; size * extent.blocks as usize];
        if block.checked_add(extent.blocks).is_none_or(|end| end > geometry.zone_blocks) {
            return Ok(false);
        }
        // A record that fails is dropped for good, so a block is read twice before it counts as wrong.
        for _ in 0..2 {
            match self.device.read(zone, block, &mut bytes) {
                Ok(()) if have_right_checksums(&bytes, size, extent) => return Ok(true),
                Err(DeviceError::Offline(_)) => return Ok(true),
                Err(error) if error.is_of_whole_device() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Whether the zone's header has the life in the address, or the zone is offline.
    fn has_right_life(&self, extent: &Extent) -> tree::Result<bool> {
        let zone = extent.address.zone();
        let cached = self.headers.lock().get(&zone).copied();
        let header = match cached {
            Some(header) => header,
            None => {
                let header = match tree::read_header(&*self.device, zone) {
                    Ok(header) => header.ok().map(|(identity, _)| identity),
                    Err(DeviceError::Offline(_)) => return Ok(true),
                    Err(error) if error.is_of_whole_device() => return Err(error.into()),
                    Err(_) => None,
                };
                self.headers.lock().insert(zone, header);
                header
            }
        };
        Ok(header.is_some_and(|header| header.zone == zone && extent.address.is_of(header.life)))
    }
}

/// Whether these blocks have the checksums of the extent.
fn have_right_checksums(bytes: &[u8], block_size: usize, extent: &Extent) -> bool {
    let mut blocks = bytes.chunks(block_size).zip(&extent.crcs);
    blocks.all(|(block, &crc)| zone::format::checksum(&[block]) == crc)
}

/// The data of this operation, if it is new data.
fn new_data(op: &Op) -> Option<(crate::Object, u64, Extent)> {
    let Op::Put { table: EXTENT, key, value, .. } = op else { return None };
    let (object, start) = format::decode_key(key)?;
    let extent = Extent::decode(value)?;
    (extent.is_stored() && !extent.trimmed).then_some((object, start, extent))
}

impl tree::Replay for Recovering {
    fn checkpoint(&mut self, bytes: &[u8]) -> tree::Result<()> {
        let zones = format::decode_checkpoint(bytes).ok_or_else(|| {
            StoreError::Corrupt("the reverse maps in the checkpoint cannot be decoded".into())
        })?;
        let recovered =
            |unfinished: Unfinished| RecoveredMap { life_low_bits: unfinished.life.low_bits(), unfinished };
        self.zones = zones.into_iter().map(|(zone, unfinished)| (zone, recovered(unfinished))).collect();
        Ok(())
    }

    fn verify(&mut self, ops: &[Op]) -> tree::Result<bool> {
        if rt::is_planted("break-verify-tail") {
            return Ok(true);
        }
        for (_, _, extent) in ops.iter().filter_map(new_data) {
            if !self.is_data_present(&extent)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn apply(&mut self, ops: &[Op]) {
        for op in ops {
            if let Op::ZoneOpened { zone, life, .. } = op {
                let unfinished = Unfinished { life: *life, ..Unfinished::default() };
                self.zones.insert(*zone, RecoveredMap { life_low_bits: life.low_bits(), unfinished });
            }
            let Some((object, offset, extent)) = new_data(op) else { continue };
            let low_bits = extent.address.life_low_bits();
            let recovered = self.zones.entry(extent.address.zone()).or_default();
            if recovered.life_low_bits != low_bits {
                *recovered = RecoveredMap { life_low_bits: low_bits, unfinished: Unfinished::default() };
            }
            let (block, crcs) = (extent.address.block(), extent.crcs);
            recovered.unfinished.entries.push(Entry { object, offset, sequence: 0, block, crcs });
        }
    }
}

impl Placer {
    /// Continues or closes every data zone. Returns the target of GC if it was open.
    pub(crate) fn continue_zones(&self, mut recovering: Recovering) -> Result<Option<Arc<OpenZone>>> {
        let mut target = None;
        for role in [Role::Data, Role::Gc] {
            for zone in self.maps().pool().in_role(role) {
                let unfinished = self.recovered_map(&mut recovering, zone);
                let Some(open) = self.continue_zone(zone, unfinished)? else { continue };
                match role {
                    Role::Gc => target = Some(open),
                    _ => self.placement().add(open, Lifetime::Unknown),
                }
            }
        }
        Ok(target)
    }

    /// The recovered map of the zone in its current life, each entry once.
    fn recovered_map(&self, recovering: &mut Recovering, zone: ZoneId) -> Option<Unfinished> {
        let life = self.maps().pool().entry(zone).life;
        let sequence = self.maps().store().last_lsn().0;
        let recovered =
            recovering.zones.remove(&zone).filter(|found| found.life_low_bits == life.low_bits())?;
        let mut unfinished = Unfinished { life, ..recovered.unfinished };
        let new = unfinished.entries.iter_mut().filter(|entry| entry.sequence == 0);
        new.for_each(|entry| entry.sequence = sequence);
        Some(unfinished)
    }

    /// The open zone, if it takes more data.
    fn continue_zone(&self, zone: ZoneId, unfinished: Option<Unfinished>) -> Result<Option<Arc<OpenZone>>> {
        let open = self.continue_or_close(zone, unfinished)?;
        if open.is_none()
            && self.maps().pool().info(zone).state.is_active()
            && self.maps().store().writable().is_ok()
            && let Err(error) = self.maps().device().finish(zone)
        {
            tracing::warn!("zone {} cannot be finished: {error}", zone.0);
        }
        Ok(open)
    }

    fn continue_or_close(
        &self,
        zone: ZoneId,
        unfinished: Option<Unfinished>,
    ) -> Result<Option<Arc<OpenZone>>> {
        let pool = self.maps().pool();
        let user = ZoneUser::decode(&pool.entry(zone).user);
        if user.footer > 0 {
            // There is a recovered map after the checkpoint: the footer, or a summary that it names, may be lost although
            // the record is not.
            let name = reverse::name_of(self.maps().store(), zone);
            match unfinished {
                Some(unfinished) if reverse::read_all(self.maps().store(), &name, user).is_none() => {
                    self.close_without_footer(zone, unfinished);
                }
                _ => pool.close(zone),
            }
            return Ok(None);
        }
        let unfinished =
            unfinished.unwrap_or(Unfinished { life: pool.entry(zone).life, ..Default::default() });
        if user.closed || !pool.info(zone).state.is_active() {
            self.close_without_footer(zone, unfinished);
            return Ok(None);
        }
        self.resume(zone, unfinished)
    }

    fn resume(&self, zone: ZoneId, unfinished: Unfinished) -> Result<Option<Arc<OpenZone>>> {
        let lease = match self.maps().store().resume_zone(zone) {
            Ok(lease) => lease,
            Err(error) => {
                tracing::warn!("zone {} cannot be continued: {error}", zone.0);
                self.close_without_footer(zone, unfinished);
                return Ok(None);
            }
        };
        let name = reverse::name_of(self.maps().store(), zone);
        let map = ZoneMap::new(name, self.maps().packing(), unfinished.clone());
        if !map.fits(lease.free_blocks()) {
            self.close_without_footer(zone, unfinished);
            return Ok(None);
        }
        Ok(Some(self.adopt(lease, unfinished)))
    }

    /// The zone takes no more data, and its map stays in memory until GC has reclaimed it.
    fn close_without_footer(&self, zone: ZoneId, unfinished: Unfinished) {
        let name = reverse::name_of(self.maps().store(), zone);
        let map = self.reverse().add(ZoneMap::new(name, self.maps().packing(), unfinished));
        map.lock().close(Closed::Without);
        self.maps().pool().close(zone);
    }
}

#[cfg(test)]
mod tests;
