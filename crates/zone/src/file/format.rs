//! The bytes of a volume's file outside all zones: header and states of the zones.
//!
//! ```text
//!   0        header
//!   4096     header, second copy
//!   ...      first slot of every zone   (32 bytes each, the table a whole number of pages)
//!   ...      second slot of every zone
//!   ...      zones, one after the other
//!   ...      header, end copy           (see [`end_copy_place`])
//! ```
//!
//! A page is 4096 bytes or one block, whichever is larger. The header never changes, except when the end copy is
//! added to a volume that has none. The slots of a zone are written in turn, so that the newest one is never
//! overwritten. A slot lies within one sector of 512 bytes, which the disk writes atomically.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::{READER, Reader, checksum};
use crate::{Address, Blocks, FsId, Geometry, ZoneId, ZoneInfo, ZoneState};

/// The magic number at the start of a volume's file.
pub const FILE_MAGIC: [u8; 8] = *b"POLDERF1";
/// The version that this code writes and reads.
pub const FILE_VERSION: u32 = 1;
/// The offset of the second copy of the header, and the size of one copy.
pub const HEADER_BYTES: usize = 4096;
/// The largest file, so that no offset overflows.
pub const FILE_BYTES_MAX: u64 = 1 << 62;
/// The smallest permitted limit of open zones.
pub const OPEN_ZONES_MIN: u32 = 6;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = size_of::<Slot>();
/// Set in [`FileHeader::flags`] if the host's blocks are never freed.
pub const FLAG_PREALLOCATED: u32 = 1;
/// Set in [`FileHeader::features_incompatible`] if the capacity of zones is less than their size.
pub const FEATURE_CAPACITY: u64 = 1;
/// Set in [`FileHeader::features_incompatible`] if the zones are those of a member of a set: the first three have its
/// labels, and the others are parts of the zones of the volume.
///
/// Incompatible, because a release without sets would take each of them for a zone of the volume.
pub const FEATURE_MEMBER: u64 = 2;
/// Set in [`FileHeader::features_compatible`] if there is a copy of the header at [`FileHeader::end_copy`].
///
/// Compatible, because a release that does not know this feature reads the two copies at the start, never changes
/// them, and never writes behind the last zone.
pub const FEATURE_END_COPY: u64 = 1;
/// The end copy begins at a multiple of this, which is a whole number of pages for every block size.
pub const END_COPY_UNIT: u64 = 64 << 10;
/// Units from the start of the end copy to the end of the device: its own, and at least one behind it. Metadata of
/// other programs at the end of a disk (the second GPT, RAID metadata) does not reach that far.
const END_COPY_UNITS: u64 = 2;

/// The stored header: 128 bytes, then zeros to [`HEADER_BYTES`].
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileHeader {
    /// [`FILE_MAGIC`].
    pub magic: [u8; 8],
    /// CRC-32C of the whole copy with this field zero.
    pub checksum: U32,
    /// [`FILE_VERSION`].
    pub version: U32,
    /// The volume.
    pub fs_id: [u8; 16],
    /// Features that may be ignored by a release that does not know them.
    pub features_compatible: U64,
    /// Features that must be known to write the file.
    pub features_read_only: U64,
    /// Features that must be known to read the file.
    pub features_incompatible: U64,
    /// Bytes of a logical block.
    pub block_size: U32,
    /// Number of zones.
    pub zones: U32,
    /// The size of a zone, in blocks.
    pub zone_blocks: U32,
    /// The size of the last zone, in blocks; at most `zone_blocks`.
    pub last_zone_blocks: U32,
    /// How many zones may be open.
    pub max_open: U32,
    /// How many zones may be active.
    pub max_active: U32,
    /// [`FLAG_PREALLOCATED`].
    pub flags: U32,
    /// The oldest release that reads this version.
    pub reader: Reader,
    /// The capacity of a zone, in blocks; 0 if it is the whole zone. With [`FEATURE_CAPACITY`] only.
    pub zone_capacity: U32,
    /// The offset of the end copy; 0 if there is none. With [`FEATURE_END_COPY`] only.
    pub end_copy: U64,
    /// Zero.
    pub reserved: [u8; 16],
}

const _: () = assert!(size_of::<FileHeader>() == 128);

