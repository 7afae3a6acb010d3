//! A write cache that a cut of the power empties, for `cargo xtask knife`.
//!
//! Only a build with the feature `knife`, which nothing switches on by itself, has one, and only a process that finds
//! the name of a pipe in `POLDER_KNIFE_PIPE`. There what was written since the last sync is in this process's memory
//! and nowhere else: a sync writes it to the file, and `cut SEED` on the pipe ends the process: at once, behind some
//! more writes, or in the midst of the next sync. Before that so much of the cache reaches the file as the seed says:
//! all, nothing, or of each write by itself any part that a disk may keep. What a disk may do to the states of the zones
//! it does to these as well, because they are writes like any other: so pointers come back old, or beyond what is there.
//!
//! With `POLDER_KNIFE_LIES` a sync does nothing and says that all went well, as disks have done: whoever believes
//! that such a cut is survived has not looked.
//!
//! What it does not do: blocks are old or new and never noise, and what is given back to the host is gone at once.

#[cfg(any(test, feature = "knife"))]
mod cache;

#[cfg(any(test, feature = "knife"))]
pub(super) use cache::WriteCache;

#[cfg(not(any(test, feature = "knife")))]
use super::Transfer;

/// There is none in this build.
#[cfg(not(any(test, feature = "knife")))]
pub(super) enum WriteCache {}

#[cfg(not(any(test, feature = "knife")))]
impl WriteCache {
    #[inline(always)]
    #[allow(clippy::unnecessary_wraps, reason = "it is the other build's signature")]
    pub(super) fn from_environment(_file: &std::fs::File, _unit: usize) -> std::io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn carry_out(&self, _transfer: &mut Transfer<'_>) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        match *self {}
    }
}
