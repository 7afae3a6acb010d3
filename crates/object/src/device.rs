//! The device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rt::Clock;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex, MutexGuard};
use zone::{
    Blocks, Command, Device, DeviceError, FsId, Geometry, Life, Output, Result, ZoneId, ZoneInfo, ZoneState,
};

use crate::chain::Chain;
use crate::error::ObjectError;
use crate::format::{Holder as StoredHolder, Shape};
use crate::garbage::Garbage;
use crate::holder::Holder;
use crate::names::Names;
use crate::store::{Creation, Store};
use crate::table::Table;
use crate::tails::Tails;

/// Whether a volume is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// This process becomes the owner.
    ReadWrite,
    /// Nothing in the store changes. What an owner writes meanwhile is not seen, and what it deletes cannot be read.
    ReadOnly,
}

/// The shape of a new volume.
#[derive(Clone, Debug)]
pub struct VolumeShape {
    /// The volume.
    pub fs_id: FsId,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// The number of zones.
    pub zones: u32,
    /// Bytes of an object of a zone; usually 4 MiB.
    pub part_bytes: Option<u64>,
    /// Zones of a chunk of the table; usually 2^18.
    pub chunk_zones: Option<u32>,
}

/// When the device does what costs requests, memory or space. The usual values are right except for tests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many parts may be in the process of being created.
    pub parts_in_flight: usize,
    /// The number of bundles from one table bundle to the next …
    pub table_bundles: u64,
    /// … unless they have this number of bytes.
    pub table_bytes: u64,
    /// If tails consist of more pieces than this, some are written again as a whole.
    pub tail_pieces: usize,
    /// A chunk of the table is written again if this number of its zones has changed.
    pub chunk_changes: usize,
    /// Objects that are not needed any more are deleted after this time.
    pub grace_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            parts_in_flight: 4,
            table_bundles: 16,
            table_bytes: 64 << 20,
            tail_pieces: 32,
            chunk_changes: 4096,
            grace_ns: 60_000_000_000,
        }
    }
}

/// How a volume is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// For reading or for writing.
    pub mode: Mode,
    /// Whether the ownership of another process that may be alive is ended.
    pub takes_over: bool,
    /// This process.
    pub holder: Holder,
    /// The time, for the deletion of objects.
    pub clock: Arc<dyn Clock>,
    /// When the device does what costs requests, memory or space.
    pub limits: Limits,
}

/// A device in an object store.
pub struct ObjectDevice {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) names: Names,
    pub(crate) shape: Shape,
    pub(crate) mode: Mode,
    /// The number of this owner.
    pub(crate) owner: u32,
    pub(crate) holder: StoredHolder,
    /// Another owner that may be alive, if this device is for reading only.
    pub(crate) other_owner: Option<ObjectError>,
    pub(crate) nonce: [u8; 16],
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    /// Held while a bundle is written; locked before `state`.
    pub(crate) chain: Mutex<Chain>,
    /// The number of flushes that have begun; changed under `chain`.
    pub(crate) flushes: AtomicU64,
    pub(crate) state: Mutex<State>,
    /// Signalled when the creation of a part has ended.
    pub(crate) part_ended: Condvar,
    pub(crate) garbage: Mutex<Garbage>,
    pub(crate) bytes_beside_zones: AtomicU64,
}

/// The state that commands change.
pub(crate) struct State {
    pub(crate) table: Table,
    pub(crate) tails: Tails,
    /// Parts that are complete and not yet known to be in the store.
    pub(crate) in_flight: BTreeMap<PartId, InFlight>,
    /// Zones that differ from what the chain has.
    pub(crate) changed: BTreeSet<ZoneId>,
    /// The same, but it need not be recorded before anything else is.
    pub(crate) noted: BTreeSet<ZoneId>,
    /// Zones whose reset no bundle has yet.
    pub(crate) reset: BTreeSet<ZoneId>,
    /// Zones that differ from the newest chunk of the table.
    pub(crate) differing: BTreeSet<ZoneId>,
    /// Zones that differed from a chunk that is being written.
    pub(crate) in_new_chunk: BTreeSet<ZoneId>,
    /// The reason why nothing is written any more.
    pub(crate) broken: Option<String>,
}

/// A part of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartId {
    pub(crate) zone: ZoneId,
    pub(crate) life: Life,
    pub(crate) part: u32,
}

