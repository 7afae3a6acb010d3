//! The structures, operations and flags of `linux/fuse.h`, version 7.41, that are used here.
//!
//! Everything is in the machine's byte order and laid out without gaps; each structure's size is asserted.
//! Names are the kernel's, so that they can be looked up there.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The supported version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The latest known revision.
pub(crate) const MINOR: u32 = 41;
/// The first revision whose kernels have everything that Polder needs (Linux 5.10): before 5.8, `close` did not write
/// back the pages of a file system without `FLUSH`.
pub(crate) const MINOR_MIN: u32 = 32;
/// The first revision whose kernels forget a file that a rename replaces (Linux 5.16): earlier ones take it for a
/// file with a name.
pub(crate) const MINOR_FORGETTING: u32 = 35;
/// The first revision whose kernels wait for write-back in progress when an inode is invalidated (Linux 6.16).
pub(crate) const MINOR_WAITING: u32 = 44;

/// The operations of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// Capabilities of the handshake. Those from bit 32 on are in `flags2`.
pub(crate) mod init_flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Which fields of [`SetattrIn`] are valid.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    /// The caller may not keep the set-id bits.
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// What the kernel may do with an open file.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NO_FLUSH: u32 = 1 << 5;
}

/// [`GetattrIn`] and [`StatxIn`] name a handle.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// [`FsyncIn`] requests data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// [`ReadIn`] is a program's read past the cache: only such a read names a lock owner. Others fill the cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// The kernel writes back from its cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// The program that opens the file truncates it and may not keep the set-id bits.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// The program that writes may not keep the set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Notification: cached contents and attributes of an inode are invalid.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Notification: the kernel must drop these inodes if they are not in use. Kernels before 7.45 of the protocol refuse
/// it.
pub(crate) const NOTIFY_PRUNE: i32 = 9;
/// Everything that `stat` returns.
pub(crate) const STATX_BASIC_STATS: u32 = 0x7ff;
/// The birth time.
pub(crate) const STATX_BTIME: u32 = 0x800;

/// Structures with their sizes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

structures! {
    /// Before each request.
    InHeader, 40 {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        // The length of the extensions behind the arguments, in units of 8 bytes.
        total_extlen: u16,
        padding: u16,
    }

    /// Before each reply and notification.
    OutHeader, 16 { len: u32, error: i32, unique: u64, }

    InitIn, 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, }

    InitOut, 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        unused: [u32; 6],
    }

    Attr, 88 {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    EntryOut, 128 {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }

    AttrOut, 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }

    ForgetIn, 8 { nlookup: u64, }
    BatchForgetIn, 8 { count: u32, dummy: u32, }

    ForgetOne, 16 { nodeid: u64, nlookup: u64, }

    GetattrIn, 16 { getattr_flags: u32, dummy: u32, fh: u64, }

    SetattrIn, 88 {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }

    StatxIn, 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }

    SxTime, 16 { tv_sec: i64, tv_nsec: u32, reserved: i32, }

    Statx, 256 {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }

    StatxOut, 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }

    MknodIn, 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }

    MkdirIn, 8 { mode: u32, umask: u32, }

    RenameIn, 8 { newdir: u64, }

    Rename2In, 16 { newdir: u64, flags: u32, padding: u32, }

    LinkIn, 8 { oldnodeid: u64, }

    OpenIn, 8 { flags: u32, open_flags: u32, }

    CreateIn, 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }

    OpenOut, 16 { fh: u64, open_flags: u32, backing_id: u32, }

    ReleaseIn, 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }

    ReadIn, 40 {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    WriteIn, 40 {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    WriteOut, 8 { size: u32, padding: u32, }

    StatfsOut, 80 {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }

    FsyncIn, 16 { fh: u64, fsync_flags: u32, padding: u32, }

    /// Without `SETXATTR_EXT`, which is not negotiated.
    SetxattrIn, 8 { size: u32, flags: u32, }

    GetxattrIn, 8 { size: u32, padding: u32, }

    GetxattrOut, 8 { size: u32, padding: u32, }

    FallocateIn, 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }

    LseekIn, 24 { fh: u64, offset: i64, whence: u32, padding: u32, }

    LseekOut, 8 { offset: i64, }

    CopyFileRangeIn, 56 {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }

    /// Its name follows, padded to a multiple of 8 bytes.
    Dirent, 24 { ino: u64, off: u64, namelen: u32, kind: u32, }

    NotifyInvalInodeOut, 24 { ino: u64, off: i64, len: i64, }

    /// The inodes follow it.
    NotifyPruneOut, 16 { count: u32, padding: u32, spare: u64, }
}
