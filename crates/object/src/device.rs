//! The device.

use std::sync::Arc;

use zone::{Blocks, Command, Device, FsId, Geometry, Output, Result, ZoneId, ZoneInfo};

use crate::chain::Chain;
use crate::error::ObjectError;
use crate::garbage::Garbage;
use crate::opening::{self, Opened};
use crate::options::{Mode, OpenOptions, VolumeShape};
use crate::store::Store;
use crate::zones::{Identity, Zones};

/// A device in an object store.
pub struct ObjectDevice {
    zones: Zones,
    chain: Chain,
    /// Another owner that may be alive, if this device is for reading only.
    other_owner: Option<ObjectError>,
}

impl ObjectDevice {
    /// Creates a volume. Deletes one that is there already if `force` is set.
    pub fn create(
        store: &dyn Store,
        wanted: &VolumeShape,
        force: bool,
    ) -> std::result::Result<(), ObjectError> {
        opening::create(store, wanted, force)
    }

    /// Deletes what an unsuccessful attempt to make a volume has left: its objects, and what makes them a volume if
    /// that is not another one.
    pub fn discard(store: &dyn Store, fs_id: FsId) -> std::result::Result<(), ObjectError> {
        opening::discard(store, fs_id)
    }

    /// Checks what [`ObjectDevice::create`] would refuse before it changes anything. Returns the shape of the device.
    pub fn draft(
        store: &dyn Store,
        wanted: &VolumeShape,
        force: bool,
    ) -> std::result::Result<Geometry, ObjectError> {
        opening::draft(store, wanted, force)
    }

    /// The id of the volume in a store, if there is one.
    pub fn probe(store: &dyn Store) -> std::result::Result<Option<FsId>, ObjectError> {
        Ok(ObjectDevice::probe_shape(store)?.map(|(fs_id, _)| fs_id))
    }

    /// The same with the shape of the device.
    pub fn probe_shape(store: &dyn Store) -> std::result::Result<Option<(FsId, Geometry)>, ObjectError> {
        opening::probe(store)
    }

    /// Opens a volume.
    pub fn open(
        store: Arc<dyn Store>,
        options: &OpenOptions,
    ) -> std::result::Result<ObjectDevice, ObjectError> {
        let Opened { names, shape, end, zones, owner, nonce, other_owner } = opening::open(&*store, options)?;
        let garbage = Garbage::of_opened(&zones.table, &shape, options.limits.grace_ns);
        let identity = Identity { store, names, shape, mode: options.mode, owner };
        let zones = Zones::new(identity, zones, options.limits.parts_in_flight);
        Ok(ObjectDevice { zones, chain: Chain::new(end, nonce, garbage, options), other_owner })
    }

    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        self.zones.shape.fs_id
    }

    /// The mode in which it was opened.
    pub fn mode(&self) -> Mode {
        self.zones.mode
    }

    /// The error [`ObjectError::InUse`] if another process owned the volume when it was opened for reading only, and
    /// may be alive. Then this device has what that owner had flushed, until the owner deletes it.
    pub fn other_owner(&self) -> Option<&ObjectError> {
        self.other_owner.as_ref()
    }

    /// Bytes of an object of a zone.
    pub fn part_bytes(&self) -> u64 {
        u64::from(self.zones.shape.part_blocks) * u64::from(self.zones.shape.geometry.block_size)
    }

    /// The store in messages.
    pub fn describe(&self) -> String {
        self.zones.store.describe()
    }
}

impl Device for ObjectDevice {
    fn geometry(&self) -> &Geometry {
        &self.zones.shape.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        Ok(self.zones.lock().table.machine().zones().to_vec())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.zones.lock().table.machine().zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let mut batch = [Command::Read { zone, block, into }];
        self.run(&mut batch).swap_remove(0).map(|_| ())
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.zones.append(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Output> = Vec::with_capacity(batch.len());
        for command in batch.iter() {
            outputs.push(match command {
                Command::Append { zone, from } => self.zones.append(*zone, from),
                Command::Read { .. } => Ok(0),
            });
        }
        let reads = batch.iter_mut().zip(&mut outputs).filter_map(|(command, output)| match command {
            Command::Read { zone, block, into } => Some((*zone, *block, &mut **into, output)),
            Command::Append { .. } => None,
        });
        self.zones.read_all(reads);
        outputs
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.zones.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.zones.reset(zone)
    }

    fn flush(&self) -> Result<()> {
        if self.zones.mode == Mode::ReadOnly {
            return Ok(());
        }
        self.chain.flush(&self.zones)
    }

    fn discard_one_zone(&self) -> bool {
        self.zones.can_change() && self.chain.do_background_work(&self.zones)
    }

    /// Ends the ownership, so that the next process need not ask whether this one is alive.
    fn release(&self) -> Result<()> {
        if self.zones.mode == Mode::ReadOnly {
            return Ok(());
        }
        self.chain.close(&self.zones)
    }

    fn device_metadata_bytes_written(&self) -> u64 {
        self.chain.bytes_written()
    }
}

impl Drop for ObjectDevice {
    /// Ends the ownership, if that was not done before. What was not flushed may become durable. A device that has
    /// failed writes nothing more.
    fn drop(&mut self) {
        if self.zones.can_change()
            && let Err(error) = self.chain.close(&self.zones)
        {
            tracing::warn!("{}: the volume was not closed: {error}", self.zones.store.describe());
        }
        crate::holder::forget(self.chain.nonce());
    }
}
