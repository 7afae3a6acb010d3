//! The port to a zoned device of the system: its commands, without any bookkeeping.
//!
//! [`Port`] orders nothing and keeps no state. [`crate::zoned::ZonedDevice`] makes a [`crate::Device`] of it.

use std::io::{Error, Result};

use crate::ZoneState;
pub use crate::engine::{AlignedBuffer, Transfer};

/// What the system says of a device besides its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are written as a whole or not at all.
    pub block_size: u32,
    /// How many zones may be open, if that is limited.
    pub max_open: Option<u32>,
    /// How many zones may be active, if that is limited.
    pub max_active: Option<u32>,
    /// The largest single command in bytes.
    pub transfer_bytes: usize,
    /// The largest append whose place the device chooses, if it does that.
    pub append_bytes: Option<usize>,
    /// It has to move something to begin elsewhere.
    pub seeks: bool,
}

/// A zone as the system tells of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedZone {
    /// Where it begins on the device.
    pub start: u64,
    /// From there to the next zone.
    pub length: u64,
    /// How much it takes; at most `length`.
    pub capacity: u64,
    /// How much was written, of `capacity`; meaningless unless the state has a pointer.
    pub pointer: u64,
    /// What it can do; `None` where the device keeps no pointer and the zone takes writes.
    pub state: Option<ZoneState>,
    /// It can be written anywhere, and has no pointer.
    pub is_conventional: bool,
}

/// A change of a whole zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes it empty.
    Reset,
    /// Takes an open slot for it.
    Open,
    /// Returns the open slot.
    Close,
    /// Makes it full.
    Finish,
}

impl Action {
    /// As it stands in errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Reset => "reset",
            Action::Open => "open",
            Action::Close => "close",
            Action::Finish => "finish",
        }
    }
}

/// The means to reach a zoned device. All places are bytes from its beginning.
pub trait Port: Send + Sync {
    /// What the system says of the device besides its zones.
    fn limits(&self) -> &Limits;

    /// Zones from the one at `from` on, at most `most` of them and as many as one command tells of; none
    /// beyond the end.
    fn report(&self, from: u64, most: usize) -> Result<Vec<ReportedZone>>;

    /// Changes the zone at `start`.
    fn act(&self, start: u64, length: u64, action: Action) -> Result<()>;

    /// Reads a whole number of blocks.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// Many at once, in any order: reads, and at most one write to each zone, which is as one of [`Self::write`].
    fn move_all(&self, transfers: &mut [Transfer<'_>]) -> Vec<Result<()>>;

    /// Writes at a zone's pointer, at most [`Limits::transfer_bytes`]. Nothing else is written to the zone
    /// meanwhile.
    fn write(&self, at: u64, from: &[u8]) -> Result<()>;

    /// Appends to the zone at `start`, wherever its pointer is, and says where that was; others may append
    /// meanwhile. At most [`Limits::append_bytes`].
    fn append(&self, start: u64, from: &[u8]) -> Result<u64>;

    /// Makes durable what was completed before.
    fn flush(&self) -> Result<()>;

    /// Takes the memory for so many writes of so many bytes at once.
    fn prepare_buffers(&self, count: usize, bytes: usize);
}

/// Reports all zones of a device. Each lies behind the one before it, so that the reports end.
pub fn report_all(port: &dyn Port) -> Result<Vec<ReportedZone>> {
    let mut zones: Vec<ReportedZone> = Vec::new();
    loop {
        let from = zones.last().map_or(0, |zone| zone.start + zone.length);
        let more = port.report(from, usize::MAX)?;
        if more.is_empty() {
            return Ok(zones);
        }
        check_order(from, &more).map_err(Error::other)?;
        zones.extend(more);
    }
}

/// Each of these zones begins where the one before it ends, the first of them at `from`.
pub(super) fn check_order(from: u64, reported: &[ReportedZone]) -> std::result::Result<(), String> {
    let mut end = from;
    for zone in reported {
        if zone.start != end {
            return Err(format!(
                "the device tells of a zone at byte {} behind the end of one at {end}",
                zone.start
            ));
        }
        end = zone.start + zone.length;
    }
    Ok(())
}
