//! The kernel's report of the zones of a block device (`linux/blkzoned.h`), as bytes.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::port::ReportedZone;
use crate::ZoneState;

/// The kernel's unit for places on block devices in bytes, whatever their block size is.
pub const SECTOR: u64 = 512;
/// The largest number of zones in one report.
pub(super) const ZONES: usize = 128;

/// The report contains the capacity of each zone, which may be less than its length.
const HAS_CAPACITY: u32 = 1;
const CONVENTIONAL: u8 = 1;

/// `struct blk_zone_report` with space for some zones.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Report {
    /// The start of the first zone.
    pub(super) sector: u64,
    /// The number of zones that fit; afterwards the number of zones reported.
    pub(super) count: u32,
    /// Set by the kernel.
    pub(super) flags: u32,
    pub(super) zones: [Zone; ZONES],
}

/// `struct blk_zone`, in sectors.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Zone {
    /// Its start.
    pub start: u64,
    /// The distance from there to the next zone.
    pub length: u64,
    /// The write pointer, from the beginning of the device.
    pub pointer: u64,
    /// Whether it is conventional or sequential.
    pub kind: u8,
    /// The state, as the kernel numbers it.
    pub condition: u8,
    /// The kernel's `non_seq`.
    pub non_sequential: u8,
    /// The kernel's `reset`.
    pub reset_recommended: u8,
    /// Zeros.
    pub reserved: [u8; 4],
    /// Its capacity; at most `length`.
    pub capacity: u64,
    /// Zeros.
    pub reserved_too: [u8; 24],
}

const _: () = assert!(size_of::<Zone>() == 64 && size_of::<Report>() == 16 + 64 * ZONES);

impl Report {
    /// An empty report for zones from `sector` on.
    pub(super) fn new(sector: u64, most: usize) -> Report {
        let mut report = Report::new_zeroed();
        (report.sector, report.count) = (sector, most.min(ZONES) as u32);
        report
    }

    /// The reported zones, or the reason why the report is invalid.
    pub(super) fn zones(&self) -> Result<Vec<ReportedZone>, String> {
        let count = self.count as usize;
        let zones = self.zones.get(..count).ok_or("the kernel reports more zones than were requested")?;
        zones.iter().map(|zone| self.one(zone)).collect()
    }

    fn one(&self, zone: &Zone) -> Result<ReportedZone, String> {
        let wrong = |what: &str| Err(format!("the zone at sector {} {what}", zone.start));
        let capacity = if self.flags & HAS_CAPACITY != 0 { zone.capacity } else { zone.length };
        let end = zone.start.checked_add(zone.length).and_then(|end| end.checked_mul(SECTOR));
        if zone.length == 0 || capacity > zone.length || end.is_none() {
            return wrong("is reported with an impossible length");
        }
        let Ok(state) = state_of(zone) else {
            return wrong(&format!("is in an unknown condition ({:#x})", zone.condition));
        };
        let has_pointer = state.is_some_and(ZoneState::has_pointer);
        let pointer = if has_pointer { zone.pointer.checked_sub(zone.start) } else { Some(0) };
        let most = if state == Some(ZoneState::Empty) { 0 } else { zone.length };
        match pointer.filter(|&pointer| pointer <= most) {
            Some(pointer) => Ok(ReportedZone {
                start: zone.start * SECTOR,
                length: zone.length * SECTOR,
                capacity: capacity * SECTOR,
                pointer: pointer * SECTOR,
                state,
                is_conventional: zone.kind == CONVENTIONAL,
            }),
            None => wrong("is reported with its write pointer outside"),
        }
    }
}

impl Zone {
    /// A sequential zone with its start, length, pointer and capacity.
    pub fn sequential([start, length, pointer, capacity]: [u64; 4], state: ZoneState) -> Zone {
        const SEQUENTIAL: u8 = 2;
        let condition = match state {
            ZoneState::Empty => 0x1,
            ZoneState::Open => 0x2,
            ZoneState::Closed => 0x4,
            ZoneState::ReadOnly => 0xd,
            ZoneState::Full => 0xe,
            ZoneState::Offline => 0xf,
        };
        Zone { start, length, pointer, kind: SEQUENTIAL, condition, capacity, ..Zone::new_zeroed() }
    }
}

/// The state of a zone; `None` for a writable conventional zone.
fn state_of(zone: &Zone) -> Result<Option<ZoneState>, ()> {
    let state = match zone.condition {
        0x0 if zone.kind == CONVENTIONAL => return Ok(None),
        0x1 => ZoneState::Empty,
        0x2 | 0x3 => ZoneState::Open,
        0x4 => ZoneState::Closed,
        0xd => ZoneState::ReadOnly,
        0xe => ZoneState::Full,
        0xf => ZoneState::Offline,
        _ => return Err(()),
    };
    // A conventional zone may be read-only or offline; other conditions have no meaning.
    let is_known = zone.kind != CONVENTIONAL || matches!(state, ZoneState::ReadOnly | ZoneState::Offline);
    Ok(is_known.then_some(state))
}

#[cfg(test)]
mod tests;
