//! The bytes of extents, of the reverse map, and of its part in checkpoints.
//!
//! Everything that comes from a device goes through a `decode` function here, which accepts any bytes (I-TREE-2). For the
//! layouts see `docs/format.md`, section "Data (extent)".

use std::ops::Range;

use tree::Table;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zone::{Address, Blocks, FsId, Life, ZoneId};

use crate::Object;

/// The table of extents: (object, block) → [`Extent`].
pub const EXTENT: Table = tree::PREPAID;
/// The store's counter of unwritten blocks.
pub const UNWRITTEN_BLOCKS: u8 = 0;
/// The table of inline blocks: (object, block) → contents without trailing zeros.
pub const INLINE_BLOCK: Table = Table(2);
/// The table of reference counts: (object, block) → [`RefcountRecord`], for blocks with two references or more.
pub const REFCOUNT: Table = Table(4);

/// Bytes of a key of these tables.
pub const KEY_BYTES: usize = 20;
/// The most blocks of one extent.
pub const EXTENT_BLOCKS_MAX: Blocks = 256;
/// The most bytes of one extent.
pub const EXTENT_BYTES_MAX: u64 = 1 << 20;

/// The key of a block: object and block, in an order that sorts, and space for a snapshot number.
pub fn key(object: Object, block: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&object.0.to_be_bytes());
    key[8..16].copy_from_slice(&block.to_be_bytes());
    key
}

/// The object and block of a key.
pub fn decode_key(key: &[u8]) -> Option<(Object, u64)> {
    let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
    let number = |from: usize| u64::from_be_bytes(key[from..from + 8].try_into().expect("eight bytes"));
    (key[16..] == [0; 4]).then(|| (Object(number(0)), number(8)))
}

/// The fixed part of a stored extent. The CRC-32C of each block follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtentRecord {
    /// The address of its first block. 0 if it is lost, unwritten or a reference.
    pub address: U64,
    /// The number of blocks.
    pub blocks: U16,
    /// [`LOST`], [`TRIMMED`], [`UNWRITTEN`], [`REFERENCE`].
    pub flags: U16,
    /// Zero.
    pub reserved: U32,
}
const _: () = assert!(size_of::<ExtentRecord>() == 16);

/// The blocks cannot be read any more. There is no address and no CRC.
pub const LOST: u16 = 1;
/// The rest of an earlier extent: its data is older than the record.
pub const TRIMMED: u16 = 2;
/// The blocks are preallocated, and nothing was written to them. There is no address and no CRC.
pub const UNWRITTEN: u16 = 4;
/// The blocks belong to another object. An [`OriginRecord`] is in the place of the CRCs.
pub const REFERENCE: u16 = 8;
const FLAGS_KNOWN: u16 = LOST | TRIMMED | UNWRITTEN | REFERENCE;

/// The blocks to which a reference refers.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OriginRecord {
    /// The object that owns them.
    pub object: U64,
    /// The first of them there.
    pub block: U64,
}
const _: () = assert!(size_of::<OriginRecord>() == 16);

/// The number of references to a run of blocks.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RefcountRecord {
    /// The number of blocks.
    pub blocks: U32,
    /// References to each of them, at least 2.
    pub references: U32,
}
const _: () = assert!(size_of::<RefcountRecord>() == 8);

/// The stored reference count of a run of blocks.
pub fn encode_refcount(blocks: u32, references: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(RefcountRecord { blocks: blocks.into(), references: references.into() }.as_bytes());
    bytes
}

/// Blocks and references of a stored reference count.
pub fn decode_refcount(bytes: &[u8]) -> Option<(u32, u32)> {
    let record = RefcountRecord::read_from_bytes(bytes).ok()?;
    let (blocks, references) = (record.blocks.get(), record.references.get());
    (blocks > 0 && references > 1).then_some((blocks, references))
}

/// The blocks to which an extent refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The object that owns them.
    pub object: Object,
    /// The first of them there.
    pub block: u64,
}

