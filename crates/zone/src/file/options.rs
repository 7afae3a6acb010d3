//! The options of a new volume in a file, and the layout that follows from them.

use super::FileError;
use super::format::{
    END_COPY_UNIT, FILE_BYTES_MAX, Layout, OPEN_ZONES_MIN, SLOT_BYTES, bytes_with_end_copy, end_copy_place,
};
use crate::{Address, Blocks, FsId, Geometry};

/// The largest block size.
pub(super) const BLOCK_BYTES_MAX: u32 = 65536;
/// The smallest number of zones of a volume.
pub const ZONES_MIN: u32 = 16;
/// The default zone size is in this range, if at least [`ZONES_MIN`] such zones fit.
const ZONE_BYTES_DEFAULT: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;

/// The options of [`super::FileDevice::create`].
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Bytes of the whole file; the present size of an existing file or block device if `None`.
    pub size: Option<u64>,
    /// Bytes of a logical block: a power of two from 512 to 65536.
    pub block_size: u32,
    /// Bytes of a zone, any multiple of the block size; derived from the size if `None`.
    pub zone_bytes: Option<u64>,
    /// The capacity of a zone in bytes, if it is less than its size.
    pub zone_capacity: Option<u64>,
    /// How many zones may be open at once; at least 6.
    pub max_open: u32,
    /// How many zones may be active at once; at least `max_open`.
    pub max_active: u32,
    /// Whether all of the host's blocks are allocated at once and never freed.
    pub preallocate: bool,
    /// Whether it is a member of a set.
    pub is_member: bool,
    /// The volume.
    pub fs_id: FsId,
    /// Whether the contents of the file may be overwritten.
    pub force: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            size: None,
            block_size: 4096,
            zone_bytes: None,
            zone_capacity: None,
            max_open: 14,
            max_active: 14,
            preallocate: false,
            is_member: false,
            fs_id: FsId::default(),
            force: false,
        }
    }
}

impl FileOptions {
    /// The layout of a file of `size` bytes.
    pub(super) fn layout(&self, size: u64) -> Result<Layout, FileError> {
        let end_copy = end_copy_place(size);
        let layout = self.layout_up_to(end_copy.unwrap_or(0), size)?;
        Ok(Layout { end_copy, ..layout })
    }

    /// The layout in earlier releases, in which zones end where the file does.
    pub(super) fn layout_without_end_copy(&self, size: u64) -> Result<Layout, FileError> {
        self.layout_up_to(size, size)
    }

    /// The layout with zones that end before `limit`.
    fn layout_up_to(&self, limit: u64, size: u64) -> Result<Layout, FileError> {
        self.check_limits()?;
        if size > FILE_BYTES_MAX {
            let why = "it is larger than any file; choose a smaller size";
            return Err(FileError::Option { option: "size", value: size, why });
        }
        let block = u64::from(self.block_size);
        let smallest = u64::from(Layout::zone_blocks_min(self.block_size)) * block;
        let zone_bytes = match self.zone_bytes {
            Some(bytes) => self.check_zone_bytes(bytes, smallest)?,
            None => self.default_zone_bytes(size, smallest),
        };
        self.check_capacity(zone_bytes, smallest)?;
        let blocks = |bytes: u64| (bytes / block) as Blocks;
        let fitting = self.with_zones(limit / zone_bytes, blocks(zone_bytes), blocks(zone_bytes));
        let mut zones = u64::from(fitting.geometry.zones);
        let end = |zones| self.with_zones(zones, blocks(zone_bytes), blocks(zone_bytes)).file_bytes();
        while zones > 0 && end(zones) > limit {
            zones -= 1;
        }
        if zones < u64::from(ZONES_MIN) {
            let needed = self.zone_bytes.unwrap_or(smallest);
            let least = self.with_zones(ZONES_MIN.into(), blocks(needed), blocks(needed));
            let smallest = bytes_with_end_copy(least.file_bytes());
            return Err(FileError::TooSmall { size, zones: ZONES_MIN, smallest });
        }
        Ok(self.with_short_last_zone(limit, zones, blocks(zone_bytes), blocks(smallest)))
    }

