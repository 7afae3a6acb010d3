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

/// What an inode is. The numbers are stored.
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

/// What `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode's number.
    pub inode: InodeNo,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky (the low 12 bits of a mode).
    pub permissions: u16,
    /// Names; of a directory: 2 + subdirectories; 0 once unlinked.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as it was given.
    pub device: u32,
    /// Bytes; of a directory: its number of entries.
    pub size: u64,
    /// Space taken, in units of 512 bytes; contents in the inode's record count as what they are.
    pub blocks: u64,
    /// Last access; set at creation and by `utimensat` only (noatime).
    pub accessed: Timestamp,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Creation.
    pub born: Timestamp,
    /// Tells mounts apart in handles that outlive them.
    pub generation: u32,
}

/// Who asks.
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

    /// Whether permission bits do not hold this caller back.
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
    /// The clock's.
    Now,
    /// This one.
    To(Timestamp),
}

/// What `set_attributes` changes; `None` stays.
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
    /// Change time, where the kernel keeps it; otherwise the clock's.
    pub changed: Option<Timestamp>,
}

impl Changes {
    /// Whether the owner or the group is named, be it the same as before.
    pub(crate) fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// What a handle is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Contents are dropped at opening.
    pub truncate: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
}

/// Variants of rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail where the new name exists.
    pub no_replace: bool,
    /// Swap the two names.
    pub exchange: bool,
    /// Leave a whiteout (character device 0) under the old name.
    pub whiteout: bool,
}

/// What `allocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Fill holes with zeros that take space, and grow the file.
    Allocate {
        /// Do not grow the file.
        keep_size: bool,
    },
    /// Make the range a hole.
    PunchHole,
    /// Make the range read as zeros.
    ZeroRange {
        /// Do not grow the file.
        keep_size: bool,
    },
    /// Take the range out and move what follows down.
    CollapseRange,
    /// Move what follows up and leave a hole.
    InsertRange,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode it names.
    pub inode: InodeNo,
    /// Pass to `read_directory` to go on after this one.
    pub cookie: u64,
    /// What the inode is.
    pub kind: Kind,
    /// The name: any bytes but `/` and NUL.
    pub name: Vec<u8>,
}

/// What `statfs` shows; sizes in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks that could hold users' data.
    pub blocks: u64,
    /// Of these, not holding any.
    pub free: u64,
    /// Of these, what can be written now.
    pub available: u64,
    /// Inodes are bounded by space only and not counted: as many as there could be files of a block each.
    pub files: u64,
    /// Of these, those for which there is space now.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub name_max: u32,
}

/// What `format` decides.
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
    /// How much of the zones data never has, whatever it is for.
    pub reserve: Reserve,
}

/// What a mount decides.
#[derive(Clone)]
pub struct MountOptions {
    /// Memory for tree nodes.
    pub cache_bytes: u64,
    /// Take no change and write nothing.
    pub read_only: bool,
    /// After how long a change is durable without anybody asking.
    pub commit_interval_ns: u64,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

/// What is known of the volume itself.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// The volume's name.
    pub label: String,
    /// Its identity.
    pub fs_id: zone::FsId,
    /// When it was made.
    pub created: Timestamp,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a tree page.
    pub page_size: u32,
    /// Allocation groups.
    pub groups: u16,
    /// Bytes of a file that may lie in its inode's record.
    pub inline_bytes_max: usize,
    /// The version of the disk format.
    pub format_version: u32,
}
