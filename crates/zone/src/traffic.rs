//! Bytes written to the device, counted by cause: the numerator of write amplification.

use rt::sync::atomic::{AtomicU64, Ordering};

/// Why something is written to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// User writes.
    Data,
    /// The reverse map, which is stored in data zones.
    ReverseMap,
    /// Live data moved by garbage collection.
    Gc,
    /// Journal batches, seals and marks.
    Journal,
    /// Nodes, chunks and checkpoint records.
    Checkpoint,
    /// Nodes moved by garbage collection of metadata zones.
    MetadataGc,
    /// Zone headers.
    Header,
}

impl Cause {
    /// All causes, in the order of display.
    pub const ALL: [Cause; 7] = [
        Cause::Data,
        Cause::ReverseMap,
        Cause::Gc,
        Cause::Journal,
        Cause::Checkpoint,
        Cause::MetadataGc,
        Cause::Header,
    ];

    /// Its name on screens and in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Data => "data",
            Cause::ReverseMap => "reverse_map",
            Cause::Gc => "gc",
            Cause::Journal => "journal",
            Cause::Checkpoint => "checkpoint",
            Cause::MetadataGc => "metadata_gc",
            Cause::Header => "header",
        }
    }
}

/// Counters of one volume since it was opened.
#[derive(Debug, Default)]
pub struct Traffic {
    written: [AtomicU64; Cause::ALL.len()],
}

impl Traffic {
    /// Counts bytes that were written to the device.
    pub fn add(&self, cause: Cause, bytes: usize) {
        self.written[cause as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes written for one cause.
    pub fn bytes_written(&self, cause: Cause) -> u64 {
        self.written[cause as usize].load(Ordering::Relaxed)
    }

    /// Bytes written in all.
    pub fn bytes_written_total(&self) -> u64 {
        Cause::ALL.iter().map(|&cause| self.bytes_written(cause)).sum()
    }
}
