//! Detects a damaged volume without reading all of a large disk.
//!
//! It reads the places of zones in default layouts, the places of the first zones whose size is a power of two, the
//! places of the end copy on shorter devices, and the first 64 MiB. It does not find other zones.
//!
//! On a disk of 10 TB this is about 350 reads of less than 128 MiB in total, and on no disk more than twice as much.
//! The holes of a file are not read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::format::{FILE_MAGIC, HEADER_BYTES, Layout, decode_header, end_copy_place};
use super::{BYTES_FIRST, Candidate, FIRST, PIECE, SECTOR, Search, next_data};

const PROBES: u32 = 128;
/// A device that was extended is assumed to have had a multiple of a power of two of bytes: the smallest of which it
/// has at most this number.
const LENGTHS: u64 = 64;

/// Whether there are traces of a volume.
pub(in super::super) fn has_trace(file: &File, device_bytes: u64) -> bool {
    let mut search = Search::new(file, device_bytes, PROBES);
    search.search_default_layouts();
    if search.found.is_empty() {
        search.search_power_of_two_zones();
    }
    // One header at its place in such a layout is a trace.
    let is_any = search.found.iter().any(|candidate| is_trace(candidate) || has_zones_of_powers(candidate));
    is_any || search.has_end_copy() || search.has_trace_at_start()
}

impl Search<'_> {
    /// Whether an end copy is at its place on a shorter device, and names that place.
    fn has_end_copy(&self) -> bool {
        let unit = (self.device_bytes / LENGTHS).next_power_of_two().max(1 << 20);
        let lengths = (1..=self.device_bytes / unit).map(|units| units * unit);
        let mut copy = vec![0; HEADER_BYTES];
        lengths.filter_map(end_copy_place).any(|place| {
            let is_copy = self.file.read_exact_at(&mut copy[..SECTOR], place).is_ok()
                && copy.starts_with(&FILE_MAGIC)
                && self.file.read_exact_at(&mut copy, place).is_ok();
            is_copy && decode_header(&copy).is_ok_and(|(_, layout, _)| layout.end_copy == Some(place))
        })
    }

    /// Whether there are zones that agree, or a first zone at its place. One other header that would match any shape
    /// is no trace: it may be in a file.
    fn has_trace_at_start(&mut self) -> bool {
        let (mut at, mut read) = (FIRST, 0);
        let mut piece = vec![0; PIECE];
        while read < BYTES_FIRST && !self.found.iter().any(is_trace) {
            let Some(data) = next_data(self.file, at, self.device_bytes) else { break };
            at = data / SECTOR as u64 * SECTOR as u64;
            let length = self.look_at_piece(at, &mut piece);
            at += length;
            read += length;
        }
        self.found.iter().any(is_trace)
    }
}

fn is_trace(candidate: &Candidate) -> bool {
    candidate.is_volume() || candidate.layout.is_none()
}

fn has_zones_of_powers(candidate: &Candidate) -> bool {
    let zone_bytes = |layout: &Layout| u64::from(layout.zone_size) * u64::from(layout.geometry.block_size);
    candidate.layout.as_ref().is_some_and(|layout| zone_bytes(layout).is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::super::ranges_of_powers;

    #[test]
    fn only_a_small_part_of_a_large_disk_is_read() {
        let read = |device_bytes| {
            let ranges: Vec<_> = ranges_of_powers(device_bytes).collect();
            (ranges.len(), ranges.iter().map(|range| (range.end - range.start) >> 10).sum::<u64>())
        };
        for (device_bytes, reads_max, kib_max) in
            [(1 << 30, 20, 5_000), (10 << 40, 85, 64 << 10), (1 << 62, 180, 140 << 10)]
        {
            let (reads, kib) = read(device_bytes);
            assert!(reads <= reads_max && kib <= kib_max, "{device_bytes}: {reads} reads of {kib} KiB");
        }
    }
}
