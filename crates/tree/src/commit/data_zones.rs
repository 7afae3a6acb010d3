//! Opening zones for data, which is a transaction.

use zone::{DeviceError, Lease, Role};

use super::Transactions;
use crate::types::{Op, Result, StoreError, Tx};

impl Transactions {
    /// Opens a zone for data. `None`: this role may take no free zone.
    pub(crate) fn open_data_zone(&self, role: Role) -> Result<Option<Lease>> {
        assert!(role.holds_data(), "the store opens its own zones");
        self.volume.writable()?;
        let mut has_returned_space = false;
        loop {
            while !self.volume.pool.may_take(role) && self.zones.reclaim(1)?.0 > 0 {}
            if !self.volume.pool.may_take(role) {
                return Ok(None);
            }
            let Some((zone, empty)) = self.volume.pool.take(role) else { return Ok(None) };
            match self.zones.begin(zone, empty, role) {
                Ok(lease) => {
                    self.volume.pool.set_capacity(zone, lease.capacity());
                    return self.journal_opening(lease).map(Some);
                }
                Err(error @ DeviceError::TooManyOpen { .. }) => {
                    self.volume.pool.give_back(zone, empty);
                    return Err(error.into());
                }
                Err(error) if error.ends_zone() => {
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be opened");
                    self.volume.pool.retire(zone);
                }
                // A full host makes the device full. Other zones may hold the space that the host lacks.
                Err(DeviceError::HostFull { .. }) => {
                    self.volume.pool.give_back(zone, false);
                    if std::mem::replace(&mut has_returned_space, true) {
                        return Err(StoreError::NoSpace);
                    }
                    self.zones.return_host_space()?;
                }
                Err(error) => {
                    self.volume.pool.give_back(zone, false);
                    return Err(error.into());
                }
            }
        }
    }

    /// Journals that a zone has begun a life.
    fn journal_opening(&self, lease: Lease) -> Result<Lease> {
        let (zone, role) = (lease.zone(), lease.role());
        assert!(role.holds_data(), "a transaction opens zones of data only");
        let mut tx = Tx::reclaiming();
        tx.ops.push(Op::ZoneOpened { zone, life: lease.life(), role });
        if let Err(error) = self.commit(tx) {
            if let Err(error) = lease.finish() {
                tracing::warn!(zone = zone.0, %error, "a zone cannot be finished");
            }
            self.volume.pool.give_back(zone, false);
            return Err(error);
        }
        Ok(lease)
    }
}
