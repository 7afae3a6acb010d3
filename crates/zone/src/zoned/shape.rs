//! Which zones of a device are used, and which devices are refused.
//!
//! Polder uses the zones that have at least half the length of the longest sequential zone; `polder mkfs` reports the
//! size of the unused rest. The sequential zones have the first numbers, in the order of their offsets, and the
//! conventional zones follow. So the log, which is in the first zones, is always in sequential zones.
//!
//! The choice depends only on the kinds and lengths of zones, which never change. So a zone keeps its number in its
//! volume, whatever happens to the zones before it. Volumes of releases that used no conventional zones continue
//! without them ([`Shape::of_volume`]).

use super::port::{Limits, ReportedZone};
use crate::file::format::OPEN_ZONES_MIN;
use crate::{Address, Blocks, Geometry, ZoneInfo, ZoneState};

/// The limit of open zones on a device without a limit.
const OPEN_UNLIMITED: u32 = 32;
/// The largest append in bytes, as in a file.
const APPEND_BYTES: u32 = 1 << 20;

/// The range of a used zone on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneRange {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// The used part of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) geometry: Geometry,
    /// By number of the zone.
    pub(crate) ranges: Vec<ZoneRange>,
    pub(crate) unused_zones: UnusedZones,
}

/// The zones that are not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedZones {
    /// Unused conventional zones: those that are too small, or all of them for a volume that was created without.
    pub conventional: u32,
    /// Their bytes.
    pub conventional_bytes: u64,
    /// Bytes of the sequential zones that are too small.
    pub small_bytes: u64,
}

impl UnusedZones {
    fn of(small: &[&ReportedZone]) -> UnusedZones {
        let mut unused_zones = UnusedZones::default();
        for zone in small {
            if zone.is_conventional {
                unused_zones.conventional += 1;
                unused_zones.conventional_bytes += zone.length;
            } else {
                unused_zones.small_bytes += zone.length;
            }
        }
        unused_zones
    }
}

impl Shape {
    /// The shape of a device with these zones, or the reason why it cannot be used.
    pub(crate) fn of(limits: &Limits, reported: &[ReportedZone]) -> Result<Shape, String> {
        let block = u64::from(limits.block_size);
        if !limits.block_size.is_power_of_two() || !(512..=65536).contains(&limits.block_size) {
            return Err(format!(
                "its blocks have {block} bytes; Polder supports powers of two from 512 to 65536"
            ));
        }
        let in_order = || reported.iter().filter(|zone| !zone.is_conventional);
        let largest = in_order().map(|zone| zone.length).max();
        let largest = largest.ok_or("it has no sequential zones")?;
        check_zone(largest, block)?;
        let (used, small): (Vec<&ReportedZone>, Vec<&ReportedZone>) =
            reported.iter().partition(|zone| zone.length >= largest / 2);
        let (last, first): (Vec<&ReportedZone>, Vec<&ReportedZone>) =
            used.iter().partition(|zone| zone.is_conventional);
        let zones = u32::try_from(used.len()).ok().filter(|&zones| zones <= Address::ZONES_MAX);
        let zones =
            zones.ok_or_else(|| format!("it has {} zones; Polder supports at most 2^24", used.len()))?;
        let capacity = in_order().map(|zone| zone.capacity).max();
        let zone_blocks = (capacity.expect("there is a zone with a pointer") / block) as Blocks;
        let (max_open, max_active) = open_limits(limits, zones)?;
        let geometry = Geometry {
            block_size: limits.block_size,
            zones,
            zone_blocks,
            max_open,
            max_active,
            max_append: (APPEND_BYTES / limits.block_size).min(zone_blocks).max(1),
            conventional: last.len() as u32,
            seek_bytes: if limits.seeks { Geometry::SEEK_BYTES_OF_DISK } else { Geometry::SEEK_BYTES },
        };
        let place = |zone: &&ReportedZone| ZoneRange { start: zone.start, length: zone.length };
        let ranges = first.iter().chain(&last).map(place).collect();
        Ok(Shape { geometry, ranges, unused_zones: UnusedZones::of(&small) })
    }

    /// The shape for a volume with `zones` zones: a volume that was created by a release without support for
    /// conventional zones does not have them.
    pub(crate) fn of_volume(mut self, limits: &Limits, zones: u32) -> Result<Shape, String> {
        let sequential = self.geometry.sequential();
        if zones == self.geometry.zones || zones != sequential {
            return Ok(self);
        }
        let unused = self.ranges.split_off(sequential as usize);
        self.unused_zones.conventional += unused.len() as u32;
        self.unused_zones.conventional_bytes += unused.iter().map(|place| place.length).sum::<u64>();
        let (max_open, max_active) = open_limits(limits, zones)?;
        self.geometry = Geometry { zones, conventional: 0, max_open, max_active, ..self.geometry };
        Ok(self)
    }

    /// A zone as the layers above see it. If its pointer is within a block, it is full, because the next write would
    /// begin within a block. A writable zone without a pointer is reported as empty.
    pub(crate) fn info(&self, reported: &ReportedZone) -> ZoneInfo {
        let block = u64::from(self.geometry.block_size);
        let capacity = (reported.capacity / block).min(self.geometry.zone_blocks.into()) as Blocks;
        let state = reported.state.unwrap_or(ZoneState::Empty);
        let is_whole =
            reported.pointer.is_multiple_of(block) && reported.pointer / block <= u64::from(capacity);
        match state {
            state if !state.has_pointer() => ZoneInfo { state, capacity, pointer: capacity },
            _ if !is_whole => ZoneInfo { state: ZoneState::Full, capacity, pointer: capacity },
            state => ZoneInfo { state, capacity, pointer: (reported.pointer / block) as Blocks },
        }
    }
}

fn check_zone(bytes: u64, block: u64) -> Result<(), String> {
    if !bytes.is_multiple_of(block) {
        return Err(format!("its zone size of {bytes} bytes is not a multiple of its block size of {block}"));
    }
    if bytes / block > u64::from(Address::BLOCKS_MAX) {
        return Err(format!(
            "its zones of {bytes} bytes are too large; Polder supports at most 2^28 blocks in a zone"
        ));
    }
    Ok(())
}

/// The limits of open and active zones.
fn open_limits(limits: &Limits, zones: u32) -> Result<(u32, u32), String> {
    let unlimited = OPEN_UNLIMITED.min(zones / 2).max(OPEN_ZONES_MIN);
    let active = limits.max_active.or(limits.max_open).unwrap_or(unlimited);
    let open = limits.max_open.unwrap_or(active).min(active);
    if open < OPEN_ZONES_MIN {
        return Err(format!("it permits only {open} open zones; Polder needs at least {OPEN_ZONES_MIN}"));
    }
    Ok((open, active))
}

#[cfg(test)]
mod tests;