/// The stored state of one zone.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// CRC-32C of the slot with this field zero.
    pub checksum: U32,
    /// The zone.
    pub zone: U32,
    /// The number of this state of the zone; the slot with the larger number is the newer one.
    pub generation: U64,
    /// The write pointer, in blocks.
    pub pointer: U32,
    /// The low bits of the volume's id, so that slots of another volume are recognised.
    pub volume: U32,
    /// 0 empty, 1 active, 2 full, 3 read-only, 4 offline.
    pub state: u8,
    /// 1 if the host has no blocks for the zone, as far as is known; otherwise 0.
    pub given_back: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<Slot>() == 32);

/// The layout of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    /// The size of a zone in blocks; at least the capacity `geometry.zone_blocks`.
    pub(crate) zone_size: Blocks,
    pub(crate) last_zone_blocks: Blocks,
    pub(crate) preallocated: bool,
    /// Whether this is a member of a set.
    pub(crate) is_member: bool,
    /// The offset of the end copy, if there is one; it is behind the last zone.
    pub(crate) end_copy: Option<u64>,
}

/// The offset of the end copy on a device of `device_bytes` bytes, if there is space for it before the end.
///
/// It depends only on the length of the device, so that the copy can be found when nothing else is known about the
/// volume.
pub(crate) fn end_copy_place(device_bytes: u64) -> Option<u64> {
    (device_bytes / END_COPY_UNIT).checked_sub(END_COPY_UNITS).map(|units| units * END_COPY_UNIT)
}

/// The length of the shortest device on which the end copy is behind the zones.
pub(crate) fn bytes_with_end_copy(zones_end: u64) -> u64 {
    zones_end.next_multiple_of(END_COPY_UNIT) + END_COPY_UNITS * END_COPY_UNIT
}

/// The offset of the first zone of a volume of this shape.
pub(crate) fn zones_offset(block_size: u32, zones: u32) -> u64 {
    let page = page_bytes(block_size);
    let headers = (2 * HEADER_BYTES).next_multiple_of(page) as u64;
    headers + 2 * (zones as usize * SLOT_BYTES).next_multiple_of(page) as u64
}

fn page_bytes(block_size: u32) -> usize {
    (block_size as usize).max(4096)
}

impl Layout {
    /// The unit of writes to the region before the zones.
    pub(crate) fn page_bytes(&self) -> usize {
        page_bytes(self.geometry.block_size)
    }

    /// Bytes of one table of slots.
    pub(crate) fn table_bytes(&self) -> usize {
        (self.geometry.zones as usize * SLOT_BYTES).next_multiple_of(self.page_bytes())
    }

    /// The offset of the first or the second table of slots.
    pub(crate) fn table_offset(&self, table: usize) -> u64 {
        let headers = (2 * HEADER_BYTES).next_multiple_of(self.page_bytes());
        (headers + table * self.table_bytes()) as u64
    }

    /// Bytes of a device that contains the whole volume with its end copy.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.end_copy.map_or_else(|| self.file_bytes(), |place| place + END_COPY_UNITS * END_COPY_UNIT)
    }

    /// The offset of a block.
    pub(crate) fn offset(&self, zone: ZoneId, block: Blocks) -> u64 {
        let blocks = u64::from(zone.0) * u64::from(self.zone_size) + u64::from(block);
        zones_offset(self.geometry.block_size, self.geometry.zones)
            + blocks * u64::from(self.geometry.block_size)
    }

    /// The capacity of a zone.
    pub(crate) fn capacity(&self, zone: ZoneId) -> Blocks {
        if zone.0 + 1 == self.geometry.zones {
            self.last_zone_blocks.min(self.geometry.zone_blocks)
        } else {
            self.geometry.zone_blocks
        }
    }

    fn features_incompatible(&self) -> u64 {
        let capacity = if self.has_short_zones() { FEATURE_CAPACITY } else { 0 };
        capacity | if self.is_member { FEATURE_MEMBER } else { 0 }
    }

    fn has_short_zones(&self) -> bool {
        self.geometry.zone_blocks < self.zone_size
    }

    /// The capacity of a zone in bytes.
    pub(crate) fn zone_bytes(&self, zone: ZoneId) -> u64 {
        u64::from(self.capacity(zone)) * u64::from(self.geometry.block_size)
    }

    /// The smallest size of the file in bytes: the end of the last zone.
    pub(crate) fn file_bytes(&self) -> u64 {
        let last = ZoneId(self.geometry.zones - 1);
        self.offset(last, self.last_zone_blocks)
    }

    /// Blocks of the smallest zone: 64 blocks, or 256 KiB if that is more.
    pub(crate) fn zone_blocks_min(block_size: u32) -> Blocks {
        ((256 << 10) / block_size).max(64)
    }

    /// The largest append of the file device in blocks: 1 MiB, or the whole zone if that is smaller.
    pub(crate) fn max_append(block_size: u32, zone_blocks: Blocks) -> Blocks {
        ((1 << 20) / block_size).min(zone_blocks)
    }
}

