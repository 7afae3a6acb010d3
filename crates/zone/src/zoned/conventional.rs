//! Conventional zones, used as if they were sequential.
//!
//! The device has no pointer for such a zone, and none is stored beside it: its pointer is only in memory, and is
//! lost when the device is closed. When the device is opened, the zone is `Empty` if block 0 is zeros, and `Full`
//! otherwise: block 0 may be the header of a life that has not ended, or a damaged header. A reset overwrites block 0
//! with zeros. Other changes of state send no command.
//!
//! **Nothing is written to such a zone until its block 0 is durable** ([`ZonedDevice::make_first_block_durable`]).
//! The header is not written before the zeros of the reset are durable, and nothing else is written before the header
//! is durable. Then the zone behaves as the contract of `Device` allows for any zone, and the layers above need no
//! special case:
//!
//! * If the header is present, all durable data of that life was written after it: the zone is full, and all of it
//!   can be read. A zone in use that is found full, with arbitrary contents of lost blocks, is a normal result of a
//!   power loss.
//! * If the header is lost, nothing else was written, and the zone is empty. The data behind block 0 is from earlier
//!   lives. If this life begins again, the zone has no footer of this life.
//! * If the zeros of a reset are lost, the old header and everything else are present: the reset is undone.
//!
//! Without the first flush, an old header could precede new data. That would be harmless because of I-ZONE-4: no
//! state that recovery may choose refers to the old life. But no other zone can be in this state. The flush costs
//! little, because a zone is usually reset long before it is written again. The second flush happens once for each
//! life.
//!
//! Conventional zones count against the limits of open and active zones like others, so that leases need not
//! distinguish them.

use std::io;
use std::ops::Range;

use rt::sync::Mutex;

use super::ZonedDevice;
use super::port::{Action, Port, ReportedZone};
use super::shape::Shape;
use crate::engine::{AlignedBuffer, Transfer};
use crate::{Geometry, Result, ZoneId, ZoneInfo, ZoneState};

/// Bytes of one read when contents are examined.
const READ_BYTES: usize = 4 << 20;
/// The size of the ranges at both ends of a device in which programs search for signatures, and more: the farthest
/// signature that libblkid knows is that of VMFS, at 2 MiB.
const SIGNATURES_BYTES: u64 = 4 << 20;

/// Records in which zones block 0 is durable.
pub(super) struct FirstBlocks(Mutex<State>);

struct State {
    /// The number of flushes that have begun.
    begun: u64,
    /// The last flush that has completed successfully.
    durable: u64,
    /// The number of flushes that had begun when block 0 of each conventional zone was last written.
    written_after: Vec<u64>,
}

impl FirstBlocks {
    /// The state after opening: the last writes of an earlier process need not be durable.
    pub(super) fn new(geometry: &Geometry) -> FirstBlocks {
        let written_after = vec![0; geometry.conventional as usize];
        FirstBlocks(Mutex::new(State { begun: 0, durable: 0, written_after }))
    }

    /// Begins a flush and returns its number.
    pub(super) fn begin_flush(&self) -> u64 {
        let mut state = self.0.lock();
        state.begun += 1;
        state.begun
    }

    /// Records that everything before the begin of that flush is durable.
    pub(super) fn end_flush(&self, number: u64) {
        let mut state = self.0.lock();
        state.durable = state.durable.max(number);
    }

    fn note(&self, index: usize) {
        let mut state = self.0.lock();
        state.written_after[index] = state.begun;
    }

    fn is_durable(&self, index: usize) -> bool {
        let state = self.0.lock();
        state.durable > state.written_after[index]
    }
}

impl ZonedDevice {
    /// The index of a conventional zone among the conventional zones.
    fn conventional(&self, zone: ZoneId) -> Option<usize> {
        let index = zone.0.checked_sub(self.shape.geometry.sequential());
        index.map(|index| index as usize)
    }

    /// Changes a sequential or conventional zone.
    pub(super) fn act(&self, zone: ZoneId, action: Action) -> io::Result<()> {
        let place = self.range(zone);
        let Some(index) = self.conventional(zone) else {
            return self.port.act(place.start, place.length, action);
        };
        if action == Action::Reset {
            erase(&*self.port, place.start, u64::from(self.shape.geometry.block_size))?;
            self.first_blocks.note(index);
        }
        Ok(())
    }

    /// Makes block 0 of a conventional zone durable before the zone is written. The caller holds the zone's lock. If
    /// the flush fails, the whole device is affected and not only this zone.
    pub(super) fn make_first_block_durable(&self, zone: ZoneId) -> Result<()> {
        if self.conventional(zone).is_some_and(|index| !self.first_blocks.is_durable(index)) {
            let flushed = crate::Device::flush(self);
            self.check_flushed()?;
            flushed?;
        }
        Ok(())
    }

    /// The size of the next piece of a write: for a conventional zone, block 0 is a piece of its own.
    pub(super) fn piece_bytes(&self, zone: ZoneId, at: u64) -> usize {
        let is_first = self.conventional(zone).is_some() && at == self.range(zone).start;
        if is_first { self.shape.geometry.block_size as usize } else { self.port.limits().transfer_bytes }
    }

