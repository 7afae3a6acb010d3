//! The operations of the library as values. The owner of a volume performs them, for itself and for attached clients.

use std::path::Path;

use fs::{
    Attributes, Changes, DirEntry, FallocateMode, InodeNo, Lifetime, LockMode, LockRange, OpenFlags,
    RenameFlags, StatFs, VolumeInfo,
};

use crate::error::{Error, Result};
use crate::stats::Stats;

/// An operation on the volume, or on a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    Sync,
    Space,
    Info,
    Stats,
    IsReadOnly,
    Metadata {
        path: &'a Path,
        follow: bool,
    },
    /// Of an entry that was listed.
    InodeMetadata {
        inode: InodeNo,
    },
    Change {
        path: &'a Path,
        follow: bool,
        changes: Changes,
    },
    GetXattr {
        path: &'a Path,
        name: &'a [u8],
    },
    SetXattr {
        path: &'a Path,
        name: &'a [u8],
        value: &'a [u8],
    },
    ListXattrs {
        path: &'a Path,
    },
    RemoveXattr {
        path: &'a Path,
        name: &'a [u8],
    },
    Lifetime {
        path: &'a Path,
    },
    SetLifetime {
        path: &'a Path,
        lifetime: Lifetime,
    },
    Rename {
        from: &'a Path,
        to: &'a Path,
        flags: RenameFlags,
    },
    RemoveFile {
        path: &'a Path,
    },
    HardLink {
        original: &'a Path,
        link: &'a Path,
    },
    Symlink {
        target: &'a [u8],
        link: &'a Path,
    },
    ReadLink {
        path: &'a Path,
    },
    CreateDir {
        path: &'a Path,
        permissions: u16,
    },
    RemoveDir {
        path: &'a Path,
    },
    RemoveDirAll {
        path: &'a Path,
    },
}

/// Opening a file, or a directory for reading its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open<'a> {
    File { path: &'a Path, how: OpenHow },
    Directory { path: &'a Path },
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenHow {
    pub(crate) flags: OpenFlags,
    pub(crate) creation: Creation,
    pub(crate) no_follow: bool,
    pub(crate) permissions: u16,
}

/// Whether a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    Never,
    IfMissing,
    /// It must not exist before.
    Always,
}

/// An operation on an open file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileCall {
    /// Into the buffer of the caller.
    Read {
        offset: u64,
    },
    /// The data of the caller.
    Write {
        offset: u64,
    },
    /// The data of the caller.
    Append,
    Change {
        changes: Changes,
    },
    Allocate {
        mode: FallocateMode,
        offset: u64,
        length: u64,
    },
    SeekData {
        offset: u64,
    },
    SeekHole {
        offset: u64,
    },
    Sync {
        data_only: bool,
    },
    Metadata,
    SetLifetime {
        lifetime: Option<Lifetime>,
    },
    /// `waits`: the caller will wait for a release if there is a conflict.
    Lock {
        mode: LockMode,
        waits: bool,
    },
    Unlock,
    LockRange {
        range: LockRange,
        mode: LockMode,
        waits: bool,
    },
    UnlockRange {
        range: LockRange,
    },
    /// Of a directory, behind this position.
    Entries {
        cookie: u64,
    },
}

/// An operation on two open files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PairCall {
    Copy { offset: u64, to_offset: u64, length: u64 },
    Clone { offset: u64, to_offset: u64, length: u64 },
}

/// The result of an operation.
pub(crate) enum Reply {
    Done,
    Attributes {
        attributes: Attributes,
    },
    Bytes {
        bytes: Vec<u8>,
    },
    Names {
        names: Vec<Vec<u8>>,
    },
    Lifetime {
        lifetime: Lifetime,
    },
    Space {
        space: StatFs,
    },
    Info {
        info: VolumeInfo,
    },
    Stats {
        stats: Box<Stats>,
    },
    Flag {
        flag: bool,
    },
    /// Of bytes, an offset, or the number by which the owner knows an open file.
    Number {
        number: u64,
    },
    Appended {
        offset: u64,
        length: u64,
    },
    Entries {
        entries: Vec<DirEntry>,
    },
}

/// Entries of a directory that are read at a time.
pub(crate) const ENTRIES_MAX: usize = 128;

macro_rules! content {
    ($method:ident, $variant:ident { $field:ident } -> $type:ty) => {
        #[inline(always)]
        pub(crate) fn $method(self) -> Result<$type> {
            match self {
                Reply::$variant { $field } => Ok($field),
                _ => Err(Error::Disconnected),
            }
        }
    };
}

/// A reply of another kind can only come from a broken owner.
impl Reply {
    content!(attributes, Attributes { attributes } -> Attributes);
    content!(bytes, Bytes { bytes } -> Vec<u8>);
    content!(names, Names { names } -> Vec<Vec<u8>>);
    content!(lifetime, Lifetime { lifetime } -> Lifetime);
    content!(space, Space { space } -> StatFs);
    content!(info, Info { info } -> VolumeInfo);
    content!(stats, Stats { stats } -> Box<Stats>);
    content!(flag, Flag { flag } -> bool);
    content!(number, Number { number } -> u64);
    content!(entries, Entries { entries } -> Vec<DirEntry>);

    #[inline(always)]
    pub(crate) fn appended(self) -> Result<(u64, usize)> {
        match self {
            Reply::Appended { offset, length } => Ok((offset, length as usize)),
            _ => Err(Error::Disconnected),
        }
    }
}

impl Call<'_> {
    /// The path of a change, which a volume that is open for reading refuses.
    pub(crate) fn changes(&self) -> Option<&Path> {
        match self {
            Call::Sync
            | Call::Space
            | Call::Info
            | Call::Stats
            | Call::IsReadOnly
            | Call::Metadata { .. }
            | Call::InodeMetadata { .. }
            | Call::GetXattr { .. }
            | Call::ListXattrs { .. }
            | Call::Lifetime { .. }
            | Call::ReadLink { .. } => None,
            Call::Change { path, .. }
            | Call::SetXattr { path, .. }
            | Call::RemoveXattr { path, .. }
            | Call::SetLifetime { path, .. }
            | Call::Rename { from: path, .. }
            | Call::RemoveFile { path }
            | Call::HardLink { original: path, .. }
            | Call::Symlink { link: path, .. }
            | Call::CreateDir { path, .. }
            | Call::RemoveDir { path }
            | Call::RemoveDirAll { path } => Some(path),
        }
    }
}

impl Open<'_> {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Open::File { path, .. } | Open::Directory { path } => path,
        }
    }

    /// Whether a volume that is open for reading refuses it. Also what opens files that can be written.
    pub(crate) fn is_change(&self) -> bool {
        match self {
            Open::File { how, .. } => {
                how.flags.write || how.flags.truncate || how.creation != Creation::Never
            }
            Open::Directory { .. } => false,
        }
    }

    /// Whether every write to the file goes to its end.
    pub(crate) fn appends(&self) -> bool {
        matches!(self, Open::File { how, .. } if how.flags.append)
    }
}

impl FileCall {
    /// Whether a volume that is open for reading refuses it. A file that is open for reading refuses writes anyway.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, FileCall::Change { .. })
    }

    pub(crate) fn is_about_locks(&self) -> bool {
        matches!(
            self,
            FileCall::Lock { .. }
                | FileCall::Unlock
                | FileCall::LockRange { .. }
                | FileCall::UnlockRange { .. }
        )
    }
}