/// A run of blocks of one object: contiguous in one zone, or in another object that owns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The address of its first block. None if it is lost, unwritten or a reference.
    pub address: Address,
    /// The number of blocks, at least one.
    pub blocks: Blocks,
    /// [`TRIMMED`].
    pub trimmed: bool,
    /// [`UNWRITTEN`].
    pub unwritten: bool,
    /// For a [`REFERENCE`]: the owner and its blocks.
    pub origin: Option<Origin>,
    /// The CRC-32C of each block in a zone.
    pub crcs: Vec<u32>,
}

impl Extent {
    /// Blocks at `address` with these checksums.
    pub fn new(address: Address, crcs: Vec<u32>) -> Self {
        assert!(!address.is_none() && (1..=EXTENT_BLOCKS_MAX as usize).contains(&crcs.len()));
        let blocks = crcs.len() as Blocks;
        Extent { address, blocks, trimmed: false, unwritten: false, origin: None, crcs }
    }

    /// Blocks that cannot be read any more.
    pub fn lost(blocks: Blocks) -> Self {
        assert!((1..=EXTENT_BLOCKS_MAX).contains(&blocks));
        let (address, crcs) = (Address::NONE, Vec::new());
        Extent { address, blocks, trimmed: false, unwritten: false, origin: None, crcs }
    }

    /// Preallocated blocks. They read as zeros.
    pub fn unwritten(blocks: Blocks) -> Self {
        Extent { unwritten: true, ..Extent::lost(blocks) }
    }

    /// Blocks of another object.
    pub fn reference(blocks: Blocks, origin: Origin) -> Self {
        Extent { origin: Some(origin), ..Extent::lost(blocks) }
    }

    /// Whether it is in a zone.
    pub fn is_stored(&self) -> bool {
        !self.address.is_none()
    }

    /// Whether it cannot be read any more.
    pub fn is_lost(&self) -> bool {
        self.address.is_none() && !self.unwritten && self.origin.is_none()
    }

    /// Whether it has space of its own, used or preallocated.
    pub fn holds_space(&self) -> bool {
        self.is_stored() || self.unwritten
    }

    /// The address of its block number `index`.
    pub fn address_of(&self, index: Blocks) -> Address {
        if self.is_stored() { self.address.offset(index) } else { Address::NONE }
    }

    /// Whether `next` begins in the zone where this one ends.
    pub fn is_followed_by(&self, next: &Extent) -> bool {
        let (here, there) = (self.address, next.address);
        let same_zone = here.zone() == there.zone() && here.life_low_bits() == there.life_low_bits();
        self.is_stored() && next.is_stored() && same_zone && here.block() + self.blocks == there.block()
    }

    /// Its blocks [from, to), counted from its first.
    pub fn slice(&self, from: Blocks, to: Blocks) -> Extent {
        assert!(from < to && to <= self.blocks, "a slice lies within its extent");
        let blocks = to - from;
        if !self.is_stored() {
            let ahead = |origin: Origin| Origin { block: origin.block + u64::from(from), ..origin };
            return Extent { blocks, origin: self.origin.map(ahead), ..self.clone() };
        }
        let crcs = self.crcs[from as usize..to as usize].to_vec();
        Extent { address: self.address.offset(from), blocks, crcs, ..*self }
    }

    /// The part of an extent that is in blocks [from, to), and where the part begins. The extent begins at block `start`.
    pub fn within(&self, start: u64, (from, to): (u64, u64)) -> Option<(u64, Extent)> {
        let (first, last) = (start.max(from), (start + u64::from(self.blocks)).min(to));
        (first < last).then(|| (first, self.slice((first - start) as Blocks, (last - start) as Blocks)))
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let flags = flag(self.is_lost(), LOST)
            | flag(self.trimmed, TRIMMED)
            | flag(self.unwritten, UNWRITTEN)
            | flag(self.origin.is_some(), REFERENCE);
        let record = ExtentRecord {
            address: U64::new(self.address.bits()),
            blocks: U16::new(self.blocks as u16),
            flags: U16::new(flags),
            reserved: U32::ZERO,
        };
        let mut bytes = record.as_bytes().to_vec();
        self.crcs.iter().for_each(|crc| bytes.extend_from_slice(&crc.to_le_bytes()));
        if let Some(Origin { object, block }) = self.origin {
            let origin = OriginRecord { object: object.0.into(), block: block.into() };
            bytes.extend_from_slice(origin.as_bytes());
        }
        bytes
    }

