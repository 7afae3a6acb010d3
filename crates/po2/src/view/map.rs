//! Where a place of the view is on the device. Arithmetic alone, in bytes.
//!
//! With *L* from zone to zone on the device, *V* the power of two that it is rounded up to, and *C* what a zone takes:
//! byte *o* of zone *z* is at *z V + o* in the view and at *z L + o* on the device, as long as *o* < *C*.

use zone::zoned::port::ReportedZone;

/// A device's zones and those of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Map {
    zones: u32,
    /// *L*: from zone to zone on the device.
    length: u64,
    /// *V*: from zone to zone in the view; the power of two that is no less than `length`.
    rounded: u64,
    /// *C*: what a zone takes; at most `length`.
    capacity: u64,
    /// What the last zone takes; at most `capacity`.
    last_capacity: u64,
}

/// A run of bytes of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: u64,
    /// Where it begins on the device; `None` where there is nothing but zeros.
    pub(super) on_device: Option<u64>,
}

/// Why there is no view of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Po2Error {
    /// Everybody can use it as it is.
    #[error(
        "its zones of {0} bytes are a power of two already; the view is not needed, use the device itself"
    )]
    NotNeeded(u64),
    /// Not all zones are written in order.
    #[error(
        "it has conventional zones, which cannot be shown as larger than they are; the view is for devices without"
    )]
    Conventional,
    /// Zones differ in their size or in what they take.
    #[error(
        "zone {0} is not like those before it; the view is for devices whose zones are alike, but for a shorter last one"
    )]
    Unlike(usize),
    /// It has no zones, or so many bytes that they cannot be counted.
    #[error("its zones cannot be counted")]
    Uncountable,
}

impl Map {
    /// Of a device with these zones, all of them, in their order.
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

    /// What a zone takes.
    pub(super) fn capacity(&self, zone: u64) -> u64 {
        if zone + 1 == u64::from(self.zones) { self.last_capacity } else { self.capacity }
    }

    /// Bytes of the view.
    fn end(&self) -> u64 {
        self.rounded * u64::from(self.zones)
    }

    /// Where a zone begins on the device, by its number.
    pub(super) fn zone_on_device(&self, zone: usize) -> Option<u64> {
        (zone < self.zones as usize).then(|| zone as u64 * self.length)
    }

    /// Where the zone that begins here in the view begins on the device.
    pub(super) fn zone_at(&self, start: u64) -> Option<u64> {
        let is_start = start < self.end() && start.is_multiple_of(self.rounded);
        is_start.then(|| start / self.rounded * self.length)
    }

    /// Where a place of the device is in the view.
    pub(super) fn in_view(&self, place: u64) -> Option<u64> {
        let zone = place / self.length;
        (zone < u64::from(self.zones)).then(|| zone * self.rounded + place % self.length)
    }

    /// Where a write begins on the device, if it stays within what its zone takes.
    pub(super) fn write_on_device(&self, at: u64, bytes: u64) -> Option<u64> {
        let (zone, offset) = (at / self.rounded, at % self.rounded);
        let fits = at < self.end() && offset.checked_add(bytes)? <= self.capacity(zone);
        fits.then(|| zone * self.length + offset)
    }

    /// What a range of the view is made of, in its order; `None` if it goes beyond the end.
    pub(super) fn pieces(&self, at: u64, bytes: u64) -> Option<impl Iterator<Item = Piece>> {
        let end = at.checked_add(bytes).filter(|&end| end <= self.end())?;
        let map = *self;
        let mut from = at;
        Some(std::iter::from_fn(move || {
            let piece = (from < end).then(|| map.piece(from, end - from))?;
            from += piece.bytes;
            Some(piece)
        }))
    }

    /// The longest run from a place on that is all on the device or all zeros.
    fn piece(&self, at: u64, most: u64) -> Piece {
        let (zone, offset) = (at / self.rounded, at % self.rounded);
        match self.capacity(zone).checked_sub(offset).filter(|&left| left > 0) {
            Some(left) => Piece { bytes: left.min(most), on_device: Some(zone * self.length + offset) },
            None => Piece { bytes: (self.rounded - offset).min(most), on_device: None },
        }
    }
}

/// The first zone that is not where and what it would be if all were like the first, the last shorter at most.
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
