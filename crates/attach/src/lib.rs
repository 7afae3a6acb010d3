//! Calls from one process to another through shared memory.
//!
//! The *owner* listens at a Unix socket. It gives each *client* memory that both map, with a fixed number of *slots*. A
//! client puts a call into a slot: a message, and data. A thread of the owner answers in the same slot. This crate
//! transports bytes and knows nothing of their meaning.
//!
//! ```text
//! memory    | words | message | data | message | data | ...      words: the state and the lengths of each slot
//!             page    slot 0           slot 1
//! ```
//!
//! # Waiting
//! Each side spins for some microseconds, and then waits at the socket pair of the slot. The other side sends a byte
//! only to a side that has announced in the words of the slot that it waits. The end of a process closes its sockets
//! and so ends all waits. A process that was forked without `exec` can keep them open, so the process itself is watched
//! too (pidfd).
//!
//! # Trust
//! A client may write anything into the memory at any time. So the owner
//! * seals the memory against cutting, because access behind the end is a signal (`SIGBUS`),
//! * reads each length once, checks it, and copies messages and data out before it looks at them,
//! * never makes a reference to the memory except to atomic words,
//! * sends to a client without waiting, and waits only at ends of sockets that no client has. A client could drain an
//!   eventfd, change its flags, or move the waiting threads of a futex.
//!
//! A client trusts its owner, but checks lengths as well.
#![deny(unsafe_code)]

mod client;
#[allow(unsafe_code, reason = "another process writes this memory")]
mod memory;
mod owner;
mod socket;
mod spin;
#[cfg(test)]
mod tests;

pub use client::{Client, Refused};
pub use memory::{DATA_MAX, MESSAGE_MAX, SLOTS};
pub use owner::{Exchange, Owner};
pub use socket::{Listener, Peer};

/// The other side has ended, or this side has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process has disconnected")]
pub struct Disconnected;
