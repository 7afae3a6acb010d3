//! Zoned devices and the right to write to them.
//!
//! A zone is a run of blocks that is written sequentially and reset as a whole. [`Device`] is the only trait through
//! which the layers above use a medium. [`mod@file`] keeps zones in a plain file, [`zoned`] uses the zones of a
//! device that has them, and [`medium`] finds out which of the two a path needs. [`machine`] has the states of zones,
//! for devices that keep them in software. A [`Lease`] is the right to write to one open zone. There are never more
//! leases than zones that the device can have open. Devices for tests are in the crate `emulated`. The view of a
//! device whose zone size is no power of two is in the crate `po2`.
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
mod medium_kind;
pub mod pages;
pub mod set;
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
