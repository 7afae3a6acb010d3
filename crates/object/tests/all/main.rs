//! The device against a store that does everything the contract of [`polder_object::Store`] allows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bucket;
mod crashes;
mod directory;
mod model;
mod owners;
#[cfg(feature = "planted")]
mod planted;
mod server;
mod simulated;
mod usual;
