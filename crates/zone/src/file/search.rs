//! Finds the shape of a volume of which no header can be read, from the headers of its zones.
//!
//! The header of a zone says its number, the volume's id, how long a block is, and how many zones there are. The last
//! two say where the first zone begins, and that with the place where the header was found says how far zones are
//! apart. So one header of any zone but the first is a *guess* at the whole shape, and the guess is verified by
//! looking where every other zone has to begin. Headers in files that hold volumes of Polder themselves make guesses
//! too, and wrong ones, since they are not where such a zone would be on this device.
//!
//! On a disk there may be headers of a volume that was here before. The log is always in the first zones, and making a
//! volume writes a header of the new one to each of them. So the volume is the one that the log's zones are of.
//!
//! What zones do not tell: where the last one ends, if an earlier release wrote its header or nothing has. Then it is
//! taken to end where the device does, so that nothing that may be in it is out of reach.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::format::{
    END_COPY_UNIT, FILE_MAGIC, HEADER_BYTES, Layout, OPEN_ZONES_MIN, decode_header as decode_file_header,
    end_copy_place, zones_offset,
};
use super::header::Headers;
use super::options::BLOCK_BYTES_MAX;
use super::{FileError, FileOptions};
use crate::format::{Role, ZONE_MAGIC, ZoneHeader, ZoneIdentity, decode_header};
use crate::{Address, Blocks, FsId, Geometry, ZoneId};

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// The unit that is read by itself where a piece cannot be read.
const PIECE_OF_DAMAGED: usize = 64 << 10;
/// The log is in so many of the first zones.
const LOG_ZONES: u32 = 4;
/// Headers that have to agree before anything is written. To read, one is enough where no others are found: of a small
/// volume there may be no more when the first is lost.
const AGREEING_MIN: u32 = 2;
/// Zones that are looked at to verify a guess: the first, and some of the others.
const PROBES_FIRST: u32 = 64;
const PROBES_MAX: u32 = 4096;
/// The same, and bytes that are searched, to tell a damaged volume from none.
const PROBES_OF_TRACE: u32 = 128;
const BYTES_OF_TRACE: u64 = 64 << 20;
/// No header begins before the tables of the smallest volume.
const FIRST: u64 = 2 * HEADER_BYTES as u64;
const SECTOR: usize = 512;

/// What was found out about a volume.
pub(super) struct Shape {
    pub(super) headers: Headers,
    /// How many zones it was found out from.
    pub(super) agreeing: u32,
    /// Whether a zone of the log is among them.
    has_log: bool,
    /// Others of which there are zones at the same places, and how many.
    others: Vec<(FsId, u32)>,
    /// Whether the log tells this volume from these.
    is_told_by_log: bool,
}

/// Searches a device of so many bytes, of which it reads `most`, for a volume.
pub(super) fn find(
    file: &File,
    device_bytes: u64,
    most: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Option<Shape> {
    let probes = if most == u64::MAX { PROBES_MAX } else { PROBES_OF_TRACE };
    let mut search = Search { file, device_bytes, probes, tried: BTreeSet::new(), lonely: None };
    let found = search.usual_shapes();
    // One header where it is in a volume of the usual shape is a trace, one that would fit any shape is none.
    let is_trace = found.is_none() && search.lonely.is_some() && most < u64::MAX;
    if found.is_some() || is_trace {
        return found.or(search.lonely);
    }
    let found = search.scan(most, progress);
    found.or(search.lonely.filter(|_| most == u64::MAX))
}

/// Whether there are zones of a volume, as far as can be told soon.
pub(super) fn has_trace(file: &File, device_bytes: u64) -> bool {
    find(file, device_bytes, BYTES_OF_TRACE, &mut |_, _| ()).is_some()
}

impl Shape {
    /// Refuses to write a header that may be another volume's, or of no use.
    pub(super) fn refuse_uncertain(&self, path: &Path) -> Result<(), FileError> {
        let uncertain = |why| Err(FileError::Uncertain { path: path.to_owned(), why });
        if !self.others.is_empty() && !self.is_told_by_log {
            let mut volumes = vec![format!("{} ({} zones)", self.headers.fs_id, self.agreeing)];
            volumes.extend(self.others.iter().map(|(fs_id, zones)| format!("{fs_id} ({zones} zones)")));
            return uncertain(format!(
                "there are zones of several Polder volumes, and which one is the newest cannot be told: {}",
                volumes.join(", ")
            ));
        }
        if self.agreeing < AGREEING_MIN {
            return uncertain("the header of one zone alone is left, and none agrees with it".to_owned());
        }
        if !self.has_log {
            return uncertain(format!(
                "the headers of the log's zones of the volume {} are lost as well",
                self.headers.fs_id
            ));
        }
        Ok(())
    }
}

/// A zone's header, decoded, and where it was found.
struct Seen {
    identity: ZoneIdentity,
    header: ZoneHeader,
}

/// What is known of one volume of which there are zones where a guess says.
#[derive(Default)]
struct Votes {
    zones: u32,
    of_log: u32,
    /// What the last zone takes, as its own header says.
    last_capacity: Option<Blocks>,
}

struct Search<'a> {
    file: &'a File,
    device_bytes: u64,
    probes: u32,
    /// Guesses that were verified: volume, bytes of a block, zones, and how far these are apart.
    tried: BTreeSet<(FsId, u32, u32, Blocks)>,
    /// The first that no other header agreed with.
    lonely: Option<Shape>,
}

