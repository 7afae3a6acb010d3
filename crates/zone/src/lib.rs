//! Zoned devices and the right to write to them.
//!
//! A zone is a run of blocks that is written from its beginning to its end and then reset as a
//! whole. [`Device`] is the one narrow trait through which everything above reaches a medium;
//! [`mod@file`] keeps zones in a plain file, [`zoned`] uses those of a device that has them, [`medium`] finds out which it
//! is. [`machine`] has the states of zones, for devices that keep them themselves. [`Lease`] is the right to write to one
//! open zone; there are never more of them than the device has open zones. Devices that are only for tests are in the
//! crate `emulated`, the view of a device with zones of a power of two is in the crate `po2`.
//!
//! Nothing above this crate does device I/O or knows where on its device a zone lies (I-ZONE-1).

pub mod address;
pub mod device;
pub mod device_metadata;
mod engine;
pub mod error;
pub mod file;
pub mod format;
pub mod hostile;
pub mod lease;
pub mod machine;
pub mod medium;
pub mod pages;
pub mod traffic;
pub mod zoned;

pub use address::{Address, Blocks, Life, ZoneId};
pub use device::{Command, Device, Geometry, HostSpace, Output, ZoneInfo, ZoneState};
pub use device_metadata::{CopyState, MetadataCopy, MetadataPart};
pub use error::{DeviceError, Result};
pub use format::{FsId, Role};
pub use lease::{Lease, Leases};
pub use medium::Medium;
pub use pages::{NoMemory, PageBuffer, PageReservation, Pages};
pub use traffic::{Cause, Traffic};
