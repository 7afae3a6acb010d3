//! Maps places of the view to places of the device. Arithmetic only, in bytes.
//!
//! Let *L* be the zone size of the device, *V* the power of two to which it is rounded up, and *C* the capacity of a
//! zone. Byte *o* of zone *z* is at *z V + o* in the view and at *z L + o* on the device, if *o* < *C*.

use zone::zoned::port::ReportedZone;

/// A device's zones and those of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Map {
    zones: u32,
    /// *L*: the zone size on the device.
    length: u64,
    /// *V*: the zone size in the view; the smallest power of two that is not less than `length`.
    rounded: u64,
    /// *C*: the capacity of a zone; at most `length`.
    capacity: u64,
    /// The capacity of the last zone; at most `capacity`.
    last_capacity: u64,
}

/// A run of bytes of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ViewRange {
    pub(super) bytes: u64,
    /// Its start on the device; `None` for a range of zeros.
    pub(super) on_device: Option<u64>,
}

/// Why there is no view of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Po2Error {
    /// The device can be used without a view.
    #[error("its zone size of {0} bytes is already a power of two; use the device itself")]
    NotNeeded(u64),
    /// Some zones are conventional.
    #[error("it has conventional zones, which a view cannot enlarge; the view is for devices without them")]
    Conventional,
    /// Zones differ in their size or capacity.
    #[error(
        "zone {0} differs from the zones before it; the view is for devices with equal zones, except for a smaller last one"
    )]
    Unlike(usize),
    /// It has no zones, or its size overflows.
    #[error("its zones cannot be counted")]
    Uncountable,
}

impl Map {
    /// The map of a device with these zones, in order and complete.
    pub(super) fn of(block_size: u32, zones: &[ReportedZone]) -> Result<Map, Po2Error> {
        let (first, last) = zones.first().zip(zones.last()).ok_or(Po2Error::Uncountable)?;
        if zones.iter().any(|zone| zone.is_conventional) {
            return Err(Po2Error::Conventional);
        }
        if first.length.is_power_of_two() {
            return Err(Po2Error::NotNeeded(first.length));
        }
        if let Some(odd) = first_unlike(zones, u64::from(block_size)) {
            return Err(Po2Error::Unlike(odd));
        }
        let count = u32::try_from(zones.len()).map_err(|_| Po2Error::Uncountable)?;
        let rounded = first.length.checked_next_power_of_two().ok_or(Po2Error::Uncountable)?;
        rounded
            .checked_mul(count.into())
            .filter(|&end| end <= i64::MAX as u64)
            .ok_or(Po2Error::Uncountable)?;
        let (length, capacity) = (first.length, first.capacity);
        Ok(Map { zones: count, length, rounded, capacity, last_capacity: last.capacity })
    }

    pub(super) fn zones(&self) -> u32 {
        self.zones
    }

    pub(super) fn zone_bytes(&self) -> u64 {
        self.rounded
    }

    pub(super) fn device_zone_bytes(&self) -> u64 {
        self.length
    }

    /// The capacity of a zone.
    pub(super) fn capacity(&self, zone: u64) -> u64 {
        if zone + 1 == u64::from(self.zones) { self.last_capacity } else { self.capacity }
    }

    /// Bytes of the view.
    fn end(&self) -> u64 {
        self.rounded * u64::from(self.zones)
    }

    /// The start of a zone on the device, by its number.
    pub(super) fn zone_on_device(&self, zone: usize) -> Option<u64> {
        (zone < self.zones as usize).then(|| zone as u64 * self.length)
    }

    /// The start on the device of the zone that begins at `start` in the view.
    pub(super) fn zone_at(&self, start: u64) -> Option<u64> {
        let is_start = start < self.end() && start.is_multiple_of(self.rounded);
        is_start.then(|| start / self.rounded * self.length)
    }

    /// The place in the view of a place of the device.
    pub(super) fn in_view(&self, place: u64) -> Option<u64> {
        let zone = place / self.length;
        (zone < u64::from(self.zones)).then(|| zone * self.rounded + place % self.length)
    }

    /// The place of a write on the device, if it is within the capacity of its zone.
    pub(super) fn write_on_device(&self, at: u64, bytes: u64) -> Option<u64> {
        let (zone, offset) = (at / self.rounded, at % self.rounded);
        let fits = at < self.end() && offset.checked_add(bytes)? <= self.capacity(zone);
        fits.then(|| zone * self.length + offset)
    }

    /// The pieces of a range of the view, in order; `None` if it goes beyond the end.
    pub(super) fn pieces(&self, at: u64, bytes: u64) -> Option<impl Iterator<Item = ViewRange>> {
        let end = at.checked_add(bytes).filter(|&end| end <= self.end())?;
        let map = *self;
        let mut from = at;
        Some(std::iter::from_fn(move || {
            let piece = (from < end).then(|| map.piece(from, end - from))?;
            from += piece.bytes;
            Some(piece)
        }))
    }

    /// The longest run from a place on that is completely on the device or completely zeros.
    fn piece(&self, at: u64, most: u64) -> ViewRange {
        let (zone, offset) = (at / self.rounded, at % self.rounded);
        match self.capacity(zone).checked_sub(offset).filter(|&left| left > 0) {
            Some(left) => ViewRange { bytes: left.min(most), on_device: Some(zone * self.length + offset) },
            None => ViewRange { bytes: (self.rounded - offset).min(most), on_device: None },
        }
    }
}

/// The first zone that differs in place or shape from the first one; only the last may be smaller.
fn first_unlike(zones: &[ReportedZone], block: u64) -> Option<usize> {
    let first = zones[0];
    let is_like = |(number, zone): &(usize, &ReportedZone)| {
        let is_last = number + 1 == zones.len();
        let is_alike = zone.length == first.length && zone.capacity == first.capacity;
        let is_shorter = zone.length <= first.length && zone.capacity <= first.capacity;
        (is_alike || is_last && is_shorter)
            && zone.start == *number as u64 * first.length
            && zone.capacity > 0
            && zone.length.is_multiple_of(block)
            && zone.capacity.is_multiple_of(block)
            && zone.capacity <= zone.length
    };
    zones.iter().enumerate().find(|zone| !is_like(zone)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests;
