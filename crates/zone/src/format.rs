//! The bytes of block 0 of every zone.
//!
//! The append of the header has completed before anything else is appended to its zone.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Blocks, Life, ZoneId};

/// The identity of a volume (a random UUID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsId(pub [u8; 16]);

impl std::fmt::Display for FsId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The use of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Unused, or its contents are not needed.
    #[default]
    Free = 0,
    /// Journal and checkpoints.
    Log = 1,
    /// Nodes and chunks of the metadata store.
    Metadata = 2,
    /// User writes.
    Data = 3,
    /// Data moved by garbage collection.
    Gc = 4,
}

impl Role {
    /// The role with this stored number.
    pub fn from_number(number: u8) -> Option<Role> {
        [Role::Free, Role::Log, Role::Metadata, Role::Data, Role::Gc]
            .into_iter()
            .find(|role| *role as u8 == number)
    }

    /// Whether the zone contains user data.
    pub fn holds_data(self) -> bool {
        matches!(self, Role::Data | Role::Gc)
    }
}

/// The magic number at the start of every zone.
pub const ZONE_MAGIC: [u8; 8] = *b"POLDERZ1";

/// The format that this code writes.
pub const FORMAT_VERSION: u32 = 1;

/// Incompatible feature: files may have preallocated space (unwritten extents, space beyond the end, the store's
/// counter of such blocks), and a collapse or insert of a range may be in progress.
pub const FEATURE_KEPT_SPACE: u64 = 1;

/// Incompatible feature: the MAT has two addresses for each node, and a leaf may be stored as a base page and delta
/// records. A volume is created with this feature or never has it. It is recorded in checkpoints only.
pub const FEATURE_DELTAS: u64 = 2;

/// Incompatible feature: files may have extents that refer to blocks of shared objects, and data in objects whose
/// number is not that of the inode.
pub const FEATURE_REFERENCES: u64 = 4;

/// Incompatible feature: nodes of the table whose space is reserved in advance are marked, and checkpoints contain
/// their number. A volume is created with this feature or never has it. It is recorded in checkpoints only.
pub const FEATURE_PREPAID: u64 = 8;

/// Incompatible feature: records of the journal may contain the change of a value instead of the value.
pub const FEATURE_PATCHES: u64 = 16;

/// The incompatible features that this code knows.
pub const FEATURES: u64 =
    FEATURE_KEPT_SPACE | FEATURE_DELTAS | FEATURE_REFERENCES | FEATURE_PREPAID | FEATURE_PATCHES;

/// The features that every volume has. A volume that was created without them gets them with the first checkpoint of
/// this release, before anything needs them.
pub const FEATURES_DEFAULT: u64 = FEATURE_KEPT_SPACE | FEATURE_REFERENCES | FEATURE_PATCHES;

/// The oldest release that reads [`FORMAT_VERSION`].
pub const READER: Reader = Reader::new("0.1.0");

/// The oldest release that can read this format, as text with zeros after it.
///
/// It is at the same place of every header in every version of the format, so that a release that is too old can say
/// which one is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reader(pub [u8; 16]);

impl Reader {
    /// The release with this name of at most 16 characters.
    pub const fn new(release: &str) -> Reader {
        let mut text = [0; 16];
        let (bytes, mut index) = (release.as_bytes(), 0);
        while index < bytes.len() {
            text[index] = bytes[index];
            index += 1;
        }
        Reader(text)
    }
}

impl std::fmt::Display for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        match std::str::from_utf8(text) {
            Ok(release) if !release.is_empty() && release.bytes().all(|byte| byte.is_ascii_graphic()) => {
                write!(f, "Polder {release} or later")
            }
            _ => f.write_str("a later release of Polder"),
        }
    }
}

