//! Polder: a file system in a file or on a zoned device, for programs that do not want to mount one.
//!
//! A *volume* is a complete POSIX file system: directories, hard and symbolic links, permissions, extended attributes,
//! sparse files. It lies in one ordinary file, on a disk, or on a device that can only be appended to (ZNS, SMR). It
//! survives crashes at any moment, verifies a checksum of everything that it reads, and collects its garbage itself. A
//! program opens it, uses it with any number of threads, and closes it:
//!
//! ```
//! # let place = tempfile::tempdir().unwrap();
//! # let path = place.path().join("data.polder");
//! use polder::Volume;
//!
//! // A new volume of 1 GiB in a sparse file. Later: `Volume::open(path)`.
//! let volume = Volume::create(&path).size(1 << 30).open()?;
//!
//! // Whole files by their paths, as with `std::fs`.
//! volume.create_dir_all("/log/2026")?;
//! volume.write("/log/2026/today", b"hello")?;
//! assert_eq!(volume.read("/log/2026/today")?, b"hello");
//!
//! // Open files. What was written is durable when `sync_data` returns.
//! let file = volume.options().read(true).write(true).create(true).open("/table")?;
//! let offset = file.append(b"a block of a table")?;
//! file.sync_data()?;
//! let mut word = [0; 5];
//! file.read_exact_at(&mut word, offset + 2)?;
//! assert_eq!(&word, b"block");
//!
//! for entry in volume.read_dir("/log")? {
//!     println!("{}", entry?.path().display());
//! }
//!
//! // Everything is durable, and the next open has nothing to recover.
//! volume.close()?;
//! # Ok::<(), polder::Error>(())
//! ```
//!
//! # Where to find what
//!
//! | task | item |
//! |---|---|
//! | make or open a volume | [`Volume::create`], [`Volume::open`], [`VolumeOptions`] |
//! | a volume on several devices | [`Volume::create_set`], [`VolumeOptions::degraded`] |
//! | whole files | [`Volume::read`], [`Volume::write`], [`Volume::copy`] |
//! | names and directories | [`Volume::rename`], [`Volume::read_dir`], [`Volume::remove_dir_all`] and others |
//! | open files | [`Volume::options`], [`File`] with [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`] |
//! | attributes | [`Volume::metadata`], [`Volume::set_xattr`] and others |
//! | durability | [`File::sync_data`], [`Volume::sync`], [`Volume::close`] |
//! | space and counters | [`Volume::statvfs`], [`Volume::stats`] |
//! | act for another user | [`Caller`], [`Volume::as_caller`] |
//! | show the files to other programs | [`Volume::mount`] |
//! | share the volume with other processes | [`Volume::open`] in each of them |
//!
//! # What closing and dropping do
//!
//! [`Volume::close`] makes everything durable, closes the volume, and reports errors. Dropping the last reference to a
//! volume (all clones, open files and directory iterators) does the same, but can only log errors. A process that is
//! killed loses what was not durable, and nothing else: the next open recovers the volume.
//!
//! # Threads
//!
//! All types can be sent to and shared by threads. Operations block until they are done. Nothing needs an async
//! runtime: call the operations from its threads for blocking work.
//!
//! # One process owns a volume
//!
//! The first process that opens a volume for writing owns it. [`Volume::open`] in another process of the same user
//! *attaches* to the owner: it has the same interface, and the owner performs its operations ([`Volume::is_attached`]).
//! The two exchange calls and data through shared memory. An attached process differs in this:
//!
//! * When the owner closes the volume or ends, every operation fails with [`Error::Disconnected`]. Open the volume
//!   again: the process then owns it or attaches to the new owner.
//! * [`Volume::close`], and dropping the last reference, make everything durable and close the files of this process
//!   alone. A process that is killed loses its open files and locks, and nothing that it has changed.
//! * Reads and writes of more than 16 MiB are several operations, and [`File::append`] refuses more
//!   ([`TooLarge`](FsError::TooLarge)).
//! * It has at most 16,384 files open, and a volume has at most 32 attached processes. It cannot mount the volume.
//!
//! Locks hold between all these processes. [`VolumeOptions::share`] and [`VolumeOptions::attach`] turn this off.
//!
//! A volume that is mounted by `polder mount` is not shared, because the kernel keeps data and sizes of such a mount.
//! Opening it fails with [`Error::NotShared`]. `polder mount --shared` mounts it so that programs can attach.
//!
//! Do not use a volume in a child that was forked without `exec`: its threads do not exist there.
//!
//! # Errors
//!
//! Every operation returns [`Error`]. It has the [`io::ErrorKind`](std::io::ErrorKind) and the error number that POSIX
//! says, and `?` converts it to [`std::io::Error`]. No operation of this crate panics because of the contents of a
//! volume or of a device that fails. An assertion that fails is a bug of Polder; please report it.
#![forbid(unsafe_code)]

mod access;
mod attached;
mod call;
mod caller;
pub mod device;
mod directory;
mod error;
mod file;
mod local;
#[cfg(doctest)]
mod manual;
mod metadata;
mod mount;
mod open;
mod owned;
pub mod runtime;
mod shared;
pub mod sharing;
pub mod stats;
mod volume;
pub mod walk;

pub use caller::Caller;
pub use directory::{DirEntry, ReadDir};
pub use error::{Error, Result};
pub use file::{File, ReadRequest};
pub use metadata::{Metadata, Times};
pub use mount::Mount;
pub use open::OpenOptions;
pub use stats::Stats;
pub use volume::{CreateOptions, Volume, VolumeOptions};

#[doc(inline)]
pub use fs::{
    FallocateMode, FsError, Kind as FileType, Lifetime, LockMode, LockRange, RenameFlags, StatFs, VolumeInfo,
};
#[doc(no_inline)]
pub use zone::file::FileError;
#[doc(inline)]
pub use zone::medium::PlannedLayout as Layout;
