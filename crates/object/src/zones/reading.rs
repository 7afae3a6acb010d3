//! Reads: from tails and parts in flight, which are in memory, or from the store.

use std::ops::Range;

use zone::{Blocks, DeviceError, Output, Result, ZoneId, ZoneState};

use super::{PartId, State, Zones};

/// Bytes of a read that the store has.
struct Remote {
    /// The number of the read.
    read: usize,
    /// Where the bytes go.
    into: Range<usize>,
}

impl Zones {
    /// Executes reads, all at the same time.
    pub(crate) fn read_all<'a>(
        &self,
        reads: impl Iterator<Item = (ZoneId, Blocks, &'a mut [u8], &'a mut Output)>,
    ) {
        let mut reads: Vec<_> = reads.collect();
        let (mut remote, mut requests) = (Vec::new(), Vec::new());
        {
            let state = self.state.lock();
            for (number, (zone, block, into, output)) in reads.iter_mut().enumerate() {
                let planned = self.plan(&state, *zone, *block, into, |into, name, range| {
                    remote.push(Remote { read: number, into });
                    requests.push((name, range));
                });
                **output = planned.map(|()| 0);
            }
        }
        if requests.is_empty() {
            return;
        }
        for (Remote { read, into }, result) in remote.into_iter().zip(self.store.read_many(&requests)) {
            let (zone, _, bytes, output) = &mut reads[read];
            let failed = |reason: String| DeviceError::Io { zone: *zone, operation: "read", reason };
            match result {
                Ok(found) if found.len() == into.len() => bytes[into].copy_from_slice(&found),
                Ok(found) => **output = Err(failed(format!("{} of {} bytes", found.len(), into.len()))),
                Err(error) => **output = Err(failed(error.to_string())),
            }
        }
    }

    /// Copies the blocks that are in memory. Calls `remote` for each range of the others: the place in `into`, the
    /// object, and the place in that.
    fn plan(
        &self,
        state: &State,
        zone: ZoneId,
        block: Blocks,
        into: &mut [u8],
        mut remote: impl FnMut(Range<usize>, String, Range<u64>),
    ) -> Result<()> {
        let machine = state.table.machine();
        let blocks = machine.blocks(zone, into.len())?;
        machine.check_read(zone, block, blocks)?;
        let info = state.table.info(zone);
        let (size, part_blocks) = (self.shape.geometry.block_size as usize, self.shape.part_blocks);
        let bytes_of = |blocks: Blocks| blocks as usize * size;
        // A full zone may be read beyond the last block that was written.
        let written = match info.state {
            ZoneState::Full => info.pointer.clamp(block, block + blocks),
            _ => block + blocks,
        };
        into[bytes_of(written - block)..].fill(0);
        let mut at = block;
        while at < written {
            let part = at / part_blocks;
            let end = written.min((part + 1) * part_blocks);
            let place = bytes_of(at - block)..bytes_of(end - block);
            let within = bytes_of(at - part * part_blocks)..bytes_of(end - part * part_blocks);
            let id = PartId { zone, life: state.table.life(zone), part };
            if let Some(tail) = state.tails.get(zone).filter(|tail| tail.first == part * part_blocks) {
                into[place].copy_from_slice(&tail.bytes[within]);
            } else if let Some(part) = state.in_flight.get(&id) {
                into[place].copy_from_slice(&part.bytes[within]);
            } else {
                let name = self.names.part(zone, id.life, part, state.table.owner(zone, part));
                remote(place, name, within.start as u64..within.end as u64);
            }
            at = end;
        }
        Ok(())
    }
}
