//! The errors of devices.

use crate::{Blocks, ZoneId};

/// The result of a device command.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Why a device command failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// The write is larger than the rest of the zone's capacity.
    #[error("zone {} has no space for {blocks} more blocks", zone.0)]
    ZoneFull {
        /// The zone.
        zone: ZoneId,
        /// The length of the write.
        blocks: Blocks,
    },
    /// A write at a block that is not the zone's write pointer.
    #[error("zone {} is written at block {pointer}, not at {block}", zone.0)]
    NotAtPointer {
        /// The zone.
        zone: ZoneId,
        /// The block of the write.
        block: Blocks,
        /// The zone's write pointer.
        pointer: Blocks,
    },
    /// A read of blocks that were not written in this life of the zone.
    #[error("zone {} is not written at block {block}", zone.0)]
    Unwritten {
        /// The zone.
        zone: ZoneId,
        /// The first block that is not written.
        block: Blocks,
    },
    /// The zone can only be read.
    #[error("zone {} has become read-only", .0.0)]
    ReadOnly(ZoneId),
    /// The zone can be neither read nor written.
    #[error("zone {} is offline", .0.0)]
    Offline(ZoneId),
    /// No further zone can be opened until one is full, finished, closed or reset.
    #[error("zone {} cannot be opened: the device's limit of {limit} open or active zones is reached", zone.0)]
    TooManyOpen {
        /// The zone that was to be opened.
        zone: ZoneId,
        /// The limit.
        limit: u32,
    },
    /// No such zone, a length that is no multiple of the block size, or one that is too large.
    #[error("zone {}: {why}", zone.0)]
    Invalid {
        /// The zone.
        zone: ZoneId,
        /// The reason.
        why: &'static str,
    },
    /// The medium or the operating system failed.
    #[error("zone {}: {operation} failed: {reason}", zone.0)]
    Io {
        /// The zone.
        zone: ZoneId,
        /// The operation.
        operation: &'static str,
        /// The error message of the system.
        reason: String,
    },
    /// The file system that contains the volume's file has no space left.
    #[error("the file system that contains the volume is full (zone {})", zone.0)]
    HostFull {
        /// The zone that was being written.
        zone: ZoneId,
    },
    /// The emulated device lost its power; every later command fails.
    #[error("the device has lost its power")]
    PowerLost,
    /// The device cannot be used in its present state.
    #[error("{0}")]
    Unusable(String),
}

impl DeviceError {
    /// Whether the zone takes no more writes in this life, so that the data must be written elsewhere.
    pub fn ends_zone(&self) -> bool {
        matches!(
            self,
            DeviceError::ZoneFull { .. }
                | DeviceError::NotAtPointer { .. }
                | DeviceError::ReadOnly(_)
                | DeviceError::Offline(_)
                | DeviceError::Io { .. }
        )
    }

    /// Whether the device as a whole has failed, so that no other zone can be read or written either.
    pub fn is_of_whole_device(&self) -> bool {
        matches!(self, DeviceError::PowerLost | DeviceError::Unusable(_) | DeviceError::HostFull { .. })
    }
}
