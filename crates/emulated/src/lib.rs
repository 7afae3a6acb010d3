//! Devices for tests, the simulator and measurements, and a server for one. None of them is in a release of Polder.
//!
//! | device | purpose |
//! |---|---|
//! | [`bucket::Server`] | a server with a bucket of objects, for devices in object stores |
//! | [`Emulated`] | follows the strictest reading of the contract of [`zone::Device`], loses power at any command and injects faults |
//! | [`metadata_only::MetadataOnly`] | stores metadata only, so that a volume of very many zones fits on the test machine |
//! | [`timed::Timed`] | adds a model of device time to another device |
//!
//! Tests of every crate from `zone` on may use this crate. Code that ships may not.
#![forbid(unsafe_code)]

pub mod bucket;
mod emulated;
pub mod metadata_only;
pub mod timed;

pub use emulated::{
    CommandKind, Counters, CrashPlan, Effect, Emulated, Fault, InvalidCrashPlan, Spec, Supply,
};
