//! The values that operations take and return.

use std::sync::Arc;

use rt::{Clock, Timestamp};
use tree::Reserve;

/// The number of an inode: counter × groups + group; never used for a second inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNo(pub u64);

impl InodeNo {
    /// The root directory.
    pub const ROOT: InodeNo = InodeNo(1);
}

/// The kind of an inode. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A character device.
    CharDevice = 4,
    /// A block device.
    BlockDevice = 5,
    /// A named pipe.
    Fifo = 6,
    /// A socket.
    Socket = 7,
}

impl Kind {
    /// The kind with this stored number.
    pub fn from_number(number: u8) -> Option<Kind> {
        use Kind::*;
        [File, Directory, Symlink, CharDevice, BlockDevice, Fifo, Socket]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// The attributes that `stat` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode's number.
    pub inode: InodeNo,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky (the low 12 bits of a mode).
    pub permissions: u16,
    /// Names; of a directory: 2 + subdirectories; 0 once unlinked.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as it was passed at creation.
    pub device: u32,
    /// Bytes; of a directory: its number of entries.
    pub size: u64,
    /// Space in units of 512 bytes. Inline contents count with their size.
    pub blocks: u64,
    /// Last access; set at creation and by `utimensat` only (noatime).
    pub accessed: Timestamp,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Creation.
    pub born: Timestamp,
    /// Distinguishes mounts in file handles that outlive them.
    pub generation: u32,
}

/// The user on whose behalf an operation runs.
#[derive(Clone, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Bits that creation clears.
    pub umask: u16,
    /// The kernel has already checked permissions (a mount with `default_permissions`).
    pub checked: bool,
}

impl Caller {
    /// Root, with umask 022.
    pub fn root() -> Caller {
        Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0o022, checked: false }
    }

    /// A user with one group and umask 022.
    pub fn user(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, groups: Vec::new(), umask: 0o022, checked: false }
    }

    /// Whether permission bits do not restrict this caller.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller belongs to a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug)]
pub enum SetTime {
    /// The time of the clock.
    Now,
    /// This time.
    To(Timestamp),
}

/// The attributes that `set_attributes` changes. `None` keeps the present value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Permission bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file.
    pub size: Option<u64>,
    /// Access time.
    pub accessed: Option<SetTime>,
    /// Modification time.
    pub modified: Option<SetTime>,
    /// Change time, if the kernel keeps it. Otherwise the clock's time.
    pub changed: Option<Timestamp>,
}

impl Changes {
    /// Whether an owner or a group is set, even the present one.
    pub(crate) fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// The flags of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// The file is truncated when it is opened.
    pub truncate: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
}

/// Variants of rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Swap the two names.
    pub exchange: bool,
    /// Leave a whiteout (character device 0) under the old name.
    pub whiteout: bool,
}

/// The modes of `allocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Preallocate holes as zeros, and extend the file.
    Allocate {
        /// Do not extend the file.
        keep_size: bool,
    },
    /// Make the range a hole.
    PunchHole,
    /// Make the range read as zeros.
    ZeroRange {
        /// Do not extend the file.
        keep_size: bool,
    },
    /// Remove the range and move the bytes behind it down.
    CollapseRange,
    /// Move the bytes behind the offset up and leave a hole.
    InsertRange,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its inode.
    pub inode: InodeNo,
    /// Passed to `read_directory` to continue after this entry.
    pub cookie: u64,
    /// The kind of the inode.
    pub kind: Kind,
    /// The name: any bytes but `/` and NUL.
    pub name: Vec<u8>,
}

/// The values of `statfs`. Sizes are in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks that could contain users' data.
    pub blocks: u64,
    /// Of these, the unused ones.
    pub free: u64,
    /// Of these, the ones that can be written now.
    pub available: u64,
    /// Only space limits the number of inodes. This is the number of files of one block each that would fit.
    pub files: u64,
    /// Of these, the number for which there is space now.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub name_max: u32,
}

/// The options of `format`.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The volume's name, at most 64 bytes.
    pub label: String,
    /// The volume's identity: random, and different for every volume.
    pub fs_id: zone::FsId,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Bytes of a tree page; 16 KiB or a block, if that is larger.
    pub page_size: Option<u32>,
    /// Allocation groups.
    pub groups: Option<u16>,
    /// The share of zones that data cannot use for any purpose.
    pub reserve: Reserve,
}

/// The options of a mount.
#[derive(Clone)]
pub struct MountOptions {
    /// Memory for tree nodes.
    pub cache_bytes: u64,
    /// Accept no changes and write nothing.
    pub read_only: bool,
    /// After how long a change becomes durable on its own.
    pub commit_interval_ns: u64,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The properties of a volume.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// The volume's name.
    pub label: String,
    /// Its identity.
    pub fs_id: zone::FsId,
    /// When it was formatted.
    pub created: Timestamp,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a tree page.
    pub page_size: u32,
    /// Allocation groups.
    pub groups: u16,
    /// The largest number of bytes of an inline file.
    pub inline_bytes_max: usize,
    /// The version of the disk format.
    pub format_version: u32,
}