/// A part on its way to the store.
pub(crate) struct InFlight {
    pub(crate) bytes: Bytes,
    /// `None` while a thread waits for it.
    pub(crate) creation: Option<Box<dyn Creation>>,
}

impl ObjectDevice {
    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        self.shape.fs_id
    }

    /// The mode in which it was opened.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The error [`ObjectError::InUse`] if another process owned the volume when it was opened for reading only, and
    /// may be alive. Then this device has what that owner had flushed, until the owner deletes it.
    pub fn other_owner(&self) -> Option<&ObjectError> {
        self.other_owner.as_ref()
    }

    /// Bytes of an object of a zone.
    pub fn part_bytes(&self) -> u64 {
        u64::from(self.shape.part_blocks) * u64::from(self.shape.geometry.block_size)
    }

    /// The store in messages.
    pub fn describe(&self) -> String {
        self.store.describe()
    }

    /// Locks the state for a change. Fails if the volume cannot be written.
    pub(crate) fn lock_for_change(&self) -> Result<MutexGuard<'_, State>> {
        if self.mode == Mode::ReadOnly {
            let why = "the volume is open for reading only; open it for writing to change it";
            return Err(DeviceError::Unusable(why.to_owned()));
        }
        let state = self.state.lock();
        state.check()?;
        Ok(state)
    }

    /// Writes nothing from now on, for this reason.
    pub(crate) fn break_down(&self, why: String) -> DeviceError {
        let mut state = self.state.lock();
        if state.broken.is_none() {
            tracing::error!("{}: {why}", self.store.describe());
        }
        DeviceError::Unusable(state.broken.get_or_insert(why).clone())
    }
}

impl State {
    pub(crate) fn check(&self) -> Result<()> {
        match &self.broken {
            Some(why) => Err(DeviceError::Unusable(why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn mark_changed(&mut self, zone: ZoneId) {
        self.changed.insert(zone);
        self.differing.insert(zone);
    }
}

impl Device for ObjectDevice {
    fn geometry(&self) -> &Geometry {
        &self.shape.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        Ok(self.state.lock().table.machine().zones().to_vec())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.state.lock().table.machine().zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let mut batch = [Command::Read { zone, block, into }];
        self.run(&mut batch).swap_remove(0).map(|_| ())
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.append_blocks(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Output> = Vec::with_capacity(batch.len());
        for command in batch.iter() {
            outputs.push(match command {
                Command::Append { zone, from } => self.append_blocks(*zone, from),
                Command::Read { .. } => Ok(0),
            });
        }
        let reads = batch.iter_mut().zip(&mut outputs).filter_map(|(command, output)| match command {
            Command::Read { zone, block, into } => Some((*zone, *block, &mut **into, output)),
            Command::Append { .. } => None,
        });
        self.read_all(reads);
        outputs
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.finish_zone(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        let mut state = self.lock_for_change()?;
        if state.table.machine().zone(zone)?.state == ZoneState::Empty {
            return Ok(());
        }
        state.table.reset(zone)?;
        state.tails.remove(zone);
        state.reset.insert(zone);
        state.mark_changed(zone);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.mode == Mode::ReadOnly {
            return Ok(());
        }
        let begun = self.flushes.load(Ordering::SeqCst);
        let mut chain = self.chain.lock();
        if self.flushes.load(Ordering::SeqCst) > begun {
            // A flush that began after this call has ended, so it includes this call.
            return self.state.lock().check();
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.write_bundle(&mut chain)
    }

    fn discard_one_zone(&self) -> bool {
        self.mode == Mode::ReadWrite && self.state.lock().broken.is_none() && self.do_background_work()
    }

    /// Ends the ownership, so that the next process need not ask whether this one is alive.
    fn release(&self) -> Result<()> {
        if self.mode == Mode::ReadOnly {
            return Ok(());
        }
        self.close()
    }

    fn device_metadata_bytes_written(&self) -> u64 {
        self.bytes_beside_zones.load(Ordering::Relaxed)
    }
}

impl Drop for ObjectDevice {
    /// Ends the ownership, if that was not done before. What was not flushed may become durable. A device that has
    /// failed writes nothing more.
    fn drop(&mut self) {
        if self.mode == Mode::ReadWrite
            && self.state.lock().broken.is_none()
            && let Err(error) = self.close()
        {
            tracing::warn!("{}: the volume was not closed: {error}", self.store.describe());
        }
        crate::holder::forget(&self.nonce);
    }
}
