//! A view of a zoned device whose zone size is no power of two, as a device whose zone size is one.
//!
//! Linux makes a block device only of zones of a power of two, and most programs assume that. In the view, each zone
//! begins at a multiple of the next power of two, and keeps its capacity:
//!
//! ```text
//! device   |0      |1      |2      |          a zone every 96 MiB
//!          |       |       \______  \______
//! view     |0      ..|1      ..|2      ..|    a zone every 128 MiB with a capacity of 96 MiB
//! ```
//!
//! The range between a zone's capacity and the next zone (`..`) does not exist on the device. It reads as zeros and
//! accepts no writes. A read that touches it is split, and the rest is read from the device. Commands for whole zones
//! are passed on. So the view behaves like a device with this zone size and this capacity, and nothing is stored for
//! it: the same device can be used with the view and without it in turn.
//!
//! **Accepted is** a device with equal sequential zones; the last may be smaller. **Refused is** a device that needs
//! no view because its zones are powers of two already, and a device that the kernel would not accept as zoned: one
//! with conventional zones (their capacity must equal their size) or with different capacities.
//!
//! | file | contents |
//! |---|---|
//! | `map` | the arithmetic of places, without I/O |
//!
//! The view has no state of zones, orders nothing, and does not read the contents of zones. For each zone there may
//! be one write at the pointer at a time, and any number of appends, as on the device itself.

mod map;

use std::io;
use std::path::Path;

use rustix::io::Errno;

use map::Map;
pub use map::Po2Error;
use zone::ZoneState;
use zone::file::FileError;
use zone::zoned::exclusive_port;
use zone::zoned::port::{Action, Limits, Port, ReportedZone, Transfer, report_all};

/// A device and the view of it.
pub struct Po2View {
    port: Box<dyn Port>,
    map: Map,
}

/// The shape of the view, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Po2Shape {
    /// The block size.
    pub block_size: u32,
    /// Number of zones.
    pub zones: u32,
    /// The zone size in the view: a power of two.
    pub zone_bytes: u64,
    /// The zone size on the device.
    pub device_zone_bytes: u64,
    /// The capacity of a zone; that of the last may be smaller.
    pub capacity: u64,
    /// The limit of open zones, if there is one.
    pub max_open: Option<u32>,
    /// The limit of active zones, if there is one.
    pub max_active: Option<u32>,
    /// The largest write.
    pub write_bytes_max: usize,
    /// The largest append whose place the device chooses; 0 if it does not support such appends.
    pub append_bytes_max: usize,
}

/// A zone of the view, in bytes from the beginning of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Po2Zone {
    /// Its start.
    pub start: u64,
    /// Its capacity.
    pub capacity: u64,
    /// The write pointer relative to `start`; it has no meaning unless the state has a pointer.
    pub written: u64,
    /// Its state.
    pub state: ZoneState,
}

/// A change of a whole zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneChange {
    /// Makes it empty.
    Reset,
    /// Opens it.
    Open,
    /// Closes it.
    Close,
    /// Makes it full.
    Finish,
}

impl Po2View {
    /// Opens a device, and locks it until the view is dropped. The error contains the reason if there can be no view.
    pub fn open(path: &Path) -> Result<Po2View, FileError> {
        let unfit = |why: String| FileError::Unsuitable { path: path.to_owned(), why };
        let port = exclusive_port(path)?.ok_or_else(|| unfit("it has no zones of its own".to_owned()))?;
        let failed = |error: io::Error| FileError::Io {
            path: path.to_owned(),
            operation: "list its zones",
            reason: error.to_string(),
        };
        Po2View::of(port).map_err(failed)?.map_err(|why| unfit(why.to_string()))
    }

    /// The view of the device of a port.
    pub(crate) fn of(port: Box<dyn Port>) -> io::Result<Result<Po2View, Po2Error>> {
        let zones = report_all(&*port)?;
        Ok(Map::of(port.limits().block_size, &zones).map(|map| Po2View { port, map }))
    }

