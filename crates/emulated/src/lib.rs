//! Devices for tests, the simulator and measurements. None of them is in a release of Polder.
//!
//! | device | purpose |
//! |---|---|
//! | [`Emulated`] | follows the strictest reading of the contract of [`zone::Device`], loses power at any command and injects faults |
//! | [`metadata_only::MetadataOnly`] | stores metadata only, so that a volume of very many zones fits on the test machine |
//! | [`timed::Timed`] | adds a model of device time to another device |
//!
//! Tests of every crate from `zone` on may use this crate. Code that ships may not.
#![forbid(unsafe_code)]

mod emulated;
pub mod metadata_only;
pub mod timed;

pub use emulated::{
    CommandKind, Counters, CrashPlan, Effect, Emulated, Fault, InvalidCrashPlan, Spec, Supply,
};
