//! The structures and numbers of `linux/ublk_cmd.h` that are used here, in the byte order of the machine.

use rustix::ioctl::opcode;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Commands for devices, sent through `/dev/ublk-control`.
pub(super) mod command {
    use super::{ControlCommand, opcode};

    pub(in crate::ublk) const GET_DEV_INFO: u32 = opcode::read::<ControlCommand>(b'u', 0x02) as u32;
    pub(in crate::ublk) const ADD_DEV: u32 = opcode::read_write::<ControlCommand>(b'u', 0x04) as u32;
    pub(in crate::ublk) const DEL_DEV: u32 = opcode::read_write::<ControlCommand>(b'u', 0x05) as u32;
    pub(in crate::ublk) const START_DEV: u32 = opcode::read_write::<ControlCommand>(b'u', 0x06) as u32;
    pub(in crate::ublk) const STOP_DEV: u32 = opcode::read_write::<ControlCommand>(b'u', 0x07) as u32;
    /// Linux 7.0 and later. Refused while the device is open.
    pub(in crate::ublk) const TRY_STOP_DEV: u32 = opcode::read_write::<ControlCommand>(b'u', 0x17) as u32;
    /// Linux 6.7 and later.
    pub(in crate::ublk) const DEL_DEV_ASYNC: u32 = opcode::read::<ControlCommand>(b'u', 0x14) as u32;
    pub(in crate::ublk) const SET_PARAMS: u32 = opcode::read_write::<ControlCommand>(b'u', 0x08) as u32;
}

/// Commands for requests, sent through `/dev/ublkcN`.
pub(super) mod fetch {
    use super::{RequestCommand, opcode};

    /// The first one for each tag.
    pub(in crate::ublk) const FETCH: u32 = opcode::read_write::<RequestCommand>(b'u', 0x20) as u32;
    /// Answers the last request of the tag and waits for the next.
    pub(in crate::ublk) const COMMIT_AND_FETCH: u32 = opcode::read_write::<RequestCommand>(b'u', 0x21) as u32;
}

/// The operation of a request: the low eight bits of [`Descriptor::operation`].
pub(super) mod operation {
    pub(in crate::ublk) const READ: u32 = 0;
    pub(in crate::ublk) const WRITE: u32 = 1;
    pub(in crate::ublk) const FLUSH: u32 = 2;
    pub(in crate::ublk) const ZONE_OPEN: u32 = 10;
    pub(in crate::ublk) const ZONE_CLOSE: u32 = 11;
    pub(in crate::ublk) const ZONE_FINISH: u32 = 12;
    pub(in crate::ublk) const ZONE_APPEND: u32 = 13;
    pub(in crate::ublk) const ZONE_RESET_ALL: u32 = 14;
    pub(in crate::ublk) const ZONE_RESET: u32 = 15;
    pub(in crate::ublk) const REPORT_ZONES: u32 = 18;
}

/// Commands have the numbers of ioctls.
pub(super) const FLAG_IOCTL_ENCODE: u64 = 1 << 6;
/// The bytes of requests are read from and written to `/dev/ublkcN`.
pub(super) const FLAG_USER_COPY: u64 = 1 << 7;
/// The device has zones.
pub(super) const FLAG_ZONED: u64 = 1 << 8;

/// The device has a cache that can be flushed.
pub(super) const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
/// [`Parameters`] have the properties of every device.
pub(super) const TYPE_BASIC: u32 = 1 << 0;
/// [`Parameters`] have the properties of zones.
pub(super) const TYPE_ZONED: u32 = 1 << 3;

/// A command that is for no queue.
pub(super) const NO_QUEUE: u16 = u16::MAX;
/// A device whose number the kernel chooses.
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// The offset in `/dev/ublkcN` of the bytes of a tag's request, of the first queue.
pub(super) fn position(tag: u16) -> u64 {
    const FIRST: u64 = 0x8000_0000;
    const TAG_SHIFT: u32 = 25;
    FIRST + (u64::from(tag) << TAG_SHIFT)
}

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    /// Bytes at `address`.
    pub(super) length: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_length: u16,
    pub(super) padding: u16,
    pub(super) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) request_bytes_max: u32,
    pub(super) device: u32,
    pub(super) server: i32,
    pub(super) padding_too: u32,
    pub(super) flags: u64,
    /// Kept for the server.
    pub(super) server_flags: u64,
    pub(super) owner: [u32; 2],
    pub(super) reserved: [u64; 2],
}

/// `struct ublk_params` up to its zones, padded to a whole number of 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) length: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) io_best_shift: u8,
    pub(super) io_least_shift: u8,
    /// The largest request in sectors.
    pub(super) sectors_max: u32,
    /// The zone size.
    pub(super) zone_sectors: u32,
    pub(super) sectors: u64,
    pub(super) boundary_mask: u64,
    pub(super) discard: [u8; 20],
    pub(super) numbers: [u8; 16],
    pub(super) open_zones_max: u32,
    pub(super) active_zones_max: u32,
    pub(super) append_sectors_max: u32,
    pub(super) reserved: [u8; 20],
    pub(super) rest: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters { length: size_of::<Parameters>() as u32, ..Parameters::new_zeroed() }
    }
}

/// `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Descriptor {
    /// An operation, and flags from the ninth bit on.
    pub(super) operation: u32,
    /// Sectors; of a report, zones.
    pub(super) count: u32,
    pub(super) sector: u64,
    pub(super) address: u64,
}

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RequestCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    /// Bytes, or an error below 0.
    pub(super) result: i32,
    /// The sector at which an append landed; 0 for other operations.
    pub(super) place: u64,
}

const _: () = assert!(size_of::<ControlCommand>() == 32 && size_of::<DeviceInfo>() == 64);
const _: () = assert!(size_of::<Descriptor>() == 24 && size_of::<RequestCommand>() == 16);
const _: () =
    assert!(size_of::<Parameters>() == 112 && std::mem::offset_of!(Parameters, open_zones_max) == 76);
