//! Finds the shape of a volume without a readable header, from the headers of its zones.
//!
//! A zone header contains its zone number, the volume's id, the block size and the number of zones. The last two
//! determine where the first zone begins. Together with the place where the header was found, they determine the
//! distance between zones. So one header of any zone but the first is a *guess* of the whole shape. The guess is
//! verified by reading where every other zone must begin. Files that contain volumes of Polder produce guesses too,
//! but wrong ones, because their headers are not where such a zone would be on this device.
//!
//! A disk may contain headers of earlier volumes, of the same or of another shape. So the search does not end with
//! the first verified guess. It reads the zones of its log to their end, and compares all volumes found there
//! (`candidates.rs`).
//!
//! Zone headers do not always determine where the last zone ends: an earlier release may have written its header, or
//! it may never have been written. Then the zone is assumed to end at the end of the device, so that all of its data
//! can be read.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use zerocopy::FromBytes;

use self::candidates::Candidate;
pub(super) use self::candidates::FoundVolume;
pub(super) use self::quick_search::has_trace;
use super::FileOptions;
use super::format::{
    END_COPY_UNIT, FILE_MAGIC, HEADER_BYTES, Layout, OPEN_ZONES_MIN, SLOT_BYTES,
    decode_header as decode_file_header, decode_slot, end_copy_place, zones_offset,
};
use super::header::Headers;
use super::options::{BLOCK_BYTES_MAX, ZONES_MIN};
use crate::format::{Role, ZONE_MAGIC, ZoneHeader, ZoneIdentity, decode_header};
use crate::{Address, Blocks, FsId, Geometry, ZoneId};

/// Bytes of one read.
const PIECE: usize = 1 << 20;
/// The unit of reads if a larger one fails.
const PIECE_OF_DAMAGED: usize = 64 << 10;
/// The number of the first zones that can contain the log.
const LOG_ZONES: u32 = 4;
/// The number of headers that confirm a guess.
const AGREEING_MIN: usize = 2;
/// The zones that are read to verify a guess: the first ones, and some of the others.
const PROBES_FIRST: u32 = 64;
const PROBES_MAX: u32 = 4096;
/// The largest number of single headers that are stored. It bounds memory and time on a disk full of images of
/// volumes.
const FOUND_MAX: usize = 1000;
/// No zone header is before the tables of the smallest volume.
const FIRST: u64 = 2 * HEADER_BYTES as u64;
const SECTOR: usize = 512;

/// The first zones of a power of two of bytes, up to this one, are found without reading everything between them.
/// They include some that do not hold the log.
const ZONES_OF_POWERS: u32 = 5;
/// The smallest of these sizes. Headers of smaller zones are in the first bytes, which are read in any case.
const POWERS_FROM: u32 = 24;
/// How far behind a multiple of their size zones are searched. The tables of 16,000 zones end before that.
const BEFORE_ZONES_MAX: u64 = 1 << 20;
/// This many bytes from the start on are always read.
const BYTES_FIRST: u64 = 64 << 20;

/// Searches a device of `device_bytes` bytes for the newest volume, or for the volume `wanted`.
pub(super) fn find(
    file: &File,
    device_bytes: u64,
    wanted: Option<FsId>,
    progress: &mut dyn FnMut(u64, u64),
) -> Option<FoundVolume> {
    let mut search = Search::new(file, device_bytes, PROBES_MAX);
    search.search_default_layouts();
    search.search_power_of_two_zones();
    search.scan(progress);
    let (chosen, rivals) = candidates::choose(&search.found, wanted)?;
    let mut layout = chosen.layout.clone()?;
    layout.last_zone_blocks = search.last_zone_blocks(&layout, chosen.last_capacity);
    let fs_id = chosen.fs_id;
    let headers = search.end_copy(fs_id, &layout).unwrap_or_else(|| Headers::derived(fs_id, layout));
    Some(FoundVolume { headers, agreeing: chosen.headers.len() as u32, has_log: chosen.of_log > 0, rivals })
}

