//! The device trait and its contract.
//!
//! Everything that a medium may do to us is written here, by method, and the crate `emulated` does all of it:
//!
//! * One logical block is atomic; nothing larger is.
//! * What was appended since the last [`Device::flush`] may, after a loss of power, be there, be
//!   lost, or be torn at a block boundary, each append by itself, with the write pointer beyond it.
//! * A reset is durable only after a flush; until then the old contents may come back.
//! * In a `Full` or `ReadOnly` zone the write pointer tells nothing.
//! * After a loss of power an active zone may come back `Full`.
//! * The capacity of a zone may change when it is reset.
//! * A zone may become `ReadOnly` or `Offline` at any time.
//! * What a process reads after its predecessor was killed need not be durable: flush first.
//! * Of some zones, the last ones, nobody keeps a pointer ([`Geometry::conventional`]): whenever the device
//!   is opened they are `Empty` where block 0 of their last life was lost or erased, and `Full` otherwise.

use crate::{Blocks, MetadataCopy, Result, Role, ZoneId};

/// The shape of a device. Sizes need not be powers of two and zones need not be alike (I-ZONE-2):
/// the capacity of each is in its [`ZoneInfo`].
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
    /// How many zones, the last ones, have a pointer only while the device is open: the medium could write
    /// them anywhere, and keeps none. What begins such a zone is never a block of zeros.
    pub conventional: u32,
    /// How much could be read in the time that it takes to begin elsewhere: what lies between two pieces is read with
    /// them rather than passed over if it is less. Of the device, not of the volume: nothing stored depends on it.
    pub seek_bytes: u32,
}

impl Geometry {
    /// [`Geometry::seek_bytes`] where nothing has to be moved to get there.
    pub const SEEK_BYTES: u32 = 128 << 10;
    /// The same of a disk: some milliseconds at a quarter of a gigabyte a second.
    pub const SEEK_BYTES_OF_DISK: u32 = 1 << 20;

    /// Whether the zone has a pointer only while the device is open.
    pub fn is_conventional(&self, zone: ZoneId) -> bool {
        zone.0 >= self.sequential()
    }

    /// How many zones, the first ones, keep their pointers by themselves.
    pub fn sequential(&self) -> u32 {
        self.zones - self.conventional
    }
}

/// What a zone can do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing written.
    Empty,
    /// Partly written and counted against the open limit.
    Open,
    /// Partly written, counted against the active limit only.
    Closed,
    /// Takes no more writes; the pointer tells nothing.
    Full,
    /// Will never take a write again, can be read; the pointer tells nothing.
    ReadOnly,
    /// Can be neither read nor written.
    Offline,
}

impl ZoneState {
    /// Whether [`ZoneInfo::pointer`] can be believed.
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
    /// What it can do.
    pub state: ZoneState,
    /// How many blocks it holds, from block 0.
    pub capacity: Blocks,
    /// The next block to be written; meaningless unless [`ZoneState::has_pointer`].
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
    /// Appends at the pointer, wherever that is when the device gets to it.
    Append {
        /// The zone.
        zone: ZoneId,
        /// A whole number of blocks, at most [`Geometry::max_append`].
        from: &'a [u8],
    },
}

/// What became of one command of a batch.
pub type Output = Result<Blocks>;

/// The room of a file system that holds a device in a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpace {
    /// What it has left.
    pub available: u64,
    /// The zones that have blocks of it.
    pub allocated: u64,
    /// The zones that have none yet: what the device may still take.
    pub unallocated: u64,
    /// What it must have left for a zone of data to be opened.
    pub reserve: u64,
}

impl HostSpace {
    /// What all zones can hold, as far as it has room for them: at least what can be written.
    pub fn capacity(&self) -> u64 {
        match self.available < self.unallocated {
            true => self.allocated + self.available.saturating_sub(self.reserve),
            false => u64::MAX,
        }
    }
}

/// A zoned device, exclusively ours. Every method may be called from many threads at once.
///
/// Buffers need no alignment: a device that wants one copies what does not have it.
pub trait Device: Send + Sync {
    /// The shape; does not change while the device is open.
    fn geometry(&self) -> &Geometry;

    /// The state of every zone, in order.
    fn report(&self) -> Result<Vec<ZoneInfo>>;

    /// The state of one zone.
    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo>;

    /// Reads a whole number of blocks. Blocks beyond the pointer are refused (`Unwritten`), except in
    /// zones that have no pointer, where they read as anything.
    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()>;

    /// Appends a whole number of blocks, at most [`Geometry::max_append`], and says at which block
    /// they begin. Opens an empty or closed zone by itself. When it fails, later appends of this zone
    /// that are already under way may fail too, and the zone's pointer has to be reported anew.
    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks>;

    /// Carries out many commands at once, in any order among them, and waits for all. Reads give 0,
    /// appends give the block where they landed. One output for each command, in its place.
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output>;

    /// Makes the zone `Full`.
    fn finish(&self, zone: ZoneId) -> Result<()>;

    /// Makes the zone `Empty`; durable only after [`Device::flush`].
    fn reset(&self, zone: ZoneId) -> Result<()>;

    /// Makes durable all that was completed before this call, on every device below that was written.
    fn flush(&self) -> Result<()>;

    /// Gives what the medium still holds for one zone that was reset back to whoever provides it (the host of a file, a
    /// disk that can discard), where there is such a zone and its reset is durable; whether there was one. It may take
    /// long, and is done aside: nothing that can be read changes, and no flush waits for it.
    fn discard_one_zone(&self) -> bool {
        false
    }

    /// What the zone is leased for from now on, and of what class the lifetimes are of what is written there: 0 where
    /// nothing is known, and the larger the longer. A device that can place what lives apart does so; it changes
    /// nothing that can be read.
    fn set_placement(&self, _zone: ZoneId, _role: Role, _class: u8) {}

    /// What the file system that holds the device has left; nothing where none holds it, or where that is not known.
    fn host_space(&self) -> Option<HostSpace> {
        None
    }

    /// Whether what holds the device has room for so many more zones; a device that is held by nothing has what it has.
    /// Others may take that room in the next moment.
    fn has_space_for(&self, _zones: u64) -> bool {
        true
    }

    /// The copies of what the device keeps beside its zones, as they were found when they were last read; none where
    /// it keeps nothing.
    fn device_metadata_copies(&self) -> Vec<MetadataCopy> {
        Vec::new()
    }

    /// Reads these copies anew. Waits for a flush that is under way.
    fn verify_device_metadata(&self) -> Vec<MetadataCopy> {
        Vec::new()
    }

    /// Bytes that the device itself wrote to keep its zones (the states of a file's zones).
    fn device_metadata_bytes_written(&self) -> u64 {
        0
    }
}