    /// An extent from stored bytes.
    pub fn decode(bytes: &[u8]) -> Option<Extent> {
        let (record, rest) = ExtentRecord::read_from_prefix(bytes).ok()?;
        let (blocks, flags) = (Blocks::from(record.blocks.get()), record.flags.get());
        let address = Address::from_bits(record.address.get());
        let is = |flag: u16| flags & flag != 0;
        let elsewhere = flags & (LOST | UNWRITTEN | REFERENCE);
        let stored = elsewhere == 0;
        let sane = (1..=EXTENT_BLOCKS_MAX).contains(&blocks)
            && flags & !FLAGS_KNOWN == 0
            && elsewhere.count_ones() <= 1
            && stored != address.is_none()
            && (!stored || address.block() > 0 && address.block() + blocks <= Address::BLOCKS_MAX);
        if !sane {
            return None;
        }
        let origin = if is(REFERENCE) { Some(decode_origin(rest, blocks)?) } else { None };
        let crcs = if origin.is_some() { Vec::new() } else { decode_crcs(rest)? };
        let expected = if stored { blocks as usize } else { 0 };
        let (trimmed, unwritten) = (is(TRIMMED), is(UNWRITTEN));
        (crcs.len() == expected).then_some(Extent { address, blocks, trimmed, unwritten, origin, crcs })
    }
}

fn decode_origin(bytes: &[u8], blocks: Blocks) -> Option<Origin> {
    let record = OriginRecord::read_from_bytes(bytes).ok()?;
    let origin = Origin { object: Object(record.object.get()), block: record.block.get() };
    origin.block.checked_add(u64::from(blocks))?;
    Some(origin)
}

fn decode_crcs(bytes: &[u8]) -> Option<Vec<u32>> {
    let words = <[U32]>::ref_from_bytes(bytes).ok()?;
    Some(words.iter().map(|word| word.get()).collect())
}

/// The 16 bytes for this crate in the ZIT's row of each data zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneUser {
    /// The first block of the footer. 0: there is none.
    pub footer: Blocks,
    /// Whether the zone takes no more writes.
    pub closed: bool,
    /// Its stream: 0–4 user writes of that lifetime class, 5 blocks that GC moved.
    pub stream: u8,
    /// Blocks that users had written when it was closed.
    pub filled_at: u64,
}

impl ZoneUser {
    /// The stored bytes.
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.footer.to_le_bytes());
        bytes[4] = u8::from(self.closed);
        bytes[5] = self.stream;
        bytes[8..].copy_from_slice(&self.filled_at.to_le_bytes());
        bytes
    }

    /// What stored bytes say.
    pub fn decode(bytes: &[u8; 16]) -> Self {
        let footer = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let filled_at = u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"));
        ZoneUser { footer, closed: bytes[4] & 1 != 0, stream: bytes[5], filled_at }
    }
}

/// The fixed part of an entry of the reverse map. The CRC-32C of each block follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryRecord {
    /// The object.
    pub object: U64,
    /// Its first block there.
    pub offset: U64,
    /// The last LSN when the append was complete.
    pub sequence: U64,
    /// The first block in the zone.
    pub block: U32,
    /// The number of blocks.
    pub blocks: U16,
    /// Zero.
    pub flags: U16,
    /// Zero. Space for a snapshot number.
    pub snapshot: U32,
    /// Zero.
    pub reserved: U32,
}
const _: () = assert!(size_of::<EntryRecord>() == 40);

/// One completed append in the reverse map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The owner of the blocks when they were written.
    pub object: Object,
    /// The first of them in the object.
    pub offset: u64,
    /// The last LSN when the append was complete. Of two entries for one block, the one with the later LSN is newer.
    pub sequence: u64,
    /// The first block in the zone.
    pub block: Blocks,
    /// The CRC-32C of each block.
    pub crcs: Vec<u32>,
}

impl Entry {
    /// Bytes of an entry for this number of blocks.
    pub const fn bytes_for(blocks: Blocks) -> usize {
        size_of::<EntryRecord>() + 4 * blocks as usize
    }