/// A decoded zone header.
struct FoundHeader {
    identity: ZoneIdentity,
    header: ZoneHeader,
}

struct Search<'a> {
    file: &'a File,
    device_bytes: u64,
    probes: u32,
    /// Guesses that were checked: block size, number of zones, and their distance.
    tried: BTreeSet<(u32, u32, Blocks)>,
    /// The volumes that have a header where one of their zones begins.
    found: Vec<Candidate>,
    /// The end of the log zones of all volumes found.
    log_end: u64,
}

impl Search<'_> {
    fn new(file: &File, device_bytes: u64, probes: u32) -> Search<'_> {
        Search { file, device_bytes, probes, tried: BTreeSet::new(), found: Vec::new(), log_end: BYTES_FIRST }
    }

    /// Reads the places of the zones of volumes with default options.
    fn search_default_layouts(&mut self) {
        let blocks = (9..=BLOCK_BYTES_MAX.ilog2()).map(|bits| 1 << bits);
        let options = |block_size| FileOptions { block_size, ..FileOptions::default() };
        let layouts = blocks.flat_map(|block_size| {
            let options: FileOptions = options(block_size);
            [options.layout(self.device_bytes), options.layout_without_end_copy(self.device_bytes)]
        });
        let layouts: Vec<Layout> = layouts.flatten().collect();
        for layout in layouts {
            for zone in (0..layout.geometry.zones.min(2 * LOG_ZONES)).map(ZoneId) {
                let Some(seen) = self.header_at(layout.offset(zone, 0)) else { continue };
                if seen.identity.zone == zone && seen.has_shape(&layout.geometry) {
                    self.verify(&seen, layout.zone_size);
                }
            }
        }
    }

    /// Reads the places of the first zones whose size is a power of two, for any length of the device when the volume
    /// was created.
    fn search_power_of_two_zones(&mut self) {
        let mut piece = vec![0; PIECE];
        ranges_of_powers(self.device_bytes).for_each(|range| self.look_into(range, &mut piece));
    }

    /// Reads from the start to the end of the device, or to the end of the log zones if matching zones were found.
    fn scan(&mut self, progress: &mut dyn FnMut(u64, u64)) {
        let mut at = FIRST;
        let mut piece = vec![0; PIECE];
        while !self.has_volume() || at < self.log_end {
            let Some(data) = next_data(self.file, at, self.device_bytes) else { return };
            at = data / SECTOR as u64 * SECTOR as u64;
            progress(at, self.device_bytes);
            at += self.look_at_piece(at, &mut piece);
        }
    }

    fn has_volume(&self) -> bool {
        self.found.iter().any(Candidate::is_volume)
    }

    /// Searches all existing sectors of a range.
    fn look_into(&mut self, range: Range<u64>, piece: &mut [u8]) {
        let (mut at, end) = (range.start, range.end.min(self.device_bytes));
        while let Some(data) = next_data(self.file, at, end) {
            at = data / SECTOR as u64 * SECTOR as u64;
            let length = (end - at).min(piece.len() as u64) as usize;
            at += self.look_at_piece(at, &mut piece[..length]);
        }
    }

    /// Searches the sectors of a piece; returns their number of bytes.
    fn look_at_piece(&mut self, at: u64, piece: &mut [u8]) -> u64 {
        let length = (self.device_bytes - at).min(piece.len() as u64) as usize;
        let length = self.read_piece(at, &mut piece[..length]);
        for (sector, bytes) in piece[..length].chunks_exact(SECTOR).enumerate() {
            self.look(at + (sector * SECTOR) as u64, bytes);
        }
        length.max(SECTOR) as u64
    }

    /// Reads a piece, or its first part if that fails; an unreadable part becomes zeros.
    fn read_piece(&self, at: u64, piece: &mut [u8]) -> usize {
        if self.file.read_exact_at(piece, at).is_ok() {
            return piece.len();
        }
        let length = piece.len().min(PIECE_OF_DAMAGED);
        if self.file.read_exact_at(&mut piece[..length], at).is_err() {
            piece[..length].fill(0);
        }
        length
    }

    fn look(&mut self, offset: u64, sector: &[u8]) {
        if !sector.starts_with(&ZONE_MAGIC) {
            return;
        }
        let Some(seen) = self.header_at(offset) else { return };
        match seen.zone_size(offset) {
            Some(zone_size) => self.verify(&seen, zone_size),
            None if seen.is_first_at(offset) => self.note_first(&seen, offset),
            None => {}
        }
    }

    /// Notes the first zone of a volume at its place. That does not determine the distance of zones, so the search
    /// continues to the last possible place of the next ones.
    fn note_first(&mut self, seen: &FoundHeader, offset: u64) {
        let (block_size, zones) = (seen.header.block_size.get(), seen.header.zones.get());
        self.note(Candidate::of_first(seen.identity, block_size, zones));
        let zone_bytes = self.device_bytes / u64::from(zones.max(ZONES_MIN) - 1);
        self.log_end = self.log_end.max(offset + u64::from(LOG_ZONES) * zone_bytes);
    }

    fn note(&mut self, candidate: Candidate) {
        let is_kept = candidate.is_volume() || self.found.len() < FOUND_MAX;
        if is_kept && !self.found.iter().any(|known| known.is_same(&candidate)) {
            self.found.push(candidate);
        }
    }

    /// Finds an end copy from a time when the device was shorter. It is behind the last zone, wherever that ends.
    fn end_copy(&self, fs_id: FsId, layout: &Layout) -> Option<Headers> {
        let last = layout.offset(ZoneId(layout.geometry.zones - 1), 0);
        let zone_bytes = u64::from(layout.zone_size) * u64::from(layout.geometry.block_size);
        let first = last.next_multiple_of(END_COPY_UNIT);
        let end = self.device_bytes.min(last + zone_bytes + 2 * END_COPY_UNIT);
        (first..end).step_by(END_COPY_UNIT as usize).find_map(|place| {
            let mut copy = vec![0; HEADER_BYTES];
            self.file.read_exact_at(&mut copy[..SECTOR], place).ok()?;
            if !copy.starts_with(&FILE_MAGIC) {
                return None;
            }
            self.file.read_exact_at(&mut copy, place).ok()?;
            let (of, found, _) = decode_file_header(&copy).ok()?;
            let is_it = of == fs_id
                && found.end_copy == Some(place)
                && found.geometry.block_size == layout.geometry.block_size
                && (found.geometry.zones, found.zone_size) == (layout.geometry.zones, layout.zone_size);
            is_it.then(|| Headers::from_copy(self.file, self.device_bytes, copy))
        })
    }

    fn header_at(&self, offset: u64) -> Option<FoundHeader> {
        let mut start = [0; size_of::<ZoneHeader>()];
        self.file.read_exact_at(&mut start, offset).ok()?;
        let (header, _) = ZoneHeader::read_from_prefix(&start).ok()?;
        let block_size = header.block_size.get();
        let is_possible = block_size.is_power_of_two() && (512..=BLOCK_BYTES_MAX).contains(&block_size);
        if header.magic != ZONE_MAGIC || !is_possible {
            return None;
        }
        let mut block = vec![0; block_size as usize];
        self.file.read_exact_at(&mut block, offset).ok()?;
        let (identity, header) = decode_header(&block).ok()?;
        Some(FoundHeader { identity, header })
    }

    /// Notes all volumes that have zones at the places that follow from a header and a distance of zones.
    fn verify(&mut self, seen: &FoundHeader, zone_size: Blocks) {
        let geometry = &seen.header;
        if !self.tried.insert((geometry.block_size.get(), geometry.zones.get(), zone_size)) {
            return;
        }
        let Some(layout) = seen.layout(zone_size, self.device_bytes) else { return };
        let found = self.volumes_of(&layout);
        if found.iter().any(Candidate::is_volume) {
            self.log_end = self.log_end.max(layout.offset(ZoneId(LOG_ZONES), 0));
        }
        found.into_iter().for_each(|candidate| self.note(candidate));
    }

    /// The headers at the places of zones, by volume.
    fn volumes_of(&self, layout: &Layout) -> Vec<Candidate> {
        let zones = layout.geometry.zones;
        let mut all: Vec<Candidate> = Vec::new();
        for zone in probes(zones, self.probes).map(ZoneId) {
            let offset = layout.offset(zone, 0);
            let Some(seen) = self.header_at(offset) else { continue };
            if seen.identity.zone != zone || !seen.has_shape(&layout.geometry) {
                continue;
            }
            let fs_id = seen.identity.fs_id;
            let known = all.iter().position(|candidate| candidate.fs_id == fs_id).unwrap_or(all.len());
            if known == all.len() {
                all.push(Candidate::of_layout(fs_id, layout, self.states_of(fs_id, layout)));
            }
            let candidate = &mut all[known];
            candidate.headers.push(offset);
            candidate.of_log += u32::from(zone.0 < LOG_ZONES && seen.identity.role == Role::Log);
            if zone.0 + 1 == zones {
                candidate.last_capacity = Some(seen.header.capacity.get());
            }
        }
        all
    }

    /// The offsets of valid slots of the volume in the first page of both tables.
    fn states_of(&self, fs_id: FsId, layout: &Layout) -> Vec<u64> {
        let mut page = vec![0; layout.page_bytes()];
        let mut all = Vec::new();
        for start in [0, 1].map(|table| layout.table_offset(table)) {
            if self.file.read_exact_at(&mut page, start).is_err() {
                continue;
            }
            let slots = page.chunks_exact(SLOT_BYTES).take(layout.geometry.zones as usize);
            let states = slots.enumerate().filter(|(zone, slot)| {
                let zone = ZoneId(*zone as u32);
                decode_slot(fs_id, zone, slot, layout.capacity(zone)).is_some()
            });
            all.extend(states.map(|(zone, _)| start + (zone * SLOT_BYTES) as u64));
        }
        all
    }

    /// The capacity of the last zone. If it was never written, it ends at the place of the end copy.
    fn last_zone_blocks(&self, layout: &Layout, last_capacity: Option<Blocks>) -> Blocks {
        let (last, most) = (ZoneId(layout.geometry.zones - 1), layout.last_zone_blocks);
        match last_capacity {
            Some(capacity) if (1..layout.geometry.zone_blocks.min(most)).contains(&capacity) => {
                return capacity;
            }
            Some(_) => return most,
            None => {}
        }
        let mut block = vec![0; layout.geometry.block_size as usize];
        let start = layout.offset(last, 0);
        let is_unused =
            self.file.read_exact_at(&mut block, start).is_ok() && block.iter().all(|&byte| byte == 0);
        let blocks = end_copy_place(self.device_bytes)
            .map_or(0, |end| end.saturating_sub(start) / u64::from(layout.geometry.block_size));
        match blocks {
            blocks if is_unused && blocks > 0 => most.min(Blocks::try_from(blocks).unwrap_or(most)),
            _ => most,
        }
    }
}

