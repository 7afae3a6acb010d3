//! POSIX semantics: names, inodes, links, permissions, handles, extended attributes.
//!
//! [`Fs`] is a mounted volume, with one method per operation. Each method looks up what it needs,
//! locks the inodes that it changes in the order of their numbers, looks again, builds one
//! transaction and commits it. What is promised of each is in `docs/semantics.md`; how it is
//! stored, in `docs/format.md`.
//!
//! What this crate does not know: FUSE, system calls, where anything lies on the device.
#![forbid(unsafe_code)]

mod access;
mod acl;
mod affected;
mod ahead;
mod attributes;
mod change;
mod check;
mod create;
mod directory;
mod errno;
mod file_io;
pub mod format;
mod handle;
pub mod hostile;
mod inodes;
mod inspect;
mod known;
mod lifetime;
mod locks;
mod names;
mod numbers;
mod orphan;
mod permissions;
mod ranges;
mod rate;
mod remount;
mod remove;
mod rename;
mod repair;
mod runtime;
mod scrub;
mod share;
mod shift;
#[cfg(test)]
mod tests;
mod truncate;
mod types;
mod upkeep;
mod volume;
mod xattr;

pub use affected::Affected;
pub use check::{Checked, CheckedPart, Finding, NameFinding};
pub use extent::{Defragmented, Layout, Lifetime, Outlook};

pub use errno::{FsError, Result};
pub use handle::Handle;
pub use inspect::Readable;
pub use lifetime::LIFETIME_ATTRIBUTE;
pub use locks::{LockMode, LockOwner, LockRange, OnConflict, RECORD_LOCKS_MAX, RecordLock};
pub use repair::Repaired;
pub use runtime::{Lane, Worker};
pub use scrub::{ScrubAt, Scrubbed};
pub use tree::Reserve;
pub use types::{
    Attributes, Caller, Changes, DirEntry, FallocateMode, FormatOptions, InodeNo, Kind, MountOptions,
    OpenFlags, RenameFlags, SetTime, StatFs, VolumeInfo,
};
pub use volume::Fs;
pub use xattr::{ACL_ACCESS, ACL_DEFAULT, ATTRIBUTES_OF_VIEWS, XATTR_VALUE_MAX, is_access_list};

// Threads share both.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Fs>();
    shared::<Handle>();
};

/// The examples of the manual's page on semantics.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/semantics.md")]
struct Semantics;