    /// Bytes of this entry.
    pub fn bytes(&self) -> usize {
        Self::bytes_for(self.blocks())
    }

    /// The number of blocks.
    pub fn blocks(&self) -> Blocks {
        self.crcs.len() as Blocks
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let record = EntryRecord {
            object: U64::new(self.object.0),
            offset: U64::new(self.offset),
            sequence: U64::new(self.sequence),
            block: U32::new(self.block),
            blocks: U16::new(self.crcs.len() as u16),
            flags: U16::ZERO,
            snapshot: U32::ZERO,
            reserved: U32::ZERO,
        };
        into.extend_from_slice(record.as_bytes());
        self.crcs.iter().for_each(|crc| into.extend_from_slice(&crc.to_le_bytes()));
    }

    /// The first entry in `bytes`, and the rest.
    fn decode(bytes: &[u8]) -> Option<(Entry, &[u8])> {
        let (record, rest) = EntryRecord::read_from_prefix(bytes).ok()?;
        let (crcs, rest) = rest.split_at_checked(4 * usize::from(record.blocks.get()))?;
        let entry = Entry {
            object: Object(record.object.get()),
            offset: record.offset.get(),
            sequence: record.sequence.get(),
            block: record.block.get(),
            crcs: decode_crcs(crcs)?,
        };
        let sane = (1..=EXTENT_BLOCKS_MAX).contains(&entry.blocks())
            && (1..=Address::BLOCKS_MAX - EXTENT_BLOCKS_MAX).contains(&entry.block)
            && entry.offset.checked_add(u64::from(entry.blocks())).is_some();
        sane.then_some((entry, rest))
    }
}

/// Encodes entries one after the other.
pub fn encode_entries<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<u8> {
    let mut bytes = Vec::new();
    entries.for_each(|entry| entry.encode(&mut bytes));
    bytes
}

/// Decodes this number of entries.
pub fn decode_entries(mut bytes: &[u8], count: u32) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for _ in 0..count {
        let (entry, rest) = Entry::decode(bytes)?;
        entries.push(entry);
        bytes = rest;
    }
    bytes.is_empty().then_some(entries)
}

/// The header of a summary (a list of entries) or of a footer (the places of all summaries).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SummaryHeader {
    /// [`SUMMARY_MAGIC`] or [`FOOTER_MAGIC`].
    pub magic: U32,
    /// CRC-32C of all its blocks with this field zero.
    pub checksum: U32,
    /// The volume.
    pub fs_id: [u8; 16],
    /// The zone.
    pub zone: U32,
    /// Its life.
    pub life: U32,
    /// The number of earlier summaries of the zone.
    pub sequence: U64,
    /// Blocks of this summary or footer.
    pub blocks: U32,
    /// Entries, or places.
    pub count: U32,
    /// Bytes of them, after this header.
    pub bytes: U32,
    /// Zero.
    pub reserved: [u8; 12],
}
/// Bytes of [`SummaryHeader`].
pub const SUMMARY_HEADER_BYTES: usize = 64;
const _: () = assert!(size_of::<SummaryHeader>() == SUMMARY_HEADER_BYTES);

/// The magic number of a summary.
pub const SUMMARY_MAGIC: u32 = u32::from_le_bytes(*b"PSUM");
/// The magic number of a footer.
pub const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"PFOT");

/// The zone and life of a summary or footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneName {
    /// The volume.
    pub fs_id: FsId,
    /// The zone.
    pub zone: ZoneId,
    /// Its life.
    pub life: Life,
}

