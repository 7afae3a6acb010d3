//! The device trait and its contract.
//!
//! Each method states what a medium may do, and the crate `emulated` does all of it:
//!
//! * One logical block is atomic; nothing larger is.
//! * After a power loss, each append since the last [`Device::flush`] may be present, lost, or torn at a block
//!   boundary, independently of the others, with the write pointer beyond it.
//! * A reset is durable only after a flush; until then the old contents may come back.
//! * In a `Full` or `ReadOnly` zone the write pointer has no meaning.
//! * After a power loss an active zone may come back `Full`.
//! * The capacity of a zone may change when it is reset.
//! * A zone may become `ReadOnly` or `Offline` at any time.
//! * After a process was killed, the data that the next process reads need not be durable: it must flush first.
//! * Some zones, the last ones, have no persistent pointer ([`Geometry::conventional`]). When the device is opened,
//!   such a zone is `Empty` if block 0 of its last life was lost or erased, and `Full` otherwise.

use crate::{Blocks, MetadataCopy, Result, Role, ZoneId};

/// The shape of a device. Sizes need not be powers of two, and zones may differ (I-ZONE-2): the capacity of each is
/// in its [`ZoneInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block: a power of two from 512 to 65536.
    pub block_size: u32,
    /// Number of zones.
    pub zones: u32,
    /// The largest capacity of any zone, in blocks.
    pub zone_blocks: Blocks,
    /// How many zones may be open (being written) at once; at least 6.
    pub max_open: u32,
    /// How many zones may be active (open or closed, but partly written) at once; at least `max_open`.
    pub max_active: u32,
    /// The largest single append, in blocks.
    pub max_append: Blocks,
    /// The number of zones, the last ones, that have a pointer only while the device is open: the medium can write
    /// them anywhere and stores no pointer for them. Block 0 of such a zone is never a block of zeros.
    pub conventional: u32,
    /// How many bytes the device can read in the time of one seek. If the gap between two reads is shorter, both are
    /// done as one read that includes the gap. This is a property of the device and not of the volume: nothing stored
    /// depends on it.
    pub seek_bytes: u32,
}

impl Geometry {
    /// [`Geometry::seek_bytes`] of a device without moving parts.
    pub const SEEK_BYTES: u32 = 128 << 10;
    /// The same for a disk: a few milliseconds at 250 MB/s.
    pub const SEEK_BYTES_OF_DISK: u32 = 1 << 20;

    /// Whether the zone has a pointer only while the device is open.
    pub fn is_conventional(&self, zone: ZoneId) -> bool {
        zone.0 >= self.sequential()
    }

    /// The number of zones, the first ones, whose pointers the device stores.
    pub fn sequential(&self) -> u32 {
        self.zones - self.conventional
    }
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing written.
    Empty,
    /// Partly written and counted against the open limit.
    Open,
    /// Partly written, counted against the active limit only.
    Closed,
    /// Takes no more writes; the pointer has no meaning.
    Full,
    /// Can be read but never written again; the pointer has no meaning.
    ReadOnly,
    /// Can be neither read nor written.
    Offline,
}

impl ZoneState {
    /// Whether [`ZoneInfo::pointer`] has a meaning.
    pub fn has_pointer(self) -> bool {
        matches!(self, ZoneState::Empty | ZoneState::Open | ZoneState::Closed)
    }

    /// Whether the zone counts against the active limit.
    pub fn is_active(self) -> bool {
        matches!(self, ZoneState::Open | ZoneState::Closed)
    }
}

/// A zone as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Its state.
    pub state: ZoneState,
    /// How many of its blocks can be written, from block 0.
    pub capacity: Blocks,
    /// The next block to be written; has no meaning unless [`ZoneState::has_pointer`].
    pub pointer: Blocks,
}

/// One command of a batch.
#[derive(Debug)]
pub enum Command<'a> {
    /// Reads blocks from `block` on until `into` is full.
    Read {
        /// The zone.
        zone: ZoneId,
        /// The first block.
        block: Blocks,
        /// A whole number of blocks.
        into: &'a mut [u8],
    },
    /// Appends at the pointer that the zone has when the device executes the command.
    Append {
        /// The zone.
        zone: ZoneId,
        /// A whole number of blocks, at most [`Geometry::max_append`].
        from: &'a [u8],
    },
}

/// The result of one command of a batch.
pub type Output = Result<Blocks>;

/// The space of the host file system that contains a device in a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpace {
    /// Free space of the host file system.
    pub available: u64,
    /// The zones for which blocks of the host are allocated.
    pub allocated: u64,
    /// The other zones: the space that the device may still allocate.
    pub unallocated: u64,
    /// The free space that must remain when a data zone is opened.
    pub reserve: u64,
}