impl FoundHeader {
    fn has_shape(&self, geometry: &Geometry) -> bool {
        self.header.block_size.get() == geometry.block_size && self.header.zones.get() == geometry.zones
    }

    /// The distance of zones, if this zone is at its place; `None` for the first zone.
    fn zone_size(&self, offset: u64) -> Option<Blocks> {
        let (block_size, zones) = (self.header.block_size.get(), self.header.zones.get());
        let first = zones_offset(block_size, zones.min(Address::ZONES_MAX));
        let blocks_before = u64::from(self.identity.zone.0) * u64::from(block_size);
        let distance = offset.checked_sub(first).filter(|_| blocks_before > 0)?;
        let is_whole = distance.is_multiple_of(blocks_before);
        is_whole.then(|| Blocks::try_from(distance / blocks_before).ok()).flatten()
    }

    /// Whether it is the header of a first zone at its place.
    fn is_first_at(&self, offset: u64) -> bool {
        let zones = self.header.zones.get();
        self.identity.zone == ZoneId(0)
            && (1..=Address::ZONES_MAX).contains(&zones)
            && zones_offset(self.header.block_size.get(), zones) == offset
    }

    /// The whole shape, if it is possible. The last zone ends at the end of the device.
    fn layout(&self, zone_size: Blocks, device_bytes: u64) -> Option<Layout> {
        let header = &self.header;
        let (block_size, zones) = (header.block_size.get(), header.zones.get());
        let smallest = Layout::zone_blocks_min(block_size);
        let is_possible = (1..=Address::ZONES_MAX).contains(&zones)
            && (smallest..=Address::BLOCKS_MAX).contains(&zone_size)
            && self.identity.zone.0 < zones;
        if !is_possible {
            return None;
        }
        let checked = |number: u32, range: std::ops::RangeInclusive<u32>, otherwise: u32| {
            if range.contains(&number) { number } else { otherwise }
        };
        let usual = FileOptions::default();
        let zone_blocks = checked(header.zone_blocks.get(), smallest..=zone_size, zone_size);
        let max_open = checked(header.max_open.get(), OPEN_ZONES_MIN..=u32::MAX, usual.max_open);
        let max_active =
            checked(header.max_active.get(), max_open..=u32::MAX, max_open.max(usual.max_active));
        let geometry = Geometry {
            block_size,
            zones,
            zone_blocks,
            max_open,
            max_active,
            max_append: Layout::max_append(block_size, zone_blocks),
            conventional: 0,
            seek_bytes: Geometry::SEEK_BYTES,
        };
        let mut layout = Layout {
            geometry,
            zone_size,
            last_zone_blocks: zone_size,
            preallocated: false,
            is_member: false,
            end_copy: None,
        };
        let start = layout.offset(ZoneId(zones - 1), 0);
        let blocks = device_bytes.saturating_sub(start) / u64::from(block_size);
        layout.last_zone_blocks = Blocks::try_from(blocks).unwrap_or(zone_size).min(zone_size);
        (blocks > 0).then_some(layout)
    }
}

