//! What `xtask` and the system tests share: command lines, the checkout, and what a machine must have.
//!
//! `xtask` must build fast in a fresh clone, and the system tests must be able to run without it. So neither uses the
//! other as a library, and the code that both need is here. This crate knows nothing of the product's crates: it starts
//! their programs.
#![forbid(unsafe_code)]

pub mod busybox;
mod kebab;
mod machine;
pub mod markdown;
pub mod mounts;
pub mod needs;
pub mod packages;
pub mod shell;
pub mod stage;
pub mod workspace;

pub use kebab::kebab;
