//! Crash states by the hundred thousand: every workload of one or two operations, every device command of it, and
//! every state in which the device may then be found.
//!
//! [`space`] numbers the workloads, [`search`] runs them and recovers the images that a loss of power leaves. The
//! time of day stands still, ids and secrets are fixed, and the written bytes follow only from the operation and its
//! place. So two images are equal if names, bytes and places are: they are compared by
//! [`emulated::Emulated::digest_ignoring_noise`]. An image that was recovered before is not recovered again, but its state is
//! checked against the history of the current workload. The seed only determines the order of workloads, and the
//! choice of states where there are too many.

pub mod search;
pub mod space;

pub use search::{Failure, Found, Limits, Search};
pub use space::{Space, Workload};
