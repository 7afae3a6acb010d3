//! A volatile write cache that is lost in a power loss, for `cargo system crash`.
//!
//! It exists only in a build with the feature `knife`, which no other feature enables, and only in a process that
//! finds the name of a pipe in `POLDER_KNIFE_PIPE`. There, data written since the last sync is only in the memory of
//! this process. A sync writes it to the file. The line `cut SEED` on the pipe ends the process: immediately, after
//! some more writes, or during the next sync. Before that, a part of the cache is written to the file, depending on
//! the seed: everything, nothing, or of each write independently any part that a disk may have written. The states of
//! the zones are affected as well, because they are written like other data. So pointers may be outdated, or beyond
//! the data that was written.
//!
//! With `POLDER_KNIFE_LIES` a sync does nothing and reports success, as some disks have done. A test that passes with
//! this setting does not detect lost data.
//!
//! Limits: blocks have old or new contents and never noise, and discards take effect immediately.

#[cfg(any(test, feature = "knife"))]
mod cache;

#[cfg(any(test, feature = "knife"))]
pub(super) use cache::WriteCache;

#[cfg(not(any(test, feature = "knife")))]
use super::Transfer;

/// This build has no write cache.
#[cfg(not(any(test, feature = "knife")))]
pub(super) enum WriteCache {}

#[cfg(not(any(test, feature = "knife")))]
impl WriteCache {
    #[inline(always)]
    #[allow(clippy::unnecessary_wraps, reason = "it is the other build's signature")]
    pub(super) fn from_environment(_file: &std::fs::File, _unit: usize) -> std::io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn execute(&self, _transfer: &mut Transfer<'_>) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        match *self {}
    }
}