    /// The shape of the view.
    pub fn shape(&self) -> Po2Shape {
        let limits: &Limits = self.port.limits();
        // A limit that is not below the number of zones is none.
        let limit = |most: Option<u32>| most.filter(|&most| most < self.map.zones());
        Po2Shape {
            block_size: limits.block_size,
            zones: self.map.zones(),
            zone_bytes: self.map.zone_bytes(),
            device_zone_bytes: self.map.device_zone_bytes(),
            capacity: self.map.capacity(0),
            max_open: limit(limits.max_open),
            max_active: limit(limits.max_active),
            write_bytes_max: limits.transfer_bytes,
            append_bytes_max: limits.append_bytes.unwrap_or(0),
        }
    }

    /// Reports zones from `first` on, at most `most`; none beyond the end.
    pub fn report(&self, first: u32, most: usize) -> io::Result<Vec<Po2Zone>> {
        let mut zones: Vec<Po2Zone> = Vec::new();
        while zones.len() < most {
            let Some(from) = self.map.zone_on_device(first as usize + zones.len()) else { break };
            let reported = self.port.report(from, most - zones.len())?;
            if reported.is_empty() {
                break;
            }
            zones.extend(
                reported
                    .iter()
                    .map(|reported| self.zone_in_view(reported))
                    .collect::<io::Result<Vec<_>>>()?,
            );
        }
        Ok(zones)
    }

    /// Reads a whole number of blocks anywhere in the view.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check_unit(at, into.len())?;
        let pieces = self.map.pieces(at, into.len() as u64).ok_or(Errno::IO)?;
        let mut reads = Vec::new();
        let mut rest = into;
        for piece in pieces {
            let (into, after) = rest.split_at_mut(piece.bytes as usize);
            match piece.on_device {
                Some(offset) => reads.push(Transfer::Read { offset, into }),
                None => into.fill(0),
            }
            rest = after;
        }
        self.port.move_all(&mut reads).into_iter().collect()
    }

    /// Writes at the pointer of a zone.
    pub fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check_unit(at, from.len())?;
        let place = self.map.write_on_device(at, from.len() as u64).ok_or(Errno::IO)?;
        self.port.write(place, from)
    }

    /// Checks that a write is within the capacity of its zone.
    pub(crate) fn check_write(&self, at: u64, bytes: usize) -> io::Result<()> {
        self.check_unit(at, bytes)?;
        self.map.write_on_device(at, bytes as u64).map(drop).ok_or_else(|| Errno::IO.into())
    }

    /// Appends to the zone that begins at `start`, and returns the place where the data landed.
    pub fn append(&self, start: u64, from: &[u8]) -> io::Result<u64> {
        self.check_unit(start, from.len())?;
        let zone = self.map.zone_at(start).ok_or(Errno::IO)?;
        let landed = self.port.append(zone, from)?;
        self.map.in_view(landed).ok_or_else(|| io::Error::other("an append was written outside all zones"))
    }

    /// Changes the zone that begins at `start`.
    pub fn change(&self, start: u64, change: ZoneChange) -> io::Result<()> {
        let zone = self.map.zone_at(start).ok_or(Errno::IO)?;
        let action = match change {
            ZoneChange::Reset => Action::Reset,
            ZoneChange::Open => Action::Open,
            ZoneChange::Close => Action::Close,
            ZoneChange::Finish => Action::Finish,
        };
        self.port.act(zone, self.map.device_zone_bytes(), action)
    }

    /// Makes all commands durable that completed before.
    pub fn flush(&self) -> io::Result<()> {
        self.port.flush()
    }

    fn zone_in_view(&self, reported: &ReportedZone) -> io::Result<Po2Zone> {
        let wrong = || io::Error::other("the device reports other zones than before");
        let start = self.map.in_view(reported.start).ok_or_else(wrong)?;
        let state = reported.state.ok_or_else(wrong)?;
        Ok(Po2Zone { start, capacity: reported.capacity, written: reported.pointer, state })
    }

    fn check_unit(&self, at: u64, bytes: usize) -> io::Result<()> {
        let block = u64::from(self.port.limits().block_size);
        let is_whole = bytes > 0 && at.is_multiple_of(block) && (bytes as u64).is_multiple_of(block);
        if is_whole { Ok(()) } else { Err(Errno::INVAL.into()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
