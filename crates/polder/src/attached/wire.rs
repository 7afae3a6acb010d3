//! The messages between a client and the owner as bytes: little-endian numbers, counted sequences, numbered variants.
//!
//! Decoding accepts any bytes: it returns `None` for what is no message, and allocates no more than the message has.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fs::{
    Attributes, Caller, Changes, DirEntry, FallocateMode, FsError, InodeNo, Kind, Lifetime, LockMode,
    LockRange, OpenFlags, RenameFlags, SetTime, StatFs, VolumeInfo,
};
use rt::Timestamp;
use zone::FsId;

use crate::call::{Call, Creation, FileCall, Open, OpenHow, PairCall, Reply};
use crate::error::Error;
use crate::stats::Stats;

/// The version of these messages. Owner and client must have the same.
pub(super) const VERSION: u32 = 1;

/// What a client sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    Call {
        call: Call<'a>,
    },
    Open {
        open: Open<'a>,
    },
    OnFile {
        file: u64,
        call: FileCall,
    },
    OnPair {
        from: u64,
        to: u64,
        call: PairCall,
    },
    /// Closes a file.
    Release {
        file: u64,
    },
    /// Makes everything durable and closes all files of the client.
    Leave,
}

impl Request<'_> {
    /// Whether it may change the volume.
    pub(super) fn can_change(&self) -> bool {
        match self {
            Request::Call { call } => call.changes().is_some(),
            Request::Open { open } => open.is_change(),
            Request::OnFile { call, .. } => matches!(
                call,
                FileCall::Write { .. }
                    | FileCall::Append
                    | FileCall::Change { .. }
                    | FileCall::Allocate { .. }
            ),
            Request::OnPair { .. } => true,
            Request::Release { .. } | Request::Leave => false,
        }
    }
}

/// A value in a message.
pub(super) trait Wire<'a>: Sized {
    fn put(&self, to: &mut Vec<u8>);
    fn get(from: &mut &'a [u8]) -> Option<Self>;
}

/// The only value in the bytes.
pub(super) fn decode<'a, T: Wire<'a>>(mut bytes: &'a [u8]) -> Option<T> {
    let value = T::get(&mut bytes)?;
    bytes.is_empty().then_some(value)
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(taken)
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl Wire<'_> for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn get(from: &mut &[u8]) -> Option<Self> {
                let bytes = take(from, size_of::<$number>())?;
                Some(<$number>::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    )* };
}

/// Structures of which every field is sent.
macro_rules! records {
    ($($name:ty { $($field:ident),* })*) => { $(
        impl<'a> Wire<'a> for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $( $field.put(to); )*
            }

            fn get(from: &mut &'a [u8]) -> Option<Self> {
                $( let $field = Wire::get(from)?; )*
                Some(Self { $($field),* })
            }
        }
    )* };
}

/// Enumerations: the number of each variant, and its fields with a name for each.
macro_rules! variants {
    ($name:ty, $($number:literal $variant:ident { $($field:tt : $value:ident),* })*) => {
        impl<'a> Wire<'a> for $name {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $( Self::$variant { $($field: $value),* } => {
                        to.push($number);
                        $( $value.put(to); )*
                    } )*
                }
            }

            fn get(from: &mut &'a [u8]) -> Option<Self> {
                match u8::get(from)? {
                    $( $number => {
                        $( let $value = Wire::get(from)?; )*
                        Some(Self::$variant { $($field: $value),* })
                    } )*
                    _ => None,
                }
            }
        }
    };
}

/// Types with a form of their own: how to make it, and how to make the type from it.
macro_rules! converted {
    ($($name:ty as $form:ty: $to:expr, $from:expr;)*) => { $(
        impl<'a> Wire<'a> for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let make: fn(&Self) -> $form = $to;
                make(self).put(to);
            }

            fn get(from: &mut &'a [u8]) -> Option<Self> {
                let make: fn($form) -> Option<Self> = $from;
                make(Wire::get(from)?)
            }
        }
    )* };
}

