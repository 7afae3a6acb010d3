//! The seams between Polder and the machine: locks, clock, randomness, threads, memory for caches.
//!
//! All crates above take these from here, and `clippy.toml` forbids the originals. So a simulator can replace them:
//! logic does not ask for the time or the present thread. Under [`schedule`], the interleaving of threads repeats
//! from a seed. With the feature `shuttle`, the locks are those of another scheduler (`shuttled.rs`).
#![forbid(unsafe_code)]

pub mod clock;
pub mod memory;
pub mod order;
mod planted;
pub mod random;
#[cfg_attr(
    feature = "shuttle",
    allow(dead_code, reason = "the locks of such a build know another scheduler")
)]
pub mod schedule;
#[cfg(feature = "shuttle")]
pub mod shuttled;
#[cfg(not(feature = "shuttle"))]
pub mod sync;
pub mod thread;
pub mod waits;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use planted::is_planted;
#[cfg(feature = "planted")]
pub use planted::{plant, trial};
#[cfg(feature = "shuttle")]
pub use shuttled::sync;
