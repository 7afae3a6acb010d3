//! The metadata store alone, against one ordered map.
//!
//! Scenarios are random steps of a [`Profile`]: transactions of puts and deletes, data blocks to which transactions
//! refer (a tiny stand-in for `extent`, so that zones fill, die and are reset), syncs, checkpoints and background
//! steps. Every transaction is one state, so the recovered state must be a prefix of the transactions (I-TREE-1). In
//! some scenarios several clients work at once (`crew`).

mod crew;
mod data;
mod entries;
mod scenarios;
mod session;

pub use entries::Entries;
pub use scenarios::{Profile, ZoneFailure, all};
pub use session::StoreSubject;

#[cfg(test)]
mod tests;
