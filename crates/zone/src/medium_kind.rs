//! The kinds of media.

/// The kind of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// A file with zones in software.
    File,
    /// A block device without zones, with zones in software.
    Disk {
        /// Whether reset zones are discarded.
        discards: bool,
        /// The number of write streams (placement handles).
        streams: u8,
    },
    /// A block device that has zones.
    ZonedDisk,
    /// A zoned namespace of NVMe, by its generic device.
    Namespace {
        /// The largest append whose place the device chooses.
        append_bytes: usize,
    },
    /// Several devices.
    Sets,
    /// Objects of an object store.
    Objects {
        /// The bytes of an object of a zone.
        part_bytes: u64,
    },
}
