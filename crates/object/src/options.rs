//! How a volume is made and opened.

use std::sync::Arc;

use rt::Clock;
use zone::{FsId, Geometry};

use crate::error::ObjectError;
use crate::format::Shape;
use crate::holder::Holder;

/// Whether a volume is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// This process becomes the owner.
    ReadWrite,
    /// Nothing in the store changes. What an owner writes meanwhile is not seen, and what it deletes cannot be read.
    ReadOnly,
}

/// The shape of a new volume.
#[derive(Clone, Debug)]
pub struct VolumeShape {
    /// The volume.
    pub fs_id: FsId,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// The number of zones.
    pub zones: u32,
    /// Bytes of an object of a zone; usually 4 MiB.
    pub part_bytes: Option<u64>,
    /// Zones of a chunk of the table; usually 2^18.
    pub chunk_zones: Option<u32>,
}

impl VolumeShape {
    /// The shape of the device, if it is possible.
    pub fn geometry(&self) -> std::result::Result<Geometry, ObjectError> {
        Ok(self.shape()?.geometry)
    }

    pub(crate) fn shape(&self) -> std::result::Result<Shape, ObjectError> {
        let refuse = |why| Err(ObjectError::Shape(why));
        let block_size = u64::from(self.block_size);
        if !self.block_size.is_power_of_two() || !(512..=65536).contains(&self.block_size) {
            return refuse("the size of a block must be a power of two from 512 bytes to 64 KiB");
        }
        let part_bytes = self.part_bytes.unwrap_or(crate::PART_BYTES).min(self.zone_bytes);
        if part_bytes < block_size
            || !part_bytes.is_multiple_of(block_size)
            || part_bytes > crate::PART_BYTES_MAX
        {
            return refuse("a part must have a whole number of blocks");
        }
        if !self.zone_bytes.is_multiple_of(block_size)
            || self.zone_bytes / block_size >= u64::from(zone::Address::BLOCKS_MAX)
        {
            return refuse("a zone must have a whole number of blocks, and fewer than 2^28");
        }
        if self.zones <= crate::ZONES_ACTIVE || self.zones > zone::Address::ZONES_MAX {
            return refuse("the number of zones must be between 9 and 16,777,215; choose another zone size");
        }
        let geometry = Geometry {
            block_size: self.block_size,
            zones: self.zones,
            zone_blocks: (self.zone_bytes / block_size) as u32,
            max_open: crate::ZONES_ACTIVE,
            max_active: crate::ZONES_ACTIVE,
            max_append: (part_bytes.min(u64::from(crate::SEEK_BYTES)) / block_size).max(1) as u32,
            conventional: 0,
            seek_bytes: crate::SEEK_BYTES,
        };
        Ok(Shape {
            fs_id: self.fs_id,
            geometry,
            part_blocks: (part_bytes / block_size) as u32,
            chunk_zones: self.chunk_zones.unwrap_or(crate::CHUNK_ZONES).max(1),
        })
    }
}

/// When the device does what costs requests, memory or space. The usual values are right except for tests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many parts may be in the process of being created.
    pub parts_in_flight: usize,
    /// The number of bundles from one table bundle to the next …
    pub table_bundles: u64,
    /// … unless they have this number of bytes.
    pub table_bytes: u64,
    /// If tails consist of more pieces than this, some are written again as a whole.
    pub tail_pieces: usize,
    /// A chunk of the table is written again if this number of its zones has changed.
    pub chunk_changes: usize,
    /// Objects that are not needed any more are deleted after this time.
    pub grace_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            parts_in_flight: 4,
            table_bundles: 16,
            table_bytes: 64 << 20,
            tail_pieces: 32,
            chunk_changes: 4096,
            grace_ns: 60_000_000_000,
        }
    }
}

/// How a volume is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// For reading or for writing.
    pub mode: Mode,
    /// Whether the ownership of another process that may be alive is ended.
    pub takes_over: bool,
    /// This process.
    pub holder: Holder,
    /// The time, for the deletion of objects.
    pub clock: Arc<dyn Clock>,
    /// When the device does what costs requests, memory or space.
    pub limits: Limits,
}
