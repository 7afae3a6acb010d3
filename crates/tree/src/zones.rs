//! Opening a zone for a new life, and resetting zones that hold nothing needed.
//!
//! I-ZONE-4 says when a zone may be reset. `docs/design.md`, section 6, explains the rule for each role. It also tells
//! the story of the zone that was reset one batch too early.

use std::sync::Arc;

use pool::{Lsn, OwnedPool, Usage, smallest_of_use};
use zone::{Address, DeviceError, Lease, Role, ZoneId};

use crate::log::Log;
use crate::scan::next_life;
use crate::types::{Result, StoreError};
use crate::volume::Volume;

/// Wakes the threads that wait for a reset when it ends.
struct EndOfReset<'z>(&'z OwnedPool);

impl Drop for EndOfReset<'_> {
    fn drop(&mut self) {
        self.0.end_reset();
    }
}

/// Begins and ends the lives of zones.
pub(crate) struct Zones {
    volume: Arc<Volume>,
    log: Arc<Log>,
}

impl Zones {
    pub(crate) fn new(volume: Arc<Volume>, log: Arc<Log>) -> Self {
        Zones { volume, log }
    }

    /// Resets a free zone if it is not empty, and leases it with its header written.
    pub(crate) fn begin(
        &self,
        zone: ZoneId,
        empty: bool,
        role: Role,
    ) -> std::result::Result<Lease, DeviceError> {
        let life = match next_life(&*self.volume.device, self.volume.info.fs_id, &self.volume.pool, zone) {
            Ok(life) => life,
            Err(StoreError::Device(error)) => return Err(error),
            Err(error) => return Err(DeviceError::Unusable(error.to_string())),
        };
        if !empty {
            self.volume.device.reset(zone)?;
        }
        let lease = self.volume.leases.begin(zone, life, role)?;
        // A reset may reduce the capacity of the zone.
        if lease.capacity() < smallest_of_use(self.volume.pool.page_blocks()) {
            lease.finish()?;
            return Err(DeviceError::ZoneFull { zone, blocks: self.volume.pool.page_blocks() });
        }
        Ok(lease)
    }

    /// Continues a partly written data zone after a mount.
    pub(crate) fn resume_data_zone(&self, zone: ZoneId) -> Result<Lease> {
        let entry = self.volume.pool.entry(zone);
        assert!(entry.role.holds_data(), "zone {} holds no data", zone.0);
        let usage = self.volume.pool.usage(zone);
        if usage != Usage::Closed {
            // A forged table may name a zone of the log.
            return Err(StoreError::Corrupt(format!("zone {} has data and is {usage:?}", zone.0)));
        }
        let lease = self.volume.leases.resume(zone, entry.life, entry.role)?;
        self.volume.pool.resume(zone);
        Ok(lease)
    }

    /// Resets dead zones as far as this needs no new zone. Then the device returns the space of empty zones to its
    /// host, which is possible once their resets are durable.
    pub(crate) fn return_host_space(&self) -> Result<()> {
        if self.reclaim(u32::MAX)?.0 == 0 {
            let known = self.log.known_durable();
            let (_, waiting) = self.volume.pool.dead_data(usize::MAX, |changed| changed <= known);
            if let Some(newest) = waiting
                && self.make_known(newest)?
            {
                self.reclaim(u32::MAX)?;
            }
        }
        self.volume.shut_down_on_error(
            "the device cannot be flushed",
            self.volume.device.flush().map_err(StoreError::from),
        )?;
        while self.volume.device.discard_one_zone() {}
        Ok(())
    }

    /// Resets at most `most` dead data zones. Returns how many were reset, and the transaction that the log must
    /// record as durable before more can be.
    pub(crate) fn reclaim(&self, most: u32) -> Result<(u32, Option<Lsn>)> {
        let known = self.log.known_durable();
        let may = |changed: Lsn| changed <= known || rt::is_planted("break-reset-after-known-durable");
        let mut freed = 0;
        loop {
            let wanted = (most - freed) as usize;
            let (ready, waiting) = self.volume.pool.dead_data(wanted, may);
            let found = ready.len();
            for (zone, emptied) in ready {
                freed += u32::from(self.reset_dead(zone, emptied)?);
            }
            assert!(found <= wanted && freed <= most, "no more zones are reset than were requested");
            // Zones that other threads took meanwhile, and zones that cannot be reset, are not found again.
            if freed == most || found < wanted {
                return Ok((freed, waiting));
            }
        }
    }

    /// Makes the log record durably that everything up to `lsn` is durable. Returns false if the log has no space.
    pub(crate) fn make_known(&self, lsn: Lsn) -> Result<bool> {
        let known = self.log.make_known(lsn);
        self.volume.shut_down_on_error("the log cannot be written", known)
    }

    /// Resets a zone if it is still dead by this record. Another thread may have reset it since then. In that case it
    /// is unknown whether the end of its later life is durable.
    fn reset_dead(&self, zone: ZoneId, emptied: Lsn) -> Result<bool> {
        if !self.volume.pool.begin_reset(zone, emptied) {
            return Ok(false);
        }
        self.reset_claimed(zone)
    }

    fn reset_claimed(&self, zone: ZoneId) -> Result<bool> {
        // Ends the reset on every path, because other threads wait for its end.
        let _over = EndOfReset(&self.volume.pool);
        self.reset_zone(zone)
    }

    /// Resets a zone that no reader or writer can enter any more. A zone that cannot be reset is never used again.
    pub(crate) fn reset_zone(&self, zone: ZoneId) -> Result<bool> {
        match self.volume.device.reset(zone).and_then(|()| self.volume.device.report_zone(zone)) {
            Ok(info) => {
                self.volume.pool.freed(zone, info);
                Ok(true)
            }
            Err(DeviceError::PowerLost) => Err(DeviceError::PowerLost.into()),
            Err(error) => {
                tracing::warn!(zone = zone.0, %error, "a zone cannot be reset");
                self.volume.pool.retire(zone);
                Ok(false)
            }
        }
    }

    /// Resets metadata zones that the newest checkpoint does not name. The caller holds the checkpoint lock.
    pub(crate) fn free_dead_metadata(&self) -> Result<()> {
        let claimed = self.volume.pool.begin_resets_of_metadata();
        // Every claimed zone must be settled, even if another one fails.
        let settled: Vec<Result<bool>> = claimed.into_iter().map(|zone| self.reset_claimed(zone)).collect();
        settled.into_iter().try_for_each(|settled| settled.map(drop))
    }
}

/// A reader in a zone. The zone is not reset until this is dropped.
pub struct ZoneRef {
    pool: Arc<OwnedPool>,
    zone: ZoneId,
}

impl ZoneRef {
    pub(crate) fn enter(pool: &Arc<OwnedPool>, at: Address) -> Option<ZoneRef> {
        pool.enter(at).then(|| ZoneRef { pool: Arc::clone(pool), zone: at.zone() })
    }
}

impl Drop for ZoneRef {
    fn drop(&mut self) {
        self.pool.leave(self.zone);
    }
}