numbers! { u8 u16 u32 u64 i64 i32 }

converted! {
    bool as u8: |flag| u8::from(*flag), |number| (number <= 1).then_some(number == 1);
    usize as u64: |number| *number as u64, |number| usize::try_from(number).ok();
    InodeNo as u64: |inode| inode.0, |number| Some(InodeNo(number));
    Timestamp as i64: |time| time.0, |number| Some(Timestamp(number));
    Kind as u8: |kind| *kind as u8, Kind::from_number;
    Lifetime as u8: |lifetime| lifetime.number(), Lifetime::from_number;
    LockRange as (u64, u64): |range| (range.start(), range.end()), |(start, end)| LockRange::new(start, end).ok();
    FsId as [u8; 16]: |id| id.0, |id| Some(FsId(id));
    String as Vec<u8>: |text| text.as_bytes().to_vec(), |bytes| String::from_utf8(bytes).ok();
    PathBuf as Vec<u8>: |path| path.as_os_str().as_bytes().to_vec(),
        |bytes| Some(PathBuf::from(OsStr::from_bytes(&bytes)));
    Box<Stats> as Vec<u8>: |stats| serde_json::to_vec(stats).unwrap_or_default(),
        |bytes| serde_json::from_slice(&bytes).ok();
}

impl<'a> Wire<'a> for &'a [u8] {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        to.extend_from_slice(self);
    }

    fn get(from: &mut &'a [u8]) -> Option<Self> {
        let length = u32::get(from)? as usize;
        take(from, length)
    }
}

impl<'a> Wire<'a> for &'a Path {
    fn put(&self, to: &mut Vec<u8>) {
        self.as_os_str().as_bytes().put(to);
    }

    fn get(from: &mut &'a [u8]) -> Option<Self> {
        Some(Path::new(OsStr::from_bytes(Wire::get(from)?)))
    }
}

impl Wire<'_> for [u8; 16] {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        take(from, 16)?.try_into().ok()
    }
}