/// The stored header: 128 bytes, then zeros to the end of the block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ZoneHeader {
    /// [`ZONE_MAGIC`].
    pub magic: [u8; 8],
    /// CRC-32C of the whole block with this field zero.
    pub checksum: U32,
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// The volume.
    pub fs_id: [u8; 16],
    /// The number of this zone in its volume.
    pub zone: U32,
    /// The zone's life.
    pub life: U32,
    /// A [`Role`].
    pub role: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// Features that may be ignored by a release that does not know them.
    pub features_compatible: U64,
    /// Features that must be known to write the volume.
    pub features_read_only: U64,
    /// Features that must be known to read the volume.
    pub features_incompatible: U64,
    /// Bytes of a logical block.
    pub block_size: U32,
    /// Zones of the volume.
    pub zones: U32,
    /// The oldest release that reads this version.
    pub reader: Reader,
    /// The capacity of this zone. This field and the next three are zero if an earlier release wrote the header.
    pub capacity: U32,
    /// The largest capacity of any zone of the volume.
    pub zone_blocks: U32,
    /// How many zones may be open.
    pub max_open: U32,
    /// How many zones may be active.
    pub max_active: U32,
    /// Zero.
    pub unused: [u8; 16],
}

const _: () = assert!(size_of::<ZoneHeader>() == 128);

/// The identity in a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneIdentity {
    /// The volume.
    pub fs_id: FsId,
    /// The zone.
    pub zone: ZoneId,
    /// Its life.
    pub life: Life,
    /// Its role.
    pub role: Role,
}

/// The header block of a zone of the largest capacity.
pub fn encode_header(identity: &ZoneIdentity, geometry: &crate::Geometry) -> Vec<u8> {
    encode_header_of(identity, geometry, geometry.zone_blocks)
}

/// The header block of a zone of this capacity.
pub fn encode_header_of(identity: &ZoneIdentity, geometry: &crate::Geometry, capacity: Blocks) -> Vec<u8> {
    let mut block = vec![0; geometry.block_size as usize];
    let header = ZoneHeader {
        magic: ZONE_MAGIC,
        checksum: U32::ZERO,
        version: U32::new(FORMAT_VERSION),
        fs_id: identity.fs_id.0,
        zone: U32::new(identity.zone.0),
        life: U32::new(identity.life.0),
        role: identity.role as u8,
        reserved: [0; 7],
        features_compatible: U64::ZERO,
        features_read_only: U64::ZERO,
        features_incompatible: U64::new(FEATURES_DEFAULT),
        block_size: U32::new(geometry.block_size),
        zones: U32::new(geometry.zones),
        reader: READER,
        capacity: U32::new(capacity),
        zone_blocks: U32::new(geometry.zone_blocks),
        max_open: U32::new(geometry.max_open),
        max_active: U32::new(geometry.max_active),
        unused: [0; 16],
    };
    block[..size_of::<ZoneHeader>()].copy_from_slice(header.as_bytes());
    let checksum = checksum(&[&block]);
    block[8..12].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// CRC-32C (Castagnoli) over all parts in order: the only checksum of the disk format.
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// Why the first block of a zone is not a valid zone header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not written by Polder.
    #[error("not a zone of Polder (no magic number)")]
    Foreign,
    /// The checksum does not match.
    #[error("the zone's header is damaged (checksum)")]
    Damaged,
    /// Written by a later release, or with a feature that this one does not know.
    #[error(
        "format version {version}, features {features:#x}: needs {reader}; this is Polder {}",
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The version found.
        version: u32,
        /// The incompatible features found.
        features: u64,
        /// The release that reads it.
        reader: Reader,
    },
}

/// Refuses versions and features that this release does not know.
pub fn check_version(version: u32, features: u64, reader: Reader) -> Result<(), HeaderError> {
    if version == FORMAT_VERSION && features & !FEATURES == 0 {
        return Ok(());
    }
    Err(HeaderError::Newer { version, features, reader })
}

/// Decodes the header of a zone. The bytes may be arbitrary.
pub fn decode_header(block: &[u8]) -> Result<(ZoneIdentity, ZoneHeader), HeaderError> {
    let (header, _) = ZoneHeader::read_from_prefix(block).map_err(|_| HeaderError::Foreign)?;
    if header.magic != ZONE_MAGIC {
        return Err(HeaderError::Foreign);
    }
    if checksum(&[&block[..8], &[0; 4], &block[12..]]) != header.checksum.get() {
        return Err(HeaderError::Damaged);
    }
    check_version(header.version.get(), header.features_incompatible.get(), header.reader)?;
    let role = Role::from_number(header.role).ok_or(HeaderError::Damaged)?;
    let identity = ZoneIdentity {
        fs_id: FsId(header.fs_id),
        zone: ZoneId(header.zone.get()),
        life: Life(header.life.get()),
        role,
    };
    Ok((identity, header))
}