impl Search<'_> {
    /// Looks where the zones are of volumes that were made without choosing anything.
    fn usual_shapes(&mut self) -> Option<Shape> {
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
                let is_there = seen.identity.zone == zone && seen.has_shape(&layout.geometry);
                if let Some(shape) = is_there.then(|| self.verify(&seen, layout.zone_size)).flatten() {
                    return Some(shape);
                }
            }
        }
        None
    }

    /// Reads from the start on until zones that agree are found.
    fn scan(&mut self, most: u64, progress: &mut dyn FnMut(u64, u64)) -> Option<Shape> {
        let (mut at, mut read) = (FIRST, 0);
        let mut piece = vec![0; PIECE];
        while read < most {
            at = next_data(self.file, at, self.device_bytes)? / SECTOR as u64 * SECTOR as u64;
            progress(at, self.device_bytes);
            let length = (self.device_bytes - at).min(PIECE as u64) as usize;
            let length = self.read_piece(at, &mut piece[..length]);
            for (sector, bytes) in piece[..length].chunks_exact(SECTOR).enumerate() {
                let offset = at + (sector * SECTOR) as u64;
                if let Some(shape) = self.look(offset, bytes) {
                    return Some(shape);
                }
            }
            at += length.max(SECTOR) as u64;
            read += length as u64;
        }
        None
    }

    /// Reads a piece, or as much of it as can be read at once; zeros where nothing can be read.
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

    fn look(&mut self, offset: u64, sector: &[u8]) -> Option<Shape> {
        if !sector.starts_with(&ZONE_MAGIC) {
            return None;
        }
        let seen = self.header_at(offset)?;
        let zone_size = seen.zone_size(offset)?;
        self.verify(&seen, zone_size)
    }

    /// A copy of the header that was near the end when the device was shorter. It stands behind the last zone, wherever
    /// that ends.
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
            is_it.then(|| Headers::found_elsewhere(self.file, self.device_bytes, copy))
        })
    }

    fn header_at(&self, offset: u64) -> Option<Seen> {
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
        Some(Seen { identity, header })
    }

    /// The shape that a header and a distance of zones say, if other headers agree.
    fn verify(&mut self, seen: &Seen, zone_size: Blocks) -> Option<Shape> {
        let geometry = &seen.header;
        let guess = (seen.identity.fs_id, geometry.block_size.get(), geometry.zones.get(), zone_size);
        if !self.tried.insert(guess) {
            return None;
        }
        let mut layout = seen.layout(zone_size, self.device_bytes)?;
        let votes = self.count(&layout);
        let mut of_log = votes.iter().filter(|(_, votes)| votes.of_log > 0).map(|(fs_id, _)| *fs_id);
        let of_log = (of_log.next(), of_log.next());
        let is_told_by_log = matches!(of_log, (Some(_), None));
        let fs_id = match of_log {
            (Some(fs_id), None) => fs_id,
            _ => *votes.iter().max_by_key(|(_, votes)| votes.zones)?.0,
        };
        let chosen = &votes[&fs_id];
        layout.last_zone_blocks = self.last_zone_blocks(&layout, chosen);
        let (agreeing, has_log) = (chosen.zones, chosen.of_log > 0);
        let others = votes.iter().filter(|(other, _)| **other != fs_id);
        let others = others.map(|(other, votes)| (*other, votes.zones)).collect();
        let headers = self.end_copy(fs_id, &layout).unwrap_or_else(|| Headers::made_up(fs_id, layout));
        let shape = Shape { headers, agreeing, has_log, others, is_told_by_log };
        if agreeing < AGREEING_MIN {
            self.lonely.get_or_insert(shape);
            return None;
        }
        Some(shape)
    }

    /// How many headers of which volumes stand where zones begin.
    fn count(&self, layout: &Layout) -> BTreeMap<FsId, Votes> {
        let zones = layout.geometry.zones;
        let mut all: BTreeMap<FsId, Votes> = BTreeMap::new();
        for zone in probes(zones, self.probes).map(ZoneId) {
            let Some(seen) = self.header_at(layout.offset(zone, 0)) else { continue };
            if seen.identity.zone != zone || !seen.has_shape(&layout.geometry) {
                continue;
            }
            let votes = all.entry(seen.identity.fs_id).or_default();
            votes.zones += 1;
            votes.of_log += u32::from(zone.0 < LOG_ZONES && seen.identity.role == Role::Log);
            if zone.0 + 1 == zones {
                votes.last_capacity = Some(seen.header.capacity.get());
            }
        }
        all
    }

    /// How far the last zone reaches. Where nothing was ever written to it, that is where the end copy is to be.
    fn last_zone_blocks(&self, layout: &Layout, votes: &Votes) -> Blocks {
        let (last, most) = (ZoneId(layout.geometry.zones - 1), layout.last_zone_blocks);
        match votes.last_capacity {
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

impl Seen {
    fn has_shape(&self, geometry: &Geometry) -> bool {
        self.header.block_size.get() == geometry.block_size && self.header.zones.get() == geometry.zones
    }

    /// How far zones are apart, if this one is where it was found; nothing of the first.
    fn zone_size(&self, offset: u64) -> Option<Blocks> {
        let (block_size, zones) = (self.header.block_size.get(), self.header.zones.get());
        let first = zones_offset(block_size, zones.min(Address::ZONES_MAX));
        let blocks_before = u64::from(self.identity.zone.0) * u64::from(block_size);
        let distance = offset.checked_sub(first).filter(|_| blocks_before > 0)?;
        let is_whole = distance.is_multiple_of(blocks_before);
        is_whole.then(|| Blocks::try_from(distance / blocks_before).ok()).flatten()
    }

    /// The whole shape, if it can be one. The last zone ends where the device does.
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
        let told = |number: u32, range: std::ops::RangeInclusive<u32>, otherwise: u32| {
            if range.contains(&number) { number } else { otherwise }
        };
        let usual = FileOptions::default();
        let zone_blocks = told(header.zone_blocks.get(), smallest..=zone_size, zone_size);
        let max_open = told(header.max_open.get(), OPEN_ZONES_MIN..=u32::MAX, usual.max_open);
        let max_active = told(header.max_active.get(), max_open..=u32::MAX, max_open.max(usual.max_active));
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
        let mut layout =
            Layout { geometry, zone_size, last_zone_blocks: zone_size, preallocated: false, end_copy: None };
        let start = layout.offset(ZoneId(zones - 1), 0);
        let blocks = device_bytes.saturating_sub(start) / u64::from(block_size);
        layout.last_zone_blocks = Blocks::try_from(blocks).unwrap_or(zone_size).min(zone_size);
        (blocks > 0).then_some(layout)
    }
}

/// The first zones, and as many of the others as `most` admits, evenly; the last in any case.
fn probes(zones: u32, most: u32) -> impl Iterator<Item = u32> {
    let first = zones.min(PROBES_FIRST);
    let step = (zones - first).div_ceil(most - PROBES_FIRST).max(1);
    let others = (first..zones).step_by(step as usize);
    let last = (zones > first && !(zones - 1 - first).is_multiple_of(step)).then_some(zones - 1);
    (0..first).chain(others).chain(last)
}

/// Where data begin from here on, in a file that has holes; nothing behind the last.
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
