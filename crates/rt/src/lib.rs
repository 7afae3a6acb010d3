//! The seams between Polder and the machine: locks, clock, randomness, threads.
//!
//! Everything above takes these from here, and `clippy.toml` forbids the originals, so that a
//! simulator can put its own in their place: logic never asks what time it is or who runs it. What
//! several threads do to each other repeats from a seed under [`schedule`].
#![forbid(unsafe_code)]

pub mod clock;
mod planted;
pub mod random;
pub mod schedule;
pub mod sync;
pub mod thread;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use planted::is_planted;
#[cfg(feature = "planted")]
pub use planted::plant;