    /// Records a write at this offset.
    pub(super) fn note_written(&self, zone: ZoneId, at: u64) {
        if let Some(index) = self.conventional(zone).filter(|_| at == self.range(zone).start) {
            self.first_blocks.note(index);
        }
    }

    /// The state of a zone, from the device's report and the known state.
    pub(super) fn known_state(&self, zone: ZoneId, reported: ZoneInfo) -> ZoneInfo {
        let is_dead = matches!(reported.state, ZoneState::ReadOnly | ZoneState::Offline);
        if is_dead || self.conventional(zone).is_none() {
            return reported;
        }
        self.machine.lock().zones()[zone.0 as usize]
    }
}

/// Finds out the states of conventional zones when the device is opened: writable ones are reported as empty.
pub(super) fn classify(port: &dyn Port, shape: &Shape, zones: &mut [ZoneInfo]) {
    let block = u64::from(shape.geometry.block_size);
    let first = shape.geometry.sequential() as usize;
    let to_classify: Vec<usize> =
        (first..zones.len()).filter(|&zone| zones[zone].state == ZoneState::Empty).collect();
    let place = |&zone: &usize| shape.ranges[zone].start..shape.ranges[zone].start + block;
    let places: Vec<Range<u64>> = to_classify.iter().map(place).collect();
    for (zone, is_blank) in to_classify.into_iter().zip(are_zeros(port, &places)) {
        // A zone that cannot be read is not overwritten.
        if !is_blank {
            let capacity = zones[zone].capacity;
            zones[zone] = ZoneInfo { state: ZoneState::Full, capacity, pointer: capacity };
        }
    }
}

/// The number of these zones that have data, or are unreadable, where [`wipe`] would write.
pub(super) fn count_with_data(port: &dyn Port, zones: &[ReportedZone], end: u64) -> usize {
    let places =
        zones.iter().flat_map(|zone| signature_ranges(port, zone, end).map(|place| (zone.start, place)));
    let (zones, places): (Vec<u64>, Vec<Range<u64>>) = places.filter(|(_, place)| !place.is_empty()).unzip();
    let are_blank = are_zeros(port, &places);
    let mut found: Vec<u64> =
        zones.into_iter().zip(are_blank).filter(|(_, is)| !is).map(|(zone, _)| zone).collect();
    found.dedup();
    found.len()
}

/// For each of these ranges, whether it can be read and is zeros.
fn are_zeros(port: &dyn Port, places: &[Range<u64>]) -> Vec<bool> {
    let bytes = |place: &Range<u64>| (place.end - place.start) as usize;
    let (mut are_zeros, mut rest) = (Vec::with_capacity(places.len()), places);
    while !rest.is_empty() {
        let mut all = 0;
        let fits = |place: &&Range<u64>| {
            all += bytes(place);
            all <= READ_BYTES
        };
        let (some, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        let mut buffer = AlignedBuffer::new(some.iter().map(bytes).sum());
        let mut left = buffer.bytes_mut();
        let mut reads = Vec::with_capacity(some.len());
        for place in some {
            let (into, behind) = left.split_at_mut(bytes(place));
            reads.push(Transfer::Read { offset: place.start, into });
            left = behind;
        }
        let read = port.move_all(&mut reads);
        let mut at = 0;
        for (place, read) in some.iter().zip(read) {
            let found = &buffer.bytes()[at..at + bytes(place)];
            are_zeros.push(read.is_ok() && found.iter().all(|&byte| byte == 0));
            at += bytes(place);
        }
        rest = others;
    }
    are_zeros
}

/// Erases everything in a conventional zone by which a program could recognise contents. The device ends at `end`.
pub(super) fn wipe(port: &dyn Port, zone: &ReportedZone, end: u64) -> io::Result<()> {
    signature_ranges(port, zone, end)
        .into_iter()
        .try_for_each(|place| erase(port, place.start, place.end - place.start))
}

/// The ranges of a conventional zone in which programs look for signatures: block 0, and all blocks near the ends of
/// the device, which ends at `end`. In whole blocks.
fn signature_ranges(port: &dyn Port, zone: &ReportedZone, end: u64) -> [Range<u64>; 2] {
    let block = u64::from(port.limits().block_size);
    let (start, after) = (zone.start, (zone.start + zone.length) / block * block);
    let from_start = SIGNATURES_BYTES.max(start + block).min(after);
    let before_end = end.saturating_sub(SIGNATURES_BYTES).max(from_start).min(after) / block * block;
    [start..from_start, before_end..after]
}

/// Overwrites `bytes` bytes, which are whole blocks, with zeros.
fn erase(port: &dyn Port, from: u64, bytes: u64) -> io::Result<()> {
    let limits = port.limits();
    let zeros = vec![0; limits.transfer_bytes.min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(zeros.len() as u64);
        port.write(from + done, &zeros[..piece as usize])?;
        done += piece;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