/// The blocks of a summary or footer.
pub fn encode_summary(
    magic: u32,
    name: &ZoneName,
    sequence: usize,
    (count, payload): (usize, &[u8]),
    block_size: u32,
) -> Vec<u8> {
    let size = (SUMMARY_HEADER_BYTES + payload.len()).next_multiple_of(block_size as usize);
    let header = SummaryHeader {
        magic: U32::new(magic),
        checksum: U32::ZERO,
        fs_id: name.fs_id.0,
        zone: U32::new(name.zone.0),
        life: U32::new(name.life.0),
        sequence: U64::new(sequence as u64),
        blocks: U32::new((size / block_size as usize) as u32),
        count: U32::new(count as u32),
        bytes: U32::new(payload.len() as u32),
        reserved: [0; 12],
    };
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(size, 0);
    let checksum = zone::format::checksum(&[&bytes]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Sets the zone and the checksum of a summary or footer.
pub(crate) fn complete_summary(name: &ZoneName, bytes: &mut [u8]) {
    let Ok((mut header, _)) = SummaryHeader::read_from_prefix(bytes) else { return };
    (header.fs_id, header.zone, header.life) = (name.fs_id.0, U32::new(name.zone.0), U32::new(name.life.0));
    bytes[..SUMMARY_HEADER_BYTES].copy_from_slice(header.as_bytes());
    complete_checksum_of_summary(bytes);
}

/// Sets the checksum of a summary or footer.
pub(crate) fn complete_checksum_of_summary(bytes: &mut [u8]) {
    bytes[4..8].fill(0);
    let checksum = zone::format::checksum(&[bytes]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// The number of blocks in the header of a summary or footer. Nothing is verified yet.
pub fn summary_blocks_claimed(magic: u32, first: &[u8]) -> Option<Blocks> {
    let (header, _) = SummaryHeader::read_from_prefix(first).ok()?;
    (header.magic.get() == magic).then(|| header.blocks.get())
}

/// Verifies all blocks of a summary or footer. Returns its count and payload.
pub fn decode_summary<'a>(magic: u32, name: &ZoneName, bytes: &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (header, payload) = SummaryHeader::read_from_prefix(bytes).ok()?;
    let checksum = zone::format::checksum(&[&bytes[..4], &[0; 4], &bytes[8..]]);
    let ours = header.magic.get() == magic
        && header.checksum.get() == checksum
        && header.fs_id == name.fs_id.0
        && header.zone.get() == name.zone.0
        && header.life.get() == name.life.0;
    let payload = payload.get(..header.bytes.get() as usize)?;
    ours.then_some((header.count.get(), payload))
}

/// The places of summaries, for a footer or a checkpoint.
pub fn encode_places(places: &[Blocks]) -> Vec<u8> {
    places.iter().flat_map(|place| place.to_le_bytes()).collect()
}

/// Decodes this number of places.
pub fn decode_places(bytes: &[u8], count: u32) -> Option<Vec<Blocks>> {
    let places = decode_crcs(bytes)?;
    (places.len() == count as usize).then_some(places)
}

/// The header of one zone in the bytes of a checkpoint. Places and entries follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CheckpointZone {
    /// The zone.
    pub zone: U32,
    /// Its life.
    pub life: U32,
    /// The number of its summaries.
    pub summaries: U32,
    /// The number of entries that are in no summary.
    pub entries: U32,
    /// Bytes of these.
    pub entry_bytes: U32,
    /// Zero.
    pub reserved: U32,
}
const _: () = assert!(size_of::<CheckpointZone>() == 24);

/// The magic number of these bytes.
pub const CHECKPOINT_MAGIC: u32 = u32::from_le_bytes(*b"PRV1");

/// The reverse map of a zone without a footer, in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// The zone's life.
    pub life: Life,
    /// Where its summaries begin.
    pub summaries: Vec<Blocks>,
    /// Entries that are in no summary.
    pub entries: Vec<Entry>,
}

/// Adds a zone to a checkpoint's bytes.
pub fn encode_unfinished<'a>(
    into: &mut Vec<u8>,
    (zone, life): (ZoneId, Life),
    summaries: &[Blocks],
    entries: impl Iterator<Item = &'a Entry> + Clone,
) {
    let count = entries.clone().count();
    let bytes = encode_entries(entries);
    let record = CheckpointZone {
        zone: U32::new(zone.0),
        life: U32::new(life.0),
        summaries: U32::new(summaries.len() as u32),
        entries: U32::new(count as u32),
        entry_bytes: U32::new(bytes.len() as u32),
        reserved: U32::ZERO,
    };
    into.extend_from_slice(record.as_bytes());
    into.extend_from_slice(&encode_places(summaries));
    into.extend_from_slice(&bytes);
}