/// One copy of the header.
pub(crate) fn encode_header(fs_id: FsId, layout: &Layout) -> Vec<u8> {
    let geometry = &layout.geometry;
    let header = FileHeader {
        magic: FILE_MAGIC,
        checksum: U32::ZERO,
        version: U32::new(FILE_VERSION),
        fs_id: fs_id.0,
        features_compatible: U64::new(if layout.end_copy.is_some() { FEATURE_END_COPY } else { 0 }),
        features_read_only: U64::ZERO,
        features_incompatible: U64::new(layout.features_incompatible()),
        block_size: U32::new(geometry.block_size),
        zones: U32::new(geometry.zones),
        zone_blocks: U32::new(layout.zone_size),
        last_zone_blocks: U32::new(layout.last_zone_blocks),
        max_open: U32::new(geometry.max_open),
        max_active: U32::new(geometry.max_active),
        flags: U32::new(if layout.preallocated { FLAG_PREALLOCATED } else { 0 }),
        reader: READER,
        zone_capacity: U32::new(if layout.has_short_zones() { geometry.zone_blocks } else { 0 }),
        end_copy: U64::new(layout.end_copy.unwrap_or(0)),
        reserved: [0; 16],
    };
    let mut copy = vec![0; HEADER_BYTES];
    put_header(&mut copy, &header);
    copy
}

/// The same header with another place of the end copy. Fields that a later release may have added stay.
pub(crate) fn with_end_copy(copy: &[u8], place: u64) -> Vec<u8> {
    let (mut header, _) = FileHeader::read_from_prefix(copy).expect("it was decoded");
    header.features_compatible |= U64::new(FEATURE_END_COPY);
    header.end_copy = U64::new(place);
    let mut copy = copy.to_vec();
    put_header(&mut copy, &header);
    copy
}

