//! Write amplification and latency of a volume, compared with an ideal garbage collector.
//!
//! A [`trace`] is a sequence of file operations, from a seed. [`volume`] performs it on a whole file system in
//! memory, on a device whose commands take time on a clock of their own. [`ideal`] performs it on a model of only
//! zones and blocks. [`cell`] runs both and makes a row of figures. None of them depends on the machine.
//!
//! [`many`] measures the costs of a great number of zones. There memory and processor time depend on the machine.
//!
//! [`pieces`] measures the effect of GC on fragmented files, and [`usable`] the share of a device that files can use.
//!
//! [`beside`] measures the latency of clients that read and sync files of their own while another client writes.
//!
//! This crate does not look for errors; that is the simulator's task. It reads back and compares what it wrote, so
//! that the figures are those of a working file system.
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
