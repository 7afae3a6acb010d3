//! What a request of the kernel means to the view.

use std::io;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{Descriptor, operation};
use crate::{Po2View, Po2Zone, ZoneChange};
use zone::ZoneState;
use zone::zoned::report::{SECTOR, Zone};

/// Bits of [`Descriptor::operation`] that say what is asked for.
const OPERATION: u32 = 0xff;

/// What the kernel is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Bytes that were moved, or an error below 0.
    pub(super) result: i32,
    /// The sector at which an append landed.
    pub(super) place: u64,
}

/// The bytes of one request, which the kernel has.
pub(super) trait Payload {
    /// What is to be written, from a byte of it on.
    fn fetch(&self, from: usize, into: &mut [u8]) -> io::Result<()>;
    /// What was read, from a byte of it on.
    fn give(&self, at: usize, from: &[u8]) -> io::Result<()>;
}

/// Carries out a request. What is larger than `buffer` is moved in pieces; an append is not. One that fails is logged:
/// the kernel tells whoever asked no more than that it failed.
pub(super) fn answer(view: &Po2View, asked: &Descriptor, payload: &dyn Payload, buffer: &mut [u8]) -> Answer {
    let refused = |error: io::Error| {
        let (operation, sector, count) = (name(asked.operation), asked.sector, asked.count);
        tracing::warn!(operation, sector, count, %error, "a request of the block device fails");
        Answer { result: -errno(&error).raw_os_error(), place: 0 }
    };
    carry_out(view, asked, payload, buffer).unwrap_or_else(refused)
}

/// As it stands in the log.
fn name(operation: u32) -> &'static str {
    match operation & OPERATION {
        operation::READ => "read",
        operation::WRITE => "write",
        operation::FLUSH => "flush",
        operation::ZONE_OPEN => "open",
        operation::ZONE_CLOSE => "close",
        operation::ZONE_FINISH => "finish",
        operation::ZONE_APPEND => "append",
        operation::ZONE_RESET => "reset",
        operation::ZONE_RESET_ALL => "reset all",
        operation::REPORT_ZONES => "report",
        _ => "unknown",
    }
}

fn carry_out(
    view: &Po2View,
    asked: &Descriptor,
    payload: &dyn Payload,
    buffer: &mut [u8],
) -> io::Result<Answer> {
    let done = |bytes: usize| Answer { result: bytes as i32, place: 0 };
    match asked.operation & OPERATION {
        operation::READ => read(view, asked, payload, buffer).map(done),
        operation::WRITE => write(view, asked, payload, buffer).map(done),
        operation::ZONE_APPEND => {
            let from = buffer.get_mut(..bytes(asked)?).ok_or(Errno::INVAL)?;
            payload.fetch(0, from)?;
            let landed = view.append(place(asked)?, from)?;
            Ok(Answer { place: landed / SECTOR, ..done(from.len()) })
        }
        operation::REPORT_ZONES => report(view, asked, payload).map(done),
        operation::FLUSH => view.flush().map(|()| done(0)),
        operation::ZONE_RESET_ALL => reset_all(view).map(|()| done(0)),
        other => {
            let change = change(other).ok_or(Errno::OPNOTSUPP)?;
            view.change(place(asked)?, change).map(|()| done(0))
        }
    }
}

fn read(view: &Po2View, asked: &Descriptor, payload: &dyn Payload, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, bytes) = (place(asked)?, bytes(asked)?);
    let most = buffer.len();
    for from in (0..bytes).step_by(most) {
        let into = &mut buffer[..(bytes - from).min(most)];
        view.read(start + from as u64, into)?;
        payload.give(from, into)?;
    }
    Ok(bytes)
}

fn write(view: &Po2View, asked: &Descriptor, payload: &dyn Payload, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, bytes) = (place(asked)?, bytes(asked)?);
    // One that does not fit is refused as a whole, as a device does.
    view.check_write(start, bytes)?;
    let most = buffer.len().min(view.shape().write_bytes_max);
    for at in (0..bytes).step_by(most) {
        let from = &mut buffer[..(bytes - at).min(most)];
        payload.fetch(at, from)?;
        view.write(start + at as u64, from)?;
    }
    Ok(bytes)
}

/// Where a request begins. Those that are for the whole device come with any place.
fn place(asked: &Descriptor) -> io::Result<u64> {
    asked.sector.checked_mul(SECTOR).ok_or_else(|| Errno::INVAL.into())
}

fn bytes(asked: &Descriptor) -> io::Result<usize> {
    let bytes = u64::from(asked.count) * SECTOR;
    // What was moved is told in 31 bits.
    i32::try_from(bytes).map(|bytes| bytes as usize).map_err(|_| Errno::INVAL.into())
}

fn change(operation: u32) -> Option<ZoneChange> {
    match operation {
        operation::ZONE_OPEN => Some(ZoneChange::Open),
        operation::ZONE_CLOSE => Some(ZoneChange::Close),
        operation::ZONE_FINISH => Some(ZoneChange::Finish),
        operation::ZONE_RESET => Some(ZoneChange::Reset),
        _ => None,
    }
}

/// Reports zones, all that were asked for. The kernel asks for no more than it was told that there are, and again for
/// those that an answer leaves out: where the device tells of fewer, it would ask for ever.
fn report(view: &Po2View, asked: &Descriptor, payload: &dyn Payload) -> io::Result<usize> {
    let shape = view.shape();
    let first = u32::try_from(asked.sector / (shape.zone_bytes / SECTOR)).map_err(|_| Errno::INVAL)?;
    let zones = view.report(first, asked.count as usize)?;
    if zones.len() < asked.count as usize {
        return Err(io::Error::other("the device tells of fewer zones than before"));
    }
    let told: Vec<Zone> = zones.iter().map(|zone| told(zone, shape.zone_bytes)).collect();
    payload.give(0, told.as_bytes())?;
    Ok(size_of_val(&told[..]))
}

fn told(zone: &Po2Zone, length: u64) -> Zone {
    let written = if zone.state.has_pointer() { zone.written } else { zone.capacity };
    Zone::sequential(
        [zone.start, length, zone.start + written, zone.capacity].map(|at| at / SECTOR),
        zone.state,
    )
}

fn reset_all(view: &Po2View) -> io::Result<()> {
    let is_to_be_reset =
        |zone: &&Po2Zone| !matches!(zone.state, ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline);
    let zones = view.report(0, usize::MAX)?;
    zones.iter().filter(is_to_be_reset).try_for_each(|zone| view.change(zone.start, ZoneChange::Reset))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
