//! What a device can refuse, and what can break.

use crate::{Blocks, ZoneId};

/// The result of a device command.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Why a device command did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// The write does not fit in what is left of the zone's capacity.
    #[error("zone {} has no room for {blocks} more blocks", zone.0)]
    ZoneFull {
        /// The zone.
        zone: ZoneId,
        /// What was to be written.
        blocks: Blocks,
    },
    /// A write at a place that is not the zone's write pointer.
    #[error("zone {} is written at block {pointer}, not at {block}", zone.0)]
    NotAtPointer {
        /// The zone.
        zone: ZoneId,
        /// Where the write was to go.
        block: Blocks,
        /// Where the device would have taken it.
        pointer: Blocks,
    },
    /// A read of blocks that were never written in this life of the zone.
    #[error("zone {} is not written at block {block}", zone.0)]
    Unwritten {
        /// The zone.
        zone: ZoneId,
        /// The first block that is not there.
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
        /// What is wrong with the command.
        why: &'static str,
    },
    /// The medium or the system below failed.
    #[error("zone {}: {operation} failed: {reason}", zone.0)]
    Io {
        /// The zone.
        zone: ZoneId,
        /// What was being done.
        operation: &'static str,
        /// The system's words.
        reason: String,
    },
    /// The file system that holds the volume's file has no room left.
    #[error("the file system that holds the volume is full (zone {})", zone.0)]
    HostFull {
        /// The zone that was being written.
        zone: ZoneId,
    },
    /// The emulated device lost its power; every command fails from then on.
    #[error("the device has lost its power")]
    PowerLost,
    /// The device, or what stands in its place, cannot be used as it is.
    #[error("{0}")]
    Unusable(String),
}

impl DeviceError {
    /// Whether the zone will take no more writes in this life, so that the write belongs elsewhere.
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
