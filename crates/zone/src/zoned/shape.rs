//! What of a zoned device Polder uses, and what it refuses.
//!
//! Used are the zones that are written in order. Zones that can be written anywhere have no write pointer,
//! and one kept by software would cost a write and a flush for each that the device keeps by itself: they
//! are left alone, and `polder mkfs` says how much that is. So is a last zone of less than half the others.
//!
//! Which zones are used depends on their kind and length only, which never change: a zone's number in its
//! volume is the same whatever becomes of the zones before it.

use super::port::{Limits, Told};
use crate::file::format::OPEN_ZONES_MIN;
use crate::{Address, Blocks, Geometry, ZoneInfo, ZoneState};

/// How many zones are open at once where a device has no limit.
const OPEN_UNLIMITED: u32 = 32;
/// The largest append, in bytes, as in a file.
const APPEND_BYTES: u32 = 1 << 20;

/// A zone that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// A device as it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) geometry: Geometry,
    /// By number of the zone.
    pub(crate) places: Vec<Place>,
    pub(crate) left_out: LeftOut,
}

/// What is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Zones that can be written anywhere.
    pub conventional: u32,
    /// Their bytes.
    pub conventional_bytes: u64,
    /// Bytes of zones that are too small.
    pub small_bytes: u64,
}

impl Shape {
    /// The shape of a device with these zones, or why it cannot be used.
    pub(crate) fn of(limits: &Limits, told: &[Told]) -> Result<Shape, String> {
        let block = u64::from(limits.block_size);
        if !limits.block_size.is_power_of_two() || !(512..=65536).contains(&limits.block_size) {
            return Err(format!(
                "its blocks have {block} bytes; Polder uses powers of two from 512 to 65536"
            ));
        }
        let largest = told.iter().filter(|zone| zone.state.is_some()).map(|zone| zone.length).max();
        let largest = largest.ok_or("it has no zone that is written in order")?;
        check_zone(largest, block)?;
        let mut left_out = LeftOut::default();
        let mut places = Vec::new();
        for zone in told {
            if zone.state.is_none() {
                left_out.conventional += 1;
                left_out.conventional_bytes += zone.length;
            } else if zone.length < largest / 2 {
                left_out.small_bytes += zone.length;
            } else {
                places.push(Place { start: zone.start, length: zone.length });
            }
        }
        let zones = u32::try_from(places.len()).ok().filter(|&zones| zones <= Address::ZONES_MAX);
        let zones =
            zones.ok_or_else(|| format!("it has {} zones; Polder uses at most 2^24", places.len()))?;
        let capacity = told.iter().filter(|zone| zone.state.is_some()).map(|zone| zone.capacity).max();
        let zone_blocks = (capacity.expect("there is a zone with a pointer") / block) as Blocks;
        let (max_open, max_active) = open_limits(limits, zones)?;
        let max_append = (APPEND_BYTES / limits.block_size).min(zone_blocks).max(1);
        let geometry =
            Geometry { block_size: limits.block_size, zones, zone_blocks, max_open, max_active, max_append };
        Ok(Shape { geometry, places, left_out })
    }

    /// A zone as the layers above know it. What has no whole number of blocks in it takes no more: a write
    /// behind it would begin within a block.
    pub(crate) fn info(&self, told: &Told) -> ZoneInfo {
        let block = u64::from(self.geometry.block_size);
        let capacity = ((told.capacity / block) as Blocks).min(self.geometry.zone_blocks);
        let state = told.state.expect("only zones with a pointer are used");
        let is_whole = told.pointer.is_multiple_of(block) && told.pointer / block <= u64::from(capacity);
        match state {
            state if !state.has_pointer() => ZoneInfo { state, capacity, pointer: capacity },
            _ if !is_whole => ZoneInfo { state: ZoneState::Full, capacity, pointer: capacity },
            state => ZoneInfo { state, capacity, pointer: (told.pointer / block) as Blocks },
        }
    }
}

fn check_zone(bytes: u64, block: u64) -> Result<(), String> {
    if !bytes.is_multiple_of(block) {
        return Err(format!("its zones of {bytes} bytes are no multiple of its blocks of {block}"));
    }
    if bytes / block > u64::from(Address::BLOCKS_MAX) {
        return Err(format!(
            "its zones of {bytes} bytes are too large; Polder uses at most 2^28 blocks of one"
        ));
    }
    Ok(())
}

/// How many zones may be open and active at once.
fn open_limits(limits: &Limits, zones: u32) -> Result<(u32, u32), String> {
    let unlimited = OPEN_UNLIMITED.min(zones / 2).max(OPEN_ZONES_MIN);
    let active = limits.max_active.or(limits.max_open).unwrap_or(unlimited);
    let open = limits.max_open.unwrap_or(active).min(active);
    if open < OPEN_ZONES_MIN {
        return Err(format!(
            "it lets only {open} zones be open at once; Polder needs at least {OPEN_ZONES_MIN}"
        ));
    }
    Ok((open, active))
}

#[cfg(test)]
mod tests;
