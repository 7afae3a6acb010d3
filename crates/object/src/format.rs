//! The bytes of objects: the description of the volume, bundles, and chunks of the table.
//!
//! Magic, checksum, version, features and reader stand for the same things as in other headers of the format. Every
//! decoder accepts any bytes.

use bytes::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zone::format::{FORMAT_VERSION, HeaderError, READER, Reader, check_version, checksum};
use zone::{Blocks, FsId, Geometry, Life, ZoneId, ZoneState};

/// The owner of the parts of a zone that have several.
pub(crate) const OWNERS_MANY: u32 = u32::MAX;

const VOLUME_MAGIC: [u8; 8] = *b"POLDERO1";
const BUNDLE_MAGIC: [u8; 8] = *b"POLDERB1";
const CHUNK_MAGIC: [u8; 8] = *b"POLDERT1";

/// A bundle that has the numbers of the newest chunks.
const FLAG_TABLE: u32 = 1;
/// The first bundle of a new owner.
const FLAG_OWNER: u32 = 2;
/// The last bundle of an owner that has closed the volume.
const FLAG_CLOSING: u32 = 4;

/// The start of every object that is not a part.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredStart {
    magic: [u8; 8],
    /// CRC-32C of the whole object with this field zero.
    checksum: U32,
    version: U32,
    fs_id: [u8; 16],
    /// Features that must be known to use the object: none yet.
    features_incompatible: U64,
    reader: Reader,
}