impl HostSpace {
    /// An upper bound of the data that fits into all zones with the present space of the host; `u64::MAX` if the host
    /// has space for all of them.
    pub fn capacity(&self) -> u64 {
        match self.available < self.unallocated {
            true => self.allocated + self.available.saturating_sub(self.reserve),
            false => u64::MAX,
        }
    }
}

/// A zoned device that no other program uses. Every method may be called by several threads at the same time.
///
/// Buffers need no alignment: a device that needs aligned buffers copies the others.
pub trait Device: Send + Sync {
    /// The shape; does not change while the device is open.
    fn geometry(&self) -> &Geometry;

    /// The state of every zone, in order.
    fn report(&self) -> Result<Vec<ZoneInfo>>;

    /// The state of one zone.
    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo>;

    /// Reads a whole number of blocks. Blocks beyond the pointer are refused (`Unwritten`), except in zones that have
    /// no pointer, where they read as anything.
    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()>;

    /// Appends a whole number of blocks, at most [`Geometry::max_append`], and returns the block at which they begin.
    /// Opens an empty or closed zone implicitly. If it fails, later appends to this zone that are already in flight
    /// may fail too, and the zone's pointer must be reported again.
    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks>;

    /// Executes several commands at once, in any order, and waits for all of them. Returns one output for each
    /// command, in the order of the batch: 0 for a read, the block where it landed for an append.
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output>;

    /// Makes the zone `Full`.
    fn finish(&self, zone: ZoneId) -> Result<()>;

    /// Makes the zone `Empty`; durable only after [`Device::flush`]. If it fails, the contents may be lost, in whole or in
    /// part: a device of several may have erased some of them. Then the zone may be `ReadOnly`.
    fn reset(&self, zone: ZoneId) -> Result<()>;

    /// Makes all commands durable that completed before this call, on every device below that was written.
    fn flush(&self) -> Result<()>;

    /// Whether commands take so long that it is worth sending them to several devices at the same time. A device in memory
    /// gains nothing, and its commands come in a known order if they are sent one after the other.
    fn takes_time(&self) -> bool {
        true
    }

    /// How many copies of a block the device has, or tries to have.
    fn copies(&self, _zone: ZoneId, _block: Blocks) -> u32 {
        1
    }

    /// Reads one of the copies of these blocks: `copy` is below [`Device::copies`] of the first one. Whatever
    /// [`Device::read`] returned, another copy may be the right one.
    fn read_copy(&self, zone: ZoneId, block: Blocks, _copy: u32, into: &mut [u8]) -> Result<()> {
        self.read(zone, block, into)
    }

    /// The name of the device that has this copy, for messages.
    fn copy_name(&self, _zone: ZoneId, _copy: u32) -> String {
        "the device".to_owned()
    }

    /// Recovery has verified everything that was not known to be durable when the device was opened, and what it
    /// accepted is flushed. Until then, a device with several copies returns no block of which the copies differ.
    fn end_recovery(&self) {}

    /// The volume is closed, and this process does not change the device any more: another one may own it from now on.
    /// Later commands that change something may fail.
    fn release(&self) -> Result<()> {
        Ok(())
    }

    /// Discards the storage behind one zone whose reset is durable: returns it to the host of a file, or discards it
    /// on a disk that supports that. Returns whether there was such a zone. This may take long and is called in the
    /// background: it changes nothing that can be read, and no flush waits for it.
    fn discard_one_zone(&self) -> bool {
        false
    }

    /// Sets the role of the data that is written to the zone from now on, and its lifetime class: 0 if that is
    /// unknown, and larger for longer lifetimes. A device that can separate data by lifetime does so. It changes
    /// nothing that can be read.
    fn set_placement(&self, _zone: ZoneId, _role: Role, _class: u8) {}

    /// The space of the host file system; `None` if there is no host file system or its space is unknown.
    fn host_space(&self) -> Option<HostSpace> {
        None
    }

    /// Whether the host file system has space for `zones` more zones; always true for a device without one. Other
    /// programs may take that space at any time.
    fn has_space_for(&self, _zones: u64) -> bool {
        true
    }

    /// The state of each copy of the device metadata when it was last read; empty if the device has none.
    fn device_metadata_copies(&self) -> Vec<MetadataCopy> {
        Vec::new()
    }

    /// Reads these copies again. Waits for a flush in progress.
    fn verify_device_metadata(&self) -> Vec<MetadataCopy> {
        Vec::new()
    }

    /// Bytes of device metadata that were written, such as the states of the zones of a file.
    fn device_metadata_bytes_written(&self) -> u64 {
        0
    }
}
