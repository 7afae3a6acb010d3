//! How much a volume writes for what its users write, how long they wait, and how that compares with an
//! ideal cleaner.
//!
//! A [`trace`] is what programs do to files, from a seed. [`volume`] does it to a whole file system in
//! memory, on a device whose commands take time on a clock of their own; [`ideal`] does the same to zones
//! and blocks and nothing else. [`cell`] runs both and makes a row of figures, none of which depends on
//! the machine.
//!
//! [`many`] asks what a great many zones cost: of the figures there, memory and processor time are the machine's.
//!
//! [`pieces`] asks what collecting garbage does for files that lie in pieces, [`usable`] how much of a device they
//! can have.
//!
//! [`beside`] asks how long others wait who read and sync files of their own while somebody writes.
//!
//! It does not look for errors: that is the simulator's work. It does read back what it wrote, so that
//! what it measures is a file system.
#![forbid(unsafe_code)]

pub mod beside;
pub mod cell;
pub mod ideal;
pub mod latency;
pub mod many;
pub mod pieces;
pub mod trace;
pub mod usable;
pub mod volume;
