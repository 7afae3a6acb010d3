//! A zoned device whose zones are no power of two, for programs that need zones of a power of two.
//!
//! [`Po2View`] presents the zones of the device at multiples of the next power of two. [`ublk`] makes a block device
//! of Linux from the view. Polder's volumes need neither: the command `polder po2` is the only user.
//!
//! `unsafe` and io_uring are in two files only: `ublk/control.rs` and `ublk/queue.rs`.
#![deny(unsafe_code)]

pub mod ublk;
mod view;

pub use view::{Po2Error, Po2Shape, Po2View, Po2Zone, ZoneChange};
