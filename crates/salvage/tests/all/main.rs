//! Volumes without their log, undamaged otherwise or not, and what is saved of them.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

// The name by which the rest of the workspace knows the crate.
extern crate polder_salvage as salvage;

mod names;
mod objects;
#[allow(dead_code, reason = "the tests of fs use more of it")]
#[path = "../../../fs/tests/all/support.rs"]
mod support;
mod tables;
