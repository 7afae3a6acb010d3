//! Zones that can be written anywhere, used as if they were written in order.
//!
//! The device keeps no pointer of such a zone, and nothing is kept of it beside it either: its pointer lives in
//! memory, and is lost when the device is closed. Whoever opens the device finds the zone `Empty` if block 0 is
//! zeros, and `Full` otherwise, whatever stands there: the header of a life that has not ended, or one that has rotted.
//! A reset overwrites block 0 with zeros. Other changes of state are no command at all.
//!
//! **Nothing is written to such a zone until its block 0 is durable** ([`ZonedDevice::make_first_block_durable`]): not the header before
//! the zeros of the reset are, and nothing else before the header is. Then it is what the contract of `Device` allows any
//! zone, so nobody above has to know:
//!
//! * Where the header is there, what is durable of that life came after it: the zone is found full, and all of it can be
//!   read. A zone in use that comes back full, with anything at blocks that were lost, is as after any loss of power.
//! * Where the header is lost nothing else was written, and the zone is found empty. What stands behind block 0 is of
//!   lives that have ended: begun once more, this life does not meet a footer of its own.
//! * Where the zeros of a reset are lost the old header is there, and everything else too: the reset is undone.
//!
//! Without the first flush an old header could stand before new data. I-ZONE-4 would make it harmless, as no state that
//! recovery may choose refers to the old life; but it is a state that no other zone can be in. It costs nothing that is
//! felt: a zone was usually reset long before it is written again. The second costs one flush for each life.
//!
//! They count against the limits of open and active zones like others, so that leases need not tell them apart.

use std::io;
use std::ops::Range;

use rt::sync::Mutex;

use super::ZonedDevice;
use super::port::{Action, Port, ReportedZone};
use super::shape::Shape;
use crate::engine::{AlignedBuffer, Transfer};
use crate::{Geometry, Result, ZoneId, ZoneInfo, ZoneState};

/// So much is read at once to find out what stands there.
const READ_BYTES: usize = 4 << 20;
/// What is looked at from either end of a device by whoever wants to know what is on it, and more: the farthest
/// signature that libblkid knows is that of VMFS, at 2 MiB.
const SIGNATURES_BYTES: u64 = 4 << 20;

/// Of which zones block 0 is durable.
pub(super) struct FirstBlocks(Mutex<State>);

struct State {
    /// Flushes that have begun.
    begun: u64,
    /// The last of them that has ended, and was not refused.
    durable: u64,
    /// How many had begun when block 0 of each conventional zone was written last.
    written_after: Vec<u64>,
}

impl FirstBlocks {
    /// Of zones as a process that is gone may have left them: what it has written last need not be durable.
    pub(super) fn new(geometry: &Geometry) -> FirstBlocks {
        let written_after = vec![0; geometry.conventional as usize];
        FirstBlocks(Mutex::new(State { begun: 0, durable: 0, written_after }))
    }

    /// A flush begins; its number.
    pub(super) fn begin_flush(&self) -> u64 {
        let mut state = self.0.lock();
        state.begun += 1;
        state.begun
    }

    /// What was done before that flush began is durable.
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
    /// Its number among those that are conventional, if it is.
    fn conventional(&self, zone: ZoneId) -> Option<usize> {
        let index = zone.0.checked_sub(self.shape.geometry.sequential());
        index.map(|index| index as usize)
    }

    /// Changes a zone as the kind that it is of is changed.
    pub(super) fn act(&self, zone: ZoneId, action: Action) -> io::Result<()> {
        let place = self.place(zone);
        let Some(index) = self.conventional(zone) else {
            return self.port.act(place.start, place.length, action);
        };
        if action == Action::Reset {
            erase(&*self.port, place.start, u64::from(self.shape.geometry.block_size))?;
            self.first_blocks.note(index);
        }
        Ok(())
    }

    /// Before something is written to a zone: makes its block 0 durable, where that is not the device's business. Whoever
    /// calls has the zone's turn. That a flush fails is no matter of this zone.
    pub(super) fn make_first_block_durable(&self, zone: ZoneId) -> Result<()> {
        if self.conventional(zone).is_some_and(|index| !self.first_blocks.is_durable(index)) {
            let flushed = crate::Device::flush(self);
            self.check_flushed()?;
            flushed?;
        }
        Ok(())
    }

    /// How much of a write one command takes: of a conventional zone, block 0 alone.
    pub(super) fn piece_bytes(&self, zone: ZoneId, at: u64) -> usize {
        let is_first = self.conventional(zone).is_some() && at == self.place(zone).start;
        if is_first { self.shape.geometry.block_size as usize } else { self.port.limits().transfer_bytes }
    }

    /// Something was written to a zone, from here on.
    pub(super) fn note_written(&self, zone: ZoneId, at: u64) {
        if let Some(index) = self.conventional(zone).filter(|_| at == self.place(zone).start) {
            self.first_blocks.note(index);
        }
    }

    /// What a zone is, by what the device tells of it now and by what is known of it.
    pub(super) fn known_state(&self, zone: ZoneId, reported: ZoneInfo) -> ZoneInfo {
        let is_dead = matches!(reported.state, ZoneState::ReadOnly | ZoneState::Offline);
        if is_dead || self.conventional(zone).is_none() {
            return reported;
        }
        self.machine.lock().zones()[zone.0 as usize]
    }
}

/// Finds out what conventional zones hold when the device is opened: those that take writes are said to be empty.
pub(super) fn classify(port: &dyn Port, shape: &Shape, zones: &mut [ZoneInfo]) {
    let block = u64::from(shape.geometry.block_size);
    let first = shape.geometry.sequential() as usize;
    let to_classify: Vec<usize> =
        (first..zones.len()).filter(|&zone| zones[zone].state == ZoneState::Empty).collect();
    let place = |&zone: &usize| shape.places[zone].start..shape.places[zone].start + block;
    let places: Vec<Range<u64>> = to_classify.iter().map(place).collect();
    for (zone, is_blank) in to_classify.into_iter().zip(are_zeros(port, &places)) {
        // What cannot be read is nothing that could be written over.
        if !is_blank {
            let capacity = zones[zone].capacity;
            zones[zone] = ZoneInfo { state: ZoneState::Full, capacity, pointer: capacity };
        }
    }
}

/// In how many of these zones something stands, or cannot be read, where [`wipe`] would write.
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

/// Of each of these places whether it can be read and is zeros.
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

/// Takes everything away from a conventional zone by which anybody could take it for something, where the device ends at
/// `end`.
pub(super) fn wipe(port: &dyn Port, zone: &ReportedZone, end: u64) -> io::Result<()> {
    signature_ranges(port, zone, end)
        .into_iter()
        .try_for_each(|place| erase(port, place.start, place.end - place.start))
}

/// Where a conventional zone is looked at by whoever wants to know what it is: block 0, and near the ends of the device
/// (it ends at `end`) all that a signature may be in. In whole blocks.
fn signature_ranges(port: &dyn Port, zone: &ReportedZone, end: u64) -> [Range<u64>; 2] {
    let block = u64::from(port.limits().block_size);
    let (start, after) = (zone.start, (zone.start + zone.length) / block * block);
    let from_start = SIGNATURES_BYTES.max(start + block).min(after);
    let before_end = end.saturating_sub(SIGNATURES_BYTES).max(from_start).min(after) / block * block;
    [start..from_start, before_end..after]
}

/// Writes zeros over so many bytes, which are whole blocks.
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