impl<'a, A: Wire<'a>, B: Wire<'a>> Wire<'a> for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn get(from: &mut &'a [u8]) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn get(from: &mut &'a [u8]) -> Option<Self> {
        match bool::get(from)? {
            true => T::get(from).map(Some),
            false => Some(None),
        }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        self.iter().for_each(|value| value.put(to));
    }

    /// Every value takes at least a byte, so a count that is too large ends with the message.
    fn get(from: &mut &'a [u8]) -> Option<Self> {
        let count = u32::get(from)?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

records! {
    Caller { uid, gid, groups, umask, checked }
    OpenFlags { read, write, append, truncate, sync }
    OpenHow { flags, creation, no_follow, permissions }
    RenameFlags { no_replace, exchange, whiteout }
    Changes { permissions, uid, gid, size, accessed, modified, changed }
    Attributes {
        inode, kind, permissions, links, uid, gid, device, size, blocks, accessed, modified, changed, born, generation
    }
    DirEntry { inode, cookie, kind, name }
    StatFs { block_size, blocks, free, available, files, files_free, name_max }
    VolumeInfo { label, fs_id, created, block_size, page_size, groups, inline_bytes_max, format_version }
}

variants! { Request<'a>,
    0 Call { call: call }
    1 OnFile { file: file, call: call }
    2 OnPair { from: from_file, to: to_file, call: call }
    3 Release { file: file }
    4 Leave {}
    5 Open { open: open }
}

variants! { Open<'a>,
    0 File { path: path, how: how }
    1 Directory { path: path }
}

variants! { Call<'a>,
    0 Sync {}
    1 Space {}
    2 Info {}
    3 Stats {}
    4 IsReadOnly {}
    5 Metadata { path: path, follow: follow }
    6 InodeMetadata { inode: inode }
    7 Change { path: path, follow: follow, changes: changes }
    8 GetXattr { path: path, name: name }
    9 SetXattr { path: path, name: name, value: value }
    10 ListXattrs { path: path }
    11 RemoveXattr { path: path, name: name }
    12 Lifetime { path: path }
    13 SetLifetime { path: path, lifetime: lifetime }
    14 Rename { from: old, to: new, flags: flags }
    15 RemoveFile { path: path }
    16 HardLink { original: original, link: link }
    17 Symlink { target: target, link: link }
    18 ReadLink { path: path }
    19 CreateDir { path: path, permissions: permissions }
    20 RemoveDir { path: path }
    21 RemoveDirAll { path: path }
}

variants! { Creation, 0 Never {} 1 IfMissing {} 2 Always {} }

variants! { FileCall,
    0 Read { offset: offset }
    1 Write { offset: offset }
    2 Append {}
    3 Change { changes: changes }
    4 Allocate { mode: mode, offset: offset, length: length }
    5 SeekData { offset: offset }
    6 SeekHole { offset: offset }
    7 Sync { data_only: data_only }
    8 Metadata {}
    9 SetLifetime { lifetime: lifetime }
    10 Lock { mode: mode, waits: waits }
    11 Unlock {}
    12 LockRange { range: range, mode: mode, waits: waits }
    13 UnlockRange { range: range }
    14 Entries { cookie: cookie }
}

variants! { PairCall,
    0 Copy { offset: offset, to_offset: to_offset, length: length }
    1 Clone { offset: offset, to_offset: to_offset, length: length }
}

variants! { SetTime, 0 Now {} 1 To { 0: time } }

variants! { FallocateMode,
    0 Allocate { keep_size: keep_size }
    1 PunchHole {}
    2 ZeroRange { keep_size: keep_size }
    3 CollapseRange {}
    4 InsertRange {}
}

variants! { LockMode, 0 Shared {} 1 Exclusive {} }

variants! { FsError,
    0 NotFound {}
    1 Loop {}
    2 Exists {}
    3 NotDirectory {}
    4 IsDirectory {}
    5 NotEmpty {}
    6 Access {}
    7 NotPermitted {}
    8 Invalid {}
    9 NameTooLong {}
    10 NoSpace {}
    11 NoMemory {}
    12 TooLarge {}
    13 TooManyLinks {}
    14 ReadOnly {}
    15 NoAttribute {}
    16 NoData {}
    17 NotSupported {}
    18 BadHandle {}
    19 Range {}
    20 Stale {}
    21 ArgumentTooLong {}
    22 WouldBlock {}
    23 Deadlock {}
    24 NoLocks {}
    25 Io { 0: text }
}

variants! { Reply,
    0 Done {}
    1 Attributes { attributes: attributes }
    2 Bytes { bytes: bytes }
    3 Names { names: names }
    4 Lifetime { lifetime: lifetime }
    5 Space { space: space }
    6 Info { info: info }
    7 Stats { stats: stats }
    8 Flag { flag: flag }
    9 Number { number: number }
    10 Appended { offset: offset, length: length }
    11 Entries { entries: entries }
}

/// The answer of the owner: the number of the kind of result, and the result.
impl Wire<'_> for Result<Reply, Error> {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Ok(reply) => {
                to.push(0);
                reply.put(to);
            }
            Err(Error::Path { path, cause }) => {
                to.push(1);
                path.put(to);
                cause.put(to);
            }
            Err(Error::Operation(cause)) => {
                to.push(2);
                cause.put(to);
            }
            Err(Error::TooManyOpen) => to.push(3),
            // The volume of the owner is closed: this client has no owner any more.
            Err(Error::Closed) => to.push(4),
            Err(error) => {
                to.push(2);
                FsError::Io(error.to_string()).put(to);
            }
        }
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::get(from)? {
            0 => Ok(Reply::get(from)?),
            1 => Err(Error::Path { path: Wire::get(from)?, cause: Wire::get(from)? }),
            2 => Err(Error::Operation(Wire::get(from)?)),
            3 => Err(Error::TooManyOpen),
            4 => Err(Error::Disconnected),
            _ => return None,
        })
    }
}
