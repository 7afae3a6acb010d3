//! Executes requests of the kernel on the view.

use std::io;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{Descriptor, operation};
use crate::{Po2View, Po2Zone, ZoneChange};
use zone::ZoneState;
use zone::zoned::report::{SECTOR, Zone};

/// The bits of [`Descriptor::operation`] with the operation.
const OPERATION: u32 = 0xff;

/// The answer to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The number of bytes transferred, or a negative error.
    pub(super) result: i32,
    /// The sector at which an append landed.
    pub(super) place: u64,
}

/// The bytes of one request in the kernel.
pub(super) trait Payload {
    /// Reads data to be written, from this offset on.
    fn fetch(&self, from: usize, into: &mut [u8]) -> io::Result<()>;
    /// Returns data that was read, at this offset.
    fn give(&self, at: usize, from: &[u8]) -> io::Result<()>;
}

/// Executes a request. A request that is larger than `buffer` is split into pieces, unless it is an append. A failure
/// is logged, because the kernel reports only an error number to the program.
pub(super) fn answer(
    view: &Po2View,
    request: &Descriptor,
    payload: &dyn Payload,
    buffer: &mut [u8],
) -> Answer {
    let refused = |error: io::Error| {
        let (operation, sector, count) = (name(request.operation), request.sector, request.count);
        tracing::warn!(operation, sector, count, %error, "a request of the block device fails");
        Answer { result: -errno(&error).raw_os_error(), place: 0 }
    };
    execute(view, request, payload, buffer).unwrap_or_else(refused)
}

/// The name of an operation in the log.
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

fn execute(
    view: &Po2View,
    request: &Descriptor,
    payload: &dyn Payload,
    buffer: &mut [u8],
) -> io::Result<Answer> {
    let done = |bytes: usize| Answer { result: bytes as i32, place: 0 };
    match request.operation & OPERATION {
        operation::READ => read(view, request, payload, buffer).map(done),
        operation::WRITE => write(view, request, payload, buffer).map(done),
        operation::ZONE_APPEND => {
            let from = buffer.get_mut(..bytes(request)?).ok_or(Errno::INVAL)?;
            payload.fetch(0, from)?;
            let landed = view.append(place(request)?, from)?;
            Ok(Answer { place: landed / SECTOR, ..done(from.len()) })
        }
        operation::REPORT_ZONES => report(view, request, payload).map(done),
        operation::FLUSH => view.flush().map(|()| done(0)),
        operation::ZONE_RESET_ALL => reset_all(view).map(|()| done(0)),
        other => {
            let change = change(other).ok_or(Errno::OPNOTSUPP)?;
            view.change(place(request)?, change).map(|()| done(0))
        }
    }
}

fn read(view: &Po2View, request: &Descriptor, payload: &dyn Payload, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, bytes) = (place(request)?, bytes(request)?);
    let most = buffer.len();
    for from in (0..bytes).step_by(most) {
        let into = &mut buffer[..(bytes - from).min(most)];
        view.read(start + from as u64, into)?;
        payload.give(from, into)?;
    }
    Ok(bytes)
}

fn write(
    view: &Po2View,
    request: &Descriptor,
    payload: &dyn Payload,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let (start, bytes) = (place(request)?, bytes(request)?);
    // A write that does not fit is refused completely, as on a device.
    view.check_write(start, bytes)?;
    let most = buffer.len().min(view.shape().write_bytes_max);
    for at in (0..bytes).step_by(most) {
        let from = &mut buffer[..(bytes - at).min(most)];
        payload.fetch(at, from)?;
        view.write(start + at as u64, from)?;
    }
    Ok(bytes)
}

/// The start of a request. For requests for the whole device it has no meaning.
fn place(request: &Descriptor) -> io::Result<u64> {
    request.sector.checked_mul(SECTOR).ok_or_else(|| Errno::INVAL.into())
}

fn bytes(request: &Descriptor) -> io::Result<usize> {
    let bytes = u64::from(request.count) * SECTOR;
    // The number of transferred bytes has 31 bits.
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

/// Reports all requested zones. The kernel requests no more zones than it knows, and requests again those that are
/// missing in an answer. If the device reports fewer, it would repeat this forever.
fn report(view: &Po2View, request: &Descriptor, payload: &dyn Payload) -> io::Result<usize> {
    let shape = view.shape();
    let first = u32::try_from(request.sector / (shape.zone_bytes / SECTOR)).map_err(|_| Errno::INVAL)?;
    let zones = view.report(first, request.count as usize)?;
    if zones.len() < request.count as usize {
        return Err(io::Error::other("the device reports fewer zones than before"));
    }
    let reported: Vec<Zone> = zones.iter().map(|zone| reported(zone, shape.zone_bytes)).collect();
    payload.give(0, reported.as_bytes())?;
    Ok(size_of_val(&reported[..]))
}

fn reported(zone: &Po2Zone, length: u64) -> Zone {
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