/// The ranges in which the first zones of a power of two of bytes can begin.
fn ranges_of_powers(device_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let largest = (device_bytes / u64::from(ZONES_MIN)).max(1).ilog2();
    (POWERS_FROM..=largest).map(|bits| 1_u64 << bits).flat_map(move |zone_bytes| {
        let zones = (device_bytes / zone_bytes).min(Address::ZONES_MAX.into()) as u32;
        let before = zones_offset(BLOCK_BYTES_MAX, zones).min(BEFORE_ZONES_MAX);
        let starts = (1..=u64::from(ZONES_OF_POWERS)).map(move |zone| zone * zone_bytes);
        starts.map(move |start| start + FIRST..start + before + SECTOR as u64)
    })
}

/// The numbers of the first zones, and of the others evenly up to `most` zones; always with the last.
fn probes(zones: u32, most: u32) -> impl Iterator<Item = u32> {
    let first = zones.min(PROBES_FIRST);
    let step = (zones - first).div_ceil(most - PROBES_FIRST).max(1);
    let others = (first..zones).step_by(step as usize);
    let last = (zones > first && !(zones - 1 - first).is_multiple_of(step)).then_some(zones - 1);
    (0..first).chain(others).chain(last)
}

/// The offset of the next data in a file with holes; `None` behind the last.
fn next_data(file: &File, from: u64, end: u64) -> Option<u64> {
    if from >= end {
        return None;
    }
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(data) => Some(data).filter(|&data| data < end),
        Err(Errno::NXIO) => None,
        // A device has no holes.
        Err(_) => Some(from),
    }
}

mod candidates;
mod quick_search;