const START_BYTES: usize = 56;
const _: () = assert!(size_of::<StoredStart>() == START_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredVolume {
    block_size: U32,
    zones: U32,
    zone_blocks: U32,
    max_open: U32,
    max_active: U32,
    max_append: U32,
    part_blocks: U32,
    chunk_zones: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredBundle {
    sequence: U64,
    table: U64,
    swept: U64,
    nonce: [u8; 16],
    previous_nonce: [u8; 16],
    owner: U32,
    flags: U32,
    chunks: U32,
    zones: U32,
    runs: U32,
    pieces: U32,
    references: U32,
    payload_bytes: U32,
    holder: StoredHolder,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredHolder {
    machine: [u8; 16],
    boot: [u8; 16],
    process_namespace: U64,
    process: U32,
    reserved: U32,
    process_started: U64,
    host: [u8; 64],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredZone {
    life: U32,
    pointer: U32,
    owner: U32,
    state: u8,
    has_garbage: u8,
    reserved: [u8; 2],
}

const _: () = assert!(size_of::<StoredZone>() == 16);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredChange {
    zone: U32,
    entry: StoredZone,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredRun {
    zone: U32,
    part: U32,
    owner: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredPiece {
    zone: U32,
    block: U32,
    blocks: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredReference {
    piece: StoredPiece,
    reserved: U32,
    bundle: U64,
    offset: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredChunk {
    number: U64,
    chunk: U32,
    zones: U32,
    runs: U32,
    reserved: U32,
}

/// The parts of a zone from `part` on are those of `owner`, up to the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) part: u32,
    pub(crate) owner: u32,
}

/// The state of a zone that a bundle or a chunk has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZoneEntry {
    pub(crate) life: Life,
    pub(crate) state: ZoneState,
    /// The next block; of a full zone, how many were written.
    pub(crate) pointer: Blocks,
    /// Whether there may be parts of earlier lives.
    pub(crate) has_garbage: bool,
    /// Which owner wrote the parts, in order.
    pub(crate) runs: Vec<Run>,
}

impl ZoneEntry {
    pub(crate) const NEW: ZoneEntry = ZoneEntry {
        life: Life(0),
        state: ZoneState::Empty,
        pointer: 0,
        has_garbage: false,
        runs: Vec::new(),
    };
}

/// Blocks of an unfinished part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) zone: ZoneId,
    pub(crate) block: Blocks,
    pub(crate) blocks: Blocks,
    /// The bundle that has them, and the first byte in it.
    pub(crate) bundle: u64,
    pub(crate) offset: u64,
}

/// The process that owns the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) machine: [u8; 16],
    pub(crate) boot: [u8; 16],
    pub(crate) process_namespace: u64,
    pub(crate) process: u32,
    pub(crate) process_started: u64,
    pub(crate) host: String,
}

/// The contents of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(crate) sequence: u64,
    /// The number of the last table bundle; this one, if it has chunks.
    pub(crate) table: u64,
    /// The bundles below this number that still exist are owner bundles.
    pub(crate) swept: u64,
    pub(crate) nonce: [u8; 16],
    /// The nonce of the bundle before it.
    pub(crate) previous_nonce: [u8; 16],
    pub(crate) owner: u32,
    pub(crate) holder: Holder,
    pub(crate) is_owner: bool,
    pub(crate) is_closing: bool,
    /// The number of each chunk of the table; [`NO_CHUNK`] if all of its zones were new.
    pub(crate) chunks: Option<Vec<u64>>,
    pub(crate) zones: Vec<(ZoneId, ZoneEntry)>,
    /// Blocks in this bundle.
    pub(crate) pieces: Vec<Piece>,
    /// Blocks in earlier bundles, if this is a table bundle.
    pub(crate) references: Vec<Piece>,
}

/// The number of a chunk that was not written yet. Numbers count up: first the owner, then its chunks.
pub(crate) const NO_CHUNK: u64 = 0;

/// The shape of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) fs_id: FsId,
    pub(crate) geometry: Geometry,
    pub(crate) part_blocks: Blocks,
    /// Zones of one chunk of the table.
    pub(crate) chunk_zones: u32,
}

impl Shape {
    pub(crate) fn part_bytes(&self) -> u64 {
        u64::from(self.part_blocks) * u64::from(self.geometry.block_size)
    }

    /// The zones of a chunk.
    pub(crate) fn zones_of_chunk(&self, chunk: u32) -> std::ops::Range<u32> {
        let first = chunk.saturating_mul(self.chunk_zones).min(self.geometry.zones);
        first..first.saturating_add(self.chunk_zones).min(self.geometry.zones)
    }

    pub(crate) fn chunks(&self) -> usize {
        self.geometry.zones.div_ceil(self.chunk_zones) as usize
    }
}

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it was not written by Polder")]
    Foreign,
    #[error("it is damaged")]
    Damaged,
    #[error("{0}")]
    Newer(HeaderError),
}

fn start(magic: [u8; 8], fs_id: FsId) -> Vec<u8> {
    let start = StoredStart {
        magic,
        checksum: U32::ZERO,
        version: U32::new(FORMAT_VERSION),
        fs_id: fs_id.0,
        features_incompatible: U64::ZERO,
        reader: READER,
    };
    start.as_bytes().to_vec()
}

fn complete(mut object: Vec<u8>) -> Bytes {
    let checksum = checksum(&[&object]);
    object[8..12].copy_from_slice(&checksum.to_le_bytes());
    object.into()
}

/// The volume that an object belongs to, and the bytes behind its start.
fn opened(object: &[u8], magic: [u8; 8]) -> Result<(FsId, &[u8]), Unreadable> {
    let (start, rest) = StoredStart::read_from_prefix(object).map_err(|_| Unreadable::Foreign)?;
    if start.magic != magic {
        return Err(Unreadable::Foreign);
    }
    if checksum(&[&object[..8], &[0; 4], &object[12..]]) != start.checksum.get() {
        return Err(Unreadable::Damaged);
    }
    let (version, features) = (start.version.get(), start.features_incompatible.get());
    if features != 0 {
        return Err(Unreadable::Newer(HeaderError::Newer { version, features, reader: start.reader }));
    }
    check_version(version, 0, start.reader).map_err(Unreadable::Newer)?;
    Ok((FsId(start.fs_id), rest))
}

/// The next `count` records of a kind.
fn records<T: FromBytes>(bytes: &mut &[u8], count: u32) -> Option<Vec<T>> {
    let length = (count as usize).checked_mul(size_of::<T>())?;
    let (records, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    records.chunks_exact(size_of::<T>()).map(|record| T::read_from_bytes(record).ok()).collect()
}

fn record<T: FromBytes>(bytes: &mut &[u8]) -> Option<T> {
    records(bytes, 1)?.pop()
}

pub(crate) fn encode_volume(shape: &Shape) -> Bytes {
    let geometry = &shape.geometry;
    let mut object = start(VOLUME_MAGIC, shape.fs_id);
    let volume = StoredVolume {
        block_size: U32::new(geometry.block_size),
        zones: U32::new(geometry.zones),
        zone_blocks: U32::new(geometry.zone_blocks),
        max_open: U32::new(geometry.max_open),
        max_active: U32::new(geometry.max_active),
        max_append: U32::new(geometry.max_append),
        part_blocks: U32::new(shape.part_blocks),
        chunk_zones: U32::new(shape.chunk_zones),
    };
    object.extend_from_slice(volume.as_bytes());
    complete(object)
}

pub(crate) fn decode_volume(object: &[u8]) -> Result<Shape, Unreadable> {
    let (fs_id, mut rest) = opened(object, VOLUME_MAGIC)?;
    let stored: StoredVolume = record(&mut rest).ok_or(Unreadable::Damaged)?;
    let geometry = Geometry {
        block_size: stored.block_size.get(),
        zones: stored.zones.get(),
        zone_blocks: stored.zone_blocks.get(),
        max_open: stored.max_open.get(),
        max_active: stored.max_active.get(),
        max_append: stored.max_append.get(),
        conventional: 0,
        seek_bytes: crate::SEEK_BYTES,
    };
    let (part_blocks, chunk_zones) = (stored.part_blocks.get(), stored.chunk_zones.get());
    let shape = Shape { fs_id, geometry, part_blocks, chunk_zones };
    let geometry = &shape.geometry;
    let is_possible = geometry.block_size.is_power_of_two()
        && (512..=65536).contains(&geometry.block_size)
        && (1..=zone::Address::ZONES_MAX).contains(&geometry.zones)
        && (1..=zone::Address::BLOCKS_MAX).contains(&geometry.zone_blocks)
        && (1..=geometry.zone_blocks).contains(&geometry.max_append)
        && (1..=geometry.max_active).contains(&geometry.max_open)
        && (1..=crate::ZONES_ACTIVE).contains(&geometry.max_active)
        && shape.part_blocks > 0
        && shape.chunk_zones > 0
        && shape.part_bytes() <= crate::PART_BYTES_MAX;
    is_possible.then_some(shape).ok_or(Unreadable::Damaged)
}

fn stored_zone(entry: &ZoneEntry) -> StoredZone {
    let state = match entry.state {
        ZoneState::Empty => 0,
        ZoneState::Open | ZoneState::Closed => 1,
        ZoneState::Full => 2,
        ZoneState::ReadOnly | ZoneState::Offline => unreachable!("zones of objects do not wear out"),
    };
    StoredZone {
        life: U32::new(entry.life.0),
        pointer: U32::new(entry.pointer),
        owner: U32::new(match entry.runs[..] {
            [] => 0,
            [Run { part: 0, owner }] => owner,
            _ => OWNERS_MANY,
        }),
        state,
        has_garbage: u8::from(entry.has_garbage),
        reserved: [0; 2],
    }
}

fn stored_runs(zone: ZoneId, entry: &ZoneEntry) -> impl Iterator<Item = StoredRun> {
    let runs = if entry.runs.len() > 1 { &entry.runs[..] } else { &[] };
    runs.iter().map(move |run| StoredRun {
        zone: U32::new(zone.0),
        part: U32::new(run.part),
        owner: U32::new(run.owner),
    })
}

/// The entry of a zone, and its runs from the beginning of `runs`.
fn loaded_zone(
    shape: &Shape,
    zone: ZoneId,
    stored: &StoredZone,
    runs: &mut &[StoredRun],
) -> Option<ZoneEntry> {
    let pointer = stored.pointer.get();
    let owner = stored.owner.get();
    let runs = match owner {
        0 => Vec::new(),
        OWNERS_MANY => {
            let count = runs.iter().take_while(|run| run.zone.get() == zone.0).count();
            let (own, rest) = runs.split_at(count);
            *runs = rest;
            own.iter().map(|run| Run { part: run.part.get(), owner: run.owner.get() }).collect()
        }
        owner => vec![Run { part: 0, owner }],
    };
    let state = match stored.state {
        0 if pointer == 0 => ZoneState::Empty,
        1 if (1..shape.geometry.zone_blocks).contains(&pointer) => ZoneState::Closed,
        2 if pointer <= shape.geometry.zone_blocks => ZoneState::Full,
        _ => return None,
    };
    let parts = match state {
        ZoneState::Full => pointer.div_ceil(shape.part_blocks),
        _ => pointer / shape.part_blocks,
    };
    let is_ordered = runs.is_sorted_by(|one, next| one.part < next.part)
        && runs.iter().all(|run| run.part < parts && !matches!(run.owner, 0 | OWNERS_MANY))
        && (parts == 0 || runs.first().is_some_and(|run| run.part == 0));
    is_ordered.then_some(ZoneEntry {
        life: Life(stored.life.get()),
        state,
        pointer,
        has_garbage: stored.has_garbage != 0,
        runs,
    })
}

fn stored_holder(holder: &Holder) -> StoredHolder {
    let mut host = [0; 64];
    let name = holder.host.as_bytes();
    let length = name.len().min(host.len());
    host[..length].copy_from_slice(&name[..length]);
    StoredHolder {
        machine: holder.machine,
        boot: holder.boot,
        process_namespace: U64::new(holder.process_namespace),
        process: U32::new(holder.process),
        reserved: U32::ZERO,
        process_started: U64::new(holder.process_started),
        host,
    }
}

fn loaded_holder(stored: &StoredHolder) -> Holder {
    let host = stored.host.split(|&byte| byte == 0).next().unwrap_or_default();
    Holder {
        machine: stored.machine,
        boot: stored.boot,
        process_namespace: stored.process_namespace.get(),
        process: stored.process.get(),
        process_started: stored.process_started.get(),
        host: String::from_utf8_lossy(host).into_owned(),
    }
}

/// A bundle with the blocks of its pieces, whose offsets are filled in.
pub(crate) fn encode_bundle(shape: &Shape, bundle: &mut Bundle, payload: &[Bytes]) -> Bytes {
    let count = |count: usize| U32::new(u32::try_from(count).expect("a bundle is small"));
    let runs: Vec<StoredRun> =
        bundle.zones.iter().flat_map(|(zone, entry)| stored_runs(*zone, entry)).collect();
    let bytes: usize = payload.iter().map(Bytes::len).sum();
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let head = StoredBundle {
        sequence: U64::new(bundle.sequence),
        table: U64::new(bundle.table),
        swept: U64::new(bundle.swept),
        nonce: bundle.nonce,
        previous_nonce: bundle.previous_nonce,
        owner: U32::new(bundle.owner),
        flags: U32::new(
            flag(bundle.chunks.is_some(), FLAG_TABLE)
                | flag(bundle.is_owner, FLAG_OWNER)
                | flag(bundle.is_closing, FLAG_CLOSING),
        ),
        chunks: count(bundle.chunks.as_ref().map_or(0, Vec::len)),
        zones: count(bundle.zones.len()),
        runs: count(runs.len()),
        pieces: count(bundle.pieces.len()),
        references: count(bundle.references.len()),
        payload_bytes: count(bytes),
        holder: stored_holder(&bundle.holder),
    };
    let mut object = start(BUNDLE_MAGIC, shape.fs_id);
    object.extend_from_slice(head.as_bytes());
    for sequence in bundle.chunks.iter().flatten() {
        object.extend_from_slice(&sequence.to_le_bytes());
    }
    for (zone, entry) in &bundle.zones {
        let change = StoredChange { zone: U32::new(zone.0), entry: stored_zone(entry) };
        object.extend_from_slice(change.as_bytes());
    }
    object.extend_from_slice(runs.as_bytes());
    let stored = |piece: &Piece| StoredPiece {
        zone: U32::new(piece.zone.0),
        block: U32::new(piece.block),
        blocks: U32::new(piece.blocks),
    };
    for piece in &bundle.pieces {
        object.extend_from_slice(stored(piece).as_bytes());
    }
    for piece in &bundle.references {
        let reference = StoredReference {
            piece: stored(piece),
            reserved: U32::ZERO,
            bundle: U64::new(piece.bundle),
            offset: U64::new(piece.offset),
        };
        object.extend_from_slice(reference.as_bytes());
    }
    let mut offset = object.len() as u64;
    for (piece, bytes) in bundle.pieces.iter_mut().zip(payload) {
        (piece.bundle, piece.offset) = (bundle.sequence, offset);
        offset += bytes.len() as u64;
        object.extend_from_slice(bytes);
    }
    complete(object)
}

/// A bundle with this number. The blocks of its pieces stay in `object`, at their offsets.
pub(crate) fn decode_bundle(shape: &Shape, sequence: u64, object: &[u8]) -> Result<Bundle, Unreadable> {
    let (fs_id, rest) = opened(object, BUNDLE_MAGIC)?;
    if fs_id != shape.fs_id {
        return Err(Unreadable::Foreign);
    }
    bundle_behind_start(shape, sequence, rest).ok_or(Unreadable::Damaged)
}

fn bundle_behind_start(shape: &Shape, sequence: u64, mut rest: &[u8]) -> Option<Bundle> {
    let rest = &mut rest;
    let head: StoredBundle = record(rest)?;
    let flags = head.flags.get();
    let chunks: Vec<U64> = records(rest, head.chunks.get())?;
    let changes: Vec<StoredChange> = records(rest, head.zones.get())?;
    let runs: Vec<StoredRun> = records(rest, head.runs.get())?;
    let pieces: Vec<StoredPiece> = records(rest, head.pieces.get())?;
    let references: Vec<StoredReference> = records(rest, head.references.get())?;
    let mut runs = &runs[..];
    let zone = |change: &StoredChange| {
        let zone = ZoneId(change.zone.get());
        let is_there = zone.0 < shape.geometry.zones;
        Some((zone, loaded_zone(shape, zone, &change.entry, &mut runs).filter(|_| is_there)?))
    };
    let zones = changes.iter().map(zone).collect::<Option<Vec<_>>>()?;
    let head_bytes = START_BYTES
        + size_of::<StoredBundle>()
        + chunks.len() * 8
        + changes.len() * size_of::<StoredChange>()
        + head.runs.get() as usize * size_of::<StoredRun>()
        + pieces.len() * size_of::<StoredPiece>()
        + references.len() * size_of::<StoredReference>();
    let mut offset = head_bytes as u64;
    let own = |stored: &StoredPiece| {
        let piece = loaded_piece(shape, stored, sequence, offset)?;
        offset += u64::from(piece.blocks) * u64::from(shape.geometry.block_size);
        Some(piece)
    };
    let pieces = pieces.iter().map(own).collect::<Option<Vec<_>>>()?;
    let earlier = |stored: &StoredReference| {
        loaded_piece(shape, &stored.piece, stored.bundle.get(), stored.offset.get())
            .filter(|piece| piece.bundle < sequence)
    };
    let references = references.iter().map(earlier).collect::<Option<Vec<_>>>()?;
    let is_table = flags & FLAG_TABLE != 0;
    let table = head.table.get();
    let is_right = head.sequence.get() == sequence
        && runs.is_empty()
        && rest.len() == head.payload_bytes.get() as usize
        && offset == (head_bytes + rest.len()) as u64
        && chunks.len() == if is_table { shape.chunks() } else { 0 }
        && if is_table { table == sequence } else { table < sequence && references.is_empty() }
        && head.owner.get() < OWNERS_MANY - 1
        && sequence < u64::MAX
        && flags & !(FLAG_TABLE | FLAG_OWNER | FLAG_CLOSING) == 0;
    is_right.then(|| Bundle {
        sequence,
        table,
        swept: head.swept.get(),
        nonce: head.nonce,
        previous_nonce: head.previous_nonce,
        owner: head.owner.get(),
        holder: loaded_holder(&head.holder),
        is_owner: flags & FLAG_OWNER != 0,
        is_closing: flags & FLAG_CLOSING != 0,
        chunks: is_table.then(|| chunks.iter().map(|sequence| sequence.get()).collect()),
        zones,
        pieces,
        references,
    })
}

fn loaded_piece(shape: &Shape, stored: &StoredPiece, bundle: u64, offset: u64) -> Option<Piece> {
    let (zone, block, blocks) = (ZoneId(stored.zone.get()), stored.block.get(), stored.blocks.get());
    let is_possible = zone.0 < shape.geometry.zones
        && blocks > 0
        && u64::from(block % shape.part_blocks) + u64::from(blocks) <= u64::from(shape.part_blocks)
        && block < shape.geometry.zone_blocks
        && offset < 1 << 40;
    is_possible.then_some(Piece { zone, block, blocks, bundle, offset })
}

/// A chunk of the table: the entries of its zones, in order.
pub(crate) fn encode_chunk(shape: &Shape, chunk: u32, number: u64, entries: &[ZoneEntry]) -> Bytes {
    let first = shape.zones_of_chunk(chunk).start;
    let zones = || entries.iter().zip(first..).map(|(entry, zone)| (ZoneId(zone), entry));
    let runs: Vec<StoredRun> = zones().flat_map(|(zone, entry)| stored_runs(zone, entry)).collect();
    let count = |count: usize| U32::new(u32::try_from(count).expect("a chunk has few zones"));
    let mut object = start(CHUNK_MAGIC, shape.fs_id);
    let head = StoredChunk {
        number: U64::new(number),
        chunk: U32::new(chunk),
        zones: count(entries.len()),
        runs: count(runs.len()),
        reserved: U32::ZERO,
    };
    object.extend_from_slice(head.as_bytes());
    for entry in entries {
        object.extend_from_slice(stored_zone(entry).as_bytes());
    }
    object.extend_from_slice(runs.as_bytes());
    complete(object)
}

/// The entries of all zones of a chunk.
pub(crate) fn decode_chunk(
    shape: &Shape,
    chunk: u32,
    number: u64,
    object: &[u8],
) -> Result<Vec<ZoneEntry>, Unreadable> {
    let (fs_id, rest) = opened(object, CHUNK_MAGIC)?;
    if fs_id != shape.fs_id {
        return Err(Unreadable::Foreign);
    }
    chunk_behind_start(shape, chunk, number, rest).ok_or(Unreadable::Damaged)
}

fn chunk_behind_start(shape: &Shape, chunk: u32, number: u64, mut rest: &[u8]) -> Option<Vec<ZoneEntry>> {
    let rest = &mut rest;
    let head: StoredChunk = record(rest)?;
    let stored: Vec<StoredZone> = records(rest, head.zones.get())?;
    let runs: Vec<StoredRun> = records(rest, head.runs.get())?;
    let mut runs = &runs[..];
    let zones = shape.zones_of_chunk(chunk);
    let (first, expected) = (zones.start, zones.len() as u32);
    let is_right = (head.number.get(), head.chunk.get(), head.zones.get()) == (number, chunk, expected);
    let entries = stored
        .iter()
        .zip(first..)
        .map(|(stored, zone)| loaded_zone(shape, ZoneId(zone), stored, &mut runs))
        .collect::<Option<Vec<_>>>()?;
    (is_right && runs.is_empty() && rest.is_empty()).then_some(entries)
}
