//! Other processes that use a volume through the process that owns it.
//!
//! The owner has a [`Server`], which performs operations for clients, and each client has an [`Attached`]. The crate
//! `attach` transports their messages, and `wire` defines the bytes.

mod client;
mod name;
mod server;
mod session;
mod wire;

pub(crate) use client::{Attached, Attempt, attach};
pub(crate) use name::SocketName;
pub(crate) use server::Server;

/// Open files of a client.
const FILES_MAX: usize = 16_384;
/// Clients of an owner.
const CLIENTS_MAX: usize = 32;
