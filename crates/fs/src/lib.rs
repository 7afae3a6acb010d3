//! POSIX semantics: names, inodes, links, permissions, handles, extended attributes.
//!
//! [`Fs`] is a mounted volume with one method for each operation. Each method looks up the inodes that it needs,
//! locks the inodes that it changes in the order of their numbers, checks again, builds one transaction and commits
//! it. The promises of each operation are in `docs/semantics.md`, and the disk format is in `docs/format.md`.
//!
//! This crate does not know FUSE, system calls, or the places of data on the device.
#![forbid(unsafe_code)]

mod acl;
mod affected_files;
mod attributes;
mod change;
mod check;
mod collapse_insert;
mod create;
mod delay_queue;
mod delayed_files;
mod delayed_writes;
mod directory;
mod early_append;
mod errno;
mod file_io;
pub mod format;
mod handle;
pub mod hostile;
mod inodes;
mod inspect;
mod lifetime;
mod locks;
mod maintenance;
#[cfg(doctest)]
mod manual;
mod names;
mod numbers;
mod orphan;
mod permissions;
mod ranges;
mod reflink;
mod remount;
mod remove;
mod rename;
mod repair;
mod runtime;
mod scrub;
#[cfg(test)]
mod tests;
mod truncate;
mod types;
mod unlinked;
mod volume;
mod write_rate;
mod xattr;

pub use acl::{ACL_ACCESS, ACL_DEFAULT};
pub use affected_files::AffectedFile;
pub use check::{Checked, CheckedPart, Finding, NameFinding};
pub use extent::{Defragmented, Layout, Lifetime, Outlook};

pub use errno::{FsError, Result};
pub use handle::Handle;
pub use inspect::Readable;
pub use lifetime::LIFETIME_ATTRIBUTE;
pub use locks::{LockMode, LockOwner, LockRange, OnConflict, RECORD_LOCKS_MAX, RecordLock};
pub use repair::Repaired;
pub use runtime::{BackgroundTask, Worker};
pub use scrub::{DamagedCopies, DamagedCopy, ScrubAt, Scrubbed};
pub use tree::Reserve;
pub use types::{
    Attributes, Caller, Changes, DirEntry, FallocateMode, FormatOptions, InodeNo, Kind, MountOptions,
    OpenFlags, RenameFlags, SetTime, StatFs, VolumeInfo,
};
pub use volume::Fs;
pub use xattr::{ATTRIBUTES_OF_VIEWS, XATTR_VALUE_MAX, is_access_list};
