//! A zoned device whose zones are no power of two, offered as one whose zones are.
//!
//! Linux makes a block device only of what has zones of a power of two, and most programs take that for granted.
//! Here each zone begins at a multiple of the next power of two, and takes what it takes:
//!
//! ```text
//! device   |0      |1      |2      |          a zone every 96 MiB
//!          |       |       \______  \______
//! view     |0      ..|1      ..|2      ..|    a zone every 128 MiB, which takes 96 MiB
//! ```
//!
//! What is between a zone's capacity and the next zone (`..`) is not on the device. It reads as zeros and takes no
//! write; a read that touches it is split, and the device is asked for the rest. Commands for whole zones go through.
//! So the view does what a device does that has zones of that size and that capacity, and nothing is stored for it:
//! the same device can be used through the view and without it in turn.
//!
//! **Offered is** a device whose zones are all written in order and are alike; the last may be shorter. **Refused is**
//! what needs no view, because its zones are powers of two already, and what the kernel would not take as a zoned
//! device: conventional zones (they would have to take all of their size) and zones of different capacities.
//!
//! | file | is |
//! |---|---|
//! | `map` | the arithmetic of places, which does no I/O |
//!
//! It keeps no state of zones, orders nothing, and does not look at what is in them: of writes at the pointer there
//! may be one at a time for each zone, of appends many, as on the device itself.

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

/// What the view is, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Po2Shape {
    /// What is read and written as a whole.
    pub block_size: u32,
    /// Number of zones.
    pub zones: u32,
    /// From one zone to the next in the view: a power of two.
    pub zone_bytes: u64,
    /// From one zone to the next on the device.
    pub device_zone_bytes: u64,
    /// What a zone takes; the last may take less.
    pub capacity: u64,
    /// How many zones may be open, if that is limited.
    pub max_open: Option<u32>,
    /// How many zones may be active, if that is limited.
    pub max_active: Option<u32>,
    /// The largest write.
    pub write_bytes_max: usize,
    /// The largest append whose place the device chooses; 0 if it does not do that.
    pub append_bytes_max: usize,
}

/// A zone of the view, in bytes from the beginning of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Po2Zone {
    /// Where it begins.
    pub start: u64,
    /// What it takes.
    pub capacity: u64,
    /// How much of that was written; meaningless unless the state has a pointer.
    pub written: u64,
    /// What it can do.
    pub state: ZoneState,
}

/// A change of a whole zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneChange {
    /// Makes it empty.
    Reset,
    /// Takes a slot for writing.
    Open,
    /// Gives the slot back.
    Close,
    /// Makes it full.
    Finish,
}

impl Po2View {
    /// Opens a device, and keeps it from others until the view is dropped. The error says why where there is nothing
    /// to offer.
    pub fn open(path: &Path) -> Result<Po2View, FileError> {
        let unfit = |why: String| FileError::Unsuitable { path: path.to_owned(), why };
        let port = exclusive_port(path)?.ok_or_else(|| unfit("it has no zones of its own".to_owned()))?;
        let failed = |error: io::Error| FileError::Io {
            path: path.to_owned(),
            operation: "ask for its zones",
            reason: error.to_string(),
        };
        Po2View::of(port).map_err(failed)?.map_err(|why| unfit(why.to_string()))
    }

    /// The view of what a port leads to.
    pub(crate) fn of(port: Box<dyn Port>) -> io::Result<Result<Po2View, Po2Error>> {
        let zones = report_all(&*port)?;
        Ok(Map::of(port.limits().block_size, &zones).map(|map| Po2View { port, map }))
    }

    /// What the view is.
    pub fn shape(&self) -> Po2Shape {
        let limits: &Limits = self.port.limits();
        // More than there are zones is no limit.
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

    /// Zones from this one on, at most so many; none beyond the end.
    pub fn report(&self, first: u32, most: usize) -> io::Result<Vec<Po2Zone>> {
        let mut zones: Vec<Po2Zone> = Vec::new();
        while zones.len() < most {
            let Some(from) = self.map.zone_on_device(first as usize + zones.len()) else { break };
            let told = self.port.report(from, most - zones.len())?;
            if told.is_empty() {
                break;
            }
            zones.extend(told.iter().map(|told| self.shown(told)).collect::<io::Result<Vec<_>>>()?);
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

    /// Whether a write would stay within what its zone takes.
    pub(crate) fn check_write(&self, at: u64, bytes: usize) -> io::Result<()> {
        self.check_unit(at, bytes)?;
        self.map.write_on_device(at, bytes as u64).map(drop).ok_or_else(|| Errno::IO.into())
    }

    /// Appends to the zone that begins at `start`, and says where that was.
    pub fn append(&self, start: u64, from: &[u8]) -> io::Result<u64> {
        self.check_unit(start, from.len())?;
        let zone = self.map.zone_at(start).ok_or(Errno::IO)?;
        let landed = self.port.append(zone, from)?;
        self.map.in_view(landed).ok_or_else(|| io::Error::other("an append landed outside of all zones"))
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

    /// Makes durable what was completed before.
    pub fn flush(&self) -> io::Result<()> {
        self.port.flush()
    }

    fn shown(&self, told: &ReportedZone) -> io::Result<Po2Zone> {
        let wrong = || io::Error::other("the device reports other zones than before");
        let start = self.map.in_view(told.start).ok_or_else(wrong)?;
        let state = told.state.ok_or_else(wrong)?;
        Ok(Po2Zone { start, capacity: told.capacity, written: told.pointer, state })
    }

    fn check_unit(&self, at: u64, bytes: usize) -> io::Result<()> {
        let block = u64::from(self.port.limits().block_size);
        let is_whole = bytes > 0 && at.is_multiple_of(block) && (bytes as u64).is_multiple_of(block);
        if is_whole { Ok(()) } else { Err(Errno::INVAL.into()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
