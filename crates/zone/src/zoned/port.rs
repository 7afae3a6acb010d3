//! The commands of a zoned device of the system, without any bookkeeping.
//!
//! [`Port`] orders nothing and has no state. [`crate::zoned::ZonedDevice`] implements a [`crate::Device`] with it.

use std::io::{Error, Result};

use crate::ZoneState;
pub use crate::engine::{AlignedBuffer, Transfer};

/// The properties of a device that the system reports beside its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The unit of atomic writes in bytes.
    pub block_size: u32,
    /// The limit of open zones, if there is one.
    pub max_open: Option<u32>,
    /// The limit of active zones, if there is one.
    pub max_active: Option<u32>,
    /// The largest single command in bytes.
    pub transfer_bytes: usize,
    /// The largest append whose place the device chooses, if it supports such appends.
    pub append_bytes: Option<usize>,
    /// It has to seek.
    pub seeks: bool,
}

/// A zone as the system reports it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedZone {
    /// Its offset on the device.
    pub start: u64,
    /// The distance from there to the next zone.
    pub length: u64,
    /// Its capacity; at most `length`.
    pub capacity: u64,
    /// The write pointer, relative to `start`; it has no meaning unless the state has a pointer.
    pub pointer: u64,
    /// Its state; `None` for a writable zone without a pointer.
    pub state: Option<ZoneState>,
    /// It can be written anywhere and has no pointer.
    pub is_conventional: bool,
}

/// A change of a whole zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes it empty.
    Reset,
    /// Opens it.
    Open,
    /// Closes it.
    Close,
    /// Makes it full.
    Finish,
}

impl Action {
    /// Its name in errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Reset => "reset",
            Action::Open => "open",
            Action::Close => "close",
            Action::Finish => "finish",
        }
    }
}

/// A zoned device of the system. All places are offsets in bytes from the beginning of the device.
pub trait Port: Send + Sync {
    /// The properties of the device beside its zones.
    fn limits(&self) -> &Limits;

    /// Reports zones from the one at `from` on, at most `most` of them and at most as many as one command reports;
    /// none beyond the end.
    fn report(&self, from: u64, most: usize) -> Result<Vec<ReportedZone>>;

    /// Changes the zone at `start`.
    fn act(&self, start: u64, length: u64, action: Action) -> Result<()>;

    /// Reads a whole number of blocks.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// Executes several transfers at once, in any order: reads, and at most one write to each zone, as with
    /// [`Self::write`].
    fn move_all(&self, transfers: &mut [Transfer<'_>]) -> Vec<Result<()>>;

    /// Writes at a zone's pointer, at most [`Limits::transfer_bytes`]. The caller ensures that there are no other
    /// writes to the zone meanwhile.
    fn write(&self, at: u64, from: &[u8]) -> Result<()>;

    /// Appends to the zone at `start` at its pointer, and returns the offset where the data landed. Other appends may
    /// run meanwhile. At most [`Limits::append_bytes`].
    fn append(&self, start: u64, from: &[u8]) -> Result<u64>;

    /// Makes all commands durable that completed before.
    fn flush(&self) -> Result<()>;

    /// Allocates the memory for `count` concurrent writes of `bytes` bytes.
    fn prepare_buffers(&self, count: usize, bytes: usize);
}

/// Reports all zones of a device. Each must lie behind the one before it, so that this ends.
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

/// Checks that each zone begins where the one before it ends, and the first one at `from`.
pub(super) fn check_order(from: u64, reported: &[ReportedZone]) -> std::result::Result<(), String> {
    let mut end = from;
    for zone in reported {
        if zone.start != end {
            return Err(format!(
                "the device reports a zone at byte {} after a zone that ends at {end}",
                zone.start
            ));
        }
        end = zone.start + zone.length;
    }
    Ok(())
}
