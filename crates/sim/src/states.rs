//! Crash states by the hundred thousand: every workload of one or two operations, every device command of it,
//! every state that the medium may then be found in.
//!
//! [`space`] numbers the workloads, [`search`] runs them and recovers what a loss of power leaves. The time of
//! day stands still, ids and secrets are fixed, and what is written follows from the operation and its place
//! alone, so that two images are equal when nothing but names, bytes and places is: they are compared by
//! [`emulated::Emulated::digest_ignoring_noise`]. An image that was recovered before is not recovered again, but what
//! was found then is judged by the history of the workload that it comes from now. The seed decides only in
//! which order workloads are taken and which states are drawn where there are too many.

pub mod search;
pub mod space;

pub use search::{Failure, Found, Limits, Search};
pub use space::{Space, Workload};
