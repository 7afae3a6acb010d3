//! A device whose changes stay in memory.
//!
//! Opening a set writes: members that disagree are made to agree, and labels are completed. If the set is opened for
//! reading only, each member is covered by an [`Overlay`], which takes these writes. So nothing on the members changes,
//! and the set has the state that an open for writing would give it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rt::sync::Mutex;

use crate::machine::Machine;
use crate::{Blocks, Command, Device, DeviceError, Geometry, MetadataCopy, Output, Result, ZoneId, ZoneInfo};

/// The most bytes that an overlay keeps.
const BYTES_MAX: usize = 64 << 20;

/// A device over another one that is never written.
pub struct Overlay {
    below: Arc<dyn Device>,
    changes: Mutex<Changes>,
}

struct Changes {
    machine: Machine,
    /// The blocks of each zone that are those of the device below: the ones that it had when this was made.
    below: Vec<Blocks>,
    /// Appended blocks.
    written: BTreeMap<(ZoneId, Blocks), Box<[u8]>>,
    bytes: usize,
}

impl Overlay {
    /// Covers a device.
    ///
    /// # Errors
    /// Its zones cannot be reported.
    pub fn new(below: Arc<dyn Device>) -> Result<Overlay> {
        let mut zones = below.report()?;
        // In the other zones it has no meaning, and may be anything.
        for info in zones.iter_mut().filter(|info| !info.state.has_pointer()) {
            info.pointer = info.capacity;
        }
        let readable = |info: &ZoneInfo| if info.state.has_pointer() { info.pointer } else { info.capacity };
        let machine = Machine::new(below.geometry().clone(), zones.clone());
        let changes = Changes {
            machine,
            below: zones.iter().map(readable).collect(),
            written: BTreeMap::new(),
            bytes: 0,
        };
        Ok(Overlay { below, changes: Mutex::new(changes) })
    }

    fn block_size(&self) -> usize {
        self.below.geometry().block_size as usize
    }

    /// Whether all commands read blocks of the device below.
    fn are_below(&self, batch: &[Command<'_>]) -> bool {
        let changes = self.changes.lock();
        batch.iter().all(|command| match command {
            Command::Append { .. } => false,
            Command::Read { zone, block, into } => {
                let below = changes.below.get(zone.0 as usize).copied().unwrap_or(0);
                let end = u64::from(*block) + (into.len() / self.block_size()) as u64;
                end <= u64::from(below)
            }
        })
    }
}

impl Changes {
    /// The written blocks of a zone.
    fn of_zone(&self, zone: ZoneId) -> impl Iterator<Item = (Blocks, &[u8])> {
        self.written.range((zone, 0)..=(zone, Blocks::MAX)).map(|((_, block), bytes)| (*block, &**bytes))
    }

    fn forget(&mut self, zone: ZoneId) {
        let blocks: Vec<Blocks> = self.of_zone(zone).map(|(block, _)| block).collect();
        for block in blocks {
            self.bytes -= self.written.remove(&(zone, block)).map_or(0, |bytes| bytes.len());
        }
    }
}

impl Device for Overlay {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        Ok(self.changes.lock().machine.zones().to_vec())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.changes.lock().machine.zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let below = {
            let changes = self.changes.lock();
            let blocks = changes.machine.blocks(zone, into.len())?;
            changes.machine.check_read(zone, block, blocks)?;
            changes.below[zone.0 as usize].saturating_sub(block).min(blocks)
        };
        let block_size = self.block_size();
        let (old, new) = into.split_at_mut(below as usize * block_size);
        if !old.is_empty() {
            self.below.read(zone, block, old)?;
        }
        // Unwritten blocks can be read only in zones without a pointer.
        new.fill(0);
        let changes = self.changes.lock();
        let end = block + (new.len() / block_size) as Blocks + below;
        for (at, bytes) in changes.of_zone(zone).filter(|(at, _)| (block + below..end).contains(at)) {
            let place = (at - block - below) as usize * block_size;
            new[place..place + block_size].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let mut changes = self.changes.lock();
        let blocks = changes.machine.blocks(zone, from.len())?;
        changes.machine.check_append(zone, blocks)?;
        if changes.bytes + from.len() > BYTES_MAX {
            let why = "its members differ by too much to be read as they are; mount it for writing once";
            return Err(DeviceError::Unusable(why.to_owned()));
        }
        let start = changes.machine.advance(zone, blocks, None)?;
        changes.bytes += from.len();
        for (block, bytes) in (start..).zip(from.chunks(self.block_size())) {
            changes.written.insert((zone, block), bytes.into());
        }
        Ok(start)
    }

    /// A batch that needs nothing of the changes runs on the device below.
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        if self.are_below(batch) {
            return self.below.run(batch);
        }
        let one = |command: &mut Command<'_>| match command {
            Command::Read { zone, block, into } => self.read(*zone, *block, into).map(|()| 0),
            Command::Append { zone, from } => self.append(*zone, from),
        };
        batch.iter_mut().map(one).collect()
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.changes.lock().machine.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        let mut changes = self.changes.lock();
        changes.machine.reset(zone, None)?;
        changes.below[zone.0 as usize] = 0;
        changes.forget(zone);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn device_metadata_copies(&self) -> Vec<MetadataCopy> {
        self.below.device_metadata_copies()
    }

    fn verify_device_metadata(&self) -> Vec<MetadataCopy> {
        self.below.verify_device_metadata()
    }
}
