//! The device against a store that does everything the contract of [`polder_object::Store`] allows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "client")]
mod bucket;
mod crashes;
#[cfg(feature = "client")]
mod directory;
mod model;
mod owners;
#[cfg(feature = "planted")]
mod planted;
mod simulated;
mod usual;