    /// Adds the rest after the whole zones as a shorter last zone, if it is at least half a zone.
    fn with_short_last_zone(&self, limit: u64, zones: u64, zone_size: Blocks, smallest: Blocks) -> Layout {
        let whole = self.with_zones(zones, zone_size, zone_size);
        let start = self.with_zones(zones + 1, zone_size, zone_size).file_bytes()
            - u64::from(zone_size) * u64::from(self.block_size);
        let left = (limit.saturating_sub(start) / u64::from(self.block_size)) as Blocks;
        if left < smallest.max(zone_size / 2) || zones >= u64::from(Address::ZONES_MAX) {
            return whole;
        }
        self.with_zones(zones + 1, zone_size, left)
    }

    fn with_zones(&self, zones: u64, zone_size: Blocks, last_zone_blocks: Blocks) -> Layout {
        let zone_blocks = self.capacity_of(zone_size);
        let geometry = Geometry {
            block_size: self.block_size,
            zones: zones.clamp(1, Address::ZONES_MAX.into()) as u32,
            zone_blocks,
            max_open: self.max_open,
            max_active: self.max_active,
            max_append: Layout::max_append(self.block_size, zone_blocks),
            conventional: 0,
            seek_bytes: Geometry::SEEK_BYTES,
        };
        let (preallocated, is_member) = (self.preallocate, self.is_member);
        Layout { geometry, zone_size, last_zone_blocks, preallocated, is_member, end_copy: None }
    }

    /// The capacity of a zone of this size.
    fn capacity_of(&self, zone_size: Blocks) -> Blocks {
        let wanted = self.zone_capacity.map(|bytes| bytes / u64::from(self.block_size));
        wanted.map_or(zone_size, |blocks| blocks.min(zone_size.into()) as Blocks)
    }

    /// The default zone size: the largest power of two up to 1/128 of the size, between 4 and 256 MiB; smaller if too
    /// few zones fit.
    fn default_zone_bytes(&self, size: u64, smallest: u64) -> u64 {
        let (low, high) = (*ZONE_BYTES_DEFAULT.start(), *ZONE_BYTES_DEFAULT.end());
        let mut bytes = (1 << (size / 128).max(1).ilog2()).clamp(low, high).max(smallest);
        let zones = u64::from(ZONES_MIN);
        let region = 4 * 65536 + 2 * zones * SLOT_BYTES as u64 + 3 * END_COPY_UNIT;
        while bytes > smallest && zones * bytes + region > size {
            bytes /= 2;
        }
        bytes
    }

    fn check_limits(&self) -> Result<(), FileError> {
        let wrong = |option, value: u32, why| Err(FileError::Option { option, value: value.into(), why });
        if !self.block_size.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&self.block_size) {
            return wrong("block size", self.block_size, "it must be a power of two from 512 to 65536");
        }
        if self.max_open < OPEN_ZONES_MIN {
            return wrong("open zones", self.max_open, "it must be at least 6");
        }
        if self.max_active < self.max_open {
            return wrong("active zones", self.max_active, "it must be at least the number of open zones");
        }
        Ok(())
    }

    fn check_capacity(&self, zone_bytes: u64, smallest: u64) -> Result<(), FileError> {
        let Some(capacity) = self.zone_capacity else { return Ok(()) };
        let wrong = |why| Err(FileError::Option { option: "zone capacity", value: capacity, why });
        if !capacity.is_multiple_of(self.block_size.into()) {
            return wrong("it must be a multiple of the block size");
        }
        if !(smallest..=zone_bytes).contains(&capacity) {
            return wrong("it must be at least 256 KiB and 64 blocks, and at most the zone size");
        }
        Ok(())
    }

    fn check_zone_bytes(&self, bytes: u64, smallest: u64) -> Result<u64, FileError> {
        let wrong = |why| Err(FileError::Option { option: "zone size", value: bytes, why });
        if !bytes.is_multiple_of(self.block_size.into()) {
            return wrong("it must be a multiple of the block size");
        }
        if bytes < smallest {
            return wrong("it must be at least 256 KiB and 64 blocks");
        }
        if bytes / u64::from(self.block_size) > u64::from(Address::BLOCKS_MAX) {
            return wrong("it must be at most 2^28 blocks");
        }
        Ok(bytes)
    }
}
