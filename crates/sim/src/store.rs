//! The metadata store alone, against one ordered map.
//!
//! Scenarios are random steps of a [`Profile`]: transactions of puts and deletes, data blocks that
//! transactions name (a tiny stand-in for `extent`, which makes zones fill, die and be reset),
//! syncs, checkpoints and background steps. Every transaction is one state, so what is recovered
//! must be a prefix of them (I-TREE-1). In some scenarios several clients are at work at once (`crew`).

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
