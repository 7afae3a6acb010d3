//! A device that stores no blocks of zeros. It can be larger than any real device, to measure the cost of a large
//! number of zones.
//!
//! A test that writes zeros as data reads them back, and has a volume of which only the metadata is stored. The
//! stored blocks are in a file, so that they do not count as memory of the process. A block of that file is reused
//! after its zone was reset. The states of zones, and 8 bytes for each stored block, are in memory.
//!
//! All written data is present when another user opens the device: its user may be killed. It has no power losses and
//! no faults; `Emulated` has.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rt::sync::Mutex;

use zone::machine::Machine;
use zone::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};

/// The device.
pub struct MetadataOnly {
    geometry: Geometry,
    file: File,
    state: Mutex<State>,
}

struct State {
    machine: Machine,
    /// For each zone the stored blocks, in order, and the place of each in the file.
    stored: Vec<Vec<(Blocks, u32)>>,
    /// Unused blocks of the file.
    unused: Vec<u32>,
    /// The number of blocks of the file.
    blocks: u32,
}

impl State {
    fn slot(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.blocks += 1;
            self.blocks - 1
        })
    }

    fn find(&self, zone: ZoneId, block: Blocks) -> Option<u32> {
        let stored = &self.stored[zone.0 as usize];
        stored.binary_search_by_key(&block, |(block, _)| *block).ok().map(|at| stored[at].1)
    }
}

impl MetadataOnly {
    /// A device of empty zones with equal capacities, which stores blocks in this file.
    pub fn new(geometry: Geometry, file: File) -> MetadataOnly {
        let empty = ZoneInfo { state: ZoneState::Empty, capacity: geometry.zone_blocks, pointer: 0 };
        let zones = geometry.zones as usize;
        let machine = Machine::new(geometry.clone(), vec![empty; zones]);
        let state = State { machine, stored: vec![Vec::new(); zones], unused: Vec::new(), blocks: 0 };
        MetadataOnly { geometry, file, state: Mutex::new(state) }
    }

    /// Bytes of memory that the device needs.
    pub fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let of_zone = size_of::<ZoneInfo>() + size_of::<Vec<(Blocks, u32)>>();
        let stored: usize = state.stored.iter().map(Vec::capacity).sum();
        let unused = state.unused.capacity() * size_of::<u32>();
        (state.stored.len() * of_zone + stored * size_of::<(Blocks, u32)>() + unused) as u64
    }

    /// The bytes of the stored blocks.
    pub fn stored_bytes(&self) -> u64 {
        let state = self.state.lock();
        (u64::from(state.blocks) - state.unused.len() as u64) * u64::from(self.geometry.block_size)
    }

    fn place(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.geometry.block_size)
    }

    fn put(&self, zone: ZoneId, from: &[u8]) -> Output {
        let size = self.geometry.block_size as usize;
        let mut state = self.state.lock();
        let blocks = state.machine.blocks(zone, from.len())?;
        let begin = state.machine.advance(zone, blocks, None)?;
        for (block, bytes) in (begin..).zip(from.chunks_exact(size)) {
            if is_zeros(bytes) {
                continue;
            }
            let slot = state.slot();
            let written = self.file.write_all_at(bytes, self.place(slot));
            written.map_err(|error| failed(zone, "append", &error))?;
            state.stored[zone.0 as usize].push((block, slot));
        }
        Ok(begin)
    }
}

impl Device for MetadataOnly {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        Ok(self.state.lock().machine.zones().to_vec())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.state.lock().machine.zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        let state = self.state.lock();
        let blocks = state.machine.blocks(zone, into.len())?;
        state.machine.check_read(zone, block, blocks)?;
        for (block, bytes) in (block..).zip(into.chunks_exact_mut(self.geometry.block_size as usize)) {
            match state.find(zone, block) {
                Some(slot) => {
                    let read = self.file.read_exact_at(bytes, self.place(slot));
                    read.map_err(|error| failed(zone, "read", &error))?;
                }
                None => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let state = self.state.lock();
        let blocks = state.machine.blocks(zone, from.len())?;
        state.machine.check_append(zone, blocks)?;
        drop(state);
        self.put(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let one = |command: &mut Command<'_>| match command {
            Command::Read { zone, block, into } => self.read(*zone, *block, into).map(|()| 0),
            Command::Append { zone, from } => self.append(*zone, from),
        };
        batch.iter_mut().map(one).collect()
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.state.lock().machine.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        let mut state = self.state.lock();
        state.machine.reset(zone, None)?;
        let stored = std::mem::take(&mut state.stored[zone.0 as usize]);
        state.unused.extend(stored.into_iter().map(|(_, slot)| slot));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Data that equals itself shifted by a byte repeats the first byte.
fn is_zeros(bytes: &[u8]) -> bool {
    bytes[0] == 0 && bytes[1..] == bytes[..bytes.len() - 1]
}

fn failed(zone: ZoneId, operation: &'static str, error: &std::io::Error) -> DeviceError {
    DeviceError::Io { zone, operation, reason: error.to_string() }
}

#[cfg(test)]
mod tests;