/// All zones in the bytes of a checkpoint. None if the volume is new.
pub fn decode_checkpoint(bytes: &[u8]) -> Option<Vec<(ZoneId, Unfinished)>> {
    let mut zones = Vec::new();
    if bytes.is_empty() {
        return Some(zones);
    }
    let (magic, mut rest) = U32::read_from_prefix(bytes).ok()?;
    if magic.get() != CHECKPOINT_MAGIC {
        return None;
    }
    while !rest.is_empty() {
        let (record, after) = CheckpointZone::read_from_prefix(rest).ok()?;
        let places = record.summaries.get();
        let (place_bytes, after) = after.split_at_checked(4 * places as usize)?;
        let (entry_bytes, after) = after.split_at_checked(record.entry_bytes.get() as usize)?;
        let unfinished = Unfinished {
            life: Life(record.life.get()),
            summaries: decode_places(place_bytes, places)?,
            entries: decode_entries(entry_bytes, record.entries.get())?,
        };
        zones.push((ZoneId(record.zone.get()), unfinished));
        rest = after;
    }
    Some(zones)
}

/// The space that the reverse map takes in a zone. Admission and the counts of space use the same arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Bytes of a block.
    pub block_size: u32,
}

impl Packing {
    fn blocks(self, payload: usize) -> Blocks {
        (SUMMARY_HEADER_BYTES + payload).div_ceil(self.block_size as usize) as Blocks
    }

    /// Bytes of entries in one block of a summary.
    pub fn bytes_per_block(self) -> usize {
        self.block_size as usize - SUMMARY_HEADER_BYTES
    }

    /// Blocks of one summary with this number of bytes of entries.
    pub fn summary(self, bytes: usize) -> Blocks {
        if bytes == 0 { 0 } else { self.blocks(bytes) }
    }

    /// Blocks of a footer with this number of summaries.
    pub fn footer(self, summaries: usize) -> Blocks {
        self.blocks(4 * summaries)
    }

    /// Blocks to be reserved after the data of a zone with these summaries, and with these bytes of entries in no summary.
    pub fn reserved_behind(self, entry_bytes: usize, summaries: usize) -> Blocks {
        self.summary(entry_bytes) + self.footer(summaries + usize::from(entry_bytes > 0))
    }

    /// The most blocks that a full zone of this capacity has after its last block of data, with these bytes of entries in no
    /// summary.
    pub fn rest(self, entry_bytes: usize, capacity: Blocks) -> Blocks {
        // A summary is written as soon as entries fill a block. So it has at least half of a block's entries.
        let summaries = 2 * capacity.div_ceil(self.entries_per_block());
        self.reserved_behind(entry_bytes + Entry::bytes_for(1), summaries as usize)
    }

    /// Blocks of data that a zone of this capacity takes in the worst case, when each block is an append of its own. Two
    /// blocks are left for appends in flight when the zone is closed.
    pub fn payload(self, capacity: Blocks) -> Blocks {
        let Range { start: mut least, end: mut most } = self.payload_within(capacity);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            let bound = if self.fits(middle, capacity) { &mut least } else { &mut most };
            *bound = middle;
        }
        least
    }

    /// The payload is in this range, and its start fits. The end is the number of blocks that fit with their summaries but
    /// without a footer. It is too large by at most this footer, the zone's header, and what is rounded up.
    fn payload_within(self, capacity: Blocks) -> Range<Blocks> {
        let per_block = u64::from(self.entries_per_block());
        let without_footer = (u64::from(capacity) * per_block / (per_block + 1)) as Blocks;
        let summaries = without_footer.div_ceil(self.entries_per_block()) as usize;
        without_footer.saturating_sub(self.footer(summaries + 1) + 4)..without_footer + 1
    }

    fn fits(self, data: Blocks, capacity: Blocks) -> bool {
        let summaries = data.div_ceil(self.entries_per_block());
        1 + data + summaries + self.footer(summaries as usize + 1) + 2 <= capacity
    }

    /// Entries of one block each in one block of a summary.
    fn entries_per_block(self) -> Blocks {
        (self.bytes_per_block() / Entry::bytes_for(1)).max(1) as Blocks
    }
}

#[cfg(test)]
mod tests;