fn put_header(copy: &mut [u8], header: &FileHeader) {
    copy[..size_of::<FileHeader>()].copy_from_slice(header.as_bytes());
    copy[8..12].fill(0);
    let sum = checksum(&[copy]);
    copy[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// Why the start of a file is not a usable header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    Foreign,
    Damaged,
    Newer { version: u32, features: u64, reader: Reader },
}

/// Decodes one copy of the header from arbitrary bytes. The last value is true if this release may write the volume.
pub(crate) fn decode_header(copy: &[u8]) -> Result<(FsId, Layout, bool), NoHeader> {
    if !copy.starts_with(&FILE_MAGIC) {
        return Err(NoHeader::Foreign);
    }
    let (header, _) = FileHeader::read_from_prefix(copy).map_err(|_| NoHeader::Damaged)?;
    if copy.len() < HEADER_BYTES
        || checksum(&[&copy[..8], &[0; 4], &copy[12..HEADER_BYTES]]) != header.checksum.get()
    {
        return Err(NoHeader::Damaged);
    }
    let (version, features) = (header.version.get(), header.features_incompatible.get());
    if version != FILE_VERSION || features & !(FEATURE_CAPACITY | FEATURE_MEMBER) != 0 {
        return Err(NoHeader::Newer { version, features, reader: header.reader });
    }
    let layout = layout_of(&header).ok_or(NoHeader::Damaged)?;
    Ok((FsId(header.fs_id), layout, header.features_read_only.get() == 0))
}

/// The layout with these numbers, if it is possible.
fn layout_of(header: &FileHeader) -> Option<Layout> {
    let (block_size, zones) = (header.block_size.get(), header.zones.get());
    let (zone_size, last_zone_blocks) = (header.zone_blocks.get(), header.last_zone_blocks.get());
    let (max_open, max_active) = (header.max_open.get(), header.max_active.get());
    let zone_blocks = match header.features_incompatible.get() & FEATURE_CAPACITY {
        0 => zone_size,
        _ => header.zone_capacity.get(),
    };
    let smallest = Layout::zone_blocks_min(block_size.max(512));
    let possible = block_size.is_power_of_two()
        && (512..=65536).contains(&block_size)
        && (1..=Address::ZONES_MAX).contains(&zones)
        && (smallest..=Address::BLOCKS_MAX).contains(&zone_size)
        && (1..=zone_size).contains(&last_zone_blocks)
        && (smallest..=zone_size).contains(&zone_blocks)
        && (OPEN_ZONES_MIN..=max_active).contains(&max_open)
        && u64::from(zones) * u64::from(zone_size) <= FILE_BYTES_MAX / u64::from(block_size);
    let max_append = Layout::max_append(block_size.max(512), zone_blocks);
    let (conventional, seek_bytes) = (0, Geometry::SEEK_BYTES);
    let geometry = Geometry {
        block_size,
        zones,
        zone_blocks,
        max_open,
        max_active,
        max_append,
        conventional,
        seek_bytes,
    };
    let preallocated = header.flags.get() & FLAG_PREALLOCATED != 0;
    let has_end_copy = header.features_compatible.get() & FEATURE_END_COPY != 0;
    let end_copy = has_end_copy.then_some(header.end_copy.get());
    let is_member = header.features_incompatible.get() & FEATURE_MEMBER != 0;
    let layout = Layout { geometry, zone_size, last_zone_blocks, preallocated, is_member, end_copy };
    let layout = possible.then_some(layout)?;
    let is_behind = |&place: &u64| {
        place.is_multiple_of(END_COPY_UNIT) && (layout.file_bytes()..=FILE_BYTES_MAX).contains(&place)
    };
    (end_copy.is_none() || end_copy.as_ref().is_some_and(is_behind)).then_some(layout)
}

fn state_number(state: ZoneState) -> u8 {
    match state {
        ZoneState::Empty => 0,
        ZoneState::Open | ZoneState::Closed => 1,
        ZoneState::Full => 2,
        ZoneState::ReadOnly => 3,
        ZoneState::Offline => 4,
    }
}

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) generation: u64,
    pub(crate) info: ZoneInfo,
    /// Whether the host has no blocks for the zone; only for an empty zone.
    pub(crate) is_discarded: bool,
}

/// The slot that records this state. It does not distinguish open from closed zones.
pub(crate) fn encode_slot(fs_id: FsId, zone: ZoneId, recorded: &Recorded) -> [u8; SLOT_BYTES] {
    let Recorded { generation, info, is_discarded } = recorded;
    let mut slot = Slot {
        checksum: U32::ZERO,
        zone: U32::new(zone.0),
        generation: U64::new(*generation),
        pointer: U32::new(info.pointer),
        volume: U32::new(volume_bits(fs_id)),
        state: state_number(info.state),
        given_back: u8::from(*is_discarded && info.state == ZoneState::Empty),
        reserved: [0; 6],
    };
    slot.checksum = U32::new(checksum(&[slot.as_bytes()]));
    zerocopy::transmute!(slot)
}

/// Decodes a slot of this zone; `None` if it is damaged.
pub(crate) fn decode_slot(fs_id: FsId, zone: ZoneId, bytes: &[u8], capacity: Blocks) -> Option<Recorded> {
    let (slot, _) = Slot::read_from_prefix(bytes).ok()?;
    let sum = checksum(&[&[0; 4], &slot.as_bytes()[4..]]);
    let pointer = slot.pointer.get();
    let state = match slot.state {
        0 => ZoneState::Empty,
        1 => ZoneState::Closed,
        2 => ZoneState::Full,
        3 => ZoneState::ReadOnly,
        4 => ZoneState::Offline,
        _ => return None,
    };
    let valid = sum == slot.checksum.get()
        && slot.zone.get() == zone.0
        && slot.volume.get() == volume_bits(fs_id)
        && pointer <= capacity
        && (state != ZoneState::Empty || pointer == 0)
        && (state != ZoneState::Closed || (1..capacity).contains(&pointer));
    let is_discarded = state == ZoneState::Empty && slot.given_back == 1;
    let (generation, info) = (slot.generation.get(), ZoneInfo { state, capacity, pointer });
    valid.then_some(Recorded { generation, info, is_discarded })
}

fn volume_bits(fs_id: FsId) -> u32 {
    checksum(&[&fs_id.0])
}
